package format

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"

	"github.com/hopfeed/hopfeed/internal/arrowfile"
	"github.com/hopfeed/hopfeed/internal/folder"
	"github.com/hopfeed/hopfeed/internal/kernel"
	"github.com/hopfeed/hopfeed/internal/version"
	"github.com/hopfeed/hopfeed/internal/vfs"
)

// CreateOptions say whether Create may replace what is there, and how the job can resume.
type CreateOptions struct {
	// Force replaces a complete directory of the same kind, when the new version is published and not before. A
	// directory that holds anything else is refused with or without it; what an interrupted job left, as its lock
	// file shows, is always replaced, unless that can go on.
	Force bool
	// Job is a text, in one spelling, of everything that the content of the directory is a function of. An
	// interrupted job goes on when Create gets the same text again: complete matrices and rows (Writer.Finished) and
	// the scratch folder are kept. A job with another text is refused (OtherJobError), or with Force replaces it. If
	// Job is empty, an interrupted job starts over.
	Job string
	// Locked, if not nil, is called after the job has got the lock and before it changes anything. If it fails,
	// nothing is changed, and its error is returned.
	Locked func() error
	// Widths are the columns of matrices that Extend adds, by operator, where a store has matrices of several widths.
	Widths map[string]int
}

// Writer writes a graph or store directory. Each matrix may be written by a goroutine of its own.
//
// Until Publish the directory has a folder .job with a locked file, and no manifest, or the manifest of the store that
// is extended. Files get their names when they are complete and durable. Publish writes index and manifest, and then
// removes .job.
type Writer struct {
	fsys       vfs.FS
	dir        string
	createdDir bool // dir did not exist before
	lock       io.Closer
	kind       string
	layout     Layout
	job        string
	base       *Manifest // that is extended, or nil

	// Set only if the job replaces a complete directory.
	replacedCRC string    // checksum of its manifest; "" if nothing is replaced
	resolvedDir string    // dir with links resolved
	outputLock  io.Closer // of outputDir

	outputDir string // where files are written: dir, or DIR.replacement until it takes the place of dir

	mu         sync.Mutex
	files      []writtenFile   // of complete tables
	finished   map[string]bool // these tables, by folder
	unfinished map[*tableWriter]bool
	started    map[MatrixID]bool
	topology   *topologySize
	columns    []Column
	rows       *rowSummary
	done       bool
}

type topologySize struct {
	nodes, edges int64
	weighted     bool
}

// writtenFile is a committed file with its extents.
type writtenFile struct {
	FileEntry
	Extents []arrowfile.Extent `json:"extents"`
}

func comparePaths(a, b writtenFile) int { return strings.Compare(a.Path, b.Path) }

// Create starts a directory and locks it against other jobs. Readers see nothing of it before Publish.
func Create(fsys vfs.FS, dir string, layout Layout, o CreateOptions) (*Writer, error) {
	kind, err := layout.check()
	if err != nil {
		return nil, err
	}
	widest := layout.widest()
	// Before a long job finds out.
	if err := checkPartCount(MatrixFolder(Input), layout.chunks(), chunksPerPart(widest.chunkBytes())); err != nil {
		return nil, fmt.Errorf("%s: %w", dir, err)
	}
	if err := folder.CheckName(dir); err != nil {
		return nil, err
	}
	if err := folder.Restore(fsys, dir, jobFolder+"/"+lockName); err != nil {
		return nil, err
	}
	w := newWriter(fsys, dir, kind, layout, o.Job)
	if _, err := fsys.Stat(dir); errors.Is(err, fs.ErrNotExist) {
		w.createdDir = true
	} else if err != nil {
		return nil, err
	} else if err := mayReplace(fsys, dir, kind, o.Force); err != nil {
		return nil, err
	}
	return w.start(o, w.create)
}

func newWriter(fsys vfs.FS, dir, kind string, layout Layout, job string) *Writer {
	layout.Regions = slices.Clone(layout.Regions)
	return &Writer{fsys: fsys, dir: dir, outputDir: dir, kind: kind, layout: layout, job: job,
		finished: map[string]bool{}, unfinished: map[*tableWriter]bool{}, started: map[MatrixID]bool{}}
}

// start makes .job, locks it against other jobs, and calls begin. If that fails, the directory is as it was.
func (w *Writer) start(o CreateOptions, begin func(o CreateOptions) error) (*Writer, error) {
	if err := w.acquireLock(); err != nil {
		return nil, err
	}
	var err error
	if o.Locked != nil {
		err = o.Locked()
	}
	if err == nil {
		err = begin(o)
	}
	if err != nil {
		return nil, w.releaseDir(err)
	}
	return w, nil
}

// acquireLock makes .job and locks it against other jobs.
func (w *Writer) acquireLock() (err error) {
	w.lock, err = folder.Lock(w.fsys, filepath.Join(w.dir, jobFolder))
	if errors.Is(err, vfs.ErrLocked) {
		return fmt.Errorf("%s is being written: %w", w.dir, err)
	}
	if err != nil && w.createdDir {
		return w.removeJobAndUnlock(err)
	}
	return err // .job stays, as it may be of another job
}

// create removes what may not stay in the directory, once it is locked, and starts or resumes the job.
func (w *Writer) create(o CreateOptions) error {
	// Another job may have finished before we had the lock.
	if err := mayReplace(w.fsys, w.dir, w.kind, o.Force); err != nil {
		return err
	}
	if err := w.removeLeftovers(); err != nil {
		return err
	}
	state, err := readJob(w.fsys, w.dir)
	if errors.Is(err, ErrCorrupt) && o.Force {
		state, err = nil, nil
	}
	if err != nil {
		return err
	}
	if _, err := w.fsys.Stat(filepath.Join(w.dir, manifestName)); err == nil {
		if err := w.replace(); err != nil {
			return err
		}
	} else if !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if state != nil && !o.Force && (state.Job != o.Job || state.Base != "") {
		return &OtherJobError{w.dir, state.Job, o.Job}
	}
	if o.Force && state != nil && !state.Replaces {
		state = nil // a job that was begun without force is not resumed with it
	}
	return w.resume(state)
}

// releaseDir unlocks the directory for a job that has written nothing, and removes .job unless a job that can resume
// is recorded in it.
func (w *Writer) releaseDir(err error) error {
	if _, statErr := w.fsys.Stat(w.jobPath(jobName)); errors.Is(statErr, fs.ErrNotExist) {
		return w.removeJobAndUnlock(err)
	}
	_ = w.unlock() // even if createdDir: another job may have begun before we got the lock
	return err
}

// unlock lets other jobs use the directory.
func (w *Writer) unlock() error {
	err := w.lock.Close()
	if w.outputLock != nil {
		err = errors.Join(err, w.outputLock.Close())
	}
	return err
}

// removeJobAndUnlock removes .job, then the directory if this job created it, and unlocks. It returns err, or if that
// is nil, its own error.
func (w *Writer) removeJobAndUnlock(err error) error {
	var cleanupErr error
	if w.outputLock != nil { // before .job, whose lock keeps other jobs away
		cleanupErr = Remove(w.fsys, w.outputDir)
	}
	if w.lock != nil && cleanupErr == nil {
		cleanupErr = removeJob(w.fsys, w.dir)
	} else if w.lock == nil {
		_ = w.fsys.Remove(filepath.Join(w.dir, jobFolder)) // fails unless it is empty
	}
	if w.createdDir && cleanupErr == nil {
		cleanupErr = w.fsys.Remove(w.dir)
	}
	if w.lock != nil {
		cleanupErr = errors.Join(cleanupErr, w.unlock())
	}
	if err != nil {
		return err
	}
	return cleanupErr
}

// mayReplace fails unless the contents of an existing directory may be removed.
func mayReplace(fsys vfs.FS, dir, kind string, force bool) error {
	found, err := listContents(fsys, dir)
	if err == nil {
		err = CheckReplaceable(fsys, dir, kind)
	}
	if err != nil {
		return err
	}
	if len(found.foreign) > 0 {
		return fmt.Errorf("%s: %w, and holds %s, which Hopfeed has not made (move that elsewhere, or give another "+
			"directory)", dir, ErrExists, found.foreign[0])
	}
	complete := slices.Contains(found.files, manifestName)
	switch {
	case complete && force && vfs.IsURL(dir):
		return fmt.Errorf("%s: %w: what is complete in a bucket is not replaced (give another URL, or remove it with the "+
			"bucket's tools)", dir, ErrExists)
	case complete && !force:
		return fmt.Errorf("%s: %w (--force replaces it)", dir, ErrExists)
	case !complete && !found.job && len(found.files)+len(found.folders) > 0:
		return fmt.Errorf("%s: %w: it has %s, but neither a manifest nor %s, so nothing shows that Hopfeed has made "+
			"it (remove the directory, or give another)",
			dir, ErrExists, append(found.files, found.folders...)[0], jobFolder)
	}
	return nil
}

// CheckReplaceable fails, with ErrExists, if dir holds what nothing of this kind replaces, even if forced: a graph,
// typed graph or store of another kind, or a manifest.json or types.json that does not start as Hopfeed's do. The rest
// of these files may be damaged.
func CheckReplaceable(fsys vfs.FS, dir, kind string) error {
	path := filepath.Join(dir, typesName)
	b, err := vfs.ReadFile(fsys, path, maxManifestBytes)
	if errors.Is(err, fs.ErrNotExist) {
		path = filepath.Join(dir, manifestName)
		b, err = vfs.ReadFile(fsys, path, maxManifestBytes)
	}
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil && !errors.Is(err, vfs.ErrSize) {
		return err
	}
	start := manifestStart.FindSubmatch(b)
	if start == nil {
		return fmt.Errorf("%s: %w, and is not a manifest that Hopfeed has written (give another directory)", path,
			ErrExists)
	}
	named := func(kind string) string { return strings.Replace(kind, KindTyped, "typed graph", 1) }
	if other := string(start[1]); other != "" && other != kind {
		return fmt.Errorf("%s: %w: it is a %s, and a %s cannot replace it (give another directory)", dir, ErrExists,
			named(other), named(kind))
	}
	return nil
}

// manifestStart matches the start of a manifest; the kind may be damaged.
var manifestStart = regexp.MustCompile(`^\{\s*"format":\s*[0-9]+(?:,\s*"kind":\s*"(graph|store|typed)")?`)

// contents lists what is in a directory, as paths with slashes.
type contents struct {
	files   []string // that a graph or store may have, complete or not
	folders []string // that a graph or store may have, outer before inner
	foreign []string // files and folders that it cannot have
	clutter []string // the foreign ones for which isClutter is true
	job     bool     // there is a .job folder
}

// listContents lists a directory and its folders, but not .job.
func listContents(fsys vfs.FS, dir string) (*contents, error) {
	out := new(contents)
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
				foreign, err := foreignInJob(fsys, dir)
				if err != nil {
					return err
				}
				if foreign != "" {
					out.foreign = append(out.foreign, foreign)
				}
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
				if (e.IsDir() || e.Type().IsRegular()) && isClutter(e.Name(), e.IsDir()) {
					out.clutter = append(out.clutter, path)
				}
			}
		}
		return nil
	}
	return out, visit("")
}

// removeFiles removes all files of a graph or store except .job, the files of the store that is extended, and the
// files in but.
func (w *Writer) removeFiles(but []writtenFile) error {
	keep := map[string]bool{}
	if w.base != nil {
		keep = w.base.pathSet()
	}
	for _, f := range but {
		keep[f.Path] = true
	}
	return removeExcept(w.fsys, w.outputDir, keep)
}

// removeExcept removes all files of a graph or store but .job and those to keep, and the folders that are empty then.
// A removal need not survive a crash, but a rename does: so the manifest is renamed first, and never lists files that
// are written later under the same names.
func removeExcept(fsys vfs.FS, dir string, keep map[string]bool) error {
	if !keep[manifestName] {
		manifest := filepath.Join(dir, manifestName)
		if err := fsys.Rename(manifest, manifest+vfs.TempSuffix); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	for _, file := range slices.Collect(maps.Keys(keep)) {
		for folder := path.Dir(file); folder != "."; folder = path.Dir(folder) {
			keep[folder] = true
		}
	}
	found, err := listContents(fsys, dir)
	if err != nil {
		return err
	}
	slices.Reverse(found.folders)
	changed := map[string]bool{} // folders that stay, from which something was removed
	for _, name := range append(found.files, found.folders...) {
		if keep[name] {
			continue
		}
		if err := fsys.Remove(filepath.Join(dir, filepath.FromSlash(name))); err != nil {
			return err
		}
		delete(changed, name)
		changed[path.Dir(name)] = true
	}
	for name := range changed { // before .job is removed, which shows that Hopfeed has made the files
		if err := fsys.Sync(filepath.Join(dir, filepath.FromSlash(name))); err != nil {
			return err
		}
	}
	return nil
}

// writeSingleBatch writes a table that has one record batch or none. body writes the data of the batch.
func (w *Writer) writeSingleBatch(t table, body func(out io.Writer) error) error {
	if w.isFinished(t.folder) {
		return nil
	}
	p, err := w.startTable(t, 1)
	if err != nil {
		return err
	}
	if t.chunks > 0 {
		rows := t.rows(0)
		if err := p.beginChunk(rows, t.lengths(rows)...); err != nil {
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

// Rows writes the row table: rows/ of a store (with NodeID) or nodes/ of a graph. It must be called in a job that
// resumes too, and then writes only what is missing.
func (w *Writer) Rows(t *RowTable) error {
	summary, err := t.summarize(w.kind, w.layout.rows())
	if err != nil {
		return fmt.Errorf("%s: %w", w.dir, err)
	}
	if err := w.reserve(func() bool { return w.rows == nil }, func() { w.rows = summary }); err != nil {
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
	p, err := w.startTable(table, chunksPerPart(longest))
	if err != nil {
		return err
	}
	for k := range table.chunks {
		first, rows := w.layout.chunk(k)
		if err := p.writeChunk(int64(rows), t.buffers(first, rows)...); err != nil {
			return err
		}
	}
	return p.close()
}

// reserve calls change, under the lock, if free is true and the writer is in use. It keeps a table from being written
// twice.
func (w *Writer) reserve(free func() bool, change func()) error {
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

// Publish writes index and manifest, from which on readers can open the directory. It sets the fields of m that the
// writer knows: Format, Kind, Tool, layout, sizes of the topology, columns of the rows, Files, Fingerprint and
// checksums. If it fails for an extension, the job is suspended.
func (w *Writer) Publish(m *Manifest) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.rows == nil && w.base != nil {
		w.rows = w.base.rowSummary()
	}
	switch {
	case w.done:
		return fmt.Errorf("%s is published or aborted already", w.dir)
	case w.rows == nil:
		return fmt.Errorf("%s: the rows have not been written", w.dir)
	case w.kind == KindGraph && w.topology == nil:
		return fmt.Errorf("%s: the topology has not been written", w.dir)
	case len(w.unfinished) > 0:
		return fmt.Errorf("%s: %d tables have not been closed", w.dir, len(w.unfinished))
	}
	if w.base != nil {
		m.Requires, m.unknown = w.base.Requires, w.base.unknown
	}
	index := w.completeManifest(m)
	encoded, err := encodeIndex(index)
	if err != nil {
		return err
	}
	m.IndexSize, m.IndexCRC32C = int64(len(encoded)), hex32(kernel.CRC32C(0, encoded))
	m.Fingerprint = m.fingerprint(index)
	if err := m.check(); err != nil {
		return fmt.Errorf("%s: cannot be published: %w", w.dir, err)
	}
	if err := w.rows.checkAgainst(m); err != nil {
		return fmt.Errorf("%s: cannot be published: %w", w.dir, err)
	}
	if err := w.publish(encoded, m.encodeWithChecksum()); err != nil {
		return err
	}
	w.done, w.createdDir = true, false
	if err := w.removeJobAndUnlock(nil); err != nil {
		return fmt.Errorf("%s is complete, but its folder %s could not be removed: %w", w.dir, jobFolder, err)
	}
	return nil
}

// completeManifest sets the fields that the writer knows, and returns the index.
func (w *Writer) completeManifest(m *Manifest) []indexRow {
	m.Format, m.Kind, m.Tool = Version, w.kind, version.Version
	if t := w.topology; t != nil {
		m.Nodes, m.Edges, m.Weighted = t.nodes, t.edges, t.weighted
	}
	m.Labels, m.LabelValues = w.rows.columns.labels, w.rows.columns.values
	m.Splits, m.OrigIDs = w.rows.columns.splits, w.rows.columns.origID
	m.Features, m.DType, m.ChunkRows = w.layout.Features, w.layout.DType.String(), w.layout.ChunkRows
	m.Rows, m.Regions = w.layout.rows(), w.layout.Regions
	m.Columns, m.SourceNodes = w.columns, w.layout.SourceNodes
	m.Requires = slices.Clone(m.Requires)
	for _, feature := range m.usedFeatures() {
		if !slices.Contains(m.Requires, feature) {
			m.Requires = append(m.Requires, feature)
		}
	}
	slices.Sort(m.Requires)
	if m.Input == nil {
		m.Input = map[string]string{}
	}
	slices.SortFunc(w.files, comparePaths)
	m.Files = make([]FileEntry, len(w.files))
	var index []indexRow
	for i, f := range w.files {
		m.Files[i] = f.FileEntry
		for _, e := range f.Extents {
			index = append(index, indexRow{uint32(i), e})
		}
	}
	return index
}

// publish writes index and manifest. The manifest of an extension replaces the old one in one step; until index.arrow
// is replaced too, readers find the new index in .job.
func (w *Writer) publish(index, manifest []byte) error {
	write := func(name string, b []byte) error { return vfs.WriteFile(w.fsys, filepath.Join(w.outputDir, name), b) }
	if w.base == nil {
		if err := write(indexName, index); err != nil {
			return err
		}
		if err := write(manifestName, manifest); err != nil || w.replacedCRC == "" {
			return err
		}
		return w.swap()
	}
	err := vfs.WriteFile(w.fsys, w.jobPath(indexName), index)
	if err == nil {
		err = write(manifestName, manifest)
	}
	if err == nil {
		err = write(indexName, index)
	}
	if err != nil { // the next run finds out which of the two versions is there
		w.done = true
		_ = w.unlock()
	}
	return err
}

// Abort removes everything that this job has written, in earlier runs too. A store that is extended stays as it was.
// After Publish, Abort does nothing. No other call may be running.
func (w *Writer) Abort() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.done {
		return nil
	}
	return w.removeJobAndUnlock(errors.Join(w.stopWriting(), w.removeFiles(nil)))
}

// stopWriting aborts the parts that are being written. Later writes fail.
func (w *Writer) stopWriting() error {
	w.done = true
	var err error
	for p := range w.unfinished {
		err = errors.Join(err, p.abort())
	}
	return err
}
