//go:build cgo && linux

package main

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hopfeed/hopfeed/format"
	"github.com/hopfeed/hopfeed/gds"
	"github.com/hopfeed/hopfeed/gds/devices"
	"github.com/hopfeed/hopfeed/internal/dtype"
	"github.com/hopfeed/hopfeed/internal/machine"
	"github.com/hopfeed/hopfeed/internal/progress"
	"github.com/hopfeed/hopfeed/internal/units"
	"github.com/hopfeed/hopfeed/internal/vfs"
	"github.com/hopfeed/hopfeed/preprop"
	"github.com/hopfeed/hopfeed/preprop/operator"
	"github.com/hopfeed/hopfeed/tools/ingest"
	"github.com/hopfeed/hopfeed/tools/session"
)

// errInterrupted ends a task that is no longer wanted.
var errInterrupted = errors.New("interrupted")

// verbs are the kinds of tasks, as their options with defaults.
var verbs = map[string]func() verb{
	"inspect":   func() verb { return &inspectOptions{} },
	"propagate": func() verb { return &propagateOptions{} },
	"import":    func() verb { return &importOptions{} },
	"plan":      func() verb { return &planOptions{defaultOpen()} },
	"open":      func() verb { o := defaultOpen(); return &o },
	"sample":    func() verb { o := defaultSample(); return &o },
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
}

// do runs a verb with options of the caller.
func (j *job) do(ctx context.Context, v verb, options []byte) (value any, err error) {
	if err := parse(options, v); err != nil {
		return nil, err
	}
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
	ctx, cancel := context.WithCancelCause(context.Background())
	t := &task{cancel: cancel, done: make(chan struct{})}
	go func() {
		defer close(t.done)
		j := &job{client: &client{}, reports: &t.reports}
		if t.value, t.err = j.do(ctx, options(), text); t.err != nil && ctx.Err() != nil {
			t.err = errInterrupted
		}
	}()
	return t, nil
}

// wait returns the result as JSON or, with errWait when the time is over, the progress.
func (t *task) wait(over <-chan time.Time) ([]byte, error) {
	select {
	case <-t.done:
		if t.err != nil {
			return nil, t.err
		}
		text, err := json.Marshal(t.value)
		t.taken.Store(err == nil)
		return text, err
	case <-over:
		text, err := json.Marshal(t.reports.progress())
		return text, cmp.Or(err, errWait)
	}
}

// end stops the task, and closes what it has opened for nobody.
func (t *task) end() error {
	t.cancel(errInterrupted)
	<-t.done
	if o, ok := t.value.(*opened); ok && t.err == nil && !t.taken.Load() {
		if c, err := clients.get(o.Loader, true); err == nil {
			return c.close()
		}
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

// resources are what a task may use of the machine.
type resources struct {
	Memory    string `json:"memory"`
	Processes int    `json:"processes"` // that share it
	Threads   int    `json:"threads"`
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
		threads = max(1, threads/r.Processes)
	}
	if r.Threads < 0 || r.Processes < 0 {
		return session.Machine{}, nil, fmt.Errorf("%w: %d threads, %d processes: want 1 or more", session.ErrOptions,
			r.Threads, r.Processes)
	}
	m := session.ThisMachine(ctx, limit, cmp.Or(r.Threads, threads), devices.Options{})
	return m, budgets.open(int64(limit.Bytes), r.Memory == ""), nil
}

// inspected is the result of inspect.
type inspected struct {
	format.Manifest
	Files    []string `json:"files"`    // not their checksums
	Matrices [][2]any `json:"matrices"` // operator, hop
}

type inspectOptions struct {
	Path string `json:"path"`
}

func (o *inspectOptions) run(_ context.Context, j *job) (any, error) {
	d, err := format.OpenAny(vfs.OS(), o.Path)
	if err != nil {
		return nil, err
	}
	j.opens(d)
	r := &inspected{Manifest: d.Manifest}
	for _, f := range d.Manifest.Files {
		r.Files = append(r.Files, f.Path)
	}
	for _, m := range d.Matrices() {
		r.Matrices = append(r.Matrices, [2]any{m.Operator, m.Hop})
	}
	return r, nil
}

// storable reads a type that features can be stored in; "" is none.
func storable(name string) (t format.DType, err error) {
	if name == "" {
		return 0, nil
	}
	if t, err = dtype.Parse(name); err != nil || !t.IsFloat() {
		return 0, fmt.Errorf("%w: dtype %q: want float32, float16 or bfloat16", session.ErrOptions, name)
	}
	return t, nil
}

type propagateOptions struct {
	resources
	Graph     string   `json:"graph"`
	Output    string   `json:"output"`
	Hops      *int     `json:"hops"`
	Operator  string   `json:"operator"`
	Rows      string   `json:"rows"`
	DType     string   `json:"dtype"`
	ChunkRows int      `json:"chunk_rows"`
	Split     *int     `json:"split"`
	Seed      *uint64  `json:"seed"`
	Tolerance *float64 `json:"tolerance"`
	Scratch   string   `json:"scratch"`
	Force     bool     `json:"force"`
	DryRun    bool     `json:"dry_run"`
}

func (o *propagateOptions) run(ctx context.Context, j *job) (any, error) {
	if err := refuseWithin(o.Output); err != nil {
		return nil, err
	}
	operators, err := operator.ParseList(cmp.Or(o.Operator, operator.Sym),
		value(o.Tolerance, operator.DefaultTolerance))
	if err != nil {
		return nil, fmt.Errorf("%w: operator: %v", session.ErrOptions, err)
	}
	t, err := storable(o.DType)
	if err != nil {
		return nil, err
	}
	return preprop.Propagate(ctx, vfs.OS(), o.Graph, o.Output, preprop.Options{
		Hops: value(o.Hops, 2), Operators: operators, Rows: o.Rows, DType: t, ChunkRows: o.ChunkRows,
		Split: value(o.Split, 0), Seed: value(o.Seed, 0),
		Defaulted: preprop.Defaulted{Hops: o.Hops == nil, Operators: o.Operator == "", Split: o.Split == nil,
			Seed: o.Seed == nil},
		Threads: j.machine.Threads, MemoryBytes: int64(j.machine.Budget.Bytes), Scratch: o.Scratch,
		Force: o.Force, DryRun: o.DryRun, Note: j.note, Progress: j.reports,
	})
}

// refuseWithin refuses an output somewhere below a graph or store.
func refuseWithin(output string) error {
	dir, err := format.Enclosing(vfs.OS(), output)
	if err == nil && dir != "" {
		return fmt.Errorf("%w: %s lies in the graph or store %s, to which nothing may be added", session.ErrOptions,
			output, dir)
	}
	return err
}

// value is an option, or its default where it was left out.
func value[T any](given *T, standard T) T {
	if given == nil {
		return standard
	}
	return *given
}

type importOptions struct {
	resources
	Source     string `json:"source"`
	Output     string `json:"output"`
	Undirected bool   `json:"undirected"`
	DType      string `json:"dtype"`
	Force      bool   `json:"force"`
}

func (o *importOptions) run(ctx context.Context, j *job) (any, error) {
	t, err := storable(o.DType)
	if err != nil {
		return nil, err
	}
	if err := refuseWithin(o.Output); err != nil {
		return nil, err
	}
	io := ingest.Options{DType: t, Threads: j.machine.Threads, MemoryBytes: int64(j.machine.Budget.Bytes),
		Force: o.Force, Progress: j.reports}
	if o.Undirected {
		io.Direction = ingest.Undirected
	}
	source, err := ingest.OpenNPY(vfs.OS(), o.Source, ingest.NPYOptions{})
	if err != nil {
		return nil, err
	}
	j.opens(source)
	r, err := ingest.Run(ctx, vfs.OS(), source, o.Output, io)
	if err != nil {
		return nil, err
	}
	for _, n := range r.Notes {
		j.note(n)
	}
	return r, nil
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
	r.all.running = slices.DeleteFunc(r.all.running, func(other *report) bool { return other == r })
}

func (r *reports) note(text string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.notes = append(r.notes, text)
}

// reported is the progress of a task as callers see it.
type reported struct {
	Tasks []reportedTask `json:"tasks"`
	Notes []string       `json:"notes"` // since it was last asked for
}

type reportedTask struct {
	ID    int    `json:"id"`
	Label string `json:"label"`
	Done  int64  `json:"done"`
	Total int64  `json:"total"` // 0: not known
	Bytes bool   `json:"bytes"` // are counted
}

func (r *reports) progress() reported {
	r.mu.Lock()
	defer r.mu.Unlock()
	out := reported{Tasks: []reportedTask{}, Notes: append([]string{}, r.notes...)}
	r.notes = nil
	for _, t := range r.running {
		out.Tasks = append(out.Tasks, reportedTask{t.id, t.label, t.count.Load(), t.total, t.unit == progress.Bytes})
	}
	return out
}
