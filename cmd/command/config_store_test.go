package command

import (
	"fmt"
	"reflect"
	"regexp"
	"strings"
	"testing"

	"github.com/hopfeed/hopfeed/internal/vfs"
	"github.com/hopfeed/hopfeed/tools/checkpoint"
)

// grow adds hops and operators to the store that propagateLine makes.
func grow(t *testing.T, d *vfs.Mem) {
	t.Helper()
	must(t, d, "propagate graph -o store --hops 4 --operator sym,rw,col --chunk-rows 16 --seed 7")
}

func matricesOf(t *testing.T, d *vfs.Mem, run string) string {
	t.Helper()
	c, err := checkpoint.Load(d, run)
	if err != nil {
		t.Fatal(err)
	}
	return fmt.Sprint(c.Spec.Matrices)
}

func TestAConfigurationTrainsTheSameModelAfterTheStoreHasGrown(t *testing.T) {
	for _, settings := range []string{
		"--model sign --hidden 4", "--model sgc", "--model ssgc --operator rw", "--model hoga --hidden 4 --hops 1",
		"--model sgc --hops 0",
		"--model sgc --placement storage", "--model sgc --hops 2,1 --operator rw,sym",
	} {
		d := disk(t, generateLine, propagateLine)
		must(t, d, "train store --epochs 2 --run run "+settings)
		grow(t, d)
		must(t, d, "train --config run/config.yaml --run again")
		before, after := lasting(t, d, "run"), lasting(t, d, "again")
		if !reflect.DeepEqual(before.Parameters, after.Parameters) || before.Batches.Shuffle != after.Batches.Shuffle {
			t.Errorf("%s: %s in batches of %+v, but %s in %+v", settings, matricesOf(t, d, "run"), before.Batches,
				matricesOf(t, d, "again"), after.Batches)
		}
		if before, after := content(t, d, "run/config.yaml"), content(t, d, "again/config.yaml"); before != after {
			t.Errorf("%s: the configuration %s becomes\n%s", settings, before, after)
		}
	}
	d := disk(t, generateLine, propagateLine)
	must(t, d, "train store --epochs 1 --hidden 4 --run run")
	must(t, d, "propagate graph -o other --hops 1 --operator sym,rw")
	if o := hopfeed(t, d, "train other --config run/config.yaml"); o.code != exitUsage ||
		!strings.Contains(o.stderr, "2 hops wanted, but the store has sym (1 hop): propagate with more hops") {
		t.Errorf("a store with fewer hops: status %d, %s", o.code, o.stderr)
	}
	must(t, d, "train other --config run/config.yaml --hops 1 --run fewer") // the command line wins
	if got := matricesOf(t, d, "fewer"); got != "[x/hop-0 sym/hop-1 rw/hop-1]" {
		t.Errorf("with --hops 1 the model reads %s", got)
	}
}

// TestAConfigurationNamesHowRowsAreShuffled, which may depend on the memory of the machine.
func TestAConfigurationNamesHowRowsAreShuffled(t *testing.T) {
	d := disk(t, generateLine, propagateLine)
	for placement, want := range map[string]string{"storage": "chunk-rows: 16\n|shuffle: chunk\n",
		"host": "shuffle: rr\n"} {
		must(t, d, "train store --epochs 1 --hidden 4 --placement "+placement+" --run "+placement)
		for _, line := range strings.Split(want, "|") {
			if config := content(t, d, placement+"/config.yaml"); !strings.Contains(config, line) {
				t.Errorf("from %s: %s lacks %s", placement, config, line)
			}
		}
	}
}

func TestATrainingGoesOnAfterTheStoreHasGrown(t *testing.T) {
	base := disk(t, generateLine, propagateLine)
	for _, settings := range []string{"--model sign --hidden 4", "--model sgc --operator rw", "--model sgc --hops 1"} {
		d := base.CrashClone()
		line := "train store --epochs 6 --run run --save-every 0s " + settings
		must(t, d, strings.Replace(line, "--run run", "--run whole", 1))
		interruptedAtSave(t, d, 3, line)
		grow(t, d)
		if o := must(t, d, line); !strings.Contains(o.stderr, "going on with run") {
			t.Errorf("%s: %s", settings, o.stderr)
		}
		got, want := lasting(t, d, "run"), lasting(t, d, "whole")
		if got.Data.Fingerprint = want.Data.Fingerprint; !reflect.DeepEqual(got, want) {
			t.Errorf("%s: continued: %+v, undisturbed: %+v", settings, got, want)
		}
	}
	d := base.CrashClone()
	line := "train store --epochs 6 --run run --save-every 0s --model sgc"
	interruptedAtSave(t, d, 3, line)
	if o := hopfeed(t, d, line+" --hops 1"); o.code != exitUsage ||
		!strings.Contains(o.stderr, "other settings: --hops 2 instead of 1 (--force starts over)") {
		t.Errorf("with other hops: status %d, %s", o.code, o.stderr)
	}
	must(t, d, "propagate graph -o store --hops 2 --operator sym,rw --chunk-rows 16 --seed 8 --force")
	if o := hopfeed(t, d, line); o.code != exitUsage || !strings.Contains(o.stderr, "is on other rows") {
		t.Errorf("with rows in another order: status %d, %s", o.code, o.stderr)
	}
}

// TestTrialsNameTheirMatrices, so that a search, and a training by its result, go on with the same ones.
func TestTrialsNameTheirMatrices(t *testing.T) {
	base := disk(t, generateLine, propagateLine)
	write(t, base, "rates.yaml", "lr: [0.1, 0.01]\n")
	write(t, base, "operators.yaml", "operator: [rw, \"sym,rw\"]\n")
	for line, hopsAndOperator := range map[string][2]string{
		"train store --model ssgc --epochs 2 --grid rates.yaml --run out":                   {"2", "sym,rw"},
		"train store --model ssgc --epochs 2 --grid operators.yaml --run out":               {"2", "rw"},
		"train store --model ssgc --epochs 2 --tune 2 --hops 1 --run out":                   {"1", "sym,rw"},
		"tune store --model ssgc --trial-epochs 2 --space rates.yaml --budget 2 -o out":     {"2", "sym,rw"},
		"tune store --model ssgc --trial-epochs 2 --space operators.yaml --budget 2 -o out": {"2", "rw"},
	} {
		d := base.CrashClone()
		must(t, d, line)
		first, _, _ := strings.Cut(content(t, d, "out/trials.jsonl"), "\n")
		want := fmt.Sprintf(`"hops":"%s".*"operator":"%s"`, hopsAndOperator[0], hopsAndOperator[1])
		if found, err := regexp.MatchString(want, first); err != nil || !found {
			t.Errorf("%s: the first trial is %s, want %s", line, first, want)
		}
		must(t, d, "train store --config out/config.yaml --epochs 1 --run before")
		grow(t, d)
		must(t, d, "train store --config out/config.yaml --epochs 1 --run after")
		if before, after := matricesOf(t, d, "before"), matricesOf(t, d, "after"); before != after {
			t.Errorf("%s: its configuration chooses %s, and %s after the store has grown", line, before, after)
		}
	}
}
