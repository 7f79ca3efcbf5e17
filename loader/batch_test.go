package loader

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hopfeed/hopfeed/chunk"
	"github.com/hopfeed/hopfeed/format"
	"github.com/hopfeed/hopfeed/gds"
	"github.com/hopfeed/hopfeed/gds/host"
	"github.com/hopfeed/hopfeed/gds/testdevice"
	"github.com/hopfeed/hopfeed/internal/dtype"
)

// readBack waits for a tensor and returns its bytes, row after row.
func readBack(t *testing.T, d gds.Device, stream gds.Stream, x gds.Tensor) []byte {
	t.Helper()
	if x.Buf == nil {
		return nil
	}
	out := make([]byte, gds.Bytes(x.Rows, x.Cols, x.DType))
	if err := gds.Download(d, stream, out, x); err != nil {
		t.Fatal(err)
	}
	return out
}

// Everything that a batch can carry is what the row table and the matrices of the store have for
// its rows, wherever the input is and in whichever type it is wanted.
func TestABatchCarriesWhatIsAskedFor(t *testing.T) {
	for _, spec := range []storeSpec{
		{dtype: format.Float32, chunkRows: 8, features: 5, labels: 1},
		{dtype: format.Float16, chunkRows: 8, features: 5, labels: 3},
		{dtype: format.BFloat16, chunkRows: 20, features: 3, labels: 4},
		{dtype: format.Float32, chunkRows: 8, features: 5, labels: -1},
		{dtype: format.Float32, chunkRows: 8, features: 5, labels: -3},
	} {
		store := newStore(t, spec)
		table, err := store.Rows(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		for _, p := range placements {
			for _, asked := range []Options{
				{RowNumbers: true, NodeIDs: true, AsStored: true},
				{NodeIDs: true},
				{NoLabels: true},
				{NoLabels: true, RowNumbers: true},
				{RowNumbers: true, AsStored: true, Regions: []string{"rest", "valid"}},
			} {
				t.Run(fmt.Sprintf("%v/labels=%d/%s/%+v", spec.dtype, spec.labels, p.name, asked), func(t *testing.T) {
					testdevice.Bubble(t, func(t *testing.T) {
						device := newDevice(t, p.unified, host.Options{Threads: 2})
						o := asked
						o.Device, o.Store, o.Matrices, o.Placement, o.BatchRows = device, store, testMatrices,
							p.placement, 7
						l := mustOpen(t, o)
						plan := chunk.Plan{BatchRows: 7, Order: chunk.Shuffled, ChunkRows: spec.chunkRows}
						valid, _ := store.Region("valid")
						var sets []*Set
						var rowAt []func(int64) int
						sets, rowAt = append(sets, mustSet(t, l, Rows{Region: "valid"}, plan)),
							append(rowAt, from(int(valid.FirstRow)))
						if p.placement != Storage {
							list := []uint32{78, 53, 69, 70, 53}
							plan.ChunkRows = 1
							sets, rowAt = append(sets, mustSet(t, l, Rows{List: list}, plan)),
								append(rowAt, func(i int64) int { return int(list[i]) })
						}
						stream := mustStream(t, device)
						defer stream.Close()
						for i, s := range sets {
							want := s.plan.Epoch(0)
							k := 0
							for b, err := range s.Epoch(t.Context(), stream, 0) {
								if err != nil {
									t.Fatal(err)
								}
								var rows []int
								for w := range want {
									if w.Index == k {
										for _, span := range w.Spans() {
											for r := range int64(span.Rows) {
												rows = append(rows, rowAt[i](span.First+r))
											}
										}
									}
								}
								compareBatch(t, device, stream, b, o, spec, table, rows)
								for at, number := range s.RowNumbers(0, k) {
									if int(number) != rows[at] {
										t.Errorf("batch %d without its data: row %d is called %d, want %d", k, at,
											number, rows[at])
									}
								}
								k++
							}
							if k != s.Batches() {
								t.Errorf("%d batches", k)
							}
						}
					})
				})
			}
		}
	}
}

// compareBatch checks a batch of these rows of the store.
func compareBatch(t *testing.T, d gds.Device, stream gds.Stream, b *Batch, o Options, spec storeSpec,
	table *format.RowTable, rows []int) {
	t.Helper()
	if b.Rows != len(rows) {
		t.Fatalf("batch %d has %d rows, want %d", b.Index, b.Rows, len(rows))
	}
	for m, x := range b.X {
		want := gds.Float32
		if o.AsStored {
			want = spec.dtype
		}
		if x.DType != want || x.Rows != b.Rows || x.Cols != columnsOf(m, spec.features) {
			t.Fatalf("matrix %d is %v", m, x)
		}
		got := make([]float32, x.Rows*x.Cols)
		dtype.Decode(got, readBack(t, d, stream, x), x.DType)
		for i, v := range got {
			if want := value(m, rows[i/x.Cols], i%x.Cols); v != want {
				t.Fatalf("batch %d: element %d of matrix %d is %v, want %v", b.Index, i, m, v, want)
			}
		}
	}
	labels := readBack(t, d, stream, b.Labels)
	numbers, nodes := dtype.Uint32s(readBack(t, d, stream, b.RowNumbers)),
		dtype.Uint32s(readBack(t, d, stream, b.NodeIDs))
	if !o.RowNumbers && len(numbers) > 0 || !o.NodeIDs && len(nodes) > 0 {
		t.Errorf("batch %d has what was not asked for: %v, %v", b.Index, b.RowNumbers, b.NodeIDs)
	}
	if (len(labels) == 0) != o.NoLabels {
		t.Errorf("batch %d has labels %v", b.Index, b.Labels)
	}
	for i, row := range rows {
		if o.RowNumbers && int(numbers[i]) != row {
			t.Errorf("batch %d: row %d is called %d, want %d", b.Index, i, numbers[i], row)
		}
		if o.NodeIDs && nodes[i] != table.NodeID[row] {
			t.Errorf("batch %d: row %d is node %d, want %d", b.Index, i, nodes[i], table.NodeID[row])
		}
		if n := spec.labels; o.NoLabels {
			continue
		} else if n > 1 {
			if got, want := dtype.As[int8](labels)[i*n:(i+1)*n],
				table.MultiLabels[row*n:(row+1)*n]; b.Labels.DType != gds.Int8 || !slices.Equal(got, want) {
				t.Errorf("batch %d: labels %v of row %d, want %v", b.Index, got, row, want)
			}
		} else if n < 0 {
			if got, want := dtype.Float32s(labels)[i*-n:(i+1)*-n],
				table.LabelValues[row*-n:(row+1)*-n]; b.Labels.DType != gds.Float32 || !slices.Equal(got, want) {
				t.Errorf("batch %d: values %v of row %d, want %v", b.Index, got, row, want)
			}
		} else if got := dtype.Int32s(labels)[i]; got != table.Labels[row] {
			t.Errorf("batch %d: label %v of row %d, want %v", b.Index, got, row, table.Labels[row])
		}
	}
}

// holdingLoader is a loader of batches of 8 of 53 rows in two buffers, and its plan.
func holdingLoader(t *testing.T, device gds.Device, store *format.Dir, p Placement) (*Loader, *Set, chunk.Plan) {
	l := mustOpen(t, Options{Device: device, Store: store, Matrices: testMatrices, Placement: p, BatchRows: 8,
		Buffers: 2})
	plan := chunk.Plan{BatchRows: 8, Order: chunk.Shuffled, ChunkRows: 8}
	s := mustSet(t, l, Rows{Region: "train"}, plan)
	plan.Rows = 53
	return l, s, plan
}

// later is an event that happens when it is closed.
type later struct {
	gds.Event
	happened chan struct{}
}

func (e later) Wait(ctx context.Context) error {
	select {
	case <-e.happened:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// One of two batches is held through the epoch, and through the next one: it stays what it is,
// while all others pass through the other buffer.
func TestAHeldBatchStaysWhatItIs(t *testing.T) {
	store := newStore(t, storeSpec{dtype: format.Float16, chunkRows: 8, features: 5, labels: 1})
	for _, p := range placements {
		testdevice.Bubble(t, func(t *testing.T) {
			device := newDevice(t, p.unified, host.Options{Threads: 2})
			l, s, plan := holdingLoader(t, device, store, p.placement)
			stream := mustStream(t, device)
			var held *Batch
			for n := range 2 {
				var got []copied
				for b, err := range s.Epoch(t.Context(), stream, n) {
					if err != nil {
						t.Fatal(err)
					}
					if got = append(got, copyOut(t, device, stream, b)); held == nil && b.Index == 2 {
						held = b
						held.Hold()
					}
				}
				if err := stream.Synchronize(t.Context()); err != nil {
					t.Fatal(err)
				}
				compare(t, got, plan, n, 0, 5, from(0))
			}
			if err := l.Close(); err == nil || !strings.Contains(err.Error(), "1 batches are still held") {
				t.Errorf("closed: %v", err)
			}
			kept := copyOut(t, device, stream, held)
			held.Release(stream.Record())
			if err := stream.Close(); err != nil {
				t.Fatal(err)
			}
			for want := range plan.EpochFrom(0, 2) {
				if err := kept.differs(want, 5, from(0)); err != nil {
					t.Error(err)
				}
				break
			}
		})
	}
}

// The memory is used again when all who held the batch have released it and the events that they
// gave have happened, and not before. Until then the loop waits.
func TestTheLoaderWaitsWhileAllBatchesAreHeld(t *testing.T) {
	store := newStore(t, storeSpec{dtype: format.Float32, chunkRows: 8, features: 5, labels: 1})
	for _, p := range placements {
		synctest.Test(t, func(t *testing.T) {
			device := testdevice.Host(t, host.Options{Threads: 2, Discrete: !p.unified})
			_, s, plan := holdingLoader(t, device, store, p.placement)
			stream := mustStream(t, device)
			defer stream.Close()
			var free atomic.Bool
			var got []copied
			for b, err := range s.Epoch(t.Context(), stream, 0) {
				if err != nil {
					t.Fatal(err)
				}
				if b.Index == 2 && !free.Load() {
					t.Error("the memory of a batch that is held was used for another")
				}
				got = append(got, copyOut(t, device, stream, b))
				if b.Index > 1 {
					continue
				}
				b.Hold()
				b.Hold()
				used := later{happened: make(chan struct{})}
				go func() {
					time.Sleep(time.Hour)
					b.Release(nil)
					time.Sleep(time.Hour)
					b.Release(used)
					time.Sleep(time.Hour)
					free.Store(true)
					close(used.happened)
				}()
			}
			if err := stream.Synchronize(t.Context()); err != nil {
				t.Fatal(err)
			}
			compare(t, got, plan, 0, 0, 5, from(0))
			if waited := s.l.Stats().LoaderWaitSeconds; waited < 3*3600 {
				t.Errorf("the loader says that it waited %v s for a buffer", waited)
			}
		})
	}
}

// A whole epoch is held, in buffers that are added in its loop, and overwritten. It is right before, and
// so is the next epoch: no batch was a view of the input.
func TestALoaderGrowsForWhoHoldsAllBatchesOfAnEpoch(t *testing.T) {
	store := newStore(t, storeSpec{dtype: format.Float32, chunkRows: 8, features: 5, labels: 1})
	for _, p := range placements {
		for _, order := range []chunk.Order{chunk.Sequential, chunk.Shuffled} {
			testdevice.Bubble(t, func(t *testing.T) {
				device := newDevice(t, p.unified, host.Options{Threads: 2})
				plan := chunk.Plan{BatchRows: 8, Order: order, ChunkRows: 8}
				o := Options{Device: device, Store: store, Matrices: testMatrices, Placement: p.placement, BatchRows: 8,
					Buffers: 2, MostBuffers: 7, Owned: true}
				l := mustOpen(t, o)
				s := mustSet(t, l, Rows{Region: "train"}, plan)
				plan.Rows = 53
				stream := mustStream(t, device)
				defer stream.Close()
				var held []*Batch
				for b, err := range s.Epoch(t.Context(), stream, 0) {
					if err != nil {
						t.Fatal(err)
					}
					b.Hold()
					held = append(held, b)
					if n := len(held); n >= 2 && n < 7 {
						if err := l.Grow(); err != nil {
							t.Fatal(err)
						}
					}
				}
				if err := l.Grow(); !errors.Is(err, ErrFull) {
					t.Errorf("an eighth of 7 buffers: %v", err)
				}
				for n := range 2 {
					var got []copied
					for _, b := range held {
						got = append(got, copyOut(t, device, stream, b))
					}
					if err := stream.Synchronize(t.Context()); err != nil {
						t.Fatal(err)
					}
					compare(t, got, plan, n, 0, 5, from(0))
					for _, b := range held {
						for _, x := range b.X {
							stream.Fill(x, 0)
						}
						b.Release(stream.Record())
					}
					if held = nil; n == 1 {
						break
					}
					for b, err := range s.Epoch(t.Context(), stream, 1) {
						if err != nil {
							t.Fatal(err)
						}
						b.Hold()
						held = append(held, b)
					}
				}
			})
		}
	}
}

// Whatever is held when the loop is left or cancelled, it comes back, and nothing else is missing.
func TestAnEpochThatEndsWhileBatchesAreHeldLosesNoBuffer(t *testing.T) {
	store := newStore(t, storeSpec{dtype: format.Float32, chunkRows: 8, features: 5, labels: 1})
	enough := errors.New("enough")
	for _, p := range placements {
		for at := range 4 {
			for _, holds := range []int{1, 2} {
				for _, cancels := range []bool{false, true} {
					synctest.Test(t, func(t *testing.T) {
						device := testdevice.Host(t, host.Options{Threads: 2, Discrete: !p.unified})
						l, s, plan := holdingLoader(t, device, store, p.placement)
						stream := mustStream(t, device)
						defer stream.Close()
						ctx, cancel := context.WithCancelCause(t.Context())
						defer cancel(nil)
						var held []*Batch
						for b, err := range s.Epoch(ctx, stream, 0) {
							if err != nil {
								if !cancels || err != enough {
									t.Error(err)
								}
								continue
							}
							if b.Index > at-holds {
								b.Hold()
								held = append(held, b)
							}
							if len(held) == 2 && cancels {
								time.AfterFunc(time.Hour, func() { cancel(enough) })
							}
							if b.Index == at && !cancels {
								break
							}
							if b.Index == at && len(held) < 2 {
								cancel(enough)
							}
						}
						for _, b := range held {
							b.Release(nil)
						}
						if l.buffers.Free() != 2 {
							t.Fatalf("%d of 2 buffers are free", l.buffers.Free())
						}
						got, err := collect(t, device, s, 1, 0)
						if err != nil {
							t.Fatal(err)
						}
						compare(t, got, plan, 1, 0, 5, from(0))
					})
				}
			}
		}
	}
}

// A Release without a Hold takes nothing from the loop, nor from the batch that has the memory next.
func TestAReleaseWithoutAHoldDoesNothing(t *testing.T) {
	testdevice.Bubble(t, func(t *testing.T) {
		store := newStore(t, storeSpec{dtype: format.Float32, chunkRows: 8, features: 5, labels: 1})
		device := newDevice(t, true, host.Options{Threads: 2})
		_, s, plan := holdingLoader(t, device, store, Host)
		stream := mustStream(t, device)
		defer stream.Close()
		gone := new(Batch) // of no loader
		var got []copied
		for b, err := range s.Epoch(t.Context(), stream, 0) {
			if err != nil {
				t.Fatal(err)
			}
			gone.Hold()
			gone.Release(nil)
			b.Hold()
			b.Release(nil)
			b.Release(nil)
			got = append(got, copyOut(t, device, stream, b))
			gone = b
		}
		if err := stream.Synchronize(t.Context()); err != nil {
			t.Fatal(err)
		}
		compare(t, got, plan, 0, 0, 5, from(0))
		if got, err := collect(t, device, s, 1, 0); err != nil {
			t.Fatal(err)
		} else {
			compare(t, got, plan, 1, 0, 5, from(0))
		}
	})
}
