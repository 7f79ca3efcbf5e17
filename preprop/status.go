package preprop

import (
	"github.com/hopfeed/hopfeed/format"
	"github.com/hopfeed/hopfeed/internal/dtype"
	"github.com/hopfeed/hopfeed/internal/vfs"
)

// Status is how far a propagation is.
type Status struct {
	Store      string   `json:"store"`
	Complete   bool     `json:"complete"`   // readers find a store
	Unfinished bool     `json:"unfinished"` // a job has begun, and not published what it makes
	Running    bool     `json:"running"`    // a process is at work
	Shards     []string `json:"shards"`     // that are at work, as 0-of-4
	Operators  string   `json:"operators"`  // of the unfinished job
	Rows       int64    `json:"rows"`
	Features   int      `json:"features"`
	// Of the job's matrices, those that are finished, and how many columns of all of
	// them together are, in pieces or whole.
	Matrices    int   `json:"matrices"`
	Finished    int   `json:"finished"`
	Columns     int64 `json:"columns"`
	DoneColumns int64 `json:"done_columns"`
	Bytes       int64 `json:"bytes"` // on disk, scratch files included
}

// JobStatus tells how far the job of a store is, without disturbing it. scratch is
// Options.Scratch.
func JobStatus(fsys vfs.FS, storeDir, scratch string) (*Status, error) {
	job, err := format.JobStatus(fsys, storeDir)
	if err != nil {
		return nil, err
	}
	s := &Status{Store: storeDir, Complete: job.Published, Unfinished: job.Unfinished, Running: job.Running, Bytes: job.Bytes, Shards: []string{}}
	t, err := parseTarget(job.Text)
	if !job.Unfinished || err != nil {
		return s, nil // nothing more is known of a job that is no propagation
	}
	s.Operators, s.Rows, s.Features = t.operators(), t.StoredRows, t.Features
	matrices := t.matrices()
	s.Matrices, s.Columns = len(matrices), int64(len(matrices)*t.Features)
	inside := insideScratch(storeDir)
	shards, err := runningShards(fsys, inside)
	if err != nil {
		return nil, err
	}
	s.Shards = append(s.Shards, shards...)
	s.Running = s.Running || len(shards) > 0
	folder := inside
	if scratch != "" {
		if folder, err = externalScratch(fsys, scratch, storeDir, t); err != nil {
			return nil, err
		}
	}
	bytes, err := usedBytes(fsys, folder)
	if err != nil {
		return nil, err
	}
	s.Bytes += bytes
	dt, err := dtype.Parse(t.DType)
	if err != nil {
		return nil, err
	}
	p := newPieces(fsys, folder, t, dt)
	have, err := p.found()
	if err != nil {
		return nil, err
	}
	for k, id := range matrices {
		if job.Has(id) {
			s.Finished++
			s.DoneColumns += int64(t.Features)
			continue
		}
		s.DoneColumns += int64(t.Features)
		for _, rest := range missing(span{0, t.Features}, have[k]) {
			s.DoneColumns -= int64(rest.width())
		}
	}
	return s, nil
}
