package preprop

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/hopfeed/hopfeed/format"
	"github.com/hopfeed/hopfeed/internal/machine"
	"github.com/hopfeed/hopfeed/internal/vfs"
	"github.com/hopfeed/hopfeed/preprop/plan"
)

// TasksPlan predicts a propagation by tasks, on machines that are all the same. A machine does one task at a time.
type TasksPlan struct {
	Machines     int         `json:"machines"`
	Tasks        int         `json:"tasks"` // of each kind
	Stages       []StagePlan `json:"stages"`
	Seconds      float64     `json:"predicted_seconds"`
	ReadBytes    int64       `json:"planned_bytes_read"`    // from the shared folder or bucket, and from scratch files
	WrittenBytes int64       `json:"planned_bytes_written"` // to the same
	StoreBytes   int64       `json:"planned_store_bytes"`
	SharedBytes  int64       `json:"shared_bytes_needed"` // most at a time that machines share, beside the graph
	Hops         *Plan       `json:"hops,omitempty"`      // of one task hops; none of a typed graph
}

// StagePlan is all tasks of a kind, which begin when those before have ended.
type StagePlan struct {
	Kind         string  `json:"kind"`
	Tasks        int     `json:"tasks"`
	MemoryBytes  int64   `json:"memory_bytes"`  // of a task
	ScratchBytes int64   `json:"scratch_bytes"` // of a task, on the local disk
	ReadBytes    int64   `json:"planned_bytes_read"`
	WrittenBytes int64   `json:"planned_bytes_written"`
	TaskSeconds  float64 `json:"task_seconds"` // what a lost machine costs at most
	Seconds      float64 `json:"predicted_seconds"`
}

// PlanTasks predicts the propagation of a graph that need not exist, by o.Tasks tasks of each kind (0: the number that
// is quickest) on machines as o.Hardware describes.
func PlanTasks(d Described, machines int, o Options) (*TasksPlan, error) {
	return quickest(machines, o.Tasks, d.Features, func(tasks int) (*TasksPlan, error) {
		o.Tasks = tasks
		return planTasks(d, machines, o)
	})
}

// quickest plans by so many tasks, or if that is 0 by the number that is quickest, up to most.
func quickest(machines, tasks, most int, plan func(tasks int) (*TasksPlan, error)) (best *TasksPlan, first error) {
	if machines < 1 {
		return nil, fmt.Errorf("%w: %d machines: want 1 or more", ErrOptions, machines)
	}
	if tasks > 0 {
		return plan(tasks)
	}
	for tasks := machines; ; tasks *= 2 {
		p, err := plan(tasks)
		switch {
		case err == nil && (best == nil || p.Seconds < best.Seconds):
			best = p
		case err != nil && !errors.Is(err, machine.ErrDoesNotFit):
			return nil, err
		case err != nil && first == nil:
			first = err
		}
		if tasks >= most {
			break
		}
	}
	if best == nil {
		return nil, first
	}
	return best, nil
}

// PlanTypedTasks is PlanTasks for a typed graph, with the store that its tasks would make.
func PlanTypedTasks(ctx context.Context, fsys vfs.FS, graphDir, storeDir string, machines int, o Options) (*TasksPlan,
	error) {
	typed, err := format.OpenTyped(fsys, graphDir)
	if err != nil {
		return nil, err
	}
	columns := 0
	for _, n := range typed.Types {
		columns += n.Features
	}
	o.DryRun, o.Force = true, true // whatever is there
	return quickest(machines, o.Tasks, columns, func(tasks int) (*TasksPlan, error) {
		o.Tasks = tasks
		t, err := openTaskJob(fsys, graphDir, storeDir, o)
		if err != nil {
			return nil, err
		}
		defer t.close()
		list, err := t.list(ctx)
		if err != nil {
			return nil, err
		}
		return t.planList(list, machines)
	})
}

// planList predicts the tasks of a list.
func (t *taskJob) planList(list []Task, machines int) (*TasksPlan, error) {
	rates := &plan.DefaultRates
	if t.options.Hardware != nil {
		rates = plan.SharedRates(*t.options.Hardware, machines)
	}
	p := &TasksPlan{Machines: machines, Tasks: t.options.Tasks}
	for _, task := range list {
		kind, _, _ := strings.Cut(task.Name, "-")
		if n := len(p.Stages); n == 0 || p.Stages[n-1].Kind != kind {
			p.Stages = append(p.Stages, StagePlan{Kind: kind})
		}
		s := &p.Stages[len(p.Stages)-1]
		s.Tasks++
		s.MemoryBytes, s.ScratchBytes = max(s.MemoryBytes, task.MemoryBytes), max(s.ScratchBytes, task.ScratchBytes)
		s.ReadBytes, s.WrittenBytes = s.ReadBytes+task.ReadBytes, s.WrittenBytes+task.WrittenBytes
		s.TaskSeconds = max(s.TaskSeconds, task.computing+float64(task.ReadBytes)/rates.Read+
			float64(task.WrittenBytes)/rates.Write)
		if kind == "cut" || kind == "write" { // its results wait as long
			p.SharedBytes += task.WrittenBytes
		}
	}
	for i := range p.Stages {
		s := &p.Stages[i]
		s.Seconds = s.TaskSeconds * float64((s.Tasks+machines-1)/machines)
		p.Seconds += s.Seconds
		p.ReadBytes, p.WrittenBytes = p.ReadBytes+s.ReadBytes, p.WrittenBytes+s.WrittenBytes
	}
	for _, id := range t.target.matrices() {
		bytes, err := t.layout.MatrixBytes(id)
		if err != nil {
			return nil, err
		}
		p.StoreBytes += bytes
	}
	p.SharedBytes += p.StoreBytes
	return p, nil
}

func planTasks(d Described, machines int, o Options) (*TasksPlan, error) {
	s, _, w, err := describe(d, o)
	if err != nil {
		return nil, err
	}
	o = s.options
	rates := &plan.DefaultRates
	if o.Hardware != nil {
		rates = plan.SharedRates(*o.Hardware, machines)
	}
	row, width := int64(d.Features*o.DType.Size()), plan.PanelColumns(d.Features, o.Tasks, d.Features, o.DType)
	panels := (d.Features + width - 1) / width
	input := d.Nodes * row
	chunkRows := int64(w.Inputs[0].ChunkRows)
	cuts := min(int64(o.Tasks), (d.Nodes+chunkRows-1)/chunkRows)
	cutMemory := plan.CutBytes(w.Inputs[0], row, panels, d.Nodes/cuts, o.Threads)
	w.Columns, w.ResultFiles = width, true
	w.Inputs[0].Features, w.Inputs[0].DType = w.Columns, o.DType
	h, err := w.PlanOn(o.Device, o.MemoryBytes, rates)
	if err != nil {
		return nil, err
	}
	h.DropCheckpoints()
	t := &TasksPlan{Machines: machines, Tasks: o.Tasks, StoreBytes: w.StoreBytes, Hops: h}
	seconds := func(read, written int64) float64 { return float64(read)/rates.Read + float64(written)/rates.Write }
	// add adds tasks that each read and write so many bytes, and compute for so long.
	add := func(p StagePlan, read, written int64, computing float64) {
		p.ReadBytes, p.WrittenBytes = int64(p.Tasks)*read, int64(p.Tasks)*written
		p.TaskSeconds = computing + seconds(read, written)
		p.Seconds = p.TaskSeconds * float64((p.Tasks+machines-1)/machines)
		t.Stages, t.Seconds = append(t.Stages, p), t.Seconds+p.Seconds
		t.ReadBytes, t.WrittenBytes = t.ReadBytes+p.ReadBytes, t.WrittenBytes+p.WrittenBytes
	}
	table, rowsMemory := w.RowTableBytes, plan.ProcessBytes+w.PickedBytes
	add(StagePlan{Kind: "rows", Tasks: 1, MemoryBytes: rowsMemory}, 3*table, table+4*w.Rows, 0)
	add(StagePlan{Kind: "cut", Tasks: int(cuts), MemoryBytes: plan.ProcessBytes + cutMemory}, input/cuts, input/cuts, 0)
	read, written, scratch := hopsBytes(w, h)
	computing := max(0, h.Seconds-seconds(h.ReadBytes, h.WrittenBytes))
	add(StagePlan{Kind: "hops", Tasks: panels, MemoryBytes: h.MemoryBytes, ScratchBytes: scratch}, read, written,
		computing)
	results := int64(w.Matrices) * w.Rows * row
	parts := max(1, w.Matrices*s.layout.Parts())
	writes := min(o.Tasks, parts)
	writeMemory := plan.ProcessBytes + plan.AssembleBytes(w.Rows, row, results/int64(parts), o.Threads)
	add(StagePlan{Kind: "write", Tasks: writes, MemoryBytes: writeMemory}, results/int64(writes), results/int64(writes), 0)
	add(StagePlan{Kind: "publish", Tasks: 1, MemoryBytes: plan.ProcessBytes}, 0, 0, 0)
	t.SharedBytes = input + results + t.StoreBytes
	return t, nil
}
