package preprop

import (
	"context"
	"errors"
	"fmt"
	"io/fs"

	"github.com/hopfeed/hopfeed/format"
	"github.com/hopfeed/hopfeed/internal/vfs"
	"github.com/hopfeed/hopfeed/preprop/plan"
)

// ListTasks lists the tasks that o.Tasks divides a propagation into, in an order in which they can run.
func ListTasks(ctx context.Context, fsys vfs.FS, graphDir, storeDir string, o Options) ([]Task, error) {
	if err := o.checkTasks(); err != nil {
		return nil, err
	}
	t, err := openTaskJob(fsys, graphDir, storeDir, o)
	if err != nil {
		return nil, err
	}
	defer t.close()
	if t.complete {
		return []Task{}, nil
	}
	return t.list(ctx)
}

func (t *taskJob) list(ctx context.Context) ([]Task, error) {
	if t.existing == nil {
		if err := t.chooseRows(ctx); err != nil {
			return nil, err
		}
	}
	job, err := format.OpenTasks(t.fsys.FS, t.storeDir)
	begun := err == nil && job.Base == t.base()
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	if begun {
		if err := t.known(); err != nil {
			return nil, err
		}
		begun = t.readNodes(ctx) == nil
	}
	g, threads, size := &t.graph.Manifest, t.options.Threads, t.options.DType.Size()
	rowsMemory := plan.ProcessBytes + plan.PickedBytes(g, t.target.StoredRows)
	table, nodes := plan.RowTableBytes(g), 4*t.target.StoredRows
	out := []Task{{Name: "rows", After: []string{}, Inputs: []string{"GRAPH/nodes"},
		Outputs: []string{"STORE/rows", "STORE/.job/job.json", "STORE/.job/tasks/nodes-*"}, Done: begun,
		MemoryBytes: rowsMemory, Cores: 1, ReadBytes: 3 * table, WrittenBytes: nodes + table}}
	rowsOf := "STORE/.job/tasks/nodes-*"
	if t.existing != nil {
		rowsOf, out[0].Inputs, out[0].Outputs = "STORE/rows", []string{"STORE/rows"}, []string{"STORE/.job/job.json"}
	}
	for i := range t.options.Tasks {
		task := Task{Name: fmt.Sprintf("cut-%d", i), After: []string{}, Inputs: []string{}, Outputs: []string{},
			Done: true, Cores: threads}
		for _, in := range t.inputs {
			ranges := in.ChunkRanges(t.options.Tasks)
			if i >= len(ranges) {
				continue
			}
			rest, err := in.UncutColumns(t.files, t.folder, ranges[i], t.columnsOf(in))
			if err != nil {
				return nil, err
			}
			first, _ := in.ChunkRowRange(ranges[i].First)
			last, count := in.ChunkRowRange(ranges[i].End - 1)
			rows, from := last+int64(count)-first, "STORE/"
			if in.ID == format.Input {
				from = "GRAPH/"
			}
			task.Inputs = append(task.Inputs,
				fmt.Sprintf("%s%s, rows %d to %d", from, format.MatrixFolder(in.ID), first, first+rows-1))
			task.Outputs = append(task.Outputs, "STORE/.job/tasks/"+in.CutName(ranges[i])+"-*")
			task.Done = task.Done && len(rest) == 0
			row := int64(in.Columns() * size)
			task.MemoryBytes = max(task.MemoryBytes, plan.ProcessBytes+plan.CutBytes(in.Layout, row,
				len(t.columnsOf(in)), rows, threads))
			task.ReadBytes += rows * int64(in.Layout.Features*in.Layout.DType.Size())
			task.WrittenBytes += rows * row
		}
		if t.labels != nil {
			task.MemoryBytes, task.ReadBytes = task.MemoryBytes+t.labels.LoadedBytes(g.Nodes), task.ReadBytes+table
		}
		if len(task.Outputs) == 0 {
			break // there is nothing left for this one and the next
		}
		out = append(out, task)
	}
	for i := range t.options.Tasks {
		shares := t.sharesOf(i)
		if len(shares) == 0 {
			break // there is nothing left for this one and the next
		}
		task := Task{Name: fmt.Sprintf("hops-%d", i), After: []string{"rows", "cut"},
			Inputs: []string{"GRAPH/topology", rowsOf}, Outputs: []string{}, Done: true, Cores: threads}
		if t.typed != nil {
			task.Inputs[0] = "GRAPH/relations"
		}
		for _, s := range shares {
			if t.typed == nil || s.input != nil {
				task.Inputs = append(task.Inputs, fmt.Sprintf("STORE/.job/tasks/cut-*-%d-%d", s.First, s.End))
			}
			of := ""
			if s.root != nil {
				of = " from " + s.root.title(s.root.name)
			}
			task.Outputs = append(task.Outputs, fmt.Sprintf("STORE/.job/tasks/result-*, columns %d to %d%s", s.First, s.End-1,
				of))
		}
		planTask := t.planHops
		if t.typed != nil {
			planTask = t.planTypedHops
		}
		if err := planTask(i, &task); err != nil {
			return nil, err
		}
		out = append(out, task)
	}
	for i := range t.options.Tasks {
		task := Task{Name: fmt.Sprintf("write-%d", i), After: []string{"hops"},
			Inputs: []string{"STORE/.job/tasks/result-*"}, Outputs: []string{}, Done: true, Cores: threads}
		for _, p := range t.parts(i) {
			task.Outputs = append(task.Outputs, format.PartPath("STORE/"+format.MatrixFolder(p.id), p.k))
			first, end := t.layout.Of(p.id).PartRows(p.k)
			row := int64(t.target.width(p.id) * size)
			bytes := (end - first) * row
			task.ReadBytes, task.WrittenBytes = task.ReadBytes+bytes, task.WrittenBytes+bytes
			task.MemoryBytes = max(task.MemoryBytes,
				plan.ProcessBytes+plan.AssembleBytes(t.target.StoredRows, row, bytes, threads))
			if task.Done && begun {
				if task.Done, err = job.HasPart(p.id, p.k); err != nil {
					return nil, err
				}
			}
			task.Done = task.Done && begun
		}
		if len(task.Outputs) == 0 {
			break // there is nothing left for this one and the next
		}
		out = append(out, task)
	}
	return append(out, Task{Name: "publish", After: []string{"write"},
		Inputs: []string{"STORE/.job/tasks/features*"}, Outputs: []string{"STORE/index.arrow", "STORE/manifest.json"},
		MemoryBytes: plan.ProcessBytes, Cores: 1}), nil
}

// hopsBytes is what a task hops reads, writes, and keeps in scratch files: what its plan has, without rows and store,
// which other tasks read and make.
func hopsBytes(w *plan.Work, p *plan.Plan) (read, written, scratch int64) {
	made := w.Rows * int64(w.Columns*w.Stored.DType.Size()*w.Matrices)
	return p.ReadBytes - 3*w.RowTableBytes - made + 4*w.Rows, p.WrittenBytes - w.StoreBytes, max(0, p.ScratchBytes-made)
}

// planHops says whether task hops-i is done, and what it takes.
func (t *taskJob) planHops(i int, task *Task) error {
	j, err := t.shareJob(i)
	if err != nil {
		return err
	}
	task.Done = finished(j)
	for k := range j.Results { // the plan is of the whole task
		j.Results[k].Have = nil
	}
	w, err := t.work(j)
	if err != nil {
		return err
	}
	p, err := t.options.planOf(w)
	if err != nil {
		return err
	}
	p.DropCheckpoints()
	task.MemoryBytes = p.MemoryBytes
	task.ReadBytes, task.WrittenBytes, task.ScratchBytes = hopsBytes(w, p)
	return nil
}
