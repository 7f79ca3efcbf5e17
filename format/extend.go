package format

import (
	"errors"
	"fmt"
	"path/filepath"

	"github.com/hopfeed/hopfeed/internal/arrowfile"
	"github.com/hopfeed/hopfeed/internal/vfs"
)

// Extend starts a job that adds matrices to a store. What is there is kept and
// counts as finished; readers see the store as it is until Publish, whose
// manifest tells of the old and the new. The job is told as in CreateOptions; the
// same one, interrupted, goes on.
func Extend(fsys vfs.FS, dir, job string) (*Writer, error) {
	if job == "" {
		return nil, fmt.Errorf("%s: a job that extends a store must be told", dir)
	}
	d, err := OpenStore(fsys, dir) // before anything is made
	if err != nil {
		return nil, err
	}
	w := newWriter(fsys, dir, KindStore, d.layout, job)
	if err := w.takeLock(); err != nil {
		return nil, err
	}
	if err := w.extend(); err != nil {
		return nil, w.giveUp(err)
	}
	return w, nil
}

func (w *Writer) extend() error {
	// Another job may have changed the store before we had the lock.
	d, err := OpenStore(w.fsys, w.dir)
	if err != nil {
		return err
	}
	w.layout, w.base = d.layout, &d.Manifest
	// A crash while an extension was published may have left its index in .job.
	if _, err := readIndex(w.fsys, filepath.Join(w.dir, indexName), w.base); errors.Is(err, ErrCorrupt) {
		b, err := readFile(w.fsys, w.jobPath(indexName), w.base.IndexSize)
		if err != nil {
			return err
		}
		if err := writeFile(w.fsys, filepath.Join(w.dir, indexName), b); err != nil {
			return err
		}
	} else if err != nil {
		return err
	}
	for _, t := range d.tables {
		w.finished[t.folder] = true
		for _, p := range t.parts {
			f := writtenFile{FileEntry: d.Manifest.Files[p.file]}
			for _, e := range p.extents {
				f.extents = append(f.extents, arrowfile.Extent{Offset: e.offset, Length: e.length, CRC32C: e.crc})
			}
			w.files = append(w.files, f)
		}
	}
	state, err := readJob(w.fsys, w.dir)
	if err != nil {
		return err
	}
	if state != nil && state.Base == w.base.CRC32C && state.Job != w.job {
		return &OtherJobError{w.dir, state.Job, w.job}
	}
	return w.resume(state)
}
