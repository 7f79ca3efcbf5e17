package tune

import (
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"testing"
)

// trialsOn are trials on a graph whose figures follow from settings and graph: throughput falls with the degree up to
// the fanout, memory grows with batch, fanout and features, and accuracy with the fanout.
func trialsOn(g *Graph) (trials []Trial) {
	degree := float64(g.Edges) / float64(g.Nodes)
	for _, batch := range []float64{64, 128, 256, 512} {
		for _, fanout := range []float64{2, 5, 10} {
			for _, cached := range []float64{0.1, 0.5} {
				edges := math.Min(fanout, degree)
				o := outcome(1e6/edges*(1+cached)*math.Sqrt(batch), int64(1e5+batch*edges*float64(4*g.Features)),
					0.8+0.01*fanout)
				o.Graph = g
				trials = append(trials, Trial{Number: len(trials) + 1, Outcome: o, Settings: Settings{
					"batch": fmt.Sprint(batch), "fanout": fmt.Sprintf("%v,%v", fanout, fanout), "store": g.Name,
					"cache": fmt.Sprintf("degree:%.0frows", cached*float64(g.Nodes)), "fingerprint": g.Name + "00ff"}})
			}
		}
	}
	return trials
}

func TestASurrogatePredictsAGraphThatItHasNotSeen(t *testing.T) {
	var all []Trial
	for i, degree := range []int64{3, 4, 6, 8, 12, 20} {
		all = append(all, trialsOn(&Graph{fmt.Sprint("g", i), 1000 << i, degree * 1000 << i, 16 + 8*(i%3)})...)
	}
	g := Goals{DeviceMemory: true}
	failed := Trial{Outcome: Outcome{Failed: "so it is"}, Settings: Settings{"batch": "1"}}
	unseen, err := TestUnseen(append(all, failed), g, Regressions...)
	if err != nil || len(unseen) != 6*len(Regressions) {
		t.Fatalf("%d, %v", len(unseen), err)
	}
	good := 0
	for _, u := range unseen {
		if u.Trials != 24 {
			t.Errorf("%+v", u)
		}
		if u.Regression == "gaussian" && *u.R2[0] > 0.8 && *u.R2[2] > 0.99 && *u.Follow[2] > 0.99 {
			good++
		}
	}
	if good < 4 { // the outermost graphs are extrapolated
		t.Errorf("%d of 6 graphs are predicted: %+v", good, unseen)
	}

	way := Gaussian
	s, err := NewSurrogate(all, g, [3]Regression{way, Regressions[0], way})
	if err != nil || len(s.Graphs) != 6 || len(s.Scores) != len(all) {
		t.Fatalf("%+v, %v", s, err)
	}
	for _, c := range s.Columns {
		if notLearned(c.Setting) {
			t.Errorf("column %+v", c)
		}
	}
	text, err := json.Marshal(s)
	if err != nil {
		t.Fatal(err)
	}
	again, err := DecodeSurrogate(text)
	if err != nil {
		t.Fatal(err)
	}
	settings := []Settings{all[0].Settings, all[30].Settings, {"batch": "100", "fanout": "4,4"}}
	got, want := again.Predict(all[0].Graph, settings), s.Predict(all[0].Graph, settings)
	for i := range got {
		if got[i] != want[i] {
			t.Errorf("%v is predicted as %v when it has been saved, %v before", settings[i], got[i], want[i])
		}
	}
	for _, damaged := range []string{"{}", "[]", `{"regressions":["ridge","ridge","ridge"],"x":[[1]],"scores":[[1,2,3]]}`,
		`{"regressions":["ridge","guess","ridge"],"x":[[]],"scores":[[1,2,3]]}`} {
		if _, err := DecodeSurrogate([]byte(damaged)); err == nil {
			t.Errorf("%s is a surrogate", damaged)
		}
	}
	for _, few := range [][]Trial{nil, {failed}, all[:24]} {
		if _, err := TestUnseen(few, g, way); !errors.Is(err, errFewGraphs) {
			t.Errorf("%d trials: %v", len(few), err)
		}
	}
}

func TestAllEdgesAreAsManyAsTheDegree(t *testing.T) {
	g := &Graph{"g", 1e6, 2e7, 16}
	want := g.floats(Settings{"batch": "10", "fanout": "20,20"})
	for _, s := range []Settings{{"fanout": "-1,-1"}, {"fanout": "20,-1"}, {"sampler": "full", "layers": "2"}} {
		if got := g.floats(s.With(Settings{"batch": "10"})); got != want {
			t.Errorf("%v: %g floats, want %g", s, got, want)
		}
	}
}

// With a surrogate, a search begins with what that predicts the best of, within the limits.
func TestASearchBeginsWithWhatIsForeseen(t *testing.T) {
	p := list(t, Space{Dimensions: []Dimension{{"a", []string{"1", "2", "3", "4"}, 0}, {"b", []string{"1", "2"}, 0}}})
	prior := func(all []Settings) (scores []Score) {
		for _, s := range all {
			a, _ := partsOf(s["a"])
			b, _ := partsOf(s["b"])
			scores = append(scores, Score{a[0], -b[0], 0})
		}
		return scores
	}
	for _, c := range []struct {
		g    Goals
		want []string
	}{
		{Goals{Weights: &Score{1, 0, 0}}, []string{"4", "4", "3"}},
		{Goals{Weights: &Score{0.4, 0.6, 0}}, []string{"4", "3", "2"}},
		{Goals{Weights: &Score{0, 1, 0}, MinThroughput: math.Exp(2.5)}, []string{"3", "4", "3"}},
	} {
		propose, err := NewSearch("random", p, c.g, 1, prior)
		if err != nil {
			t.Fatal(err)
		}
		var done []Trial
		for i, want := range c.want {
			s := propose(done)
			if s["a"] != want {
				t.Errorf("%+v: trial %d is of %v, want a = %s", c.g, i+1, s, want)
			}
			done = append(done, Trial{Number: i + 1, Settings: s})
		}
	}
}
