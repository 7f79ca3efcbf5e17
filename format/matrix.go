package format

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"sync"

	"github.com/hopfeed/hopfeed/internal/arrowfile"
	"github.com/hopfeed/hopfeed/internal/kernel"
	"github.com/hopfeed/hopfeed/internal/vfs"
)

// Matrix is one stored feature matrix, open for reading by chunk.
type Matrix struct {
	ID     MatrixID
	Layout Layout

	dir   *Dir
	table *table

	mu     sync.Mutex
	files  []vfs.File // of parts, opened when first read
	closed bool
}

// Extent says where the bytes of a chunk of features are.
type Extent struct {
	File   string // path relative to the directory; absolute if features were left in a source file
	Chunk  int    // record batch within the file
	Offset int64  // a multiple of 4096, but not in a source file
	Length int64  // rows * features * element size
	CRC32C uint32
}

// Chunks is the number of chunks, over all regions.
func (m *Matrix) Chunks() int { return m.table.chunks }

// ChunkRowRange is the first row and the number of rows of chunk k.
func (m *Matrix) ChunkRowRange(k int) (first int64, rows int) { return m.Layout.chunk(k) }

// place is the part and the extent of chunk k.
func (m *Matrix) place(k int) (*part, arrowfile.Extent) {
	p := &m.table.parts[m.table.partOf(k)]
	return p, p.extents[k-p.firstChunk]
}

// Extent says where chunk k lies. The file goes on at least to the next multiple of 4096 after it, so that reads can
// be whole pages; a source file need not.
func (m *Matrix) Extent(k int) Extent {
	p, row := m.place(k)
	file := &m.dir.Manifest.Files[p.file]
	e := Extent{file.Path, k - p.firstChunk, row.Offset, row.Length, row.CRC32C}
	if file.Source != "" {
		e.File = file.source
	}
	return e
}

// CheckChunk compares the checksum of chunk k's bytes, read by other means than ReadChunk, with the index.
func (m *Matrix) CheckChunk(k int, data []byte) error {
	p, row := m.place(k)
	return m.dir.explainFile(p.file, checkData(m.dir.filePath(p.file), k-p.firstChunk, data, row.Length, row.CRC32C))
}

// CheckChecksum compares the checksum of all of chunk k's bytes with the index.
func (m *Matrix) CheckChecksum(k int, found uint32) error {
	p, row := m.place(k)
	return m.dir.explainFile(p.file, checkSum(m.dir.filePath(p.file), k-p.firstChunk, found, row.CRC32C))
}

func checkData(path string, chunk int, data []byte, length int64, crc uint32) error {
	if int64(len(data)) != length {
		return &CorruptError{path, chunk, fmt.Sprintf("it has %d bytes, want %d", len(data), length)}
	}
	return checkSum(path, chunk, kernel.CRC32C(0, data), crc)
}

func checkSum(path string, chunk int, found, crc uint32) error {
	if found != crc {
		return &CorruptError{path, chunk, fmt.Sprintf("its bytes have checksum %s, want %s", hex32(found), hex32(crc))}
	}
	return nil
}

// ReadChunk reads chunk k, row-major in the stored type, with one positioned read into dst, and checks it. len(dst)
// is the chunk's length in bytes.
func (m *Matrix) ReadChunk(k int, dst []byte) error {
	p, row := m.place(k)
	if int64(len(dst)) != row.Length {
		return fmt.Errorf("a buffer of %d bytes for chunk %d of %s, which has %d", len(dst), k, m.ID, row.Length)
	}
	f, err := m.file(m.table.partOf(k))
	if err != nil {
		return err
	}
	return m.dir.explainFile(p.file, readExtent(f, k-p.firstChunk, row, dst))
}

// RowReader reads rows of a matrix by number, and keeps the chunk that has the last of them. It belongs to one
// goroutine.
type RowReader struct {
	*Matrix
	first, end int64 // rows of the chunk
	data       []byte
}

// Row is row i, as stored, until the next call.
func (r *RowReader) Row(i int64) ([]byte, error) {
	size := r.Layout.rowBytes()
	if i < r.first || i >= r.end {
		k := r.Layout.chunkOf(i)
		first, rows := r.ChunkRowRange(k)
		if r.data == nil {
			r.data = vfs.AlignedBytes(int(r.Layout.chunkBytes()), vfs.PageBytes)
		}
		r.first, r.end = 0, 0
		if err := r.ReadChunk(k, r.data[:int64(rows)*size]); err != nil {
			return nil, err
		}
		r.first, r.end = first, first+int64(rows)
	}
	return r.data[(i-r.first)*size:][:size], nil
}

// ChunkOf is the chunk that holds a row.
func (m *Matrix) ChunkOf(row int64) int { return m.Layout.chunkOf(row) }

// file opens the file of part i, once.
func (m *Matrix) file(i int) (vfs.File, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.closed {
		return nil, fmt.Errorf("%s: %w", m.ID, fs.ErrClosed)
	}
	if m.files == nil {
		m.files = make([]vfs.File, len(m.table.parts))
	}
	if m.files[i] == nil {
		f, err := m.dir.openPart(&m.table.parts[i])
		if err != nil {
			return nil, err
		}
		m.files[i] = f
	}
	return m.files[i], nil
}

// readExtent reads an extent, which belongs to a chunk of its file, and checks it. What a network or a cache has
// damaged is read once more.
func readExtent(f vfs.File, chunk int, row arrowfile.Extent, dst []byte) error {
	for again := false; ; again = true {
		n, err := f.ReadAt(dst, row.Offset)
		if n < len(dst) {
			return cutOff(f.Path(), chunk, row.Offset+int64(n), err)
		}
		err = checkData(f.Path(), chunk, dst, row.Length, row.CRC32C)
		if err == nil || again || !vfs.Doubt(f, row.Offset, row.Length) {
			return err
		}
	}
}

// cutOff is the error of a read that ended before byte at.
func cutOff(path string, chunk int, at int64, err error) error {
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		return &CorruptError{path, chunk, fmt.Sprintf("the file ends at byte %d", at)}
	}
	return fmt.Errorf("%s: %w", path, err)
}

// Close closes the files that reading has opened. No read may be running.
func (m *Matrix) Close() error {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.closed = true
	var err error
	for _, f := range m.files {
		if f != nil {
			err = errors.Join(err, f.Close())
		}
	}
	m.files = nil
	return err
}

// MatrixBytes is the size in bytes of all files of a matrix with this layout.
func (l Layout) MatrixBytes(id MatrixID) (int64, error) {
	l = l.Of(id)
	t := matrixTable(MatrixFolder(id), l)
	head, err := t.fileBytes(0, 0)
	if err != nil {
		return 0, err
	}
	total, err := t.fileBytes(0, t.chunks)
	return total + int64(countParts(t.chunks, chunksPerPart(l.chunkBytes()))-1)*head, err
}

// Matrix starts to write one feature matrix.
func (w *Writer) Matrix(id MatrixID) (*MatrixWriter, error) {
	layout := w.layout.Of(id)
	if layout.Features == 0 {
		return nil, fmt.Errorf("%s: no features, hence no matrix %s", w.dir, id)
	}
	if err := checkOperatorName(id.Operator); err != nil {
		return nil, err
	}
	if isInput := id.Operator == FeaturesOperator; id.Hop < 0 || id.Hop > MaxHops || isInput != (id.Hop == 0) {
		return nil, fmt.Errorf("%s: there is no matrix %s", w.dir, id)
	}
	folder := MatrixFolder(id)
	if err := w.reserve(func() bool { return !w.started[id] && !w.finished[folder] }, func() {
		w.started[id] = true
	}); err != nil {
		return nil, fmt.Errorf("%s: %w", id, err)
	}
	t := matrixTable(MatrixFolder(id), layout)
	p, err := w.startTable(t, chunksPerPart(layout.chunkBytes()))
	if err != nil {
		return nil, err
	}
	return &MatrixWriter{id: id, layout: &layout, p: p}, nil
}

// MatrixWriter writes one matrix in row order.
type MatrixWriter struct {
	id     MatrixID
	layout *Layout
	p      *tableWriter
	left   int64 // bytes missing in the chunk being written
	err    error
}

// Write appends any number of whole rows, row-major, in the layout's element type.
func (m *MatrixWriter) Write(rows []byte) error {
	if m.err == nil {
		m.err = m.write(rows)
	}
	return m.err
}

func (m *MatrixWriter) write(rows []byte) error {
	if int64(len(rows))%m.layout.rowBytes() != 0 {
		return fmt.Errorf("%s: %d bytes are not a multiple of the %d bytes of a row", m.id, len(rows),
			m.layout.rowBytes())
	}
	for len(rows) > 0 {
		if m.left == 0 {
			if m.p.nextChunk == m.p.table.chunks {
				return fmt.Errorf("%s: more rows were written than the %d of the layout", m.id, m.layout.rows())
			}
			_, n := m.layout.chunk(m.p.nextChunk)
			m.left = int64(n) * m.layout.rowBytes()
			if err := m.p.beginChunk(int64(n), m.left); err != nil {
				return err
			}
		}
		n := min(int64(len(rows)), m.left)
		if _, err := m.p.out.Write(rows[:n]); err != nil {
			return err
		}
		rows, m.left = rows[n:], m.left-n
		if m.left == 0 {
			if err := m.p.out.End(); err != nil {
				return err
			}
		}
	}
	return nil
}

// checkAll fails if rows are missing.
func (m *MatrixWriter) checkAll() error {
	if m.left > 0 || m.p.nextChunk < m.p.table.chunks {
		return fmt.Errorf("%s: rows are missing: %d of %d chunks were begun, and the last lacks %d bytes", m.id,
			m.p.nextChunk, m.p.table.chunks, m.left)
	}
	return nil
}

// Close finishes the matrix. It fails if rows are missing.
func (m *MatrixWriter) Close() error {
	if m.err != nil {
		return m.err
	}
	if err := m.checkAll(); err != nil {
		return err
	}
	m.err = m.p.close()
	if m.err == nil {
		m.err = fmt.Errorf("%s: %w", m.id, fs.ErrClosed)
		return nil
	}
	return m.err
}
