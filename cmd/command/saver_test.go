package command

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"strings"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"

	"github.com/hopfeed/hopfeed/format"
	"github.com/hopfeed/hopfeed/internal/vfs"
	"github.com/hopfeed/hopfeed/tools/checkpoint"
	"github.com/hopfeed/hopfeed/tools/session"
	"github.com/hopfeed/hopfeed/tools/training"
	"github.com/hopfeed/hopfeed/trainer"
)

// savesCounted is a file system that calls do when a training begins to save parameters for the n-th
// time, from 1.
type savesCounted struct {
	vfs.FS
	n  int
	do func(n int)
}

func (f *savesCounted) Create(path string) (vfs.PendingFile, error) {
	if strings.Contains(path, "/parameters-") {
		f.n++
		f.do(f.n)
	}
	return f.FS.Create(path)
}

func TestAnInterruptedTrainingLeavesTheBestSoFar(t *testing.T) {
	base := disk(t, generateLine, propagateLine)
	for _, runs := range []int{1, 2} {
		d := base.CrashClone()
		line := fmt.Sprintf("train store --model sgc --hops 2 --lr 0.01 --epochs 1000000 --runs %d --run run "+
			"--save-every 0s", runs)
		o := interruptedAtSave(t, d, 3, line)
		if o.code != exitInterrupted || !strings.Contains(o.stderr, "interrupted after epoch ") ||
			!strings.Contains(o.stderr, "hopfeed evaluate --checkpoint run store") {
			t.Fatalf("exit status %d: %s", o.code, o.stderr)
		}
		c, err := checkpoint.LoadRun(d, "run")
		if err != nil {
			t.Fatal(err)
		}
		if lacks := c.Incomplete(); !strings.Contains(lacks, "interrupted after epoch") ||
			strings.Contains(lacks, "1 of 2 runs were not begun") != (runs == 2) {
			t.Errorf("it lacks %q", lacks)
		}
		run := c.Runs[c.Best]
		if len(c.Runs) != 1 || len(c.History) != run.Epochs || run.BestEpoch > run.Epochs || run.ValidMetric == nil ||
			*c.History[run.BestEpoch-1].ValidMetric != *run.ValidMetric {
			t.Errorf("%+v of %d epochs", run, len(c.History))
		}
		// It is the model of as many epochs of undisturbed training.
		must(t, d, fmt.Sprintf("train store --model sgc --hops 2 --lr 0.01 --epochs %d --run short", run.BestEpoch))
		short, err := checkpoint.Load(d, "short")
		if err != nil || !reflect.DeepEqual(short.Parameters, c.Parameters) {
			t.Errorf("the model is not that of epoch %d: %v", run.BestEpoch, err)
		}
		if o := must(t, d, evaluateLine); !strings.Contains(o.stdout, "interrupted after epoch") {
			t.Errorf("evaluate does not say that it is incomplete: %s", o.stdout)
		}
		// It goes on with the same settings only.
		if o := hopfeed(t, d, line+" --dropout 0.25 --batch 64"); o.code != exitUsage ||
			!strings.Contains(o.stderr, "other settings: --batch 512 instead of 64 (--force starts over)") {
			t.Errorf("with other settings: exit status %d: %s", o.code, o.stderr)
		}
		must(t, d, line+" --emulate gpu=1,mem=1GiB") // it may have other devices
		must(t, d, strings.Replace(line, "--run run", "--run whole", 1))
		got, want := lasting(t, d, "run"), lasting(t, d, "whole")
		if got.Config["emulate"] == "" || want.Config["emulate"] != "" {
			t.Errorf("devices %q and %q", got.Config["emulate"], want.Config["emulate"])
		}
		delete(got.Config, "emulate")
		if !reflect.DeepEqual(got, want) {
			t.Errorf("continued: %+v, undisturbed: %+v", got, want)
		}
		// It is not lost by starting anew either, as long as there is nothing better to save.
		if o := hopfeed(t, d, line); o.code != exitUsage || !strings.Contains(o.stderr,
			"has ended (--force starts over)") {
			t.Errorf("again: exit status %d: %s", o.code, o.stderr)
		}
		before := tree(t, d, "run")
		for _, fails := range []string{"--force --lr 1e38", "--force --lr 1e38 --epochs 1"} {
			o := hopfeed(t, d, "train store --model sgc --hops 2 --run run "+fails)
			if o.code != exitFailed || !strings.Contains(o.stderr, "nothing was saved in run") ||
				!reflect.DeepEqual(tree(t, d, "run"), before) {
				t.Errorf("%s: exit status %d: %s", fails, o.code, o.stderr)
			}
		}
		done, stop := context.WithCancel(context.Background())
		stop()
		if o := hopfeedUntil(t, done, d, line+" --force"); o.code != exitInterrupted ||
			!reflect.DeepEqual(tree(t, d, "run"), before) {
			t.Errorf("interrupted at once: exit status %d: %s", o.code, o.stderr)
		}
	}
}

// interruptedAtSave interrupts a training when it begins to save parameters for the time last, from 1.
func interruptedAtSave(t *testing.T, d *vfs.Mem, last int, line string) (o outcome) {
	inBubble(func(t *testing.T) { // where saving takes no time, so that each step can be saved
		ctx, cancel := context.WithCancel(context.Background())
		defer cancel()
		o = hopfeedUntil(t, ctx, &savesCounted{FS: d, do: func(n int) {
			if n == last {
				cancel()
			}
		}}, line)
	})(t)
	return o
}

// lasting is what is saved of a training, without times and without what may differ in the same training.
func lasting(t *testing.T, fsys vfs.FS, dir string) *checkpoint.Checkpoint {
	t.Helper()
	c, err := checkpoint.LoadRun(fsys, dir)
	if err != nil {
		t.Fatal(err)
	}
	c.PredictedEpochSeconds = 0
	for i := range c.Runs {
		r := &c.Runs[i]
		r.EpochSeconds, r.StageSeconds, r.LoadWaitSeconds, r.RowsPerSecond, r.PeakDeviceBytes = 0, nil, 0, 0, 0
	}
	for i := range c.History {
		c.History[i].Seconds, c.History[i].TrainSeconds = 0, 0
	}
	return c
}

// TestATrainingThatIsKilledEndsTheSame kills trainings at each of their first saves and at some later ones, and lets
// them go on: once more killed, and then to the end.
func TestATrainingThatIsKilledEndsTheSame(t *testing.T) {
	base := disk(t, generateLine, propagateLine)
	for _, settings := range []string{
		"--model sign --hidden 4 --epochs 5 --runs 2 --batch 40 --eval-every 2",
		"--model sgc --hops 2 --epochs 4 --runs 3 --batch 40 --emulate gpu=2,mem=1MiB",
	} {
		line := "train store --run run --save-every 0s " + settings
		d := base.CrashClone()
		must(t, d, line)
		want := lasting(t, d, "run")
		for first := 1; first <= 12; first++ {
			var killed, again *vfs.Mem
			d := base.CrashClone()
			hopfeed(t, &savesCounted{FS: d, do: func(n int) {
				if n == first {
					killed = d.CrashCloneKeeping(uint64(n))
				}
			}}, line)
			if killed == nil {
				break // so many saves there are not
			}
			hopfeed(t, &savesCounted{FS: killed, do: func(n int) {
				if n == 2 {
					again = killed.CrashCloneKeeping(uint64(first))
				}
			}}, line)
			if again == nil {
				again = killed // at its end
			} else if o := hopfeed(t, again, line); o.code != exitDone ||
				!strings.Contains(o.stderr, "going on with run: ") {
				t.Fatalf("%s, killed at save %d: exit status %d: %s", settings, first, o.code, o.stderr)
			}
			if got := lasting(t, again, "run"); !reflect.DeepEqual(got, want) {
				t.Errorf("%s, killed at save %d: %+v, want %+v", settings, first, got, want)
			}
			if entries, err := again.ReadDir("run"); err != nil || len(entries) != 5 {
				t.Errorf("%s, killed at save %d: there are %v, %v", settings, first, entries, err)
			}
		}
	}
}

// inBubble runs a test by a clock that stands still while anything is at work.
func inBubble(test func(t *testing.T)) func(t *testing.T) {
	return func(t *testing.T) { synctest.Test(t, test) }
}

func TestADiskThatFillsUpWhileTrainingLosesNothingThatWasSaved(t *testing.T) {
	base := disk(t, generateLine, propagateLine)
	used := int64(0)
	for _, data := range tree(t, base, ".") {
		used += int64(len(data))
	}
	const line = "train store --model sgc --hops 2 --lr 0.05 --epochs 30 --run run --save-every 0s"
	for _, c := range []struct {
		name       string
		again      int // the save from which on there is space again
		code       int
		says, not  string
		isComplete bool
	}{
		{"for good", 1 << 30, exitDoesNotFit, "saving failed: ", "", false},
		{"for a while", 3, exitDone, "saving failed: ", "hopfeed: ", true},
	} {
		t.Run(c.name, inBubble(func(t *testing.T) { // where saving takes no time, so that each epoch can be saved
			d := base.CrashClone()
			o := hopfeed(t, &savesCounted{FS: d, do: func(n int) {
				if n >= 2 {
					d.SetCapacity(used)
				}
				if n >= c.again {
					d.SetCapacity(1 << 40)
				}
			}}, line)
			if o.code != c.code || !strings.Contains(o.stderr, c.says) || c.not != "" &&
				strings.Contains(o.stderr, c.not) {
				t.Errorf("exit status %d: %s", o.code, o.stderr)
			}
			got, err := checkpoint.Load(d, "run")
			if err != nil || (got.Incomplete() == "") != c.isComplete {
				t.Fatalf("%+v, %v", got, err)
			}
			if says := fmt.Sprintf("run holds what was saved earlier, epoch %d (validation",
				got.Runs[0].BestEpoch); !c.isComplete && !strings.Contains(o.stderr, says) {
				t.Errorf("%s does not say %q", o.stderr, says)
			}
		}))
	}
}

func TestARunThatDivergesDoesNotEndTheOthers(t *testing.T) {
	d := disk(t, generateLine, propagateLine)
	o := hopfeed(t, d, "train store --model sgc --hops 2 --lr 1e38 --runs 2 --epochs 5 --run run")
	for _, says := range []string{"run 1 of 2 (seed 0): training diverged", "run 2 of 2 (seed 1): training diverged",
		"nothing was saved"} {
		if o.code != exitFailed || !strings.Contains(o.stderr, says) {
			t.Errorf("exit status %d, %q does not say %q", o.code, o.stderr, says)
		}
	}
	if o.stdout != "" {
		t.Errorf("a summary of nothing: %s", o.stdout)
	}
}

// TestOfSeveralRunsTheBestIsKept goes through the account of a training whose runs end in all ways.
func TestOfSeveralRunsTheBestIsKept(t *testing.T) {
	at := func(v float64) *float64 { return &v }
	spec := trainer.Spec{Model: "sgc", Matrices: []trainer.MatrixID{{Operator: "x"}}, Features: 1, Classes: 3}
	store, err := format.OpenStore(disk(t, generateLine, propagateLine), "store")
	if err != nil {
		t.Fatal(err)
	}
	defer store.Close()
	result := func(seed uint64, valid float64, parameter float32) *trainer.Result {
		return &trainer.Result{
			Trained: trainer.Trained{
				Spec: spec, Options: trainer.Options{Epochs: 9, LearningRate: 1, Seed: seed}, Scales: []float32{1},
				Parameters: []float32{parameter, 0, 0, 0, 0, 0},
			},
			Figures: trainer.Figures{Epochs: 3, BestEpoch: 2, ValidMetric: at(valid), Metric: "accuracy"},
		}
	}
	type ending struct {
		valid float64 // < 0: no epoch has ended
		err   error
	}
	for _, c := range []struct {
		name   string
		runs   []ending
		best   int
		states string
		lacks  string
		says   string
	}{
		{"all finish", []ending{{0.5, nil}, {0.7, nil}, {0.7, nil}}, 1, "finished finished finished", "", ""},
		{"one diverges and is worse", []ending{{0.5, nil}, {0.3, trainer.ErrDiverged}, {0.4, nil}}, 0,
			"finished diverged finished",
			"run 2 of 3 diverged after epoch 3 of 9",
			"run 2 of 3 (seed 1): training diverged; run holds the best epoch so far, 2 of run 1 (validation " +
				"accuracy 50.00 %)"},
		{"one diverges and was better", []ending{{0.5, nil}, {0.6, trainer.ErrDiverged}, {0.4, nil}}, 1,
			"finished diverged finished",
			"run 2 of 3 diverged after epoch 3 of 9", "holds the best epoch so far, 2 of run 2"},
		{"the first diverges at once", []ending{{-1, trainer.ErrDiverged}, {0.1, nil}, {0.4, nil}}, 2,
			"diverged finished finished",
			"run 1 of 3 diverged after epoch 0 of 9", "2 of run 3"},
		{"the last fails", []ending{{0.5, nil}, {0.6, syscall.EIO}}, 1, "finished failed",
			"run 2 of 3 failed after epoch 3 of 9; 1 of 3 runs were not begun",
			"run 2 of 3 (seed 1): input/output error; run holds"},
	} {
		t.Run(c.name, func(t *testing.T) {
			m := vfs.NewMem()
			a := &app{fs: m, quiet: true}
			o := &trainOptions{Request: training.Request{Input: "store"}, runFolder: runFolder{run: "run"}}
			s, err := a.openSaver(o)
			if err != nil {
				t.Fatal(err)
			}
			c2 := checkpoint.Checkpoint{Wanted: 3, Data: checkpoint.DataSetOf(&store.Manifest)}
			c2.Spec, c2.Options = spec, trainer.Options{Epochs: 9}
			if err := s.Begin(t.Context(), store, session.RegionPartition(), c2, nil); err != nil {
				t.Fatal(err)
			}
			best, bestRun := -1.0, 0
			var last error
			for i, e := range c.runs {
				var r *trainer.Result
				if e.valid >= 0 {
					r = result(uint64(i), e.valid, float32(i))
				}
				s.BeginRun(uint64(i))
				if r != nil {
					s.RecordEpoch(trainer.Epoch{Number: 1, Best: true})
					s.SaveRun(stopped{r: r})
				}
				s.EndRun(context.Background(), stopped{r: r}, r, e.err)
				if last = nil; !errors.Is(e.err, trainer.ErrDiverged) {
					last = e.err
				}
				if e.valid > best && (e.err == nil || errors.Is(e.err, trainer.ErrDiverged)) {
					best, bestRun = e.valid, i
				}
				// What is there is the best of those until now.
				if s.LastSaved != nil {
					now, err := checkpoint.Load(m, "run")
					if err != nil || len(now.Runs) != i+1 || now.Best != bestRun && e.err == nil {
						t.Fatalf("after run %d: %+v, %v", i+1, now, err)
					}
				}
			}
			err = s.Outcome(last)
			if (err == nil) != (c.says == "") || err != nil && !strings.Contains(err.Error(), c.says) {
				t.Errorf("%v does not say %q", err, c.says)
			}
			for _, e := range c.runs {
				if e.err != nil && !errors.Is(err, e.err) {
					t.Errorf("%v is not %v", err, e.err)
				}
			}
			if err := s.Close(); err != nil {
				t.Fatal(err)
			}
			got, err := checkpoint.Load(m, "run")
			if err != nil {
				t.Fatal(err)
			}
			var states []string
			for _, r := range got.Runs {
				states = append(states, r.State)
			}
			if got.Best != c.best || got.Parameters[0] != float32(c.best) || got.Options.Seed != uint64(c.best) ||
				strings.Join(states, " ") != c.states || got.Incomplete() != c.lacks {
				t.Errorf("best %d, parameters %v, states %v, lacks %q", got.Best, got.Parameters, states,
					got.Incomplete())
			}
		})
	}
}

func TestARunWhoseStateWasNotSavedBeginsAnew(t *testing.T) {
	d := disk(t, generateLine, propagateLine)
	line := "train store --model sgc --hops 2 --lr 0.05 --epochs 20 --run run --save-every 0s"
	must(t, d, strings.Replace(line, "--run run", "--run whole", 1))
	interruptedAtSave(t, d, 2, line)
	dir, err := checkpoint.OpenRun(d, "run")
	if err != nil {
		t.Fatal(err)
	}
	c, err := dir.Load()
	if err != nil {
		t.Fatal(err)
	}
	if c.State = nil; c.Best != 0 {
		t.Fatalf("the best run is %d", c.Best)
	}
	if err := errors.Join(dir.Save(c), dir.Close()); err != nil {
		t.Fatal(err)
	}
	must(t, d, line)
	if got, want := lasting(t, d, "run"), lasting(t, d, "whole"); !reflect.DeepEqual(got, want) {
		t.Errorf("begun anew: %+v, undisturbed: %+v", got, want)
	}
}

// stopped is a run without a state.
type stopped struct {
	r   *trainer.Result
	err error
}

func (s stopped) Result() (*trainer.Result, error) { return s.r, s.err }
func (s stopped) State() (*trainer.State, error)   { return nil, nil }

func TestOfTrainingsAtOnceOneGetsTheDirectory(t *testing.T) {
	base := disk(t, generateLine, propagateLine)
	var wait sync.WaitGroup
	codes := make([]int, 4)
	for i := range codes {
		wait.Add(1)
		go func() {
			defer wait.Done()
			o := hopfeed(t, base, "train store --model sgc --hops 2 --epochs 30 --run run --save-every 0s --threads 2")
			if codes[i] = o.code; o.code != exitDone && !strings.Contains(o.stderr, "run") {
				t.Errorf("%d: %s", o.code, o.stderr)
			}
		}()
	}
	wait.Wait()
	won := 0
	for _, code := range codes {
		switch code {
		case exitDone:
			won++
		case exitFailed, exitUsage: // while the other trains, or when it has ended
		default:
			t.Errorf("exit status %d", code)
		}
	}
	if won != 1 {
		t.Errorf("%d of 4 have saved their model: %v", won, codes)
	}
	must(t, base, evaluateLine)
}

func TestTrainingIsRefusedWhereItsModelDoesNotFitTheDisk(t *testing.T) {
	d := disk(t, generateLine, propagateLine)
	used := 0
	for _, data := range tree(t, d, ".") {
		used += len(data)
	}
	d.SetCapacity(int64(used + 100<<10))
	o := hopfeed(t, d, "train store --model sgc --hops 2 --run run")
	if o.code != exitDoesNotFit || !strings.Contains(o.stderr, "run needs ") || strings.Contains(o.stderr, "rows:") {
		t.Errorf("exit status %d: %s", o.code, o.stderr)
	}
	if _, err := d.Stat("run"); err == nil {
		t.Error("a directory was left")
	}
}
