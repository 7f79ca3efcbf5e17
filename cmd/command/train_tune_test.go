package command

import (
	"maps"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/hopfeed/hopfeed/internal/vfs"
	"github.com/hopfeed/hopfeed/tools/checkpoint"
	"github.com/hopfeed/hopfeed/tools/npy"
	"github.com/hopfeed/hopfeed/tools/tune"
)

// trialsOf are the trials that are logged in a directory, without times.
func trialsOf(t *testing.T, fsys vfs.FS, dir string) []tune.Trial {
	t.Helper()
	data, err := checkpoint.ReadTrials(fsys, dir)
	if err != nil {
		t.Fatal(err)
	}
	trials, err := tune.Decode(data)
	if err != nil {
		t.Fatal(err)
	}
	for i := range trials {
		trials[i].Seconds, trials[i].RowsPerSecond, trials[i].RowsPerProcessorSecond, trials[i].PeakRSSBytes = 0, 0, 0,
			0
	}
	return trials
}

// TestTrialsChooseByValidationAndGoOn also kills the command at each trial that it logs.
func TestTrialsChooseByValidationAndGoOn(t *testing.T) {
	base := disk(t, generateLine, propagateLine)
	write(t, base, "grid.yaml", "lr: [1e-7, 0.3, 1e38]\nhops: [1, 2]\n")
	for _, line := range []string{
		"train store --model sgc --epochs 4 --runs 2 --run run --grid grid.yaml",
		"train store --model sign --hidden 4 --epochs 2 --runs 2 --run run --tune 4",
		"train store --model sgc --epochs 4 --runs 2 --run run", // hops
	} {
		whole := base.CrashClone()
		must(t, whole, line)
		want, model := trialsOf(t, whole, "run"), lasting(t, whole, "run")
		best := tune.Best(want)
		if c := model.Config; c["lr"] != best.Settings["lr"] && best.Settings["lr"] != "" ||
			best.Settings["hops"] != "" && c["hops"] != best.Settings["hops"] || c["runs"] != "2" ||
			len(model.Runs) != 2 || model.Runs[0].TestMetric == nil {
			t.Errorf("trained with %v, but the best trial is %+v", c, best)
		}
		// The winner's configuration alone trains the same.
		must(t, whole, "train --config run/config.yaml --run again")
		if got := lasting(t, whole, "again"); !reflect.DeepEqual(got, model) {
			t.Errorf("from config.yaml: %+v, want %+v", got, model)
		}
		for n := 1; n <= len(want); n++ {
			d := base.CrashClone()
			var killed *vfs.Mem
			hopfeed(t, &trialsCounted{FS: d, do: func(at int) {
				if at == n {
					killed = d.CrashCloneKeeping(uint64(n))
				}
			}}, line)
			if killed == nil {
				t.Fatalf("%s: trial %d is not logged", line, n)
			}
			must(t, killed, line)
			if got := trialsOf(t, killed, "run"); !reflect.DeepEqual(got, want) ||
				!reflect.DeepEqual(lasting(t, killed, "run"), model) {
				t.Errorf("%s, killed while trial %d is logged: %+v, want %+v", line, n, got, want)
			}
		}
		says := "--eval-every (none) instead of 2"
		if !strings.Contains(line, "--grid") && !strings.Contains(line, "--tune") {
			says = "the training in it has ended"
		}
		if o := hopfeed(t, whole, strings.Replace(line, "--runs 2", "--runs 2 --eval-every 2",
			1)); o.code != exitUsage || !strings.Contains(o.stderr, says) {
			t.Errorf("other settings: exit status %d: %s", o.code, o.stderr)
		}
		must(t, whole, line+" --force")
		if got := trialsOf(t, whole, "run"); !reflect.DeepEqual(got, want) {
			t.Errorf("again by force: %+v, want %+v", got, want)
		}
	}
}

// trialsCounted is a file system that calls do before trials are saved for the n-th time.
type trialsCounted struct {
	vfs.FS
	n  int
	do func(n int)
}

func (f *trialsCounted) Create(path string) (vfs.PendingFile, error) {
	if strings.Contains(path, checkpoint.TrialsFile) { // or beside it, where a training is replaced
		f.n++
		f.do(f.n)
	}
	return f.FS.Create(path)
}

// A model that reads one hop of each operator has the number of hops that is best on validation rows.
func TestTheNumberOfHopsIsChosenByValidation(t *testing.T) {
	// Features of a node say little: each hop sees more of its block.
	d := disk(t, "generate sbm -o graph --nodes 300 --edges 3000 --features 4 --classes 3 --labeled 1 --separation "+
		"1 --seed 7",
		"propagate graph -o store --hops 3 --seed 7", "propagate graph -o wide --hops 2 --seed 7 --operator sym",
		"propagate graph -o wide --hops 3 --seed 7 --operator rw")
	valid := func(line string) (float64, []any) {
		o := object(t, must(t, d, "train "+line+" --model sgc --epochs 20 --json"))
		return o["valid_metric"].(float64), o["matrices"].([]any)
	}
	best, chosen := 0.0, ""
	for _, hops := range []string{"1", "2", "3"} {
		if v, _ := valid("store --hops " + hops); v > best {
			best, chosen = v, "sym/hop-"+hops
		}
	}
	if v, matrices := valid("store"); v != best || len(matrices) != 1 || matrices[0] != chosen ||
		chosen == "sym/hop-1" {
		t.Errorf("valid %v of %v, want %v of %s", v, matrices, best, chosen)
	}
	// A grid tries hops too, whether or not it lists them.
	write(t, d, "grid.yaml", "lr: [0.1, 0.3]\n")
	must(t, d, "train store --model sgc --epochs 2 --run run --grid grid.yaml")
	if got := len(trialsOf(t, d, "run")); got != 6 {
		t.Errorf("%d trials of 2 learning rates and 3 hops", got)
	}
	// Operators with different numbers of hops: the hops that all have. A named operator: all of its hops.
	for line, want := range map[string]int{"wide": 2, "wide --operator rw": 3} {
		if o := must(t, d, "train "+line+" --model sgc --epochs 2 --run "+line[len(line)-2:]); strings.Count(o.stderr,
			"\ntrial ") != want-1 {
			t.Errorf("%s: want %d trials: %s", line, want, o.stderr)
		}
	}
	// Without validation rows it is all that there are, as of models that read all hops.
	write(t, d, "all.npy", string(npy.AppendHeader(nil, npy.Int8, 1, 1, 300))+strings.Repeat("\x00", 300))
	for _, line := range []string{"store --model sgc --epochs 2 --splits all.npy", "store --model sign --epochs 1"} {
		if o := must(t, d, "train "+line+" --json"); strings.Contains(o.stderr, "trial") ||
			!strings.Contains(o.stdout, `sym/hop-3`) {
			t.Errorf("%s: %s%s", line, o.stdout, o.stderr)
		}
	}
}

func TestGridsAndTuningThatCannotBeAreRefused(t *testing.T) {
	d := disk(t, generateLine, propagateLine)
	for text, says := range map[string]string{
		"lr: [0.1, x]": `lr: invalid argument "x"`,
		"lr: []":       "lr has no values",
		"speed: [1]":   `"speed" is no flag that trials can vary`,
		"runs: [1, 2]": `"runs" is no flag that trials can vary`,
		"{}":           "it names no flags",
		"[1]":          "grid.yaml",
	} {
		write(t, d, "grid.yaml", text)
		if o := hopfeed(t, d, "train store --model sign --grid grid.yaml"); o.code != exitUsage ||
			!strings.Contains(o.stderr, says) {
			t.Errorf("%s: exit status %d: %s", text, o.code, o.stderr)
		}
	}
	write(t, d, "far.yaml", "hops: [3, 4]")
	for line, says := range map[string]string{
		"--tune -1":                  "want 0 or more",
		"--tune 2 --grid grid.yaml":  "give one of them",
		"--tune 2 --lr 1e38 --quiet": "none of 2 trials has a validation metric: diverged",
		"--grid far.yaml":            "none of 2 trials can be made: refused: ",
	} {
		if o := hopfeed(t, d, "train store --model sgc "+line); o.code == exitDone ||
			!strings.Contains(o.stderr, says) {
			t.Errorf("%s: exit status %d: %s", line, o.code, o.stderr)
		}
	}
}

func TestAGridGoesOnAfterSettingsThatCannotBe(t *testing.T) {
	d := disk(t, generateLine, propagateLine)
	write(t, d, "grid.yaml", "hidden: [4, 6]\nheads: [2, 3]\n")
	must(t, d, "train store --model hoga --epochs 2 --run run --grid grid.yaml")
	var refused []string
	for _, trial := range trialsOf(t, d, "run") {
		if (trial.Failed == "") != (trial.Valid != nil) {
			t.Errorf("%+v", trial)
		}
		if trial.Failed != "" {
			refused = append(refused, trial.Settings["hidden"]+"/"+trial.Settings["heads"]+" "+trial.Failed)
		}
	}
	if len(refused) != 1 || !strings.HasPrefix(refused[0], "4/3 refused: ") ||
		!strings.Contains(refused[0], "must be a multiple") {
		t.Errorf("%q", refused)
	}
}

// --force keeps the training that is there, with its trials, until the new one has saved a model.
func TestForcedTrialsReplaceNothingBeforeTheTraining(t *testing.T) {
	d := disk(t, generateLine, propagateLine)
	write(t, d, "grid.yaml", "lr: [0.1, 0.3]\n")
	write(t, d, "other.yaml", "lr: [0.2, 0.4, 0.6]\n")
	const line = "train store --model sgc --hops 2 --epochs 3 --run run --grid "
	must(t, d, line+"grid.yaml")
	before := tree(t, d, "run")
	model := lasting(t, d, "run")
	var killed []*vfs.Mem
	must(t, &trialsCounted{FS: d, do: func(int) { killed = append(killed, d.CrashClone()) }}, line+"other.yaml --force")
	if len(killed) != 1 {
		t.Fatalf("trials are saved %d times", len(killed))
	}
	after := tree(t, killed[0], "run")
	if after["run/trials.jsonl"] != before["run/trials.jsonl"] ||
		after["run/checkpoint.json"] != before["run/checkpoint.json"] {
		t.Errorf("when trials are saved, there is %q", slices.Sorted(maps.Keys(after)))
	}
	if evaluated := object(t, must(t, killed[0],
		"evaluate --json --checkpoint run store")); evaluated["test_metric"] != *model.Runs[0].TestMetric {
		t.Errorf("the model that was to be replaced: %v", evaluated)
	}
	if got := trialsOf(t, d, "run"); len(got) != 3 ||
		lasting(t, d, "run").Config["lr"] != tune.Best(got).Settings["lr"] {
		t.Errorf("%+v", got)
	}
}

// A grid that varies the model tries the hops of the models that read one hop alone.
func TestAGridOfModelsTriesHopsOfThoseThatReadOne(t *testing.T) {
	d := disk(t, generateLine, propagateLine)
	write(t, d, "grid.yaml", "model: [sgc, sign]\n")
	must(t, d, "train store --grid grid.yaml --hidden 4 --epochs 2 --run run")
	hops := map[string][]string{}
	for _, trial := range trialsOf(t, d, "run") {
		hops[trial.Settings["model"]] = append(hops[trial.Settings["model"]], trial.Settings["hops"])
	}
	if len(hops["sgc"]) < 2 || len(hops["sign"]) != 1 {
		t.Errorf("hops that were tried: %v", hops)
	}
}
