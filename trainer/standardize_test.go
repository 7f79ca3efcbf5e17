package trainer

import (
	"errors"
	"math"
	"reflect"
	"testing"

	"github.com/hopfeed/hopfeed/gds"
	"github.com/hopfeed/hopfeed/gds/host"
	"github.com/hopfeed/hopfeed/internal/rng"
	"github.com/hopfeed/hopfeed/loader"
)

func TestColumnsGetOneUnitWhereTheyHaveUnitsOfTheirOwn(t *testing.T) {
	const rows = 64
	normal := func(row, col int) float64 { return rng.Normal(uint64(col), uint64(row)) }
	dense := func(unit float64) func(row, col int) float64 {
		return func(row, col int) float64 { return unit * normal(row, col) }
	}
	word := func(every int, size float64) func(row, col int) float64 {
		return func(row, col int) float64 {
			if row%every == 0 {
				return size
			}
			return 0
		}
	}
	constant := func(v float64) func(row, col int) float64 { return func(int, int) float64 { return v } }
	for _, c := range []struct {
		name    string
		columns []func(row, col int) float64
		want    []int // exponents of the factors, give or take one
	}{
		{"units that are close", []func(row, col int) float64{dense(1), dense(10), dense(0.1)}, []int{0, 0, 0}},
		{"words after many hops", []func(row, col int) float64{dense(1), dense(1.0 / 64), dense(1), dense(64)},
			[]int{0, 0, 0, 0}},
		{"rare and frequent words", []func(row, col int) float64{word(2, 1), word(2, 1), word(64, 1), word(10, 1),
			word(3, 1)}, []int{0, 0, 0, 0, 0}},
		{"words of which one is seldom and small", []func(row, col int) float64{word(3, 1), word(4, 1), word(5, 1),
			word(64, 1.0/1024)}, []int{0, 0, 0, 0}},
		{"one column in thousands", []func(row, col int) float64{dense(1), dense(1), dense(1 << 12)}, []int{0, 0, -12}},
		{"one in thousandths", []func(row, col int) float64{dense(1), dense(1), dense(1.0 / (1 << 12))},
			[]int{0, 0, 12}},
		{"a sparse one in thousands", []func(row, col int) float64{dense(1), dense(1), dense(1), word(8, 1<<12)},
			[]int{0, 0, 0, -11}},
		{"one in thousands and a constant", []func(row, col int) float64{dense(1), dense(1), dense(1 << 12),
			constant(1), constant(0)}, []int{0, 0, -12, 0, 0}},
		{"a constant beyond all precision", []func(row, col int) float64{dense(1), dense(1), constant(1 << 30)},
			[]int{0, 0, -16}},
		{"constants alone", []func(row, col int) float64{constant(1), constant(1 << 20), constant(0)}, []int{0, 0, 0}},
		{"units at the ends of float32", []func(row, col int) float64{dense(1), dense(1), dense(1e37), dense(1e-37)},
			[]int{0, 0, -maxExponent, maxExponent}},
	} {
		t.Run(c.name, func(t *testing.T) {
			d := &toy{features: len(c.columns), x: [][]float32{nil}, labels: make([]int32, rows)}
			for row := range rows {
				for col, value := range c.columns {
					d.x[0] = append(d.x[0], float32(value(row, col)))
				}
			}
			dev := openDevice(t, host.Options{})
			g, err := newGroup([]gds.Device{dev}, Spec{Model: "sgc", Matrices: hops("sym", 0), Features: len(c.columns),
				Classes: 2}, rows, taskFor(t, true))
			if err != nil {
				t.Fatal(err)
			}
			defer g.close()
			err = g.firstBatch(t.Context(), []Epocher{d.feed(dev, rows)}, func(shares []*loader.Batch) error {
				m, err := g.moments(t.Context(), shares, 0)
				if err != nil {
					return err
				}
				for j, f := range m.factors() {
					e := math.Log2(float64(f))
					if e != math.Round(e) || math.Abs(e-float64(c.want[j])) > 1 || f*(1/f) != 1 {
						t.Errorf("column %d is multiplied by %v, want 2^%d", j, f, c.want[j])
					}
				}
				return nil
			})
			if err != nil {
				t.Fatal(err)
			}
		})
	}
}

// TestAColumnInAnotherUnitTrainsTheSame compares two runs, bit for bit: where factors are powers of
// two, a unit that is 2^12 times as large changes the weights for it alone.
func TestAColumnInAnotherUnitTrainsTheSame(t *testing.T) {
	for _, spec := range []Spec{toySGC, toySIGN(3)} {
		dev := openDevice(t, host.Options{})
		fit := func(unit float32) *Result {
			data := clusters(1, 60, len(spec.Matrices), spec.Features, spec.Classes, 0.1)
			for _, x := range data.x {
				for i := 0; i < len(x); i += spec.Features {
					x[i] *= unit
				}
			}
			fed := data.feed(dev, 16)
			return mustFit(t, dev, spec, Data{Train: fed, Valid: fed, BatchRows: 16},
				Options{Epochs: 3, LearningRate: 0.01, WeightDecay: 0.01})
		}
		one, other := fit(1<<8), fit(1<<20)
		for i, e := range one.History {
			if o := other.History[i]; e.TrainLoss != o.TrainLoss || e.ValidLoss != o.ValidLoss {
				t.Errorf("%s, epoch %d: %+v and %+v", spec.Model, i+1, e, o)
			}
		}
		_, declared, err := spec.normalized()
		if err != nil {
			t.Fatal(err)
		}
		first := map[int]bool{} // weights for the first column of a matrix
		for _, r := range declared.inputLayers {
			for i := range r.weight.rows * r.weight.cols {
				first[r.weight.first+i] = i%spec.Features == 0
			}
		}
		for i, v := range one.Parameters {
			if first[i] {
				v /= 1 << 12
			}
			if v != other.Parameters[i] {
				t.Errorf("%s: parameter %d is %v and %v", spec.Model, i, one.Parameters[i], other.Parameters[i])
			}
		}
	}
}

// TestSparseFeaturesAreMeasuredAsDenseOnesAre compares the moments of columns, to the bit.
func TestSparseFeaturesAreMeasuredAsDenseOnesAre(t *testing.T) {
	const rows, features, layers = 100, 7, 2
	d := noise(3, rows+layers*toyMoreSources, 1, features, 2)
	d.labels, d.layers = d.labels[:rows], layers
	for i := range d.x[0] {
		if i%5 != 1 {
			d.x[0][i] = 0
		}
	}
	var found []moments
	for _, d.sparse = range []bool{false, true} {
		dev := openDevice(t, host.Options{Discrete: true})
		g, err := newGroup([]gds.Device{dev}, Spec{Model: "gcn", Matrices: hops("sym", 0), Features: features,
			Classes: 2}, rows, taskFor(t, true))
		if err != nil {
			t.Fatal(err)
		}
		err = g.firstBatch(t.Context(), []Epocher{d.feed(dev, rows)}, func(shares []*loader.Batch) error {
			m, err := g.moments(t.Context(), shares, 0)
			found = append(found, m)
			return err
		})
		if err = errors.Join(err, g.close()); err != nil {
			t.Fatal(err)
		}
	}
	if !reflect.DeepEqual(found[0], found[1]) || found[0].rows != rows+layers*toyMoreSources {
		t.Errorf("%+v and %+v", found[0], found[1])
	}
}
