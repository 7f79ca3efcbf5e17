package format

import (
	"context"
	"errors"

	"github.com/hopfeed/hopfeed/internal/vfs"
)

var errUnbuilt = errors.New("being built")

// Dir is an open graph or store directory.
type Dir struct {
	Manifest Manifest
}

// OpenGraph opens a graph directory.
func OpenGraph(fsys vfs.FS, dir string) (*Dir, error) { return nil, errUnbuilt }

// OpenStore opens a hop store.
func OpenStore(fsys vfs.FS, dir string) (*Dir, error) { return nil, errUnbuilt }

// OpenAny opens a directory of either kind; Manifest.Kind tells which.
func OpenAny(fsys vfs.FS, dir string) (*Dir, error) { return nil, errUnbuilt }

// FS and Path are what the directory was opened with.
func (d *Dir) FS() vfs.FS   { return nil }
func (d *Dir) Path() string { return "" }

// Layout is how its rows are cut.
func (d *Dir) Layout() Layout { return Layout{} }

// Region finds a region by name; ok is false where there is none.
func (d *Dir) Region(name string) (r Region, ok bool) { return r, false }

// Matrices lists the stored feature matrices: Input first, then by operator as
// in the manifest, then by hop.
func (d *Dir) Matrices() []MatrixID { return nil }

// Matrix opens one of them.
func (d *Dir) Matrix(id MatrixID) (*Matrix, error) { return nil, errUnbuilt }

// Topology reads and checks the topology (and weights) of a graph into memory
// off the Go heap; the caller closes it.
func (d *Dir) Topology(ctx context.Context, threads int) (*CSC, error) { return nil, errUnbuilt }

// Rows reads the row table, whole.
func (d *Dir) Rows(ctx context.Context) (*RowTable, error) { return nil, errUnbuilt }

// Close releases what is open.
func (d *Dir) Close() error { return nil }

// Matrix is one stored feature matrix, open for reading by chunk.
type Matrix struct {
	ID     MatrixID
	Layout Layout
}

// Extent is where the bytes of a chunk are.
type Extent struct {
	File   string // path relative to the directory
	Chunk  int    // record batch within the file
	Offset int64  // a multiple of 4096
	Length int64  // rows * features * element size
	CRC32C uint32
}

// Chunks is the number of chunks, over all regions.
func (m *Matrix) Chunks() int { return 0 }

// ChunkRowRange is the first row and the number of rows of chunk k.
func (m *Matrix) ChunkRowRange(k int) (first int64, rows int) { return 0, 0 }

// Extent is where chunk k lies.
func (m *Matrix) Extent(k int) Extent { return Extent{} }

// CheckChunk compares the checksum of chunk k's bytes, read by other means than
// ReadChunk, with the index.
func (m *Matrix) CheckChunk(k int, data []byte) error { return errUnbuilt }

// ReadChunk reads chunk k, row-major in the stored type, with one positioned
// read into dst, and checks it. len(dst) is the chunk's length in bytes.
func (m *Matrix) ReadChunk(k int, dst []byte) error { return errUnbuilt }

// Close closes the files that reading has opened.
func (m *Matrix) Close() error { return nil }
