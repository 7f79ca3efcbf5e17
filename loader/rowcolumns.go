package loader

import (
	"context"
	"fmt"
	"slices"

	"github.com/hopfeed/hopfeed/format"
	"github.com/hopfeed/hopfeed/gds"
	"github.com/hopfeed/hopfeed/internal/dtype"
	"github.com/hopfeed/hopfeed/loader/internal/epoch"
)

// rowColumns are a batch's labels and, if asked for, row numbers and node ids. Labels and ids of all rows are in host
// memory, for all ranks.
type rowColumns struct {
	labels Labels   // of all rows
	nodes  []uint32 // [rows], or nil
}

// newRowColumns says what labels the batches of a store have; without a store (nil), classes.
func newRowColumns(o *Options) rowColumns {
	switch {
	case o.NoLabels:
		return rowColumns{labels: Labels{Type: gds.Int32}}
	case o.Store == nil:
		return rowColumns{labels: Labels{Type: gds.Int32, Columns: 1}}
	}
	return rowColumns{labels: LabelsOf(&o.Store.Manifest)}
}

// Labels are the labels of rows. Int32 is one class a row, Int8 several labels, Float32 values.
type Labels struct {
	Type    gds.DType
	Columns int    // of a row; 0: there are no labels
	Data    []byte // [rows, Columns]
}

// LabelsOf describes the labels of a store or graph, without Data.
func LabelsOf(m *format.Manifest) Labels {
	switch {
	case m.LabelValues:
		return Labels{Type: gds.Float32, Columns: max(1, m.Labels)}
	case m.Labels > 1:
		return Labels{Type: gds.Int8, Columns: m.Labels}
	}
	return Labels{Type: gds.Int32, Columns: 1}
}

// RowBytes is the size of the labels of a row.
func (l *Labels) RowBytes() int { return l.Columns * l.Type.Size() }

// ReadLabels reads the labels of all nodes of a graph.
func ReadLabels(ctx context.Context, graph *format.Dir) (*Labels, error) {
	r, ok := graph.Region(format.RegionAll)
	if !ok {
		return nil, fmt.Errorf("%s is a store: only graphs have labels by node", graph.Path())
	}
	l := LabelsOf(&graph.Manifest)
	l.Data = make([]byte, r.Rows*int64(l.RowBytes()))
	return &l, readLabels(ctx, graph, r, l.Type, l.Data)
}

// readLabels reads the labels of a region's rows, of that type, to dst.
func readLabels(ctx context.Context, store *format.Dir, r format.Region, t gds.DType, dst []byte) error {
	switch t {
	case gds.Int8:
		columns := &format.RowTable{MultiLabels: dtype.As[int8](dst), LabelColumns: store.Manifest.Labels}
		return store.ReadColumns(ctx, r, columns)
	case gds.Float32:
		columns := &format.RowTable{LabelValues: dtype.Float32s(dst), LabelColumns: store.Manifest.Labels}
		return store.ReadColumns(ctx, r, columns)
	}
	return store.ReadLabels(ctx, r, dtype.Int32s(dst))
}

// readColumns reads the labels of the loader's rows, which in a store without labels are all -1, and
// the node ids, as far as the options ask for them.
func (l *Loader) readColumns(ctx context.Context) error {
	if l.rank > 0 {
		l.columns = l.ranks[0].columns
		return nil
	}
	size := int64(l.columns.labels.RowBytes())
	labels, ids := l.memory.Pin(fmt.Sprintf("labels of %d rows", l.rows), size*l.rows), gds.Buffer(nil)
	if l.o.NodeIDs {
		ids = l.memory.Pin(fmt.Sprintf("node ids of %d rows", l.rows), 4*l.rows)
	}
	err := l.memory.Err
	if err != nil {
		return err
	}
	l.columns.labels.Data = labels.Bytes()[:size*l.rows]
	if ids != nil {
		l.columns.nodes = dtype.Uint32s(ids.Bytes()[:4*l.rows])
	}
	for _, r := range l.regions {
		labels := l.columns.labels.Data[size*r.firstRow:][:size*r.Rows]
		if !l.o.NoLabels {
			err = readLabels(ctx, l.o.Store, r.Region, l.columns.labels.Type, labels)
		}
		if err == nil && l.o.NodeIDs {
			err = l.o.Store.ReadNodes(ctx, r.Region, l.columns.nodes[r.firstRow:][:r.Rows])
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// layOutColumns places a batch's columns at the start of memory, one after another, and returns their bytes.
func (l *Loader) layOutColumns(b *Batch, memory gds.Buffer) (bytes int64) {
	a := epoch.Arena{Align: 4}
	take := func(rows, cols int, t gds.DType) gds.Tensor {
		v := a.Take(rows, cols, t)
		v.Buf = memory
		return v
	}
	switch c := &l.columns.labels; {
	case l.o.NoLabels:
	case c.Type == gds.Int32:
		b.Labels = take(1, b.Rows, gds.Int32)
	default:
		b.Labels = take(b.Rows, c.Columns, c.Type)
	}
	if l.o.RowNumbers {
		b.RowNumbers = take(1, b.Rows, gds.Uint32)
	}
	if l.o.NodeIDs {
		b.NodeIDs = take(1, b.Rows, gds.Uint32)
	}
	return a.Bytes
}

// columnBytes is the memory of the columns of a batch.
func (l *Loader) columnBytes(rows int) int64 { return l.layOutColumns(&Batch{Rows: rows}, nil) }

// gatherColumns writes the columns of a batch, which is laid out, to memory.
func (l *Loader) gatherColumns(memory []byte, j *job) {
	b, size := &j.batch, l.columns.labels.RowBytes()
	vector := func(t gds.Tensor) []uint32 { return dtype.Uint32s(memory[t.Offset:][:4*b.Rows]) }
	if size == 4 { // or four labels of a byte
		pick(vector(b.Labels), dtype.Uint32s(l.columns.labels.Data), j)
	} else {
		labels := memory
		for _, row := range j.numbers {
			labels = labels[copy(labels[:size], l.columns.labels.Data[int(row)*size:]):]
		}
		for _, s := range j.spans {
			labels = labels[copy(labels, l.columns.labels.Data[s.First*int64(size):][:s.Rows*size]):]
		}
	}
	if l.o.RowNumbers {
		l.storeRows(vector(b.RowNumbers), j)
	}
	if l.o.NodeIDs {
		pick(vector(b.NodeIDs), l.columns.nodes, j)
	}
}

// pick copies a column's values of a batch's rows.
func pick(dst, column []uint32, j *job) {
	for i, row := range j.numbers {
		dst[i] = column[row]
	}
	for _, s := range j.spans {
		dst = dst[copy(dst, column[s.First:s.First+int64(s.Rows)]):]
	}
}

// storeRows writes the numbers that the rows of a batch have in the store.
func (l *Loader) storeRows(dst []uint32, j *job) {
	for i, row := range j.numbers {
		dst[i] = uint32(int64(row) + l.regionOf(int64(row)).offset())
	}
	for _, s := range j.spans {
		first := s.First + l.regionOf(s.First).offset()
		for i := range s.Rows {
			dst[i] = uint32(first + int64(i))
		}
		dst = dst[s.Rows:]
	}
}

// regionOf is the region of a row of the loader. It holds all rows of a span: a set of spans is within a region.
func (l *Loader) regionOf(row int64) region {
	return l.regions[slices.IndexFunc(l.regions, func(r region) bool { return row < r.firstRow+r.Rows })]
}

// offset is the distance of a row's number in the store from that in the loader.
func (r region) offset() int64 { return r.FirstRow - r.firstRow }
