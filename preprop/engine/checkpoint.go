package engine

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"slices"
	"strings"

	"github.com/hopfeed/hopfeed/format"
	"github.com/hopfeed/hopfeed/internal/folder"
	"github.com/hopfeed/hopfeed/internal/parallel"
	"github.com/hopfeed/hopfeed/preprop/operator"
	"github.com/hopfeed/hopfeed/preprop/plan"
	"github.com/hopfeed/hopfeed/preprop/product"
)

// position tells how far a panel is within a hop: rows [0, row) of one of its products are computed.
type position struct {
	matrix  int // index of the hop in job.matrices
	product int // from 1; products+1: all are computed
	row     int64
}

// before tells whether a panel reaches p before q.
func (p position) before(q position) bool {
	return p.matrix < q.matrix || p.matrix == q.matrix &&
		(p.product < q.product || p.product == q.product && p.row < q.row)
}

// checkpoint is a scratch file with what a panel needs to go on from a position: rows of up to three matrices [nodes,
// columns], one matrix after another, in groups of whole rows with checksums, as in a column file. Its name tells
// position and columns, which decide its layout.
type checkpoint struct {
	position
	product.ColumnRange
}

func (j *Job) checkpointPath(c checkpoint) string {
	return filepath.Join(j.Scratch, fmt.Sprintf("checkpoint-%s%d-%d-%d-%d-%d%s", j.Name, c.matrix, c.product, c.row,
		c.First, c.End, folder.Suffix))
}

// FindCheckpoints lists the checkpoints in the scratch folder by their names. Their contents are checked when they
// are read.
func (j *Job) FindCheckpoints() ([]checkpoint, error) {
	entries, err := j.Fsys.ReadDir(j.Scratch)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	var out []checkpoint
	for _, e := range entries {
		var c checkpoint
		rest, _ := strings.CutPrefix(e.Name(), "checkpoint-"+j.Name)
		n, _ := fmt.Sscanf(rest, "%d-%d-%d-%d-%d", &c.matrix, &c.product, &c.row, &c.First, &c.End)
		if n == 5 && e.Name() == filepath.Base(j.checkpointPath(c)) && c.First >= 0 && c.Width() > 0 {
			out = append(out, c)
		}
	}
	return out, nil
}

// savedMatrix is a matrix whose first rows are in a checkpoint.
type savedMatrix struct {
	m    *product.Matrix
	rows int64
}

// savedMatrices are the matrices that a checkpoint needs to go on from a position of a hop from x to y: y, if its
// products are finished; else x, the last product, and the computed rows of the next product.
func (e *engine) savedMatrices(terms operator.Series, at position, x, y *product.Matrix) []savedMatrix {
	n := e.Graph.Manifest.Nodes
	if at.product > terms.Products() {
		return []savedMatrix{{y, n}}
	}
	dst, src := operator.Step(terms, at.product, x, y, e.seriesBuffers)
	out := []savedMatrix{{x, e.sources()}}
	if src != x {
		out = append(out, savedMatrix{src, n})
	}
	return append(out, savedMatrix{dst, at.row})
}

// savedRows is the rows [first, end) of a matrix that a checkpoint has.
type savedRows struct {
	matrix     int // index
	first, end int64
}

// checkpointLayout is the layout of a checkpoint of matrices with width columns, with bytes in place of rows, and
// what each group has.
func checkpointLayout(matrices []savedMatrix, width int) (columnFileLayout, []savedRows) {
	layout := columnFileLayout{bounds: []int64{0}, rowBytes: 1}
	var groups []savedRows
	for i, s := range matrices {
		rowBytes := int64(width * s.m.DType.Size())
		step := plan.ColumnFileGroupRows(rowBytes)
		for row := int64(0); row < s.rows; row += step {
			end := min(s.rows, row+step)
			groups = append(groups, savedRows{i, row, end})
			layout.bounds = append(layout.bounds, layout.bounds[len(layout.bounds)-1]+(end-row)*rowBytes)
		}
	}
	return layout, groups
}

// saveCheckpoint writes a checkpoint, and removes the earlier ones of the same columns. The matrices before its own
// must be on disk first: a job that goes on from it does not write them.
func (e *engine) saveCheckpoint(ctx context.Context, at position, matrices []savedMatrix) error {
	if err := e.finishWrite(); err != nil {
		return err
	}
	if err := e.removeFinishedCheckpoints(); err != nil {
		return err
	}
	c := checkpoint{at, e.hopBuffers[0].Columns()}
	layout, groups := checkpointLayout(matrices, c.Width())
	start := e.Pace.Clock()
	out, err := createColumnFile(e.Fsys, e.checkpointPath(c), layout)
	if err != nil {
		return err
	}
	defer out.Close()
	for _, b := range groups {
		if err := context.Cause(ctx); err != nil {
			return err
		}
		if err := out.write(matrices[b.matrix].m.Rows(b.first, b.end)); err != nil {
			return err
		}
	}
	if err := out.commit(); err != nil {
		return err
	}
	e.Pace.measureRate(layout.size(), start)
	e.Pace.saved(e.Pace.Clock())
	replaced := func(other checkpoint) bool { return other.ColumnRange == c.ColumnRange && other != c }
	if err := e.removeCheckpoints(replaced); err != nil {
		return err
	}
	if !slices.Contains(e.Checkpoints, c) {
		e.Checkpoints = append(e.Checkpoints, c)
	}
	return nil
}

func (j *Job) removeCheckpoints(which func(checkpoint) bool) error {
	var err error
	j.Checkpoints = slices.DeleteFunc(j.Checkpoints, func(c checkpoint) bool {
		if !which(c) {
			return false
		}
		// a damaged one was removed when it was read
		if remove := j.Fsys.Remove(j.checkpointPath(c)); !errors.Is(remove, fs.ErrNotExist) {
			err = errors.Join(err, remove)
		}
		return true
	})
	return err
}

// removeFinishedCheckpoints removes the checkpoints whose columns are finished in all matrices.
func (j *Job) removeFinishedCheckpoints() error {
	return j.removeCheckpoints(func(c checkpoint) bool {
		return !slices.ContainsFunc(j.Matrices, func(id format.MatrixID) bool {
			return j.unfinished(id, c.ColumnRange)
		})
	})
}

// resume finds the position up to which the hops of a sequence, at most up to last, are computed of a panel's
// columns, and loads what it takes to go on from there: x is the input of the hop, y the hop. If there is nothing to
// go on with, x is nil.
func (e *engine) resume(ctx context.Context, c *HopSequence, s product.ColumnRange, last int) (at position, x,
	y *product.Matrix, err error) {
	if last == 0 || e.unfinished(c.Input.ID, s) {
		return at, nil, nil, nil
	}
	done := c.From // last of the hops that are finished
	for done < last && !e.unfinished(c.ID(done+1), s) {
		done++
	}
	x, y = e.hopBuffers[0], e.hopBuffers[1]
	terms := c.Series()
	var best checkpoint
	for _, p := range e.Checkpoints {
		// A checkpoint within a finished hop is useful too, where hops on disk cannot be read back.
		mine := e.number(c.ID(c.From+1)) <= p.matrix && p.matrix <= e.number(c.ID(done+1)) &&
			p.product >= 1 && p.product <= terms.Products()+1 && p.row >= 0 && p.row <= e.Graph.Manifest.Nodes
		if mine && p.First <= s.First && s.End <= p.End && best.before(p.position) {
			best = p
		}
	}
	readable := done > c.From && e.readsBack()
	if best.product > 0 && (best.matrix == e.number(c.ID(done+1)) || !readable) {
		if err := e.finishWrite(); err != nil {
			return at, nil, nil, err
		}
		err = e.loadCheckpoint(ctx, best, e.savedMatrices(terms, best.position, x, y))
		if err == nil {
			x.ID = c.ID(c.From + best.matrix - e.number(c.ID(c.From+1)))
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
	if loaded, err := e.loadFinishedHop(ctx, c.ID(done), x); err != nil || !loaded {
		return at, nil, nil, err
	}
	return position{e.number(c.ID(done + 1)), 1, 0}, x, y, nil
}

// loadCheckpoint reads the columns of matrices from a checkpoint that has at least these.
func (e *engine) loadCheckpoint(ctx context.Context, c checkpoint, matrices []savedMatrix) error {
	layout, groups := checkpointLayout(matrices, c.Width())
	file, err := openColumnFile(e.Fsys, e.checkpointPath(c), layout)
	if err != nil {
		return err
	}
	defer file.Close()
	most := int64(0) // bytes of the largest group that is read into a buffer, as not all of its columns are wanted
	for _, s := range matrices {
		if s.m.Columns() != c.ColumnRange {
			most = max(most, file.largest())
		}
	}
	buffers, err := product.NewBuffers(e.Threads, most)
	if err != nil {
		return err
	}
	defer buffers.Free()
	return parallel.For(ctx, e.Threads, int64(len(groups)), 1, func(k, _ int64) error {
		b := groups[k]
		m := matrices[b.matrix].m
		if m.Columns() == c.ColumnRange {
			_, err := file.readGroup(int(k), m.Rows(b.first, b.end))
			return err
		}
		buffer := buffers.Get()
		defer buffers.Put(buffer)
		data, err := file.readGroup(int(k), buffer)
		if err != nil {
			return err
		}
		size := m.DType.Size()
		stride, from := c.Width()*size, (m.First-c.First)*size
		for row := b.first; row < b.end; row++ {
			copy(m.Rows(row, row+1), data[int(row-b.first)*stride+from:])
		}
		return nil
	})
}

// loadFinishedHop fills m with its columns of a finished hop of a store of all nodes: from the parts of the store, or
// from result files. It loads nothing where another process writes the store.
func (e *engine) loadFinishedHop(ctx context.Context, id format.MatrixID, m *product.Matrix) (loaded bool, err error) {
	m.ID = id
	if !e.Finished[id] {
		return true, e.Results[e.number(id)].load(ctx, m, e.Threads, e.Progress)
	}
	if e.Store == nil {
		return false, nil
	}
	stored, err := e.Store.OpenFinished(id)
	if err != nil {
		return false, err
	}
	defer stored.Close()
	in := NewInput(stored, e.Nodes, e.DType)
	return true, in.Load(ctx, m, e.Threads, e.Progress)
}
