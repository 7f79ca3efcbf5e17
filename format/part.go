package format

import (
	"fmt"
	"io"
	"path/filepath"

	"github.com/hopfeed/hopfeed/internal/arrowfile"
	"github.com/hopfeed/hopfeed/internal/vfs"
)

// partBytes is the largest size of a part, in bytes. Tests make it small.
var partBytes = int64(4 << 30)

// chunksPerPart is the number of chunks in each part but the last, if a chunk has at most
// chunkBytes bytes of data.
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
		return fmt.Errorf("%s would be %d files of %d bytes, more than the %d that a table can have", folder, n, partBytes, MaxParts)
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
	file         *vfs.Stream
	out          *arrowfile.Writer
}

// startTable starts the first part of a table.
func (w *Writer) startTable(t table, chunksPerPart int) (*tableWriter, error) {
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
	return p, p.startPart()
}

func (p *tableWriter) path() string { return PartPath(p.table.folder, p.part) }

func (p *tableWriter) startPart() (err error) {
	bytes, err := p.table.fileBytes(p.nextChunk, min(p.chunksPerPart, p.table.chunks-p.nextChunk))
	if err != nil {
		return err
	}
	if p.file, err = vfs.CreateStream(p.w.fsys, filepath.Join(p.w.outputDir, filepath.FromSlash(p.path())), bytes); err != nil {
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

// beginChunk starts a chunk, in a new part if the present one is full. The caller writes
// its bytes to out.
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
	if err := writeAll(p.out, buffers...); err != nil {
		return err
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
	p.files = append(p.files, writtenFile{FileEntry{Path: p.path(), Size: p.out.Size(), CRC32C: hex32(p.out.CRC32C())}, p.out.Extents()})
	return nil
}

// close completes the table.
func (p *tableWriter) close() error {
	if err := p.commitPart(); err != nil {
		return err
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
