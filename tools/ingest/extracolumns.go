package ingest

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"math"
	"math/bits"
	"slices"
	"strings"

	"github.com/hopfeed/hopfeed/format"
	"github.com/hopfeed/hopfeed/internal/dtype"
	"github.com/hopfeed/hopfeed/internal/progress"
	"github.com/hopfeed/hopfeed/internal/vfs"
	"github.com/hopfeed/hopfeed/tools/npy"
)

// columnSource is a Source that has columns of edges, in the order of the input, or of nodes.
type columnSource interface {
	Columns() []inputColumn
}

// inputColumn is a column of an input: one row for each edge or node.
type inputColumn struct {
	format.Column
	path string // of the input
	rows int64
	read func(p []byte, off int64) error // bytes of its rows, one behind the other
	at   func(row int64) string          // the place of a row in the input; nil: path and number
	left bool                            // the graph does not keep it
}

func (c *inputColumn) place(row int64) string {
	if c.at != nil {
		return c.at(row)
	}
	return fmt.Sprintf("%s: row %d", c.path, row)
}

// columnsOf are the columns of a source.
func columnsOf(src Source, of string) (columns []inputColumn) {
	if s, ok := src.(columnSource); ok {
		for _, c := range s.Columns() {
			if c.Of == of {
				columns = append(columns, c)
			}
		}
	}
	return columns
}

func (s *arraySource) Columns() []inputColumn { return s.columns }

// columnTypes are the types in which columns are stored, by those of arrays; truth values become numbers.
var columnTypes = map[npy.Type]format.DType{
	npy.Bool: dtype.Uint8, npy.Int8: dtype.Int8, npy.Int16: dtype.Int16, npy.Int32: dtype.Int32, npy.Int64: dtype.Int64,
	npy.Uint8: dtype.Uint8, npy.Uint16: dtype.Uint16, npy.Uint32: dtype.Uint32, npy.Uint64: dtype.Uint64,
	npy.Float16: dtype.Float16, npy.Float32: dtype.Float32, npy.Float64: dtype.Float64,
}

// openColumns opens what is left of edge_<name>.npy as columns edge_<name> of edges, or of node_<name>.npy as columns
// <name> of nodes.
func (s *arraySource) openColumns(of string) error {
	rows := map[string]int64{format.OfEdges: s.info.Edges, format.OfNodes: s.info.Nodes}[of]
	for _, file := range slices.Sorted(maps.Keys(s.names)) {
		name, isArray := strings.CutSuffix(file, ".npy")
		node, isNode := strings.CutPrefix(name, "node_")
		if !isArray || s.used[file] || isNode != (of == format.OfNodes) || !isNode && !strings.HasPrefix(name, "edge_") {
			continue
		}
		if isNode {
			name = node
		}
		a, err := s.openArray(s.path(file), "")
		if err != nil {
			return err
		}
		c, err := s.newColumn(a, of, name, rows)
		if err != nil {
			return err
		}
		s.used[file] = true
		s.columns = append(s.columns, c)
	}
	return nil
}

// newColumn is an array as a column.
func (s *arraySource) newColumn(a *npy.Array, of, name string, rows int64) (c inputColumn, err error) {
	t, known := columnTypes[a.Type]
	if !known || len(a.Shape) < 1 || len(a.Shape) > 2 || a.Shape[0] != rows {
		return c, invalid(a.Path(), "%s array of shape %v (want numbers [%d] or [%[3]d,k]: one row for each of the %s; "+
			"a file of another name is left out)", a.Type, a.Shape, rows, of)
	}
	if (a.Fortran && len(a.Shape) == 2) || a.BigEndian {
		return c, invalid(a.Path(), "an array in Fortran order or of big-endian numbers (want C order, little endian: "+
			"numpy.ascontiguousarray and astype make it)")
	}
	columns := int64(0)
	if len(a.Shape) == 2 {
		if columns = a.Shape[1]; columns < 1 || columns > format.MaxFeatures {
			return c, invalid(a.Path(), "%d numbers in a row (want 1 to %d)", columns, format.MaxFeatures)
		}
	}
	c = inputColumn{Column: format.NewColumn(of, name, t, int(columns)), path: a.Path(), rows: rows, read: a.ReadBytes}
	if of == format.OfNodes && strings.HasPrefix(name, "edge_") {
		return c, invalid(a.Path(), "a column of nodes cannot be called %s, the name of a column of edges: rename the file",
			name)
	}
	if err := c.Check(); err != nil {
		return c, invalid(a.Path(), "%w: rename the file", err)
	}
	return c, nil
}

// columnSpace is the disk space of all columns.
func columnSpace(src Source, edges, nodes int64) (bytes int64) {
	for _, c := range columnsOf(src, format.OfEdges) {
		if !c.left {
			bytes += edges * c.RowBytes()
		}
	}
	for _, c := range columnsOf(src, format.OfNodes) {
		bytes += nodes * c.RowBytes()
	}
	return bytes
}

// writeNodeColumns writes the columns of nodes, which are in the order of the graph.
func writeNodeColumns(ctx context.Context, src Source, w *format.Writer) error {
	for _, c := range columnsOf(src, format.OfNodes) {
		m, err := w.Column(c.Column, c.rows)
		if err != nil {
			return err
		}
		step := max(1, readBytes/c.RowBytes())
		buffer := make([]byte, min(step, c.rows)*c.RowBytes())
		for first := int64(0); first < c.rows; first += step {
			rows := buffer[:min(step, c.rows-first)*c.RowBytes()]
			if err := context.Cause(ctx); err != nil {
				return err
			}
			if err := c.read(rows, first*c.RowBytes()); err != nil {
				return err
			}
			if err := m.Write(rows); err != nil {
				return err
			}
		}
		if err := m.Close(); err != nil {
			return err
		}
	}
	return nil
}

// numberedEdges is a source whose edges have their numbers in the input for weights: the sort of edges then carries
// them to their places. Numbers are bits of finite floats.
type numberedEdges struct{ Source }

const mostNumberedEdges = 0x7f800000

func (s numberedEdges) Info() Info {
	info := s.Source.Info()
	info.Weighted = true
	return info
}

func (s numberedEdges) Edges(ctx context.Context, _ int, emit func(Edges) error) error {
	next, numbers := uint32(0), []float32(nil)
	return s.Source.Edges(ctx, 1, func(e Edges) error { // in the order of the input
		numbers = numbers[:0]
		for range e.Dst {
			numbers = append(numbers, math.Float32frombits(next))
			next++
		}
		e.Weights = numbers
		return emit(e)
	})
}

// checkEdgeColumns refuses columns of edges that have no meaning, or that are too many.
func checkEdgeColumns(src Source, info Info, o Options) error {
	columns := columnsOf(src, format.OfEdges)
	switch {
	case len(columns) == 0:
		return nil
	case o.Duplicates == SumDuplicates:
		return badOptions("%s: duplicate edges cannot be added up where edges have columns: --duplicates merge keeps the "+
			"first, keep all", columns[0].path)
	case info.Edges >= mostNumberedEdges:
		return badOptions("%s: %d edges with columns (at most %d)", columns[0].path, info.Edges, mostNumberedEdges-1)
	}
	return nil
}

// columnSort brings the columns of edges in the order of the topology, by a sort of its own, after the topology.
type columnSort struct {
	*topology
	plan     sortPlan
	columns  []inputColumn
	features *edgeFeatures // that are made of them; nil: none
}

// planColumns plans the sorts that bring columns of edges in order: those of the graph, and those that features are
// made of.
func (t *topology) planColumns(all allEdgeFeatures) (sorts []*columnSort, err error) {
	if all == nil && len(columnsOf(t.src, format.OfEdges)) > 0 {
		all = allEdgeFeatures{nil}
	}
	for _, f := range all {
		of := t
		if f != nil && f.in.relation != "" {
			info, o := f.in.source.Info(), t.o
			if o.SelfLoops = f.in.loops; o.MemoryBytes > 0 {
				o.MemoryBytes, o.held = max(1, o.MemoryBytes+o.held-info.HeldBytes), info.HeldBytes
			}
			of = newTopology(f.in.source, info, false, o)
		}
		s, err := of.planColumnSort(f)
		if err != nil {
			return nil, err
		}
		sorts = append(sorts, s)
	}
	return sorts, nil
}

func (t *topology) planColumnSort(features *edgeFeatures) (*columnSort, error) {
	columns := columnsOf(t.src, format.OfEdges)
	source := numberedEdges{t.src}
	s := &columnSort{topology: newTopology(source, source.Info(), t.reverses, t.o), columns: columns, features: features}
	if at := slices.IndexFunc(columns, features.isTime); at > 0 { // times come first
		s.columns = slices.Concat(columns[at:at+1], columns[:at], columns[at+1:])
	}
	if s.o.MemoryBytes > 0 {
		beside := int64(columnBytes + minColumnBytes)
		for _, c := range columns {
			beside = max(beside, columnBytes+2*c.RowBytes()) // a row that is read, and its place
		}
		beside += features.memory()
		s.o.MemoryBytes, s.o.held = max(1, s.o.MemoryBytes-beside), s.o.held+beside
	}
	var err error
	s.plan, err = s.planSort()
	return s, err
}

// sortBytes is the disk space of sorts.
func sortBytes(sorts []*columnSort) (bytes int64) {
	buckets := int64(0)
	for _, s := range sorts {
		if bytes += s.features.scratchBytes(s.info.Nodes, s.recordCount); s.plan.onDisk {
			buckets = max(buckets, s.bucketBytes())
		}
	}
	return bytes + buckets
}

// writeColumns writes the columns of edges in the order of the topology: an edge that is stored has the row of the edge
// of the input that it was made from, which of merged duplicates is the first; so has a reverse that was added. It also
// makes the features of nodes that come from them, which are there while it calls then.
func (t *topology) writeColumns(ctx context.Context, fsys vfs.FS, dir string, w *format.Writer, sorts []*columnSort,
	edges int64, then func() error) (err error) {
	if len(sorts) == 0 {
		return nil
	}
	files, err := t.openScratch(fsys, dir, w)
	if err != nil {
		return err
	}
	space := &scratch{Scratch: files, fsys: fsys}
	defer func() { err = errors.Join(err, space.Close()) }()
	for _, s := range sorts {
		if err := s.write(ctx, space, w, edges); err != nil {
			return err
		}
	}
	return then()
}

// write writes the columns of a sort, of edges in a graph of this many.
func (s *columnSort) write(ctx context.Context, space *scratch, w *format.Writer, edges int64) error {
	if err := s.features.createFiles(space); err != nil {
		return err
	}
	sorted, err := s.sort(ctx, space.fsys, space.Scratch, s.plan)
	if err != nil {
		return err
	}
	defer sorted.free()
	if of := s.features; sorted.storedEdges != edges && (of == nil || of.in.relation == "") {
		return errChanged
	}
	if err := s.features.countAll(sorted.degrees); err != nil {
		return err
	}
	for _, c := range s.columns {
		if err := sorted.writeColumn(ctx, w, c, s.features); errors.As(err, new(*badRow)) {
			return err // which names the place
		} else if err != nil {
			return fmt.Errorf("%s: %w", c.path, err)
		}
	}
	return nil
}

// writeColumn writes a column in the order of the sorted edges, as many rows at a time as memory has room for: it reads
// the rows of the input in ascending order, once for all of them. Features that are made of the column read it too.
func (s *edgeSort) writeColumn(ctx context.Context, w *format.Writer, c inputColumn, features *edgeFeatures) error {
	user := features.use(c, s.degrees)
	if c.left && user == nil {
		return nil
	}
	var m *format.MatrixWriter
	var err error
	if !c.left {
		if m, err = w.Column(c.Column, s.storedEdges); err != nil {
			return err
		}
	}
	task := s.o.Progress.Start("write column "+c.Name, s.storedEdges*c.RowBytes(), progress.Bytes)
	defer task.Done()
	numbers := &edgeReader{ctx: ctx, task: progress.Silent.Start("", 0, progress.Items), s: s, column: 1}
	rowBytes := c.RowBytes()
	room := int64(1 << 30)
	if s.o.MemoryBytes > 0 { // beside in-degrees and buckets
		room = s.o.MemoryBytes + minColumnBytes - s.o.workingBytes() - 4*s.info.Nodes
		if !s.plan.onDisk {
			room -= s.bucketBytes()
		}
	}
	most := max(1, min(s.storedEdges, max(room, minColumnBytes)/(rowBytes+2*s.recordBytes()), mostNumberedEdges))
	memory, err := alloc(most * rowBytes)
	if err != nil {
		return err
	}
	defer memory.Free()
	b, err := s.newSortBuffer(most) // of numbers, with the places of their rows for weights
	if err != nil {
		return err
	}
	defer b.memory.Free()
	for left := s.storedEdges; left > 0; left -= int64(b.used) {
		b.used = int(min(left, most))
		read := dtype.BytesOf(b.other.weights[:b.used])
		if _, err := io.ReadFull(numbers, read); err != nil {
			return err
		}
		for i, number := range dtype.Uint32s(read) {
			b.keys[i], b.weights[i] = uint64(number), math.Float32frombits(uint32(i))
		}
		b.sort(bits.Len64(uint64(s.info.Edges)))
		rows := memory.Bytes()[:int64(b.used)*rowBytes]
		if err := c.gather(ctx, rows, b.slice(b.used)); err != nil {
			return err
		}
		if user != nil {
			err := user.add(rows)
			if bad := (*badRow)(nil); errors.As(err, &bad) {
				at := slices.IndexFunc(b.weights[:b.used], func(w float32) bool { return int(math.Float32bits(w)) == bad.row })
				return fmt.Errorf("%w: %s, column %s: %w", ErrInvalid, c.place(int64(b.keys[at])), c.Name, bad)
			} else if err != nil {
				return err
			}
		}
		if m != nil {
			if err := m.Write(rows); err != nil {
				return err
			}
		}
		task.Add(int64(len(rows)))
	}
	if user != nil {
		err = user.finish()
	}
	if m != nil {
		err = errors.Join(err, m.Close())
	}
	return err
}

// columnBytes is the memory of reading and writing a column, minColumnBytes the least memory for its rows.
const (
	columnBytes    = readBytes + 16<<20
	minColumnBytes = 1 << 20
)

// gather copies rows to their places: each record has the number of a row, ascending, and its place for a weight. It
// reads rows that are close together at once.
func (c *inputColumn) gather(ctx context.Context, rows []byte, to records) error {
	size := c.RowBytes()
	buffer := make([]byte, max(size, readBytes))
	for len(to.keys) > 0 {
		if err := context.Cause(ctx); err != nil {
			return err
		}
		first, n, last := int64(to.keys[0]), 0, int64(0)
		for n < len(to.keys) {
			at := int64(to.keys[n])
			if (at-first+1)*size > int64(len(buffer)) || n > 0 && (at-last)*size > 64<<10 {
				break
			}
			last, n = at, n+1
		}
		if last >= c.rows {
			return errChanged
		}
		span := buffer[:(last-first+1)*size]
		if err := c.read(span, first*size); err != nil {
			return err
		}
		for i, number := range to.keys[:n] {
			place := int64(math.Float32bits(to.weights[i]))
			copy(rows[place*size:][:size], span[(int64(number)-first)*size:])
		}
		to.keys, to.weights = to.keys[n:], to.weights[n:]
	}
	return nil
}
