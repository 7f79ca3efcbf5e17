package engine

import (
	"context"
	"time"

	"github.com/hopfeed/hopfeed/internal/parallel"
	"github.com/hopfeed/hopfeed/internal/pipeline"
	"github.com/hopfeed/hopfeed/internal/progress"
	"github.com/hopfeed/hopfeed/preprop/plan"
	"github.com/hopfeed/hopfeed/preprop/product"
)

// writeback writes the matrices of a job, one at a time, beside what is computed or read meanwhile:
// hop r beside hop r+1, the last hop of a panel beside the input of the next. Nobody changes a matrix
// that is being written (engine.mayChange).
type writeback struct {
	stages  *pipeline.Pipeline
	buffers *product.Buffers
	matrix  *product.Matrix // that is being written, with the columns that it has then; nil: none
	started time.Time
	written chan written // when it is
}

type written struct {
	err  error
	took time.Duration
}

// close ends the write on its way, if any.
func (b *writeback) close() error {
	if b.stages == nil {
		return nil
	}
	b.stages.Close()
	return b.buffers.Free()
}

// write begins to write a matrix, or a range of its columns, if any of these are unfinished. It first waits
// for the matrix before.
func (e *engine) write(m *product.Matrix) error {
	if err := e.finishWrite(); err != nil || !e.unfinished(m.ID, m.Columns()) {
		return err
	}
	if e.Unwritten {
		e.wrote(m, e.Pace.Clock())
		return nil
	}
	if e.back.stages == nil {
		rows, row := int64(len(e.Nodes)), int64(e.panelColumns*e.DType.Size())
		buffers := plan.StoreBuffers(rows, row, e.Threads)
		if e.Direct == nil {
			buffers = plan.ResultBuffers(rows, int64(e.Results[0].features*e.DType.Size()), row, e.Threads)
		}
		var err error
		if e.back.buffers, err = product.NewBuffers(buffers.Count, buffers.Bytes); err != nil {
			return err
		}
		// A job that is interrupted finishes the write on its way, since a checkpoint would take as long: stages do
		// not end with the job's context.
		e.back.stages, e.back.written = pipeline.New(context.Background()), make(chan written, 1)
	}
	now := *m
	e.back.matrix, e.back.started = &now, e.Pace.Clock()
	e.back.stages.Go("write", func(w *pipeline.Worker) {
		start := time.Now()
		err := e.writeFile(w.Context(), &now, e.back.buffers)
		e.back.written <- written{err, time.Since(start)}
	})
	return nil
}

// finishWrite waits until the matrix that is being written, if any, is on disk.
func (e *engine) finishWrite() error {
	m := e.back.matrix
	if m == nil {
		return nil
	}
	e.back.matrix = nil
	start := time.Now()
	result := <-e.back.written
	e.Account.Waiting += time.Since(start).Seconds()
	e.Account.Writing += result.took.Seconds()
	if result.err != nil {
		return result.err
	}
	e.wrote(m, e.back.started)
	return nil
}

// mayChange waits until a matrix is not being written.
func (e *engine) mayChange(m *product.Matrix) error {
	if e.back.matrix == nil || m == nil || e.back.matrix.Buf != m.Buf {
		return nil
	}
	return e.finishWrite()
}

// writingBytes is how many bytes of the matrix that is being written may be missing on disk.
func (e *engine) writingBytes() int64 {
	if e.back.matrix == nil {
		return 0
	}
	return int64(len(e.Nodes)) * e.back.matrix.RowBytes()
}

// writeFile writes a matrix to the store, or a range of its columns to a result file. It may run beside anything that
// does not change the matrix.
func (j *Job) writeFile(ctx context.Context, m *product.Matrix, b *product.Buffers) error {
	if j.Direct == nil {
		out, err := j.Results[j.number(m.ID)].create(m.Columns())
		if err != nil {
			return err
		}
		defer out.Close()
		if err := j.gather(ctx, m, out.bounds, b, out.write); err != nil {
			return err
		}
		return out.commit()
	}
	rows := int64(len(j.Nodes))
	task := j.Progress.Start("write "+m.ID.String(), rows*m.RowBytes(), progress.Bytes)
	defer task.Done()
	out, err := j.Direct.Matrix(m.ID)
	if err != nil {
		return err
	}
	bounds := evenBounds(rows, plan.WriteStep(rows, m.RowBytes(), j.Threads))
	if err := j.gather(ctx, m, bounds, b, func(group []byte) error {
		task.Add(int64(len(group)))
		return out.Write(group)
	}); err != nil {
		return err
	}
	return out.Close()
}

// gather calls emit with the rows of the store, one group [bounds[k], bounds[k+1]) after another.
func (j *Job) gather(ctx context.Context, m *product.Matrix, bounds []int64, b *product.Buffers,
	emit func([]byte) error) error {
	var held [][]byte // which parallel.Ordered keeps
	defer func() {
		for _, buffer := range held {
			b.Put(buffer)
		}
	}()
	take := func() []byte {
		held = append(held, b.Get())
		return held[len(held)-1]
	}
	return parallel.Ordered(ctx, j.Threads, int64(len(bounds)-1), take, func(k int64, buffer []byte) ([]byte, error) {
		return j.rows(buffer, m, bounds[k], bounds[k+1]), nil
	}, emit)
}

// rows copies rows [first, end) of the store to dst, without what the nodes' own labels add to them, and changes them.
func (j *Job) rows(dst []byte, m *product.Matrix, first, end int64) []byte {
	dst = m.Gather(dst, j.Nodes[first:end])
	if j.Labels != nil {
		j.Labels.Clean(j.own, m.ID, dst, m.Columns(), first, end)
	}
	if j.Change != nil {
		j.Change(dst, m.Columns(), first, end)
	}
	return dst
}
