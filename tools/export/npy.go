// Package export writes graphs and hop stores in formats that other programs read.
package export

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"unicode/utf8"

	"github.com/hopfeed/hopfeed/format"
	"github.com/hopfeed/hopfeed/internal/dtype"
	"github.com/hopfeed/hopfeed/internal/machine"
	"github.com/hopfeed/hopfeed/internal/progress"
	"github.com/hopfeed/hopfeed/internal/units"
	"github.com/hopfeed/hopfeed/internal/vfs"
	"github.com/hopfeed/hopfeed/tools/npy"
)

// Options govern an export.
type Options struct {
	Force    bool // replace what an earlier export has written
	Progress progress.Reporter
}

// Result is what was written.
type Result struct {
	Files  []string `json:"files"`
	Bytes  int64    `json:"bytes"`
	Output string   `json:"output"`
}

// NPY writes a graph or a hop store as NumPy arrays into the directory out,
// streaming the matrices. What a killed export leaves there the next one replaces,
// and no importer takes. A graph is written so that the importer reads it back
// the same:
//
//	edge_index.npy  [2,E] source and destination, in order of destination; every stored edge
//	edge_weight.npy [E], of a weighted graph
//	node_feat.npy   [n,F] in the stored type; bfloat16 as uint16
//	meta.json       name, num_nodes, num_features, directed; reverses_stored for an undirected graph
//
// Of a store, the rows lie in stored order:
//
//	<operator>_hop-<r>.npy [rows,F], one for each matrix
//	node_id.npy            [rows]
//	meta.json              name, regions, operators
//
// and of both, as far as there are such: node_label.npy [rows] or [rows,L],
// splits.npy [k,rows], orig_id.npy [rows].
func NPY(ctx context.Context, fsys vfs.FS, dir, out string, o Options) (_ *Result, err error) {
	if o.Progress == nil {
		o.Progress = progress.Silent
	}
	d, err := format.OpenAny(fsys, dir)
	if err != nil {
		return nil, err
	}
	defer d.Close()
	rows, err := d.Rows(ctx)
	if err != nil {
		return nil, err
	}
	w, err := claim(fsys, out, o.Force, d)
	if err != nil {
		return nil, err
	}
	defer func() { err = w.leave(err) }()
	e := &npyExport{ctx, d, w, o}
	if err := e.checkSpace(rows); err != nil {
		return nil, err
	}
	if d.Manifest.Kind == format.KindGraph {
		err = e.topology()
	} else {
		err = e.write("node_id.npy", npy.Uint32, []int64{rows.Rows}, dtype.BytesOf(rows.NodeID))
	}
	if err != nil {
		return nil, err
	}
	for _, id := range d.Matrices() {
		if err := e.matrix(id); err != nil {
			return nil, err
		}
	}
	if err := e.rowTable(rows); err != nil {
		return nil, err
	}
	if err := e.meta(); err != nil {
		return nil, err
	}
	return &Result{Files: w.files, Bytes: w.bytes, Output: out}, nil
}

// npyExport is one export under way.
type npyExport struct {
	ctx     context.Context
	dir     *format.Dir
	out     *output
	options Options
}

// checkSpace refuses to start what would fill the disk.
func (e *npyExport) checkSpace(t *format.RowTable) error {
	m, layout := &e.dir.Manifest, e.dir.Layout()
	needed := int64(len(e.dir.Matrices())) * m.Rows * int64(layout.Features*layout.DType.Size())
	needed += int64(4*len(t.NodeID) + 4*len(t.Labels) + len(t.MultiLabels) + len(t.Splits))
	if t.OrigID != nil {
		needed += 4 * int64(len(t.OrigID)*idWidth(t.OrigID))
	}
	if m.Kind == format.KindGraph {
		needed += 8 * m.Edges
	}
	if m.Weighted {
		needed += 4 * m.Edges
	}
	free, err := e.out.fsys.FreeBytes(e.out.dir)
	if err == nil && needed > free {
		err = fmt.Errorf("%w: %s needs %v of disk, %v are free", machine.ErrDoesNotFit, e.out.dir, units.Bytes(needed), units.Bytes(free))
	}
	return err
}

// writeBlock is how much is handed to a file at once, so that an end of the
// context is seen in between.
const writeBlock = 4 << 20

func (e *npyExport) writeAll(w vfs.PendingFile, data []byte, task progress.Task) error {
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

// array writes an array, whose elements body writes.
func (e *npyExport) array(name string, t npy.Type, width int64, shape []int64, body func(vfs.PendingFile, progress.Task) error) error {
	h := npy.Header{Type: t, Width: width, Shape: shape}
	task := e.options.Progress.Start("write "+name, h.DataBytes(), progress.Bytes)
	defer task.Done()
	return e.out.create(name, func(w vfs.PendingFile) error {
		if _, err := w.Write(npy.AppendHeader(nil, t, width, shape...)); err != nil {
			return err
		}
		return body(w, task)
	})
}

// write writes an array that is in memory.
func (e *npyExport) write(name string, t npy.Type, shape []int64, data []byte) error {
	return e.array(name, t, 1, shape, func(w vfs.PendingFile, task progress.Task) error { return e.writeAll(w, data, task) })
}

// topologyBlock is how much of a topology is in memory, unless the list of one node
// is longer.
const topologyBlock = 8 << 20

func (e *npyExport) topology() error {
	t, err := e.dir.OpenTopology(e.ctx, topologyBlock)
	if err != nil {
		return err
	}
	defer t.Close()
	memory := make([]byte, t.BlockBytes())
	// write writes a number for each edge.
	write := func(w vfs.PendingFile, task progress.Task, numbers func(format.Block) []byte) error {
		for k := range t.Blocks() {
			b, err := t.ReadBlock(k, memory)
			if err == nil {
				err = e.writeAll(w, numbers(b), task)
			}
			if err != nil {
				return err
			}
		}
		return nil
	}
	sources := func(b format.Block) []byte { return dtype.BytesOf(b.Neighbors) }
	weights := func(b format.Block) []byte { return dtype.BytesOf(b.Weights) }
	var ids []uint32
	destinations := func(b format.Block) []byte {
		ids = ids[:0]
		for v := b.First; v < b.First+b.Rows(); v++ {
			for range b.In(v) {
				ids = append(ids, uint32(v))
			}
		}
		return dtype.BytesOf(ids)
	}
	id := npy.Int32 // which fewer readers stumble over
	if t.Nodes() > 1<<31 {
		id = npy.Uint32
	}
	err = e.array("edge_index.npy", id, 1, []int64{2, t.Edges()}, func(w vfs.PendingFile, task progress.Task) error {
		if err := write(w, task, sources); err != nil {
			return err
		}
		return write(w, task, destinations)
	})
	if err != nil || !t.Weighted() {
		return err
	}
	return e.array("edge_weight.npy", npy.Float32, 1, []int64{t.Edges()}, func(w vfs.PendingFile, task progress.Task) error {
		return write(w, task, weights)
	})
}

// featureTypes are the array types of stored features.
var featureTypes = map[format.DType]npy.Type{format.Float32: npy.Float32, format.Float16: npy.Float16, format.BFloat16: npy.BFloat16}

func (e *npyExport) matrix(id format.MatrixID) error {
	m, err := e.dir.Matrix(id)
	if err != nil {
		return err
	}
	defer m.Close()
	name := "node_feat.npy"
	if e.dir.Manifest.Kind == format.KindStore {
		// Colons, which some systems do not allow in names, become pluses as in the store.
		name = fmt.Sprintf("%s_hop-%d.npy", strings.ReplaceAll(id.Operator, ":", "+"), id.Hop)
	}
	layout := e.dir.Layout()
	rowBytes := layout.Features * layout.DType.Size()
	shape := []int64{e.dir.Manifest.Rows, int64(layout.Features)}
	return e.array(name, featureTypes[layout.DType], 1, shape, func(w vfs.PendingFile, task progress.Task) error {
		chunk := make([]byte, layout.ChunkRows*rowBytes)
		for k := range m.Chunks() {
			_, rows := m.ChunkRowRange(k)
			data := chunk[:rows*rowBytes]
			if err := m.ReadChunk(k, data); err != nil {
				return err
			}
			if err := e.writeAll(w, data, task); err != nil {
				return err
			}
		}
		return nil
	})
}

func (e *npyExport) rowTable(t *format.RowTable) error {
	var err error
	switch {
	case t.Labels != nil:
		err = e.write("node_label.npy", npy.Int32, []int64{t.Rows}, dtype.BytesOf(t.Labels))
	case t.MultiLabels != nil:
		err = e.write("node_label.npy", npy.Int8, []int64{t.Rows, int64(t.LabelColumns)}, dtype.BytesOf(t.MultiLabels))
	}
	if err == nil && t.NumSplits > 0 {
		k := int64(t.NumSplits)
		splits := make([]int8, k*t.Rows)
		for i, part := range t.Splits {
			splits[int64(i)%k*t.Rows+int64(i)/k] = int8(part) - 1
		}
		err = e.write("splits.npy", npy.Int8, []int64{k, t.Rows}, dtype.BytesOf(splits))
	}
	if err == nil && t.OrigID != nil {
		err = e.origIDs(t.OrigID)
	}
	return err
}

// idWidth is the characters of the longest id, or 1.
func idWidth(ids []string) int {
	width := 1
	for _, id := range ids {
		width = max(width, utf8.RuneCountInString(id))
	}
	return width
}

// origIDs writes strings in UTF-32, padded to the longest.
func (e *npyExport) origIDs(ids []string) error {
	width := idWidth(ids)
	return e.array("orig_id.npy", npy.Text, int64(width), []int64{int64(len(ids))}, func(w vfs.PendingFile, task progress.Task) error {
		var block []rune
		for i, id := range ids {
			block = append(block, []rune(id)...)
			block = append(block, make([]rune, width-utf8.RuneCountInString(id))...)
			if len(block) >= writeBlock/4 || i == len(ids)-1 {
				if err := e.writeAll(w, dtype.BytesOf(block), task); err != nil {
					return err
				}
				block = block[:0]
			}
		}
		return nil
	})
}

// npyMeta is meta.json. The importer reads the fields of a graph.
type npyMeta struct {
	ExportedBy     string            `json:"exported_by"` // what lets force replace the folder
	Name           string            `json:"name"`
	Nodes          int64             `json:"num_nodes"`
	Features       int               `json:"num_features"`
	FeatureDType   string            `json:"feature_dtype"`
	EdgeLayout     string            `json:"edge_layout,omitempty"`
	Directed       bool              `json:"directed"`
	ReversesStored bool              `json:"reverses_stored"`
	Regions        []format.Region   `json:"regions,omitempty"`
	Operators      []format.Operator `json:"operators,omitempty"`
}

func (e *npyExport) meta() error {
	m := &e.dir.Manifest
	meta := npyMeta{
		ExportedBy:     exporter,
		Name:           m.Name,
		Nodes:          m.Nodes,
		Features:       m.Features,
		FeatureDType:   m.DType,
		Directed:       m.Directed,
		ReversesStored: !m.Directed,
		Operators:      m.Operators,
	}
	if m.Kind == format.KindGraph {
		meta.EdgeLayout = "2xE" // which two edges do not show
	} else {
		meta.Regions = m.Regions
	}
	text, err := json.MarshalIndent(meta, "", "  ")
	if err != nil {
		return err
	}
	return e.out.create(metaName, func(w vfs.PendingFile) error {
		_, err := w.Write(append(text, '\n'))
		return err
	})
}
