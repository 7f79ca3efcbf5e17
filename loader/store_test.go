package loader

import (
	"cmp"
	"fmt"
	"slices"
	"sync"
	"testing"

	"github.com/hopfeed/hopfeed/chunk"
	"github.com/hopfeed/hopfeed/format"
	"github.com/hopfeed/hopfeed/gds"
	"github.com/hopfeed/hopfeed/gds/host"
	"github.com/hopfeed/hopfeed/gds/testdevice"
	"github.com/hopfeed/hopfeed/internal/dtype"
	"github.com/hopfeed/hopfeed/internal/rng"
	"github.com/hopfeed/hopfeed/internal/vfs"
)

// storeSpec describes a small store; its numbers follow from row and matrix.
type storeSpec struct {
	dtype     format.DType
	chunkRows int
	features  int
	labels    int // columns; -n: n of values
	train     int // rows; 0: 53
}

func (s storeSpec) regions() []format.RegionSize {
	train := int64(s.train)
	if train == 0 {
		train = 53
	}
	return []format.RegionSize{
		{Name: format.RegionTrain, Rows: train}, {Name: format.RegionValid, Rows: 17},
		{Name: format.RegionTest, Rows: 0}, {Name: format.RegionRest, Rows: 9},
	}
}

// testRows is the number of rows of all regions where train has 53.
const testRows = 53 + 17 + 9

var testMatrices = []MatrixID{format.Input, {Operator: "sym", Hop: 1}, {Operator: "rw", Hop: 1}}

// wider is how many columns more than the others the last of the matrices has.
const wider = 2

// columnsOf is the number of columns of matrix m of a store with so many features.
func columnsOf(m, features int) int {
	if m == len(testMatrices)-1 {
		features += wider
	}
	return features
}

// allColumns is the number of columns of all matrices.
func allColumns(features int) int { return len(testMatrices)*features + wider }

// value is the element of a store's matrix, which every type holds exactly.
func value(m, row, col int) float32 { return float32((row*31+m*7+col*3)%127) - 60 }

func label(row int) int32 { return int32(row*5%11) - 1 }

func writeStore(t testing.TB, fsys vfs.FS, dir string, spec storeSpec) {
	t.Helper()
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	regions := spec.regions()
	train := int(regions[0].Rows)
	rows := train + 17 + 9
	layout := format.Layout{
		Regions:   format.Regions(regions, spec.chunkRows),
		ChunkRows: spec.chunkRows, Features: spec.features, DType: spec.dtype,
		Widths: map[string]int{"rw": spec.features + wider},
	}
	w, err := format.Create(fsys, dir, layout, format.CreateOptions{})
	must(err)
	const seed = 1
	table := &format.RowTable{Rows: int64(rows), NodeID: make([]uint32, rows), Splits: make([]uint8, rows),
		NumSplits: 1, LabelColumns: spec.labels}
	// Nodes in the order that the format asks for: train rows by key.
	for row := range table.NodeID {
		table.NodeID[row] = uint32(row)
	}
	slices.SortFunc(table.NodeID[:train], func(a, b uint32) int {
		return cmp.Compare(format.TrainKey(seed, a), format.TrainKey(seed, b))
	})
	for row := range table.Splits {
		if row < train {
			table.Splits[row] = format.SplitTrain
		} else if row < train+17 {
			table.Splits[row] = format.SplitValid
		}
	}
	switch {
	case spec.labels == 0:
	case spec.labels < 0:
		table.LabelColumns = -spec.labels
		for i := range rows * table.LabelColumns {
			table.LabelValues = append(table.LabelValues, float32(i)/8)
		}
	case spec.labels == 1:
		for row := range rows {
			table.Labels = append(table.Labels, label(row))
		}
	default:
		for i := range rows * spec.labels {
			table.MultiLabels = append(table.MultiLabels, int8(i*7%3)-1)
		}
	}
	must(w.Rows(table))
	for m, id := range testMatrices {
		mw, err := w.Matrix(id)
		must(err)
		columns := columnsOf(m, spec.features)
		wide := make([]float32, rows*columns)
		for i := range wide {
			wide[i] = value(m, i/columns, i%columns)
		}
		stored := make([]byte, len(wide)*spec.dtype.Size())
		dtype.Encode(stored, wide, spec.dtype)
		must(mw.Write(stored))
		must(mw.Close())
	}
	classes := 10
	if spec.labels < 0 {
		classes = 0
	}
	must(w.Publish(&format.Manifest{
		Name: "toy", Nodes: int64(rows), Classes: classes, Labels: max(spec.labels, -spec.labels),
		LabelValues: spec.labels < 0, Splits: 1, RowSet: "all", Seed: seed,
		Operators: []format.Operator{{Name: "sym", Hops: 1}, {Name: "rw", Hops: 1, Features: spec.features + wider}},
		Input:     map[string]string{"importer": "test"},
	}))
}

func openStore(t testing.TB, fsys vfs.FS, dir string) *format.Dir {
	t.Helper()
	d, err := format.OpenStore(fsys, dir)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = d.Close() })
	return d
}

func newStore(t testing.TB, spec storeSpec) *format.Dir {
	t.Helper()
	fsys := vfs.NewMem()
	writeStore(t, fsys, "store", spec)
	return openStore(t, fsys, "store")
}

// newDevice is a device that must be left without a buffer or stream.
func newDevice(t testing.TB, unified bool, o host.Options) gds.Device {
	t.Helper()
	if unified {
		return testdevice.Host(t, o)
	}
	o.Discrete = true
	return testdevice.Open(t, o)
}

func mustOpen(t testing.TB, o Options) *Loader {
	t.Helper()
	l, err := Open(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := l.Close(); err != nil {
			t.Errorf("closing the loader: %v", err)
		}
	})
	return l
}

func mustSet(t testing.TB, l *Loader, rows Rows, plan chunk.Plan) *Set {
	t.Helper()
	s, err := l.Set(rows, plan)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func mustStream(t testing.TB, d gds.Device) gds.Stream {
	t.Helper()
	s, err := d.NewStream()
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// copied is a batch on its way back to the host.
type copied struct {
	index, rows, global int
	x                   [][]float32
	labels              []int32
}

// rooms is pinned memory for copies of batches of a device, until the end of each test.
var rooms struct {
	sync.Mutex
	of map[roomKey]*pinnedRooms
}

type roomKey struct {
	t      *testing.T
	device gds.Device
}

type pinnedRooms struct {
	device gds.Device
	last   gds.Buffer
	used   int64 // of last
}

// pinnedRoom is memory of a device of the test's own, so that what the loader has of its device can be counted.
func pinnedRoom(t *testing.T, device gds.Device, bytes int64) (b gds.Buffer, at int64) {
	t.Helper()
	rooms.Lock()
	defer rooms.Unlock()
	key := roomKey{t, device}
	r := rooms.of[key]
	if r == nil {
		r = &pinnedRooms{device: testdevice.Another(t, device)}
		if rooms.of == nil {
			rooms.of = map[roomKey]*pinnedRooms{}
		}
		rooms.of[key] = r
		t.Cleanup(func() {
			rooms.Lock()
			defer rooms.Unlock()
			delete(rooms.of, key)
		})
	}
	const aligned = 64
	if r.last == nil || r.used+bytes > r.last.Len() {
		memory, err := r.device.AllocPinned(max(bytes, 64<<10))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = memory.Free() })
		r.last, r.used = memory, 0
	}
	at = r.used
	r.used += (bytes + aligned - 1) / aligned * aligned
	return r.last, at
}

// copyOut enqueues copies of a batch to the host.
func copyOut(t *testing.T, device gds.Device, stream gds.Stream, b *Batch) copied {
	t.Helper()
	c := copied{index: b.Index, rows: b.Rows, global: b.GlobalRows}
	copyTensor := func(x gds.Tensor) []byte {
		bytes := gds.Bytes(x.Rows, x.Cols, x.DType)
		to := gds.NewTensor(nil, x.Rows, x.Cols, x.DType)
		to.Buf, to.Offset = pinnedRoom(t, device, bytes)
		stream.Copy(to, x)
		return to.Buf.Bytes()[to.Offset:][:bytes]
	}
	c.labels = dtype.Int32s(copyTensor(b.Labels))
	for _, x := range b.X {
		c.x = append(c.x, dtype.Float32s(copyTensor(x)))
	}
	return c
}

// collect takes an epoch's batches back to the host without ever waiting for the
// stream in between: the loader must keep a batch as long as work needs it.
func collect(t *testing.T, device gds.Device, s *Set, n, first int) (got []copied, err error) {
	t.Helper()
	stream := mustStream(t, device)
	for b, e := range s.EpochFrom(t.Context(), stream, n, first) {
		if e != nil {
			err = e
			continue
		}
		if err != nil {
			t.Errorf("batch %d after the error %v", b.Index, err)
		}
		got = append(got, copyOut(t, device, stream, b))
	}
	if e := stream.Close(); e != nil {
		t.Errorf("the consumer's stream: %v", e)
	}
	return got, err
}

// compare checks batches against the plan: rowAt says which row of the store is at a row of the plan.
func compare(t *testing.T, got []copied, plan chunk.Plan, n, first, features int, rowAt func(int64) int) {
	t.Helper()
	k := 0
	for want := range plan.EpochFrom(n, first) {
		if k == len(got) {
			t.Fatalf("%d batches of %d", first+k, plan.Batches())
		}
		if err := got[k].differs(want, features, rowAt); err != nil {
			t.Fatal(err)
		}
		k++
	}
	if len(got) > k {
		t.Fatalf("%d batches, want %d", len(got), k)
	}
}

func (c copied) differs(want chunk.Batch, features int, rowAt func(int64) int) error {
	if c.index != want.Index || c.rows != want.Rows || c.global != want.GlobalRows || len(c.x) != len(testMatrices) {
		return fmt.Errorf("batch %d: index %d, %d rows of %d, %d matrices: want %+v", want.Index, c.index, c.rows,
			c.global, len(c.x), want)
	}
	i := 0
	for _, s := range want.Spans() {
		for r := range int64(s.Rows) {
			row := rowAt(s.First + r)
			if c.labels[i] != label(row) {
				return fmt.Errorf("batch %d: label %d is %d, want %d of row %d", c.index, i, c.labels[i], label(row),
					row)
			}
			for m := range c.x {
				columns := columnsOf(m, features)
				for f := range columns {
					if got, want := c.x[m][i*columns+f], value(m, row, f); got != want {
						return fmt.Errorf("batch %d: %v at (%d,%d) is %v, want %v of row %d", c.index, testMatrices[m],
							i, f, got, want, row)
					}
				}
			}
			i++
		}
	}
	return nil
}

// from are the rows of a region.
func from(first int) func(int64) int { return func(p int64) int { return first + int(p) } }

// someRows is a list of rows, with repeats and without order.
func someRows(n int) []uint32 {
	out := make([]uint32, n)
	for i := range out {
		out[i] = uint32(rng.Hash(9, uint64(i)) % testRows)
	}
	return out
}
