package main

import (
	"context"
	"fmt"
	"io"
	"slices"
	"strconv"

	"github.com/spf13/cobra"

	"github.com/hopfeed/hopfeed/internal/units"
	"github.com/hopfeed/hopfeed/tools/bench/papers"
	"github.com/hopfeed/hopfeed/tools/tune"
)

type benchTuneOptions struct {
	table     string
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
	c := &cobra.Command{
		Use:   "tune TRIALS",
		Short: "Compare searches on trials of all settings of a space",
		Long: "Tune replays all searches of hopfeed tune on a file with the trials of a whole space, the trials.jsonl of a search\n" +
			"whose budget was large enough: each search is told the outcomes of what it proposes. It compares the hypervolume of\n" +
			"the Pareto fronts that they find with so many runs with that of the whole table, and says how well regressions\n" +
			"predict the trials, by cross-validation. Each round has another seed, from 0 on.",
		Example: "  hopfeed bench tune tuning/trials.jsonl --rounds 20",
		Args:    cobra.ExactArgs(1),
	}
	f := c.Flags()
	f.IntVar(&o.runs, "trials", 0, "trials of a search (default a tenth of the table)")
	f.IntVar(&o.seeds, "rounds", 20, roundsUsage)
	f.Float64Var(&o.reach, "share", 0.95, "share of the table's hypervolume that is to be reached")
	f.Var(&o.maxMemory, "max-memory", maxMemoryUsage)
	f.Float64Var(&o.minValid, "min-accuracy", 0, minAccuracyUsage)
	f.StringVar(&o.throughput, "throughput", wallTime, throughputUsage)
	f.BoolVar(&o.resident, "resident", false, "memory is what the process had resident, not that of the device")
	c.RunE = a.verb(func(ctx context.Context, args []string) (result, error) {
		o.table = args[0]
		r, err := runBenchTune(ctx, a, o, f.Changed("min-accuracy"))
		if err != nil {
			return nil, err
		}
		return r, nil
	})
	return c
}

// comparedSearches is the result of bench tune.
type comparedSearches struct {
	Trials   int                   `json:"trials"`
	Front    int                   `json:"front"` // trials on it
	Share    float64               `json:"share"` // that is to be reached
	Searches []papers.SearchResult `json:"searches"`
	Fits     []tune.Fitted         `json:"surrogates"`
}

func (r *comparedSearches) text(w io.Writer) {
	fmt.Fprintf(w, "table\t%d trials, %d of them on the front\n", r.Trials, r.Front)
	fmt.Fprintf(w, "search\thypervolume after %d runs\tleast of %d seeds\tseeds with %.0f %%\tmedian runs for that\n", r.Searches[0].Runs, r.Searches[0].Seeds, 100*r.Share)
	for _, s := range r.Searches {
		needed := "more than twice as many"
		if s.RunsToReach != nil {
			needed = strconv.Itoa(*s.RunsToReach)
		}
		fmt.Fprintf(w, "%s\t%.1f +- %.1f %%\t%.1f %%\t%d\t%s\n", s.Search, 100*s.Share, 100*s.ShareStd, 100*s.ShareLeast, s.Reached, needed)
	}
	fmt.Fprintln(w, "predicted\tregression\tR2")
	for _, f := range r.Fits {
		r2 := "-"
		if f.R2 != nil {
			r2 = fmt.Sprintf("%.3f", *f.R2)
		}
		fmt.Fprintf(w, "%s\t%s\t%s\n", f.Figure, f.Regression, r2)
	}
}

func runBenchTune(ctx context.Context, a *app, o benchTuneOptions, hasMinValid bool) (*comparedSearches, error) {
	if err := oneOf("throughput", o.throughput, wallTime, processorTime); err != nil {
		return nil, err
	}
	table, err := a.readTrials(o.table)
	if err != nil {
		return nil, err
	}
	g := tune.Goals{ProcessorTime: o.throughput == processorTime, DeviceMemory: !o.resident, MaxMemory: int64(o.maxMemory)}
	if hasMinValid {
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
	case o.seeds < 1:
		return nil, usagef("--rounds %d: must be at least 1", o.seeds)
	case !(o.reach > 0 && o.reach <= 1):
		return nil, usagef("--share %v: want a share above 0 and up to 1", o.reach)
	}
	front := g.Front(table)
	if len(front) == 0 {
		return nil, usagef("%s: %s", o.table, g.Unmet(table))
	}
	points, err := papers.PointsOf(table)
	if err != nil {
		return nil, usagef("%s: %s", o.table, err)
	}
	r := &comparedSearches{Trials: len(table), Front: len(front), Share: o.reach, Fits: papers.FitAll(points, g, table, 0)}
	names := slices.DeleteFunc(tune.Searches(), func(name string) bool { return name == "grid" })
	for _, name := range names {
		s, err := papers.ReplaySearch(ctx, table, g, name, o.runs, o.seeds, o.reach)
		if err != nil {
			return nil, err
		}
		a.note("%s: %.1f %% of the hypervolume", name, 100*s.Share)
		r.Searches = append(r.Searches, s)
	}
	return r, nil
}
