package session

import (
	"context"
	"errors"
	"iter"
	"reflect"
	"testing"

	"github.com/hopfeed/hopfeed/chunk"
	"github.com/hopfeed/hopfeed/gds"
	"github.com/hopfeed/hopfeed/loader"
	"github.com/hopfeed/hopfeed/placement"
	"github.com/hopfeed/hopfeed/trainer"
)

// stopping is a set that ends a context before the n-th of its batches, counted over all epochs from 0.
type stopping struct {
	*loader.Set
	n    *int
	stop func()
}

func (s stopping) EpochFrom(ctx context.Context, stream gds.Stream, epoch, first int) iter.Seq2[*loader.Batch, error] {
	return func(yield func(*loader.Batch, error) bool) {
		for b, err := range s.Set.EpochFrom(ctx, stream, epoch, first) {
			if *s.n--; *s.n == -1 {
				s.stop()
			}
			if !yield(b, err) {
				return
			}
		}
	}
}

// TestATrainingThatIsStoppedGoesOnFromAnyPlacement stops runs within epochs, and goes on with other devices,
// loaders and sets, from the state as bytes. Parameters and losses are those of a run that was not stopped.
func TestATrainingThatIsStoppedGoesOnFromAnyPlacement(t *testing.T) {
	store := openStore(t, makeFiles(t))
	spec := trainer.Spec{Model: "sign", Matrices: store.Matrices(), Features: 5, Classes: 3,
		Settings: trainer.Values{"hidden": 8, "layers": 2, "dropout": 0.2}}
	type outcome struct {
		parameters []float32
		losses     []float64
	}
	for _, c := range []struct {
		emulate, placement, shuffle string
		sharded                     bool
	}{
		{"", placement.Device, placement.RR, false},
		{"", placement.Storage, placement.CR, false},
		{"gpu=2,mem=1MiB", placement.Host, placement.RR, false},
		{"gpu=2,mem=84KiB", placement.Device, placement.RR, true},
	} {
		t.Run(c.emulate+" "+c.placement, func(t *testing.T) {
			// part trains from a state (nil: from the start) up to some batch.
			part := func(state []byte, batches int) (*outcome, []byte) {
				o := training(thisMachine(t, enough, c.emulate), store)
				o.Placement, o.Shuffle, o.Model = c.placement, c.shuffle, spec
				s, err := Open(t.Context(), store, o)
				if err != nil {
					t.Fatal(err)
				}
				defer func() {
					if err := s.Close(); err != nil {
						t.Error(err)
					}
				}()
				if s.Plan.Sharded != c.sharded {
					t.Errorf("sharded: %t", s.Plan.Sharded)
				}
				train, err := s.Sets(o.Rows[0], chunk.Shuffled, 9)
				if err != nil {
					t.Fatal(err)
				}
				valid, err := s.Sets(o.Rows[1], chunk.Sequential, 9)
				if err != nil {
					t.Fatal(err)
				}
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				var ranks []trainer.Rank
				for i, device := range s.Devices {
					n := -1
					if i == len(s.Devices)-1 {
						n = batches
					}
					ranks = append(ranks, trainer.Rank{Device: device, Data: trainer.Data{
						Train: stopping{train[i], &n, cancel}, Valid: valid[i], BatchRows: s.ShareRows(),
					}})
				}
				var f *trainer.Fitting
				if state == nil {
					f, err = trainer.Start(ctx, ranks, spec, trainer.Options{Epochs: 3, LearningRate: 0.01, Seed: 5})
				} else {
					var decoded *trainer.State
					if decoded, err = trainer.DecodeState(state); err == nil {
						f, err = trainer.Resume(ranks, decoded)
					}
				}
				if err != nil {
					t.Fatal(err)
				}
				defer func() {
					if err := f.Close(); err != nil {
						t.Error(err)
					}
				}()
				err = f.Train(ctx, nil)
				if errors.Is(err, context.Canceled) {
					s, err := f.State()
					if err != nil {
						t.Fatal(err)
					}
					data, err := s.Encode()
					if err != nil {
						t.Fatal(err)
					}
					return nil, data
				}
				if err != nil {
					t.Fatal(err)
				}
				r, err := f.Result()
				if err != nil {
					t.Fatal(err)
				}
				end := &outcome{parameters: r.Parameters}
				for _, e := range r.History {
					end.losses = append(end.losses, e.TrainLoss, e.ValidLoss)
				}
				return end, nil
			}
			want, _ := part(nil, -1)
			_, state := part(nil, 1+2) // the first batch is read once more, to be measured
			_, state = part(state, 4)
			if got, _ := part(state, -1); state == nil || !reflect.DeepEqual(got, want) {
				t.Errorf("%+v, want %+v", got, want)
			}
		})
	}
}
