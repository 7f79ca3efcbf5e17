// Package export writes graphs and hop stores in formats that other programs read.
package export

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"strings"
	"unicode/utf8"

	"github.com/hopfeed/hopfeed/format"
	"github.com/hopfeed/hopfeed/internal/dtype"
	"github.com/hopfeed/hopfeed/internal/machine"
	"github.com/hopfeed/hopfeed/internal/offheap"
	"github.com/hopfeed/hopfeed/internal/parallel"
	"github.com/hopfeed/hopfeed/internal/progress"
	"github.com/hopfeed/hopfeed/internal/units"
	"github.com/hopfeed/hopfeed/internal/vfs"
	"github.com/hopfeed/hopfeed/tools/npy"
)

// Options are the options of an export.
type Options struct {
	Force       bool  // replace what an earlier export has written
	MemoryBytes int64 // memory that may be used; 0: no limit
	Progress    progress.Reporter
}

// Result lists what an export has written.
type Result struct {
	Files  []string `json:"files"`
	Bytes  int64    `json:"bytes"`
	Output string   `json:"output"`
}

// NPY writes a graph or a hop store as NumPy arrays into the directory out,
// a block of each matrix at a time. The directory appears when it is complete; what a killed
// export leaves beside it, the next one removes. Importing the arrays of a graph gives the same graph:
//
//	edge_index.npy  [2,E] source and destination, in order of destination; every stored edge
//	edge_weight.npy [E], of a weighted graph
//	node_feat.npy   [n,F] in the stored type; bfloat16 as uint16
//	<column>.npy    [E] or [E,k], one for each column of the edges; node_<column>.npy likewise of the nodes
//	meta.json       name, num_nodes, num_features, directed; reverses_stored for an undirected graph
//
// The rows of a store are in stored order:
//
//	<operator>_hop-<r>.npy [rows,F], one for each matrix
//	node_id.npy            [rows]
//	meta.json              name, regions, operators
//
// Both have, if the graph or store has them, node_label.npy [rows] or [rows,L], splits.npy
// [k,rows] and orig_id.npy [rows]. A typed graph has these files a type and a relation, without edges of types and
// without meta.json of relations:
//
//	nodes/<type>/                                  of a type that has features, labels or the like
//	edges/<source>__<relation>__<destination>/     but for reverses that the import adds again
//	meta.json                                      name, node_types, edge_types, target, directed
func NPY(ctx context.Context, fsys vfs.FS, dir, out string, o Options) (_ *Result, err error) {
	if o.Progress == nil {
		o.Progress = progress.Silent
	}
	defer parallel.Beside()()
	var typed *typedMeta
	var parts []*npyExport
	defer func() {
		for _, e := range parts {
			e.close()
		}
	}()
	past := vfs.NewPastCache(fsys)
	d, err := format.OpenAny(past, dir)
	switch {
	case err == nil:
		parts = []*npyExport{{dir: d, edges: d.Manifest.Kind == format.KindGraph, meta: true}}
	case errors.Is(err, format.ErrKind) && format.IsTyped(past, dir):
		typed, parts, err = openTyped(past, dir)
	}
	if err != nil {
		return nil, err
	}
	for _, e := range parts {
		e.ctx, e.options, e.idWidth = ctx, o, 1
		if err := e.prepare(); err != nil {
			return nil, err
		}
	}
	w, err := claim(fsys, out, o.Force, parts)
	if err != nil {
		return nil, err
	}
	defer func() { err = w.leave(err) }()
	needed := int64(0)
	for _, e := range parts {
		for _, a := range e.arrays() {
			needed += a.DataBytes()
		}
	}
	if err := machine.CheckSpace(fsys, w.at, needed); err != nil {
		return nil, err
	}
	if typed != nil {
		if err := w.makeFolder(nodesFolder); err != nil {
			return nil, err
		}
	}
	for _, e := range parts {
		e.out = w
		if err := e.writeAllArrays(); err != nil {
			return nil, err
		}
	}
	if typed != nil {
		if err := w.writeJSON(metaName, typed); err != nil {
			return nil, err
		}
	}
	return &Result{Files: w.files, Bytes: w.bytes, Output: out}, nil
}

// npyExport writes the arrays of a graph or a store, or of a part of a typed graph.
type npyExport struct {
	ctx      context.Context
	dir      *format.Dir
	folder   string               // in the output; "": the output itself
	edges    bool                 // the arrays have edges
	meta     bool                 // and a meta.json
	topology *format.TopologyFile // nil: no edges
	out      *output
	options  Options
	readers  int   // that read ahead of the writer
	idWidth  int64 // characters of the longest original id
}

func (e *npyExport) close() {
	if e.topology != nil {
		_ = e.topology.Close()
	}
	_ = e.dir.Close()
}

// writeAllArrays writes all arrays, and meta.json after them.
func (e *npyExport) writeAllArrays() error {
	arrays := e.arrays()
	if len(arrays) == 0 { // a type of nodes with nothing but their number
		return nil
	}
	if e.folder != "" {
		if err := e.out.makeFolder(e.folder); err != nil {
			return err
		}
	}
	for _, a := range arrays {
		if err := e.write(a); err != nil {
			return err
		}
	}
	if !e.meta {
		return nil
	}
	return e.out.writeJSON(filepath.Join(e.folder, metaName), e.newMeta())
}

// array is a file to be written: its header, and what writes the elements.
type array struct {
	name string
	npy.Header
	write func(w io.Writer, task progress.Task) error
}

// arrays lists the files but meta.json.
func (e *npyExport) arrays() (all []array) {
	m, layout := &e.dir.Manifest, e.dir.Layout()
	add := func(name string, t npy.Type, width int64, write func(io.Writer, progress.Task) error, shape ...int64) {
		all = append(all, array{name, npy.Header{Type: t, Width: width, Shape: shape}, write})
	}
	// column adds an array for which part returns the elements of each chunk of the row table.
	column := func(name string, t npy.Type, part func(t *format.RowTable) []byte, shape ...int64) {
		add(name, t, 1, func(w io.Writer, task progress.Task) error { return e.rows(w, task, part) }, shape...)
	}
	matrixName := func(format.MatrixID) string { return "node_feat.npy" }
	if e.edges {
		id := npy.Int32 // many programs do not take unsigned integers as ids
		if max(m.Nodes, m.SourceNodes) > 1<<31 {
			id = npy.Uint32
		}
		add("edge_index.npy", id, 1, e.writeEdges, 2, m.Edges)
		if m.Weighted {
			add("edge_weight.npy", npy.Float32, 1, e.weights, m.Edges)
		}
	}
	if m.Kind == format.KindStore {
		column("node_id.npy", npy.Uint32, func(t *format.RowTable) []byte { return dtype.BytesOf(t.NodeID) }, m.Rows)
		matrixName = func(id format.MatrixID) string {
			// Colons and less-than signs, which some systems do not allow in names, become others as in the store.
			return fmt.Sprintf("%s_hop-%d.npy", strings.NewReplacer(":", "+", "<", "-").Replace(id.Operator), id.Hop)
		}
	}
	for _, id := range e.dir.Matrices() {
		open := func() (*format.Matrix, error) { return e.dir.Matrix(id) }
		write := func(w io.Writer, task progress.Task) error { return e.matrix(w, task, open) }
		add(matrixName(id), featureTypes[layout.DType], 1, write, m.Rows, int64(layout.Of(id).Features))
	}
	const label = "node_label.npy"
	switch {
	case m.LabelValues:
		values := func(t *format.RowTable) []byte { return dtype.BytesOf(t.LabelValues) }
		column(label, npy.Float32, values, m.Rows, int64(m.Labels))
	case m.Labels == 1:
		column(label, npy.Int32, func(t *format.RowTable) []byte { return dtype.BytesOf(t.Labels) }, m.Rows)
	case m.Labels > 1:
		several := func(t *format.RowTable) []byte { return dtype.BytesOf(t.MultiLabels) }
		column(label, npy.Int8, several, m.Rows, int64(m.Labels))
	}
	if m.Splits > 0 {
		add("splits.npy", npy.Int8, 1, e.splits, int64(m.Splits), m.Rows)
	}
	if m.OrigIDs {
		add("orig_id.npy", npy.Text, e.idWidth, e.origIDs, m.Rows)
	}
	for _, c := range m.Columns {
		name, shape := c.Name+".npy", []int64{m.Edges}
		if c.Of == format.OfNodes {
			name, shape = "node_"+name, []int64{m.Nodes}
		}
		if c.Columns > 0 {
			shape = append(shape, int64(c.Columns))
		}
		t, _ := npy.ParseType(c.DType) // which has the names of all types
		open := func() (*format.Matrix, error) {
			opened, _, err := e.dir.Column(c.Name)
			return opened, err
		}
		add(name, t, 1, func(w io.Writer, task progress.Task) error { return e.matrix(w, task, open) }, shape...)
	}
	return all
}

// mostReaders is how many chunks, or blocks of the topology, are read at a time: more are no faster.
const mostReaders = 4

// buffersBytes is the memory of all readers.
func buffersBytes(readers int, bytes int64) int64 { return int64(readers+1) * vfs.WholePages(bytes) }

// chunkBytes is the size of the largest chunk of a matrix.
func (e *npyExport) chunkBytes() (most int64) {
	for _, id := range e.dir.Matrices() {
		most = max(most, chunkBytes(e.dir.Layout().Of(id)))
	}
	return most
}

func chunkBytes(layout format.Layout) int64 {
	return int64(layout.ChunkRows * layout.Features * layout.DType.Size())
}

// readAhead calls read for 0 to n-1, each with a buffer of bytes, and emit with what it returned, in order.
func readAhead[T any](e *npyExport, n int, bytes int64, read func(k int, buffer []byte) (T, error),
	emit func(T) error) error {
	memory, err := offheap.Alloc(buffersBytes(e.readers, bytes))
	if err != nil {
		return err
	}
	defer memory.Free()
	free := memory.Bytes()
	take := func() (buffer []byte) {
		buffer, free = free[:bytes], free[vfs.WholePages(bytes):]
		return buffer
	}
	return parallel.Ordered(e.ctx, e.readers, int64(n), take,
		func(k int64, buffer []byte) (T, error) { return read(int(k), buffer) }, emit)
}

// prepare opens the topology of a graph, refuses an export that needs more memory than it
// may use, and reads the row table once, to check it and to find the longest id.
func (e *npyExport) prepare() (err error) {
	largest := e.chunkBytes()
	for _, c := range e.dir.Manifest.Columns {
		m, _, err := e.dir.Column(c.Name)
		if err != nil {
			return err
		}
		largest = max(largest, chunkBytes(m.Layout))
	}
	if e.edges {
		if e.topology, err = e.dir.OpenTopology(e.ctx, topologyBlock); err != nil {
			return err
		}
		largest = max(largest, e.topology.RangeBytes())
	}
	longest := int64(0)
	for _, a := range e.arrays() {
		longest = max(longest, a.DataBytes())
	}
	need := int64(machine.ProgramBytes) + buffersBytes(1, largest) + 2*writeBlock + vfs.StreamBytes(longest)
	if most := e.options.MemoryBytes; most > 0 && need > most {
		return fmt.Errorf("export %w: it may use %v of memory, and needs %v at least (raise --memory)",
			machine.ErrDoesNotFit, units.Bytes(most), units.AtLeast(units.Bytes(need)))
	}
	e.readers = mostReaders
	if most := e.options.MemoryBytes; most > 0 {
		e.readers = int(min(mostReaders, 1+(most-need)/max(1, vfs.WholePages(largest))))
	}
	return e.dir.VisitRows(e.ctx, func(t *format.RowTable, _ int64) {
		for _, id := range t.OrigID {
			e.idWidth = max(e.idWidth, int64(utf8.RuneCountInString(id)))
		}
	})
}

// writeBlock is the number of bytes of a write. Between writes, the export looks whether the context has ended.
const writeBlock = 4 << 20

func (e *npyExport) writeAll(w io.Writer, data []byte, task progress.Task) error {
	for len(data) > 0 {
		if err := context.Cause(e.ctx); err != nil {
			return err
		}
		n := min(writeBlock, len(data))
		if _, err := w.Write(data[:n]); err != nil {
			return err
		}
		task.Add(int64(n))
		data = data[n:]
	}
	return nil
}

func (e *npyExport) write(a array) error {
	task := e.options.Progress.Start("write "+filepath.Join(e.folder, a.name), a.DataBytes(), progress.Bytes)
	defer task.Done()
	header := npy.AppendHeader(nil, a.Type, a.Width, a.Shape...)
	return e.out.create(filepath.Join(e.folder, a.name), int64(len(header))+a.DataBytes(), func(w io.Writer) error {
		if _, err := w.Write(header); err != nil {
			return err
		}
		return a.write(w, task)
	})
}

// topologyBlock is the memory for a block of the topology. A node whose list of in-neighbours is longer takes more.
const topologyBlock = 8 << 20

// eachRange calls write with the node ranges of the topology, in order.
func (e *npyExport) eachRange(write func(format.NodeRange) error) error {
	t := e.topology
	return readAhead(e, t.Ranges(), t.RangeBytes(), t.ReadRange, write)
}

// writeEdges writes the source of each edge, then the destination of each.
func (e *npyExport) writeEdges(w io.Writer, task progress.Task) error {
	sources := func(b format.NodeRange) error { return e.writeAll(w, dtype.BytesOf(b.Neighbors), task) }
	if err := e.eachRange(sources); err != nil {
		return err
	}
	return e.eachRange(func(b format.NodeRange) error {
		for v := b.First; v < b.First+b.Rows(); v++ {
			neighbors := b.In(v) // which lie in our buffer
			for i := range neighbors {
				neighbors[i] = uint32(v)
			}
		}
		return e.writeAll(w, dtype.BytesOf(b.Neighbors), task)
	})
}

func (e *npyExport) weights(w io.Writer, task progress.Task) error {
	return e.eachRange(func(b format.NodeRange) error { return e.writeAll(w, dtype.BytesOf(b.Weights), task) })
}

var featureTypes = map[format.DType]npy.Type{format.Float32: npy.Float32, format.Float16: npy.Float16,
	format.BFloat16: npy.BFloat16}

// matrix writes a matrix that open opens.
func (e *npyExport) matrix(w io.Writer, task progress.Task, open func() (*format.Matrix, error)) error {
	m, err := open()
	if err != nil {
		return err
	}
	defer m.Close()
	rowBytes := m.Layout.Features * m.Layout.DType.Size()
	return readAhead(e, m.Chunks(), chunkBytes(m.Layout), func(k int, buffer []byte) ([]byte, error) {
		_, rows := m.ChunkRowRange(k)
		data := buffer[:rows*rowBytes]
		return data, m.ReadChunk(k, data)
	}, func(data []byte) error { return e.writeAll(w, data, task) })
}

// rows writes the bytes that part returns for each chunk of the row table.
func (e *npyExport) rows(w io.Writer, task progress.Task, part func(t *format.RowTable) []byte) error {
	var failed error
	err := e.dir.VisitRows(e.ctx, func(t *format.RowTable, _ int64) {
		if failed == nil {
			failed = e.writeAll(w, part(t), task)
		}
	})
	return cmp.Or(failed, err)
}

// splits writes one split after another.
func (e *npyExport) splits(w io.Writer, task progress.Task) error {
	var block []int8
	for k := range e.dir.Manifest.Splits {
		err := e.rows(w, task, func(t *format.RowTable) []byte {
			block = block[:0]
			for i := range int(t.Rows) {
				block = append(block, int8(t.Splits[i*t.NumSplits+k])-1)
			}
			return dtype.BytesOf(block)
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// origIDs writes strings in UTF-32, padded to the longest.
func (e *npyExport) origIDs(w io.Writer, task progress.Task) error {
	var failed error
	width := int(e.idWidth)
	block := make([]rune, 0, max(writeBlock/4, width))
	flush := func() {
		if failed == nil {
			failed = e.writeAll(w, dtype.BytesOf(block), task)
		}
		block = block[:0]
	}
	err := e.dir.VisitRows(e.ctx, func(t *format.RowTable, _ int64) {
		for _, id := range t.OrigID {
			if len(block)+width > cap(block) {
				flush()
			}
			padding := width
			for _, r := range id {
				block, padding = append(block, r), padding-1
			}
			block = append(block, make([]rune, padding)...)
		}
	})
	flush()
	return cmp.Or(failed, err)
}

// npyMeta is meta.json. The importer reads the fields of a graph.
type npyMeta struct {
	ExportedBy     string            `json:"exported_by"` // by which Options.Force knows that an export made the folder
	Name           string            `json:"name"`
	Nodes          int64             `json:"num_nodes"`
	Features       int               `json:"num_features"`
	FeatureDType   string            `json:"feature_dtype"`
	EdgeLayout     string            `json:"edge_layout,omitempty"`
	Directed       bool              `json:"directed"`
	ReversesStored bool              `json:"reverses_stored"`
	LabelsAs       string            `json:"labels_as,omitempty"` // if node_label.npy alone is ambiguous
	ClassNames     []string          `json:"class_names,omitempty"`
	Normalized     bool              `json:"normalize_features,omitempty"` // they were
	Regions        []format.Region   `json:"regions,omitempty"`
	Operators      []format.Operator `json:"operators,omitempty"`
}

func (e *npyExport) newMeta() *npyMeta {
	m := &e.dir.Manifest
	meta := &npyMeta{
		ExportedBy:     exporter,
		Name:           m.Name,
		Nodes:          m.Nodes,
		Features:       m.Features,
		FeatureDType:   m.DType,
		Directed:       m.Directed,
		ReversesStored: !m.Directed,
		ClassNames:     m.ClassNames,
		Normalized:     m.Input[format.NormalizeFeatures] == "true",
		Operators:      m.Operators,
	}
	if m.LabelValues {
		meta.LabelsAs = "values"
	}
	if m.Kind == format.KindGraph {
		meta.EdgeLayout = "2xE" // which two edges do not show
	} else {
		meta.Regions = m.Regions
	}
	return meta
}
