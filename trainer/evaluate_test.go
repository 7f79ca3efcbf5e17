package trainer

import (
	"math"
	"testing"

	"github.com/hopfeed/hopfeed/gds"
	"github.com/hopfeed/hopfeed/gds/host"
)

// trainedToy is a small trained model and the rows to try it on.
func trainedToy(t testing.TB) (*Result, *toy) {
	t.Helper()
	dev := openDevice(t, host.Options{})
	spec := toySIGN(3)
	spec.Settings["dropout"] = 0.25
	train, valid := clusters(1, 60, 3, 4, 3, 0.1), clusters(2, 60, 3, 4, 3, 0.1)
	r, err := Fit(t.Context(), []Rank{{dev, Data{Train: train.feed(dev, 20), Valid: valid.feed(dev, 20),
		BatchRows: 20}}},
		spec, Options{Epochs: 6, LearningRate: 0.02, WeightDecay: 1e-5, Seed: 3}, nil)
	if err != nil {
		t.Fatal(err)
	}
	return r, valid
}

func TestEvaluationGoesBySection(t *testing.T) {
	c, valid := trainedToy(t)
	dev := openDevice(t, host.Options{})
	other := clusters(9, 35, 3, 4, 3, 0.5)
	e, err := Evaluate(t.Context(), []gds.Device{dev}, &c.Trained, 20, []NamedRows{
		{"valid", []Epocher{valid.feed(dev, 20)}}, {"empty", []Epocher{&toy{}}}, {"none", []Epocher{nil}},
		{"rest", []Epocher{other.feed(dev, 13)}},
	}, nil)
	if err != nil {
		t.Fatal(err)
	}
	if len(e.ByName) != 2 || e.ByName[0].Name != "valid" || e.ByName[1].Name != "rest" {
		t.Fatalf("%+v", e)
	}
	a, b := e.ByName[0].Score, e.ByName[1].Score
	if a.Rows != 60 || b.Rows != 35 || *b.Value >= 30.0/35 || *b.Value < 15.0/35 || e.Overall.Rows != 95 ||
		math.Abs(*e.Overall.Value-(60**a.Value+35**b.Value)/95) > 1e-15 {
		t.Errorf("%+v", e)
	}
	// The test's own forward pass over the parameters as stored agrees.
	correct := 0.0
	for i, label := range other.labels {
		if predict(c, other, i) == int(label) {
			correct++
		}
	}
	if *b.Value != correct/35 {
		t.Errorf("accuracy %v, want %v of 35 rows", *b.Value, correct)
	}
	if e, err = Evaluate(t.Context(), []gds.Device{dev}, &c.Trained, 20, nil, nil); err != nil || e.Overall.Value != nil {
		t.Errorf("no sections: %+v, %v", e, err)
	}
}

// predict is SIGN of three layers written out, with parameters in the order that the file has them in.
func predict(c *Result, d *toy, row int) int {
	at := 0
	take := func(n int) []float32 { at += n; return c.Parameters[at-n : at] }
	affine := func(x []float64, outputs int) []float64 {
		w, b := take(outputs*len(x)), take(outputs)
		y := make([]float64, outputs)
		for o := range y {
			y[o] = float64(b[o])
			for j, v := range x {
				y[o] += float64(w[o*len(x)+j]) * v
			}
		}
		return y
	}
	relu := func(x []float64) []float64 {
		for i := range x {
			x[i] = max(x[i], 0)
		}
		return x
	}
	var joined []float64
	for k, x := range d.x {
		in := make([]float64, d.features)
		for j := range in {
			in[j] = float64(c.Scales[k]) * float64(x[row*d.features+j])
		}
		joined = append(joined, relu(affine(in, c.Spec.Settings.integer("hidden")))...)
	}
	logits := affine(relu(affine(joined, c.Spec.Settings.integer("hidden"))), c.Spec.Classes)
	best := 0
	for i := range logits {
		if logits[i] > logits[best] {
			best = i
		}
	}
	return best
}
