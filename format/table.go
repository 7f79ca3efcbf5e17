package format

import (
	"fmt"
	"io"
	"path/filepath"
	"sort"

	"github.com/apache/arrow/go/v17/arrow"

	"github.com/hopfeed/hopfeed/internal/arrowfile"
	"github.com/hopfeed/hopfeed/internal/dtype"
	"github.com/hopfeed/hopfeed/internal/vfs"
)

// table is one Arrow table of a directory: the record batches of the parts in a folder, one after another. A chunk is
// a record batch.
type table struct {
	folder string
	schema *arrow.Schema
	chunks int
	// rows of chunk k, and lengths of its data buffers; the last of them is -1 where it depends on content.
	rows    func(k int) int64
	lengths func(rows int64) []int64
	parts   []part // of an open directory
}

// part is one file of a table.
type part struct {
	file         int // in Manifest.Files
	firstChunk   int
	extents      []arrowfile.Extent
	extentStarts []int // extents of chunk firstChunk+i are extents[extentStarts[i]:extentStarts[i+1]]
}

func (p *part) chunks() int { return len(p.extentStarts) - 1 }

// Names of columns, and the metadata that tells bfloat16 from uint16.
const (
	columnNeighbors = "neighbors"
	columnWeight    = "weight"
	columnNode      = "node"
	columnLabel     = "label"
	columnSplits    = "splits"
	columnOrigID    = "orig_id"
	columnFeatures  = "features"
	dtypeKey        = "hopfeed.dtype"
)

func newSchema(fields ...arrow.Field) *arrow.Schema { return arrow.NewSchema(fields, nil) }

// listOf is a fixed-size list without nulls, outside and inside.
func listOf(n int, t arrow.DataType) arrow.DataType {
	return arrow.FixedSizeListOfField(int32(n), arrow.Field{Name: "item", Type: t})
}

// tables lists the tables of a directory, without parts.
func (m *Manifest) tables() []table {
	var out []table
	l := m.layout()
	if m.Kind == KindGraph {
		out = append(out, topologyTable(m.Nodes, m.Edges))
		if m.Weighted {
			out = append(out, weightsTable(m.Edges))
		}
	}
	if c := m.rowColumns(); c != (rowColumns{}) {
		out = append(out, c.table(l))
	}
	for _, id := range m.matrices() {
		out = append(out, matrixTable(MatrixFolder(id), l.Of(id)))
	}
	for i := range m.Columns {
		c := &m.Columns[i]
		out = append(out, matrixTable(c.folder(), m.columnLayout(c)))
	}
	return out
}

// matrices lists the stored feature matrices.
func (m *Manifest) matrices() []MatrixID {
	var ids []MatrixID
	if m.Features > 0 {
		ids = append(ids, Input)
	}
	for _, o := range m.Operators {
		for r := 1; r <= o.Hops; r++ {
			ids = append(ids, MatrixID{o.Name, r})
		}
	}
	return ids
}

func topologyTable(nodes, edges int64) table {
	return table{
		folder: topologyFolder,
		schema: newSchema(arrow.Field{Name: columnNeighbors,
			Type: arrow.LargeListOfField(arrow.Field{Name: "item", Type: arrow.PrimitiveTypes.Uint32})}),
		chunks:  1,
		rows:    func(int) int64 { return nodes },
		lengths: func(int64) []int64 { return []int64{8 * (nodes + 1), 4 * edges} },
	}
}

// weightsTable has no record batch where there are no edges.
func weightsTable(edges int64) table {
	return table{
		folder:  weightsFolder,
		schema:  newSchema(arrow.Field{Name: columnWeight, Type: arrow.PrimitiveTypes.Float32}),
		chunks:  int(min(edges, 1)),
		rows:    func(int) int64 { return edges },
		lengths: func(rows int64) []int64 { return []int64{4 * rows} },
	}
}

// elementTypes are the types of elements in Arrow.
var elementTypes = map[DType]arrow.DataType{
	dtype.Float32: arrow.PrimitiveTypes.Float32, dtype.Float16: arrow.FixedWidthTypes.Float16,
	dtype.BFloat16: arrow.PrimitiveTypes.Uint16, dtype.Float64: arrow.PrimitiveTypes.Float64,
	dtype.Int8: arrow.PrimitiveTypes.Int8, dtype.Int16: arrow.PrimitiveTypes.Int16,
	dtype.Int32: arrow.PrimitiveTypes.Int32, dtype.Int64: arrow.PrimitiveTypes.Int64,
	dtype.Uint8: arrow.PrimitiveTypes.Uint8, dtype.Uint16: arrow.PrimitiveTypes.Uint16,
	dtype.Uint32: arrow.PrimitiveTypes.Uint32, dtype.Uint64: arrow.PrimitiveTypes.Uint64,
}

func matrixTable(folder string, l Layout) table {
	f := arrow.Field{Name: columnFeatures, Type: listOf(l.Features, elementTypes[l.DType])}
	if l.DType == BFloat16 {
		f.Metadata = arrow.NewMetadata([]string{dtypeKey}, []string{BFloat16.String()})
	}
	return table{
		folder:  folder,
		schema:  newSchema(f),
		chunks:  l.chunks(),
		rows:    l.chunkRows,
		lengths: func(rows int64) []int64 { return []int64{rows * l.rowBytes()} },
	}
}

// dataBytes is the length of the data of chunk k. If that depends on the content, n is the least possible length, and
// exact is false.
func (t *table) dataBytes(k int) (n int64, exact bool) {
	lengths := t.lengths(t.rows(k))
	last := len(lengths) - 1
	exact = lengths[last] >= 0
	lengths[last] = max(0, lengths[last])
	_, n = arrowfile.Place(lengths...)
	return n, exact
}

// buffers are the lengths of the data buffers of chunk k, of bytes in all, and their places in it.
func (t *table) buffers(k int, bytes int64) (lengths, at []int64) {
	lengths = t.lengths(t.rows(k))
	if last := len(lengths) - 1; lengths[last] < 0 {
		least, _ := t.dataBytes(k)
		lengths[last] = bytes - least
	}
	at, _ = arrowfile.Place(lengths...)
	return lengths, at
}

// partOf is the number of the part that holds chunk k.
func (t *table) partOf(k int) int {
	return sort.Search(len(t.parts), func(i int) bool { return t.parts[i].firstChunk > k }) - 1
}

// check fails if a layout cannot be stored. It returns the kind of directory that has such regions.
func (l *Layout) check() (kind string, err error) {
	if !l.DType.IsFloat() {
		return "", fmt.Errorf("features cannot have element type %q", l.DType)
	}
	if l.Features < 0 || l.Features > MaxFeatures {
		return "", fmt.Errorf("there are %d features, not from 0 to %d", l.Features, MaxFeatures)
	}
	for name, width := range l.Widths {
		if width < 1 || width > MaxFeatures {
			return "", fmt.Errorf("operator %q has matrices of %d columns, not from 1 to %d", name, width, MaxFeatures)
		}
	}
	if most := ChunkRowsFor(MaxChunkBytes, l.widest().Features, l.DType); l.ChunkRows < 1 || l.ChunkRows > most {
		return "", fmt.Errorf("a chunk has %d rows, not from 1 to %d", l.ChunkRows, most)
	}
	names := map[int][]string{1: {RegionAll}, 4: {RegionTrain, RegionValid, RegionTest, RegionRest}}[len(l.Regions)]
	if names == nil {
		return "", fmt.Errorf("there are %d regions, but a graph has 1 and a store 4", len(l.Regions))
	}
	sizes := make([]RegionSize, len(l.Regions))
	left := int64(MaxNodes)
	for i, r := range l.Regions {
		if r.Name != names[i] {
			return "", fmt.Errorf("region %d is %q, not %q", i, r.Name, names[i])
		}
		if r.Rows < 0 || r.Rows > left {
			return "", fmt.Errorf("region %s has %d rows, or all regions together too many", r.Name, r.Rows)
		}
		left -= r.Rows
		sizes[i] = RegionSize{r.Name, r.Rows}
	}
	for i, r := range Regions(sizes, l.ChunkRows) {
		if l.Regions[i] != r {
			return "", fmt.Errorf("region %s starts at row %d, chunk %d, with %d chunks; want %d, %d, %d",
				r.Name, l.Regions[i].FirstRow, l.Regions[i].FirstChunk, l.Regions[i].Chunks, r.FirstRow, r.FirstChunk,
				r.Chunks)
		}
	}
	if len(l.Regions) == 1 {
		return KindGraph, nil
	}
	return KindStore, nil
}

// chunkBytes is the number of bytes of a full chunk of a matrix.
func (l *Layout) chunkBytes() int64 { return int64(l.ChunkRows) * l.rowBytes() }

func (l *Layout) rowBytes() int64 { return int64(l.Features) * int64(l.DType.Size()) }

// rows and chunks count over all regions.
func (l *Layout) rows() int64 {
	last := l.Regions[len(l.Regions)-1]
	return last.FirstRow + last.Rows
}

func (l *Layout) chunks() int {
	last := l.Regions[len(l.Regions)-1]
	return last.FirstChunk + last.Chunks
}

// chunk is the first row and the number of rows of chunk k.
func (l *Layout) chunk(k int) (first int64, rows int) {
	for _, r := range l.Regions {
		if k < r.FirstChunk+r.Chunks {
			done := int64(k-r.FirstChunk) * int64(l.ChunkRows)
			return r.FirstRow + done, int(min(int64(l.ChunkRows), r.Rows-done))
		}
	}
	return l.rows(), 0
}

func (l *Layout) chunkRows(k int) int64 {
	_, rows := l.chunk(k)
	return int64(rows)
}

// chunkOf is the chunk that holds a row.
func (l *Layout) chunkOf(row int64) int {
	for _, r := range l.Regions {
		if row < r.FirstRow+r.Rows {
			return r.FirstChunk + int((row-r.FirstRow)/int64(l.ChunkRows))
		}
	}
	return l.chunks()
}

// partBytes is the largest size of a part, in bytes. Tests make it small.
var partBytes = int64(4 << 30)

// chunksPerPart is the number of chunks in each part but the last, if a chunk has at most chunkBytes bytes of data.
func chunksPerPart(chunkBytes int64) int {
	const ends = 4 * arrowfile.Align // schema, footer, and what comes with them
	pages := (chunkBytes + arrowfile.Align - 1) / arrowfile.Align
	return int(max(1, (partBytes-ends)/(arrowfile.Align*(1+pages)+arrowfile.BlockBytes)))
}

// countParts is the number of parts of a table, at least one.
func countParts(chunks, chunksPerPart int) int { return max(1, (chunks+chunksPerPart-1)/chunksPerPart) }

// checkPartCount fails if a table would have more than MaxParts parts.
func checkPartCount(folder string, chunks, chunksPerPart int) error {
	if n := countParts(chunks, chunksPerPart); n > MaxParts {
		return fmt.Errorf("%s would be %d files of %d bytes, more than the %d that a table can have", folder, n,
			partBytes, MaxParts)
	}
	return nil
}

// tableWriter writes the parts of a table, one after another.
type tableWriter struct {
	w             *Writer
	table         table
	chunksPerPart int

	files        []writtenFile
	nextChunk    int // chunk of the table
	chunksInPart int // chunks in the present part
	part         int
	file         *vfs.Stream // of the present part; nil: none, as adopted parts have all chunks
	out          *arrowfile.Writer
}

// startTable starts the first part of a table.
func (w *Writer) startTable(t table, chunksPerPart int) (*tableWriter, error) {
	p, err := w.newTable(t, chunksPerPart)
	if err != nil {
		return nil, err
	}
	return p, p.startPart()
}

// newTable is a table without parts.
func (w *Writer) newTable(t table, chunksPerPart int) (*tableWriter, error) {
	if err := checkPartCount(t.folder, t.chunks, chunksPerPart); err != nil {
		return nil, fmt.Errorf("%s: %w", w.dir, err)
	}
	if err := w.fsys.MkdirAll(filepath.Join(w.outputDir, filepath.FromSlash(t.folder))); err != nil {
		return nil, err
	}
	p := &tableWriter{w: w, table: t, chunksPerPart: chunksPerPart}
	w.mu.Lock()
	w.unfinished[p] = true
	w.mu.Unlock()
	return p, nil
}

func (p *tableWriter) path() string { return PartPath(p.table.folder, p.part) }

func (p *tableWriter) startPart() (err error) {
	bytes, err := p.table.fileBytes(p.nextChunk, min(p.chunksPerPart, p.table.chunks-p.nextChunk))
	if err != nil {
		return err
	}
	if p.file, err = vfs.CreateStream(p.w.fsys, filepath.Join(p.w.outputDir, filepath.FromSlash(p.path())),
		bytes); err != nil {
		return err
	}
	p.out, err = arrowfile.NewWriter(p.file, p.table.schema)
	return err
}

// fileBytes is the size of a part with some chunks. Where lengths depend on content, it is less.
func (t *table) fileBytes(first, chunks int) (int64, error) {
	empty, err := arrowfile.NewWriter(io.Discard, t.schema)
	if err == nil {
		err = empty.Close()
	}
	if err != nil {
		return 0, fmt.Errorf("%s: %w", t.folder, err)
	}
	total := empty.Size()
	for k := range chunks {
		data, _ := t.dataBytes(first + k)
		total += arrowfile.Align + arrowfile.BlockBytes + (data+arrowfile.Align-1)/arrowfile.Align*arrowfile.Align
	}
	return total, nil
}

// beginChunk starts a chunk, in a new part if the present one is full. The caller writes its bytes to out.
func (p *tableWriter) beginChunk(rows int64, lengths ...int64) error {
	if p.chunksInPart == p.chunksPerPart {
		if err := p.commitPart(); err != nil {
			return err
		}
		p.part, p.chunksInPart = p.part+1, 0
		if err := p.startPart(); err != nil {
			return err
		}
	}
	p.nextChunk, p.chunksInPart = p.nextChunk+1, p.chunksInPart+1
	return p.out.Begin(rows, lengths...)
}

// writeChunk writes a whole chunk.
func (p *tableWriter) writeChunk(rows int64, buffers ...[]byte) error {
	if err := p.beginChunk(rows, lengthsOf(buffers)...); err != nil {
		return err
	}
	for _, b := range buffers {
		if _, err := p.out.Write(b); err != nil {
			return err
		}
	}
	return p.out.End()
}

func lengthsOf(buffers [][]byte) []int64 {
	lengths := make([]int64, len(buffers))
	for i, b := range buffers {
		lengths[i] = int64(len(b))
	}
	return lengths
}

// commitPart completes the present part and makes it durable.
func (p *tableWriter) commitPart() error {
	if err := p.out.Close(); err != nil {
		return err
	}
	if err := p.file.Commit(); err != nil {
		return err
	}
	p.files = append(p.files, writtenFile{FileEntry{Path: p.path(), Size: p.out.Size(), CRC32C: hex32(p.out.CRC32C())},
		p.out.Extents()})
	return nil
}

// close completes the table.
func (p *tableWriter) close() error {
	if p.file != nil {
		if err := p.commitPart(); err != nil {
			return err
		}
	}
	if err := p.w.finish(p.table.folder, p.files); err != nil {
		return err
	}
	p.w.mu.Lock()
	defer p.w.mu.Unlock()
	delete(p.w.unfinished, p)
	return nil
}

// abort removes the part being written. The Writer removes the committed ones.
func (p *tableWriter) abort() error {
	if p.file == nil {
		return nil
	}
	return p.file.Abort()
}
