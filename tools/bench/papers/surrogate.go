package papers

import (
	"cmp"
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
	Chosen string        `json:"regression"` // the one that predicts unseen throughput and memory best
	Drop   *Drop         `json:"accuracy_drop,omitempty"`
	Output string        `json:"output,omitempty"`
}

// FitSurrogates tests all regressions, and learns the best from all trials.
func FitSurrogates(trials []tune.Trial, g tune.Goals) (*Surrogates, *tune.Surrogate, error) {
	unseen, err := tune.TestUnseen(trials, g, tune.Regressions...)
	if err != nil {
		return nil, nil, err
	}
	r := &Surrogates{Trials: len(trials), Unseen: unseen}
	quality := func(way tune.Regression) (sum float64) {
		for _, u := range unseen {
			for _, r2 := range u.R2[:2] {
				if u.Regression == way.Name && r2 != nil {
					sum += max(*r2, -1)
				}
			}
		}
		return sum
	}
	best := slices.MaxFunc(tune.Regressions, func(a, b tune.Regression) int { return cmp.Compare(quality(a), quality(b)) })
	s, err := tune.NewSurrogate(trials, g, best)
	if err != nil {
		return nil, nil, err
	}
	r.Chosen, r.Graphs = s.Regression, s.Graphs
	if r.Drop, err = FitDrop(trials); err != nil { // the space did not vary what it depends on
		r.Drop = nil
	}
	return r, s, nil
}

// Text prints a table of graphs and regressions.
func (r *Surrogates) Text(w io.Writer) {
	number := func(v *float64) string {
		if v == nil {
			return "-"
		}
		return fmt.Sprintf("%.3f", *v)
	}
	fmt.Fprintf(w, "learnt\t%d trials of %d graphs, by %s\n", r.Trials, len(r.Graphs), r.Chosen)
	fmt.Fprintln(w, "unseen graph\ttrials\tregression\tR2 of throughput\tof memory\tof the metric\tcorrelation of the metric")
	for _, u := range r.Unseen {
		fmt.Fprintf(w, "%s\t%d\t%s\t%s\t%s\t%s\t%s\n", u.Graph, u.Trials, u.Regression, number(u.R2[0]), number(u.R2[1]),
			number(u.R2[2]), number(u.Follow[2]))
	}
	if r.Drop != nil {
		r.Drop.Text(w)
	}
	if r.Output != "" {
		fmt.Fprintf(w, "saved\t%s, for tune --surrogate\n", r.Output)
	}
}
