package format

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"path/filepath"

	"github.com/hopfeed/hopfeed/internal/folder"
	"github.com/hopfeed/hopfeed/internal/vfs"
)

// How a complete directory DIR is replaced: DIR/.job has the lock and the records of the job. All files go to a
// folder beside it, DIR.replacement, which has a .job with a lock file too. When they are complete, the two folders
// are exchanged in one step, so that readers see the old version or the new one, and the old one is removed.

// replace makes the writer write to DIR.replacement, where DIR is a complete directory whose lock it has.
func (w *Writer) replace() error {
	m, err := readManifest(w.fsys, w.dir)
	switch {
	case errors.Is(err, ErrCorrupt) || errors.Is(err, ErrVersion):
		w.replacedCRC = "unreadable" // it is replaced nevertheless
	case err != nil:
		return err
	default:
		w.replacedCRC = m.CRC32C
		// The files of an extension that was not finished are removed.
		if err := w.restoreIndex(m); err != nil && !errors.Is(err, ErrCorrupt) && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
		if err := removeExcept(w.fsys, w.dir, m.pathSet()); err != nil {
			return err
		}
	}
	w.outputDir = w.resolvedDir + folder.ReplacementSuffix
	if ours, err := isAbsentOrOurs(w.fsys, w.outputDir); err != nil {
		return err
	} else if !ours {
		return fmt.Errorf("%s: %w (move it away: its name is needed for the folder in which %s is written anew)",
			w.outputDir, folder.ErrForeign, w.dir)
	}
	w.outputLock, err = folder.Lock(w.fsys, filepath.Join(w.outputDir, jobFolder))
	return err
}

// pathSet has the paths of all files that readers may open.
func (m *Manifest) pathSet() map[string]bool {
	all := map[string]bool{manifestName: true, indexName: true}
	for _, f := range m.Files {
		all[f.Path] = true
	}
	return all
}

// isAbsentOrOurs tells whether path does not exist, or is a folder that a job of Hopfeed's has made.
func isAbsentOrOurs(fsys vfs.FS, path string) (bool, error) {
	found, err := listContents(fsys, path)
	if errors.Is(err, fs.ErrNotExist) {
		return true, nil
	}
	if err != nil {
		return false, err
	}
	return len(found.foreign) == 0 && (found.job || len(found.files)+len(found.folders) == 0), nil
}

// swap exchanges the new version and the old one.
func (w *Writer) swap() error {
	found, err := listContents(w.fsys, w.dir)
	if err != nil {
		return err
	}
	if len(found.foreign) > 0 {
		return fmt.Errorf("%s holds %s, which Hopfeed has not made (move it elsewhere, and run the same command again)",
			w.dir, found.foreign[0])
	}
	// the next run finds out which of the two versions is there
	if w.outputDir, err = folder.Swap(w.fsys, w.resolvedDir); err != nil {
		w.done = true
		_ = w.unlock()
	}
	return err
}

// Remove removes a graph or store, finished or not, with all that Hopfeed has made in it. What else is there stays,
// and the error names it. A directory that is not there is no error. The caller knows whose it is, and that no job
// works on it.
func Remove(fsys vfs.FS, dir string) error {
	found, err := listContents(fsys, dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	if len(found.foreign) > 0 {
		return fmt.Errorf("%s: %w (it is left, and so is the folder around it)", filepath.Join(dir, found.foreign[0]),
			folder.ErrForeign)
	}
	if err := removeExcept(fsys, dir, nil); err != nil {
		return err
	}
	if found.job {
		if err := removeJob(fsys, dir); err != nil {
			return err
		}
	}
	return fsys.Remove(dir)
}

// removeLeftovers removes old versions of the directory that are left beside it because a job was killed after the
// exchange. w has the lock of the directory.
func (w *Writer) removeLeftovers() (err error) {
	if w.resolvedDir, err = w.fsys.Resolve(w.dir); err != nil {
		return err
	}
	state, err := readJob(w.fsys, w.dir)
	if err != nil && !errors.Is(err, ErrCorrupt) {
		return err
	}
	suffixes := []string{folder.ReplacedSuffix}
	if err == nil && (state == nil || !state.Replaces) {
		suffixes = append(suffixes, folder.ReplacementSuffix)
	}
	for _, suffix := range suffixes {
		old := w.resolvedDir + suffix
		if _, err := w.fsys.Stat(old); errors.Is(err, fs.ErrNotExist) {
			continue
		} else if err != nil {
			return err
		}
		if ours, err := isAbsentOrOurs(w.fsys, old); err != nil {
			return err
		} else if !ours {
			continue
		}
		lock, err := folder.Lock(w.fsys, filepath.Join(old, jobFolder))
		if err != nil {
			return err
		}
		if err := errors.Join(Remove(w.fsys, old), lock.Close()); err != nil {
			return err
		}
	}
	return nil
}

// Extend starts a job that adds matrices to a store. The matrices of the store count as finished; readers see the
// store as it is until Publish. o.Job must be given: the same job goes on after an interruption. o.Force is ignored.
func Extend(fsys vfs.FS, dir string, o CreateOptions) (*Writer, error) {
	if o.Job == "" {
		return nil, fmt.Errorf("%s: CreateOptions.Job is empty, but a job that extends a store needs it", dir)
	}
	if err := folder.Restore(fsys, dir, jobFolder+"/"+lockName); err != nil {
		return nil, err
	}
	d, err := OpenStore(fsys, dir) // before anything is made
	if err != nil {
		return nil, err
	}
	w := newWriter(fsys, dir, KindStore, d.layout, o.Job)
	return w.start(o, w.extend)
}

func (w *Writer) extend(o CreateOptions) error {
	// Another job may have changed the store before we had the lock.
	d, err := OpenStore(w.fsys, w.dir)
	if err != nil {
		return err
	}
	w.layout, w.base = d.layout, &d.Manifest
	w.layout.Widths = maps.Clone(w.layout.Widths)
	for name, width := range o.Widths {
		if w.layout.Widths == nil {
			w.layout.Widths = map[string]int{}
		}
		w.layout.Widths[name] = width
	}
	if err := w.removeLeftovers(); err != nil {
		return err
	}
	if err := w.restoreIndex(w.base); err != nil {
		return err
	}
	for _, t := range d.tables {
		w.finished[t.folder] = true
		for _, p := range t.parts {
			w.files = append(w.files, writtenFile{d.Manifest.Files[p.file], p.extents})
		}
	}
	state, err := readJob(w.fsys, w.dir)
	if err != nil {
		return err
	}
	if state != nil && state.Base == w.base.CRC32C && state.Job != "" && (state.Job != w.job || state.Replaces) {
		return &OtherJobError{w.dir, state.Job, w.job}
	}
	return w.resume(state)
}

// restoreIndex moves the index of a manifest to index.arrow, if a crash while an extension was published has left it
// in .job.
func (w *Writer) restoreIndex(m *Manifest) error {
	path := filepath.Join(w.dir, indexName)
	_, err := readIndex(w.fsys, path, m)
	if !errors.Is(err, ErrCorrupt) {
		return err
	}
	b, err := readFile(w.fsys, w.jobPath(indexName), m.IndexSize)
	if err != nil {
		return err
	}
	return vfs.WriteFile(w.fsys, path, b)
}
