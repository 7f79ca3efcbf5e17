package trainer

import (
	"fmt"
	"math"
	"testing"

	"github.com/hopfeed/hopfeed/gds/host"
	"github.com/hopfeed/hopfeed/internal/rng"
)

// citations is rows like those of a citation graph after a hop: means of the words, 0 or 1, of five papers each, of
// which most are of the row's class. A seventh of the words is of the paper's class.
func citations(seed uint64, rows, features, classes int) *toy {
	const papers, words, topic = 5, 20, 40
	d := &toy{features: features, x: [][]float32{make([]float32, rows*features)}}
	for r := range rows {
		label := r % classes
		d.labels = append(d.labels, int32(label))
		row := d.x[0][r*features : (r+1)*features]
		for p := range papers {
			stream := rng.Hash(rng.Hash(seed, uint64(r)), uint64(p))
			class := label
			if p > 0 && rng.Float64(rng.Hash(stream, 0)) < 0.3 {
				class = int(rng.Hash(stream, 1) % uint64(classes))
			}
			for w := range words {
				h := rng.Hash(stream, uint64(2+w))
				u := rng.Float64(rng.Hash(h, 1))
				word := int(math.Pow(u, 2) * float64(features)) // some words are frequent
				if rng.Float64(h) < 0.15 {
					word = features - 1 - class*topic - int(u*topic)
				}
				row[word] += 1.0 / papers
			}
		}
	}
	return d
}

// elsewhere is rows in other units: a + b x.
func elsewhere(d *toy, a, b float32) *toy {
	for _, x := range d.x {
		for i := range x {
			x[i] = a + b*x[i]
		}
	}
	return d
}

// inTheirOwnUnits is rows whose columns are in units from a thousandth to a thousand.
func inTheirOwnUnits(d *toy) *toy {
	for _, x := range d.x {
		for i := range x {
			x[i] *= float32(math.Pow(10, float64(i%d.features%7-3)))
		}
	}
	return d
}

func TestTheDefaultBatchOfFewRowsIsSmall(t *testing.T) {
	for rows, want := range map[int64]int{0: 16, 1: 16, 128: 16, 140: 17, 4095: 511, 4096: 512, 1 << 40: 512} {
		if s, err := Defaults("hoga", rows); err != nil || s.BatchRows != want {
			t.Errorf("%d rows: batches of %d, %v, want %d", rows, s.BatchRows, err, want)
		}
		if s, err := Defaults("sign", rows); err != nil || s.BatchRows != 512 {
			t.Errorf("sign, %d rows: batches of %d, %v", rows, s.BatchRows, err)
		}
	}
}

// Where an epoch is one batch, training has more epochs to converge in, and its patience is in proportion; a weight
// decay in proportion to 1 / rows would outweigh the loss.
func TestTheDefaultsOfFewRowsHaveStepsEnough(t *testing.T) {
	for _, model := range []string{"sign", "gamlp"} {
		few, err := Defaults(model, fewRows)
		if err != nil {
			t.Fatal(err)
		}
		many, _ := Defaults(model, fewRows+1)
		if few.Epochs <= many.Epochs || few.Patience <= many.Patience || few.BatchRows < fewRows {
			t.Errorf("%s: %+v of few rows, %+v of more", model, few, many)
		}
		for _, rows := range []int64{1, 60, 160, 1400} {
			if s, _ := Defaults(model, rows); s.WeightDecay != 0.002 {
				t.Errorf("%s: weight decay %v of %d rows", model, s.WeightDecay, rows)
			}
		}
		if s, _ := Defaults(model, 3000); s.WeightDecay != 0.001 {
			t.Errorf("%s: weight decay %v of 3000 rows", model, s.WeightDecay)
		}
	}
}

// TestDefaultsSucceedOnFeaturesOfAnyKind trains with the defaults on rows that ask for different
// settings: few labels and many sparse features need weight decay, and a mean far from zero,
// or a unit far from one, have to be taken out first. Accuracies are somewhat below what is reached
// (0.70 and 1.00). SGC with a learning rate of 0.5, no weight decay and features as they are, and
// SIGN with features that are only scaled, reach 0.58, 0.36 and 0.30, and 0.71, 0.71 and 0.19.
func TestDefaultsSucceedOnFeaturesOfAnyKind(t *testing.T) {
	papers := func(seed uint64, rows int) *toy { return citations(seed, rows, 1200, 6) }
	plain := func(seed uint64, rows int) *toy { return clusters(seed, rows, 1, 12, 6, 0) }
	for _, c := range []struct {
		name  string
		rows  func(seed uint64, rows int) *toy
		train int
		least float64 // accuracy
	}{
		{"few labels, many sparse features", papers, 60, 0.66},
		{"the same in small units", func(seed uint64, rows int) *toy { return elsewhere(papers(seed, rows), 0, 1e-5) },
			60, 0.66},
		{"counts in the thousands", func(seed uint64, rows int) *toy { return elsewhere(plain(seed, rows), 3000, 20) },
			120, 0.97},
		{"columns in units of their own", func(seed uint64, rows int) *toy {
			return inTheirOwnUnits(plain(seed,
				rows))
		}, 120, 0.97},
	} {
		for _, model := range []string{"sgc", "sign"} {
			t.Run(fmt.Sprintf("%s, %s", model, c.name), func(t *testing.T) {
				dev := openDevice(t, host.Options{})
				train, valid, test := c.rows(1, c.train), c.rows(2, 120), c.rows(3, 600)
				s, err := Defaults(model, int64(c.train))
				if err != nil {
					t.Fatal(err)
				}
				spec := Spec{Model: model, Matrices: hops("sym", 0), Features: train.features, Classes: 6,
					Settings: s.Values}
				if spec.Settings["hidden"] > 0 {
					spec.Settings["hidden"] /= 4 // for the time they take
				}
				r := mustFit(t, dev, spec, Data{Train: train.feed(dev, s.BatchRows),
					Valid: valid.feed(dev, s.BatchRows), Test: test.feed(dev, s.BatchRows), BatchRows: s.BatchRows},
					Options{Epochs: s.Epochs, LearningRate: s.LearningRate, WeightDecay: s.WeightDecay,
						Patience: s.Patience})
				if *r.TestMetric < c.least {
					t.Errorf("test accuracy %.3f, want %v", *r.TestMetric, c.least)
				}
				if r.Epochs > r.BestEpoch+s.Patience {
					t.Errorf("%d epochs, the best %d", r.Epochs, r.BestEpoch)
				}
			})
		}
	}
}
