package command

import (
	"context"
	"fmt"
	"runtime"
	"slices"

	"github.com/spf13/cobra"

	"github.com/hopfeed/hopfeed/internal/dtype"
	"github.com/hopfeed/hopfeed/internal/machine"
	"github.com/hopfeed/hopfeed/internal/parallel"
	"github.com/hopfeed/hopfeed/internal/units"
	"github.com/hopfeed/hopfeed/tools/bench"
)

type benchPropagateOptions struct {
	bench.PropagateOptions
	dtypes  []string
	gobench bool
}

func newBenchPropagateCommand(a *app) *cobra.Command {
	var o benchPropagateOptions
	c := a.verb("propagate", "Measure propagation over a random graph in memory, beside the speed of the memory",
		`Propagate measures hops of the operator sym over a random graph with skewed out-degrees. Beside them it
prints how fast memory is read from end to end, and how fast random rows are summed. Times are medians. With
--json it prints one object a line for each element type and number of threads; with --gobench one line a round
in the format of benchstat.`, o.do)
	f := c.Flags()
	f.Int64Var(&o.Nodes, "nodes", 1_000_000, "number of nodes")
	f.Int64Var(&o.Edges, "edges", 25_000_000, "number of edges")
	f.IntVar(&o.Features, "features", 128, "features of a node")
	f.StringSliceVar(&o.dtypes, "dtype", []string{"float32", "float16", "bfloat16"}, "element types to measure")
	f.IntSliceVar(&o.Threads, "threads", nil,
		"numbers of threads to measure (default 1, and as many as CPU affinity and quota allow)")
	f.IntVar(&o.Rounds, "rounds", 5, roundsUsage)
	f.BoolVar(&o.gobench, "gobench", false, "print lines as Go's benchmarks do")
	within(f, 1, 1<<32-1, "nodes")
	within(f, 1, 1<<48-1, "edges")
	within(f, 1, 1<<24-1, "features")
	atLeast(f, 1, "rounds")
	return c
}

func (o *benchPropagateOptions) do(ctx context.Context, a *app, _ []string) (result, error) {
	if a.json && o.gobench {
		return nil, usagef("--json, --gobench: want one of them")
	}
	for _, name := range o.dtypes {
		t, err := dtype.Parse(name)
		if err != nil || !t.IsFloat() {
			return nil, usagef("--dtype %s: want float32, float16 or bfloat16", name)
		}
		o.DTypes = append(o.DTypes, t)
	}
	if len(o.Threads) == 0 {
		o.Threads = slices.Compact([]int{1, a.threads})
	}
	for _, n := range o.Threads {
		if n < 1 || n > maxThreads {
			return nil, usagef("--threads %d: must be from 1 to %d", n, maxThreads)
		}
	}
	parallel.SetThreads(slices.Max(o.Threads))
	if units.Bytes(o.Bytes()) > a.budget.Bytes {
		return nil, fmt.Errorf("%w: needs %s of memory, and may use %s (%s): give fewer nodes, edges, features or "+
			"element types",
			machine.ErrDoesNotFit, units.Bytes(o.Bytes()), a.budget.Bytes, a.budget.By)
	}
	o.Seed, o.Progress = a.seed, a.progress()
	results, err := bench.Propagate(ctx, o.PropagateOptions)
	switch {
	case err != nil:
		return nil, err
	case o.gobench:
		fmt.Fprintf(a.stdout, "goos: %s\ngoarch: %s\npkg: github.com/hopfeed/hopfeed/preprop\n", runtime.GOOS,
			runtime.GOARCH)
		for _, r := range results {
			for _, line := range r.GoBench() {
				fmt.Fprintln(a.stdout, line)
			}
		}
		return nil, nil
	}
	return lines(a, results, bench.PropagateTable(results))
}
