package loader

import (
	"errors"
	"path/filepath"
	"strings"
	"testing"

	"github.com/hopfeed/hopfeed/chunk"
	"github.com/hopfeed/hopfeed/format"
	"github.com/hopfeed/hopfeed/gds"
	"github.com/hopfeed/hopfeed/gds/host"
	"github.com/hopfeed/hopfeed/gds/testdevice"
	"github.com/hopfeed/hopfeed/internal/vfs"
)

// direct is a device whose files say that they are read into its memory by itself; all but those of a
// name, if it is given.
type direct struct {
	gds.Device
	but   string
	alloc func(bytes int64) error // before each allocation, or nil
}

type directFile struct{ gds.File }

func (directFile) Receipt() gds.Receipt { return gds.Receipt{Path: "gds"} }

func (d direct) OpenFile(fsys vfs.FS, path string) (gds.File, error) {
	f, err := d.Device.OpenFile(fsys, path)
	if err != nil || d.but != "" && strings.Contains(path, d.but) {
		return f, err
	}
	return directFile{f}, nil
}

func (d direct) Alloc(bytes int64) (gds.Buffer, error) {
	if d.alloc != nil {
		if err := d.alloc(bytes); err != nil {
			return nil, err
		}
	}
	return d.Device.Alloc(bytes)
}

func TestChunksAreReadIntoTheDeviceAndCheckedThere(t *testing.T) {
	for _, spec := range []storeSpec{{format.Float32, 8, 5, 1, 0}, {format.Float16, 8, 5, 1, 0},
		{format.BFloat16, 20, 3, 1, 0}} {
		store := newStore(t, spec)
		for i, batchRows := range []int{1, 7, 20, 53} {
			testdevice.Bubble(t, func(t *testing.T) {
				device := direct{Device: newDevice(t, false, host.Options{Threads: 2})}
				l := mustOpen(t, Options{Device: device, Store: store, Matrices: testMatrices, Placement: Storage,
					ChunksOnDevice: true, BatchRows: batchRows, Buffers: i % 4, Threads: 3})
				need, err := Need(store.Layout(), l.o, 1)
				if err != nil {
					t.Fatal(err)
				}
				if u := device.Usage(); u.InUse < need.Chunks+need.Batches ||
					u.PinnedInUse >= need.Chunks+need.Staging+8*4096 {
					t.Errorf("batches of %d: %+v, need is %+v", batchRows, u, need)
				}
				for n, plan := range plans(Storage, spec.chunkRows, batchRows) {
					for _, r := range store.Layout().Regions {
						s := mustSet(t, l, Rows{Region: r.Name}, plan)
						plan.Rows = r.Rows
						got, err := collect(t, device.Device, s, n, 0)
						if err != nil {
							t.Fatal(err)
						}
						compare(t, got, plan, n, 0, spec.features, from(int(r.FirstRow)))
					}
				}
				if s := l.Stats(); len(s.Reads) != 1 || s.Reads[0].Path != "gds" || s.Reads[0].Bytes == 0 {
					t.Errorf("reads: %+v", s.Reads)
				}
			})
		}
	}
}

func TestDamageIsFoundOnTheDevice(t *testing.T) {
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
	plan := chunk.Plan{Rows: 53, BatchRows: 5}
	var texts []string
	for _, onDevice := range []bool{true, false} {
		testdevice.Bubble(t, func(t *testing.T) {
			device := direct{Device: newDevice(t, false, host.Options{Threads: 2})}
			o := Options{Device: device, Store: store, Matrices: testMatrices, Placement: Storage,
				ChunksOnDevice: onDevice, BatchRows: 5}
			got, err := collect(t, device.Device, mustSet(t, mustOpen(t, o), Rows{Region: "train"}, plan), 0, 0)
			var corrupt *format.CorruptError
			if !errors.As(err, &corrupt) || corrupt.Chunk != 3 || len(got) != 3*8/5 {
				t.Errorf("on the device %t: %d batches, %v", onDevice, len(got), err)
				return
			}
			texts = append(texts, err.Error())
			o.Unchecked = true
			if got, err := collect(t, device.Device, mustSet(t, mustOpen(t, o), Rows{Region: "train"}, plan), 0,
				0); err != nil || len(got) != plan.Batches() {
				t.Errorf("unchecked: %d batches, %v", len(got), err)
			}
		})
	}
	if len(texts) == 2 && texts[0] != texts[1] {
		t.Errorf("%q on the device, %q on the host", texts[0], texts[1])
	}
}

// Where the device does not read all files by itself, or has no memory for chunks, they are read into pinned memory.
func TestChunksThatTheDeviceCannotReadOrHoldArePinned(t *testing.T) {
	store := newStore(t, storeSpec{dtype: format.Float32, chunkRows: 8, features: 300, labels: 1})
	for _, c := range []struct {
		name     string
		but      string
		from     int64 // allocations of so many bytes fail; 0: none
		onDevice bool
		want     bool // on the device
	}{
		{"all is well", "", 0, true, true},
		{"not asked for", "", 0, false, false},
		{"one file is read otherwise", "hop-1", 0, true, false},
		{"no memory", "", 1, true, false},
	} {
		testdevice.Bubble(t, func(t *testing.T) {
			device := direct{Device: newDevice(t, false, host.Options{Threads: 2}), but: c.but}
			o := Options{Device: device, Store: store, Matrices: testMatrices, Placement: Storage,
				ChunksOnDevice: c.onDevice, BatchRows: 20}
			if c.from > 0 {
				need, err := Need(store.Layout(), o, 1)
				if err != nil {
					t.Fatal(err)
				}
				device.alloc = func(bytes int64) error { // of chunks, after the first
					if each := need.Chunks / int64(len(testMatrices)); bytes == each && device.Usage().InUse >= each {
						return gds.ErrOutOfMemory
					}
					return nil
				}
				o.Device = device
			}
			l := mustOpen(t, o)
			if on := device.Usage().InUse > 0 && device.Usage().PinnedInUse < 100_000; on != c.want {
				t.Errorf("%s: chunks are on the device: %t (%+v)", c.name, on, device.Usage())
			}
			plan := chunk.Plan{Rows: 53, BatchRows: 20}
			got, err := collect(t, device.Device, mustSet(t, l, Rows{Region: "train"}, plan), 0, 0)
			if err != nil {
				t.Fatal(err)
			}
			compare(t, got, plan, 0, 0, 300, from(0))
		})
	}
}

// With cuFile, chunks come to a GPU by it.
func TestChunksComeByCuFileWhereThereIsOne(t *testing.T) {
	device := newDevice(t, false, host.Options{Threads: 2})
	if !device.Info().DirectStorage {
		t.Skip("there is no GPUDirect Storage here")
	}
	fsys, dir := vfs.OS(), filepath.Join(t.TempDir(), "store")
	writeStore(t, fsys, dir, storeSpec{dtype: format.Float32, chunkRows: 8, features: 300, labels: 1})
	store := openStore(t, fsys, dir)
	l := mustOpen(t, Options{Device: device, Store: store, Matrices: testMatrices, Placement: Storage,
		ChunksOnDevice: true, BatchRows: 20})
	plan := chunk.Plan{Rows: 53, BatchRows: 20, Order: chunk.Shuffled, ChunkRows: 8}
	got, err := collect(t, device, mustSet(t, l, Rows{Region: "train"}, plan), 0, 0)
	if err != nil {
		t.Fatal(err)
	}
	compare(t, got, plan, 0, 0, 300, from(0))
	reads := l.Stats().Reads
	if len(reads) == 1 && reads[0].Path == "buffered" {
		t.Skip("files here cannot be read directly")
	}
	if len(reads) != 1 || !strings.HasPrefix(reads[0].Path, "gds") || l.Stats().CopiedInBytes > 53*100 {
		t.Errorf("reads: %+v, %d bytes copied in", reads, l.Stats().CopiedInBytes)
	}
}
