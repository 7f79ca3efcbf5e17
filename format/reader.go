package format

import (
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"slices"
	"sync"

	"github.com/hopfeed/hopfeed/internal/vfs"
)

// Dir is an open graph or store directory.
type Dir struct {
	Manifest Manifest

	fsys   vfs.FS
	path   string
	layout Layout
	tables map[string]*table // by folder

	mu   sync.Mutex
	open []*Matrix
}

// OpenGraph opens a graph directory.
func OpenGraph(fsys vfs.FS, dir string) (*Dir, error) { return openKind(fsys, dir, KindGraph) }

// OpenStore opens a hop store.
func OpenStore(fsys vfs.FS, dir string) (*Dir, error) { return openKind(fsys, dir, KindStore) }

// OpenAny opens a directory of either kind; Manifest.Kind tells which.
func OpenAny(fsys vfs.FS, dir string) (*Dir, error) { return openKind(fsys, dir, "") }

// openKind opens a directory of one kind, or of any.
func openKind(fsys vfs.FS, dir, kind string) (*Dir, error) {
	m, index, err := readVersion(fsys, dir)
	if m != nil && kind != "" && kind != m.Kind {
		return nil, fmt.Errorf("%s is a %s, not a %s", dir, m.Kind, kind)
	}
	if err != nil {
		return nil, err
	}
	for _, f := range m.Files {
		if err := checkSize(fsys, f.in(dir), f.Size); err != nil {
			return nil, f.explain(err)
		}
	}
	return newDir(fsys, dir, m, index)
}

// newDir puts a directory together.
func newDir(fsys vfs.FS, dir string, m *Manifest, index []indexRow) (*Dir, error) {
	tables, err := locate(m, index)
	if err != nil {
		return nil, &CorruptError{filepath.Join(dir, indexName), -1, err.Error()}
	}
	d := &Dir{Manifest: *m, fsys: fsys, path: dir, layout: m.layout(), tables: map[string]*table{}}
	for i := range tables {
		d.tables[tables[i].folder] = &tables[i]
	}
	return d, nil
}

// checkSize fails unless a file is there with its size.
func checkSize(fsys vfs.FS, path string, size int64) error {
	info, err := fsys.Stat(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return &CorruptError{path, -1, "the file is missing"}
	case err != nil:
		return err
	case !info.Mode().IsRegular():
		return &CorruptError{path, -1, "it is no regular file"}
	case info.Size() != size:
		return &CorruptError{path, -1, fmt.Sprintf("the file has %d bytes, want %d", info.Size(), size)}
	}
	return nil
}

// FS and Path are what the directory was opened with.
func (d *Dir) FS() vfs.FS   { return d.fsys }
func (d *Dir) Path() string { return d.path }

// Layout is how its rows are cut.
func (d *Dir) Layout() Layout { return d.layout }

// Region finds a region by name; ok is false where there is none.
func (d *Dir) Region(name string) (r Region, ok bool) {
	for _, r := range d.layout.Regions {
		if r.Name == name {
			return r, true
		}
	}
	return r, false
}

// Matrices lists the stored feature matrices: Input first, then by operator as
// in the manifest, then by hop.
func (d *Dir) Matrices() []MatrixID { return d.Manifest.matrices() }

// Matrix opens one of them.
func (d *Dir) Matrix(id MatrixID) (*Matrix, error) {
	if !slices.Contains(d.Matrices(), id) {
		return nil, fmt.Errorf("%s has no matrix %s (it has %v)", d.path, id, d.Matrices())
	}
	m := &Matrix{ID: id, Layout: d.layout, dir: d, table: d.table(matrixFolder(id))}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.open = append(d.open, m)
	return m, nil
}

// Close closes the matrices that are open.
func (d *Dir) Close() error {
	d.mu.Lock()
	defer d.mu.Unlock()
	var err error
	for _, m := range d.open {
		err = errors.Join(err, m.Close())
	}
	d.open = nil
	return err
}

// table finds a table by its folder; nil where there is none.
func (d *Dir) table(folder string) *table { return d.tables[folder] }

// filePath is the path of a file of the manifest.
func (d *Dir) filePath(file int) string { return d.Manifest.Files[file].in(d.path) }

// openPart opens the file of a part.
func (d *Dir) openPart(p *part) (vfs.File, error) {
	path := d.filePath(p.file)
	f, err := d.fsys.Open(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, d.Manifest.Files[p.file].explain(&CorruptError{path, -1, "the file is missing"})
	}
	return f, err
}
