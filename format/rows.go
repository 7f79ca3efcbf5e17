package format

import (
	"cmp"
	"context"
	"encoding/binary"
	"fmt"
	"io"
	"math"
	"slices"
	"unicode/utf8"

	"github.com/apache/arrow/go/v17/arrow"

	"github.com/hopfeed/hopfeed/internal/arrowfile"
	"github.com/hopfeed/hopfeed/internal/dtype"
	"github.com/hopfeed/hopfeed/internal/parallel"
	"github.com/hopfeed/hopfeed/internal/rng"
	"github.com/hopfeed/hopfeed/internal/vfs"
)

// TrainKey is the key by which the training rows of a store are sorted, and equal keys by node. The rows of other
// regions are sorted by node.
func TrainKey(seed uint64, node uint32) uint64 { return rng.Hash(seed, uint64(node)) }

// rowColumns says which columns a row table has.
type rowColumns struct {
	node   bool
	labels int
	values bool // labels are float32
	splits int
	origID bool
}

func (m *Manifest) rowColumns() rowColumns {
	return rowColumns{node: m.Kind == KindStore, labels: m.Labels, values: m.LabelValues, splits: m.Splits,
		origID: m.OrigIDs}
}

func (c rowColumns) table(l Layout) table {
	t := table{
		folder: nodesFolder,
		chunks: l.chunks(),
		rows:   func(k int) int64 { _, n := l.chunk(k); return int64(n) },
	}
	var fields []arrow.Field
	if c.node {
		t.folder = rowsFolder
		fields = append(fields, arrow.Field{Name: columnNode, Type: arrow.PrimitiveTypes.Uint32})
	}
	if c.labels > 0 {
		fields = append(fields, arrow.Field{Name: columnLabel, Type: c.labelType()})
	}
	if c.splits > 0 {
		fields = append(fields, arrow.Field{Name: columnSplits, Type: listOf(c.splits, arrow.PrimitiveTypes.Uint8)})
	}
	if c.origID {
		fields = append(fields, arrow.Field{Name: columnOrigID, Type: arrow.BinaryTypes.LargeString})
	}
	t.schema = newSchema(fields...)
	t.lengths = func(rows int64) []int64 {
		var out []int64
		if c.node {
			out = append(out, 4*rows)
		}
		if c.labels > 0 {
			out = append(out, rows*c.labelBytes())
		}
		if c.splits > 0 {
			out = append(out, rows*int64(c.splits))
		}
		if c.origID {
			out = append(out, 8*(rows+1), -1)
		}
		return out
	}
	return t
}

// labelType is the type of the column of labels.
func (c rowColumns) labelType() arrow.DataType {
	switch {
	case c.values && c.labels > 1:
		return listOf(c.labels, arrow.PrimitiveTypes.Float32)
	case c.values:
		return arrow.PrimitiveTypes.Float32
	case c.labels > 1:
		return listOf(c.labels, arrow.PrimitiveTypes.Int8)
	}
	return arrow.PrimitiveTypes.Int32
}

// labelBytes is the size of the labels of a row.
func (c rowColumns) labelBytes() int64 {
	if c.values || c.labels == 1 {
		return 4 * int64(c.labels)
	}
	return int64(c.labels)
}

// rowSummary says of the written row table what the manifest must agree with.
type rowSummary struct {
	columns  rowColumns
	maxLabel int32
	maxNode  uint32
}

// summarize checks a table that is to be written.
func (t *RowTable) summarize(kind string, rows int64) (*rowSummary, error) {
	s := &rowSummary{maxLabel: -1, columns: rowColumns{node: kind == KindStore, splits: t.NumSplits,
		origID: t.OrigID != nil}}
	length := func(what string, n int, perRow int64, wanted bool) error {
		want := int64(0)
		if wanted {
			want = t.Rows * perRow
		}
		if int64(n) != want {
			return fmt.Errorf("row table: %d %s, want %d", n, what, want)
		}
		return nil
	}
	if t.Rows != rows {
		return nil, fmt.Errorf("row table: it has %d rows, the layout %d", t.Rows, rows)
	}
	kinds := 0
	for _, there := range []bool{t.Labels != nil, t.MultiLabels != nil, t.LabelValues != nil} {
		if there {
			kinds++
		}
	}
	if kinds > 1 || t.MultiLabels != nil && t.LabelColumns < 2 || t.LabelValues != nil && t.LabelColumns < 1 {
		return nil, fmt.Errorf("row table: labels are of one kind: one class a row, 2 columns or more of 0 and 1, " +
			"or a column or more of values")
	}
	switch {
	case t.Labels != nil:
		s.columns.labels = 1
	case t.MultiLabels != nil:
		s.columns.labels = t.LabelColumns
	case t.LabelValues != nil:
		s.columns.labels, s.columns.values = t.LabelColumns, true
	}
	if t.NumSplits < 0 || t.NumSplits > MaxSplits || s.columns.labels > MaxLabelColumns {
		return nil, fmt.Errorf("row table: %d splits and %d label columns (at most %d and %d)", t.NumSplits,
			s.columns.labels, MaxSplits, MaxLabelColumns)
	}
	for _, err := range []error{
		length("node ids", len(t.NodeID), 1, s.columns.node),
		length("labels", len(t.Labels), 1, t.Labels != nil),
		length("labels", len(t.MultiLabels), int64(t.LabelColumns), t.MultiLabels != nil),
		length("labels", len(t.LabelValues), int64(t.LabelColumns), t.LabelValues != nil),
		length("splits", len(t.Splits), int64(t.NumSplits), true),
		length("original ids", len(t.OrigID), 1, t.OrigID != nil),
	} {
		if err != nil {
			return nil, err
		}
	}
	for i, id := range t.OrigID {
		if !utf8.ValidString(id) {
			return nil, fmt.Errorf("row table: original id %q of row %d is not valid UTF-8", id, i)
		}
	}
	if _, err := t.checkValues(1<<32, 1<<31); err != nil {
		return nil, fmt.Errorf("row table: %w", err)
	}
	if len(t.Labels) > 0 {
		s.maxLabel = slices.Max(t.Labels)
	}
	if len(t.NodeID) > 0 {
		s.maxNode = slices.Max(t.NodeID)
	}
	return s, nil
}

func (s *rowSummary) checkAgainst(m *Manifest) error {
	if int64(s.maxLabel) >= int64(m.Classes) && s.columns.labels == 1 && s.maxLabel >= 0 {
		return fmt.Errorf("label %d, but %d classes", s.maxLabel, m.Classes)
	}
	if s.columns.node && m.Rows > 0 && int64(s.maxNode) >= m.Nodes {
		return fmt.Errorf("row of node %d, but %d nodes", s.maxNode, m.Nodes)
	}
	return nil
}

// checkValues fails if a value is out of range, and returns its row.
func (t *RowTable) checkValues(nodes, classes int64) (row int64, err error) {
	for i, v := range t.NodeID {
		if int64(v) >= nodes {
			return int64(i), fmt.Errorf("row %d is of node %d, but there are %d nodes", i, v, nodes)
		}
	}
	for i, v := range t.Labels {
		if v < -1 || int64(v) >= classes {
			return int64(i), fmt.Errorf("row %d has label %d, not from -1 to %d", i, v, classes-1)
		}
	}
	for i, v := range t.MultiLabels {
		if v < -1 || v > 1 {
			return int64(i / t.LabelColumns), fmt.Errorf("row %d has label %d in column %d, not -1, 0 or 1",
				i/t.LabelColumns, v, i%t.LabelColumns)
		}
	}
	for i, v := range t.LabelValues {
		if math.IsInf(float64(v), 0) {
			return int64(i / t.LabelColumns), fmt.Errorf("row %d has the infinite label %v in column %d",
				i/t.LabelColumns, v, i%t.LabelColumns)
		}
	}
	for i, v := range t.Splits {
		if v > SplitTest {
			return int64(i / t.NumSplits), fmt.Errorf("row %d has %d in column %d of splits, not 0 to %d",
				i/t.NumSplits, v, i%t.NumSplits, SplitTest)
		}
	}
	return 0, nil
}

// columns are the memory of rows [first, last) of each column but orig_id, in the order of a record batch.
func (t *RowTable) columns(first, last int64) [][]byte {
	var out [][]byte
	labels, splits := int64(t.LabelColumns), int64(t.NumSplits)
	if t.NodeID != nil {
		out = append(out, dtype.BytesOf(t.NodeID[first:last]))
	}
	switch {
	case t.Labels != nil:
		out = append(out, dtype.BytesOf(t.Labels[first:last]))
	case t.MultiLabels != nil:
		out = append(out, dtype.BytesOf(t.MultiLabels[first*labels:last*labels]))
	case t.LabelValues != nil:
		out = append(out, dtype.BytesOf(t.LabelValues[first*labels:last*labels]))
	}
	if splits > 0 {
		out = append(out, t.Splits[first*splits:last*splits])
	}
	return out
}

// buffers are the data of rows first to first+rows-1, in the order of a record batch.
func (t *RowTable) buffers(first int64, rows int) [][]byte {
	last := first + int64(rows)
	out := t.columns(first, last)
	if t.OrigID != nil {
		offsets := make([]int64, 1, rows+1)
		var text []byte
		for _, id := range t.OrigID[first:last] {
			text = append(text, id...)
			offsets = append(offsets, int64(len(text)))
		}
		out = append(out, dtype.BytesOf(offsets), text)
	}
	return out
}

// Rows reads the row table, whole, and checks its values.
func (d *Dir) Rows(ctx context.Context) (*RowTable, error) {
	m := &d.Manifest
	t := m.NewRowTable(m.Rows)
	err := d.readRows(ctx, 0, d.layout.chunks(), 0, func(_ *RowTable, first int64, rows int, data []byte,
		lengths []int64) error {
		return t.decodeChunk(first, rows, data, lengths)
	})
	if err != nil {
		return nil, err
	}
	if row, err := t.checkValues(m.Nodes, int64(m.Classes)); err != nil {
		return nil, d.explain(d.corruptRow(row, err))
	}
	return t, nil
}

// VisitRows reads and checks the row table a chunk at a time, in order, and calls visit with each: t has rows [first,
// first+t.Rows), and is valid until visit returns, its strings too.
func (d *Dir) VisitRows(ctx context.Context, visit func(t *RowTable, first int64)) error {
	return d.visitChunks(ctx, 0, d.layout.chunks(), visit)
}

// VisitRegion is VisitRows of one region.
func (d *Dir) VisitRegion(ctx context.Context, r Region, visit func(t *RowTable, first int64)) error {
	return d.visitChunks(ctx, r.FirstChunk, r.FirstChunk+r.Chunks, visit)
}

func (d *Dir) visitChunks(ctx context.Context, from, end int, visit func(t *RowTable, first int64)) error {
	m := &d.Manifest
	if d.rowTable() == nil { // rows without columns
		for k := from; k < end; k++ {
			first, rows := d.layout.chunk(k)
			visit(m.NewRowTable(int64(rows)), first)
		}
		return nil
	}
	var all *RowTable
	return d.readRows(ctx, from, end, 1, func(_ *RowTable, first int64, rows int, data []byte, lengths []int64) error {
		if all == nil {
			all = m.NewRowTable(int64(d.layout.ChunkRows))
		}
		if err := all.decodeChunk(0, rows, data, lengths); err != nil {
			return err
		}
		t := all.head(rows)
		if _, err := t.checkValues(m.Nodes, int64(m.Classes)); err != nil {
			return fmt.Errorf("counting from row %d: %w", first, err)
		}
		visit(t, first)
		return nil
	})
}

// head is the first rows of a table.
func (t *RowTable) head(rows int) *RowTable {
	h := *t
	h.Rows = int64(rows)
	h.NodeID, h.Labels, h.OrigID = t.NodeID[:min(rows, len(t.NodeID))], t.Labels[:min(rows, len(t.Labels))],
		t.OrigID[:min(rows, len(t.OrigID))]
	h.MultiLabels, h.LabelValues = t.MultiLabels[:min(rows*t.LabelColumns, len(t.MultiLabels))],
		t.LabelValues[:min(rows*t.LabelColumns, len(t.LabelValues))]
	h.Splits = t.Splits[:rows*t.NumSplits]
	return &h
}

// NewRowTable is a table of this many rows with the columns that the manifest gives, all values zero. That of a graph
// has no NodeID.
func (m *Manifest) NewRowTable(rows int64) *RowTable {
	t := m.rowColumns().newTable(rows)
	if m.rowColumns().origID {
		t.OrigID = make([]string, rows)
	}
	return t
}

// ReadLabels reads and checks the labels of a region's rows, one a row, into dst [r.Rows]. Without labels it writes -1.
func (d *Dir) ReadLabels(ctx context.Context, r Region, dst []int32) error {
	switch n := d.Manifest.Labels; {
	case d.Manifest.LabelValues:
		return fmt.Errorf("%s: its labels are values, not classes", d.path)
	case n > 1:
		return fmt.Errorf("%s: it is multi-label, with %d labels a row, not one", d.path, n)
	case n == 0:
		for i := range dst {
			dst[i] = -1
		}
		return nil
	}
	return readColumn(ctx, d, r, dst, 1, func(t *RowTable) (RowTable, []int32) {
		return RowTable{Labels: t.Labels},
			t.Labels
	})
}

// ReadMultiLabels reads and checks the labels of a region's rows in a multi-label store into dst [r.Rows,
// Manifest.Labels]: 0 and 1, or -1 where unlabelled.
func (d *Dir) ReadMultiLabels(ctx context.Context, r Region, dst []int8) error {
	if d.Manifest.Labels < 2 || d.Manifest.LabelValues {
		return fmt.Errorf("%s: it is not multi-label", d.path)
	}
	return readColumn(ctx, d, r, dst, d.Manifest.Labels, func(t *RowTable) (RowTable, []int8) {
		return RowTable{MultiLabels: t.MultiLabels, LabelColumns: t.LabelColumns}, t.MultiLabels
	})
}

// ReadLabelValues reads and checks the labels of a region's rows, where labels are values, into dst
// [r.Rows, Manifest.Labels]: NaN where unlabelled.
func (d *Dir) ReadLabelValues(ctx context.Context, r Region, dst []float32) error {
	if !d.Manifest.LabelValues {
		return fmt.Errorf("%s: its labels are not values", d.path)
	}
	return readColumn(ctx, d, r, dst, d.Manifest.Labels, func(t *RowTable) (RowTable, []float32) {
		return RowTable{LabelValues: t.LabelValues, LabelColumns: t.LabelColumns}, t.LabelValues
	})
}

// ReadNodes reads the node of each row of a store's region into dst [r.Rows].
func (d *Dir) ReadNodes(ctx context.Context, r Region, dst []uint32) error {
	return readColumn(ctx, d, r, dst, 1, func(t *RowTable) (RowTable, []uint32) {
		return RowTable{NodeID: t.NodeID},
			t.NodeID
	})
}

// readColumn reads one column of a region's rows into dst [r.Rows, width], and checks it alone. column returns a
// table with this column only, and its values.
func readColumn[T any](ctx context.Context, d *Dir, r Region, dst []T, width int,
	column func(t *RowTable) (RowTable, []T)) error {
	return d.readRows(ctx, r.FirstChunk, r.FirstChunk+r.Chunks, 0,
		func(t *RowTable, first int64, rows int, data []byte, lengths []int64) error {
			if err := t.decodeChunk(0, rows, data, lengths); err != nil {
				return err
			}
			only, values := column(t.head(rows))
			if _, err := only.checkValues(d.Manifest.Nodes, int64(d.Manifest.Classes)); err != nil {
				return fmt.Errorf("counting from row %d: %w", first, err)
			}
			copy(dst[(first-r.FirstRow)*int64(width):], values)
			return nil
		})
}

// ReadOrigIDs reads the original id of each of a region's rows into dst [r.Rows].
func (d *Dir) ReadOrigIDs(ctx context.Context, r Region, dst []string) error {
	if !d.Manifest.OrigIDs {
		return fmt.Errorf("%s: its nodes have no original ids", d.path)
	}
	return d.readRows(ctx, r.FirstChunk, r.FirstChunk+r.Chunks, 0,
		func(t *RowTable, first int64, rows int, data []byte, lengths []int64) error {
			ids := *t
			ids.OrigID = make([]string, rows)
			if err := ids.decodeChunk(0, rows, data, lengths); err != nil {
				return err
			}
			copy(dst[first-r.FirstRow:], ids.OrigID)
			return nil
		})
}

// newTable is an empty table for this many rows, without orig_id.
func (c rowColumns) newTable(rows int64) *RowTable {
	t := &RowTable{Rows: rows, NumSplits: c.splits}
	if c.node {
		t.NodeID = make([]uint32, rows)
	}
	if c.values {
		t.LabelColumns, t.LabelValues = c.labels, make([]float32, rows*int64(c.labels))
	} else if c.labels == 1 {
		t.Labels = make([]int32, rows)
	} else if c.labels > 1 {
		t.LabelColumns, t.MultiLabels = c.labels, make([]int8, rows*int64(c.labels))
	}
	if c.splits > 0 {
		t.Splits = make([]uint8, rows*int64(c.splits))
	}
	return t
}

// readRows reads chunks [lo, hi) of the row table on this many goroutines (0: parallel.Threads), and calls use for
// each chunk; one goroutine takes them in order. t is memory for one chunk that use may write to. An error of use is
// damage of the chunk.
func (d *Dir) readRows(ctx context.Context, lo, hi, threads int,
	use func(t *RowTable, first int64, rows int, data []byte, lengths []int64) error) (err error) {
	defer func() { err = d.explain(err) }()
	table := d.rowTable()
	if table == nil {
		return nil
	}
	for i := range table.parts {
		p := &table.parts[i]
		from, to := max(lo-p.firstChunk, 0), min(hi-p.firstChunk, p.chunks())
		if from >= to {
			continue
		}
		f, err := d.openPart(p)
		if err != nil {
			return err
		}
		err = parallel.For(ctx, threads, int64(to-from), 64, func(lo, hi int64) error {
			t := d.Manifest.rowColumns().newTable(int64(d.layout.ChunkRows))
			group := newAhead(f, p, from+int(lo), from+int(hi))
			var buf []byte
			var err error
			for k := from + int(lo); k < from+int(hi); k++ {
				if buf, err = p.read(group, k, buf); err != nil {
					return err
				}
				first, rows := d.layout.chunk(p.firstChunk + k)
				if err := use(t, first, rows, buf, table.lengths(int64(rows))); err != nil {
					return &CorruptError{f.Path(), k, err.Error()}
				}
			}
			return nil
		})
		f.Close()
		if err != nil {
			return err
		}
	}
	return nil
}

// ahead is a file that is read in ascending order, in large pieces: the columns of a chunk of rows are a few KB each.
type ahead struct {
	vfs.File
	window []byte // how much is read at once
	at     int64  // offset of what was read last
	filled int
	end    int64 // of what will be read
	early  error // why a read ended early: nothing is read after it
}

// newAhead is f for reading the chunks [lo, hi) of part p.
func newAhead(f vfs.File, p *part, lo, hi int) *ahead {
	const most, unaligned = 128 << 10, 64
	extents := p.extents[p.extentStarts[lo]:p.extentStarts[hi]]
	if len(extents) == 0 {
		return &ahead{File: f}
	}
	last, longest := extents[len(extents)-1], int64(0)
	for _, e := range extents {
		longest = max(longest, e.Length)
	}
	end := last.Offset + last.Length
	// Rows are read up to three times: memory within a page is what vfs.PastCache fills from the page cache.
	window := make([]byte, unaligned+max(longest, min(most, end-extents[0].Offset)))[unaligned:]
	return &ahead{File: f, window: window, end: end}
}

func (a *ahead) ReadAt(p []byte, off int64) (int, error) {
	if off < a.at || off+int64(len(p)) > a.at+int64(a.filled) && a.early == nil {
		kept := 0 // of what was read before
		if off >= a.at && off < a.at+int64(a.filled) {
			kept = copy(a.window, a.window[off-a.at:a.filled])
		}
		a.at, a.filled = off, int(min(int64(len(a.window)), a.end-off))
		n, err := a.File.ReadAt(a.window[kept:a.filled], off+int64(kept))
		if kept+n < a.filled {
			a.filled, a.early = kept+n, cmp.Or(err, io.ErrUnexpectedEOF)
		}
	}
	if off >= a.at+int64(a.filled) {
		return 0, a.early
	}
	return copy(p, a.window[off-a.at:a.filled]), a.early
}

// rowTable is the row table; nil if it has no columns.
func (d *Dir) rowTable() *table {
	if d.Manifest.Kind == KindGraph {
		return d.table(nodesFolder)
	}
	return d.table(rowsFolder)
}

// corruptRow is damage of the chunk that holds a row.
func (d *Dir) corruptRow(row int64, err error) error {
	t, k := d.rowTable(), d.layout.chunkOf(row)
	p := &t.parts[t.partOf(k)]
	return &CorruptError{d.filePath(p.file), k - p.firstChunk, err.Error()}
}

// decodeChunk copies the data of a chunk to rows first to first+rows-1.
func (t *RowTable) decodeChunk(first int64, rows int, data []byte, lengths []int64) error {
	if lengths[len(lengths)-1] < 0 {
		lengths[len(lengths)-1] = 0
	}
	at, _ := arrowfile.Place(lengths...)
	columns := t.columns(first, first+int64(rows))
	for i, column := range columns {
		copy(column, data[at[i]:])
	}
	if t.OrigID == nil {
		return nil
	}
	offsets, text := data[at[len(columns)]:], string(data[at[len(columns)+1]:])
	end := uint64(0)
	for i := range rows + 1 {
		start := end
		end = binary.LittleEndian.Uint64(offsets[8*i:])
		if end < start || end > uint64(len(text)) || i == 0 && end != 0 || i == rows && end != uint64(len(text)) {
			return fmt.Errorf("%s: one offset is %d, the next %d; they must ascend from 0 to the %d bytes of text",
				columnOrigID, start, end, len(text))
		}
		if i > 0 {
			id := text[start:end]
			if !utf8.ValidString(id) {
				return fmt.Errorf("%s: %q is not valid UTF-8", columnOrigID, id)
			}
			t.OrigID[first+int64(i)-1] = id
		}
	}
	return nil
}

// Labelled tells whether a row has a label: of several, or of values, at least one.
func (t *RowTable) Labelled(row int64) bool {
	lo, hi := row*int64(t.LabelColumns), (row+1)*int64(t.LabelColumns)
	switch {
	case t.Labels != nil:
		return t.Labels[row] >= 0
	case t.MultiLabels != nil:
		return slices.ContainsFunc(t.MultiLabels[lo:hi], func(v int8) bool { return v >= 0 })
	case t.LabelValues != nil:
		return slices.ContainsFunc(t.LabelValues[lo:hi], func(v float32) bool { return v == v })
	}
	return false
}
