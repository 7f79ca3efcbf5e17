// Package papers reproduces tables and figures of the papers beside which Hopfeed is measured: MorphGL's machines,
// a3gnn's modes and searches. Nothing that a user's training needs is here.
package papers

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"math"
	"slices"
	"strconv"

	"gonum.org/v1/gonum/stat"

	"github.com/hopfeed/hopfeed/tools/tune"
)

// SearchResult is how near a search comes to the Pareto front of a table of trials with a part of its runs.
type SearchResult struct {
	Search string `json:"search"`
	Runs   int    `json:"runs"` // of each seed
	Seeds  int    `json:"seeds"`
	// Hypervolume of the front after runs trials / the whole table's: mean, sample standard
	// deviation, and least over the seeds.
	Share      float64 `json:"hypervolume"`
	ShareStd   float64 `json:"hypervolume_std"`
	ShareLeast float64 `json:"hypervolume_least"`
	Reached    int     `json:"seeds_that_reached"` // the share that was asked for
	// RunsToReach is the median number of runs after which that is reached; nil: more than twice Runs, or by the grid
	// never.
	RunsToReach *int `json:"median_runs_to_reach"`
}

// replay replays a search on a table of all trials of a space: it is told the table's outcome of the settings that it
// proposes. Shares are hypervolume of the front after runs trials / that of the table's front, for the seeds from 0
// on: see tune.Goals.VolumeOn. The grid goes on until it has reached the share: it costs nothing to propose by it.
func replay(ctx context.Context, table []tune.Trial, points *tune.Points, g tune.Goals, name string, runs, seeds int,
	reach float64) (r SearchResult, err error) {
	outcomes := make([]tune.Outcome, points.Len())
	for _, t := range slices.Backward(table) {
		outcomes[points.Find(t.Settings)] = t.Outcome
	}
	volume := g.VolumeOn(g.Front(table))
	whole := volume(table)
	var shares, needed []float64
	for seed := range seeds {
		search, err := tune.NewSearch(name, points, g, uint64(seed), nil)
		if err != nil {
			return r, err
		}
		reached := math.Inf(1)
		propose := func(done []tune.Trial) tune.Settings {
			if n := len(done); n >= 2*runs && name != grid || n >= runs && reached <= float64(n) {
				return nil
			}
			return search(done)
		}
		look := func(_ context.Context, _ int, s tune.Settings) (tune.Outcome, error) {
			return outcomes[points.Find(s)], nil
		}
		done, err := tune.Run(ctx, propose, nil, look, func(done []tune.Trial) error {
			if volume(done) >= reach*whole {
				reached = min(reached, float64(len(done)))
			}
			return nil
		})
		if err != nil {
			return r, err
		}
		shares, needed = append(shares, volume(done[:min(runs, len(done))])/whole), append(needed, reached)
		if reached <= float64(runs) {
			r.Reached++
		}
	}
	r.Search, r.Runs, r.Seeds, r.ShareLeast = name, runs, seeds, slices.Min(shares)
	if r.Share = shares[0]; seeds > 1 {
		r.Share, r.ShareStd = stat.MeanStdDev(shares, nil)
	}
	slices.Sort(needed)
	if n := int(min(needed[seeds/2], math.MaxInt32)); n < math.MaxInt32 {
		r.RunsToReach = &n
	}
	return r, nil
}

// Comparison is how near each search comes to the front of a table of trials.
type Comparison struct {
	Trials   int            `json:"trials"`
	Front    int            `json:"front"` // trials on it
	Share    float64        `json:"share"` // that is to be reached
	Searches []SearchResult `json:"searches"`
	Fits     []tune.Fitted  `json:"surrogates"`
}

// Text prints a table of the searches and one of the regressions.
func (r *Comparison) Text(w io.Writer) {
	fmt.Fprintf(w, "table\t%d trials, %d of them on the front\n", r.Trials, r.Front)
	fmt.Fprintf(w, "search\thypervolume after %d runs\tleast of %d seeds\tseeds with %.0f %%\tmedian runs for that\t"+
		"runs of the grid / these\n", r.Searches[0].Runs, r.Searches[0].Seeds, 100*r.Share)
	all := slices.IndexFunc(r.Searches, func(s SearchResult) bool { return s.Search == grid })
	for _, s := range r.Searches {
		needed := "more than twice as many\t-"
		if s.RunsToReach != nil {
			needed = strconv.Itoa(*s.RunsToReach) + "\t-"
			if g := r.Searches[all].RunsToReach; g != nil {
				needed = fmt.Sprintf("%d\t%.1f", *s.RunsToReach, float64(*g)/float64(*s.RunsToReach))
			}
		}
		fmt.Fprintf(w, "%s\t%.1f +- %.1f %%\t%.1f %%\t%d\t%s\n", s.Search, 100*s.Share, 100*s.ShareStd,
			100*s.ShareLeast, s.Reached, needed)
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

const grid = "grid" // the search that tries all settings in order

// CompareSearches replays all searches, with runs trials for each of seeds. Note gets a line after each.
func CompareSearches(ctx context.Context, table []tune.Trial, g tune.Goals, runs, seeds int, reach float64,
	note func(format string, args ...any)) (*Comparison, error) {
	front := g.Front(table)
	if len(front) == 0 {
		return nil, errors.New(g.Unmet(table))
	}
	points, err := pointsOf(table)
	if err != nil {
		return nil, err
	}
	r := &Comparison{Trials: len(table), Front: len(front), Share: reach,
		Fits: points.Fit(g, table, 0, tune.Regressions...)}
	for _, name := range tune.Searches() {
		s, err := replay(ctx, table, points, g, name, runs, seeds, reach)
		if err != nil {
			return nil, err
		}
		note("%s: %.1f %% of the hypervolume", name, 100*s.Share)
		r.Searches = append(r.Searches, s)
	}
	return r, nil
}

// pointsOf are the distinct settings of trials: what varies among them is a dimension, which begins with the first
// trial's value. A combination of values that no trial has stands for the trial that differs from it in the fewest.
func pointsOf(trials []tune.Trial) (*tune.Points, error) {
	names := map[string]bool{}
	for _, t := range trials {
		for name := range t.Settings {
			names[name] = true
		}
	}
	space := tune.Space{Base: tune.Settings{}}
	for _, name := range slices.Sorted(maps.Keys(names)) {
		var values []string
		for _, t := range trials {
			values = append(values, t.Settings[name])
		}
		slices.SortFunc(values, tune.CompareValues)
		if values = slices.Compact(values); len(values) == 1 {
			space.Base[name] = values[0]
			continue
		}
		space.Dimensions = append(space.Dimensions,
			tune.Dimension{Name: name, Values: values, Default: slices.Index(values, trials[0].Settings[name])})
	}
	space.Simplify = func(s tune.Settings) tune.Settings {
		differing := func(a, b tune.Trial) int {
			return cmp.Compare(len(tune.Differing(s, a.Settings)), len(tune.Differing(s, b.Settings)))
		}
		return maps.Clone(slices.MinFunc(trials, differing).Settings)
	}
	return space.List()
}
