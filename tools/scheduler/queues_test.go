package scheduler

import (
	"context"
	"errors"
	"iter"
	"slices"
	"testing"
	"time"

	"github.com/hopfeed/hopfeed/chunk"
	"github.com/hopfeed/hopfeed/format"
	"github.com/hopfeed/hopfeed/gds"
	"github.com/hopfeed/hopfeed/gds/gdstest"
	"github.com/hopfeed/hopfeed/gds/host"
	"github.com/hopfeed/hopfeed/gds/paced"
	"github.com/hopfeed/hopfeed/gds/testdevice"
	"github.com/hopfeed/hopfeed/internal/vfs"
	"github.com/hopfeed/hopfeed/loader"
	"github.com/hopfeed/hopfeed/loader/sampling"
	"github.com/hopfeed/hopfeed/placement/multiqueue"
	"github.com/hopfeed/hopfeed/tools/ingest"
	"github.com/hopfeed/hopfeed/tools/session"
	"github.com/hopfeed/hopfeed/trainer"
)

// counted counts the seeds of the batches that were computed, by epoch and batch.
type counted struct {
	*sampling.Set
	seeds map[[2]int][]uint32
}

func (c counted) EpochFrom(ctx context.Context, stream gds.Stream, n, first int) iter.Seq2[*loader.Batch, error] {
	return func(yield func(*loader.Batch, error) bool) {
		for b, err := range c.Set.EpochFrom(ctx, stream, n, first) {
			if err == nil {
				c.seeds[[2]int{n, b.Index}] = append(c.seeds[[2]int{n, b.Index}], c.RowNumbers(n, b.Index)...)
			}
			if !yield(b, err) {
				return
			}
		}
	}
}

// queuedRanks are devices that sample a small graph for a training by queues. device opens each of them.
func queuedRanks(t *testing.T, world int, device func(rank int) gds.Device) (
	ranks []trainer.Rank, sets []counted, spec trainer.Spec, nodes []uint32,
) {
	t.Helper()
	ctx, files := t.Context(), vfs.NewMem()
	source, err := ingest.SBM(ingest.SBMOptions{GenerateOptions: ingest.GenerateOptions{Nodes: 300, Edges: 1500,
		Features: 6, Classes: 3, Labeled: 0.9, Seed: 7}, Homophily: 0.8, Separation: 2})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := ingest.Run(ctx, files, source, "graph", ingest.Options{}); err != nil {
		t.Fatal(err)
	}
	graph, err := format.OpenGraph(files, "graph")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { graph.Close() })
	if nodes, err = session.NodesOf(ctx, graph, format.RegionTrain, 0); err != nil {
		t.Fatal(err)
	}
	const batch = 20
	for rank := range world {
		plan := chunk.Plan{BatchRows: batch, ChunkRows: 1, Order: chunk.Shuffled, Seed: 5, Rank: rank, World: world}
		d := device(rank)
		s, err := session.OpenSampled(ctx, graph, session.SampledOptions{
			Sampler: "neighbor", Sampling: sampling.Options{Fanouts: []int{4, 3}, Aggregation: sampling.Mean},
			Seeds: nodes, Device: d, Buffers: sampling.QueueBuffers(4), Plan: plan,
		})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			if err := s.Close(); err != nil {
				t.Error(err)
			}
		})
		set, err := s.Loader.Set(nodes, s.Method, plan)
		if err != nil {
			t.Fatal(err)
		}
		c := counted{set, map[[2]int][]uint32{}}
		sets = append(sets, c)
		ranks = append(ranks, trainer.Rank{Device: d, Data: trainer.Data{Train: c, BatchRows: batch}})
	}
	spec = trainer.Spec{Model: "sage", Matrices: graph.Matrices(), Features: graph.Manifest.Features,
		Classes: graph.Manifest.Classes, Settings: trainer.Values{"hidden": 4, "layers": 2}}
	return ranks, sets, spec, nodes
}

// straggling are queues of devices that take other times from batch to batch.
func straggling(t *testing.T, sets []counted, onArrival bool) *Queues {
	t.Helper()
	q := &Queues{workers: 1, plan: multiqueue.Plan{Queue: 3, Gradients: 3, Period: 4, OnArrival: onArrival}}
	q.pace = paced.Gradients([]gds.Device{paced.New(nil, host.Stages{Compute: time.Millisecond, Straggle: 3})})
	q.compute = make([][]time.Duration, len(sets))
	for _, s := range sets {
		q.Apply([]*sampling.Set{s.Set})
	}
	return q
}

func open(t *testing.T) gds.Device {
	t.Helper()
	return testdevice.Open(t, host.Options{Discrete: true, Threads: 1})
}

// TestEachSeedIsTrainedOnOnce stops a training by queues again and again; what was computed after the last
// synchronisation is dropped and computed once more. The bubble fails if a goroutine is left, and the devices
// if memory is.
func TestEachSeedIsTrainedOnOnce(t *testing.T) {
	for _, onArrival := range []bool{false, true} {
		testdevice.Bubble(t, func(t *testing.T) { testEachSeed(t, onArrival) })
	}
}

func testEachSeed(t *testing.T, onArrival bool) {
	const epochs = 2
	ctx := t.Context()
	ranks, sets, spec, nodes := queuedRanks(t, 3, func(int) gds.Device { return open(t) })
	queues := straggling(t, sets, onArrival)
	f, err := trainer.Start(ctx, ranks, spec, trainer.Options{Epochs: epochs, LearningRate: 0.01,
		Queues: queues.Training()})
	if err != nil {
		t.Fatal(err)
	}
	f.Time(queues.Times())
	for _, s := range sets {
		clear(s.seeds)
	}
	stops := 0
	for {
		within, cancel := context.WithTimeout(ctx, time.Duration(5+10*stops)*time.Millisecond)
		err := f.Train(within, nil)
		cancel()
		if err == nil {
			break
		}
		if stops++; !errors.Is(err, context.DeadlineExceeded) {
			t.Fatal(err)
		}
		state, err := f.State()
		if err != nil {
			t.Fatal(err)
		}
		epoch := len(state.History)
		for _, s := range sets {
			for at := range s.seeds {
				if at[0] > epoch || at[0] == epoch && at[1] >= state.Batch {
					delete(s.seeds, at)
				}
			}
		}
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
	slices.Sort(nodes)
	for epoch := range epochs {
		var seeds []uint32
		for _, s := range sets {
			for at, of := range s.seeds {
				if at[0] == epoch {
					seeds = append(seeds, of...)
				}
			}
		}
		slices.Sort(seeds)
		if !slices.Equal(seeds, nodes) {
			t.Errorf("epoch %d, %d stops: %d seeds, want each of %d once", epoch, stops, len(seeds), len(nodes))
		}
	}
	t.Logf("%d stops", stops)
}

// TestADeviceThatFailsEndsTheQueues lets one of two devices fail at one step after another. Some failures
// nobody sees: where less memory is asked for then, or a batch that was prepared ahead is dropped.
func TestADeviceThatFailsEndsTheQueues(t *testing.T) {
	ended := 0
	for n, failed := 1, true; failed && !t.Failed(); n += 5 {
		testdevice.Bubble(t, func(t *testing.T) {
			device := &gdstest.FailingDevice{}
			ranks, sets, spec, _ := queuedRanks(t, 2, func(rank int) gds.Device {
				if rank == 0 {
					return open(t)
				}
				device.Device = open(t)
				return device
			})
			queues := straggling(t, sets, n%2 == 0)
			device.FailAt(n)
			f, err := trainer.Start(t.Context(), ranks, spec,
				trainer.Options{Epochs: 1, LearningRate: 0.01, Queues: queues.Training()})
			if err == nil {
				f.Time(queues.Times())
				trainErr := f.Train(t.Context(), nil)
				err = errors.Join(trainErr, f.Close())
			}
			if failed = device.Failed(); err != nil {
				ended++
			}
			if err != nil && !device.Is(err) {
				t.Errorf("step %d: %v", n, err)
			}
		})
	}
	if ended < 10 {
		t.Errorf("only %d failures ended a training", ended)
	}
}
