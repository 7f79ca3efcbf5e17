package preprop

import (
	"cmp"
	"errors"
	"path/filepath"
	"slices"

	"github.com/hopfeed/hopfeed/format"
	"github.com/hopfeed/hopfeed/internal/dtype"
	"github.com/hopfeed/hopfeed/internal/vfs"
	"github.com/hopfeed/hopfeed/preprop/engine"
	"github.com/hopfeed/hopfeed/preprop/product"
)

// Status is how far a propagation is.
type Status struct {
	Store      string `json:"store"`
	Complete   bool   `json:"complete"`   // there is a store that can be read
	Unfinished bool   `json:"unfinished"` // a job has begun, and has not published its results
	Running    bool   `json:"running"`    // a process is working on the job
	Tasks      bool   `json:"tasks"`      // the job is divided into tasks; whether one is running is not known
	Operators  string `json:"operators"`  // of the unfinished job
	Rows       int64  `json:"rows"`
	Features   int    `json:"features"`
	// The job's matrices, and how many of them are finished; the columns of all matrices together, and how many of
	// them are finished, in the store or in result files.
	Matrices    int   `json:"matrices"`
	Finished    int   `json:"finished"`
	Columns     int64 `json:"columns"`
	DoneColumns int64 `json:"done_columns"`
	Bytes       int64 `json:"bytes"`   // on disk, scratch files included
	Uploads     int   `json:"uploads"` // to a bucket, that a killed process has left; the next job aborts them
}

// JobStatus tells how far the job of a store is. It takes no locks and changes nothing. scratch is the name of
// Options.Scratch on this machine, if it differs from the recorded one.
func JobStatus(fsys vfs.FS, storeDir, scratch string) (*Status, error) {
	job, err := format.JobStatus(fsys, storeDir)
	if err != nil {
		return nil, err
	}
	s := &Status{Store: storeDir, Complete: job.Published, Unfinished: job.Unfinished, Running: job.Running,
		Bytes: job.Bytes}
	if bucket, ok := fsys.(interface {
		Uploads(path string) (int, error)
	}); ok {
		if s.Uploads, err = bucket.Uploads(storeDir); err != nil {
			return nil, err
		}
	}
	if s.Tasks, err = format.HasTasks(fsys, storeDir); err != nil {
		return nil, err
	}
	t, err := parseTarget(job.Text)
	if !job.Unfinished || err != nil {
		return s, nil // nothing more is known of a job that is no propagation
	}
	s.Operators, s.Rows, s.Features = t.operators(), t.StoredRows, t.Features
	matrices := t.matrices()
	s.Matrices = len(matrices)
	for _, id := range matrices {
		s.Columns += int64(t.width(id))
	}
	inside := scratchInStore(storeDir)
	folder := inside
	at, err := readScratchRecord(fsys, storeDir)
	if err == nil && at != nil && at.Parent != "" {
		folder = at.folder(cmp.Or(scratch, at.Parent))
	}
	if s.Tasks {
		folder = filepath.Join(storeDir, filepath.FromSlash(format.TasksFolder))
	}
	bytes, usedErr := usedBytes(fsys, folder)
	s.Bytes += bytes
	dt, parseErr := dtype.Parse(t.DType)
	if err := errors.Join(err, usedErr, parseErr); err != nil {
		return nil, err
	}
	var before []format.MatrixID
	if job.Extends {
		d, err := format.OpenStore(fsys, storeDir)
		if err != nil {
			return nil, err
		}
		before = d.Matrices()
		if err := d.Close(); err != nil {
			return nil, err
		}
	}
	for k, files := range engine.ResultFiles(fsys, folder, t.widths(), t.StoredRows, nil, dt) {
		width := t.width(matrices[k])
		s.DoneColumns += int64(width)
		if job.Has(matrices[k]) || slices.Contains(before, matrices[k]) {
			s.Finished++
			continue
		}
		if err := files.Find(); err != nil {
			return nil, err
		}
		for _, rest := range product.Missing(product.ColumnRange{First: 0, End: width}, files.Have) {
			s.DoneColumns -= int64(rest.Width())
		}
	}
	return s, nil
}
