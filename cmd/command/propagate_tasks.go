package command

import (
	"context"
	"fmt"
	"io"
	"strings"

	"github.com/hopfeed/hopfeed/internal/machine"
	"github.com/hopfeed/hopfeed/internal/units"
	"github.com/hopfeed/hopfeed/preprop"
)

// doTasks lists the tasks of a propagation, or does one of them.
func (o *propagateOptions) doTasks(ctx context.Context, a *app, graph string) (result, error) {
	if o.Tasks == 0 {
		return nil, usagef("--task %s: --tasks K says into how many the work is divided", o.task)
	}
	if o.task == "" {
		list, err := preprop.ListTasks(ctx, a.fs, graph, o.output, o.Options)
		if err != nil {
			return nil, err
		}
		return &propagationTasks{o.output, list}, nil
	}
	r, err := preprop.RunTask(ctx, a.fs, graph, o.output, o.task, o.Options)
	if err != nil {
		return nil, err
	}
	return &propagationTask{r, machine.PeakRSS()}, nil
}

// propagationTasks is the result of propagate --tasks.
type propagationTasks struct {
	Output string         `json:"output"`
	Tasks  []preprop.Task `json:"tasks"` // that make it, in an order in which they can run; none if it is complete
}

func (p *propagationTasks) Text(w io.Writer) {
	if len(p.Tasks) == 0 {
		fmt.Fprintf(w, "%s\tis complete\n", p.Output)
	}
	for _, t := range p.Tasks {
		state := "to do"
		if t.Done {
			state = "done"
		}
		after := ""
		if len(t.After) > 0 {
			after = ", after all of " + strings.Join(t.After, ", ")
		}
		fmt.Fprintf(w, "%s\t%s: %s, %s of memory, reads %s, writes %s%s\n", t.Name, state,
			units.Count(int64(t.Cores), "core"), units.Bytes(t.MemoryBytes), units.Bytes(t.ReadBytes),
			units.Bytes(t.WrittenBytes), after)
	}
}

// propagationTask is the result of propagate --task.
type propagationTask struct {
	*preprop.TaskResult
	PeakRSSBytes int64 `json:"peak_rss_bytes"`
}

func (p *propagationTask) Text(w io.Writer) {
	if p.AlreadyDone {
		fmt.Fprintf(w, "%s\t%s was done before\n", p.Output, p.Task)
		return
	}
	fmt.Fprintf(w, "%s\t%s in %.1f s; %s read of the graph, %s of files of other tasks, %s written, at most %s of "+
		"memory\n", p.Output, p.Task, p.Seconds, units.Bytes(p.GraphBytesRead), units.Bytes(p.TaskBytesRead),
		units.Bytes(p.BytesWritten), units.Bytes(p.PeakRSSBytes))
}
