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
	// Typed is the typed graph whose target's nodes these are, and TypedPath its folder, if OpenTarget has opened them;
	// the Manifest has then its name, its fingerprint and the number of its edges.
	Typed     *Typed
	TypedPath string

	fsys   vfs.FS
	path   string
	layout Layout
	tables map[string]*table // by folder
	shared sharing

	mu   sync.Mutex
	open []*Matrix
}

// OpenRelation opens a relation of a typed graph (Typed): a graph directory whose edges may come from nodes of another
// type. The other functions refuse such a directory, so that no reader takes sources for nodes.
func OpenRelation(fsys vfs.FS, dir string) (*Dir, error) { return openKind(fsys, dir, kindRelation) }

// kindRelation is what OpenRelation asks openKind for: KindGraph, with Manifest.SourceNodes or without.
const kindRelation = "relation"

// OpenGraph opens a graph directory.
func OpenGraph(fsys vfs.FS, dir string) (*Dir, error) { return openKind(fsys, dir, KindGraph) }

// Open opens a graph or hop store on disk; Manifest.Kind tells which.
func Open(dir string) (*Dir, error) { return OpenAny(vfs.OS(), dir) }

// OpenStore opens a hop store.
func OpenStore(fsys vfs.FS, dir string) (*Dir, error) { return openKind(fsys, dir, KindStore) }

// OpenAny opens a directory of either kind; Manifest.Kind tells which.
func OpenAny(fsys vfs.FS, dir string) (*Dir, error) { return openKind(fsys, dir, "") }

// openKind opens a directory of one kind, or of any ("" as kind). Another job may replace the directory while
// manifest, index and files are read, so damage is reported only if the manifest is still the same afterwards.
func openKind(fsys vfs.FS, dir, kind string) (*Dir, error) {
	for {
		d, m, err := openVersion(fsys, dir, kind)
		if !errors.Is(err, ErrCorrupt) || m == nil {
			return d, err
		}
		if now, again := readManifest(fsys, dir); again != nil || now.CRC32C == m.CRC32C {
			return nil, m.withRemedy(dir, err)
		}
	}
}

// openVersion opens a directory once, and returns the manifest that it read too.
func openVersion(fsys vfs.FS, dir, kind string) (*Dir, *Manifest, error) {
	m, index, err := readVersion(fsys, dir)
	switch {
	case kind == kindRelation:
		kind = KindGraph
	case m != nil && m.SourceNodes > 0:
		return nil, m, fmt.Errorf("%w: %s is a relation between two types of nodes: give the typed graph that it is a "+
			"part of", ErrKind, dir)
	}
	if m != nil && kind != "" && kind != m.Kind {
		is := "a hop store: give the graph that it was made from"
		if kind == KindStore {
			is = "a graph: give a hop store, which hopfeed propagate makes from it"
		}
		return nil, m, fmt.Errorf("%w: %s is %s", ErrKind, dir, is)
	}
	if err != nil {
		return nil, m, err
	}
	for _, f := range m.Files {
		if err := checkSize(fsys, f.location(dir), f.Size); err != nil {
			return nil, m, f.withSourceHint(err)
		}
	}
	d, err := newDir(fsys, dir, m, index)
	return d, m, err
}

// explainFile is explain for an error of one file of the manifest.
func (d *Dir) explainFile(file int, err error) error {
	return d.explain(d.Manifest.Files[file].withSourceHint(err))
}

// explain tells the user what to do about an error of reading: where the directory was replaced since it was opened,
// it is ErrReplaced; damage gets the remedy.
func (d *Dir) explain(err error) error {
	if !errors.Is(err, ErrCorrupt) && !errors.Is(err, fs.ErrNotExist) || errors.Is(err, ErrReplaced) {
		return err
	}
	if now, again := readManifest(d.fsys, d.path); again == nil && now.CRC32C != d.Manifest.CRC32C {
		return fmt.Errorf("%s: %w", d.path, ErrReplaced)
	}
	return d.Manifest.withRemedy(d.path, err)
}

// listRemedy says what to do about a damaged manifest or index.
const listRemedy = "it cannot be repaired: put back a copy, or import or propagate again with --force"

// remedy is what a user can do about damage to a part or the index of the directory dir, given by path. It is "" for
// other files: their damage names its own remedy.
func (m *Manifest) remedy(dir, path string) string {
	if path == filepath.Join(dir, indexName) || path == filepath.Join(dir, manifestName) {
		return listRemedy
	}
	isPart := func(f FileEntry) bool { return f.Source == "" && f.location(dir) == path }
	if !slices.ContainsFunc(m.Files, isPart) {
		return ""
	}
	if m.Kind == KindStore {
		return "hopfeed repair STORE --graph GRAPH computes what is damaged again; if it cannot, propagate again " +
			"with --force"
	}
	return "put back a copy of the graph, or import it again with --force"
}

// remediedError is damage with a remedy for the user.
type remediedError struct {
	error
	remedy string
}

func (e *remediedError) Error() string { return e.error.Error() + " (" + e.remedy + ")" }
func (e *remediedError) Unwrap() error { return e.error }

// withRemedy adds the remedy to damage of a part or the index of the directory dir, once.
func (m *Manifest) withRemedy(dir string, err error) error {
	var damage *CorruptError
	if !errors.As(err, &damage) || errors.As(err, new(*remediedError)) {
		return err
	}
	if remedy := m.remedy(dir, damage.File); remedy != "" {
		return &remediedError{err, remedy}
	}
	return err
}

// newDir is an open directory with this manifest and index.
func newDir(fsys vfs.FS, dir string, m *Manifest, index []indexRow) (*Dir, error) {
	tables, err := findParts(m, index)
	if err != nil {
		return nil, &CorruptError{filepath.Join(dir, indexName), -1, err.Error()}
	}
	d := &Dir{Manifest: *m, fsys: fsys, path: dir, layout: m.layout(), tables: map[string]*table{}}
	for i := range tables {
		d.tables[tables[i].folder] = &tables[i]
	}
	return d, nil
}

// checkSize fails unless path is a regular file of this size.
func checkSize(fsys vfs.FS, path string, size int64) error {
	info, err := fsys.Stat(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return &CorruptError{path, -1, "the file is missing"}
	case err != nil:
		return err
	case !info.Mode().IsRegular():
		return &CorruptError{path, -1, "it is not a regular file"}
	case info.Size() != size:
		return &CorruptError{path, -1, fmt.Sprintf("the file has %d bytes, not the %d that the manifest gives",
			info.Size(), size)}
	}
	return nil
}

// FS and Path are the arguments of Open.
func (d *Dir) FS() vfs.FS   { return d.fsys }
func (d *Dir) Path() string { return d.path }

// Layout says how the rows are divided into regions and chunks.
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

// Matrices lists the stored feature matrices: Input first, then by operator as in the manifest, then by hop.
func (d *Dir) Matrices() []MatrixID { return d.Manifest.matrices() }

// Matrix opens one of them.
func (d *Dir) Matrix(id MatrixID) (*Matrix, error) {
	if !slices.Contains(d.Matrices(), id) {
		return nil, fmt.Errorf("%s has no matrix %s (it has %v)", d.path, id, d.Matrices())
	}
	m := &Matrix{ID: id, Layout: d.layout.Of(id), dir: d, table: d.tables[MatrixFolder(id)]}
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

// filePath is the path of a file of the manifest.
func (d *Dir) filePath(file int) string { return d.Manifest.Files[file].location(d.path) }

// openPart opens the file of a part.
func (d *Dir) openPart(p *part) (vfs.File, error) {
	path := d.filePath(p.file)
	f, err := d.fsys.Open(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, d.explainFile(p.file, &CorruptError{path, -1, "the file is missing"})
	}
	return f, err
}
