//go:build cgo && (linux || darwin)

package main

import (
	"cmp"
	"encoding/json"
	"math"
	"path/filepath"
	"runtime/debug"
	"slices"
	"strings"
	"testing"

	"github.com/hopfeed/hopfeed/internal/machine"
	"github.com/hopfeed/hopfeed/internal/offheap"
	"github.com/hopfeed/hopfeed/internal/progress"
	"github.com/hopfeed/hopfeed/placement"
)

// run does a task as a caller does.
func run(t *testing.T, verb string, options map[string]any) (result opened) {
	t.Helper()
	text, err := json.Marshal(options)
	if err != nil {
		t.Fatal(err)
	}
	task, err := start(verb, text)
	if err == nil {
		for text, err = task.wait(nil); err == errWait; text, err = task.wait(nil) { // for what there is to report
		}
	}
	if err == nil {
		err = json.Unmarshal(text, &result)
	}
	if err == nil {
		err = task.end()
	}
	if err != nil {
		t.Fatalf("%s: %v", verb, err)
	}
	return result
}

// makeStore makes a graph and a store.
func makeStore(t *testing.T) (graph, store string) {
	t.Helper()
	dir := t.TempDir()
	graph, store = filepath.Join(dir, "graph"), filepath.Join(dir, "store")
	for _, line := range []string{
		"generate sbm -o " + graph + " --nodes 100 --edges 300 --features 4 --classes 2 --labeled 1",
		"propagate " + graph + " -o " + store + " --memory 1GiB",
	} {
		run(t, "command", map[string]any{"args": strings.Fields(line)})
	}
	return graph, store
}

func TestTheHeapIsLimitedByAllThatIsOpen(t *testing.T) {
	graph, store := makeStore(t)
	want := func(what string, bytes int64) {
		t.Helper()
		found := debug.SetMemoryLimit(-1)
		if found != math.MaxInt64 {
			found += offheap.InUse() + 16<<20 // of code
		}
		if max(found-bytes, bytes-found) >= 1<<20 { // small buffers do not change the limit
			t.Errorf("%s: the process is limited to %d bytes, want %d", what, found, bytes)
		}
	}
	open := func(verb string, options map[string]any) *client {
		t.Helper()
		var opened *client
		err := clients.use(run(t, verb, options).Loader, true, func(c *client) error { opened = c; return nil })
		if err != nil {
			t.Fatal(err)
		}
		return opened
	}
	want("after the propagation", math.MaxInt64)
	large := open("open", map[string]any{"store": store, "batch_rows": 10, "memory": "2GiB"})
	want("with one loader", 2<<30)
	small := open("sample", map[string]any{"graph": graph, "fanout": []int{2}, "batch_rows": 10, "memory": "300MiB"})
	want("with a smaller one beside", 2<<30+300<<20)
	if task, err := start("open", []byte(`{"store": "nowhere", "batch_rows": 10, "memory": "1GiB"}`)); err != nil {
		t.Error(err)
	} else if _, err := task.wait(nil); err == nil {
		t.Error("a store that is not there was opened")
	}
	want("after a failure", 2<<30+300<<20)
	if err := large.close(); err != nil {
		t.Error(err)
	}
	want("with the smaller one", 300<<20)
	if err := small.close(); err != nil {
		t.Error(err)
	}
	want("with none", math.MaxInt64)
}

func TestWhatATaskSaysLastComesBeforeItsResult(t *testing.T) {
	task := &task{done: make(chan struct{}), value: "the result"}
	steps := task.reports.Start("steps", 3, progress.Items)
	steps.Add(3)
	steps.Done()
	task.reports.note("one was left out")
	close(task.done)
	text, err := task.wait(nil)
	var last reported
	if err != errWait || json.Unmarshal(text, &last) != nil {
		t.Fatalf("%s, %v: want the progress", text, err)
	}
	if len(last.Tasks) != 1 || last.Tasks[0].Done != 3 || !slices.Equal(last.Notes, []string{"one was left out"}) {
		t.Errorf("the last progress is %s", text)
	}
	if text, err = task.wait(nil); err != nil || string(text) != `"the result"` {
		t.Errorf("%s, %v: want the result", text, err)
	}
}

func TestProcessesOfAMachineDivideItsThreads(t *testing.T) {
	for _, memory := range []string{"", "1GiB"} {
		for _, threads := range []int{0, 7} {
			r := resources{Memory: memory, Processes: 2, Threads: threads}
			m, budget, err := r.share(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			if want := cmp.Or(threads, max(1, machine.Threads()/2)); m.Threads != want {
				t.Errorf("memory %q, threads %d: %d threads, want %d", memory, threads, m.Threads, want)
			}
			_ = budget.Close()
		}
	}
}

func TestBudgetsThatMeanTheWholeMachineCountOnce(t *testing.T) {
	defer offheap.LimitProcess(0)
	var table budgetTable
	limit := func() int64 { return debug.SetMemoryLimit(-1) + offheap.InUse() + 16<<20 }
	a, b, c := table.open(4<<30, true), table.open(3<<30, true), table.open(1<<30, false)
	if found := limit(); found != 5<<30 {
		t.Errorf("4 and 3 GiB of the machine, and 1: %d bytes, want 5 GiB", found)
	}
	_ = a.Close()
	if found := limit(); found != 4<<30 {
		t.Errorf("3 GiB of the machine, and 1: %d bytes, want 4 GiB", found)
	}
	_, _ = b.Close(), c.Close()
	table.open(math.MaxInt64, false)
	d := table.open(math.MaxInt64, true)
	if found := debug.SetMemoryLimit(-1); found < math.MaxInt64/2 {
		t.Errorf("budgets without limit: %d bytes", found)
	}
	_ = d.Close()
}

func TestALoaderIsNotLostWhenItsDescriptionCannotBeEncoded(t *testing.T) {
	closed := false
	c := &client{}
	c.opens(closer(func() error { closed = true; return nil }))
	o := &opened{Loader: clients.add(c)}
	o.Alternatives = []placement.Alternative{{EpochSeconds: math.Inf(1)}} // which JSON does not have
	task := &task{cancel: func(error) {}, done: make(chan struct{}), value: o}
	close(task.done)
	for range 2 {
		if text, err := task.wait(nil); err == nil {
			t.Fatalf("encoded as %s", text)
		}
	}
	if err := task.end(); err != nil || !closed {
		t.Errorf("the end of the task has not closed what nobody can close (%v)", err)
	}
	if err := clients.use(o.Loader, false, func(*client) error { return nil }); err == nil {
		t.Error("the loader is still known")
	}
}

type closer func() error

func (f closer) Close() error { return f() }
