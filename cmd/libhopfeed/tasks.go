//go:build cgo && (linux || darwin)

package main

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hopfeed/hopfeed/cmd/command"
	"github.com/hopfeed/hopfeed/gds"
	"github.com/hopfeed/hopfeed/gds/devices"
	"github.com/hopfeed/hopfeed/internal/machine"
	"github.com/hopfeed/hopfeed/internal/offheap"
	"github.com/hopfeed/hopfeed/internal/progress"
	"github.com/hopfeed/hopfeed/internal/units"
	"github.com/hopfeed/hopfeed/internal/vfs"
	"github.com/hopfeed/hopfeed/internal/vfs/bucket"
	"github.com/hopfeed/hopfeed/tools/session"
)

// errInterrupted ends a task that is no longer wanted.
var errInterrupted = errors.New("interrupted")

// verbs are the kinds of tasks, as their options with defaults.
var verbs = map[string]func() verb{
	"environment": func() verb { return &environmentOptions{} },
	"command":     func() verb { return &commandOptions{} },
	"extents":     func() verb { return &extentsOptions{} },
	"rows":        func() verb { return &rowsOptions{} },
	"topology":    func() verb { return &topologyOptions{} },
	"plan":        func() verb { return &planOptions{defaultOpen()} },
	"open":        func() verb { o := defaultOpen(); return &o },
	"sample":      func() verb { o := defaultSample(); return &o },
}

// verb is the options of a task, which it is run with.
type verb interface {
	run(ctx context.Context, j *job) (any, error)
}

// job is a task that runs. What it opens is closed at its end or, if it opens a loader, with that.
type job struct {
	*client
	*reports
	machine session.Machine // what verbs that compute may use
	device  gds.Device      // that the batches of a loader lie on
	// unshared tells that processes cannot share memory.
	unshared bool
}

// do runs a verb. If it counts on memory that turns out not to be shared, it runs again without.
func (j *job) do(ctx context.Context, v verb) (any, error) {
	value, err := j.attempt(ctx, v)
	if errors.Is(err, offheap.ErrUnshared) {
		j.client, j.unshared = &client{}, true
		value, err = j.attempt(ctx, v)
	}
	return value, err
}

// attempt runs a verb, and closes what it has opened unless it opens a loader.
func (j *job) attempt(ctx context.Context, v verb) (value any, err error) {
	if computing, ok := v.(interface {
		share(ctx context.Context) (session.Machine, *budget, error)
	}); ok {
		var memory *budget
		if j.machine, memory, err = computing.share(ctx); err != nil {
			return nil, err
		}
		j.opens(memory)
	}
	value, err = v.run(ctx, j)
	if out, ok := value.(*opened); ok && err == nil {
		if err = j.start(out, j.device); err == nil {
			return out, nil
		}
	}
	return value, errors.Join(err, j.close())
}

// task is work that runs.
type task struct {
	cancel  context.CancelCauseFunc
	done    chan struct{}
	reports reports

	// When done:
	value any
	err   error

	taken atomic.Bool // by the caller
}

// start begins a task.
func start(name string, text []byte) (*task, error) {
	options, ok := verbs[name]
	if !ok {
		return nil, fmt.Errorf("%w: there is no verb %q", session.ErrOptions, name)
	}
	v := options()
	if err := parse(text, v); err != nil {
		return nil, err
	}
	ctx, cancel := context.WithCancelCause(context.Background())
	t := &task{cancel: cancel, done: make(chan struct{})}
	go func() {
		defer close(t.done)
		j := &job{client: &client{}, reports: &t.reports}
		t.value, t.err = j.do(ctx, v)
		if t.err != nil && context.Cause(ctx) == errInterrupted {
			t.err = errInterrupted
		}
	}()
	return t, nil
}

// wait returns the result as JSON, which a line of the command may have beside an error, or, with errWait when the time
// is over, the progress. What is left to report at the end comes before the result.
func (t *task) wait(over <-chan time.Time) ([]byte, error) {
	select {
	case <-t.done:
	case <-over:
		select {
		case <-t.done: // too
		default:
			text, err := json.Marshal(t.reports.progress(false))
			return text, cmp.Or(err, errWait)
		}
	}
	if last := t.reports.progress(true); len(last.Tasks)+len(last.Notes) > 0 {
		text, err := json.Marshal(last)
		return text, cmp.Or(err, errWait)
	}
	if t.value == nil && t.err != nil {
		return nil, t.err
	}
	text, err := json.Marshal(t.value)
	t.taken.Store(err == nil)
	return text, cmp.Or(t.err, err)
}

// end stops the task, and closes what it has opened for nobody.
func (t *task) end() error {
	t.cancel(errInterrupted)
	<-t.done
	if o, ok := t.value.(*opened); ok && t.err == nil && !t.taken.Load() {
		return clients.use(o.Loader, true, (*client).close)
	}
	return nil
}

// parse reads options.
func parse(options []byte, into any) error {
	d := json.NewDecoder(bytes.NewReader(options))
	d.DisallowUnknownFields()
	err := d.Decode(into)
	if wrong := (*json.UnmarshalTypeError)(nil); errors.As(err, &wrong) {
		field := wrong.Field[strings.LastIndexByte(wrong.Field, '.')+1:] // not the structures that it is embedded in
		return fmt.Errorf("%w: %s: %s is not of type %v", session.ErrOptions, field, wrong.Value, wrong.Type)
	}
	if err != nil {
		return fmt.Errorf("%w: %v", session.ErrOptions, err)
	}
	return nil
}

// resources are the threads and memory that a task may use.
type resources struct {
	Memory    string `json:"memory"`
	Processes int    `json:"processes"` // that share it
	Threads   int    `json:"threads"`
	CacheDir  string `json:"cache_dir"`
	CacheSize string `json:"cache_size"`
}

// files is the file system, whose paths may be URLs. It outlives the task, whose context does not.
func (r *resources) files(j *job) (vfs.FS, error) {
	o := bucket.Options{Note: j.note, CacheDir: r.CacheDir}
	if r.CacheSize != "" {
		size, err := units.ParseBytes(r.CacheSize)
		if err != nil {
			return nil, fmt.Errorf("%w: cache_size: %v", session.ErrOptions, err)
		}
		o.CacheBytes = bucket.CacheOf(size)
	}
	return bucket.New(vfs.OS(), o), nil
}

// plainFiles is the file system of verbs that read little.
func plainFiles(ctx context.Context) vfs.FS {
	return bucket.New(vfs.OS(), bucket.Options{Context: ctx, CacheBytes: bucket.NoCache})
}

// holders are who shares what is read whole. Memory that was named is a promise of one loader, so it is charged for all
// that it holds, even where others hold it too and could leave; the memory of the machine has it once.
func (j *job) holders(r *resources) offheap.Holders {
	return offheap.Holders{Processes: r.Processes, Whole: r.Memory != "" || j.unshared}
}

// share is that for a task, and its memory, which the Go heap is limited by until it is closed.
func (r *resources) share(ctx context.Context) (session.Machine, *budget, error) {
	limit, threads := machine.Budget(), machine.Threads()
	if r.Memory != "" {
		bytes, err := units.ParseBytes(r.Memory)
		if err != nil {
			return session.Machine{}, nil, fmt.Errorf("%w: memory: %v", session.ErrOptions, err)
		}
		limit = machine.BudgetOf(machine.Limit{Bytes: bytes, By: "memory"})
	} else if r.Processes > 1 {
		limit.Bytes /= units.Bytes(r.Processes)
		limit.By = fmt.Sprintf("%s, shared by %d processes", limit.By, r.Processes)
	}
	threads = max(1, threads/max(1, r.Processes))
	if r.Threads < 0 || r.Processes < 0 {
		return session.Machine{}, nil, fmt.Errorf("%w: %d threads, %d processes: want 1 or more", session.ErrOptions,
			r.Threads, r.Processes)
	}
	m := session.ThisMachine(ctx, limit, cmp.Or(r.Threads, threads), devices.Options{})
	return m, budgets.open(int64(limit.Bytes), r.Memory == ""), nil
}

// environmentOptions are variables of the environment, nil: unset. Go reads the environment when the process begins, so
// what its caller changes later has to be told.
type environmentOptions struct {
	Variables map[string]*string `json:"variables"`
}

func (o *environmentOptions) run(context.Context, *job) (any, error) {
	for name, value := range o.Variables {
		err := os.Unsetenv(name)
		if value != nil {
			err = os.Setenv(name, *value)
		}
		if err != nil {
			return nil, err
		}
	}
	return nil, nil
}

// commandOptions are a line of the command, which runs as `hopfeed ARGS --json` does.
type commandOptions struct {
	Args []string `json:"args"`
}

func (o *commandOptions) run(ctx context.Context, j *job) (any, error) {
	var memory *budget
	call := &command.Call{Progress: j.reports, Note: j.note, Limit: func(bytes int64, whole bool) {
		if memory != nil {
			_ = memory.Close() // which has no error
			memory = nil
		}
		if bytes > 0 {
			memory = budgets.open(bytes, whole)
		}
	}}
	return call.Run(ctx, o.Args)
}

// reports collect what a task says on the way.
type reports struct {
	mu      sync.Mutex
	last    int
	running []*report
	notes   []string
}

// report is the progress of a piece of the task.
type report struct {
	all   *reports
	id    int
	label string
	total int64
	unit  progress.Unit
	count atomic.Int64
	ended bool // it is reported once more
}

func (r *reports) Start(label string, total int64, unit progress.Unit) progress.Task {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.last++
	one := &report{all: r, id: r.last, label: label, total: total, unit: unit}
	r.running = append(r.running, one)
	return one
}

func (r *report) Add(n int64) { r.count.Add(n) }

func (r *report) Done() {
	r.all.mu.Lock()
	defer r.all.mu.Unlock()
	r.ended = true
}

func (r *reports) note(text string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.notes = append(r.notes, text)
}

// reported is the progress of a task as callers see it.
type reported struct {
	Tasks []reportedTask `json:"tasks"` // that run, or have ended since
	Notes []string       `json:"notes"` // since it was last asked for
}

type reportedTask struct {
	ID    int    `json:"id"`
	Label string `json:"label"`
	Done  int64  `json:"done"`
	Total int64  `json:"total"` // 0: not known
	Bytes bool   `json:"bytes"` // are counted
}

// progress is what there is to report; at the end it is the last, also of tasks that were left at an error.
func (r *reports) progress(end bool) reported {
	r.mu.Lock()
	defer r.mu.Unlock()
	out := reported{Tasks: []reportedTask{}, Notes: append([]string{}, r.notes...)}
	r.notes = nil
	for _, t := range r.running {
		out.Tasks = append(out.Tasks, reportedTask{t.id, t.label, t.count.Load(), t.total, t.unit == progress.Bytes})
	}
	r.running = slices.DeleteFunc(r.running, func(t *report) bool { return t.ended || end })
	return out
}
