package format

import (
	"bufio"
	"path/filepath"

	"github.com/hopfeed/hopfeed/internal/arrowfile"
	"github.com/hopfeed/hopfeed/internal/vfs"
)

// partBytes is the most that a part can have. Tests make it small.
var partBytes = int64(4 << 30)

// writeBytes is the least that goes to a file at a time. Chunks are mostly longer,
// and then not copied; what is between them is a page.
const writeBytes = 64 << 10

// perPart is the number of chunks in each part but the last, where the data of
// a chunk have chunkBytes at most.
func perPart(chunkBytes int64) int {
	const ends = 4 * arrowfile.Align // schema, footer, and what comes with them
	pages := (chunkBytes + arrowfile.Align - 1) / arrowfile.Align
	return int(max(1, (partBytes-ends)/(arrowfile.Align*(1+pages)+arrowfile.BlockBytes)))
}

// partWriter writes the parts of a table, one after another.
type partWriter struct {
	w       *Writer
	table   table
	perPart int

	files   []writtenFile
	next    int // chunk of the table
	inPart  int // chunks in the present part
	part    int
	pending vfs.PendingFile
	buffer  *bufio.Writer
	out     *arrowfile.Writer
}

// parts starts the files of a table.
func (w *Writer) parts(t table, perPart int) (*partWriter, error) {
	if err := w.fsys.MkdirAll(filepath.Join(w.dir, filepath.FromSlash(t.folder))); err != nil {
		return nil, err
	}
	p := &partWriter{w: w, table: t, perPart: perPart}
	w.mu.Lock()
	w.open[p] = true
	w.mu.Unlock()
	return p, p.start()
}

func (p *partWriter) path() string { return partPath(p.table.folder, p.part) }

func (p *partWriter) start() (err error) {
	if p.pending, err = p.w.fsys.Create(filepath.Join(p.w.dir, filepath.FromSlash(p.path()))); err != nil {
		return err
	}
	p.buffer = bufio.NewWriterSize(p.pending, writeBytes)
	p.out, err = arrowfile.NewWriter(p.buffer, p.table.schema)
	return err
}

// begin starts a chunk whose bytes are then written to out.
func (p *partWriter) begin(rows int64, lengths ...int64) error {
	if p.inPart == p.perPart {
		if err := p.commit(); err != nil {
			return err
		}
		p.part, p.inPart = p.part+1, 0
		if err := p.start(); err != nil {
			return err
		}
	}
	p.next, p.inPart = p.next+1, p.inPart+1
	minBody := p.table.minBody
	if p.inPart == p.perPart || p.next == p.table.chunks {
		minBody = 0
	}
	return p.out.Begin(rows, minBody, lengths...)
}

// chunk writes a whole chunk.
func (p *partWriter) chunk(rows int64, buffers ...[]byte) error {
	if err := p.begin(rows, lengthsOf(buffers)...); err != nil {
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

// commit finishes the present part.
func (p *partWriter) commit() error {
	if err := p.out.Close(); err != nil {
		return err
	}
	if err := p.buffer.Flush(); err != nil {
		return err
	}
	if err := p.pending.Commit(); err != nil {
		return err
	}
	p.files = append(p.files, writtenFile{FileEntry{Path: p.path(), Size: p.out.Size(), CRC32C: hex32(p.out.CRC32C())}, p.out.Extents()})
	return nil
}

// close finishes the table.
func (p *partWriter) close() error {
	if err := p.commit(); err != nil {
		return err
	}
	if err := p.w.finish(p.table.folder, p.files); err != nil {
		return err
	}
	p.w.mu.Lock()
	defer p.w.mu.Unlock()
	delete(p.w.open, p)
	return nil
}

// abort gives the present part up. The committed ones are the Writer's.
func (p *partWriter) abort() error {
	if p.pending == nil {
		return nil
	}
	return p.pending.Abort()
}
