package papers

import (
	"fmt"
	"io"
	"slices"

	"github.com/hopfeed/hopfeed/tools/tune"
)

// Surrogates is how well trainings on a graph are predicted from trials on others (a3gnn Table III).
type Surrogates struct {
	Trials int           `json:"trials"`
	Graphs []string      `json:"graphs"`
	Unseen []tune.Unseen `json:"unseen"`
	// Chosen are the regressions whose median R2 is the best, for throughput, memory and metric, and Median these R2:
	// they are the best of five, not an estimate for a further graph.
	Chosen [3]string   `json:"regressions"`
	Median [3]*float64 `json:"median_r2"`
	Drop   *Drop       `json:"accuracy_drop,omitempty"`
	Output string      `json:"output,omitempty"`
}

// FitSurrogates tests all regressions, and learns the best from all trials.
func FitSurrogates(trials []tune.Trial, g tune.Goals) (*Surrogates, *tune.Surrogate, error) {
	unseen, err := tune.TestUnseen(trials, g, tune.Regressions...)
	if err != nil {
		return nil, nil, err
	}
	r := &Surrogates{Trials: len(trials), Unseen: unseen}
	var ways [3]tune.Regression
	for k := range ways {
		for _, way := range tune.Regressions {
			if m := median(unseen, way.Name, k); ways[k].Fit == nil || m != nil && (r.Median[k] == nil || *m > *r.Median[k]) {
				ways[k], r.Median[k] = way, m
			}
		}
	}
	s, err := tune.NewSurrogate(trials, g, ways)
	if err != nil {
		return nil, nil, err
	}
	r.Chosen, r.Graphs = s.Regressions, s.Graphs
	if r.Drop, err = FitDrop(trials); err != nil { // the space did not vary what it depends on
		r.Drop = nil
	}
	return r, s, nil
}

// median is the median R2 of a figure over the graphs; nil: there is none.
func median(unseen []tune.Unseen, way string, k int) *float64 {
	var all []float64
	for _, u := range unseen {
		if u.Regression == way && u.R2[k] != nil {
			all = append(all, *u.R2[k])
		}
	}
	if len(all) == 0 {
		return nil
	}
	slices.Sort(all)
	m := (all[(len(all)-1)/2] + all[len(all)/2]) / 2
	return &m
}

// Text prints a table of graphs and regressions.
func (r *Surrogates) Text(w io.Writer) {
	number := func(v *float64) string {
		if v == nil {
			return "-"
		}
		return fmt.Sprintf("%.3f", *v)
	}
	fmt.Fprintf(w, "learnt\t%d trials of %d graphs\n", r.Trials, len(r.Graphs))
	fmt.Fprintf(w, "unseen graph\ttrials\tR2 of throughput, by %s\tof memory, by %s\tof the metric, by %s\t"+
		"correlation of the metric\n", r.Chosen[0], r.Chosen[1], r.Chosen[2])
	for at := 0; at < len(r.Unseen); at += len(tune.Regressions) {
		of := r.Unseen[at:][:len(tune.Regressions)] // of a graph
		by := func(k int) tune.Unseen {
			return of[slices.IndexFunc(of, func(u tune.Unseen) bool { return u.Regression == r.Chosen[k] })]
		}
		fmt.Fprintf(w, "%s\t%d\t%s\t%s\t%s\t%s\n", of[0].Graph, of[0].Trials, number(by(0).R2[0]), number(by(1).R2[1]),
			number(by(2).R2[2]), number(by(2).Follow[2]))
	}
	fmt.Fprintf(w, "median\t\t%s\t%s\t%s\n", number(r.Median[0]), number(r.Median[1]), number(r.Median[2]))
	if r.Drop != nil {
		r.Drop.Text(w)
	}
	if r.Output != "" {
		fmt.Fprintf(w, "saved\t%s, for tune --surrogate\n", r.Output)
	}
}
