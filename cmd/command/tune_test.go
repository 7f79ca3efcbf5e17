package command

import (
	"context"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"strconv"
	"strings"
	"testing"

	"github.com/hopfeed/hopfeed/internal/vfs"
	"github.com/hopfeed/hopfeed/tools/bench/papers"
	"github.com/hopfeed/hopfeed/tools/checkpoint"
	"github.com/hopfeed/hopfeed/tools/report"
	"github.com/hopfeed/hopfeed/tools/scheduler"
	"github.com/hopfeed/hopfeed/tools/tune"
)

// tuneSpace has settings of a graph that conflict: locality needs a cache and a bias.
const tuneSpace = "batch: [40, 80]\nsampler: [neighbor, locality]\nbias: [4]\ncache: ['', 'degree:60rows']\n"

const tuneLine = "tune graph --json --model sage --hidden 4 --fanout 3,3 --emulate gpu=1,mem=64MiB,link=1GiB/s " +
	"--trial-epochs 2 --seed 7"

// searched is what tune --json prints.
func searched(t *testing.T, o outcome) (r report.Tuning) {
	t.Helper()
	if err := json.Unmarshal([]byte(o.stdout), &r); err != nil {
		t.Fatalf("%v: %s%s", err, o.stdout, o.stderr)
	}
	return r
}

func TestTuneFindsAFrontAndWritesConfigurationsThatTrain(t *testing.T) {
	d := disk(t, generateLine)
	write(t, d, "space.yaml", tuneSpace)
	o := must(t, d, tuneLine+" --space space.yaml --search grid --budget 100")
	r, trials := searched(t, o), trialsOf(t, d, "tuning")
	// Two batches; neighbor without and with a cache, and locality with one.
	if r.Trials != 6 || r.Combinations != 6 || r.Failed != 0 || len(trials) != 6 || r.Memory != "device" ||
		r.Metric != "accuracy" {
		t.Fatalf("%+v, %d trials", r, len(trials))
	}
	on := map[int]report.Point{}
	for i, p := range r.Front {
		on[p.Trial] = p
		if i > 0 && p.RowsPerSecond > r.Front[i-1].RowsPerSecond {
			t.Errorf("the front is not by throughput: %+v", r.Front)
		}
		if p.Settings["model"] != "" || p.Settings["batch"] == "" ||
			p.MemoryBytes != trials[p.Trial-1].PeakDeviceBytes {
			t.Errorf("%+v of %+v", p, trials[p.Trial-1])
		}
	}
	for name, number := range map[string]int{tune.BalancedConfig: r.Balanced, tune.FastestConfig: r.Fastest,
		tune.SmallestConfig: r.Smallest, tune.AccurateConfig: r.Accurate} {
		p, ok := on[number]
		if !ok {
			t.Fatalf("%s is of trial %d, which is not on the front", name, number)
		}
		// The configuration trains as the trial did, and the epochs of a training are the user's.
		text := content(t, d, "tuning/"+name)
		if strings.Contains(text, "epochs") {
			t.Errorf("%s: %s", name, text)
		}
		trained := object(t, must(t, d, "train --json --config tuning/"+name+" --epochs 2"))
		memory, _ := trained["peak_device_bytes"].(float64) // with the test rows
		if trained["valid_metric"] != p.Valid || memory < float64(p.MemoryBytes) ||
			memory > 1.05*float64(p.MemoryBytes) {
			t.Errorf("%s gives %v in %v bytes, the trial %+v", name, trained["valid_metric"],
				trained["peak_device_bytes"], p)
		}
	}
	if page := content(t, d, "tuning/"+tune.PageFile); !strings.Contains(page, "Tuning of sage on sbm") ||
		strings.Count(page, "<figure") != 2 || strings.Count(page, "<circle") != 6*strings.Count(page, "<svg") {
		t.Error(page)
	}
	if len(r.Surrogates) != 3 || r.Surrogates[0].Figure != "throughput" {
		t.Errorf("%+v", r.Surrogates)
	}
	// The same trials for other limits: nothing is measured anew.
	again := searched(t, must(t, d, tuneLine+" --space space.yaml --search random --budget 6 --min-accuracy 0.1"))
	if !reflect.DeepEqual(again.Front, r.Front) || again.Search != "random" {
		t.Errorf("again: %+v, want %+v", again, r)
	}
	if p := searched(t, must(t, d,
		tuneLine+" --space space.yaml --budget 6 --throughput processor")); p.Throughput != "processor" ||
		len(p.Front) == 0 || p.Front[0].RowsPerSecond == r.Front[0].RowsPerSecond {
		t.Errorf("by the time of processors: %+v", p)
	}
	if o := must(t, d, strings.Replace(tuneLine, "--json ", "", 1)+" --space space.yaml"); !strings.Contains(o.stdout,
		", balanced") || !strings.Contains(o.stdout, "saved") {
		t.Error(o.stdout)
	}
}

// A search by weights chooses the configuration with the largest weighted sum; what was learnt on two graphs begins one
// on a third.
func TestASearchByWeightsBeginsWithWhatOtherGraphsTaught(t *testing.T) {
	d := disk(t, generateLine, strings.Replace(generateLine, "-o graph --nodes 300", "-o one --nodes 400", 1),
		strings.Replace(generateLine, "-o graph --nodes 300", "-o two --nodes 200", 1))
	write(t, d, "space.yaml", tuneSpace)
	for _, name := range []string{"one", "two"} {
		must(t, d, strings.Replace(tuneLine, "graph", name, 1)+" --space space.yaml --search grid -o tuning-"+name)
	}
	var r papers.Surrogates
	const learn = "bench surrogate tuning-one/trials.jsonl tuning-two/trials.jsonl"
	readJSON(t, must(t, d, learn+" -o learnt.json --json").stdout, &r)
	if r.Trials != 12 || len(r.Graphs) != 2 || len(r.Unseen) != 2*len(tune.Regressions) || r.Chosen[0] == "" ||
		r.Drop == nil || r.Drop.Trials != 4 {
		t.Errorf("%+v", r)
	}
	if o := must(t, d, learn); !strings.Contains(o.stdout, "unseen graph") || !strings.Contains(o.stdout, "ln(bias)") {
		t.Error(o.stdout)
	}
	line := tuneLine + " --space space.yaml --surrogate learnt.json --budget 3 --weights 3,1,0"
	found := searched(t, must(t, d, line))
	best := 0
	for i, p := range found.Front {
		if p.Trial == found.Balanced {
			best = i
		}
	}
	if found.Trials != 3 || len(found.Front) == 0 || found.Front[best].Trial != found.Balanced {
		t.Errorf("%+v", found)
	}
	must(t, d, learn+" -o other.json --resident")
	if o := must(t, d, strings.Replace(line, "learnt", "other", 1)+" --throughput processor"); !strings.Contains(o.stderr,
		"bench surrogate --throughput processor\n") {
		t.Error(o.stderr)
	}
	for flags, says := range map[string]string{
		"--weights 1,2":                  "three numbers",
		"--weights 1,2,3,4":              "three numbers",
		"--weights 0,0,0":                "three numbers",
		"--weights 1,1,-1":               "three numbers",
		"--min-throughput -1":            "--min-throughput -1",
		"--surrogate space.yaml":         "want a file of bench surrogate",
		"--surrogate nothing.json":       "no such file",
		"--min-throughput 1000000000000": "the most rows a second",
	} {
		if o := hopfeed(t, d, tuneLine+" --space space.yaml -o other --budget 1 "+flags); o.code == exitDone ||
			!strings.Contains(o.stderr, says) {
			t.Errorf("%s: exit status %d: %s", flags, o.code, o.stderr)
		}
	}
	if o := hopfeed(t, d, "bench surrogate tuning-one/trials.jsonl tuning-one/trials.jsonl"); o.code != exitUsage ||
		!strings.Contains(o.stderr, "too few graphs") {
		t.Errorf("exit status %d: %s", o.code, o.stderr)
	}
}

// Throughput differs from one search to the next, and so does memory where a trial has a schedule, by which
// batch grows which buffer when. Random search does not look at them.
func TestASearchThatIsKilledGoesOn(t *testing.T) {
	base := disk(t, generateLine)
	trials := func(d *vfs.Mem) []tune.Trial {
		all := trialsOf(t, d, "tuning")
		for i := range all {
			all[i].PeakDeviceBytes = 0
		}
		return all
	}
	const line = "tune graph --model sage --hidden 4 --trial-epochs 1 --seed 7 --search random --budget 4"
	whole := base.CrashClone()
	must(t, whole, line)
	want := trials(whole)
	for n := 1; n <= len(want); n++ {
		d := base.CrashClone()
		var killed *vfs.Mem
		hopfeed(t, &trialsCounted{FS: d, do: func(at int) {
			if at == n {
				killed = d.CrashCloneKeeping(uint64(n))
			}
		}}, line)
		must(t, killed, line)
		if got := trials(killed); !reflect.DeepEqual(got, want) {
			t.Errorf("killed while trial %d is logged: %+v, want %+v", n, got, want)
		}
	}
	// A larger budget goes on, too.
	must(t, whole, strings.Replace(line, "--budget 4", "--budget 5", 1))
	if got := trials(whole); len(got) != 5 || !reflect.DeepEqual(got[:4], want) {
		t.Errorf("with a larger budget: %+v", got)
	}
}

func TestATuningProcessGoesOnAfterKill(t *testing.T) {
	t.Chdir(t.TempDir())
	must(t, vfs.OS(), generateLine)
	const line = "tune graph --model sage --hidden 4 --trial-epochs 1 --seed 7 --search random --budget 6"
	c := exec.Command(os.Args[0], strings.Fields(line)...)
	c.Env = append(os.Environ(), asCommand+"=3")
	if output, err := c.CombinedOutput(); err == nil || c.ProcessState.ExitCode() != -1 {
		t.Fatalf("it was not killed: %v, %s", err, output)
	}
	o := must(t, vfs.OS(), line)
	text := content(t, vfs.OS(), filepath.Join("tuning", checkpoint.TrialsFile))
	if strings.Count(text, "\n") != 6 || !strings.Contains(o.stderr, "going on after 2 trials") {
		t.Errorf("%s%s", text, o.stderr)
	}
}

func TestCtrlCSavesTrials(t *testing.T) {
	d := disk(t, generateLine)
	ctx, cancel := context.WithCancelCause(t.Context())
	line := tuneLine + " --budget 5"
	o := hopfeedUntil(t, ctx, &trialsCounted{FS: d, do: func(at int) {
		if at == 3 {
			cancel(context.Canceled)
		}
	}}, line)
	if o.code != exitInterrupted || !strings.Contains(o.stderr, "interrupted after 3 trials") ||
		len(trialsOf(t, d, "tuning")) != 3 {
		t.Errorf("exit status %d: %s", o.code, o.stderr)
	}
	if r := searched(t, must(t, d, line)); r.Trials != 5 {
		t.Errorf("%+v", r)
	}
}

func TestSchedulesAreTried(t *testing.T) {
	d := disk(t, generateLine)
	write(t, d, "space.yaml", "schedule: ['', sequential, mode-1, mode-2]\nworkers: [1, 2]\n")
	r := searched(t, must(t, d, tuneLine+" --batch 40 --space space.yaml --search grid --budget 9"))
	if r.Combinations != 7 || r.Trials != 7 || r.Failed != 0 { // sequential has one worker
		t.Errorf("%+v: %+v", r, trialsOf(t, d, "tuning"))
	}
	var fit papers.ModeFit
	readJSON(t, must(t, d, "bench modes tuning/trials.jsonl --json").stdout, &fit)
	if len(fit.Runs) != 5 {
		t.Errorf("%+v", fit)
	}
	// A cache that changes from batch to batch goes with no schedule, and an epoch of one batch with any.
	write(t, d, "space.yaml", "schedule: ['', mode-1]\ncache: ['', 'lru:60rows', 'degree:60rows']\nbatch: [40, 300]\n")
	if r := searched(t, must(t, d,
		tuneLine+" --space space.yaml --search grid --budget 20 -o caches")); r.Trials != 10 || r.Failed != 0 {
		t.Errorf("%+v: %+v", r, trialsOf(t, d, "caches"))
	}
	must(t, d, tuneLine+" --batch 40 --schedule mode-2 --budget 1 -o one")
	if config := content(t, d, "one/"+tune.BalancedConfig); !strings.Contains(config, "schedule: mode-2") {
		t.Error(config)
	}
	must(t, d, "train --config one/"+tune.BalancedConfig+" --epochs 1")
	// Queues are settings of trials, too.
	queued := "--model sage --hidden 4 --fanout 3,3 --batch 40 --schedule multi-queue --gradients 2 --sync-every 4 " +
		"--emulate gpu=2,mem=64MiB"
	if r := searched(t, must(t, d,
		"tune graph --json "+queued+" --trial-epochs 1 --budget 2 -o queues")); r.Failed != 0 {
		t.Errorf("%+v", trialsOf(t, d, "queues"))
	}
	if config := content(t, d, "queues/"+tune.BalancedConfig); !strings.Contains(config, "gradients: 2") ||
		!strings.Contains(config, "sync-every: 4") {
		t.Error(config)
	}
	write(t, d, "grid.yaml", "lr: [0.01]\n")
	var chosen struct {
		Queues *scheduler.QueueReport `json:"multi_queue"`
	}
	readJSON(t, must(t, d, "train graph --json "+queued+" --epochs 1 --grid grid.yaml").stdout, &chosen)
	if chosen.Queues == nil || chosen.Queues.Gradients != 2 || chosen.Queues.Period != 4 {
		t.Errorf("%+v", chosen.Queues)
	}
	write(t, d, "grid.yaml", "schedule: [mode-1, mode-2]\n")
	must(t, d, "train graph --model sage --hidden 4 --epochs 1 --batch 40 --grid grid.yaml --run run")
	if trials := trialsOf(t, d, "run"); len(trials) != 2 || trials[1].Settings["schedule"] != "mode-2" {
		t.Errorf("%+v", trials)
	}
}

func TestTuneOfAStoreVariesItsSettings(t *testing.T) {
	d := disk(t, generateLine, propagateLine)
	r := searched(t, must(t, d, "tune store --json --model sign --hidden 4 --epochs 2 --budget 5"))
	varied := map[string]bool{}
	for _, trial := range trialsOf(t, d, "tuning") {
		for name := range trial.Settings {
			varied[name] = true
		}
	}
	for _, name := range []string{"lr", "dropout", "weight-decay", "hops", "operator", "batch"} {
		if !varied[name] {
			t.Errorf("%s is not varied: %v", name, varied)
		}
	}
	if config := content(t, d, "tuning/"+tune.BalancedConfig); r.Trials != 5 || !strings.Contains(config, "epochs: 2") {
		t.Errorf("%+v: %s", r, config)
	}
	must(t, d, "train --config tuning/"+tune.BalancedConfig)
}

func TestLimitsThatNothingMeetsAreSaid(t *testing.T) {
	d := disk(t, generateLine)
	write(t, d, "space.yaml", tuneSpace)
	line := tuneLine + " --space space.yaml --budget 2"
	must(t, d, line)
	for _, c := range []struct {
		limits string
		code   int
		says   string
	}{
		{"--max-memory 1KiB", exitDoesNotFit,
			"does not fit: --max-memory 1 KiB: no trial is within the limits: the least memory is"},
		{"--min-accuracy 1.5", exitFailed, "--min-accuracy 1.5: no trial is within the limits: the least memory is"},
		{"--max-memory 1KiB --min-accuracy 1.5", exitFailed, "the best accuracy 0."},
	} {
		o := hopfeed(t, d, line+" "+c.limits)
		if r := searched(t, o); o.code != c.code || !strings.Contains(o.stderr, c.says) || len(r.Front) != 0 ||
			r.Trials != 2 {
			t.Errorf("%s: exit status %d: %s%s", c.limits, o.code, o.stderr, o.stdout)
		}
		if files := tree(t, d, "tuning"); len(files) != 1 {
			t.Errorf("%s leaves %d files", c.limits, len(files))
		}
	}
}

func TestTuningsThatCannotBeAreRefused(t *testing.T) {
	d := disk(t, generateLine, "generate sbm -o one --nodes 1 --edges 0 --features 2 --classes 1 --labeled 1",
		"generate sbm -o unlabelled --nodes 50 --edges 100 --features 2 --classes 2 --labeled 0")
	must(t, d, "train graph --model sage --epochs 1 --hidden 2 --run run")
	write(t, d, "bad.yaml", "speed: [1]\n")
	write(t, d, "file", "")
	for line, says := range map[string]string{
		"tune":                                          "tune needs a STORE or a GRAPH",
		"tune graph --model sign":                       "reads a hop store",
		"tune graph --model sage --budget 0":            "at least one trial",
		"tune graph --model sage --budget -1m":          "a time above zero",
		"tune graph --model sage --budget soon":         "a number of trials",
		"tune graph --model sage --search magic":        "want one of",
		"tune graph --model sage --min-accuracy nan":    "want a number",
		"tune graph --model sage --split 0-1":           "1 split, ",
		"tune graph --model sage --throughput light":    "want one of",
		"tune graph --model sage --trial-epochs -3":     "want 0 or more",
		"tune graph --model sage --hops 2":              "--hops: sage reads a graph",
		"tune graph --model sage --space bad.yaml":      "--space bad.yaml: \"speed\" is no flag",
		"tune graph --model sage --batch 0":             "must be at least 1",
		"tune graph --model sage --output graph/tuning": "lies in the graph or store",
		"tune graph --model sage --output run":          "which no search has written",
		"tune graph --model sage --output file":         "want a directory",
		"tune graph --model sage --workers 0":           "--workers 0: want a number from 1",
		"tune graph --model sage --runs 3":              "a trial is one run",
		"tune one --model sage":                         "has no validation rows",
		"tune unlabelled --model sage":                  "no labels to train on",
		"tune graph --model sage --max-memory much":     "much",
	} {
		if o := hopfeed(t, d, line); o.code != exitUsage || !strings.Contains(o.stderr, says) {
			t.Errorf("%s: exit status %d: %s", line, o.code, o.stderr)
		}
	}
	must(t, d, tuneLine+" --budget 1")
	if o := hopfeed(t, d, strings.Replace(tuneLine, "--hidden 4", "--hidden 5",
		1)+" --budget 1"); o.code != exitUsage || !strings.Contains(o.stderr, "--hidden 4 instead of 5") {
		t.Errorf("trials of other settings: exit status %d: %s", o.code, o.stderr)
	}
	if o := hopfeed(t, d, tuneLine+" --budget 1 --emulate gpu=1,mem=1GiB"); o.code != exitUsage ||
		!strings.Contains(o.stderr, "--emulate gpu=1,mem=67108864B,link=1073741824B/s instead of gpu=1") {
		t.Errorf("trials on other devices: exit status %d: %s", o.code, o.stderr)
	}
	write(t, d, "tuning/"+checkpoint.TrialsFile, "{")
	if o := hopfeed(t, d, tuneLine); o.code != exitCorrupt {
		t.Errorf("damaged trials: exit status %d: %s", o.code, o.stderr)
	}
}

// Flags may fit only the values that a space varies: each trial checks them.
func TestFlagsThatFitTheValuesOfASpaceAreTaken(t *testing.T) {
	d := disk(t, generateLine)
	const line = "tune graph --model sage --hidden 4 --trial-epochs 1 --space space.yaml --budget 1 "
	for i, c := range []struct{ space, flags string }{
		{"layers: [3]\n", "--fanout 3,3,3"},
		{"sampler: [locality]\ncache: [\"degree:20rows\"]\n", "--fanout 3,3 --bias 4"},
		{"schedule: [mixed]\n", "--fanout 3,3 --cpu-share 0.5 --emulate gpu=1,mem=64MiB"},
	} {
		write(t, d, "space.yaml", c.space)
		must(t, d, line+c.flags+" -o tuning-"+strconv.Itoa(i))
	}
}

// What saving takes is planned, whether hops were chosen or given.
func TestATrainingWhoseSettingsAreChosenPlansItsSaving(t *testing.T) {
	d := disk(t, generateLine, "propagate graph -o store --hops 1")
	write(t, d, "grid.yaml", "hops: [1]\n")
	planned := func(line string) int64 {
		t.Helper()
		var r struct {
			Plan struct {
				HostBytes int64 `json:"host_bytes"`
			} `json:"memory_plan"`
		}
		o := must(t, d, "train store --json --model sgc --epochs 1 "+line)
		if err := json.Unmarshal([]byte(o.stdout), &r); err != nil {
			t.Fatal(err)
		}
		return r.Plan.HostBytes
	}
	given, chosen := planned("--hops 1 --run given"), planned("--grid grid.yaml --run chosen")
	if given != chosen || given == planned("--hops 1") {
		t.Errorf("%d bytes planned of given hops, %d of chosen ones", given, chosen)
	}
}
