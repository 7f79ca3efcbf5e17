package command

import (
	"fmt"
	"math"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/hopfeed/hopfeed/format"
	"github.com/hopfeed/hopfeed/internal/dtype"
	"github.com/hopfeed/hopfeed/internal/vfs"
	"github.com/hopfeed/hopfeed/loader/sampling"
	"github.com/hopfeed/hopfeed/tools/scheduler"
)

const scheduledLine = "train graph --model sage --hidden 8 --batch 16 --epochs 3 --seed 3"

// parametersOf are the saved parameters of a run.
func parametersOf(t *testing.T, files map[string]string) (all string) {
	t.Helper()
	for name, text := range files {
		if strings.Contains(name, "/parameters-") {
			all += text
		}
	}
	if all == "" {
		t.Fatal("no parameters are saved")
	}
	return all
}

// Whoever prepares which batch, the model is the same, to the bit; also after it was stopped, by another
// schedule than before.
func TestModelsAreTheSameByAllSchedules(t *testing.T) {
	for _, c := range []struct {
		flags string
		only  []string // schedules; nil: all
	}{
		{"--emulate gpu=1,mem=1GiB", nil},
		{"--emulate gpu=1,mem=1GiB --sampler labor --cache ducati:9000 --runs 2",
			[]string{"gpu", "mixed", "collective"}},
		{"--emulate gpu=1,mem=1GiB --placement host --cache degree:600", []string{"collective", "mode-2"}},
		{"--emulate gpu=1,mem=1GiB --replace", []string{"cpu", "gpu"}},
		{"--emulate gpu=1,mem=1GiB --placement storage --sampler ladies --fanout 40,40", []string{"auto", "cpu"}},
		{"", []string{"auto", "cpu", "sequential", "mode-1", "mode-2"}},
	} {
		whole := disk(t, generateLine)
		must(t, whole, scheduledLine+" --run run "+c.flags)
		want := parametersOf(t, tree(t, whole, "run"))
		names := c.only
		if names == nil {
			names = scheduler.Names()
		}
		for i, name := range names {
			d := disk(t, generateLine)
			line := scheduledLine + " --run run --json " + c.flags + " --schedule "
			if o := interruptedAtSave(t, d, 1,
				line+names[(i+1)%len(names)]+" --save-every 0s"); o.code != exitInterrupted {
				t.Fatalf("exit status %d: %s", o.code, o.stderr)
			}
			var r struct{ Schedule *scheduler.Report }
			o := must(t, d, line+name)
			readJSON(t, o.stdout, &r)
			if r.Schedule == nil && !(name == "auto" && c.flags == "") {
				t.Errorf("%s %s: no schedule in %s", c.flags, name, o.stdout)
			}
			if r.Schedule != nil && (r.Schedule.CPUBatches+r.Schedule.GPUBatches == 0 || len(r.Schedule.Profile) < 3) {
				t.Errorf("%s %s: %+v", c.flags, name, r.Schedule)
			}
			if got := parametersOf(t, tree(t, d, "run")); got != want {
				t.Errorf("%s: by schedule %s there are other parameters", c.flags, name)
			}
		}
	}
}

// On emulated machines, in time that passes only while all wait, epochs take what was predicted.
func TestPredictedEpochsAreThoseThatRun(t *testing.T) {
	machines := []string{
		"workers=12,cpu=600ms,gather=100ms,dma=14ms,sampling=9ms,compute=12ms",
		"workers=8,cpu=200ms,gather=40ms,dma=14ms,sampling=26ms,compute=4ms",
		"workers=6,cpu=230ms,gather=90ms,dma=5ms,sampling=16ms,compute=22ms",
	}
	for _, machine := range machines {
		epoch := map[string]float64{}
		for _, name := range scheduler.Names() {
			synctest.Test(t, func(t *testing.T) {
				d := disk(t, "generate sbm -o graph --nodes 900 --edges 1500 --features 6 --classes 3 --labeled 0.9 "+
					"--seed 7")
				o := must(t, d, strings.Replace(scheduledLine, "--batch 16", "--batch 8",
					1)+" --json --workers 4 --emulate gpu=1,mem=1GiB,"+strings.Replace(machine, "workers=12",
					"workers=4", 1)+" --schedule "+name)
				var r struct{ Schedule scheduler.Report }
				readJSON(t, o.stdout, &r)
				s := r.Schedule
				if s.MeasuredSeconds == nil || s.Epochs != 3 ||
					math.Abs(*s.MeasuredSeconds/s.PredictedSeconds-1) > 0.05 {
					t.Errorf("%s on %s: %s", name, machine, o.stdout)
					return
				}
				epoch[name] = *s.MeasuredSeconds
				if busy := []float64{s.CPUBusy, s.LinkBusy, s.GPUBusy}; fmt.Sprint(busy) == "[0 0 0]" ||
					max(busy[0], busy[1], busy[2]) > 1.0001 {
					t.Errorf("%s on %s: busy %v", name, machine, busy)
				}
			})
		}
		for name, seconds := range epoch {
			if seconds < 0.999*epoch["collective"] {
				t.Errorf("%s: %s takes %v, collective %v", machine, name, seconds, epoch["collective"])
			}
		}
	}
}

// On a grid of emulated machines and memories, in time that passes only while all wait, an epoch by the schedule and
// the workers that auto chooses takes at most 5 % longer than by any other that fits.
func TestAutoIsNearlyTheBestThatFits(t *testing.T) {
	const generate = "generate sbm -o graph --nodes 600 --edges 4500 --features 400 --classes 3 --labeled 0.9 --seed 7"
	const line = "train graph --model sage --hidden 8 --batch 20 --epochs 1 --fanout 4,4 --placement host --seed 3 --json"
	type result struct{ Schedule scheduler.Report }
	run := func(t *testing.T, machine, flags string) (r *result) {
		synctest.Test(t, func(t *testing.T) {
			o := hopfeed(t, disk(t, generate), fmt.Sprintf("%s --emulate gpu=1,%s %s", line, machine, flags))
			if o.code == exitDoesNotFit {
				return
			}
			r = new(result)
			readJSON(t, o.stdout, r)
			if r.Schedule.MeasuredSeconds == nil {
				t.Errorf("%s %s: no epoch was measured: %s", machine, flags, o.stdout)
			}
		})
		return r
	}
	least := 1 // MiB
	for run(t, fmt.Sprintf("mem=%dMiB", least), "--schedule sequential") == nil {
		least++
	}
	chosen := map[string]int{}
	for _, memory := range []string{"mem=1GiB", fmt.Sprintf("mem=%dMiB", least)} {
		for _, machine := range []struct {
			workers int
			stages  string
		}{
			{8, "cpu=60ms,gather=10ms,dma=4ms,sampling=90ms,compute=12ms"}, // workers are worth it
			{8, "cpu=20ms,gather=2ms,dma=1ms,sampling=60ms,compute=30ms"},  // training is the longest
			{4, "cpu=50ms,gather=40ms,dma=9ms,sampling=80ms,compute=5ms"},  // gathering is
			{4, "cpu=100ms,gather=20ms,dma=9ms,sampling=8ms,compute=5ms"},  // the device samples best
			{1, "cpu=9ms,gather=3ms,dma=9ms,sampling=50ms,compute=70ms"},   // nothing to gain
		} {
			at := fmt.Sprintf("%s,workers=%d,%s", memory, machine.workers, machine.stages)
			auto := run(t, at, "--schedule auto")
			chosen[auto.Schedule.Name]++
			best, by := *auto.Schedule.MeasuredSeconds, ""
			for _, name := range []string{"sequential", "mode-1", "mode-2", "gpu", "collective"} {
				most := machine.workers
				if name == "sequential" || name == "gpu" {
					most = 1
				}
				for workers := 1; workers <= most; workers += (workers + 1) / 2 {
					flags := fmt.Sprintf("--schedule %s --workers %d", name, workers)
					if r := run(t, at, flags); r != nil && *r.Schedule.MeasuredSeconds < best {
						best, by = *r.Schedule.MeasuredSeconds, flags
					}
				}
			}
			if *auto.Schedule.MeasuredSeconds > 1.05*best {
				t.Errorf("%s: auto takes %v s and %s %v s: %s", at, *auto.Schedule.MeasuredSeconds, by, best,
					auto.Schedule.Reason)
			}
		}
	}
	t.Logf("%d MiB at least; chosen are %v", least, chosen)
	if len(chosen) < 3 {
		t.Errorf("chosen are %v", chosen)
	}
}

// More device memory never makes a schedule refuse what it trained with less.
func TestSchedulesAreNotRefusedWithMoreMemory(t *testing.T) {
	d := disk(t, "generate sbm -o graph --nodes 600 --edges 4500 --features 400 --classes 3 --labeled 0.9 --seed 7")
	const line = "train graph --model sage --hidden 8 --batch 20 --epochs 1 --fanout 4,4 --placement host --seed 3 "
	for _, name := range []string{"cpu", "gpu", "mode-1", "collective", "collective-paper", "auto"} {
		fitted := 0
		for kib := 2048; kib < 7680; kib += 512 {
			o := hopfeed(t, d, fmt.Sprintf("%s --schedule %s --emulate gpu=1,mem=%dKiB,workers=2", line, name, kib))
			if o.code == exitDone && fitted == 0 {
				fitted = kib
			} else if o.code != exitDone && (o.code != exitDoesNotFit || fitted > 0) {
				t.Errorf("%s trains with %d KiB; with %d: exit status %d: %s", name, fitted, kib, o.code, o.stderr)
			}
		}
		if fitted < 2560 || fitted > 4608 {
			t.Errorf("%s trains with %d KiB or more", name, fitted)
		}
	}
}

// Within partitions a training samples no edge between them, whoever prepares batches on however many devices; what it
// is validated and tested on has all edges.
func TestATrainingSamplesWithinPartitions(t *testing.T) {
	d := disk(t, generateLine)
	write(t, d, "three.npy", npyText("<u2", "(300,)", dtype.BytesOf(partsOf(t, d, "graph", 3))))
	write(t, d, "none.npy", npyText("|i1", "(300,)", append(make([]byte, 299), 0xff)))
	const line = scheduledLine + " --json --fanout -1,-1 --run "
	const one = " --emulate gpu=1,mem=1GiB"
	parameters := map[string]string{}
	for run, flags := range map[string]string{
		"all": "", "one": " --partitions 1", "three": " --partitions 3", "again": " --partitions 3 --threads 1",
		"device": " --partitions 3 --schedule gpu" + one, "auto": " --partitions 3 --schedule auto" + one,
		"mode-2": " --partitions 3 --schedule mode-2 --placement host" + one,
		"file":   " --partition-file three.npy",
	} {
		o := must(t, d, line+run+flags)
		parameters[run] = parametersOf(t, tree(t, d, run))
		if !strings.Contains(run, "all") && run != "one" && !strings.Contains(o.stdout, "edges") {
			t.Errorf("%s does not say how many edges cross: %s", run, o.stdout)
		}
	}
	for _, run := range []string{"again", "device", "auto", "mode-2", "file"} {
		if parameters[run] != parameters["three"] {
			t.Errorf("%s is another model than three", run)
		}
	}
	if parameters["all"] != parameters["one"] || parameters["all"] == parameters["three"] {
		t.Error("one partition is another model than none, or three are the same")
	}
	const two, other = " --partitions 2 --emulate gpu=2,mem=1GiB", " --partitions 2 --emulate gpu=1,mem=1GiB"
	must(t, d, line+"devices"+two)
	interruptedAtSave(t, d, 1, line+"stopped --save-every 0s"+two)
	if o := hopfeed(t, d, line+"stopped"+other); o.code == exitDone || !strings.Contains(o.stderr, "on 2 devices") {
		t.Errorf("partitions on 2 devices go on on one: exit status %d, %s", o.code, o.stderr)
	}
	must(t, d, line+"stopped"+two)
	if parametersOf(t, tree(t, d, "stopped")) != parametersOf(t, tree(t, d, "devices")) {
		t.Error("a training on partitions that was stopped is another model")
	}
	for flags, want := range map[string]string{
		"--partitions 5000":             "--partitions",
		"--partitions 301":              "301 partitions of 300 nodes",
		"--partitions 2 --sampler full": "every batch is all nodes",

		"--partition-file three.npy --sampler full": "every batch is all nodes",
		"--partition-file three.npy --partitions 2": "leave out one",
		"--partition-file none.npy":                 "partition 0, node 299: part -1: want 0 to 4095",
	} {
		code := exitUsage
		if strings.Contains(flags, "none") {
			code = exitCorrupt
		}
		if o := hopfeed(t, d, "train graph --model gcn "+flags); o.code != code || !strings.Contains(o.stderr, want) {
			t.Errorf("%s: exit status %d, %s", flags, o.code, o.stderr)
		}
	}
}

// partsOf is the part of each node of a graph.
func partsOf(t *testing.T, d *vfs.Mem, graph string, parts int) []uint16 {
	t.Helper()
	g, err := format.OpenGraph(d, graph)
	if err != nil {
		t.Fatal(err)
	}
	defer g.Close()
	topology, err := sampling.LoadTopology(t.Context(), g, 1)
	if err != nil {
		t.Fatal(err)
	}
	defer topology.Close()
	of, _, err := sampling.Partition(t.Context(), topology, parts)
	if err != nil {
		t.Fatal(err)
	}
	return of
}

// Stages are measured over several epochs of one or three batches.
func TestShortEpochsAreScheduledToo(t *testing.T) {
	for _, batch := range []string{"300", "20"} {
		d := disk(t, generateLine)
		line := scheduledLine + " --batch " + batch + " --emulate gpu=1,mem=1GiB --run "
		must(t, d, line+"plain")
		var r struct{ Schedule *scheduler.Report }
		readJSON(t, must(t, d, line+"few --schedule collective --profile-batches 2 --json").stdout, &r)
		if m := r.Schedule.Profile[0]; m.Batches != 2 {
			t.Errorf("batches of %s: %+v is of %d batches, want 2", batch, m, m.Batches)
		}
		r.Schedule = nil
		readJSON(t, must(t, d, line+"scheduled --schedule collective --json").stdout, &r)
		for _, m := range r.Schedule.Profile {
			if want := map[bool]int{true: 20, false: 10}[m.Name == "T_Model"]; m.Batches < want-1 || m.Batches > want {
				t.Errorf("batches of %s: %+v is of %d batches, want %d", batch, m, m.Batches, want)
			}
		}
		if len(r.Schedule.Profile) != 5 || parametersOf(t, tree(t, d, "plain")) != parametersOf(t,
			tree(t, d, "scheduled")) {
			t.Errorf("batches of %s: another model, or not all stages: %+v", batch, r.Schedule.Profile)
		}
	}
}

func TestSchedulesThatCannotBeAreErrorsOfUsage(t *testing.T) {
	d := disk(t, generateLine)
	for flags, want := range map[string]string{
		"--schedule quick": "want one of",
		"--schedule gpu":   "the memory of device host is the host's",
		"--schedule collective --emulate mem=1GiB --sampler ladies --fanout 20,20": "sampler ladies runs on the " +
			"processor alone",
		"--schedule mixed --emulate mem=1GiB --placement storage": "the topology is not in pinned " +
			"memory",
		"--schedule cpu --sampler full --fanout -1,-1":        "",
		"--schedule cpu --cache lru:50rows":                   "changes from batch to batch",
		"--schedule mixed --cpu-share 1.5 --emulate mem=1GiB": "--cpu-share 1.5",
		"--cpu-share 0.5":                "it is for --schedule mixed",
		"--schedule auto --cpu-share .3": "it is for --schedule mixed",
		"--profile-batches 3":            "it is for a --schedule",
		"--schedule cpu --cpu-share 0.5": "it is for --schedule mixed",
	} {
		if o := hopfeed(t, d, scheduledLine+" "+flags); o.code != exitUsage || !strings.Contains(o.stderr, want) {
			t.Errorf("%s: exit status %d, %s", flags, o.code, o.stderr)
		}
	}
	if o := hopfeed(t, d, "train graph --model gcn --sampler full --schedule cpu"); o.code != exitUsage ||
		!strings.Contains(o.stderr, "every batch is all nodes") {
		t.Errorf("exit status %d, %s", o.code, o.stderr)
	}
}
