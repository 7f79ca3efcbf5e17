package trainer

import (
	"testing"

	"github.com/hopfeed/hopfeed/gds"
	"github.com/hopfeed/hopfeed/gds/host"
)

func TestDeviceBytesAreWhatTrainingAndEvaluationTake(t *testing.T) {
	const batch = 500 // rows, so that activations are of many pages
	for _, c := range gradientCases {
		if a, err := AggregationOf(c.spec.Model); a != "" || err != nil {
			continue // its memory grows with the batches
		}
		t.Run(c.name, func(t *testing.T) {
			c.spec.Features, c.spec.Classes = 100, 70
			data := noiseFor(1, 520, c.spec)
			fresh := func() (*toy, func() int64) {
				dev := openDevice(t, host.Options{})
				return data.feed(dev, batch), func() int64 { return dev.Usage().Peak }
			}
			// What the batches take has been measured without a model.
			rows, input := fresh()
			stream, err := rows.dev.NewStream()
			if err != nil {
				t.Fatal(err)
			}
			for _, err := range rows.EpochFrom(t.Context(), stream, 0, 0) {
				if err != nil {
					t.Fatal(err)
				}
			}
			if err := stream.Close(); err != nil {
				t.Fatal(err)
			}

			rows, trained := fresh()
			r := mustFit(t, rows.dev, c.spec, Data{Train: rows, Valid: rows, Test: rows, BatchRows: batch},
				Options{Epochs: 1, LearningRate: 0.01})
			rows, evaluated := fresh()
			if _, err := Evaluate(t.Context(), []gds.Device{rows.dev}, &r.Trained, batch,
				[]NamedRows{{"all", []Epocher{rows}}}, nil); err != nil {
				t.Fatal(err)
			}
			for _, k := range []struct {
				train bool
				peak  int64
			}{{true, trained()}, {false, evaluated()}} {
				got, err := c.spec.DeviceBytes(batch, k.train)
				if want := k.peak - input(); err != nil || got != want {
					t.Errorf("train=%t: %d bytes, %v; the device says %d", k.train, got, err, want)
				}
			}
		})
	}
}
