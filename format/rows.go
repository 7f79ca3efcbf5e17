package format

import (
	"bufio"
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
	var fields []arrow.Field
	var rowBytes []int64
	add := func(name string, of arrow.DataType, bytes int64) {
		fields, rowBytes = append(fields, arrow.Field{Name: name, Type: of}), append(rowBytes, bytes)
	}
	t := table{folder: nodesFolder, chunks: l.chunks(), rows: l.chunkRows}
	if c.node {
		t.folder = rowsFolder
		add(columnNode, arrow.PrimitiveTypes.Uint32, 4)
	}
	if c.labels > 0 {
		add(columnLabel, c.labelType(), c.labelBytes())
	}
	if c.splits > 0 {
		add(columnSplits, listOf(c.splits, arrow.PrimitiveTypes.Uint8), int64(c.splits))
	}
	if c.origID {
		fields = append(fields, arrow.Field{Name: columnOrigID, Type: arrow.BinaryTypes.LargeString})
	}
	t.schema = newSchema(fields...)
	t.lengths = func(rows int64) []int64 {
		var out []int64
		for _, bytes := range rowBytes {
			out = append(out, rows*bytes)
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

// rowSummary holds the facts of the written row table that the manifest must agree with.
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
	several := t.Labels != nil && t.MultiLabels != nil ||
		(t.Labels != nil || t.MultiLabels != nil) && t.LabelValues != nil
	if several || t.MultiLabels != nil && t.LabelColumns < 2 || t.LabelValues != nil && t.LabelColumns < 1 {
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
	if err := cmp.Or(
		length("node ids", len(t.NodeID), 1, s.columns.node),
		length("labels", len(t.Labels), 1, t.Labels != nil),
		length("labels", len(t.MultiLabels), int64(t.LabelColumns), t.MultiLabels != nil),
		length("labels", len(t.LabelValues), int64(t.LabelColumns), t.LabelValues != nil),
		length("splits", len(t.Splits), int64(t.NumSplits), true),
		length("original ids", len(t.OrigID), 1, t.OrigID != nil),
	); err != nil {
		return nil, err
	}
	for i, id := range t.OrigID {
		if !utf8.ValidString(id) {
			return nil, fmt.Errorf("row table: original id %q of row %d is not valid UTF-8", id, i)
		}
	}
	if err := t.checkValues(0, 1<<32, 1<<31); err != nil {
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

// checkValues fails if a value is out of range. The first row is row number first.
func (t *RowTable) checkValues(first, nodes, classes int64) error {
	for i, v := range t.NodeID {
		if int64(v) >= nodes {
			return fmt.Errorf("row %d is of node %d, but there are %d nodes", first+int64(i), v, nodes)
		}
	}
	for i, v := range t.Labels {
		if v < -1 || int64(v) >= classes {
			return fmt.Errorf("row %d has label %d, not from -1 to %d", first+int64(i), v, classes-1)
		}
	}
	for i, v := range t.MultiLabels {
		if v < -1 || v > 1 {
			return fmt.Errorf("row %d has label %d in column %d, not -1, 0 or 1", first+int64(i/t.LabelColumns), v,
				i%t.LabelColumns)
		}
	}
	for i, v := range t.LabelValues {
		if math.IsInf(float64(v), 0) {
			return fmt.Errorf("row %d has the infinite label %v in column %d", first+int64(i/t.LabelColumns), v,
				i%t.LabelColumns)
		}
	}
	for i, v := range t.Splits {
		if v > SplitTest {
			return fmt.Errorf("row %d has %d in column %d of splits, not 0 to %d", first+int64(i/t.NumSplits), v,
				i%t.NumSplits, SplitTest)
		}
	}
	return nil
}

// slice is a view of some rows.
func (t *RowTable) slice(first int64, rows int) *RowTable {
	lo, hi := first, first+int64(rows)
	labels, splits := int64(t.LabelColumns), int64(t.NumSplits)
	return &RowTable{
		Rows: int64(rows), LabelColumns: t.LabelColumns, NumSplits: t.NumSplits,
		NodeID: cut(t.NodeID, lo, hi), Labels: cut(t.Labels, lo, hi), OrigID: cut(t.OrigID, lo, hi),
		MultiLabels: cut(t.MultiLabels, lo*labels, hi*labels), LabelValues: cut(t.LabelValues, lo*labels, hi*labels),
		Splits: cut(t.Splits, lo*splits, hi*splits),
	}
}

// cut is column[lo:hi] of a column that is not nil.
func cut[T any](column []T, lo, hi int64) []T {
	if column == nil {
		return nil
	}
	return column[lo:hi]
}

// labelMemory is the memory of the labels, of whatever kind.
func (t *RowTable) labelMemory() []byte {
	switch {
	case t.Labels != nil:
		return dtype.BytesOf(t.Labels)
	case t.MultiLabels != nil:
		return dtype.BytesOf(t.MultiLabels)
	}
	return dtype.BytesOf(t.LabelValues)
}

// buffers are the data of rows first to first+rows-1, in the order of a record batch. There is a row at least.
func (t *RowTable) buffers(first int64, rows int) (out [][]byte) {
	part := t.slice(first, rows)
	for _, column := range [][]byte{dtype.BytesOf(part.NodeID), part.labelMemory(), part.Splits} {
		if len(column) > 0 {
			out = append(out, column)
		}
	}
	if t.OrigID != nil {
		offsets := make([]int64, 1, rows+1)
		var text []byte
		for _, id := range part.OrigID {
			text = append(text, id...)
			offsets = append(offsets, int64(len(text)))
		}
		out = append(out, dtype.BytesOf(offsets), text)
	}
	return out
}

// allRows is all regions as one.
func (l *Layout) allRows() Region { return Region{Rows: l.rows(), Chunks: l.chunks()} }

// Rows reads the row table, whole, and checks its values.
func (d *Dir) Rows(ctx context.Context) (*RowTable, error) {
	t := d.Manifest.NewRowTable(d.Manifest.Rows)
	if err := d.ReadColumns(ctx, d.layout.allRows(), t); err != nil {
		return nil, err
	}
	return t, nil
}

// VisitRows reads and checks the row table a chunk at a time, in order, and calls visit with each: t has rows [first,
// first+t.Rows), and is valid until visit returns, its strings too.
func (d *Dir) VisitRows(ctx context.Context, visit func(t *RowTable, first int64)) error {
	return d.VisitRegion(ctx, d.layout.allRows(), visit)
}

// VisitRegion is VisitRows of one region.
func (d *Dir) VisitRegion(ctx context.Context, r Region, visit func(t *RowTable, first int64)) error {
	m := &d.Manifest
	if d.rowTable() == nil { // rows without columns
		for k := r.FirstChunk; k < r.FirstChunk+r.Chunks; k++ {
			first, rows := d.layout.chunk(k)
			visit(m.NewRowTable(int64(rows)), first)
		}
		return nil
	}
	var all *RowTable
	return d.readRows(ctx, r, 1, func(first int64, rows int, data []byte) error {
		if all == nil {
			all = m.NewRowTable(int64(d.layout.ChunkRows))
		}
		t, err := all.decode(m, 0, first, rows, data)
		if err == nil {
			visit(t, first)
		}
		return err
	})
}

// NewRowTable is a table of this many rows with the columns that the manifest gives, all values zero. That of a graph
// has no NodeID.
func (m *Manifest) NewRowTable(rows int64) *RowTable {
	t := &RowTable{Rows: rows, NumSplits: m.Splits}
	if m.Kind == KindStore {
		t.NodeID = make([]uint32, rows)
	}
	if m.LabelValues {
		t.LabelColumns, t.LabelValues = m.Labels, make([]float32, rows*int64(m.Labels))
	} else if m.Labels == 1 {
		t.Labels = make([]int32, rows)
	} else if m.Labels > 1 {
		t.LabelColumns, t.MultiLabels = m.Labels, make([]int8, rows*int64(m.Labels))
	}
	if m.Splits > 0 {
		t.Splits = make([]uint8, rows*int64(m.Splits))
	}
	if m.OrigIDs {
		t.OrigID = make([]string, rows)
	}
	return t
}

// ReadLabels reads and checks the labels of a region's rows, one a row, into dst [r.Rows]. Without labels it writes -1.
func (d *Dir) ReadLabels(ctx context.Context, r Region, dst []int32) error {
	return d.ReadColumns(ctx, r, &RowTable{Rows: r.Rows, Labels: dst})
}

// ReadNodes reads the node of each row of a store's region into dst [r.Rows].
func (d *Dir) ReadNodes(ctx context.Context, r Region, dst []uint32) error {
	return d.ReadColumns(ctx, r, &RowTable{Rows: r.Rows, NodeID: dst})
}

// ReadColumns reads the rows of a region into those columns of t that are not nil, which have r.Rows rows, and checks
// them. Labels of a directory that has none are -1.
func (d *Dir) ReadColumns(ctx context.Context, r Region, t *RowTable) error {
	m := &d.Manifest
	stored, want := m.NewRowTable(0).labelKind("classes"), t.labelKind("")
	if want != "" && want != stored {
		return fmt.Errorf("%s: its labels are %s, not %s", d.path, stored, want)
	}
	if t.NodeID != nil && m.Kind == KindGraph {
		return fmt.Errorf("%s: its rows are the nodes, and name none", d.path)
	}
	if t.OrigID != nil && !m.OrigIDs {
		return fmt.Errorf("%s: its rows have no original id", d.path)
	}
	if m.Labels == 0 {
		for i := range t.Labels {
			t.Labels[i] = -1
		}
	}
	return d.readRows(ctx, r, 0, func(first int64, rows int, data []byte) error {
		_, err := t.decode(m, first-r.FirstRow, first, rows, data)
		return err
	})
}

// labelKind says what the labels are; without any, it is none.
func (t *RowTable) labelKind(none string) string {
	switch {
	case t.Labels != nil:
		return "classes"
	case t.MultiLabels != nil:
		return "multi-label"
	case t.LabelValues != nil:
		return "values"
	}
	return none
}

// readRows reads the chunks of a region of the row table on this many goroutines (0: parallel.Threads), and calls use
// for each; one goroutine takes them in order. An error of use is damage of the chunk.
func (d *Dir) readRows(ctx context.Context, r Region, threads int,
	use func(first int64, rows int, data []byte) error) (err error) {
	defer func() { err = d.explain(err) }()
	table := d.rowTable()
	if table == nil {
		return nil
	}
	for i := range table.parts {
		p := &table.parts[i]
		from := max(r.FirstChunk-p.firstChunk, 0)
		to := min(r.FirstChunk+r.Chunks-p.firstChunk, p.chunks())
		if from >= to {
			continue
		}
		f, err := d.openPart(p)
		if err != nil {
			return err
		}
		err = parallel.For(ctx, threads, int64(to-from), 64, func(lo, hi int64) error {
			group := readAhead(f, p, from+int(lo), from+int(hi))
			var buf []byte
			var err error
			for k := from + int(lo); k < from+int(hi); k++ {
				if buf, err = p.read(group, k, buf); err != nil {
					return err
				}
				first, rows := d.layout.chunk(p.firstChunk + k)
				if err := use(first, rows, buf); err != nil {
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

// ahead is a file that is read in ascending order, without gaps to go back to, in large pieces: the columns of a chunk
// of rows are a few KB each.
type ahead struct {
	vfs.File
	rest    *bufio.Reader
	at, end int64 // where rest goes on, and ends
}

// readAhead is f for reading the chunks [lo, hi) of part p.
func readAhead(f vfs.File, p *part, lo, hi int) *ahead {
	const pieceBytes = 128 << 10
	extents := p.extents[p.extentStarts[lo]:p.extentStarts[hi]]
	if len(extents) == 0 {
		return &ahead{File: f}
	}
	at, last := extents[0].Offset, extents[len(extents)-1]
	bytes := last.Offset + last.Length - at
	// Rows are read up to three times: after an odd start, no read is one that vfs.PastCache does past the page cache.
	odd := min(64, bytes)
	pieces := io.MultiReader(io.NewSectionReader(f, at, odd), io.NewSectionReader(f, at+odd, bytes-odd))
	return &ahead{f, bufio.NewReaderSize(pieces, int(min(pieceBytes, bytes))), at, at + bytes}
}

func (a *ahead) ReadAt(p []byte, off int64) (int, error) {
	skipped, err := a.rest.Discard(int(off - a.at))
	n := 0
	if err == nil {
		n, err = io.ReadFull(a.rest, p)
	}
	a.at += int64(skipped + n)
	return n, err
}

// Doubt implements vfs.Doubter: rest begins anew.
func (a *ahead) Doubt(off, bytes int64) bool {
	if !vfs.Doubt(a.File, off, bytes) {
		return false
	}
	a.rest.Reset(io.NewSectionReader(a.File, off, a.end-off))
	a.at = off
	return true
}

// rowTable is the row table; nil if it has no columns.
func (d *Dir) rowTable() *table {
	if d.Manifest.Kind == KindGraph {
		return d.tables[nodesFolder]
	}
	return d.tables[rowsFolder]
}

// corruptRow is damage of the chunk that holds a row.
func (d *Dir) corruptRow(row int64, err error) error {
	t, k := d.rowTable(), d.layout.chunkOf(row)
	p := &t.parts[t.partOf(k)]
	return &CorruptError{d.filePath(p.file), k - p.firstChunk, err.Error()}
}

// decode copies the data of a chunk, whose first row is row number first, to rows at to at+rows-1 of t, as far as t has
// their columns. It checks the rows and returns a view of them.
func (t *RowTable) decode(m *Manifest, at, first int64, rows int, data []byte) (*RowTable, error) {
	part, columns := t.slice(at, rows), m.rowColumns()
	take := func(bytes int64) (b []byte) {
		b = data[:bytes]
		_, next := arrowfile.Place(bytes, 0)
		data = data[min(next, int64(len(data))):]
		return b
	}
	if columns.node {
		copy(dtype.BytesOf(part.NodeID), take(4*int64(rows)))
	}
	if columns.labels > 0 {
		copy(part.labelMemory(), take(columns.labelBytes()*int64(rows)))
	}
	if columns.splits > 0 {
		copy(part.Splits, take(int64(columns.splits*rows)))
	}
	if part.OrigID != nil {
		offsets := take(8 * (int64(rows) + 1))
		if err := part.decodeIDs(offsets, string(data)); err != nil {
			return nil, err
		}
	}
	return part, part.checkValues(first, m.Nodes, int64(m.Classes))
}

// decodeIDs sets the original ids. offsets are one more than rows.
func (t *RowTable) decodeIDs(offsets []byte, text string) error {
	end := uint64(0)
	for i := range t.Rows + 1 {
		start := end
		end = binary.LittleEndian.Uint64(offsets[8*i:])
		if end < start || end > uint64(len(text)) || i == 0 && end != 0 || i == t.Rows && end != uint64(len(text)) {
			return fmt.Errorf("%s: one offset is %d, the next %d; they must ascend from 0 to the %d bytes of text",
				columnOrigID, start, end, len(text))
		}
		if i > 0 {
			id := text[start:end]
			if !utf8.ValidString(id) {
				return fmt.Errorf("%s: %q is not valid UTF-8", columnOrigID, id)
			}
			t.OrigID[i-1] = id
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
