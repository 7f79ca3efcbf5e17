package loader

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hopfeed/hopfeed/chunk"
	"github.com/hopfeed/hopfeed/format"
	"github.com/hopfeed/hopfeed/gds"
	"github.com/hopfeed/hopfeed/gds/host"
	"github.com/hopfeed/hopfeed/gds/testdevice"
	"github.com/hopfeed/hopfeed/internal/rng"
)

// The consumer's stream is far behind the loop: it multiplies for a while before
// it looks at each batch. The loader is closed before it has seen the last ones.
func TestABatchIsKeptUntilTheStreamIsDoneWithIt(t *testing.T) {
	spec := storeSpec{dtype: format.Float16, chunkRows: 8, features: 64, labels: 1}
	store := newStore(t, spec)
	for _, p := range placements {
		testdevice.Bubble(t, func(t *testing.T) {
			device := newDevice(t, p.unified, host.Options{Threads: 2})
			buf, err := device.Alloc(3 * 128 * 128 * 4)
			if err != nil {
				t.Fatal(err)
			}
			square := gds.NewTensor(buf, 3*128, 128, gds.Float32)
			l, err := Open(t.Context(), Options{Device: device, Store: store, Matrices: testMatrices,
				Placement: p.placement, Mapped: p.mapped, BatchRows: 4})
			if err != nil {
				t.Fatal(err)
			}
			plan := chunk.Plan{BatchRows: 4, Order: chunk.Shuffled, ChunkRows: 8}
			s := mustSet(t, l, Rows{Region: "train"}, plan)
			stream := mustStream(t, device)
			for n := range 2 {
				var got []copied
				for b, err := range s.Epoch(t.Context(), stream, n) {
					if err != nil {
						t.Fatal(err)
					}
					for range 5 {
						stream.Gemm(false, false, 1, square.Slice(0, 128), square.Slice(128, 256), 0,
							square.Slice(256, 384))
					}
					got = append(got, copyOut(t, device, stream, b))
				}
				if n == 1 {
					if err := l.Close(); err != nil {
						t.Fatal(err)
					}
				}
				if err := stream.Synchronize(t.Context()); err != nil {
					t.Fatal(err)
				}
				plan.Rows = 53
				compare(t, got, plan, n, 0, spec.features, from(0))
			}
			if err := errors.Join(stream.Close(), buf.Free()); err != nil {
				t.Fatal(err)
			}
		})
	}
}

func TestAnEpochThatIsLeftOrCancelledLeavesNothingBehind(t *testing.T) {
	spec := storeSpec{dtype: format.Float16, chunkRows: 8, features: 5, labels: 1}
	store := newStore(t, spec)
	enough := errors.New("enough")
	for _, p := range placements {
		for at := range 7 {
			for _, cancels := range []bool{false, true} {
				testdevice.Bubble(t, func(t *testing.T) {
					device := newDevice(t, p.unified, host.Options{Threads: 2})
					l := mustOpen(t, Options{Device: device, Store: store, Matrices: testMatrices,
						Placement: p.placement, Mapped: p.mapped, BatchRows: 8})
					plan := chunk.Plan{BatchRows: 8, Order: chunk.Shuffled, ChunkRows: 8}
					s := mustSet(t, l, Rows{Region: "train"}, plan)
					before := device.Usage()
					stream := mustStream(t, device)
					ctx, cancel := context.WithCancelCause(t.Context())
					defer cancel(nil)
					count := 0
					for _, err := range s.Epoch(ctx, stream, 0) {
						if err != nil {
							if !cancels || err != enough || count != at+1 {
								t.Fatalf("error %v after %d batches", err, count)
							}
							continue
						}
						if count++; count == at+1 {
							if !cancels {
								break
							}
							cancel(enough)
						}
					}
					if count != at+1 {
						t.Fatalf("%d batches", count)
					}
					if now := device.Usage(); now.InUse != before.InUse || now.PinnedInUse != before.PinnedInUse {
						t.Errorf("memory: %+v before, %+v after", before, now)
					}
					if err := stream.Close(); err != nil {
						t.Fatal(err)
					}
					// And the loader is as good as new.
					got, err := collect(t, device, s, 1, 0)
					if err != nil {
						t.Fatal(err)
					}
					plan.Rows = 53
					compare(t, got, plan, 1, 0, spec.features, from(0))
				})
			}
		}
	}
}

func TestAConsumersErrorEndsWithItsEpoch(t *testing.T) {
	spec := storeSpec{dtype: format.Float32, chunkRows: 8, features: 5, labels: 1}
	store := newStore(t, spec)
	for _, p := range placements {
		testdevice.Bubble(t, func(t *testing.T) {
			device := newDevice(t, p.unified, host.Options{Threads: 2})
			l := mustOpen(t, Options{Device: device, Store: store, Matrices: testMatrices, Placement: p.placement,
				Mapped: p.mapped, BatchRows: 8})
			plan := chunk.Plan{BatchRows: 8, Order: chunk.Shuffled, ChunkRows: 8}
			s := mustSet(t, l, Rows{Region: "train"}, plan)
			stream := mustStream(t, device)
			var last error
			for b, err := range s.Epoch(t.Context(), stream, 0) {
				if last = err; err == nil {
					stream.Copy(b.X[0], b.Labels) // of another shape
				}
			}
			if last == nil {
				t.Error("the loader waited for a stream that failed, and did not notice")
			}
			_ = stream.Close()
			got, err := collect(t, device, s, 1, 0)
			if err != nil {
				t.Fatal(err)
			}
			plan.Rows = 53
			compare(t, got, plan, 1, 0, spec.features, from(0))
		})
	}
}

// ranks are batches [first, last) of an epoch as ranks share them, put together
// again: the rows' labels, and what tells rows apart, in order.
func ranks(t *testing.T, device gds.Device, l *Loader, plan chunk.Plan, epoch, first, last int) (rows [][]float32) {
	t.Helper()
	rows = make([][]float32, last-first)
	for plan.Rank = range plan.World {
		stream := mustStream(t, device)
		at := first
		for b, err := range mustSet(t, l, Rows{Region: "train"}, plan).EpochFrom(t.Context(), stream, epoch, first) {
			if err != nil {
				t.Fatal(err)
			}
			if at == last {
				break
			}
			c := copyOut(t, device, stream, b)
			if err := stream.Synchronize(t.Context()); err != nil {
				t.Fatal(err)
			}
			if c.index != at {
				t.Fatalf("batch %d in the place of %d", c.index, at)
			}
			for i := range c.rows {
				rows[at-first] = append(rows[at-first], float32(c.labels[i]))
				rows[at-first] = append(rows[at-first], c.x[1][i*5:(i+1)*5]...)
			}
			at++
		}
		if err := stream.Close(); err != nil {
			t.Fatal(err)
		}
	}
	return rows
}

// What has to be kept of an epoch is the seed, its number and that of the next
// batch: any number of ranks goes on from there, and no row is lost or repeated.
func TestAnEpochGoesOnWithAnyNumberOfRanks(t *testing.T) {
	store := newStore(t, storeSpec{dtype: format.Float32, chunkRows: 8, features: 5, labels: 1})
	for _, c := range []struct {
		placement Placement
		chunkRows int
	}{{Device, 1}, {Host, 1}, {Host, 8}, {Storage, 8}, {Storage, 16}} {
		t.Run(fmt.Sprintf("%s, chunks of %d", c.placement, c.chunkRows), func(t *testing.T) {
			testdevice.Bubble(t, func(t *testing.T) {
				device := newDevice(t, true, host.Options{Threads: 2})
				l := mustOpen(t, Options{Device: device, Store: store, Matrices: testMatrices, Placement: c.placement,
					BatchRows: 12})
				plan := chunk.Plan{BatchRows: 12, ChunkRows: c.chunkRows, Order: chunk.Shuffled, Seed: 4, World: 1}
				const epoch, batches = 3, 5
				whole := ranks(t, device, l, plan, epoch, 0, batches)
				var seen []float32
				for _, b := range whole {
					for i := 0; i < len(b); i += 6 {
						seen = append(seen, b[i+1])
					}
				}
				slices.Sort(seen)
				var want []float32
				for row := range 53 {
					want = append(want, value(1, row, 0))
				}
				slices.Sort(want)
				if !slices.Equal(seen, want) {
					t.Fatalf("rows are lost or repeated: %v, want %v", seen, want)
				}
				for before := 1; before <= 8; before++ {
					for after := 1; after <= 8; after++ {
						next := int(rng.Hash(uint64(before), uint64(after)) % (batches + 1))
						plan.World = before
						got := ranks(t, device, l, plan, epoch, 0, next)
						plan.World = after
						got = append(got, ranks(t, device, l, plan, epoch, next, batches)...)
						if !slices.EqualFunc(got, whole, slices.Equal) {
							t.Errorf("%d ranks up to batch %d, then %d: other rows than one rank has", before, next,
								after)
						}
					}
				}
			})
		})
	}
}

// By the clock of the bubble, a link brings a batch a second, and the loop keeps it for a second: with one buffer they
// take turns, with two an epoch takes as long as either, and a second more for the first batch (preprop-gnn Figure 6).
func TestLoadingGoesOnBesideComputing(t *testing.T) {
	spec := storeSpec{dtype: format.Float32, chunkRows: 10, features: 5, labels: 1, train: 120}
	store := newStore(t, spec)
	const batches, batchRows = 12, 10
	for _, c := range []struct {
		placement Placement
		chunkRows int
	}{{Host, 1}, {Host, 10}, {Storage, 10}} {
		for buffers, want := range map[int]float64{1: 2 * batches, 2: batches + 1, 3: batches + 1} {
			synctest.Test(t, func(t *testing.T) {
				batchBytes := int64(batchRows * (4*allColumns(5) + 4)) // and labels
				device := newDevice(t, false, host.Options{LinkBytesPerSecond: batchBytes})
				l := mustOpen(t, Options{Device: device, Store: store, Matrices: testMatrices, Placement: c.placement,
					BatchRows: batchRows, Buffers: buffers})
				s := mustSet(t, l, Rows{Region: "train"},
					chunk.Plan{BatchRows: batchRows, ChunkRows: c.chunkRows, Order: chunk.Shuffled})
				stream := mustStream(t, device)
				defer stream.Close()
				start := time.Now()
				for _, err := range s.Epoch(t.Context(), stream, 0) {
					if err == nil {
						err = stream.Synchronize(t.Context())
					}
					if err != nil {
						t.Fatal(err)
					}
					time.Sleep(time.Second)
				}
				if took := time.Since(start).Seconds(); took < want-0.05 || took > want+0.05 {
					t.Errorf("%s, chunks of %d, %d buffers: %.2f s, want %v", c.placement, c.chunkRows, buffers, took,
						want)
				}
			})
		}
	}
}

func TestALoaderIsUsedByOneEpochAtATime(t *testing.T) {
	testdevice.Bubble(t, func(t *testing.T) {
		store := newStore(t, storeSpec{dtype: format.Float32, chunkRows: 8, features: 5, labels: 1})
		device := newDevice(t, true, host.Options{Threads: 2})
		l, err := Open(t.Context(), Options{Device: device, Store: store, Matrices: testMatrices, Placement: Device,
			BatchRows: 10})
		if err != nil {
			t.Fatal(err)
		}
		s := mustSet(t, l, Rows{Region: "train"}, chunk.Plan{BatchRows: 10})
		stream := mustStream(t, device)
		defer stream.Close()
		for _, err := range s.Epoch(t.Context(), stream, 0) {
			if err != nil {
				t.Fatal(err)
			}
			if _, err := collect(t, device, s, 0, 0); err == nil ||
				!strings.Contains(err.Error(), "another epoch is running") {
				t.Errorf("an epoch within an epoch: %v", err)
			}
			if err := l.Close(); err == nil {
				t.Error("closed within an epoch")
			}
			break
		}
		if err := l.Close(); err != nil {
			t.Fatal(err)
		}
		if _, err := collect(t, device, s, 0, 0); err == nil || !strings.Contains(err.Error(), "after Close") {
			t.Errorf("an epoch after Close: %v", err)
		}
		if err := l.Close(); err == nil {
			t.Error("closed twice")
		}
	})
}

// The consumer's stream stands still while its epoch is cancelled and another one begins.
func TestACancelledEpochKeepsItsBatchUntilTheConsumerIsDone(t *testing.T) {
	for _, placement := range []Placement{Host, Storage} {
		synctest.Test(t, func(t *testing.T) {
			slow := newDevice(t, false, host.Options{LinkBytesPerSecond: 1 << 10})
			pinned, err := slow.AllocPinned(10 << 10)
			if err != nil {
				t.Fatal(err)
			}
			defer pinned.Free()
			memory, err := slow.Alloc(10 << 10)
			if err != nil {
				t.Fatal(err)
			}
			defer memory.Free()
			gate := mustStream(t, slow)
			defer gate.Close()
			gate.Copy(gds.NewTensor(memory, 1, 10<<10, gds.Uint8), gds.NewTensor(pinned, 1, 10<<10, gds.Uint8))

			spec := storeSpec{dtype: format.Float32, chunkRows: 4, features: 5, labels: 1}
			device := newDevice(t, true, host.Options{Threads: 2})
			l := mustOpen(t, Options{Device: device, Store: newStore(t, spec), Matrices: testMatrices,
				Placement: placement, BatchRows: 8, Buffers: 1})
			plan := chunk.Plan{BatchRows: 8, ChunkRows: 4, Order: chunk.Shuffled, Seed: 1}
			s := mustSet(t, l, Rows{Region: "train"}, plan)
			consumer := mustStream(t, device)
			consumer.WaitEvent(gate.Record())
			ctx, cancel := context.WithCancel(t.Context())
			time.AfterFunc(time.Second, cancel) // when the loader waits for the consumer
			var got []copied
			for b, err := range s.Epoch(ctx, consumer, 0) {
				if err == nil {
					got = append(got, copyOut(t, device, consumer, b))
				} else if !errors.Is(err, context.Canceled) {
					t.Fatal(err)
				}
			}
			if len(got) != 1 {
				t.Fatalf("%d batches", len(got))
			}
			if _, err := collect(t, device, s, 1, 0); err != nil {
				t.Fatal(err)
			}
			if err := consumer.Close(); err != nil {
				t.Fatal(err)
			}
			plan.Rows = 53
			for want := range plan.EpochFrom(0, 0) {
				if err := got[0].differs(want, spec.features, from(0)); err != nil {
					t.Errorf("%s: %v", placement, err)
				}
				break
			}
		})
	}
}
