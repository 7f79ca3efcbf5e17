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
	"github.com/hopfeed/hopfeed/internal/vfs"
)

// Shards share a store's directory. One holds the lock of the whole job for a moment
// as it starts, and as it looks, at its end, whether all columns are there; if so it
// keeps the lock, assembles and publishes. Meanwhile it holds a lock of its own.

const lockSuffix = ".lock"

// name is that of files of its own.
func (s Shard) name() string { return fmt.Sprintf("shard-%d-of-%d", s.Index, s.Count) }

// runningShards is those whose processes are alive, as 0-of-4.
func runningShards(fsys vfs.FS, folder string) ([]string, error) {
	entries, err := fsys.ReadDir(folder)
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
		locked, lockErr := fsys.Locked(filepath.Join(folder, e.Name()))
		if err = errors.Join(err, lockErr); locked {
			out = append(out, name)
		}
	}
	return out, err
}

// How long a shard waits for the lock of the job, which others hold for a moment, but
// for the first, which writes the rows, and the last, which assembles.
const (
	startWait  = 10 * time.Minute
	finishWait = 20 * time.Second
)

// createShared is create for a shard. Where another process has the job for longer
// than most, the error is vfs.ErrLocked.
func (s *site) createShared(ctx context.Context, most time.Duration) (*format.Writer, error) {
	pause := 5 * time.Millisecond
	for waited := time.Duration(0); ; waited += pause {
		store, err := s.create()
		if !errors.Is(err, vfs.ErrLocked) || waited > most {
			return store, err
		}
		select {
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		case <-time.After(pause):
		}
		pause = min(2*pause, 200*time.Millisecond)
	}
}

// runShard makes the columns of one shard, and the store if no others are missing.
func (s *site) runShard(ctx context.Context, j *job, r *Result) error {
	store, err := s.createShared(ctx, startWait)
	if err != nil {
		return err
	}
	s.planned(j)
	if err := s.open(j, store); err != nil {
		return errors.Join(err, store.Suspend())
	}
	if err := s.noOthers(); err != nil {
		return errors.Join(err, store.Suspend())
	}
	folder, err := store.Scratch()
	if err != nil {
		return errors.Join(err, store.Suspend())
	}
	lock, err := s.fsys.Lock(filepath.Join(folder, s.o.Shard.name()+lockSuffix))
	if errors.Is(err, vfs.ErrLocked) {
		err = fmt.Errorf("%s: shard %d of %d is at work already: %w", s.storeDir, s.o.Shard.Index, s.o.Shard.Count, err)
	}
	if err != nil {
		return errors.Join(err, store.Suspend())
	}
	defer func() {
		if lock != nil {
			lock.Close()
		}
	}()
	r.Resumed = s.anyFinished(store, j) || j.anyPieces()
	if err := store.Suspend(); err != nil {
		return err
	}
	if err := j.run(ctx); errors.Is(err, ErrInvalid) {
		return err
	} else if err != nil {
		return fmt.Errorf("%s: %w: %w", s.storeDir, err, ErrUnfinished)
	}
	err, lock = lock.Close(), nil
	if err != nil {
		return err
	}
	return s.finishShards(ctx, j, r)
}

// finishShards assembles if all columns are there.
func (s *site) finishShards(ctx context.Context, j *job, r *Result) error {
	store, err := s.createShared(ctx, finishWait)
	switch {
	case errors.Is(err, vfs.ErrLocked):
		return nil // who holds it assembles, or begins, and will look in turn
	case errors.Is(err, format.ErrExists):
		r.Published = true
		return nil
	case err != nil:
		return err
	}
	if s.grown == nil { // its rows were let go
		err = s.chooseRows(ctx)
	}
	if err = errors.Join(err, s.open(j, store)); err != nil {
		return errors.Join(err, store.Suspend())
	}
	all := span{0, s.layout.Features}
	for k, id := range j.matrices {
		if !j.finished[id] && len(missing(all, j.have[k])) > 0 {
			return store.Suspend()
		}
	}
	if err := s.finish(ctx, j, store, r); err != nil {
		return errors.Join(err, store.Suspend())
	}
	return nil
}
