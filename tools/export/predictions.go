package export

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
	"github.com/hopfeed/hopfeed/loader"
	"github.com/hopfeed/hopfeed/trainer"
)

// Predictions is a table of what a model predicts for rows of a store, in stored order, or for nodes of a graph,
// ascending. Its columns, none with nulls: node_id; orig_id, if the input has it; class, and p_NAME or p_NUMBER for
// each class or label; or, for a regression, value or value_NUMBER.
//
// It holds a block of rows, whole chunks of the store. So its memory does not depend on the number of rows, nor the
// file on batches.
type Predictions struct {
	Rows    int64
	Columns []string // names
	Parts   []PredictedPart
	Outputs trainer.Outputs

	input      *format.Dir
	nodes      []uint32 // of a graph; nil: the rows of the regions
	origIDs    []string // of nodes, if the graph has them
	outputs    int      // numbers of a row
	names      []string // of classes; nil: they have none
	fields     []arrow.Field
	blockRows  int64 // most rows of a block
	rowIDBytes int64 // of a row, in original ids: a mean

	writer  TableWriter
	part    int   // index of the current one
	done    int64 // rows of it that were written
	rows    int64 // of the block
	classes []int32
	values  [][]float32 // of each column
}

// PredictedPart is rows that are predicted one after another: a region of a store, or nodes.
type PredictedPart struct {
	Name   string
	Rows   loader.Rows
	region format.Region // of nodes, but for a number of rows, zero
}

// predictionBlockBytes is about the size of a block in memory.
const predictionBlockBytes = 8 << 20

// PredictStore is a table of predictions for the regions of a store that have this name, or all.
func PredictStore(model *trainer.Trained, classNames []string, store *format.Dir, region string) *Predictions {
	t := &Predictions{}
	for _, r := range store.Layout().Regions {
		if r.Rows > 0 && (region == format.RegionAll || region == r.Name) {
			t.Parts = append(t.Parts, PredictedPart{r.Name + " rows", loader.Rows{Region: r.Name}, r})
			t.Rows += r.Rows
		}
	}
	t.describe(model, classNames, store)
	return t
}

// PredictNodes is a table of predictions for nodes of a graph, which ascend.
func PredictNodes(ctx context.Context, model *trainer.Trained, classNames []string, graph *format.Dir,
	nodes []uint32) (*Predictions, error) {
	rows := int64(len(nodes))
	part := PredictedPart{"nodes", loader.Rows{List: nodes}, format.Region{Rows: rows}}
	t := &Predictions{nodes: nodes, Rows: rows, Parts: []PredictedPart{part}}
	t.describe(model, classNames, graph)
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

func (t *Predictions) describe(model *trainer.Trained, classNames []string, input *format.Dir) {
	t.input, t.Outputs, t.outputs = input, model.Outputs(), model.Spec.Classes
	if len(classNames) == t.outputs {
		t.names = classNames
	}
	add := func(name string, of arrow.DataType) {
		t.fields, t.Columns = append(t.fields, arrow.Field{Name: name, Type: of}), append(t.Columns, name)
	}
	add("node_id", arrow.PrimitiveTypes.Uint32)
	if m := &input.Manifest; m.OrigIDs {
		add("orig_id", arrow.BinaryTypes.LargeString)
		for _, f := range m.Files {
			if strings.HasPrefix(f.Path, "rows/") {
				t.rowIDBytes += f.Size
			}
		}
		t.rowIDBytes = t.rowIDBytes/max(m.Rows, 1) + 1
	}
	switch {
	case t.Outputs == trainer.ClassOutputs && t.names != nil:
		add("class", arrow.BinaryTypes.LargeString)
	case t.Outputs == trainer.ClassOutputs:
		add("class", arrow.PrimitiveTypes.Int32)
	}
	for i := range t.outputs {
		name := fmt.Sprintf("p_%d", i)
		switch {
		case t.Outputs == trainer.ValueOutputs && t.outputs == 1:
			name = "value"
		case t.Outputs == trainer.ValueOutputs:
			name = fmt.Sprintf("value_%d", i)
		case t.names != nil:
			name = "p_" + t.names[i]
		}
		add(name, arrow.PrimitiveTypes.Float32)
	}
	chunkRows := int64(input.Layout().ChunkRows)
	t.blockRows = max(predictionBlockBytes/(t.rowBytes()*chunkRows), 1) * chunkRows
}

func (t *Predictions) longestName() (longest int64) {
	for _, name := range t.names {
		longest = max(longest, int64(len(name)))
	}
	return longest
}

// rowBytes is about the most that a row takes in memory, or in a binary file.
func (t *Predictions) rowBytes() int64 {
	return 4*int64(t.outputs) + 4 + 4 + 2*8 + t.longestName() + t.rowIDBytes
}

// MemoryBytes is the host memory of a block, of its copies on the way to the file, and of texts that the collector has
// yet to free.
func (t *Predictions) MemoryBytes() int64 {
	return 2*(t.blockRows*t.rowBytes()+predictionBlockBytes) + t.blockRows*t.rowIDBytes
}

func isCSV(path string) bool { return strings.EqualFold(filepath.Ext(path), ".csv") }

// CheckSpace returns machine.ErrDoesNotFit if the disk has too little space for the file.
func (t *Predictions) CheckSpace(fsys vfs.FS, path string) error {
	row := t.rowBytes()
	if isCSV(path) {
		row = 11 + t.rowIDBytes + t.longestName() + 12 + 15*int64(t.outputs) // digits, signs and commas
	}
	return machine.CheckSpace(fsys, path, t.Rows*row+64<<10)
}

// Write writes the file, in the format of its suffix, and returns its size. predict calls its argument with the
// predictions of all rows, in order; see trainer.Predict. After an error there is no file.
func (t *Predictions) Write(ctx context.Context, fsys vfs.FS, path string,
	predict func(add func(*trainer.Predictions) error) error) (bytes int64, err error) {
	if t.Outputs == trainer.ClassOutputs {
		t.classes = make([]int32, t.blockRows)
	}
	for range t.outputs {
		t.values = append(t.values, make([]float32, t.blockRows))
	}
	if isCSV(path) {
		t.escapeNames()
	}
	f, err := fsys.Create(path)
	if err != nil {
		return 0, err
	}
	defer f.Abort()
	buffer := bufio.NewWriterSize(f, 1<<20)
	if t.writer, err = NewTableWriter(buffer, path, arrow.NewSchema(t.fields, nil)); err != nil {
		return 0, err
	}
	err = predict(func(found *trainer.Predictions) error { return t.add(ctx, found) })
	if err == nil {
		err = t.writer.Close()
	}
	if err == nil {
		err = buffer.Flush()
	}
	if err != nil {
		return 0, err
	}
	info, err := fsys.Stat(path + vfs.TempSuffix)
	if err != nil {
		return 0, err
	}
	return info.Size(), f.Commit()
}

// escapeNames makes one line of each name of a class, for a table that is text. Where that changes a name, backslashes
// are doubled in all, so that different names stay different.
func (t *Predictions) escapeNames() {
	isPlain := func(name string) bool { return units.Printable(name) == name }
	if !slices.ContainsFunc(t.names, func(name string) bool { return !isPlain(name) }) {
		return
	}
	escape := func(name string) string { return units.Printable(strings.ReplaceAll(name, `\`, `\\`)) }
	t.names, t.fields = slices.Clone(t.names), slices.Clone(t.fields)
	for i, name := range t.names {
		t.names[i] = escape(name)
	}
	for i, f := range t.fields {
		t.fields[i].Name = escape(f.Name)
	}
}

// add adds the predictions of the next rows, all of one part.
func (t *Predictions) add(ctx context.Context, found *trainer.Predictions) error {
	for at := 0; at < found.Rows; {
		room := min(t.blockRows, t.Parts[t.part].region.Rows-t.done) - t.rows
		n := int(min(room, int64(found.Rows-at)))
		if t.classes != nil {
			copy(t.classes[t.rows:], found.Classes[at:at+n])
		}
		for j, column := range t.values {
			for i := range n {
				column[t.rows+int64(i)] = found.Values[(at+i)*t.outputs+j]
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
func (t *Predictions) writeBlock(ctx context.Context) error {
	nodes, ids, err := t.blockIDs(ctx)
	if err != nil {
		return err
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
	if t.done, t.rows = t.done+t.rows, 0; t.done == t.Parts[t.part].region.Rows {
		t.part, t.done = t.part+1, 0
	}
	return nil
}

// blockIDs returns nodes and, if the input has them, original ids of the rows of the block.
func (t *Predictions) blockIDs(ctx context.Context) (nodes []uint32, ids []string, err error) {
	if t.nodes != nil {
		if t.origIDs != nil {
			ids = t.origIDs[t.done:][:t.rows]
		}
		return t.nodes[t.done:][:t.rows], ids, nil
	}
	r, chunkRows := &t.Parts[t.part].region, int64(t.input.Layout().ChunkRows)
	rows := format.Region{
		Name: r.Name, FirstRow: r.FirstRow + t.done, Rows: t.rows,
		FirstChunk: r.FirstChunk + int(t.done/chunkRows), Chunks: int((t.rows + chunkRows - 1) / chunkRows),
	}
	table := &format.RowTable{NodeID: make([]uint32, t.rows)}
	if t.input.Manifest.OrigIDs {
		table.OrigID = make([]string, t.rows)
	}
	err = t.input.ReadColumns(ctx, rows, table)
	return table.NodeID, table.OrigID, err
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
