package papers

import (
	"fmt"
	"math"
	"testing"

	"github.com/hopfeed/hopfeed/tools/tune"
)

// Trials whose drop is the equation written out, on two graphs.
func TestTheAccuracyDropIsFitted(t *testing.T) {
	var trials []tune.Trial
	withoutEdges := tune.Trial{Settings: tune.Settings{"partitions": "2"}, Outcome: tune.Outcome{Valid: new(float64),
		Graph: &tune.Graph{Name: "c", Nodes: 10}}}
	graphs := []*tune.Graph{{Name: "a", Nodes: 1000, Edges: 10000, Features: 4},
		{Name: "b", Nodes: 1000, Edges: 40000, Features: 4}} // densities around 0.02: ln(1/2) and ln 2
	for _, g := range graphs {
		add := func(valid float64, s tune.Settings) {
			s["fanout"] = "5,5"
			trials = append(trials, tune.Trial{Number: len(trials) + 1, Settings: s,
				Outcome: tune.Outcome{Metric: "accuracy", Valid: &valid, Graph: g}})
		}
		add(0.91, tune.Settings{"sampler": "neighbor"})
		add(0.89, tune.Settings{"schedule": "mode-1"})
		add(0.5, tune.Settings{"schedule": "multi-queue"}) // another model
		for _, bias := range []float64{1, 2, 8, 64} {
			for _, rows := range []int{100, 500} {
				for _, partitions := range []int{1, 2, 4} {
					if bias == 1 && partitions == 1 {
						continue
					}
					log := math.Log(bias)
					drop := log*(0.01-0.015*float64(rows)/1000+0.002*math.Log(float64(g.Edges)/20000)) +
						0.03*(1-1/float64(partitions))
					add(0.9-drop, tune.Settings{"sampler": "locality", "bias": fmt.Sprint(bias),
						"cache": fmt.Sprintf("degree:%drows", rows), "partitions": fmt.Sprint(partitions)})
				}
			}
		}
	}
	trials = append(trials,
		tune.Trial{Settings: tune.Settings{"sampler": "labor", "bias": "2"}, Outcome: trials[0].Outcome},
		tune.Trial{Settings: tune.Settings{"bias": "2"}}, withoutEdges,
		tune.Trial{Settings: tune.Settings{}, Outcome: withoutEdges.Outcome})
	d, err := FitDrop(trials)
	if err != nil {
		t.Fatal(err)
	}
	want := []float64{0.01, -0.015, 0.002, 0.03}
	if d.Trials != 2*22 || len(d.Terms) != 4 || *d.R2 < 0.9999 || d.Error > 1e-5 {
		t.Fatalf("%+v", d)
	}
	for k, term := range d.Terms {
		if math.Abs(term.Factor-want[k]) > 1e-4 {
			t.Errorf("%+v, want %v", term, want[k])
		}
	}
	if _, err := FitDrop(trials[:2]); err == nil {
		t.Error("a drop is fitted to trials without a bias")
	}
}
