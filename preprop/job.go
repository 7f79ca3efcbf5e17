package preprop

import (
	"context"
	"fmt"
	"path/filepath"
	"slices"
	"time"

	"github.com/hopfeed/hopfeed/format"
	"github.com/hopfeed/hopfeed/internal/folder"
	"github.com/hopfeed/hopfeed/internal/vfs"
)

// job makes the matrices of a store, panel by panel. If one panel has all columns, it
// writes them to the store at once, else to result files, which are assembled at the end.
type job struct {
	*Options
	fsys      *vfs.Count // counts bytes of scratch files
	graph     *format.Dir
	nodes     []uint32          // node of each row of the store
	matrices  []format.MatrixID // of the store
	sequences []*hopSequence
	columns   columnRange // that this process makes
	plan      *Plan
	scratch   string // folder

	results       resultFiles
	checkpoints   []checkpoint
	pace          pace
	store         *format.Writer           // nil in a shard: others write the store too
	resultColumns [][]columnRange          // columns that result files have, by matrix
	finished      map[format.MatrixID]bool // matrices that the store has
	direct        *format.Writer           // matrices are written to it; nil: to result files
	receive       func(m *matrix)          // if set, is given matrices instead of result files

	hopSeconds  []float64 // by matrix
	edges       []int64   // terms that were added up, by matrix
	gathered    int64     // bytes of rows that were added up
	transferred int64     // bytes, to and from the device
	account     account
}

// hopSequence is the hops from+1 to hops of one operator, each made from the one before.
type hopSequence struct {
	operator   Operator
	input      *input // hop number from
	from, hops int
}

// products is how many products with the operator's matrix the sequence takes.
func (c *hopSequence) products() int { return (c.hops - c.from) * c.operator.series().products() }

func (c *hopSequence) id(hop int) format.MatrixID {
	return format.MatrixID{Operator: c.operator.String(), Hop: hop}
}

func (j *job) number(id format.MatrixID) int { return slices.Index(j.matrices, id) }

// unfinished tells whether any of the columns s of a matrix are still to be made.
func (j *job) unfinished(id format.MatrixID, s columnRange) bool {
	return !j.finished[id] && (j.direct != nil || len(missing(s, j.resultColumns[j.number(id)])) > 0)
}

// lastUnfinished is the last hop of a sequence of which columns s are unfinished, or 0.
func (j *job) lastUnfinished(c *hopSequence, s columnRange) int {
	for hop := c.hops; hop > c.from; hop-- {
		if j.unfinished(c.id(hop), s) {
			return hop
		}
	}
	return 0
}

// needsInput tells whether columns s of a sequence's input are needed: to make hops from
// them, or to store hop 0 itself.
func (j *job) needsInput(c *hopSequence, s columnRange) bool {
	return j.lastUnfinished(c, s) > 0 || c.input.ID == format.Input && j.unfinished(format.Input, s)
}

// remainingPanels divides the columns that are unfinished in any matrix into panels. A
// panel has no columns on both sides of a checkpoint's first or last.
func (j *job) remainingPanels() []columnRange {
	unfinished := make([]bool, j.columns.end)
	for k, id := range j.matrices {
		if !j.unfinished(id, j.columns) {
			continue
		}
		rest := []columnRange{j.columns}
		if j.direct == nil {
			rest = missing(j.columns, j.resultColumns[k])
		}
		for _, s := range rest {
			for c := s.first; c < s.end; c++ {
				unfinished[c] = true
			}
		}
	}
	edge := map[int]bool{} // where the columns of a checkpoint begin and end
	for _, c := range j.checkpoints {
		edge[c.first], edge[c.end] = true, true
	}
	var panels []columnRange
	for c := j.columns.first; c < j.columns.end; c++ {
		if !unfinished[c] {
			continue
		}
		if n := len(panels) - 1; n >= 0 && panels[n].end == c && panels[n].width() < j.plan.PanelColumns && !edge[c] {
			panels[n].end++
		} else {
			panels = append(panels, columnRange{c, c + 1})
		}
	}
	return panels
}

// run makes all columns that are unfinished. It does not assemble result files.
func (j *job) run(ctx context.Context) error {
	panels := j.remainingPanels()
	if len(panels) == 0 {
		return nil
	}
	j.sequences = slices.DeleteFunc(j.sequences, func(c *hopSequence) bool { // its input is then not read
		return !j.needsInput(c, j.columns)
	})
	e := &engine{job: j, propagators: map[Operator]*propagator{}, neededNodes: map[string][]nodeSet{}}
	defer e.close()
	if err := timed(&j.account.preparing, func() error { return e.prepare(ctx) }); err != nil {
		return err
	}
	if j.plan.InputKept {
		if err := e.allocate(panels); err != nil {
			return err
		}
	}
	var inputFiles map[*input][]columnRange
	err := timed(&j.account.reading, func() (err error) {
		inputFiles, err = e.cutInputs(ctx, panels)
		return err
	})
	if err != nil {
		return err
	}
	if !j.plan.InputKept {
		if err := e.allocate(panels); err != nil {
			return err
		}
	}
	for i, s := range panels {
		e.label = ""
		if len(panels) > 1 {
			e.label = fmt.Sprintf(", panel %d of %d", i+1, len(panels))
		}
		if err := e.panel(ctx, s, inputFiles); err != nil {
			return err
		}
		if err := j.removeFinishedCheckpoints(); err != nil {
			return err
		}
		for _, in := range j.inputs() { // so that result files have room
			if slices.Contains(inputFiles[in], s) {
				if err := j.fsys.Remove(j.inputFilePath(in, s)); err != nil {
					return err
				}
			}
		}
	}
	if err := e.finishWrite(); err != nil {
		return err
	}
	if err := j.removeFinishedCheckpoints(); err != nil {
		return err
	}
	if e.device != nil {
		j.account.transfers, j.transferred = time.Duration(e.device.took.Load()), e.device.moved.Load()
	}
	return context.Cause(ctx) // of a job that is interrupted, the last write was finished first
}

// directPanels is how many panels are read from the input itself in less time than it takes
// to cut it into column files first.
const directPanels = 2

// cutInputs cuts inputs into column files where that is planned, and returns the columns
// that files of each input have.
func (e *engine) cutInputs(ctx context.Context, panels []columnRange) (map[*input][]columnRange, error) {
	out := map[*input][]columnRange{}
	for _, in := range e.inputs() {
		found, err := e.findInputFiles(in)
		if err != nil {
			return nil, err
		}
		var rest []columnRange
		for _, s := range panels {
			rest = append(rest, missing(s, found)...)
		}
		if e.plan.InputFiles && len(rest) > directPanels {
			kept, err := e.keep(in, panels, rest)
			if err != nil {
				return nil, err
			}
			if kept.matrix != nil {
				rest = rest[1:]
			}
			if err := in.cutToFiles(ctx, e.fsys, rest, kept, func(s columnRange) string { return e.inputFilePath(in, s) }, e.Threads, e.Progress); err != nil {
				return nil, err
			}
			if kept.matrix != nil {
				e.kept = in
			}
			if kept.rows != nil {
				if err := e.writeInput(ctx, kept); err != nil {
					return nil, err
				}
			}
			found = append(found, rest...)
		}
		out[in] = found
	}
	return out, nil
}

// inputs are what the job starts from, each once.
func (j *job) inputs() []*input {
	var out []*input
	for _, c := range j.sequences {
		if !slices.Contains(out, c.input) {
			out = append(out, c.input)
		}
	}
	return out
}

func (j *job) inputFilePath(in *input, s columnRange) string {
	return filepath.Join(j.scratch, fmt.Sprintf("input-%d-%d-%d%s", j.number(in.ID), s.first, s.end, folder.Suffix))
}

func (j *job) findInputFiles(in *input) ([]columnRange, error) {
	return findColumnFiles(j.fsys, j.scratch, in.Layout.Features, func(s columnRange) string { return j.inputFilePath(in, s) },
		func(s columnRange) int64 {
			shape := chunkBlocks(in.Matrix, int64(s.width()*in.dtype.Size()))
			return shape.size()
		})
}

// writeFile writes a matrix to the store, or a range of its columns to a result file. It may run beside
// anything that does not change the matrix.
func (j *job) writeFile(ctx context.Context, m *matrix, b *buffers) error {
	if j.direct != nil {
		return m.write(ctx, j.direct, j.nodes, j.Threads, b, j.Progress)
	}
	return m.writeColumnFile(ctx, j.fsys, j.results.path(j.number(m.id), m.columns()), j.results.blockRows, j.nodes, j.Threads, b)
}

// wrote records that a matrix, or a range of its columns, is on disk. Writing it began at start. The next hop can
// be computed from what is on disk only if that has the rows of all nodes.
func (j *job) wrote(m *matrix, start time.Time) {
	if j.direct != nil {
		j.finished[m.id] = true
	} else {
		k := j.number(m.id)
		j.resultColumns[k] = append(j.resultColumns[k], m.columns())
	}
	j.pace.measureRate(int64(len(j.nodes))*m.rowBytes(), start)
	if j.pace.savedAny = true; len(j.nodes) == int(j.graph.Manifest.Nodes) {
		j.pace.saved(start)
	}
}

// assemble writes the matrices that the store lacks, from result files.
func (j *job) assemble(ctx context.Context, store *format.Writer) error {
	for k, id := range j.matrices {
		if j.finished[id] {
			continue
		}
		if err := j.results.assemble(ctx, store, k, j.resultColumns[k], j.Threads, j.Progress); err != nil {
			return err
		}
		j.finished[id] = true
	}
	return nil
}
