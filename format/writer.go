package format

import (
	"context"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"io/fs"
	"maps"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"sync"

	"github.com/hopfeed/hopfeed/internal/arrowfile"
	"github.com/hopfeed/hopfeed/internal/dtype"
	"github.com/hopfeed/hopfeed/internal/version"
	"github.com/hopfeed/hopfeed/internal/vfs"
)

// CreateOptions govern how a directory is started.
type CreateOptions struct {
	// Force replaces a complete directory of the same kind, and parts of any that
	// have neither manifest nor .job. A directory that holds anything else is refused
	// with or without it; what an interrupted job left is always replaced, unless
	// that can go on.
	Force bool
	// Job tells, in one spelling, everything that the content of the directory is a
	// function of. With it, a job that was interrupted goes on when it is started
	// again: matrices and rows that are complete are kept (Writer.Finished), and the
	// scratch folder. Another job is then refused (OtherJobError), or with Force
	// replaces it. Without, an interrupted job starts over.
	Job string
}

// Writer builds a directory. Its matrices may be written by one goroutine each.
//
// While it is at work the directory has a folder .job with a locked file, and no
// manifest, or that of the store that it extends. Files get their names when they
// are complete and durable; index and manifest come last, then .job goes.
type Writer struct {
	fsys   vfs.FS
	dir    string
	made   bool // by us
	lock   io.Closer
	kind   string
	layout Layout
	job    string
	base   *Manifest // that is extended, or nil

	mu       sync.Mutex
	files    []writtenFile   // of complete tables
	finished map[string]bool // these tables, by folder
	open     map[*partWriter]bool
	matrices map[MatrixID]bool // that were started
	topology *topologySize
	rows     *rowSummary
	done     bool
}

type topologySize struct {
	nodes, edges int64
	weighted     bool
}

// writtenFile is a committed file with its extents.
type writtenFile struct {
	FileEntry
	extents []arrowfile.Extent
}

// Create starts a directory and locks it against other jobs. Readers see
// nothing of it before Publish.
func Create(fsys vfs.FS, dir string, layout Layout, o CreateOptions) (*Writer, error) {
	kind, err := layout.check()
	if err != nil {
		return nil, err
	}
	w := newWriter(fsys, dir, kind, layout, o.Job)
	if _, err := fsys.Stat(dir); errors.Is(err, fs.ErrNotExist) {
		w.made = true
	} else if err != nil {
		return nil, err
	} else if err := mayReplace(fsys, dir, kind, o.Force); err != nil {
		return nil, err
	}
	if err := w.takeLock(); err != nil {
		return nil, err
	}
	if err := w.create(o); err != nil {
		return nil, w.giveUp(err)
	}
	return w, nil
}

func newWriter(fsys vfs.FS, dir, kind string, layout Layout, job string) *Writer {
	layout.Regions = slices.Clone(layout.Regions)
	return &Writer{fsys: fsys, dir: dir, kind: kind, layout: layout, job: job,
		finished: map[string]bool{}, open: map[*partWriter]bool{}, matrices: map[MatrixID]bool{}}
}

// takeLock makes .job and locks it.
func (w *Writer) takeLock() error {
	err := w.fsys.MkdirAll(filepath.Join(w.dir, jobFolder))
	if err == nil {
		w.lock, err = w.fsys.Lock(w.jobPath(lockName))
	}
	if errors.Is(err, vfs.ErrLocked) {
		return fmt.Errorf("%s is being written: %w", w.dir, err)
	}
	if err != nil && w.made {
		return w.leave(err)
	}
	return err // not knowing whose .job it is
}

// create clears the way of a job that has the lock.
func (w *Writer) create(o CreateOptions) error {
	// Another job may have finished before we had the lock.
	if err := mayReplace(w.fsys, w.dir, w.kind, o.Force); err != nil {
		return err
	}
	var state *jobState
	if !o.Force {
		var err error
		if state, err = readJob(w.fsys, w.dir); err != nil {
			return err
		}
		if state != nil && (state.Job != o.Job || state.Base != "") {
			return &OtherJobError{w.dir, state.Job, o.Job}
		}
	}
	return w.resume(state)
}

// giveUp ends a job that could not be started. What another may go on with stays.
func (w *Writer) giveUp(err error) error {
	if _, statErr := w.fsys.Stat(w.jobPath(jobName)); w.made || errors.Is(statErr, fs.ErrNotExist) {
		return w.leave(err)
	}
	w.lock.Close()
	return err
}

// leave gives the directory up: .job goes, then the directory where we made it,
// then the lock. It returns err, or else what went wrong here.
func (w *Writer) leave(err error) error {
	mine := w.fsys.RemoveAll(filepath.Join(w.dir, jobFolder))
	if w.made && mine == nil {
		mine = w.fsys.Remove(w.dir)
	}
	if w.lock != nil {
		mine = errors.Join(mine, w.lock.Close())
	}
	if err != nil {
		return err
	}
	return mine
}

// mayReplace fails unless what is in an existing directory may be replaced.
func mayReplace(fsys vfs.FS, dir, kind string, force bool) error {
	found, err := scan(fsys, dir)
	if err != nil {
		return err
	}
	if len(found.foreign) > 0 {
		return fmt.Errorf("%s: %w, and holds %s, which is not Hopfeed's (give another directory)", dir, ErrExists, found.foreign[0])
	}
	complete := slices.Contains(found.files, manifestName)
	switch {
	case complete && force:
		return checkOurs(fsys, dir, kind)
	case complete:
		return fmt.Errorf("%s: %w (--force replaces it)", dir, ErrExists)
	case !found.job && !force && len(found.files)+len(found.folders) > 0:
		return fmt.Errorf("%s: %w, without a manifest and without %s (--force replaces it)", dir, ErrExists, jobFolder)
	}
	return nil
}

// checkOurs keeps force from removing a manifest.json that is somebody else's, and
// a directory that is not of this kind. What is damaged after its kind may go.
func checkOurs(fsys vfs.FS, dir, kind string) error {
	path := filepath.Join(dir, manifestName)
	info, err := fsys.Stat(path)
	if err != nil {
		return err
	}
	b, err := readFile(fsys, path, min(info.Size(), 64))
	if err != nil {
		return err
	}
	version, rest, _ := strings.Cut(string(b), ",\n  \"kind\": \"")
	if !strings.HasPrefix(version, "{\n  \"format\": ") {
		return fmt.Errorf("%s: %w, and is no manifest of Hopfeed's (give another directory)", path, ErrExists)
	}
	for _, other := range []string{KindGraph, KindStore} {
		if other != kind && strings.HasPrefix(rest, other+"\"") {
			return fmt.Errorf("%s: %w, and is a %s, which a %s does not replace (give another directory)", dir, ErrExists, other, kind)
		}
	}
	return nil
}

// found is what a directory holds: paths with slashes.
type found struct {
	files   []string // that a directory of ours may have, finished or not
	folders []string // likewise, outer before inner
	foreign []string // files and folders that it may not have
	job     bool     // there is a .job
}

// scan lists a directory.
func scan(fsys vfs.FS, dir string) (*found, error) {
	out := new(found)
	var visit func(folder string) error
	visit = func(folder string) error {
		entries, err := fsys.ReadDir(filepath.Join(dir, filepath.FromSlash(folder)))
		if errors.Is(err, fs.ErrNotExist) && folder != "" {
			return nil // removed since it was listed
		}
		if err != nil {
			return err
		}
		for _, e := range entries {
			path := e.Name()
			if folder != "" {
				path = folder + "/" + path
			}
			switch {
			case path == jobFolder && e.IsDir():
				out.job = true
			case e.IsDir() && isFolder(path):
				out.folders = append(out.folders, path)
				if err := visit(path); err != nil {
					return err
				}
			case e.Type().IsRegular() && isFile(path):
				out.files = append(out.files, path)
			default:
				out.foreign = append(out.foreign, path)
			}
		}
		return nil
	}
	return out, visit("")
}

// wipe removes all files of ours but .job, those of the store that is extended,
// and these. Removals need not survive a crash, so the manifest is renamed first,
// which does: what is then written under old names is not taken for what it listed.
func (w *Writer) wipe(but []writtenFile) error {
	keep := map[string]bool{} // files, and the folders that they are in
	for _, f := range but {
		keep[f.Path] = true
	}
	if w.base != nil {
		keep[manifestName], keep[indexName] = true, true
		for _, f := range w.base.Files {
			keep[f.Path] = true
		}
	} else {
		manifest := filepath.Join(w.dir, manifestName)
		if err := w.fsys.Rename(manifest, manifest+vfs.TempSuffix); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	for _, file := range slices.Collect(maps.Keys(keep)) {
		for folder := path.Dir(file); folder != "."; folder = path.Dir(folder) {
			keep[folder] = true
		}
	}
	found, err := scan(w.fsys, w.dir)
	if err != nil {
		return err
	}
	slices.Reverse(found.folders)
	for _, name := range append(found.files, found.folders...) {
		if keep[name] {
			continue
		}
		if err := w.fsys.Remove(filepath.Join(w.dir, filepath.FromSlash(name))); err != nil {
			return err
		}
	}
	return nil
}

// Topology writes topology/ and, where there are weights, weights/.
func (w *Writer) Topology(c *CSC) error {
	if w.kind != KindGraph {
		return fmt.Errorf("%s: a store has no topology", w.dir)
	}
	if n := w.layout.rows(); c.Nodes() != n {
		return fmt.Errorf("%s: a topology of %d nodes for %d rows", w.dir, c.Nodes(), n)
	}
	for _, check := range []func(context.Context, int) error{c.check, c.checkWeights} {
		if err := check(context.Background(), 0); err != nil {
			return fmt.Errorf("%s: topology: %w", w.dir, err)
		}
	}
	if err := w.claim(func() bool { return w.topology == nil }, func() { w.topology = &topologySize{c.Nodes(), c.Edges(), c.Weights != nil} }); err != nil {
		return err
	}
	err := w.single(topologyTable(c.Nodes(), c.Edges()), func(out io.Writer) error {
		if _, err := out.Write(dtype.BytesOf(c.Offsets)); err != nil {
			return err
		}
		_, err := out.Write(dtype.BytesOf(c.Neighbors))
		return err
	})
	if err == nil && c.Weights != nil {
		err = w.single(weightsTable(c.Edges()), func(out io.Writer) error {
			_, err := out.Write(dtype.BytesOf(c.Weights))
			return err
		})
	}
	return err
}

// single writes a table that has one record batch at most, with the bytes that
// body writes.
func (w *Writer) single(t table, body func(out io.Writer) error) error {
	if w.isFinished(t.folder) {
		return nil
	}
	p, err := w.parts(t, 1)
	if err != nil {
		return err
	}
	if t.chunks > 0 {
		rows := t.rows(0)
		if err := p.begin(rows, t.lengths(rows)...); err != nil {
			return err
		}
		if err := body(p.out); err != nil {
			return err
		}
		if err := p.out.End(); err != nil {
			return err
		}
	}
	return p.close()
}

// Rows writes rows/ (with NodeID) or nodes/ (without). Where an earlier run of the
// job has done so, it is told again, and writes nothing.
func (w *Writer) Rows(t *RowTable) error {
	summary, err := t.summarize(w.kind, w.layout.rows())
	if err != nil {
		return fmt.Errorf("%s: %w", w.dir, err)
	}
	if err := w.claim(func() bool { return w.rows == nil }, func() { w.rows = summary }); err != nil {
		return err
	}
	table := summary.columns.table(w.layout)
	if summary.columns == (rowColumns{}) || w.isFinished(table.folder) {
		return nil
	}
	longest := int64(0)
	for k := range table.chunks {
		first, rows := w.layout.chunk(k)
		_, end := arrowfile.Place(lengthsOf(t.buffers(first, rows))...)
		longest = max(longest, end)
	}
	p, err := w.parts(table, perPart(longest))
	if err != nil {
		return err
	}
	for k := range table.chunks {
		first, rows := w.layout.chunk(k)
		if err := p.chunk(int64(rows), t.buffers(first, rows)...); err != nil {
			return err
		}
	}
	return p.close()
}

// claim changes the writer's state where free says that it may.
func (w *Writer) claim(free func() bool, change func()) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.done {
		return fmt.Errorf("%s is published or aborted already", w.dir)
	}
	if !free() {
		return fmt.Errorf("%s: the same table is written twice", w.dir)
	}
	change()
	return nil
}

// Publish writes index and manifest, which makes the directory visible. It fills
// in what the writer knows: Format, Kind, Tool, layout, what topology and rows
// have, Files, Fingerprint and checksums. Where it fails to publish an extension,
// the job is suspended.
func (w *Writer) Publish(m *Manifest) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.rows == nil && w.base != nil {
		w.rows = &rowSummary{w.base.rowColumns(), int32(w.base.Classes) - 1, uint32(max(w.base.Nodes, 1) - 1)}
	}
	switch {
	case w.done:
		return fmt.Errorf("%s is published or aborted already", w.dir)
	case w.rows == nil:
		return fmt.Errorf("%s: the rows have not been written", w.dir)
	case w.kind == KindGraph && w.topology == nil:
		return fmt.Errorf("%s: the topology has not been written", w.dir)
	case len(w.open) > 0:
		return fmt.Errorf("%s: %d tables are not finished", w.dir, len(w.open))
	}
	index := w.fill(m)
	encoded, err := encodeIndex(index)
	if err != nil {
		return err
	}
	m.IndexSize, m.IndexCRC32C = int64(len(encoded)), hex32(crc32.Checksum(encoded, castagnoli))
	m.Fingerprint = m.fingerprint(index)
	if err := m.check(); err != nil {
		return fmt.Errorf("%s: cannot be published: %w", w.dir, err)
	}
	if err := w.rows.checkAgainst(m); err != nil {
		return fmt.Errorf("%s: cannot be published: %w", w.dir, err)
	}
	if err := w.publish(encoded, m.seal()); err != nil {
		return err
	}
	w.done, w.made = true, false
	if err := w.leave(nil); err != nil {
		return fmt.Errorf("%s is complete, but its %s could not be removed: %w", w.dir, jobFolder, err)
	}
	return nil
}

// fill sets what the writer knows and returns the index.
func (w *Writer) fill(m *Manifest) []indexRow {
	m.Format, m.Kind, m.Tool = Version, w.kind, version.Version
	if t := w.topology; t != nil {
		m.Nodes, m.Edges, m.Weighted = t.nodes, t.edges, t.weighted
	}
	m.Labels, m.Splits, m.OrigIDs = w.rows.columns.labels, w.rows.columns.splits, w.rows.columns.origID
	m.Features, m.DType, m.ChunkRows = w.layout.Features, w.layout.DType.String(), w.layout.ChunkRows
	m.Rows, m.Regions = w.layout.rows(), w.layout.Regions
	if m.Input == nil {
		m.Input = map[string]string{}
	}
	slices.SortFunc(w.files, func(a, b writtenFile) int { return strings.Compare(a.Path, b.Path) })
	m.Files = make([]FileEntry, len(w.files))
	var index []indexRow
	for i, f := range w.files {
		m.Files[i] = f.FileEntry
		for _, e := range f.extents {
			index = append(index, indexRow{uint32(i), e.CRC32C, e.Offset, e.Length})
		}
	}
	return index
}

// publish writes the last two files. The manifest of an extension takes the place
// of the one before in one step; until the index follows, readers find it in .job.
func (w *Writer) publish(index, manifest []byte) error {
	write := func(name string, b []byte) error { return writeFile(w.fsys, filepath.Join(w.dir, name), b) }
	if w.base == nil {
		if err := write(indexName, index); err != nil {
			return err
		}
		return write(manifestName, manifest)
	}
	err := writeFile(w.fsys, w.jobPath(indexName), index)
	if err == nil {
		err = write(manifestName, manifest)
	}
	if err == nil {
		err = write(indexName, index)
	}
	if err != nil { // which of the two versions is there, the next run will see
		w.done = true
		w.lock.Close()
	}
	return err
}

// writeFile commits a small file.
func writeFile(fsys vfs.FS, path string, b []byte) error {
	f, err := fsys.Create(path)
	if err != nil {
		return err
	}
	defer f.Abort()
	if _, err := f.Write(b); err != nil {
		return err
	}
	return f.Commit()
}

// Abort removes everything that was written, by earlier runs of the job too, and
// nothing of a store that is extended. After Publish it does nothing. No other call
// may be running.
func (w *Writer) Abort() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.done {
		return nil
	}
	return w.leave(errors.Join(w.end(), w.wipe(nil)))
}

// end lets nothing more be written, and gives up the parts that are being written.
func (w *Writer) end() error {
	w.done = true
	var err error
	for p := range w.open {
		err = errors.Join(err, p.abort())
	}
	return err
}
