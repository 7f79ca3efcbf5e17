package preprop

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/hopfeed/hopfeed/format"
	"github.com/hopfeed/hopfeed/internal/vfs"
	"github.com/hopfeed/hopfeed/preprop/engine"
	"github.com/hopfeed/hopfeed/preprop/product"
)

// partOf is a part of a matrix that a task writes.
type partOf struct {
	id format.MatrixID
	k  int
}

// parts lists what task write-i writes.
func (t *taskJob) parts(i int) (out []partOf) {
	n := 0
	for _, id := range t.madeMatrices() {
		for k := range t.layout.Of(id).Parts() {
			if n%t.options.Tasks == i {
				out = append(out, partOf{id, k})
			}
			n++
		}
	}
	return out
}

// write writes parts of the store.
func (t *taskJob) write(ctx context.Context, i int) (done bool, err error) {
	if err := t.known(); err != nil {
		return false, err
	}
	job, err := format.OpenTasks(t.fsys.FS, t.storeDir)
	if err != nil {
		return false, err
	}
	matrices := t.target.matrices()
	results, err := t.results(nil)
	if err != nil {
		return false, err
	}
	done = true
	for _, p := range t.parts(i) {
		if has, err := job.HasPart(p.id, p.k); err != nil {
			return false, err
		} else if has {
			continue
		}
		done = false
		if err := t.writePart(ctx, job, p, &results[slices.Index(matrices, p.id)]); err != nil {
			return false, err
		}
	}
	return done, nil
}

func (t *taskJob) writePart(ctx context.Context, job *format.Tasks, p partOf, files *engine.ColumnFiles) error {
	if gaps := product.Missing(product.ColumnRange{First: 0, End: t.target.width(p.id)}, files.Have); len(gaps) > 0 {
		return fmt.Errorf("%s: %w: the tasks hops must run first: %s of %s are not computed", t.storeDir, ErrOptions,
			gaps[0], p.id)
	}
	out, err := job.Part(p.id, p.k)
	if err != nil {
		return err
	}
	defer out.Abort()
	first, end := t.layout.Of(p.id).PartRows(p.k)
	if err := files.WriteRows(ctx, p.id, first, end, t.options.Threads, t.options.Progress, out.Write); err != nil {
		return err
	}
	return out.Commit()
}

// publish publishes the store.
func (t *taskJob) publish(ctx context.Context, _ int) (done bool, err error) {
	if err := t.known(); err != nil {
		return false, err
	}
	job, err := format.OpenTasks(t.fsys.FS, t.storeDir)
	if err != nil {
		return false, err
	}
	for _, id := range t.madeMatrices() {
		if err := job.Finish(id); err != nil {
			return false, notYet(err)
		}
	}
	t.options.publishes = true
	store, err := t.createAlone(ctx)
	if errors.Is(err, errStoreChanged) {
		return true, nil // another process has published it
	}
	if err != nil {
		return false, err
	}
	if t.existing == nil && !store.HasRowsOf(&t.graph.Manifest) { // its file was lost
		if err = t.chooseRows(ctx); err == nil {
			err = store.Rows(t.table)
		}
	}
	if err == nil {
		err = t.publishStore(store)
	}
	if err != nil {
		err = errors.Join(err, store.Suspend())
	}
	return false, err
}

// createAlone is create. While another process holds the lock of the job, it waits.
func (t *taskJob) createAlone(ctx context.Context) (*format.Writer, error) {
	for pause := 5 * time.Millisecond; ; pause = min(2*pause, time.Second) {
		store, err := t.create()
		if !errors.Is(err, vfs.ErrLocked) {
			return store, err
		}
		select {
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		case <-time.After(pause):
		}
	}
}
