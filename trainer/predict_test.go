package trainer

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"maps"
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/hopfeed/hopfeed/gds"
	"github.com/hopfeed/hopfeed/gds/gdstest"
	"github.com/hopfeed/hopfeed/gds/host"
	"github.com/hopfeed/hopfeed/gds/testdevice"
	"github.com/hopfeed/hopfeed/loader"
)

// unlabelled are the batches of a set, without labels.
type unlabelled struct{ Epocher }

func (u unlabelled) EpochFrom(ctx context.Context, stream gds.Stream, n, first int) iter.Seq2[*loader.Batch, error] {
	return func(yield func(*loader.Batch, error) bool) {
		for b, err := range u.Epocher.EpochFrom(ctx, stream, n, first) {
			if b != nil {
				b.Labels = gds.Tensor{}
			}
			if !yield(b, err) {
				return
			}
		}
	}
}

// sharesOf are the rows of a toy for each of the devices, without labels.
func sharesOf(d *toy, devices []gds.Device, batch int) (sets []Epocher) {
	for rank, device := range devices {
		fed := d.feed(device, batch)
		fed.rank, fed.world, fed.numbered = rank, len(devices), true
		sets = append(sets, unlabelled{fed})
	}
	return sets
}

// predictAll applies a model to rows, and collects what it tells.
func predictAll(ctx context.Context, devices []gds.Device, c *Result, d *toy, batch int) (values []float32,
	classes []int32, err error) {
	err = Predict(ctx, devices, &c.Trained, batch, []NamedRows{{"rest", sharesOf(d, devices, batch)}},
		func(p *Predictions) error {
			if p.Columns != c.Spec.Classes || len(p.Values) != p.Rows*p.Columns {
				return fmt.Errorf("%d values [%d,%d]", len(p.Values), p.Rows, p.Columns)
			}
			values, classes = append(values, p.Values...), append(classes, p.Classes...)
			return nil
		})
	return values, classes, err
}

// TestPredictionsAreThoseOfTheDefinition compares them with the model in float64, and requires the
// same of any batches, threads and devices.
func TestPredictionsAreThoseOfTheDefinition(t *testing.T) {
	for target, about := range targets {
		outputs := about.outputs
		c, d := trainedToy(t)
		c.Spec.Target, c.Options.Loss, c.Options.Metric = target, "", ""
		if target == ValuesTarget {
			c.Parameters = append(c.Parameters, 1, 2, 3, 2, 4, 8) // means and units
		}
		x := make([]rows64, len(d.x))
		for k := range x {
			for i := range d.labels {
				row := widen(d.x[k][i*4 : (i+1)*4])
				for j := range row {
					row[j] *= float64(c.Scales[k])
				}
				x[k] = append(x[k], row)
			}
		}
		spec := c.Spec
		spec.Settings = maps.Clone(spec.Settings)
		spec.Settings["dropout"] = 0 // nothing is dropped out
		want := logits64[spec.Model](spec, widen(c.Parameters), x, 0)
		if target == ValuesTarget {
			for _, row := range want {
				row[0], row[1], row[2] = 1+2*row[0], 2+4*row[1], 3+8*row[2]
			}
		}
		var first []float32
		for _, world := range []int{1, 3} {
			for _, batch := range []int{60, 59, 7, 1} {
				for _, threads := range []int{1, 2} {
					var devices []gds.Device
					for range world {
						devices = append(devices, openDevice(t, host.Options{Threads: threads, Discrete: world > 1}))
					}
					values, classes, err := predictAll(t.Context(), devices, c, d, batch)
					if err != nil {
						t.Fatal(err)
					}
					if (len(classes) > 0) != (outputs == ClassOutputs) {
						t.Errorf("%s: classes %v", outputs, classes)
					}
					if first == nil {
						first = values
						for i, row := range want {
							comparePredictions(t, outputs, row, values[i*3:(i+1)*3])
							if len(classes) > 0 && slices.Index(row, slices.Max(row)) != int(classes[i]) {
								t.Errorf("row %d is of class %d, by %v", i, classes[i], row)
							}
						}
					}
					if !samePredictions(devices[0], values, first) {
						t.Errorf("%s, %d devices, batches of %d rows, %d threads: other predictions", outputs, world,
							batch, threads)
					}
				}
			}
		}
	}
}

// samePredictions tells whether batches of other sizes give the same bits, or nearly the same where a library
// multiplies: it may add in another order for another number of rows.
func samePredictions(d gds.Device, a, b []float32) bool {
	if !strings.HasPrefix(d.Info().Products, "cuBLAS") {
		return sameBits(a, b)
	}
	return slices.EqualFunc(a, b, func(x, y float32) bool {
		return math.Abs(float64(x-y)) <= 1e-4*(1+math.Abs(float64(x)))
	})
}

// TestPredictionsOfARowDoNotDependOnTheOthers requires the same of any batches, of every model.
func TestPredictionsOfARowDoNotDependOnTheOthers(t *testing.T) {
	for _, k := range kinds {
		if k.aggregation != "" {
			continue // a row depends on its neighbours
		}
		spec := Spec{Model: k.name, Matrices: hops("sym", 2), Features: 4, Classes: 3}
		data, dev := clusters(1, 70, 3, 4, 3, 0.2), openDevice(t, host.Options{})
		fed := data.feed(dev, 32)
		c := (mustFit(t, dev, spec, Data{Train: fed, BatchRows: 32}, Options{Epochs: 1, LearningRate: 0.01}))
		var first []float32
		for _, batch := range []int{70, 33, 3, 1} {
			values, _, err := predictAll(t.Context(), []gds.Device{dev}, c, data, batch)
			if err != nil {
				t.Fatal(err)
			}
			if first == nil {
				first = values
			}
			if !samePredictions(dev, values, first) {
				t.Errorf("%s: batches of %d rows give other predictions", k.name, batch)
			}
		}
	}
}

func TestSetsArePredictedOneAfterAnother(t *testing.T) {
	c, d := trainedToy(t)
	devices := []gds.Device{openDevice(t, host.Options{})}
	want, _, err := predictAll(t.Context(), devices, c, d, 20)
	if err != nil {
		t.Fatal(err)
	}
	head, tail := *d, *d
	head.labels, tail.labels, tail.x = d.labels[:5], d.labels[5:], nil
	for _, x := range d.x {
		tail.x = append(tail.x, x[5*d.features:])
	}
	var got []float32
	sets := []NamedRows{{"valid", sharesOf(&head, devices, 20)}, {"none", []Epocher{nil}},
		{"test", sharesOf(&tail, devices, 20)}}
	err = Predict(t.Context(), devices, &c.Trained, 20, sets, func(p *Predictions) error {
		got = append(got, p.Values...)
		return nil
	})
	if err != nil || !samePredictions(devices[0], got, want) {
		t.Errorf("%v, %v, want %v", err, got, want)
	}
}

// comparePredictions compares the values of a row with what the model puts out for it in float64.
func comparePredictions(t *testing.T, outputs Outputs, logits []float64, values []float32) {
	t.Helper()
	for j, got := range values {
		want := logits[j]
		switch outputs {
		case ClassOutputs:
			sum := 0.0
			for _, v := range logits {
				sum += math.Exp(v - want)
			}
			want = 1 / sum
		case LabelOutputs:
			want = 1 / (1 + math.Exp(-want))
		}
		if math.Abs(float64(got)-want) > 1e-5*(1+math.Abs(want)) {
			t.Errorf("%s: %v, want %v (of %v)", outputs, got, want, logits)
		}
	}
}

func TestPredictedClassesHaveTheAccuracyOfTheEvaluation(t *testing.T) {
	c, d := trainedToy(t)
	dev := openDevice(t, host.Options{})
	e, err := Evaluate(t.Context(), []gds.Device{dev}, &c.Trained, 20,
		[]NamedRows{{"test", []Epocher{d.feed(dev, 20)}}}, nil)
	if err != nil {
		t.Fatal(err)
	}
	_, classes, err := predictAll(t.Context(), []gds.Device{dev}, c, d, 13)
	if err != nil {
		t.Fatal(err)
	}
	correct := 0
	for i, class := range classes {
		if class == d.labels[i] {
			correct++
		}
	}
	if accuracy := float64(correct) / float64(len(classes)); accuracy != *e.Overall.Value || accuracy == 1 {
		t.Errorf("accuracy %v, evaluated %v", accuracy, *e.Overall.Value)
	}
}

func TestExtremeOutputsStayProbabilities(t *testing.T) {
	for _, c := range []struct {
		outputs    Outputs
		row, wants []float32
		largest    int32
	}{
		{ClassOutputs, []float32{-1e38, 3e38, 0}, []float32{0, 1, 0}, 1},
		{ClassOutputs, []float32{7, 7}, []float32{0.5, 0.5}, 0},
		{LabelOutputs, []float32{-3e38, 0, 3e38}, []float32{0, 0.5, 1}, 2},
		{ValueOutputs, []float32{-3e38, 2}, []float32{-3e38, 2}, 1},
	} {
		row := slices.Clone(c.row)
		if largest, ok := c.outputs.convert(row, make([]float64, len(row))); !ok || largest != c.largest ||
			!slices.Equal(row, c.wants) {
			t.Errorf("%s: %v becomes %v, %d, %t", c.outputs, c.row, row, largest, ok)
		}
	}
}

func TestPredictionEndsWithTheFirstError(t *testing.T) {
	c, d := trainedToy(t)
	devices := []gds.Device{openDevice(t, host.Options{})}
	full := errors.New("the disk is full")
	for at := range 3 {
		used := 0
		err := Predict(t.Context(), devices, &c.Trained, 20, []NamedRows{{"rest", sharesOf(d, devices, 20)}},
			func(*Predictions) error {
				if used++; used == at+1 {
					return full
				}
				return nil
			})
		if !errors.Is(err, full) || used != at+1 {
			t.Errorf("error at batch %d: %v, %d batches used", at, err, used)
		}
	}
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(full)
	if _, _, err := predictAll(ctx, devices, c, d, 20); !errors.Is(err, full) {
		t.Errorf("interrupted: %v", err)
	}
	d.x[0][4*33] = float32(math.Inf(1))
	if _, _, err := predictAll(t.Context(), devices, c, d, 20); err == nil ||
		!strings.Contains(err.Error(), "row 33 ") || !strings.Contains(err.Error(), "not finite") {
		t.Errorf("an infinite feature: %v", err)
	}
	d.x[0][4*33], d.shuffle = 0, true
	if _, _, err := predictAll(t.Context(), devices, c, d, 20); err == nil ||
		!strings.Contains(err.Error(), "must be consecutive") {
		t.Errorf("shuffled rows: %v", err)
	}
}

// Each step of each device fails once, and nothing hangs or is left.
func TestAPredictionThatFailsOnOneDeviceEndsOnAll(t *testing.T) {
	c, d := trainedToy(t)
	for rank := range 2 {
		for n := 1; ; n++ {
			var device gdstest.FailingDevice
			device.FailAt(n)
			testdevice.Bubble(t, func(t *testing.T) {
				devices := openDevices(t, 2)
				sets := sharesOf(d, devices, 20)
				device.Device = devices[rank]
				devices[rank] = &device
				err := Predict(t.Context(), devices, &c.Trained, 20, []NamedRows{{"rest", sets}},
					func(*Predictions) error { return nil })
				if !device.Failed() && err != nil || device.Failed() && !device.Is(err) {
					t.Errorf("device %d at step %d: %v", rank, n, err)
				}
			})
			if !device.Failed() {
				if n < 20 {
					t.Errorf("only %d steps of device %d", n, rank)
				}
				break
			}
		}
	}
}
