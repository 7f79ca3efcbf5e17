// Package engine makes the matrices of a store: it computes hops panel by panel, in memory or through column files on
// scratch disk, writes them beside what it computes, and saves checkpoints, so that a job can end at any moment and
// continue.
package engine

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/hopfeed/hopfeed/format"
	"github.com/hopfeed/hopfeed/internal/progress"
	"github.com/hopfeed/hopfeed/internal/vfs"
	"github.com/hopfeed/hopfeed/preprop/operator"
	"github.com/hopfeed/hopfeed/preprop/plan"
	"github.com/hopfeed/hopfeed/preprop/product"
)

// Job makes the matrices of a store, panel by panel. If one panel has all columns, it writes them to the store at once,
// else to result files, which are assembled at the end.
type Job struct {
	Threads  int
	DType    format.DType // of the store
	Progress progress.Reporter
	Note     func(text string) // takes messages for the user
	Name     string            // part of the names of scratch files, where several jobs use one folder

	Fsys      *vfs.PastCache // counts bytes of scratch files
	Graph     *format.Dir
	Nodes     []uint32          // node of each row of the store
	Matrices  []format.MatrixID // of the store
	Sequences []*HopSequence
	Columns   product.ColumnRange // that this process makes
	Plan      *plan.Plan
	Scratch   string // folder

	Results     []ColumnFiles // by matrix
	Checkpoints []checkpoint
	Pace        Pace
	Store       *format.Writer           // nil in a task: another one writes the store
	Finished    map[format.MatrixID]bool // matrices that the store has
	Direct      *format.Writer           // matrices are written to it; nil: to result files
	Given       product.Topology         // of the graph, in memory, if it was read before; nil: it is read
	Unwritten   bool                     // the last matrix goes to the reserve alone
	// Change, unless it is nil, changes rows [first, end) of the store, which have columns s, before they are written.
	Change  func(rows []byte, s product.ColumnRange, first, end int64)
	Labels  *product.Labels    // that matrices have as their last columns; nil: none
	Reserve *Reserve           // of matrices; nil: they are freed
	Content string             // of the last matrix, as Input.Content
	own     *product.OwnLabels // elements of rows of Nodes that the node's own label would change

	HopSeconds  []float64 // by matrix
	Edges       []int64   // terms that were added up, by matrix
	Gathered    int64     // bytes of rows that were added up
	Transferred int64     // bytes, to and from the device
	Account     TimeAccount
}

// HopSequence is a sequence with the input that it starts from: hop number sequence.from.
type HopSequence struct {
	plan.Sequence
	Input *Input
}

// sources counts the nodes that edges may come from: in a relation the nodes of the source type, else all.
func (j *Job) sources() int64 { return cmp.Or(j.Graph.Manifest.SourceNodes, j.Graph.Manifest.Nodes) }

func (j *Job) number(id format.MatrixID) int { return slices.Index(j.Matrices, id) }

// Missing are the columns of s that are still to be made of a matrix.
func (j *Job) Missing(id format.MatrixID, s product.ColumnRange) []product.ColumnRange {
	if j.Finished[id] {
		return nil
	}
	return product.Missing(s, j.Results[j.number(id)].Have)
}

// unfinished tells whether any of the columns s of a matrix of the job are still to be made.
func (j *Job) unfinished(id format.MatrixID, s product.ColumnRange) bool {
	return j.number(id) >= 0 && len(j.Missing(id, s)) > 0
}

// LastUnfinished is the last hop of a sequence whose columns s are unfinished, or 0.
func (j *Job) LastUnfinished(c *HopSequence, s product.ColumnRange) int {
	for hop := c.Hops; hop > c.From; hop-- {
		if j.unfinished(c.ID(hop), s) {
			return hop
		}
	}
	return 0
}

// needsInput tells whether columns s of a sequence's input are needed: to make hops from them, or to store them.
func (j *Job) needsInput(c *HopSequence, s product.ColumnRange) bool {
	return j.LastUnfinished(c, s) > 0 || j.unfinished(c.Input.ID, s)
}

// RemainingPanels divides the columns that are unfinished in any matrix into panels. A panel has no columns on both
// sides of a checkpoint's first or last.
func (j *Job) RemainingPanels() []product.ColumnRange {
	unfinished := make([]bool, j.Columns.End)
	for _, id := range j.Matrices {
		for _, s := range j.Missing(id, j.Columns) {
			for c := s.First; c < s.End; c++ {
				unfinished[c] = true
			}
		}
	}
	edge := map[int]bool{} // where the columns of a checkpoint begin and end
	for _, c := range j.Checkpoints {
		edge[c.First], edge[c.End] = true, true
	}
	var panels []product.ColumnRange
	for c := j.Columns.First; c < j.Columns.End; c++ {
		if !unfinished[c] {
			continue
		}
		if n := len(panels) - 1; n >= 0 && panels[n].End == c && panels[n].Width() < j.Plan.PanelColumns && !edge[c] {
			panels[n].End++
		} else {
			panels = append(panels, product.ColumnRange{First: c, End: c + 1})
		}
	}
	return panels
}

// Run makes all columns that are unfinished. It does not assemble result files.
func (j *Job) Run(ctx context.Context) error {
	panels := j.RemainingPanels()
	if len(panels) == 0 {
		return nil
	}
	j.Sequences = slices.DeleteFunc(j.Sequences, func(c *HopSequence) bool { // its input is then not read
		return !j.needsInput(c, j.Columns)
	})
	e := &engine{Job: j, propagators: map[operator.Operator]*product.Propagator{},
		neededNodes: map[string][]product.NodeSet{}, storedLists: map[string]*product.StoredLists{},
		inputFiles: map[*Input]*ColumnFiles{}}
	done := false
	defer func() {
		if j.Reserve != nil {
			e.firstUse.Wait()
			e.giveReserve(done)
		}
		e.close()
	}()
	for _, s := range panels {
		e.panelColumns = max(e.panelColumns, s.Width())
	}
	e.whole = len(panels) == 1 && panels[0] == j.Sequences[0].Input.all()
	if err := e.takeReserve(j.matrixBytes(e.panelColumns)); err != nil {
		return err
	}
	prepare := func(ctx context.Context) error {
		return Timed(&j.Account.Preparing, func() error { return e.prepare(ctx) })
	}
	if !j.Plan.CutBeside {
		if err := prepare(ctx); err != nil {
			return err
		}
	}
	if j.Plan.InputKept { // in these matrices
		if err := e.allocate(ctx); err != nil {
			return err
		}
	}
	g, inner := errgroup.WithContext(ctx)
	if j.Plan.CutBeside {
		g.Go(func() error { return prepare(inner) })
	}
	g.Go(func() error {
		return Timed(&j.Account.Reading, func() error { return e.cutInputs(inner, panels) })
	})
	if err := g.Wait(); err != nil {
		return err
	}
	if !j.Plan.InputKept {
		if err := e.allocate(ctx); err != nil {
			return err
		}
	}
	for i, s := range panels {
		e.label = ""
		if len(panels) > 1 {
			e.label = fmt.Sprintf(", panel %d of %d", i+1, len(panels))
		}
		if err := e.panel(ctx, s); err != nil {
			return err
		}
		if err := j.removeFinishedCheckpoints(); err != nil {
			return err
		}
		for _, in := range j.inputs() { // so that result files have room
			if files := e.inputFiles[in]; slices.Contains(files.Have, s) {
				if err := files.remove(s); err != nil {
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
		j.Account.Transfers, j.Transferred = time.Duration(e.device.Took.Load()).Seconds(), e.device.Moved.Load()
	}
	done = true
	return context.Cause(ctx) // an interrupted job has finished its last write
}

// cutInputs cuts inputs into column files where that is planned, and finds the columns that files of each input have.
func (e *engine) cutInputs(ctx context.Context, panels []product.ColumnRange) error {
	for _, in := range e.inputs() {
		files := e.columnFiles(in)
		if err := files.Find(); err != nil {
			return err
		}
		var rest []product.ColumnRange
		for _, s := range panels {
			rest = append(rest, product.Missing(s, files.Have)...)
		}
		if e.Plan.InputFiles && len(rest) > plan.DirectPanels {
			kept := e.keep(in, panels, rest)
			if kept != nil {
				e.kept, rest = in, rest[1:]
			}
			task := e.Progress.Start(fmt.Sprintf("cut %s into column files", in.ID), in.bytes(), progress.Bytes)
			err := in.cut(ctx, kept, rest, files, e.Threads, task)
			task.Done()
			if err != nil {
				return err
			}
			files.Have = append(files.Have, rest...)
		}
		e.inputFiles[in] = files
	}
	return nil
}

// inputs are what the job starts from, each once.
func (j *Job) inputs() []*Input {
	var out []*Input
	for _, c := range j.Sequences {
		if !slices.Contains(out, c.Input) {
			out = append(out, c.Input)
		}
	}
	return out
}

// readsBack tells whether the next hop can be made from a hop on disk: that has the rows of all nodes, and all labels.
func (j *Job) readsBack() bool {
	return len(j.Nodes) == int(j.Graph.Manifest.Nodes) && j.Labels == nil
}

// wrote records that a matrix, or a range of its columns, is on disk. Writing it began at start. The next hop can
// be computed from what is on disk only if that has the rows of all nodes.
func (j *Job) wrote(m *product.Matrix, start time.Time) {
	if j.Direct != nil {
		j.Finished[m.ID] = true
	} else {
		result := &j.Results[j.number(m.ID)]
		result.Have = append(result.Have, m.Columns())
	}
	j.Pace.measureRate(int64(len(j.Nodes))*m.RowBytes(), start)
	if j.Pace.SavedAny = true; j.readsBack() {
		j.Pace.saved(start)
	}
}

// Assemble writes the matrices that the store lacks, from result files.
func (j *Job) Assemble(ctx context.Context, store *format.Writer) error {
	for k, id := range j.Matrices {
		if j.Finished[id] {
			continue
		}
		if err := j.Results[k].assemble(ctx, store, id, j.Threads, j.Progress); err != nil {
			return err
		}
		j.Finished[id] = true
	}
	return nil
}

// HasPartialMatrices tells whether there are checkpoints or result files.
func (j *Job) HasPartialMatrices() bool {
	return len(j.Checkpoints) > 0 || j.HasResultColumns()
}

// HasResultColumns tells whether there are result files.
func (j *Job) HasResultColumns() bool {
	return slices.ContainsFunc(j.Results, func(files ColumnFiles) bool { return len(files.Have) > 0 })
}

// TimeAccount says where the seconds of a job went. Writing runs beside the others: what it adds to the whole is
// Waiting. The rest of the whole is writing the rows of the store, checkpoints, and scratch files of earlier runs.
type TimeAccount struct {
	Planning  float64 `json:"planning"`  // opening the graph, choosing rows, measuring the machine
	Preparing float64 `json:"preparing"` // reading topologies, and computing factors of operators
	Reading   float64 `json:"reading"`   // the input
	// FirstUse is getting memory from the system, beside Reading. Where it cannot be measured it is 0, and
	// part of Reading and Hops.
	FirstUse   float64 `json:"first_use"`
	Hops       float64 `json:"hops"`
	Transfers  float64 `json:"transfers"` // to and from a device, partly beside Hops
	Writing    float64 `json:"writing"`
	Waiting    float64 `json:"waiting"`
	Publishing float64 `json:"publishing"`
	// Faster says what would make the job faster: "disk", "cores" or "memory".
	Faster string `json:"faster_with"`
}

// Add adds the seconds of a part of a job.
func (t *TimeAccount) Add(part TimeAccount) {
	t.Planning, t.Preparing, t.Reading = t.Planning+part.Planning, t.Preparing+part.Preparing, t.Reading+part.Reading
	t.FirstUse, t.Hops, t.Transfers = t.FirstUse+part.FirstUse, t.Hops+part.Hops, t.Transfers+part.Transfers
	t.Writing, t.Waiting, t.Publishing = t.Writing+part.Writing, t.Waiting+part.Waiting, t.Publishing+part.Publishing
}

// Of is the account of a job whose hops took these seconds.
func (t TimeAccount) Of(hops float64, panels int) TimeAccount {
	t.Hops, t.Faster = hops, "cores"
	switch disk := t.Reading + t.Waiting + t.Publishing; {
	case panels > 1 && disk > hops:
		t.Faster = "memory"
	case disk > hops:
		t.Faster = "disk"
	}
	return t
}

// Timed calls f, and adds the seconds that it takes to sum.
func Timed(sum *float64, f func() error) error {
	start := time.Now()
	defer func() { *sum += time.Since(start).Seconds() }()
	return f()
}
