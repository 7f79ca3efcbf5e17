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
	"sync"
	"sync/atomic"
	"time"

	"github.com/hopfeed/hopfeed/format"
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

// verbs are the kinds of tasks. Each reads its options.
var verbs = map[string]func(ctx context.Context, options []byte, p *reports) (any, error){
	"inspect": inspect, "propagate": propagate, "import": importArrays, "plan": plan, "open": open, "sample": sample,
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
func start(verb string, options []byte) (*task, error) {
	run, ok := verbs[verb]
	if !ok {
		return nil, fmt.Errorf("%w: there is no verb %q", session.ErrOptions, verb)
	}
	ctx, cancel := context.WithCancelCause(context.Background())
	t := &task{cancel: cancel, done: make(chan struct{})}
	go func() {
		defer close(t.done)
		if t.value, t.err = run(ctx, options, &t.reports); t.err != nil && ctx.Err() != nil {
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
		return fmt.Errorf("%w: %s: %s is not of type %v", session.ErrOptions, wrong.Field, wrong.Value, wrong.Type)
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

// machine is that for a task, and its memory, which the Go heap is limited by until it is closed.
func (r resources) machine(ctx context.Context) (session.Machine, *budget, error) {
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

func inspect(_ context.Context, options []byte, _ *reports) (any, error) {
	var o struct {
		Path string `json:"path"`
	}
	if err := parse(options, &o); err != nil {
		return nil, err
	}
	d, err := format.OpenAny(vfs.OS(), o.Path)
	if err != nil {
		return nil, err
	}
	defer d.Close()
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

func propagate(ctx context.Context, options []byte, p *reports) (any, error) {
	var o struct {
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
	if err := parse(options, &o); err != nil {
		return nil, err
	}
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
	m, memory, err := o.machine(ctx)
	if err != nil {
		return nil, err
	}
	defer memory.Close()
	return preprop.Propagate(ctx, vfs.OS(), o.Graph, o.Output, preprop.Options{
		Hops: value(o.Hops, 2), Operators: operators, Rows: o.Rows, DType: t, ChunkRows: o.ChunkRows,
		Split: value(o.Split, 0), Seed: value(o.Seed, 0),
		Defaulted: preprop.Defaulted{Hops: o.Hops == nil, Operators: o.Operator == "", Split: o.Split == nil,
			Seed: o.Seed == nil},
		Threads: m.Threads, MemoryBytes: int64(m.Budget.Bytes), Scratch: o.Scratch, Force: o.Force, DryRun: o.DryRun,
		Note: p.note, Progress: p,
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

func importArrays(ctx context.Context, options []byte, p *reports) (_ any, err error) {
	var o struct {
		resources
		Source     string `json:"source"`
		Output     string `json:"output"`
		Undirected bool   `json:"undirected"`
		DType      string `json:"dtype"`
		Force      bool   `json:"force"`
	}
	if err := parse(options, &o); err != nil {
		return nil, err
	}
	t, err := storable(o.DType)
	if err != nil {
		return nil, err
	}
	m, memory, err := o.machine(ctx)
	if err != nil {
		return nil, err
	}
	defer memory.Close()
	if err := refuseWithin(o.Output); err != nil {
		return nil, err
	}
	io := ingest.Options{DType: t, Threads: m.Threads, MemoryBytes: int64(m.Budget.Bytes), Force: o.Force, Progress: p}
	if o.Undirected {
		io.Direction = ingest.Undirected
	}
	source, err := ingest.OpenNPY(vfs.OS(), o.Source, ingest.NPYOptions{})
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, source.Close()) }()
	r, err := ingest.Run(ctx, vfs.OS(), source, o.Output, io)
	if err != nil {
		return nil, err
	}
	for _, n := range r.Notes {
		p.note(n)
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
