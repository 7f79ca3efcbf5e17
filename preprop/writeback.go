package preprop

import (
	"context"
	"time"

	"github.com/hopfeed/hopfeed/internal/pipeline"
	"github.com/hopfeed/hopfeed/internal/vfs"
)

// writeback writes the matrices of a job, one at a time, beside what is computed or read meanwhile:
// hop r beside hop r+1, the last hop of a panel beside the input of the next. Nobody changes a matrix
// that is being written (engine.mayChange).
type writeback struct {
	stages  *pipeline.Pipeline
	buffers *buffers
	matrix  *matrix // that is being written, with the columns that it has then; nil: none
	started time.Time
	written chan written // when it is
}

type written struct {
	err  error
	took time.Duration
}

// start allocates the buffers, which are used for all matrices. A job that is interrupted finishes the write
// on its way, since a checkpoint would take as long: stages do not end with the job's context.
func (b *writeback) start(w writeBuffers) (err error) {
	if b.buffers, err = newBuffers(w.count, w.bytes); err == nil {
		b.stages, b.written = pipeline.New(context.Background()), make(chan written, 1)
	}
	return err
}

// close ends the write on its way, if any.
func (b *writeback) close() error {
	if b.stages == nil {
		return nil
	}
	b.stages.Close()
	return b.buffers.Free()
}

// writeBuffers is the number and size of the buffers that matrices go to files through.
type writeBuffers struct {
	count int
	bytes int64
}

func (b writeBuffers) total() int64 { return int64(b.count) * b.bytes }

// storeBuffers are those for whole matrices, and resultBuffers those for column files.
func storeBuffers(rows, rowBytes int64, threads int) writeBuffers {
	return writeBuffers{threads + 1, writeStep(rows, rowBytes, threads) * rowBytes}
}

// writeBuffers are those of a job with panels of so many columns.
func (j *job) writeBuffers(panelColumns int) writeBuffers {
	rows, size := int64(len(j.nodes)), int64(j.DType.Size())
	if j.direct != nil {
		return storeBuffers(rows, int64(panelColumns)*size, j.Threads)
	}
	return resultBuffers(rows, int64(j.results.features)*size, int64(panelColumns)*size, j.Threads)
}

func resultBuffers(rows, matrixRowBytes, rowBytes int64, threads int) writeBuffers {
	return writeBuffers{threads + 1, columnFileBlock(rows, matrixRowBytes, rowBytes)}
}

// writebackCost is what writing matrices takes beside other things, from the first hop on, or while the
// input of another panel or sequence is read: buffers, and the stream of a file (or of a checkpoint, which
// waits for it).
func (w *work) writebackCost(p *Plan) cost {
	row, width := w.storedRowBytes(), int64(p.PanelColumns*w.stored.DType.Size())
	b, file := storeBuffers(w.rows, row, w.threads), w.matrixBytes
	if p.ResultFiles {
		b, file = resultBuffers(w.rows, row, width, w.threads), w.rows*width
	}
	first, loads := computing, 0
	for _, n := range w.loads {
		loads += n
	}
	if p.Panels > 1 || loads > 1 {
		first = loading
	}
	return cost{memory: during(first, lastPanel, b.total()+vfs.StreamBytes(max(file, p.CheckpointBytes/2)))}
}

// write begins to write a matrix, or a range of its columns, if any of these are unfinished. It first waits
// for the matrix before.
func (e *engine) write(m *matrix) error {
	if err := e.finishWrite(); err != nil || !e.unfinished(m.id, m.columns()) {
		return err
	}
	if e.receive != nil {
		e.receive(m)
		e.wrote(m, e.pace.clock())
		return nil
	}
	if e.back.stages == nil {
		if err := e.back.start(e.writeBuffers(e.panelColumns)); err != nil {
			return err
		}
	}
	now := *m
	e.back.matrix, e.back.started = &now, e.pace.clock()
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
	e.account.waiting += time.Since(start)
	e.account.writing += result.took
	if result.err != nil {
		return result.err
	}
	e.wrote(m, e.back.started)
	return nil
}

// mayChange waits until a matrix is not being written.
func (e *engine) mayChange(m *matrix) error {
	if e.back.matrix == nil || m == nil || e.back.matrix.buf != m.buf {
		return nil
	}
	return e.finishWrite()
}

// writingBytes is how many bytes of the matrix that is being written may be missing on disk.
func (e *engine) writingBytes() int64 {
	if e.back.matrix == nil {
		return 0
	}
	return int64(len(e.nodes)) * e.back.matrix.rowBytes()
}
