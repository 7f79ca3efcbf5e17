package command

import (
	"context"

	"github.com/spf13/cobra"

	"github.com/hopfeed/hopfeed/internal/units"
	"github.com/hopfeed/hopfeed/tools/bench/papers"
	"github.com/hopfeed/hopfeed/tools/tune"
)

type benchTuneOptions struct {
	runs      int // 0: a tenth
	seeds     int
	reach     float64
	maxMemory units.Bytes
	minValid  float64
	resident  bool

	throughput string
}

func newBenchTuneCommand(a *app) *cobra.Command {
	var o benchTuneOptions
	c := a.verb("tune TRIALS", "Compare searches on trials of all settings of a space",
		`Tune replays all searches of hopfeed tune on trials.jsonl of a search that tried a whole space: each
search is told the outcomes of the settings that it proposes. It prints which share of the
hypervolume of the whole table's Pareto front each search has reached after --trials trials, and how well
regressions predict the trials, by cross-validation. Round i has seed i, from 0 on.`, o.do)
	c.Example = "  hopfeed bench tune tuning/trials.jsonl --rounds 20"
	f := c.Flags()
	f.IntVar(&o.runs, "trials", 0, "trials of a search (default a tenth of the table)")
	f.IntVar(&o.seeds, "rounds", 20, roundsUsage)
	f.Float64Var(&o.reach, "share", 0.95, "share of the table's hypervolume that is to be reached")
	f.Var(&o.maxMemory, "max-memory", maxMemoryUsage)
	f.Float64Var(&o.minValid, "min-accuracy", 0, minAccuracyUsage)
	f.StringVar(&o.throughput, "throughput", wallTime, throughputUsage)
	f.BoolVar(&o.resident, "resident", false, "count the resident memory of the process instead of device memory")
	among(f, "throughput", wallTime, processorTime)
	atLeast(f, 1, "rounds")
	return c
}

func (o *benchTuneOptions) do(ctx context.Context, a *app, args []string) (result, error) {
	table, err := a.readTrials(args[0])
	if err != nil {
		return nil, err
	}
	g := tune.Goals{ProcessorTime: o.throughput == processorTime, DeviceMemory: !o.resident,
		MaxMemory: int64(o.maxMemory)}
	if a.given("min-accuracy") {
		for _, t := range table { // one that has failed may have none
			if err := checkMinAccuracy(o.minValid, t.Metric); err != nil {
				return nil, err
			}
		}
		g.MinValid = &o.minValid
	}
	if o.runs == 0 {
		o.runs = (len(table) + 9) / 10
	}
	switch {
	case o.runs < 1 || o.runs > len(table):
		return nil, usagef("--trials %d: want a number from 1 to the %d trials of the table", o.runs, len(table))
	case !(o.reach > 0 && o.reach <= 1):
		return nil, usagef("--share %v: want a share above 0 and up to 1", o.reach)
	}
	r, err := papers.CompareSearches(ctx, table, g, o.runs, o.seeds, o.reach, a.note)
	if err != nil {
		return nil, usagef("%s: %s", args[0], err)
	}
	return r, nil
}
