package loader

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hopfeed/hopfeed/chunk"
	"github.com/hopfeed/hopfeed/format"
	"github.com/hopfeed/hopfeed/gds"
	"github.com/hopfeed/hopfeed/gds/host"
	"github.com/hopfeed/hopfeed/internal/rng"
	"github.com/hopfeed/hopfeed/internal/vfs"
)

// Most tests run in a synctest bubble: it fails when all goroutines wait for one
// another, and when one is left at the end.

var placements = []struct {
	name      string
	placement Placement
	unified   bool
}{
	{"device, unified", Device, true},
	{"device, discrete", Device, false},
	{"host, unified", Host, true},
	{"host, discrete", Host, false},
	{"storage, unified", Storage, true},
	{"storage, discrete", Storage, false},
}

// plans are the plans that a placement takes, for one size of batch.
func plans(p Placement, chunkRows, batchRows int) []chunk.Plan {
	out := []chunk.Plan{
		{BatchRows: batchRows},
		{BatchRows: batchRows, Order: chunk.Shuffled, ChunkRows: chunkRows, Seed: 1},
		{BatchRows: batchRows, Order: chunk.Shuffled, ChunkRows: 3 * chunkRows, Seed: 2},
		{BatchRows: batchRows, Order: chunk.Shuffled, ChunkRows: chunkRows, Seed: 3, Rank: 1, World: 3},
		{BatchRows: min(batchRows, 9), Order: chunk.Shuffled, ChunkRows: chunkRows, Seed: 4, DropLast: true},
	}
	if p != Storage {
		out = append(out,
			chunk.Plan{BatchRows: batchRows, Order: chunk.Shuffled, ChunkRows: 1, Seed: 5},
			chunk.Plan{BatchRows: batchRows, Order: chunk.Shuffled, ChunkRows: chunkRows - 1, Seed: 6})
	}
	return out
}

func TestEveryPlacementGivesTheBatchesOfThePlan(t *testing.T) {
	for _, spec := range []storeSpec{
		{format.Float32, 8, 5, 1, 0}, {format.Float16, 8, 5, 1, 0}, {format.BFloat16, 20, 3, 1, 0}, {format.Float32, 100, 1, 1, 0},
	} {
		store := newStore(t, spec)
		for _, p := range placements {
			t.Run(fmt.Sprintf("%v, chunks of %d, %s", spec.dtype, spec.chunkRows, p.name), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					device := newDevice(t, p.unified, host.Options{Threads: 2})
					for i, batchRows := range []int{1, 3, 7, 8, 9, 20, 52, 53, 1000} {
						l := mustOpen(t, Options{
							Device: device, Store: store, Matrices: testMatrices, Placement: p.placement,
							BatchRows: batchRows, Buffers: i % 4, Threads: 3,
						})
						for n, plan := range plans(p.placement, spec.chunkRows, batchRows) {
							for _, r := range store.Layout().Regions {
								s := mustSet(t, l, Rows{Region: r.Name}, plan)
								plan.Rows = r.Rows
								if s.Rows() != r.Rows || s.Batches() != plan.Batches() {
									t.Fatalf("%d rows, %d batches", s.Rows(), s.Batches())
								}
								for _, first := range []int{0, plan.Batches() / 2} {
									got, err := collect(t, device, s, n, first)
									if err != nil {
										t.Fatal(err)
									}
									compare(t, got, plan, n, first, spec.features, from(int(r.FirstRow)))
								}
							}
						}
					}
				})
			})
		}
	}
}

func TestLongSpansAreCopiedToTheSameBatches(t *testing.T) {
	for _, dtype := range []format.DType{format.Float32, format.BFloat16} {
		spec := storeSpec{dtype, 100, 3, 1, 730}
		store := newStore(t, spec)
		for _, p := range placements {
			synctest.Test(t, func(t *testing.T) {
				device := newDevice(t, p.unified, host.Options{Threads: 2})
				l := mustOpen(t, Options{Device: device, Store: store, Matrices: testMatrices, Placement: p.placement, BatchRows: 350})
				plan := chunk.Plan{Rows: 730, BatchRows: 350, ChunkRows: 100, Order: chunk.Shuffled}
				for b := range plan.Epoch(0) {
					if long := new(Loader).bySpan(&job{plan: b}); long != (b.Rows == 350) || long && len(b.Spans) < 2 {
						t.Fatalf("the plan does not test what it should: %+v", b)
					}
				}
				got, err := collect(t, device, mustSet(t, l, Rows{Region: "train"}, plan), 0, 0)
				if err != nil {
					t.Fatal(err)
				}
				compare(t, got, plan, 0, 0, spec.features, from(0))
			})
		}
	}
}

func TestTheNaiveLoaderGivesTheSameBatches(t *testing.T) {
	spec := storeSpec{dtype: format.Float16, chunkRows: 8, features: 5, labels: 1}
	store := newStore(t, spec)
	for _, p := range placements {
		synctest.Test(t, func(t *testing.T) {
			device := newDevice(t, p.unified, host.Options{Threads: 2})
			o := Options{Device: device, Store: store, Matrices: testMatrices, Placement: p.placement, BatchRows: 7, Buffers: 1, BySpan: true}
			if p.placement == Storage {
				if _, err := Open(t.Context(), o); err == nil || !strings.Contains(err.Error(), "not rows one by one") {
					t.Errorf("from storage: %v", err)
				}
				return
			}
			l := mustOpen(t, o)
			for _, plan := range plans(p.placement, 8, 7) {
				got, err := collect(t, device, mustSet(t, l, Rows{Region: "train"}, plan), 0, 0)
				if err != nil {
					t.Fatal(err)
				}
				plan.Rows = 53
				compare(t, got, plan, 0, 0, spec.features, from(0))
			}
		})
	}
}

func TestASetRunsOverAListOfRows(t *testing.T) {
	spec := storeSpec{dtype: format.Float16, chunkRows: 8, features: 5, labels: 1}
	store := newStore(t, spec)
	for _, p := range placements {
		synctest.Test(t, func(t *testing.T) {
			device := newDevice(t, p.unified, host.Options{Threads: 2})
			l := mustOpen(t, Options{Device: device, Store: store, Matrices: testMatrices, Placement: p.placement, BatchRows: 7})
			list := someRows(40)
			plan := chunk.Plan{Order: chunk.Shuffled, BatchRows: 7, ChunkRows: 8}
			s, err := l.Set(Rows{List: list}, plan)
			if p.placement == Storage {
				if err == nil || !strings.Contains(err.Error(), "propagate again with --split") {
					t.Errorf("from storage: %v", err)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			got, err := collect(t, device, s, 0, 0)
			if err != nil {
				t.Fatal(err)
			}
			plan.Rows = 40
			compare(t, got, plan, 0, 0, spec.features, func(r int64) int { return int(list[r]) })
		})
	}
}

func TestALoaderHoldsOnlyItsRegions(t *testing.T) {
	spec := storeSpec{dtype: format.Float32, chunkRows: 8, features: 5, labels: 1}
	store := newStore(t, spec)
	for _, p := range placements {
		synctest.Test(t, func(t *testing.T) {
			device := newDevice(t, p.unified, host.Options{Threads: 2})
			l := mustOpen(t, Options{
				Device: device, Store: store, Matrices: testMatrices, Placement: p.placement, BatchRows: 4,
				Regions: []string{"rest", "valid"},
			})
			for _, name := range []string{"valid", "rest"} {
				r, _ := store.Region(name)
				plan := chunk.Plan{Rows: r.Rows, BatchRows: 4}
				got, err := collect(t, device, mustSet(t, l, Rows{Region: name}, plan), 0, 0)
				if err != nil {
					t.Fatal(err)
				}
				compare(t, got, plan, 0, 0, spec.features, from(int(r.FirstRow)))
			}
			if p.placement != Storage {
				if want := int64(26*5*4) * 3; l.Stats().BytesRead != want {
					t.Errorf("read %d bytes, want %d", l.Stats().BytesRead, want)
				}
				plan := chunk.Plan{Rows: 2, BatchRows: 4}
				got, err := collect(t, device, mustSet(t, l, Rows{List: []uint32{78, 53}}, plan), 0, 0)
				if err != nil {
					t.Fatal(err)
				}
				compare(t, got, plan, 0, 0, spec.features, func(r int64) int { return []int{78, 53}[r] })
				if _, err := l.Set(Rows{List: []uint32{53, 52}}, plan); err == nil || !strings.Contains(err.Error(), "row 52, at place 1") {
					t.Errorf("a row of another region: %v", err)
				}
			}
			if _, err := l.Set(Rows{Region: "train"}, chunk.Plan{BatchRows: 4}); err == nil || !strings.Contains(err.Error(), `not for "train"`) {
				t.Errorf("another region: %v", err)
			}
		})
	}
}

// With as few slots as a batch can need, for every ratio of batch to chunk, and
// one buffer: nothing waits for itself.
func TestTheFewestChunkSlotsAreEnough(t *testing.T) {
	for _, chunkRows := range []int{1, 2, 5, 8, 26, 53, 60} {
		spec := storeSpec{dtype: format.Float32, chunkRows: chunkRows, features: 2, labels: 1}
		store := newStore(t, spec)
		for _, batchRows := range []int{1, 2, 3, 8, 13, 30, 53} {
			synctest.Test(t, func(t *testing.T) {
				device := newDevice(t, true, host.Options{Threads: 2})
				o := Options{
					Device: device, Store: store, Matrices: testMatrices, Placement: Storage,
					BatchRows: batchRows, Buffers: 1, ChunkSlots: 1,
				}
				l, err := Open(t.Context(), o)
				for err != nil {
					if !strings.Contains(err.Error(), "need") {
						t.Fatal(err)
					}
					o.ChunkSlots++
					l, err = Open(t.Context(), o)
				}
				for _, plan := range plans(Storage, chunkRows, batchRows) {
					got, err := collect(t, device, mustSet(t, l, Rows{Region: "train"}, plan), 3, 0)
					if err != nil {
						t.Fatal(err)
					}
					plan.Rows = 53
					compare(t, got, plan, 3, 0, 2, from(0))
				}
				if err := l.Close(); err != nil {
					t.Fatal(err)
				}
			})
		}
	}
}

// The consumer's stream is far behind the loop: it multiplies for a while before
// it looks at each batch. The loader is closed before it has seen the last ones.
func TestABatchIsKeptUntilTheStreamIsDoneWithIt(t *testing.T) {
	spec := storeSpec{dtype: format.Float16, chunkRows: 8, features: 64, labels: 1}
	store := newStore(t, spec)
	for _, p := range placements {
		synctest.Test(t, func(t *testing.T) {
			device := newDevice(t, p.unified, host.Options{Threads: 2})
			buf, err := device.Alloc(3 * 128 * 128 * 4)
			if err != nil {
				t.Fatal(err)
			}
			square := gds.NewTensor(buf, 3*128, 128, gds.Float32)
			l, err := Open(t.Context(), Options{Device: device, Store: store, Matrices: testMatrices, Placement: p.placement, BatchRows: 4})
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
						stream.Gemm(false, false, 1, square.Slice(0, 128), square.Slice(128, 256), 0, square.Slice(256, 384))
					}
					got = append(got, copyOut(stream, b))
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
				synctest.Test(t, func(t *testing.T) {
					device := newDevice(t, p.unified, host.Options{Threads: 2})
					l := mustOpen(t, Options{Device: device, Store: store, Matrices: testMatrices, Placement: p.placement, BatchRows: 8})
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
		synctest.Test(t, func(t *testing.T) {
			device := newDevice(t, p.unified, host.Options{Threads: 2})
			l := mustOpen(t, Options{Device: device, Store: store, Matrices: testMatrices, Placement: p.placement, BatchRows: 8})
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

// faultyStore has chunks of most of a page, so that half a read is not enough.
var faultyStore = storeSpec{dtype: format.Float16, chunkRows: 8, features: 250, labels: 1}

// faulty runs Open and an epoch on a file system that has been armed, and checks
// that what comes before an error is right and nothing is left.
func faulty(t *testing.T, fsys vfs.FS, p Placement, unified bool, arm func()) (err error) {
	synctest.Test(t, func(t *testing.T) {
		store, openErr := format.OpenStore(fsys, "store")
		if openErr != nil {
			t.Fatal(openErr)
		}
		defer store.Close()
		device := newDevice(t, unified, host.Options{Threads: 2})
		arm()
		var l *Loader
		l, err = Open(t.Context(), Options{Device: device, Store: store, Matrices: testMatrices, Placement: p, BatchRows: 5})
		if err != nil {
			return
		}
		defer func() {
			if closed := l.Close(); closed != nil {
				t.Errorf("close: %v", closed)
			}
		}()
		plan := chunk.Plan{Rows: 53, BatchRows: 5, ChunkRows: 8, Order: chunk.Shuffled}
		var got []copied
		got, err = collect(t, device, mustSet(t, l, Rows{Region: "train"}, plan), 0, 0)
		k := 0
		for want := range plan.Epoch(0) {
			if k == len(got) {
				break
			}
			if differs := got[k].differs(want, faultyStore.features, from(0)); differs != nil {
				t.Errorf("before the error %v: %v", err, differs)
			}
			k++
		}
		if err == nil && k != plan.Batches() {
			t.Errorf("%d batches and no error", k)
		}
	})
	return err
}

func TestAnyOperationThatFailsIsAnErrorAndNeverAHang(t *testing.T) {
	mem := vfs.NewMem()
	writeStore(t, mem, "store", faultyStore)
	for _, p := range placements {
		for n := int64(1); ; n++ {
			fault := vfs.NewFault(mem)
			err := faulty(t, fault, p.placement, p.unified, func() { fault.FailAt(fault.Operations()+n, syscall.EIO) })
			if err == nil {
				if n < 10 {
					t.Errorf("%s: only %d operations", p.name, n)
				}
				break
			}
			if !errors.Is(err, syscall.EIO) || strings.Contains(err.Error(), "\n") {
				t.Errorf("%s: operation %d fails: %v", p.name, n, err)
			}
		}
	}
}

func TestAnyReadThatIsShortOrWrongIsCorruption(t *testing.T) {
	mem := vfs.NewMem()
	writeStore(t, mem, "store", faultyStore)
	for _, p := range placements {
		for _, flips := range []bool{false, true} {
			for n := int64(1); ; n++ {
				fault, before := vfs.NewFault(mem), int64(0)
				err := faulty(t, fault, p.placement, p.unified, func() {
					before = fault.Reads()
					if flips {
						fault.FlipBit(before+n, 3)
					} else {
						fault.ShortenRead(before + n)
					}
				})
				if fault.Reads()-before < n {
					if err != nil {
						t.Error(err)
					}
					break
				}
				if !errors.Is(err, format.ErrCorrupt) {
					t.Errorf("%s: read %d, flips %v: %v", p.name, n, flips, err)
				}
			}
		}
	}
}

// Chunk 3 of a matrix is damaged in the file: in row order, the batches that need
// no row of it come first.
func TestDamageComesWithTheBatchThatNeedsIt(t *testing.T) {
	for _, unified := range []bool{true, false} {
		synctest.Test(t, func(t *testing.T) {
			mem := vfs.NewMem()
			writeStore(t, mem, "store", storeSpec{dtype: format.Float32, chunkRows: 8, features: 5, labels: 1})
			store := openStore(t, mem, "store")
			m, err := store.Matrix(testMatrices[1])
			if err != nil {
				t.Fatal(err)
			}
			damage(t, mem, "store/"+m.Extent(3).File, m.Extent(3).Offset+17)
			if err := m.Close(); err != nil {
				t.Fatal(err)
			}
			device := newDevice(t, unified, host.Options{Threads: 2})
			l := mustOpen(t, Options{Device: device, Store: store, Matrices: testMatrices, Placement: Storage, BatchRows: 5})
			plan := chunk.Plan{Rows: 53, BatchRows: 5}
			got, err := collect(t, device, mustSet(t, l, Rows{Region: "train"}, plan), 0, 0)
			var corrupt *format.CorruptError
			if !errors.As(err, &corrupt) || corrupt.Chunk != 3 || !strings.HasSuffix(corrupt.File, "sym/hop-1/part-0.arrow") {
				t.Errorf("error %v", err)
			}
			if want := 3 * 8 / 5; len(got) != want {
				t.Errorf("%d batches before the damage, want %d", len(got), want)
			}
			unchecked := mustOpen(t, Options{Device: device, Store: store, Matrices: testMatrices, Placement: Storage, BatchRows: 5, Unchecked: true})
			if got, err := collect(t, device, mustSet(t, unchecked, Rows{Region: "train"}, plan), 0, 0); err != nil || len(got) != plan.Batches() {
				t.Errorf("unchecked: %d batches, %v", len(got), err)
			}
			for _, p := range []Placement{Device, Host} {
				if _, err := Open(t.Context(), Options{Device: device, Store: store, Matrices: testMatrices, Placement: p, BatchRows: 5}); !errors.Is(err, format.ErrCorrupt) {
					t.Errorf("%s: %v", p, err)
				}
			}
			// Other regions are not concerned.
			got, err = collect(t, device, mustSet(t, l, Rows{Region: "valid"}, plan), 0, 0)
			if err != nil {
				t.Fatal(err)
			}
			plan.Rows = 17
			compare(t, got, plan, 0, 0, 5, from(53))
		})
	}
}

// damage flips a bit of a file.
func damage(t *testing.T, fsys vfs.FS, path string, at int64) {
	t.Helper()
	f, err := fsys.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	size, err := f.Size()
	if err != nil {
		t.Fatal(err)
	}
	data, err := io.ReadAll(io.NewSectionReader(f, 0, size))
	if err != nil {
		t.Fatal(err)
	}
	data[at] ^= 1
	p, err := fsys.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := p.Write(data); err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(p.Commit(), f.Close()); err != nil {
		t.Fatal(err)
	}
}

func TestStatsSayWhatWasDone(t *testing.T) {
	spec := storeSpec{dtype: format.Float32, chunkRows: 8, features: 5, labels: 1}
	store := newStore(t, spec)
	for _, p := range placements {
		synctest.Test(t, func(t *testing.T) {
			device := newDevice(t, p.unified, host.Options{Threads: 2})
			l := mustOpen(t, Options{Device: device, Store: store, Matrices: testMatrices, Placement: p.placement, BatchRows: 5})
			train := mustSet(t, l, Rows{Region: "train"}, chunk.Plan{BatchRows: 5, ChunkRows: 8, Order: chunk.Shuffled})
			for n := range 2 {
				if _, err := collect(t, device, train, n, 0); err != nil {
					t.Fatal(err)
				}
			}
			s := l.Stats()
			if s.Placement != p.placement || s.Batches != 22 || s.Rows != 106 || len(s.Stages) != 4 || s.Stages[3].Name != "assemble" {
				t.Errorf("%+v", s)
			}
			bytes, path := int64(testRows*5*4*3), "buffered"
			if p.placement == Storage {
				// An epoch reads each chunk of its region once, and no other.
				bytes, path = 2*53*5*4*3, "direct"
			}
			if s.BytesRead != bytes || len(s.Reads) != 1 || s.Reads[0].Path != path || s.Reads[0].Files != 3 {
				t.Errorf("read %d bytes, want %d by path %s: %+v", s.BytesRead, bytes, path, s.Reads)
			}
			if _, err := json.Marshal(s); err != nil {
				t.Error(err)
			}
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
			c := copyOut(stream, b)
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
			synctest.Test(t, func(t *testing.T) {
				device := newDevice(t, true, host.Options{Threads: 2})
				l := mustOpen(t, Options{Device: device, Store: store, Matrices: testMatrices, Placement: c.placement, BatchRows: 12})
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
							t.Errorf("%d ranks up to batch %d, then %d: other rows than one rank has", before, next, after)
						}
					}
				}
			})
		})
	}
}

// By the clock of the bubble, a link brings a batch a second, and the loop keeps it
// for a second: with one buffer they take turns, with two an epoch takes as long as
// either, and a second more for the first batch (preprop-gnn Figure 6).
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
				batchBytes := int64(batchRows * (5*4*len(testMatrices) + 4)) // and labels
				device := newDevice(t, false, host.Options{LinkBytesPerSecond: batchBytes})
				l := mustOpen(t, Options{Device: device, Store: store, Matrices: testMatrices, Placement: c.placement, BatchRows: batchRows, Buffers: buffers})
				s := mustSet(t, l, Rows{Region: "train"}, chunk.Plan{BatchRows: batchRows, ChunkRows: c.chunkRows, Order: chunk.Shuffled})
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
					t.Errorf("%s, chunks of %d, %d buffers: %.2f s, want %v", c.placement, c.chunkRows, buffers, took, want)
				}
			})
		}
	}
}

func TestNeighbouringChunksAreOneRead(t *testing.T) {
	spec := storeSpec{dtype: format.Float32, chunkRows: 8, features: 5, labels: 1}
	store := newStore(t, spec)
	for _, test := range []struct {
		name string
		plan chunk.Plan
		want int64 // reads of each matrix
	}{
		{"a whole region in row order", chunk.Plan{BatchRows: 53}, 1},
		{"batches that end with chunks", chunk.Plan{BatchRows: 16}, 4},
		{"chunks that are cut, and read with the first batch", chunk.Plan{BatchRows: 20}, 3},
		{"batches within a chunk", chunk.Plan{BatchRows: 4}, 7},
		{"plan chunks of three of the store's", chunk.Plan{BatchRows: 24, ChunkRows: 24, Order: chunk.Shuffled, Seed: 1}, 3},
	} {
		synctest.Test(t, func(t *testing.T) {
			device := newDevice(t, true, host.Options{Threads: 2})
			l := mustOpen(t, Options{Device: device, Store: store, Matrices: testMatrices, Placement: Storage, BatchRows: test.plan.BatchRows})
			s := mustSet(t, l, Rows{Region: "train"}, test.plan)
			for n := range 2 {
				before := l.Stats()
				got, err := collect(t, device, s, n, 0)
				if err != nil {
					t.Fatal(err)
				}
				test.plan.Rows = 53
				compare(t, got, test.plan, n, 0, spec.features, from(0))
				after := l.Stats()
				reads, bytes := after.Reads[0].Reads-before.Reads[0].Reads, after.BytesRead-before.BytesRead
				if reads != 3*test.want || bytes != 53*5*4*3 {
					t.Errorf("%s, epoch %d: %d reads of %d bytes, want %d", test.name, n, reads, bytes, 3*test.want)
				}
			}
		})
	}
}

func TestWhatCannotBeLoadedIsRefused(t *testing.T) {
	store := newStore(t, storeSpec{dtype: format.Float32, chunkRows: 8, features: 5, labels: 1})
	multi := newStore(t, storeSpec{dtype: format.Float32, chunkRows: 8, features: 5, labels: 3})
	for _, test := range []struct {
		name   string
		change func(*Options)
		want   string
	}{
		{"no store", func(o *Options) { o.Store = nil }, "no store"},
		{"no matrices", func(o *Options) { o.Matrices = nil }, "no matrices"},
		{"a matrix that is not stored", func(o *Options) { o.Matrices = []MatrixID{{Operator: "sym", Hop: 2}} }, "sym/hop-2"},
		{"a region that is not there", func(o *Options) { o.Regions = []string{"all"} }, `no region "all"`},
		{"an unknown placement", func(o *Options) { o.Placement = "tape" }, `"tape" (want one of [device host storage])`},
		{"empty batches", func(o *Options) { o.BatchRows = 0 }, "batches of 0 rows"},
		{"negative buffers", func(o *Options) { o.Buffers = -1 }, "-1 buffers"},
		{"several labels a row", func(o *Options) { o.Store = multi }, "multi-label"},
		{"too few slots", func(o *Options) { o.ChunkSlots = 1 }, "batches of 20 rows need 5"},
	} {
		device := newDevice(t, true, host.Options{Threads: 2})
		o := Options{Device: device, Store: store, Matrices: testMatrices, Placement: Storage, BatchRows: 20}
		test.change(&o)
		for _, p := range []Placement{Device, Host, Storage} {
			if o.Placement != "tape" {
				o.Placement = p
			}
			if o.ChunkSlots > 0 && p != Storage {
				continue
			}
			l, err := Open(t.Context(), o)
			if l != nil || err == nil || !strings.Contains(err.Error(), test.want) {
				t.Errorf("%s, %s: %v, want %q", test.name, p, err, test.want)
			}
		}
	}
}

func TestSetsThatCannotBeAreRefused(t *testing.T) {
	store := newStore(t, storeSpec{dtype: format.Float32, chunkRows: 8, features: 5, labels: 1})
	l := mustOpen(t, Options{Device: newDevice(t, true, host.Options{Threads: 2}), Store: store, Matrices: testMatrices, Placement: Storage, BatchRows: 10})
	for _, test := range []struct {
		name string
		rows Rows
		plan chunk.Plan
		want string
	}{
		{"a region that is not there", Rows{Region: "all"}, chunk.Plan{BatchRows: 1}, `no region "all" (it has ["train" "valid" "test" "rest"])`},
		{"a plan that is none", Rows{Region: "train"}, chunk.Plan{}, "batches of 0 rows"},
		{"batches that are too large", Rows{Region: "train"}, chunk.Plan{BatchRows: 11}, "batches of 11 rows from a loader that was opened for 10"},
		{"shares that are too large", Rows{Region: "train"}, chunk.Plan{BatchRows: 31, World: 3}, "batches of 11 rows from a loader that was opened for 10"},
		{"rows reshuffled from storage", Rows{Region: "train"}, chunk.Plan{BatchRows: 1, Order: chunk.Shuffled}, "chunks of 8 rows or a multiple, not of 0"},
		{"parts of chunks from storage", Rows{Region: "train"}, chunk.Plan{BatchRows: 1, Order: chunk.Shuffled, ChunkRows: 12}, "chunks of 8 rows or a multiple, not of 12"},
	} {
		if _, err := l.Set(test.rows, test.plan); err == nil || !strings.Contains(err.Error(), test.want) {
			t.Errorf("%s: %v, want %q", test.name, err, test.want)
		}
	}
	// A region smaller than the batch, and shares that fit.
	mustSet(t, l, Rows{Region: "rest"}, chunk.Plan{BatchRows: 1000})
	mustSet(t, l, Rows{Region: "train"}, chunk.Plan{BatchRows: 30, World: 3})
}

func TestRowsWithoutLabelsAreUnlabelled(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := newStore(t, storeSpec{dtype: format.Float32, chunkRows: 8, features: 5, labels: 0})
		device := newDevice(t, true, host.Options{Threads: 2})
		l := mustOpen(t, Options{Device: device, Store: store, Matrices: testMatrices, Placement: Host, BatchRows: 10})
		got, err := collect(t, device, mustSet(t, l, Rows{Region: "valid"}, chunk.Plan{BatchRows: 10}), 0, 0)
		if err != nil || len(got) != 2 {
			t.Fatal(got, err)
		}
		for _, label := range got[0].labels {
			if label != -1 {
				t.Errorf("labels %v", got[0].labels)
			}
		}
	})
}

func TestMemoryThatIsMissingIsSaidAndNothingKept(t *testing.T) {
	store := newStore(t, storeSpec{dtype: format.Float32, chunkRows: 8, features: 5, labels: 1})
	for _, p := range []Placement{Device, Storage} {
		succeeded := false
		for pages := int64(1); pages < 60; pages++ {
			device, err := host.New(host.Options{MemoryBytes: pages * 4096})
			if err != nil {
				t.Fatal(err)
			}
			l, err := Open(t.Context(), Options{Device: device, Store: store, Matrices: testMatrices, Placement: p, BatchRows: 10})
			if err == nil {
				succeeded = true
				err = l.Close()
			} else if errors.Is(err, gds.ErrOutOfMemory) && !succeeded {
				err = nil
			}
			if err := errors.Join(err, device.Close()); err != nil {
				t.Errorf("%s, %d pages: %v", p, pages, err)
			}
		}
		if !succeeded {
			t.Errorf("%s: 60 pages are not enough", p)
		}
	}
}

func TestNeedIsWhatOpenTakesBesideTheInput(t *testing.T) {
	const page = 4096
	for _, spec := range []storeSpec{{format.Float32, 8, 300, 1, 0}, {format.Float16, 8, 300, 1, 0}} {
		store := newStore(t, spec)
		for _, p := range placements {
			t.Run(fmt.Sprintf("%v, %s", spec.dtype, p.name), func(t *testing.T) {
				device := newDevice(t, p.unified, host.Options{})
				o := Options{Device: device, Store: store, Matrices: testMatrices, Placement: p.placement, BatchRows: 20, Buffers: 3}
				need, err := Need(o.Store.Layout(), o)
				if err != nil {
					t.Fatal(err)
				}
				mustOpen(t, o)
				used, want := device.Usage(), need.Batches
				allocations := int64(3 * o.Buffers)
				switch {
				case p.placement == Device:
					want += int64(len(testMatrices) * testRows * spec.features * spec.dtype.Size())
					allocations += int64(len(testMatrices))
				case p.placement == Storage && p.unified:
					want += need.Chunks
				case p.placement == Storage && used.PinnedInUse < need.Chunks:
					t.Errorf("%d bytes are pinned, need is %+v", used.PinnedInUse, need)
				}
				if used.InUse < want || used.InUse >= want+allocations*page {
					t.Errorf("%d bytes of the device are in use, want %d and less than a page for each of %d allocations", used.InUse, want, allocations)
				}
			})
		}
	}
}

func TestALoaderIsUsedByOneEpochAtATime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := newStore(t, storeSpec{dtype: format.Float32, chunkRows: 8, features: 5, labels: 1})
		device := newDevice(t, true, host.Options{Threads: 2})
		l, err := Open(t.Context(), Options{Device: device, Store: store, Matrices: testMatrices, Placement: Device, BatchRows: 10})
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
			if _, err := collect(t, device, s, 0, 0); err == nil || !strings.Contains(err.Error(), "another epoch is running") {
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

// slowFS is a disk whose every read takes a second (of the bubble's time).
type slowFS struct {
	*vfs.Mem
	reading, most *atomic.Int64
}

type slowFile struct {
	vfs.File
	fs slowFS
}

func (s slowFS) OpenDirect(path string) (vfs.File, int, error) {
	f, align, err := s.Mem.OpenDirect(path)
	return slowFile{f, s}, align, err
}

func (f slowFile) ReadAt(p []byte, off int64) (int, error) {
	now := f.fs.reading.Add(1)
	for most := f.fs.most.Load(); now > most && !f.fs.most.CompareAndSwap(most, now); {
		most = f.fs.most.Load()
	}
	time.Sleep(time.Second)
	defer f.fs.reading.Add(-1)
	return f.File.ReadAt(p, off)
}

func TestChunksAreReadAheadInParallelAndNoReadOutlivesItsEpoch(t *testing.T) {
	mem := vfs.NewMem()
	writeStore(t, mem, "store", storeSpec{dtype: format.Float32, chunkRows: 8, features: 5, labels: 1})
	synctest.Test(t, func(t *testing.T) {
		fsys := slowFS{mem, new(atomic.Int64), new(atomic.Int64)}
		device := newDevice(t, true, host.Options{Threads: 2})
		l := mustOpen(t, Options{Device: device, Store: openStore(t, fsys, "store"), Matrices: testMatrices, Placement: Storage, BatchRows: 8})
		s := mustSet(t, l, Rows{Region: "train"}, chunk.Plan{BatchRows: 8, ChunkRows: 8, Order: chunk.Shuffled})
		stream := mustStream(t, device)
		defer stream.Close()
		for range s.Epoch(t.Context(), stream, 0) {
			break
		}
		if n := fsys.reading.Load(); n != 0 {
			t.Errorf("%d reads go on", n)
		}
		// Of three matrices, each chunk and those after it.
		if n := fsys.most.Load(); n != minReaders {
			t.Errorf("%d reads at a time, want %d", n, minReaders)
		}
	})
}
