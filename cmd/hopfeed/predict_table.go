package main

import (
	"bufio"
	"context"
	"fmt"
	"path/filepath"
	"slices"
	"strings"

	"github.com/apache/arrow/go/v17/arrow"

	"github.com/hopfeed/hopfeed/format"
	"github.com/hopfeed/hopfeed/internal/dtype"
	"github.com/hopfeed/hopfeed/internal/machine"
	"github.com/hopfeed/hopfeed/internal/units"
	"github.com/hopfeed/hopfeed/internal/vfs"
	"github.com/hopfeed/hopfeed/tools/checkpoint"
	"github.com/hopfeed/hopfeed/tools/export"
	"github.com/hopfeed/hopfeed/trainer"
)

// predictionTable writes predictions of some regions of a store. It holds a block of rows, whole chunks
// of the store, so that its memory does not depend on their number, nor the file on batches.
type predictionTable struct {
	store      *format.Dir
	regions    []format.Region // those to predict, as far as they have rows
	totalRows  int64
	outputs    trainer.Outputs
	columns    int      // numbers of a row
	names      []string // of classes; nil: they have none
	fields     []arrow.Field
	blockRows  int64 // most rows of a block
	rowIDBytes int64 // of a row, in original ids: a mean

	nodes   []uint32 // of a graph: the rows; nil: those of the regions
	origIDs []string // of these, if the graph has them

	buffer  *bufio.Writer
	writer  export.TableWriter
	written int64 // bytes

	region  int   // index of the current one
	done    int64 // rows of it that were written
	rows    int64 // of the block
	classes []int32
	values  [][]float32 // of each column
}

// predictionBlockBytes is the size that blocks are to have in memory, about.
const predictionBlockBytes = 8 << 20

// newPredictionTable is a table of the predictions of a part of a store's rows.
func newPredictionTable(c *checkpoint.Checkpoint, store *format.Dir, rows string) *predictionTable {
	t := &predictionTable{}
	for _, r := range store.Layout().Regions {
		if r.Rows > 0 && (rows == allRows || rows == r.Name) {
			t.regions, t.totalRows = append(t.regions, r), t.totalRows+r.Rows
		}
	}
	t.describe(c, store)
	return t
}

// newNodeTable is a table of the predictions of nodes of a graph, in ascending order.
func newNodeTable(ctx context.Context, c *checkpoint.Checkpoint, graph *format.Dir, nodes []uint32) (*predictionTable, error) {
	rows := int64(len(nodes))
	t := &predictionTable{nodes: nodes, totalRows: rows, regions: []format.Region{{Rows: rows}}}
	t.describe(c, graph)
	if !graph.Manifest.OrigIDs {
		return t, nil
	}
	err := graph.VisitRows(ctx, func(table *format.RowTable, first int64) {
		for at := len(t.origIDs); at < len(nodes) && int64(nodes[at]) < first+table.Rows; at++ {
			t.origIDs = append(t.origIDs, strings.Clone(table.OrigID[int64(nodes[at])-first]))
		}
	})
	return t, err
}

// describe sets the columns of the table, and the size of its blocks.
func (t *predictionTable) describe(c *checkpoint.Checkpoint, store *format.Dir) {
	outputs := c.Outputs()
	t.store, t.outputs, t.columns = store, outputs, c.Spec.Classes
	if len(c.Data.ClassNames) == t.columns {
		t.names = c.Data.ClassNames
	}
	add := func(name string, of arrow.DataType) { t.fields = append(t.fields, arrow.Field{Name: name, Type: of}) }
	add("node_id", arrow.PrimitiveTypes.Uint32)
	if m := &store.Manifest; m.OrigIDs {
		add("orig_id", arrow.BinaryTypes.LargeString)
		t.rowIDBytes = rowTableFileBytes(m)/max(m.Rows, 1) + 1
	}
	switch {
	case outputs == trainer.ClassOutputs && t.names != nil:
		add("class", arrow.BinaryTypes.LargeString)
	case outputs == trainer.ClassOutputs:
		add("class", arrow.PrimitiveTypes.Int32)
	}
	for i := range t.columns {
		name := fmt.Sprintf("p_%d", i)
		switch {
		case outputs == trainer.ValueOutputs && t.columns == 1:
			name = "value"
		case outputs == trainer.ValueOutputs:
			name = fmt.Sprintf("value_%d", i)
		case t.names != nil:
			name = "p_" + t.names[i]
		}
		add(name, arrow.PrimitiveTypes.Float32)
	}
	chunkRows := int64(store.Layout().ChunkRows)
	t.blockRows = max(predictionBlockBytes/(t.rowBytes()*chunkRows), 1) * chunkRows
}

// rowTableFileBytes is the size of the row table of a store on disk.
func rowTableFileBytes(m *format.Manifest) (bytes int64) {
	for _, f := range m.Files {
		if strings.HasPrefix(f.Path, "rows/") {
			bytes += f.Size
		}
	}
	return bytes
}

func (t *predictionTable) columnNames() (names []string) {
	for _, f := range t.fields {
		names = append(names, f.Name)
	}
	return names
}

// className is the longest text of a class.
func (t *predictionTable) className() (longest int64) {
	for _, name := range t.names {
		longest = max(longest, int64(len(name)))
	}
	return longest
}

// rowBytes is about the most that a row takes in memory, or in a binary file.
func (t *predictionTable) rowBytes() int64 {
	return 4*int64(t.columns) + 4 + 4 + 2*8 + t.className() + t.rowIDBytes
}

// memoryBytes is the memory for a block, with its copies on the way to the file and texts that the
// collector has yet to free.
func (t *predictionTable) memoryBytes() int64 {
	return 2*(t.blockRows*t.rowBytes()+predictionBlockBytes) + t.blockRows*t.rowIDBytes
}

func isCSV(path string) bool { return strings.EqualFold(filepath.Ext(path), ".csv") }

// escapeNames makes one line of each name of a class, for a table that is text.
func (t *predictionTable) escapeNames() {
	t.names, t.fields = slices.Clone(t.names), slices.Clone(t.fields)
	for i, name := range t.names {
		t.names[i] = units.Printable(name)
	}
	for i, f := range t.fields {
		t.fields[i].Name = units.Printable(f.Name)
	}
}

// checkSpace returns an error if the disk has too little space for the file.
func (t *predictionTable) checkSpace(fs vfs.FS, path string) error {
	row := t.rowBytes()
	if isCSV(path) {
		row = 11 + t.rowIDBytes + t.className() + 12 + 15*int64(t.columns) // of digits, signs and commas
	}
	needed := t.totalRows*row + 64<<10
	free, err := fs.FreeBytes(filepath.Dir(path))
	if err == nil && needed > free {
		err = fmt.Errorf("%w: %s needs up to %v of disk space, and %v is free", machine.ErrDoesNotFit, path, units.Bytes(needed), units.Bytes(free))
	}
	return err
}

// open starts the file.
func (t *predictionTable) open(f vfs.PendingFile, path string) (err error) {
	rows := t.blockRows
	if t.outputs == trainer.ClassOutputs {
		t.classes = make([]int32, rows)
	}
	for range t.columns {
		t.values = append(t.values, make([]float32, rows))
	}
	if isCSV(path) {
		t.escapeNames()
	}
	t.buffer = bufio.NewWriterSize(countedWriter{f, &t.written}, 1<<20)
	t.writer, err = export.NewTableWriter(t.buffer, path, arrow.NewSchema(t.fields, nil))
	return err
}

// countedWriter counts what is written.
type countedWriter struct {
	vfs.PendingFile
	bytes *int64
}

func (w countedWriter) Write(p []byte) (int, error) {
	n, err := w.PendingFile.Write(p)
	*w.bytes += int64(n)
	return n, err
}

// add adds the predictions of the next rows, of one region.
func (t *predictionTable) add(ctx context.Context, found *trainer.Predictions) error {
	for at := 0; at < found.Rows; {
		room := min(t.blockRows, t.regions[t.region].Rows-t.done) - t.rows
		n := int(min(room, int64(found.Rows-at)))
		if t.classes != nil {
			copy(t.classes[t.rows:], found.Classes[at:at+n])
		}
		for j, column := range t.values {
			for i := range n {
				column[t.rows+int64(i)] = found.Values[(at+i)*t.columns+j]
			}
		}
		at, t.rows = at+n, t.rows+int64(n)
		if int64(n) == room {
			if err := t.writeBlock(ctx); err != nil {
				return err
			}
		}
	}
	return nil
}

// writeBlock writes the block, with the ids of its rows.
func (t *predictionTable) writeBlock(ctx context.Context) error {
	r := &t.regions[t.region]
	chunkRows := int64(t.store.Layout().ChunkRows)
	rows := format.Region{
		Name: r.Name, FirstRow: r.FirstRow + t.done, Rows: t.rows,
		FirstChunk: r.FirstChunk + int(t.done/chunkRows), Chunks: int((t.rows + chunkRows - 1) / chunkRows),
	}
	nodes, ids := make([]uint32, t.rows), []string(nil)
	if t.store.Manifest.OrigIDs {
		ids = make([]string, t.rows)
	}
	if t.nodes != nil {
		copy(nodes, t.nodes[t.done:])
		if ids != nil {
			copy(ids, t.origIDs[t.done:])
		}
	} else if err := t.store.ReadNodes(ctx, rows, nodes); err != nil {
		return err
	} else if ids != nil {
		if err := t.store.ReadOrigIDs(ctx, rows, ids); err != nil {
			return err
		}
	}
	buffers := [][]byte{dtype.BytesOf(nodes)}
	if ids != nil {
		buffers = append(buffers, textBuffers(t.rows, func(i int64) string { return ids[i] })...)
	}
	switch {
	case t.classes == nil:
	case t.names != nil:
		buffers = append(buffers, textBuffers(t.rows, func(i int64) string { return t.names[t.classes[i]] })...)
	default:
		buffers = append(buffers, dtype.BytesOf(t.classes[:t.rows]))
	}
	for _, column := range t.values {
		buffers = append(buffers, dtype.BytesOf(column[:t.rows]))
	}
	if err := t.writer.Batch(t.rows, buffers...); err != nil {
		return err
	}
	if t.done, t.rows = t.done+t.rows, 0; t.done == r.Rows {
		t.region, t.done = t.region+1, 0
	}
	return nil
}

// textBuffers are the buffers of a column of texts: offsets, and bytes.
func textBuffers(rows int64, text func(i int64) string) [][]byte {
	offsets, bytes := []int64{0}, []byte{}
	for i := range rows {
		bytes = append(bytes, text(i)...)
		offsets = append(offsets, int64(len(bytes)))
	}
	return [][]byte{dtype.BytesOf(offsets), bytes}
}

// close writes the rest of the file.
func (t *predictionTable) close() error {
	if err := t.writer.Close(); err != nil {
		return err
	}
	return t.buffer.Flush()
}
