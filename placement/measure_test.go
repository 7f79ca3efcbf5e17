package placement

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/hopfeed/hopfeed/format"
	"github.com/hopfeed/hopfeed/gds"
	"github.com/hopfeed/hopfeed/gds/host"
	"github.com/hopfeed/hopfeed/internal/vfs"
)

// newStore is a store of two matrices for 1000 rows, in chunks of 64.
func newStore(t *testing.T, fsys vfs.FS, dtype format.DType) *format.Dir {
	t.Helper()
	return newStoreOf(t, fsys, dtype, 24)
}

// newStoreOf is newStore whose second matrix has another width.
func newStoreOf(t *testing.T, fsys vfs.FS, dtype format.DType, width int) *format.Dir {
	t.Helper()
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	const rows, features = 1000, 24
	layout := format.NewLayout([]format.RegionSize{{Name: format.RegionTrain}, {Name: format.RegionValid},
		{Name: format.RegionTest}, {Name: format.RegionRest, Rows: rows}}, 64, features, dtype)
	if width != features {
		layout.Widths = map[string]int{"sym": width}
	}
	w, err := format.Create(fsys, "store", layout, format.CreateOptions{})
	must(err)
	table := &format.RowTable{Rows: rows, NodeID: make([]uint32, rows), Splits: make([]uint8, rows), NumSplits: 1}
	for i := range table.NodeID {
		table.NodeID[i] = uint32(i)
	}
	must(w.Rows(table))
	for _, id := range sampled {
		m, err := w.Matrix(id)
		must(err)
		data := make([]byte, rows*layout.Of(id).Features*dtype.Size())
		for i := range data {
			data[i] = byte(i % 251)
		}
		must(m.Write(data))
		must(m.Close())
	}
	must(w.Publish(&format.Manifest{Name: "toy", Nodes: rows, Splits: 1, RowSet: "all",
		Operators: []format.Operator{{Name: "sym", Hops: 1, Features: layout.Widths["sym"]}},
		Input:     map[string]string{"importer": "test"}}))
	d, err := format.OpenStore(fsys, "store")
	must(err)
	t.Cleanup(func() { must(d.Close()) })
	return d
}

var sampled = []format.MatrixID{format.Input, {Operator: "sym", Hop: 1}}

func measure(ctx context.Context, t *testing.T, store *format.Dir, o host.Options) (Rates, error) {
	t.Helper()
	device, err := host.New(o)
	if err != nil {
		t.Fatal(err)
	}
	region, _ := store.Region(format.RegionRest)
	r, err := Measure(ctx, device, Sample{Store: store, Matrices: sampled, Region: region, Rows: region.Rows,
		BatchRows: 100, ChunkRows: 64, Threads: 2})
	if err := device.Close(); err != nil {
		t.Errorf("something is left on the device: %v", err)
	}
	return r, err
}

func TestMeasureFindsTheRatesThatThereAre(t *testing.T) {
	for _, c := range []struct {
		name  string
		dtype format.DType
		o     host.Options
		// of link, conversion, host memory, storage
		link, convert, memory, storage bool
		mapped                         bool // gathering of host memory by the device
	}{
		{"a device in host memory", format.Float32, host.Options{}, false, false, true, true, false},
		{"a device of its own", format.Float32, host.Options{Discrete: true}, true, false, true, true, true},
		{"a device that reaches no host memory", format.Float32, host.Options{Discrete: true, Unmapped: true}, true,
			false, true, true, false},
		{"half floats", format.Float16, host.Options{}, false, true, true, true, false},
		{"half floats on a device of its own", format.Float16, host.Options{Discrete: true}, true, true, true, true,
			true},
		{"a device without memory", format.Float32, host.Options{Discrete: true, MemoryBytes: 4096}, false, false, true,
			true, false},
		{"host memory for a chunk alone", format.Float32, host.Options{MemoryBytes: 2 * 4096}, false, false, false,
			true, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			r, err := measure(t.Context(), t, newStore(t, vfs.NewMem(), c.dtype), c.o)
			if err != nil {
				t.Fatal(err)
			}
			for _, known := range []struct {
				name      string
				got, want bool
			}{
				{"link", r.Link > 0, c.link}, {"conversion", r.Convert > 0, c.convert},
				{"copying", r.HostCopy > 0, c.memory}, {"gathering", r.HostGather > 0, c.memory},
				{"gathering over the link", r.MappedGather > 0, c.mapped},
				{"storage", r.Storage > 0, c.storage}, {"checksums", r.Check > 0, c.storage},
			} {
				if known.got != known.want {
					t.Errorf("%s known: %t, want %t (%+v)", known.name, known.got, known.want, r)
				}
			}
		})
	}
}

func TestMeasureFailsAsReadingDoes(t *testing.T) {
	stopped, stop := context.WithCancelCause(t.Context())
	enough := errors.New("enough")
	stop(enough)
	if _, err := measure(stopped, t, newStore(t, vfs.NewMem(), format.Float32), host.Options{}); !errors.Is(err,
		enough) {
		t.Errorf("error %v, want %v", err, enough)
	}
	disk := vfs.NewMem()
	store := newStore(t, disk, format.Float32)
	part := format.PartPath("store/features/sym/hop-1", 0)
	bytes, err := disk.Open(part)
	if err != nil {
		t.Fatal(err)
	}
	size, err := bytes.Size()
	if err != nil {
		t.Fatal(err)
	}
	text := make([]byte, size)
	if _, err := bytes.ReadAt(text, 0); err != nil {
		t.Fatal(err)
	}
	for i := range text {
		text[i] ^= 1
	}
	damaged, err := disk.Create(part)
	if err == nil {
		_, err = damaged.Write(text)
	}
	if err == nil {
		err = damaged.Commit()
	}
	if err != nil {
		t.Fatal(err)
	}
	if _, err := measure(t.Context(), t, store, host.Options{}); !errors.Is(err, format.ErrCorrupt) {
		t.Errorf("of a damaged store: %v", err)
	}
}

func TestAnInterruptedMeasurementFreesMemoryThatNoWorkUses(t *testing.T) {
	store := newStore(t, vfs.NewMem(), format.Float32)
	for wait := range 20 {
		ctx, cancel := context.WithTimeout(context.Background(), time.Duration(wait)*time.Millisecond)
		if _, err := measure(ctx, t, store, host.Options{Discrete: true}); errors.Is(err, gds.ErrClosed) {
			t.Errorf("interrupted after %d ms: %v", wait, err)
		}
		cancel()
	}
}

func TestChunksOfMatricesOfDifferentWidthsAreReadApart(t *testing.T) {
	store := newStoreOf(t, vfs.NewMem(), format.Float32, 500)
	if r, err := measure(t.Context(), t, store, host.Options{}); err != nil || r.Storage == 0 {
		t.Errorf("%v, %v", r.Storage, err)
	}
}
