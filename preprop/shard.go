package preprop

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"strings"
	"time"

	"github.com/hopfeed/hopfeed/format"
	"github.com/hopfeed/hopfeed/internal/folder"
	"github.com/hopfeed/hopfeed/internal/vfs"
	"github.com/hopfeed/hopfeed/preprop/engine"
	"github.com/hopfeed/hopfeed/preprop/product"
)

// Shards share the directory of a store. Each holds the lock of the job for a moment when it starts, and again when
// it has finished, to see whether all columns are there; if they are, it keeps the lock, assembles the matrices and
// publishes the store. In between it holds a lock of its own.

const lockSuffix = folder.LockSuffix

// unshardedLock is held, beside the lock of the job, by a job without shards. A shard that finds it held fails at
// once instead of waiting.
const unshardedLock = "whole" + lockSuffix

// name is part of the names of the shard's lock and records.
func (s Shard) name() string { return fmt.Sprintf("shard-%d-of-%d", s.Index, s.Count) }

// runningShards lists the shards whose locks are held, such as 0-of-4.
func runningShards(fsys vfs.FS, scratch string) ([]string, error) {
	entries, err := fsys.ReadDir(scratch)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	var out []string
	for _, e := range entries {
		name, isShard := strings.CutPrefix(e.Name(), "shard-")
		name, isLock := strings.CutSuffix(name, lockSuffix)
		if !isShard || !isLock {
			continue
		}
		locked, lockErr := fsys.Locked(filepath.Join(scratch, e.Name()))
		if err = errors.Join(err, lockErr); locked {
			out = append(out, name)
		}
	}
	return out, err
}

// How long a shard waits for the lock of the job. Shards hold it for a moment, except for the first, which writes the
// rows, and the last, which assembles.
const (
	startWait  = 10 * time.Minute
	finishWait = 20 * time.Second
)

// createAsShard is create for a shard: while another process holds the lock of the job, it waits, and fails with
// vfs.ErrLocked after the time most.
func (s *jobContext) createAsShard(ctx context.Context, most time.Duration) (*format.Writer, error) {
	pause := 5 * time.Millisecond
	for waited := time.Duration(0); ; waited += pause {
		store, err := s.create()
		if !errors.Is(err, vfs.ErrLocked) || errors.Is(err, errBusy) || waited > most {
			return store, err
		}
		if whole, lockErr := s.fsys.Locked(filepath.Join(scratchInStore(s.storeDir), unshardedLock)); lockErr != nil ||
			whole {
			return nil, errors.Join(fmt.Errorf("a propagation without --shard is running: %w", err), lockErr)
		}
		select {
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		case <-time.After(pause):
		}
		pause = min(2*pause, 200*time.Millisecond)
	}
}

// runShard makes the columns of one shard, and assembles the store if all others are there.
func (s *jobContext) runShard(ctx context.Context, j *engine.Job, r *Result) error {
	if vfs.IsURL(s.storeDir) {
		return fmt.Errorf("%s: %w: shards share scratch files, which a store in a bucket has on the local disk (propagate "+
			"to a folder that all machines see, or without --shard)", s.storeDir, ErrOptions)
	}
	store, err := s.createAsShard(ctx, startWait)
	if err != nil {
		return err
	}
	s.options.Planned(j.Plan)
	lock, err := s.begin(j, store, r, s.options.Shard.name()+lockSuffix)
	if errors.Is(err, vfs.ErrLocked) {
		err = fmt.Errorf("%s: shard %d of %d is running already: %w", s.storeDir, s.options.Shard.Index,
			s.options.Shard.Count, err)
	}
	suspended := store.Suspend()
	if err != nil {
		return errors.Join(err, suspended)
	}
	if suspended != nil {
		return errors.Join(suspended, lock.Close())
	}
	err = j.Run(ctx)
	switch {
	case errors.Is(err, ErrInvalid):
	case err != nil:
		err = fmt.Errorf("%s: %w: %w", s.storeDir, s.explainEarlyEnd(ctx, j, err), ErrUnfinished)
	default:
		err = s.recordDoneColumns(j.Columns)
	}
	if err = errors.Join(err, lock.Close()); err != nil {
		return err
	}
	return s.finishShards(ctx, j, r)
}

// finishShards assembles the store if all columns are there.
func (s *jobContext) finishShards(ctx context.Context, j *engine.Job, r *Result) error {
	store, err := s.createAsShard(ctx, finishWait)
	switch {
	case errors.Is(err, vfs.ErrLocked):
		return nil // the holder assembles the store, or will look for all columns when it finishes
	case errors.Is(err, errStoreChanged):
		r.Complete = true // another has assembled it
		return nil
	case err != nil:
		return err
	}
	if s.existing == nil { // the row table was freed once it was written
		err = s.chooseRows(ctx)
	}
	recorded, readErr := s.recordedColumns() // before their files are looked for: others may finish at any moment
	if err = errors.Join(err, readErr); err == nil {
		err = s.findProgress(j, store)
	}
	if err != nil {
		return errors.Join(err, store.Suspend())
	}
	all := product.ColumnRange{First: 0, End: s.layout.Features}
	for _, id := range j.Matrices {
		if unfinished := j.Missing(id, all); len(unfinished) > 0 {
			return errors.Join(s.checkSeen(j, unfinished, recorded), store.Suspend())
		}
	}
	if err := s.finish(ctx, j, store, r); err != nil {
		return errors.Join(err, store.Suspend())
	}
	return nil
}
