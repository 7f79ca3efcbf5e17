package loader

import (
	"errors"
	"io"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hopfeed/hopfeed/chunk"
	"github.com/hopfeed/hopfeed/format"
	"github.com/hopfeed/hopfeed/gds/host"
	"github.com/hopfeed/hopfeed/gds/testdevice"
	"github.com/hopfeed/hopfeed/internal/vfs"
)

// For every ratio of batch to chunk, and one buffer: nothing waits for itself.
func TestChunkSlotsAreEnough(t *testing.T) {
	for _, chunkRows := range []int{1, 2, 5, 8, 26, 53, 60} {
		spec := storeSpec{dtype: format.Float32, chunkRows: chunkRows, features: 2, labels: 1}
		store := newStore(t, spec)
		for _, batchRows := range []int{1, 2, 3, 8, 13, 30, 53} {
			testdevice.Bubble(t, func(t *testing.T) {
				device := newDevice(t, true, host.Options{Threads: 2})
				o := Options{
					Device: device, Store: store, Matrices: testMatrices, Placement: Storage,
					BatchRows: batchRows, Buffers: 1,
				}
				l, err := Open(t.Context(), o)
				if err != nil {
					t.Fatal(err)
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

// Chunk 3 of a matrix is damaged in the file: in row order, the batches that need no row of it come first.
func TestDamageComesWithTheBatchThatNeedsIt(t *testing.T) {
	for _, unified := range []bool{true, false} {
		testdevice.Bubble(t, func(t *testing.T) {
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
			l := mustOpen(t, Options{Device: device, Store: store, Matrices: testMatrices, Placement: Storage,
				BatchRows: 5})
			plan := chunk.Plan{Rows: 53, BatchRows: 5}
			got, err := collect(t, device, mustSet(t, l, Rows{Region: "train"}, plan), 0, 0)
			var corrupt *format.CorruptError
			if !errors.As(err, &corrupt) || corrupt.Chunk != 3 ||
				!strings.HasSuffix(corrupt.File, format.PartPath("sym/hop-1", 0)) {
				t.Errorf("error %v", err)
			}
			if want := 3 * 8 / 5; len(got) != want {
				t.Errorf("%d batches before the damage, want %d", len(got), want)
			}
			unchecked := mustOpen(t, Options{Device: device, Store: store, Matrices: testMatrices, Placement: Storage,
				BatchRows: 5, Unchecked: true})
			if got, err := collect(t, device, mustSet(t, unchecked, Rows{Region: "train"}, plan), 0, 0); err != nil ||
				len(got) != plan.Batches() {
				t.Errorf("unchecked: %d batches, %v", len(got), err)
			}
			for _, p := range []Placement{Device, Host} {
				if _, err := Open(t.Context(), Options{Device: device, Store: store, Matrices: testMatrices,
					Placement: p, BatchRows: 5}); !errors.Is(err, format.ErrCorrupt) {
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
		{"plan chunks of three of the store's", chunk.Plan{BatchRows: 24, ChunkRows: 24, Order: chunk.Shuffled,
			Seed: 1}, 3},
	} {
		testdevice.Bubble(t, func(t *testing.T) {
			device := newDevice(t, true, host.Options{Threads: 2})
			l := mustOpen(t, Options{Device: device, Store: store, Matrices: testMatrices, Placement: Storage,
				BatchRows: test.plan.BatchRows})
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
				if reads != 3*test.want || bytes != int64(53*4*allColumns(5)) {
					t.Errorf("%s, epoch %d: %d reads of %d bytes, want %d", test.name, n, reads, bytes, 3*test.want)
				}
			}
		})
	}
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

func (s slowFS) OpenDirect(path string) (vfs.File, error) {
	f, err := s.Mem.OpenDirect(path)
	return slowFile{f, s}, err
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
		l := mustOpen(t, Options{Device: device, Store: openStore(t, fsys, "store"), Matrices: testMatrices,
			Placement: Storage, BatchRows: 8})
		s := mustSet(t, l, Rows{Region: "train"}, chunk.Plan{BatchRows: 8, ChunkRows: 8, Order: chunk.Shuffled})
		stream := mustStream(t, device)
		defer stream.Close()
		for range s.Epoch(t.Context(), stream, 0) {
			break
		}
		if n := fsys.reading.Load(); n != 0 {
			t.Errorf("%d reads go on", n)
		}
		// With three matrices, as many chunks as there are slots.
		if n := fsys.most.Load(); n != 3*4 {
			t.Errorf("%d reads at a time, want %d", n, 3*4)
		}
	})
}
