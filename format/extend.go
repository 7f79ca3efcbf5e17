package format

import (
	"errors"
	"fmt"
	"path/filepath"

	"github.com/hopfeed/hopfeed/internal/folder"
	"github.com/hopfeed/hopfeed/internal/vfs"
)

// Extend starts a job that adds matrices to a store. The matrices of the store count as
// finished; readers see the store as it is until Publish. o.Job must be given: the same
// job goes on after an interruption. o.Force is ignored.
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
	if err := w.acquireLock(); err != nil {
		return nil, err
	}
	if err := w.extend(o); err != nil {
		return nil, w.releaseDir(err)
	}
	return w, nil
}

func (w *Writer) extend(o CreateOptions) error {
	if o.Locked != nil {
		if err := o.Locked(); err != nil {
			return err
		}
	}
	// Another job may have changed the store before we had the lock.
	d, err := OpenStore(w.fsys, w.dir)
	if err != nil {
		return err
	}
	w.layout, w.base = d.layout, &d.Manifest
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

// restoreIndex moves the index of a manifest to index.arrow, if a crash while an
// extension was published has left it in .job.
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
	return writeFile(w.fsys, path, b)
}
