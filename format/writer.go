package format

import (
	"github.com/hopfeed/hopfeed/internal/vfs"
)

// CreateOptions govern how a directory is started.
type CreateOptions struct {
	// Force replaces a complete directory of Hopfeed's. Anything else that is in
	// the way is refused with or without it; what an interrupted job left is
	// always replaced.
	Force bool
}

// Writer builds a directory. Its matrices may be written by one goroutine each.
type Writer struct{}

// Create starts a directory and locks it against other jobs. Readers see
// nothing of it before Publish.
func Create(fsys vfs.FS, dir string, layout Layout, o CreateOptions) (*Writer, error) {
	return nil, errUnbuilt
}

// Topology writes topology/ and, where there are weights, weights/.
func (w *Writer) Topology(c *CSC) error { return errUnbuilt }

// Rows writes rows/ (with NodeID) or nodes/ (without).
func (w *Writer) Rows(t *RowTable) error { return errUnbuilt }

// Matrix starts one feature matrix.
func (w *Writer) Matrix(id MatrixID) (*MatrixWriter, error) { return nil, errUnbuilt }

// Publish writes index and manifest, which makes the directory visible. It fills
// in what the writer knows: Format, Tool, layout, Files and checksums.
func (w *Writer) Publish(m *Manifest) error { return errUnbuilt }

// Abort removes everything that was written. After Publish it does nothing.
func (w *Writer) Abort() error { return nil }

// MatrixWriter writes one matrix in row order.
type MatrixWriter struct{}

// Write appends whole rows, in the layout's type, row-major; any number of them
// at a time.
func (m *MatrixWriter) Write(rows []byte) error { return errUnbuilt }

// Close finishes the matrix, and fails if rows are missing.
func (m *MatrixWriter) Close() error { return errUnbuilt }
