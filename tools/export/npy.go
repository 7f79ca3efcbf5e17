// Package export writes graphs and hop stores in formats that other programs read.
package export

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path/filepath"
	"regexp"
	"slices"
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
	Threads  int
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
	e := &npyExport{ctx: ctx, fsys: fsys, dir: d, out: out, options: o, result: &Result{Output: out}}
	if err := e.claim(); err != nil {
		return nil, err
	}
	defer func() { err = e.leave(err) }()
	if err := e.checkSpace(rows); err != nil {
		return nil, err
	}
	if d.Manifest.Kind == format.KindGraph {
		err = e.topology()
	} else {
		err = e.write("node_id.npy", npy.Uint32, 1, []int64{rows.Rows}, dtype.BytesOf(rows.NodeID))
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
	return e.result, nil
}

// metaName is written last: what is without is not whole.
const metaName = "meta.json"

// ours are the names that an export writes.
var ours = regexp.MustCompile(`^(meta\.json|edge_index\.npy|edge_weight\.npy|node_feat\.npy|node_label\.npy|node_id\.npy|splits\.npy|orig_id\.npy|.+_hop-[0-9]+\.npy)(` + regexp.QuoteMeta(vfs.TempSuffix) + `)?$`)

// claim makes the output directory, or empties it as far as it may be replaced,
// and locks it against other exports.
func (e *npyExport) claim() error {
	if _, err := e.fsys.Stat(e.out); errors.Is(err, fs.ErrNotExist) {
		e.made = true
	} else if err != nil {
		return err
	} else if _, err := e.replaceable(); err != nil {
		return err
	}
	if err := e.checkSources(); err != nil {
		return err
	}
	if err := e.fsys.MkdirAll(e.out); err != nil {
		return err
	}
	var err error
	if e.lock, err = e.fsys.Lock(filepath.Join(e.out, npy.LockName)); errors.Is(err, vfs.ErrLocked) {
		return fmt.Errorf("%s is being written: %w", e.out, err)
	} else if err != nil {
		if e.made {
			err = e.leave(err)
		}
		return err // not knowing whose lock it is
	}
	// Another export may have finished before we had the lock.
	old, err := e.replaceable()
	if err != nil {
		return e.leave(err)
	}
	for _, name := range old {
		if err := e.remove(name); err != nil {
			return errors.Join(err, e.lock.Close()) // its file stays: what is left is not whole
		}
	}
	return nil
}

func (e *npyExport) remove(name string) error { return e.fsys.Remove(filepath.Join(e.out, name)) }

// replaceable lists what is in the output directory and may be removed: what a
// killed export has left or, with force, a whole one. Somebody's own arrays have
// the same names, but neither the lock nor the mark in meta.json.
func (e *npyExport) replaceable() (names []string, err error) {
	entries, err := e.fsys.ReadDir(e.out)
	if err != nil {
		return nil, err
	}
	killed := false
	for _, entry := range entries {
		switch name := entry.Name(); {
		case name == npy.LockName:
			killed = true
		case entry.IsDir() || !ours.MatchString(name):
			return nil, fmt.Errorf("%s: %w, and holds %s, which no export has written (give another directory)", e.out, format.ErrExists, name)
		case name == metaName:
			names = slices.Insert(names, 0, name) // without it, the rest counts as left by a killed export
		default:
			names = append(names, name)
		}
	}
	meta := len(names) > 0 && names[0] == metaName
	switch {
	case meta && !e.marked() || !meta && !killed && len(names) > 0:
		return nil, fmt.Errorf("%s: %w, and no export has written it (give another directory)", e.out, format.ErrExists)
	case meta && !e.options.Force:
		return nil, fmt.Errorf("%s: %w (--force replaces it)", e.out, format.ErrExists)
	}
	return names, nil
}

// checkSources refuses the directory where a graph has left its features.
func (e *npyExport) checkSources() error {
	out, err := e.fsys.Resolve(e.out)
	if err != nil {
		return err
	}
	for _, source := range e.dir.Manifest.Elsewhere() {
		at, err := e.fsys.Resolve(source)
		if err != nil {
			return err
		}
		if filepath.Dir(at) == out {
			return fmt.Errorf("%s: %w, and holds the features that %s has left there (give another directory)", e.out, format.ErrExists, e.dir.Path())
		}
	}
	return nil
}

// exporter marks meta.json as that of an export.
const exporter = "hopfeed"

func (e *npyExport) marked() bool {
	f, err := e.fsys.Open(filepath.Join(e.out, metaName))
	if err != nil {
		return false
	}
	defer f.Close()
	start := []byte("{\n  \"exported_by\": \"" + exporter + "\"")
	found := make([]byte, len(start))
	n, _ := f.ReadAt(found, 0)
	return bytes.Equal(found[:n], start)
}

// npyExport is one export under way.
type npyExport struct {
	ctx     context.Context
	fsys    vfs.FS
	dir     *format.Dir
	out     string
	options Options
	result  *Result
	made    bool // out was not there
	lock    io.Closer
}

// leave unlocks the output directory, which after an error loses what was written,
// and returns err, or else what went wrong here. Where a file cannot be removed,
// that of the lock stays with it.
func (e *npyExport) leave(err error) error {
	if err == nil {
		err = e.remove(npy.LockName)
	}
	if err != nil {
		var left error // err is the one to tell
		for _, name := range slices.Backward(e.result.Files) {
			left = errors.Join(left, e.remove(name))
		}
		if left == nil {
			_ = e.remove(npy.LockName)
		}
		if e.made {
			_ = e.fsys.Remove(e.out)
		}
	}
	if e.lock != nil {
		err = errors.Join(err, e.lock.Close())
	}
	return err
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
	free, err := e.fsys.FreeBytes(e.out)
	if err == nil && needed > free {
		err = fmt.Errorf("%w: %s needs %v of disk, %v are free", machine.ErrDoesNotFit, e.out, units.Bytes(needed), units.Bytes(free))
	}
	return err
}

// create writes one file by means of body, and commits it.
func (e *npyExport) create(name string, body func(w vfs.PendingFile) error) error {
	f, err := e.fsys.Create(filepath.Join(e.out, name))
	if err != nil {
		return err
	}
	defer f.Abort()
	counted := &counter{PendingFile: f}
	if err := body(counted); err != nil {
		return err
	}
	if err := f.Commit(); err != nil {
		return err
	}
	e.result.Files = append(e.result.Files, name)
	e.result.Bytes += counted.bytes
	return nil
}

type counter struct {
	vfs.PendingFile
	bytes int64
}

func (c *counter) Write(p []byte) (int, error) {
	n, err := c.PendingFile.Write(p)
	c.bytes += int64(n)
	return n, err
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

// write writes an array that is in memory.
func (e *npyExport) write(name string, t npy.Type, width int64, shape []int64, data []byte) error {
	task := e.options.Progress.Start("write "+name, int64(len(data)), progress.Bytes)
	defer task.Done()
	return e.create(name, func(w vfs.PendingFile) error {
		if _, err := w.Write(npy.AppendHeader(nil, t, width, shape...)); err != nil {
			return err
		}
		return e.writeAll(w, data, task)
	})
}

func (e *npyExport) topology() error {
	csc, err := e.dir.Topology(e.ctx, e.options.Threads)
	if err != nil {
		return err
	}
	defer csc.Close()
	t := npy.Int32 // which fewer readers stumble over
	if csc.Nodes() > 1<<31 {
		t = npy.Uint32
	}
	m := csc.Edges()
	task := e.options.Progress.Start("write edge_index.npy", 8*m, progress.Bytes)
	defer task.Done()
	err = e.create("edge_index.npy", func(w vfs.PendingFile) error {
		if _, err := w.Write(npy.AppendHeader(nil, t, 1, 2, m)); err != nil {
			return err
		}
		if err := e.writeAll(w, dtype.BytesOf(csc.Neighbors), task); err != nil {
			return err
		}
		block := make([]uint32, 0, writeBlock/4)
		for v := range csc.Nodes() {
			for range csc.In(v) {
				if block = append(block, uint32(v)); len(block) == cap(block) {
					if err := e.writeAll(w, dtype.BytesOf(block), task); err != nil {
						return err
					}
					block = block[:0]
				}
			}
		}
		return e.writeAll(w, dtype.BytesOf(block), task)
	})
	if err != nil || csc.Weights == nil {
		return err
	}
	return e.write("edge_weight.npy", npy.Float32, 1, []int64{m}, dtype.BytesOf(csc.Weights))
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
	task := e.options.Progress.Start("write "+name, e.dir.Manifest.Rows*int64(rowBytes), progress.Bytes)
	defer task.Done()
	return e.create(name, func(w vfs.PendingFile) error {
		shape := []int64{e.dir.Manifest.Rows, int64(layout.Features)}
		if _, err := w.Write(npy.AppendHeader(nil, featureTypes[layout.DType], 1, shape...)); err != nil {
			return err
		}
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
		err = e.write("node_label.npy", npy.Int32, 1, []int64{t.Rows}, dtype.BytesOf(t.Labels))
	case t.MultiLabels != nil:
		err = e.write("node_label.npy", npy.Int8, 1, []int64{t.Rows, int64(t.LabelColumns)}, dtype.BytesOf(t.MultiLabels))
	}
	if err == nil && t.NumSplits > 0 {
		k := int64(t.NumSplits)
		splits := make([]int8, k*t.Rows)
		for i, part := range t.Splits {
			splits[int64(i)%k*t.Rows+int64(i)/k] = int8(part) - 1
		}
		err = e.write("splits.npy", npy.Int8, 1, []int64{k, t.Rows}, dtype.BytesOf(splits))
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
	return e.create("orig_id.npy", func(w vfs.PendingFile) error {
		if _, err := w.Write(npy.AppendHeader(nil, npy.Text, int64(width), int64(len(ids)))); err != nil {
			return err
		}
		var block []rune
		task := progress.Silent.Start("", 0, progress.Bytes)
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
	return e.create(metaName, func(w vfs.PendingFile) error {
		_, err := w.Write(append(text, '\n'))
		return err
	})
}
