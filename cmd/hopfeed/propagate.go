package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/hopfeed/hopfeed/internal/machine"
	"github.com/hopfeed/hopfeed/internal/units"
	"github.com/hopfeed/hopfeed/preprop"
)

type propagateOptions struct {
	graph, output string
	hops          int
	operators     string
	tolerance     float64
	rows          string
	dtype         string
	chunkRows     int
	split         int
	force         bool
	dryRun        bool
	scratch       string
	hardware      string
	maxTime       time.Duration
	shard         string
	assemble      bool
	addHops       int
	addOperators  string
	described     preprop.Described
	labeled       float64
}

// grows tells whether a store that is there is added to.
func (o *propagateOptions) grows() bool { return o.addHops != 0 || o.addOperators != "" }

// errMaxTime is why a job ends that has had its time.
var errMaxTime = errors.New("--max-time is over")

func newPropagateCommand(a *app) *cobra.Command {
	var o propagateOptions
	c := &cobra.Command{
		Use:   "propagate GRAPH -o STORE --hops R --operator LIST",
		Short: "Compute propagated features and write a hop store",
		Long: "Propagate computes B^r X for each operator B and hop r = 1..R, and writes these matrices, and X, for\n" +
			"the rows that training reads, in the order in which it reads them.\n\n" +
			"Operators: sym, D^-1/2 (A+I) D^-1/2; rw, D^-1 (A+I); col, (A+I) D^-1; and two series of sym,\n" +
			"cut off where --tolerance allows: ppr:alpha=0.15, personalized PageRank, and heat:t=3, the heat kernel.\n" +
			"With :reverse edges are turned round, with :undirected they go both ways, with :noloops no self-loops are added.\n\n" +
			"What does not fit into --memory is done in panels of columns, through scratch files. A job that ends early, killed or\n" +
			"by --max-time, goes on when the same command is given again, with other --memory or --threads if you like; 'hopfeed\n" +
			"status STORE' tells how far it is. With --shard I/K each of K processes, which share the directory of the store, does\n" +
			"its share of the columns; the last one to finish assembles. --add-hops and --add-operator add to a store that is there.\n\n" +
			"--dry-run prints the plan and stops; with --hardware for a machine that is described, and with --nodes, --edges and\n" +
			"--features instead of GRAPH and STORE for a graph that is not there.",
		Args: cobra.MaximumNArgs(1),
	}
	c.RunE = a.verb(func(ctx context.Context, args []string) (result, error) {
		for _, flag := range []string{"nodes", "edges", "features", "labeled"} {
			if c.Flags().Changed(flag) && (len(args) > 0 || !o.dryRun) {
				return nil, usagef("--%s describes a graph that is not there: it goes with --dry-run, and without GRAPH", flag)
			}
		}
		if len(args) == 0 && c.Flags().Changed("nodes") {
			return planPropagation(a, o)
		}
		if len(args) == 0 || o.output == "" {
			return nil, usagef("want GRAPH and --output STORE")
		}
		o.graph = args[0]
		for _, flag := range []string{"hops", "operator", "rows", "dtype", "chunk-rows", "split", "seed", "force"} {
			if o.grows() && c.Flags().Changed(flag) {
				return nil, usagef("--%s does not go with --add-hops and --add-operator: the store tells", flag)
			}
		}
		return runPropagate(ctx, a, o)
	})
	f := c.Flags()
	f.StringVarP(&o.output, "output", "o", "", "hop store to write")
	f.IntVar(&o.hops, "hops", 2, "number of hops")
	f.StringVar(&o.operators, "operator", "sym", "operators, separated by commas")
	f.Float64Var(&o.tolerance, "tolerance", preprop.DefaultTolerance, "share of the coefficients of ppr and heat that may be left out")
	f.StringVar(&o.rows, "rows", "labeled", "rows to store: labeled (those with a label or in a split) or all")
	f.StringVar(&o.dtype, "dtype", "", "type to store: float32, float16 or bfloat16 (default: that of the graph)")
	f.IntVar(&o.chunkRows, "chunk-rows", 0, "rows of a chunk, the unit of reading (default 1000, fewer where rows are long)")
	f.IntVar(&o.split, "split", 0, "split of the graph that the regions follow")
	f.BoolVar(&o.force, "force", false, "replace a hop store that is there")
	f.BoolVar(&o.dryRun, "dry-run", false, "print what it takes, and write nothing")
	f.StringVar(&o.hardware, "hardware", "", "with --dry-run: machine to plan for, described in a YAML file (default: this one)")
	f.StringVar(&o.scratch, "scratch", "", "folder for scratch files (default: within STORE)")
	f.DurationVar(&o.maxTime, "max-time", 0, "stop after this time, such as 3h30m, so that the job can go on later")
	f.StringVar(&o.shard, "shard", "", "share of the columns to do: I/K, I from 0 to K-1")
	f.BoolVar(&o.assemble, "assemble", false, "compute nothing, but put together what shards have done")
	f.IntVar(&o.addHops, "add-hops", 0, "add as many hops to a store that is there")
	f.StringVar(&o.addOperators, "add-operator", "", "add operators to a store that is there")
	f.Int64Var(&o.described.Nodes, "nodes", 0, "nodes of a graph that is not there")
	f.Int64Var(&o.described.Edges, "edges", 0, "its edges, each direction counted")
	f.IntVar(&o.described.Features, "features", 0, "its features")
	f.Float64Var(&o.labeled, "labeled", 1, "part of its nodes that has a label or is in a split")
	return c
}

// propagated is the result of propagate.
type propagated struct {
	*preprop.Result
	PeakRSSBytes int64 `json:"peak_rss_bytes"`

	dryRun bool
}

func (p *propagated) text(w io.Writer) {
	if p.AlreadyComplete {
		fmt.Fprintf(w, "%s\tis complete already: nothing was done\n", p.Output)
		return
	}
	fmt.Fprintf(w, "%s\t%s of %s (%s): the input", p.Output, count(p.Rows, "row"), count(int64(p.Features), "feature"), p.DType)
	if p.Hops > 0 {
		fmt.Fprintf(w, ", and %s of %s", count(int64(p.Hops), "hop"), strings.Join(p.Operators, ", "))
	}
	fmt.Fprintln(w)
	for i, operator := range p.Operators {
		products, off := p.ProductsPerHop[i], p.TruncationErrors[i]
		switch {
		case off > 0:
			fmt.Fprintf(w, "\t%s: %d products a hop, hop r is off by at most r * %.2g\n", operator, products, off)
		case p.dryRun:
			fmt.Fprintf(w, "\t%s: %d product a hop\n", operator, products)
		}
	}
	if p.dryRun {
		for _, line := range planLines(&p.Plan, units.Bytes(p.MemoryBudgetBytes)) {
			fmt.Fprintf(w, "\t%s\n", line)
		}
		return
	}
	for i, seconds := range p.HopSeconds {
		if p.EdgesProcessed[i] > 0 {
			fmt.Fprintf(w, "\t%s hop %d: %.2f s, %s\n", p.Operators[i/p.Hops], i%p.Hops+1, seconds, count(p.EdgesProcessed[i], "edge"))
		}
	}
	if p.Resumed {
		fmt.Fprintln(w, "\tgone on with what an earlier run had done")
	}
	fmt.Fprintf(w, "\t%s read, %s written, at most %s of memory\n\tin %.1f s (%.1f s predicted)\n",
		units.Bytes(p.BytesRead), units.Bytes(p.BytesWritten), units.Bytes(p.PeakRSSBytes), p.Seconds, p.Plan.Seconds)
	if !p.Published {
		fmt.Fprintf(w, "\tthis shard is done; the store is not complete before the others are (hopfeed status %s)\n", p.Output)
	}
}

// planLines is a plan in words.
func planLines(p *preprop.Plan, budget units.Bytes) []string {
	lines := []string{"plan: all columns at once"}
	if p.Panels > 1 {
		lines[0] = fmt.Sprintf("plan: %d panels of up to %s", p.Panels, count(int64(p.PanelColumns), "column"))
	}
	switch {
	case p.Strips:
		lines[0] += ", cut from the input in one pass"
	case p.InputPasses > 1:
		lines[0] += fmt.Sprintf(", %d passes over the input", p.InputPasses)
	}
	if p.TopologyInMemory {
		lines[0] += ", topology in memory"
	} else {
		lines[0] += fmt.Sprintf(", %d passes over the topology on disk", p.TopologyPasses)
	}
	return append(lines,
		fmt.Sprintf("%s of memory (%s may be used), %s of disk for the store, up to %s for scratch files before",
			units.Bytes(p.MemoryBytes), budget, units.Bytes(p.StoreBytes), units.Bytes(p.ScratchBytes)),
		fmt.Sprintf("%s to read, %s to write, %s", units.Bytes(p.ReadBytes), units.Bytes(p.WrittenBytes), duration(p.Seconds)))
}

// duration is about how long that many seconds are.
func duration(seconds float64) string {
	if seconds < 60 {
		return fmt.Sprintf("about %.1f s", seconds)
	}
	return "about " + time.Duration(seconds*float64(time.Second)).Round(time.Second).String()
}

func parseShard(text string) (preprop.Shard, error) {
	var s preprop.Shard
	if text == "" {
		return s, nil
	}
	if n, err := fmt.Sscanf(text, "%d/%d", &s.Index, &s.Count); n != 2 || err != nil || text != fmt.Sprintf("%d/%d", s.Index, s.Count) || s.Count < 1 || s.Index < 0 || s.Index >= s.Count {
		return s, usagef("--shard %q: want I/K, with I from 0 to K-1, such as 0/4", text)
	}
	return s, nil
}

func runPropagate(ctx context.Context, a *app, o propagateOptions) (result, error) {
	operators, err := preprop.ParseOperators(o.operators, o.tolerance)
	if err != nil {
		return nil, usagef("%s", err)
	}
	t, err := parseDType(o.dtype)
	if err != nil {
		return nil, err
	}
	shard, err := parseShard(o.shard)
	if err != nil {
		return nil, err
	}
	if o.maxTime < 0 {
		return nil, usagef("--max-time %v: must not be negative", o.maxTime)
	}
	if err := a.refuseWithin(o.output); err != nil {
		return nil, err
	}
	budget, _ := a.budget()
	options := preprop.Options{
		Hops: o.hops, Operators: operators, Rows: o.rows, DType: t,
		ChunkRows: o.chunkRows, Split: o.split, Seed: a.seed,
		Threads: a.threads, MemoryBytes: int64(budget), Scratch: o.scratch, Shard: shard, Assemble: o.assemble,
		Force: o.force, DryRun: o.dryRun, Progress: a.progress(),
		Planned: func(p *preprop.Plan) {
			for _, line := range planLines(p, budget) {
				a.note("%s", line)
			}
		},
	}
	if err := a.planFor(&options, o.hardware); err != nil {
		return nil, err
	}
	if o.maxTime > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeoutCause(ctx, o.maxTime, errMaxTime)
		defer cancel()
	}
	var r *preprop.Result
	if o.grows() {
		r, err = growStore(ctx, a, o, options)
	} else {
		r, err = preprop.Propagate(ctx, a.fs, o.graph, o.output, options)
	}
	if err != nil {
		return nil, err
	}
	return &propagated{Result: r, PeakRSSBytes: machine.PeakRSS(), dryRun: o.dryRun}, nil
}

// planFor lets options be planned for a machine that a file describes, if one does.
func (a *app) planFor(options *preprop.Options, hardware string) error {
	if hardware == "" {
		return nil
	}
	h, err := machine.ReadHardware(a.fs, hardware)
	if err != nil {
		return err
	}
	options.Hardware, options.Threads = &h, h.Cores
	if a.memory == 0 {
		options.MemoryBytes = int64(h.Memory)
	}
	return nil
}

// planPropagation plans for a graph that is not there.
func planPropagation(a *app, o propagateOptions) (result, error) {
	operators, err := preprop.ParseOperators(o.operators, o.tolerance)
	if err != nil {
		return nil, usagef("%s", err)
	}
	if o.described.DType, err = parseDType(o.dtype); err != nil {
		return nil, err
	}
	if !(o.labeled >= 0 && o.labeled <= 1) {
		return nil, usagef("--labeled %v: want a part, from 0 to 1", o.labeled)
	}
	o.described.Rows = int64(o.labeled * float64(o.described.Nodes))
	budget, _ := a.budget()
	options := preprop.Options{
		Hops: o.hops, Operators: operators, Rows: o.rows, ChunkRows: o.chunkRows,
		Threads: a.threads, MemoryBytes: int64(budget), DryRun: true,
	}
	if err := a.planFor(&options, o.hardware); err != nil {
		return nil, err
	}
	r, err := preprop.PlanDescribed(o.described, options)
	if err != nil {
		return nil, err
	}
	return &propagated{Result: r, dryRun: true}, nil
}

// growStore adds to a store, which settles the other options.
func growStore(ctx context.Context, a *app, o propagateOptions, options preprop.Options) (*preprop.Result, error) {
	add := preprop.Growth{Hops: o.addHops}
	if o.addOperators != "" {
		var err error
		if add.Operators, err = preprop.ParseOperators(o.addOperators, o.tolerance); err != nil {
			return nil, usagef("%s", err)
		}
	}
	return preprop.Grow(ctx, a.fs, o.graph, o.output, add, options)
}
