package preprop

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/hopfeed/hopfeed/format"
	"github.com/hopfeed/hopfeed/internal/dtype"
	"github.com/hopfeed/hopfeed/internal/folder"
	"github.com/hopfeed/hopfeed/internal/kernel"
	"github.com/hopfeed/hopfeed/internal/vfs"
	"github.com/hopfeed/hopfeed/preprop/engine"
	"github.com/hopfeed/hopfeed/preprop/plan"
	"github.com/hopfeed/hopfeed/preprop/product"
)

// A propagation by several machines is tasks, which a scheduler runs. They share the store's directory or URL, and hold
// no locks: what a task makes appears whole, under a name that tells what it is, with checksums, and with the same
// bytes whoever makes it. So a task may be killed, repeated, and run twice at a time; it does what is not there yet.
//
//	rows      chooses and writes the rows of the store, and records the job
//	cut-I     cuts chunks of the input into a column file for each task hops; an input that hops of the store start from
//	hops-I    computes all hops of a range of columns, into a column file for each matrix; after rows and all cuts
//	write-I   puts parts of the store's matrices together from these; after all hops
//	publish   writes index and manifest, and removes all other files; after all writes

// Task is a step of a propagation.
type Task struct {
	Name    string   `json:"name"`
	After   []string `json:"after"`   // kinds of tasks that must all have ended, such as cut
	Inputs  []string `json:"inputs"`  // files, or which parts of them
	Outputs []string `json:"outputs"` // files
	Done    bool     `json:"done"`    // the outputs are there
	// What it takes at most, as its plan says.
	MemoryBytes  int64 `json:"memory_bytes"`
	Cores        int   `json:"cores"`
	ReadBytes    int64 `json:"planned_bytes_read"`
	WrittenBytes int64 `json:"planned_bytes_written"`
	ScratchBytes int64 `json:"planned_scratch_bytes"` // on the local disk

	computing float64 // seconds beside reading and writing, of a typed graph
}

// TaskResult says what a task did.
type TaskResult struct {
	Task        string  `json:"task"`
	AlreadyDone bool    `json:"already_done"` // its outputs were there
	Seconds     float64 `json:"seconds"`
	// Bytes of the graph, of files of other tasks, and of what the task made, scratch files included.
	GraphBytesRead int64  `json:"graph_bytes_read"`
	TaskBytesRead  int64  `json:"task_bytes_read"`
	BytesWritten   int64  `json:"bytes_written"`
	Output         string `json:"output"`
}

// taskJob is a propagation by tasks, as one process sees it.
type taskJob struct {
	*jobContext
	typed  *typedJob       // of a typed graph
	files  *vfs.PastCache  // for the files of tasks
	folder string          // that has them
	inputs []*engine.Input // that the hops are made from: of the graph, or of a store that gets more hops
	opened []*format.Dir   // that these are of, beside the graph
	shares []taskShare     // of tasks hops, in their order
}

// taskShare is columns that a task hops makes.
type taskShare struct {
	product.ColumnRange
	task  int
	root  *typedMatrix  // of a typed graph, the features or labels whose columns they are
	input *engine.Input // that it needs cuts of; nil: of all, or in a typed graph of none, as there are no features
}

// checkTasks fails if options are not for tasks.
func (o *Options) checkTasks() error {
	if o.From != "" || o.Force || o.Nodes != nil || o.DryRun {
		return fmt.Errorf("%w: tasks compute all rows and replace nothing: leave out --from, --force and --dry-run",
			ErrOptions)
	}
	return nil
}

func openTaskJob(fsys vfs.FS, graphDir, storeDir string, o Options) (_ *taskJob, err error) {
	t := &taskJob{files: vfs.NewPastCache(vfs.Concurrent(fsys)),
		folder: filepath.Join(storeDir, filepath.FromSlash(format.TasksFolder))}
	m, err := openJob(fsys, graphDir, storeDir, o)
	if err != nil {
		return nil, err
	}
	t.jobContext = m.context()
	t.typed, _ = m.(*typedJob)
	switch {
	case t.complete:
	case t.typed != nil:
		err = t.openTyped()
	default:
		err = t.open()
	}
	if err != nil {
		return nil, errors.Join(err, t.close())
	}
	return t, nil
}

func (t *taskJob) close() (err error) {
	err = t.jobContext.close()
	for _, d := range t.opened {
		err = errors.Join(err, d.Close())
	}
	return err
}

// columnsOf are the ranges of columns that an input is cut into.
func (t *taskJob) columnsOf(in *engine.Input) (ranges []product.ColumnRange) {
	for _, s := range t.shares {
		if s.root == nil || s.input == in {
			ranges = append(ranges, s.ColumnRange)
		}
	}
	return ranges
}

// sharesOf are the shares that task hops-i makes.
func (t *taskJob) sharesOf(i int) (all []taskShare) {
	for _, s := range t.shares {
		if s.task == i {
			all = append(all, s)
		}
	}
	return all
}

func (t *taskJob) open() error {
	if t.graph.Manifest.Features == 0 {
		return fmt.Errorf("%s: %w: its nodes have no features", t.graphDir, ErrOptions)
	}
	// An edge costs a whole line of 64 bytes, however little of it a task takes.
	columns := t.columns()
	width := plan.PanelColumns(columns, t.options.Tasks, columns, t.options.DType)
	for first := 0; first < columns; first += width {
		t.shares = append(t.shares, taskShare{ColumnRange: product.ColumnRange{First: first, End: min(first+width, columns)},
			task: len(t.shares)})
	}
	if t.existing == nil {
		features, err := t.graph.Matrix(format.Input)
		if err != nil {
			return err
		}
		t.labels, t.target.Split = t.options.labels(&t.graph.Manifest), t.options.Split
		t.inputs = []*engine.Input{engine.NewInput(features, nil, t.options.DType)}
		t.inputs[0].Labels = t.labels
		t.tagInputs()
		return nil
	}
	j, err := t.newJob()
	if err != nil {
		return err
	}
	for _, c := range j.Sequences {
		if j.LastUnfinished(c, j.Columns) > 0 && !slices.Contains(t.inputs, c.Input) {
			t.inputs = append(t.inputs, c.Input)
		}
	}
	t.tagInputs()
	return nil
}

// tagInputs keeps cuts by other options apart: a task cut may run before the task rows has recorded the job.
func (t *taskJob) tagInputs() {
	o := &t.options
	for _, in := range t.inputs {
		in.Tag = fmt.Sprintf("%08x", kernel.CRC32C(0, fmt.Append(nil, t.graph.Manifest.Fingerprint, t.base(), o.DType,
			o.LabelHops > 0, o.Split, in.Content)))
	}
}

// base is the checksum of the manifest of the store that gets more hops; "" of a new store.
func (t *taskJob) base() string {
	if t.existing == nil {
		return ""
	}
	return t.existing.Manifest.CRC32C
}

// madeMatrices are the matrices that the store shall have and has not.
func (t *taskJob) madeMatrices() []format.MatrixID {
	return slices.DeleteFunc(t.target.matrices(), func(id format.MatrixID) bool {
		return t.existing != nil && slices.Contains(t.existing.Matrices(), id)
	})
}

// parseTask is the kind and the number of a task.
func (o *Options) parseTask(name string) (kind string, i int, err error) {
	kind, number, numbered := strings.Cut(name, "-")
	switch kind {
	case "rows", "publish":
		if !numbered {
			return kind, 0, nil
		}
	case "cut", "hops", "write":
		if i, err = strconv.Atoi(number); err == nil && i >= 0 && i < o.Tasks && number == strconv.Itoa(i) {
			return kind, i, nil
		}
	}
	return "", 0, fmt.Errorf("%w: --task %q: want rows, cut-I, hops-I, write-I or publish, with I from 0 to %d",
		ErrOptions, name, o.Tasks-1)
}

// RunTask runs one of the tasks that o.Tasks divides a propagation into. What it makes is on disk when it returns, and
// is not made again if it is there. If another task must run first, the error is ErrOptions and says so.
func RunTask(ctx context.Context, fsys vfs.FS, graphDir, storeDir, name string, o Options) (*TaskResult, error) {
	start := time.Now()
	ctx, cancel := o.begin(ctx)
	defer cancel()
	kind, i, err := o.parseTask(name)
	if err = cmp.Or(err, o.checkTasks()); err != nil {
		return nil, err
	}
	t, err := openTaskJob(fsys, graphDir, storeDir, o)
	if err != nil {
		return nil, err
	}
	defer t.close()
	r := &TaskResult{Task: name, Output: storeDir}
	if t.complete {
		r.AlreadyDone = true
		removeLeftovers(t.fsys, t.storeDir, t.target)
	} else {
		r.AlreadyDone, err = map[string]func(context.Context, int) (bool, error){"rows": t.rows, "cut": t.cut,
			"hops": t.hops, "write": t.write, "publish": t.publish}[kind](ctx, i)
	}
	if errors.Is(err, ErrInvalid) {
		err = fmt.Errorf("%s: %w", graphDir, err)
	}
	// Others may have published the store meanwhile, and removed what this task needs. In a bucket it writes all the same,
	// and nobody else removes what comes after.
	if (err != nil || vfs.IsURL(storeDir) && kind != "publish") && ctx.Err() == nil {
		if now, openErr := openTaskJob(fsys, graphDir, storeDir, o); openErr == nil {
			if now.complete {
				r.AlreadyDone, err = true, nil
				removeLeftovers(now.fsys, now.storeDir, now.target)
			}
			err = errors.Join(err, now.close())
		}
	}
	if err != nil {
		return nil, err
	}
	r.GraphBytesRead, r.TaskBytesRead = t.fsys.Read().Bytes(), t.files.Read().Bytes()
	r.BytesWritten = t.fsys.Written().Bytes() + t.files.Written().Bytes()
	r.Seconds = time.Since(start).Seconds()
	return r, nil
}

// begin makes the folder of tasks.
func (t *taskJob) begin(ctx context.Context) error {
	if t.existing != nil {
		job, err := format.OpenTasks(t.fsys.FS, t.storeDir)
		if err == nil && job.Base != t.base() { // a crash has left it of a job that was published
			store, err := t.createAlone(ctx)
			if err != nil {
				return err
			}
			if err := store.Suspend(); err != nil {
				return err
			}
		}
	}
	_, err := format.MakeTasksFolder(t.fsys.FS, t.storeDir, t.base())
	return err
}

// readNodes sets the node of each row of the store.
func (t *taskJob) readNodes(ctx context.Context) (err error) {
	if t.existing != nil {
		return t.loadNodes(ctx)
	}
	t.nodes, err = engine.ReadNodes(t.files, t.folder, t.target.StoredRows)
	return err
}

// rows chooses the rows of the store, and records the job.
func (t *taskJob) rows(ctx context.Context, _ int) (done bool, err error) {
	if err := t.begin(ctx); err != nil {
		return false, err
	}
	if err := t.known(); err == nil {
		if err = t.readNodes(ctx); err == nil {
			return true, nil
		}
	} else if !errors.Is(err, fs.ErrNotExist) {
		return false, err
	}
	if t.existing == nil {
		if err := t.chooseRows(ctx); err != nil {
			return false, err
		}
	}
	job := format.Tasks{Job: t.target.String(), Base: t.base(), Layout: t.layout}
	if err := format.BeginTasks(t.fsys.FS, t.storeDir, job); err != nil || t.existing != nil {
		return false, err
	}
	if err := t.known(); err != nil { // another process may have been faster, with other options
		return false, err
	}
	begun, err := format.OpenTasks(t.fsys.FS, t.storeDir)
	if err != nil {
		return false, err
	}
	if err := begun.Rows(t.table); err != nil {
		return false, err
	}
	return false, engine.WriteNodes(t.files, t.folder, t.nodes)
}

// known sets target and layout to what the task rows has recorded. It fails if options differ. If that task has not
// run, the error is fs.ErrNotExist.
func (t *taskJob) known() error {
	job, err := format.OpenTasks(t.fsys.FS, t.storeDir)
	if err != nil {
		if errors.Is(err, fs.ErrNotExist) {
			err = fmt.Errorf("%s: %w: the task rows must run first: %w", t.storeDir, ErrOptions, err)
		}
		return err
	}
	there, err := parseTarget(job.Job)
	if err != nil {
		return fmt.Errorf("%s: %w: what is there is no propagation", t.storeDir, ErrOptions)
	}
	if t.existing == nil {
		t.setTarget(regionSizes(job.Layout), there.StoredRows)
	}
	if difference := there.differences(t.target); difference != "" {
		return fmt.Errorf("%s: %w: the task rows has begun it with other options: %s", t.storeDir, ErrOptions,
			difference)
	}
	return nil
}

// cut cuts a range of chunks of each input into a file for each task hops.
func (t *taskJob) cut(ctx context.Context, i int) (done bool, err error) {
	done = true
	for _, in := range t.inputs {
		ranges := in.ChunkRanges(t.options.Tasks)
		if i >= len(ranges) {
			continue
		}
		if err := t.begin(ctx); err != nil {
			return false, err
		}
		rest, err := in.UncutColumns(t.files, t.folder, ranges[i], t.columnsOf(in))
		if err != nil {
			return false, err
		}
		if len(rest) == 0 {
			continue
		}
		if done {
			if err := t.loadLabels(ctx); err != nil {
				return false, err
			}
		}
		done = false
		if err := in.Cut(ctx, t.files, t.folder, ranges[i], rest, t.options.Threads, t.options.Progress); err != nil {
			return false, err
		}
	}
	return done, nil
}

// shareJob is the job of task hops-i, before it is planned.
func (t *taskJob) shareJob(i int) (*engine.Job, error) {
	t.share = t.shares[i].ColumnRange
	j, err := t.newJob()
	if err != nil {
		return nil, err
	}
	parts := map[format.MatrixID]*engine.Input{}
	for _, c := range j.Sequences {
		if parts[c.Input.ID] == nil {
			parts[c.Input.ID] = c.Input.Part(t.share)
		}
	}
	startFrom(j, parts)
	j.Results, err = t.results(t.nodes)
	return j, err
}

// startFrom lets sequences start from other inputs, by the matrix that they are.
func startFrom(j *engine.Job, inputs map[format.MatrixID]*engine.Input) {
	for _, c := range j.Sequences {
		if in := inputs[c.Input.ID]; in != nil {
			c.Input = in
		}
	}
}

// results are the files with columns of the store's matrices.
func (t *taskJob) results(nodes []uint32) ([]engine.ColumnFiles, error) {
	return findResults(t.files, t.folder, t.target, nodes)
}

// findResults finds the files in a folder with columns of matrices whose rows are these nodes.
func findResults(fsys vfs.FS, dir string, of target, nodes []uint32) ([]engine.ColumnFiles, error) {
	t, err := dtype.Parse(of.DType)
	if err != nil {
		return nil, err
	}
	results := engine.ResultFiles(fsys, dir, of.widths(), of.StoredRows, nodes, t)
	for k := range results {
		if err := results[k].Find(); err != nil {
			return nil, err
		}
	}
	return results, nil
}

// finished tells whether all columns of a job are in files.
func finished(j *engine.Job) bool {
	return !slices.ContainsFunc(j.Matrices, func(id format.MatrixID) bool { return len(j.Missing(id, j.Columns)) > 0 })
}

// hops computes the hops of ranges of columns.
func (t *taskJob) hops(ctx context.Context, i int) (done bool, err error) {
	shares := t.sharesOf(i)
	if len(shares) == 0 {
		return true, nil
	}
	if err := t.known(); err != nil {
		return false, err
	}
	if err := t.readNodes(ctx); err != nil {
		return false, notYet(err)
	}
	if t.typed != nil {
		return t.typedHops(ctx, shares)
	}
	return t.plainHops(ctx, i)
}

// plainHops makes share i of a graph of one type.
func (t *taskJob) plainHops(ctx context.Context, i int) (done bool, err error) {
	j, err := t.shareJob(i)
	if err != nil {
		return false, err
	}
	if finished(j) {
		return true, nil
	}
	cuts := map[format.MatrixID]*engine.Input{}
	for _, in := range t.inputs {
		if in.ID != format.Input {
			in.Nodes = t.nodes
		}
		cut, closeCuts, err := in.OpenCuts(t.files, t.folder, in.ChunkRanges(t.options.Tasks), j.Columns)
		if err != nil {
			return false, notYet(err)
		}
		defer closeCuts()
		cuts[in.ID] = cut
	}
	startFrom(j, cuts)
	if j.Labels != nil {
		if err := t.loadLabels(ctx); err != nil {
			return false, err
		}
	}
	scratch, err := t.ownScratch()
	if err != nil {
		return false, err
	}
	defer func() { err = errors.Join(err, scratch.Close()) }()
	j.Scratch, t.options.Scratch = scratch.Dir(), scratch.Dir()
	if j.Plan, err = t.planJob(ctx, j); err != nil {
		return false, err
	}
	j.Plan.DropCheckpoints() // they would be in a folder of this process
	t.options.Planned(j.Plan)
	if err = j.Run(ctx); ctx.Err() != nil && err != nil {
		err = fmt.Errorf("%s: %w: %w", t.storeDir, (&hopsJob{t.jobContext, j}).explain(ctx, err), ErrUnfinished)
	}
	return false, err
}

// notYet is the error of a task that does not find the output of another.
func notYet(err error) error {
	if errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("%w: another task must run first: %w", ErrOptions, err)
	}
	return err
}

// ownScratch is a folder for scratch files of this process. Those of processes that were killed are removed.
func (t *taskJob) ownScratch() (*folder.Scratch, error) {
	const prefix = "hopfeed-task-"
	parent := t.options.Scratch
	if parent == "" {
		parent = vfs.TempDir()
	} else if err := checkScratch(t.fsys, parent, t.graphDir, t.storeDir); err != nil {
		return nil, err
	}
	entries, err := t.fsys.ReadDir(parent)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	for _, e := range entries {
		if e.IsDir() && strings.HasPrefix(e.Name(), prefix) {
			if left, err := folder.OpenScratch(t.fsys, filepath.Join(parent, e.Name())); err == nil {
				_ = removeSteps(t.fsys, left.Dir())
				_ = left.Close() // what cannot be removed is not needed
			}
		}
	}
	for {
		own, err := folder.OpenScratch(t.fsys, filepath.Join(parent, prefix+rand.Text()))
		if !errors.Is(err, vfs.ErrLocked) { // else another process found it not locked yet, and removes it
			return own, err
		}
	}
}
