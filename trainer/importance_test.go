package trainer

import (
	"math"
	"testing"

	"github.com/hopfeed/hopfeed/gds"
	"github.com/hopfeed/hopfeed/gds/testdevice"
)

// withMean is a toy whose rows of a matrix are their mean.
func withMean(d *toy, matrix int) *toy {
	changed := *d
	changed.x = append([][]float32{}, d.x...)
	x, width, rows := make([]float32, len(d.x[matrix])), d.width(matrix), int(d.Rows())
	for j := range width {
		mean := 0.0
		for i := range rows {
			mean += float64(d.x[matrix][i*width+j]) / float64(rows)
		}
		for i := range rows {
			x[i*width+j] = float32(mean)
		}
	}
	changed.x[matrix] = x
	return &changed
}

// Importance is compared with an evaluation on other rows.
func TestImportanceIsWhatValidationLosesIfRowsAreTheirMean(t *testing.T) {
	sehgnn := Spec{Model: "sehgnn", Matrices: hops("sym", 2), Features: 4, Classes: 3, Settings: sehgnnOf(6, 3, 2, 0)}
	for _, spec := range []Spec{toySGC3, toySIGN(3), toySSGC, toyGAMLP, toyHOGA, sehgnn, toyNARS} {
		for _, standardize := range []string{"matrix", "none"} {
			for _, world := range []int{1, 2} {
				if testdevice.GPU && (world == 1) == (standardize == "matrix") { // each once: a GPU in software is slow
					continue
				}
				train, valid, _ := sharedToys()
				for i := range valid.x[0] { // noise, far from the others
					train.x[0][i%len(train.x[0])], valid.x[0][i] = valid.x[0][i], 5+valid.x[0][(7*i+3)%len(valid.x[0])]
				}
				devices := openDevices(t, world)
				f, err := Start(t.Context(), deal(devices, 20, train, valid, nil), spec,
					Options{Epochs: 4, LearningRate: 0.02, Seed: 3, Standardize: standardize})
				if err != nil {
					t.Fatal(err)
				}
				if err = f.Train(t.Context(), nil); err == nil {
					err = f.MeasureImportance(t.Context())
				}
				if err != nil {
					t.Fatal(err)
				}
				r, err := f.Result()
				if err != nil {
					t.Fatal(err)
				}
				if err := f.Close(); err != nil {
					t.Fatal(err)
				}
				if len(r.Importance) != len(spec.Matrices) {
					t.Fatalf("%s: %v", spec.Model, r.Importance)
				}
				for i, found := range r.Importance {
					dev := openDevices(t, 1)[0]
					e, err := Evaluate(t.Context(), []gds.Device{dev}, &r.Trained, 20,
						[]NamedRows{{"valid", []Epocher{withMean(valid, i).feed(dev, 20)}}}, nil)
					if err != nil {
						t.Fatal(err)
					}
					want := *r.ValidMetric - *e.Overall.Value
					if found.Matrix != spec.Matrices[i].String() || math.Abs(found.MetricLoss-want) > 1e-9 {
						t.Errorf("%s, %s, %d devices: %+v, want %v", spec.Model, standardize, world, found, want)
					}
				}
			}
		}
	}
}

func TestALossThatRisesIsImportance(t *testing.T) {
	dev := openDevices(t, 1)[0]
	train, valid, _ := sharedToys()
	data := Data{Train: train.withTarget(ValuesTarget, 2).feed(dev, 20),
		Valid: valid.withTarget(ValuesTarget, 2).feed(dev, 20), BatchRows: 20}
	spec := toySIGN(3)
	spec.Classes, spec.Target = 2, ValuesTarget
	f, err := Start(t.Context(), []Rank{{dev, data}}, spec, Options{Epochs: 20, LearningRate: 0.02, Seed: 3})
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if err = f.Train(t.Context(), nil); err == nil {
		err = f.MeasureImportance(t.Context())
	}
	if err != nil {
		t.Fatal(err)
	}
	for i, found := range f.importance {
		if !(found.MetricLoss > 0 && found.LossRise > 0) {
			t.Errorf("matrix %d: %+v", i, found)
		}
	}
}
