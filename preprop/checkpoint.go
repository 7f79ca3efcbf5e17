package preprop

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"slices"

	"github.com/hopfeed/hopfeed/format"
	"github.com/hopfeed/hopfeed/internal/folder"
	"github.com/hopfeed/hopfeed/internal/parallel"
)

// position tells how far a panel is within a hop: rows [0, row) of one of its products are
// computed.
type position struct {
	matrix  int // index of the hop in job.matrices
	product int // from 1; one more than the hop has: all of them are computed
	row     int64
}

// before tells whether a panel reaches p before q.
func (p position) before(q position) bool {
	return p.matrix < q.matrix || p.matrix == q.matrix && (p.product < q.product || p.product == q.product && p.row < q.row)
}

// checkpoint is a scratch file with what a panel needs to go on from a position: rows of
// up to three matrices [nodes, columns], one matrix after another, in blocks of whole rows
// with checksums, as in a column file. Its name tells position and columns, which decide
// its layout.
type checkpoint struct {
	position
	columnRange
}

func (j *job) checkpointPath(c checkpoint) string {
	return filepath.Join(j.scratch, fmt.Sprintf("checkpoint-%d-%d-%d-%d-%d%s", c.matrix, c.product, c.row, c.first, c.end, folder.Suffix))
}

// findCheckpoints lists the checkpoints in the scratch folder by their names. Their
// contents are checked when they are read.
func (j *job) findCheckpoints() ([]checkpoint, error) {
	entries, err := j.fsys.ReadDir(j.scratch)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	var out []checkpoint
	for _, e := range entries {
		var c checkpoint
		n, _ := fmt.Sscanf(e.Name(), "checkpoint-%d-%d-%d-%d-%d", &c.matrix, &c.product, &c.row, &c.first, &c.end)
		if n == 5 && e.Name() == filepath.Base(j.checkpointPath(c)) && c.first >= 0 && c.width() > 0 {
			out = append(out, c)
		}
	}
	return out, nil
}

// savedMatrix is a matrix, of which a checkpoint has the first rows.
type savedMatrix struct {
	m    *matrix
	rows int64
}

// savedMatrices are what a checkpoint must have to go on from a position of a hop from x
// to y: all of y where its products are finished, else all of x, all of the last product,
// and the rows that are computed of the next.
func (e *engine) savedMatrices(terms series, at position, x, y *matrix) []savedMatrix {
	n := e.graph.Manifest.Nodes
	if at.product > terms.products() {
		return []savedMatrix{{y, n}}
	}
	dst, src, _ := terms.step(at.product, x, y, e.seriesBuffers)
	out := []savedMatrix{{x, n}}
	if src != x {
		out = append(out, savedMatrix{src, n})
	}
	return append(out, savedMatrix{dst, at.row})
}

// savedBlock is the rows [first, end) of a matrix that a checkpoint has.
type savedBlock struct {
	matrix     int // index
	first, end int64
}

// checkpointLayout is the layout of a checkpoint of matrices with width columns, with
// bytes in place of rows, and what each block has.
func checkpointLayout(matrices []savedMatrix, width int) (columnFileLayout, []savedBlock) {
	layout := columnFileLayout{bounds: []int64{0}, rowBytes: 1}
	var blocks []savedBlock
	for i, s := range matrices {
		rowBytes := int64(width * s.m.dtype.Size())
		step := columnFileBlockRows(rowBytes)
		for row := int64(0); row < s.rows; row += step {
			end := min(s.rows, row+step)
			blocks = append(blocks, savedBlock{i, row, end})
			layout.bounds = append(layout.bounds, layout.bounds[len(layout.bounds)-1]+(end-row)*rowBytes)
		}
	}
	return layout, blocks
}

// saveCheckpoint writes a checkpoint, and removes the earlier ones of the same columns. The matrices before
// its own must be on disk first: a job that goes on from it does not write them.
func (e *engine) saveCheckpoint(ctx context.Context, at position, matrices []savedMatrix) error {
	if err := e.finishWrite(); err != nil {
		return err
	}
	if err := e.removeFinishedCheckpoints(); err != nil {
		return err
	}
	c := checkpoint{at, e.hopBuffers[0].columns()}
	layout, blocks := checkpointLayout(matrices, c.width())
	start := e.pace.clock()
	out, err := createColumnFile(e.fsys, e.checkpointPath(c), layout)
	if err != nil {
		return err
	}
	defer out.Close()
	for _, b := range blocks {
		if err := context.Cause(ctx); err != nil {
			return err
		}
		if err := out.write(matrices[b.matrix].m.rows(b.first, b.end)); err != nil {
			return err
		}
	}
	if err := out.commit(); err != nil {
		return err
	}
	e.pace.measureRate(layout.size(), start)
	e.pace.saved(e.pace.clock())
	replaced := func(other checkpoint) bool { return other.columnRange == c.columnRange && other != c }
	if err := e.removeCheckpoints(replaced); err != nil {
		return err
	}
	if !slices.Contains(e.checkpoints, c) {
		e.checkpoints = append(e.checkpoints, c)
	}
	return nil
}

func (j *job) removeCheckpoints(which func(checkpoint) bool) error {
	var err error
	j.checkpoints = slices.DeleteFunc(j.checkpoints, func(c checkpoint) bool {
		if !which(c) {
			return false
		}
		if remove := j.fsys.Remove(j.checkpointPath(c)); !errors.Is(remove, fs.ErrNotExist) { // a damaged one was removed when it was read
			err = errors.Join(err, remove)
		}
		return true
	})
	return err
}

// removeFinishedCheckpoints removes the checkpoints whose columns are finished in all
// matrices.
func (j *job) removeFinishedCheckpoints() error {
	return j.removeCheckpoints(func(c checkpoint) bool {
		return !slices.ContainsFunc(j.matrices, func(id format.MatrixID) bool { return j.unfinished(id, c.columnRange) })
	})
}

// resume finds the position up to which the hops of a sequence, at most up to last, are
// computed of a panel's columns, and loads what it takes to go on from there: x is the
// input of the hop, y the hop. If there is nothing to go on with, x is nil.
func (e *engine) resume(ctx context.Context, c *hopSequence, s columnRange, last int) (at position, x, y *matrix, err error) {
	if last == 0 || c.input.ID == format.Input && e.unfinished(format.Input, s) {
		return at, nil, nil, nil
	}
	done := c.from // last of the hops that are finished
	for done < last && !e.unfinished(c.id(done+1), s) {
		done++
	}
	x, y = e.hopBuffers[0], e.hopBuffers[1]
	terms := c.operator.series()
	var best checkpoint
	for _, p := range e.checkpoints {
		// A checkpoint within a finished hop is of use too: a store of some rows cannot be read back in its place.
		mine := e.number(c.id(c.from+1)) <= p.matrix && p.matrix <= e.number(c.id(done+1)) &&
			p.product >= 1 && p.product <= terms.products()+1 && p.row >= 0 && p.row <= e.graph.Manifest.Nodes
		if mine && p.first <= s.first && s.end <= p.end && best.before(p.position) {
			best = p
		}
	}
	readable := done > c.from && int64(len(e.nodes)) == e.graph.Manifest.Nodes
	if best.product > 0 && (best.matrix == e.number(c.id(done+1)) || !readable) {
		if err := e.finishWrite(); err != nil {
			return at, nil, nil, err
		}
		err = e.loadCheckpoint(ctx, best, e.savedMatrices(terms, best.position, x, y))
		if err == nil {
			x.id = c.id(c.from + best.matrix - e.number(c.id(c.from+1)))
			return best.position, x, y, nil
		}
		if !errors.Is(err, format.ErrCorrupt) {
			return at, nil, nil, err
		} // it was removed, and its rows are computed again
	}
	if !readable {
		return at, nil, nil, nil
	}
	if err := e.mayChange(x); err != nil {
		return at, nil, nil, err
	}
	if loaded, err := e.loadFinishedHop(ctx, c.id(done), x); err != nil || !loaded {
		return at, nil, nil, err
	}
	return position{e.number(c.id(done + 1)), 1, 0}, x, y, nil
}

// loadCheckpoint reads the columns of matrices from a checkpoint that has at least these.
func (e *engine) loadCheckpoint(ctx context.Context, c checkpoint, matrices []savedMatrix) error {
	layout, blocks := checkpointLayout(matrices, c.width())
	file, err := openColumnFile(e.fsys, e.checkpointPath(c), layout)
	if err != nil {
		return err
	}
	defer file.Close()
	buffers, err := newBuffers(e.Threads, e.checkpointBuffer(matrices, c.columnRange))
	if err != nil {
		return err
	}
	defer buffers.Free()
	return parallel.For(ctx, e.Threads, int64(len(blocks)), 1, func(k, _ int64) error {
		b := blocks[k]
		m := matrices[b.matrix].m
		if m.columns() == c.columnRange {
			_, err := file.readBlock(int(k), m.rows(b.first, b.end))
			return err
		}
		buffer := buffers.get()
		defer buffers.put(buffer)
		data, err := file.readBlock(int(k), buffer)
		if err != nil {
			return err
		}
		size := m.dtype.Size()
		stride, from := c.width()*size, (m.first-c.first)*size
		for row := b.first; row < b.end; row++ {
			copy(m.rows(row, row+1), data[int(row-b.first)*stride+from:])
		}
		return nil
	})
}

// checkpointBuffer is the size in bytes of the largest block of a checkpoint whose columns
// are not all wanted: such blocks are read into a buffer first. of are its columns.
func (e *engine) checkpointBuffer(matrices []savedMatrix, of columnRange) int64 {
	most := int64(0)
	for _, s := range matrices {
		if s.m.columns() != of {
			rowBytes := int64(of.width() * s.m.dtype.Size())
			most = max(most, columnFileBlockRows(rowBytes)*rowBytes)
		}
	}
	return most
}

// loadFinishedHop fills m with its columns of a finished hop of a store of all nodes: from
// the parts of the store, or from result files. It loads nothing where another process
// writes the store.
func (e *engine) loadFinishedHop(ctx context.Context, id format.MatrixID, m *matrix) (loaded bool, err error) {
	m.id = id
	if !e.finished[id] {
		k := e.number(id)
		return true, loadColumnFiles(ctx, m, e.fsys, e.resultColumns[k], e.nodes, func(s columnRange) string { return e.results.path(k, s) }, e.results.layout, e.Threads, e.Progress)
	}
	if e.store == nil {
		return false, nil
	}
	stored, err := e.store.OpenFinished(id)
	if err != nil {
		return false, err
	}
	defer stored.Close()
	in := &input{Matrix: stored, nodes: e.nodes, dtype: e.DType}
	return true, in.load(ctx, m, e.Threads, e.Progress)
}

// checkpointsCost is what checkpoints take, which there are until the last panel is done. The memory is
// that of writebackCost.
func (w *work) checkpointsCost(p *Plan) cost {
	return cost{scratch: during(computing, lastPanel, p.CheckpointBytes)}
}

// checkpointBytes is the most bytes of disk that checkpoints take: two of a panel with
// this many columns, as one is written before the other is removed.
func (w *work) checkpointBytes(columns int) int64 {
	if len(w.sequences) == 0 {
		return 0
	}
	hops, series := panelMatrices(w.sequences, w.stored.DType, false)
	return 2 * w.nodes * int64(columns*(hops*w.stored.DType.Size()+4*series))
}
