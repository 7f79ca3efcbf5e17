package command

import (
	"io"
	"runtime/debug"
	"strings"
	"testing"

	"github.com/hopfeed/hopfeed/internal/parallel"
	"github.com/hopfeed/hopfeed/tools/tune"
)

func TestThreadsOfTheConfigurationAreUsed(t *testing.T) {
	defer parallel.SetThreads(parallel.Threads())
	defer debug.SetMemoryLimit(debug.SetMemoryLimit(-1))
	d := disk(t)
	write(t, d, "three.json", `{"threads": 3}`)
	write(t, d, "negative.json", `{"threads": -3}`)
	a := &app{fs: d, stdout: io.Discard, stderr: io.Discard}
	c, _, err := newRoot(a, "train").Find([]string{"train"})
	if err == nil {
		err = c.ParseFlags(nil)
	}
	if err != nil {
		t.Fatal(err)
	}
	a.command = c
	if _, _, err := a.applyConfig("three.json"); err != nil || parallel.Threads() != 3 {
		t.Errorf("%v, %d threads", err, parallel.Threads())
	}
	if o := hopfeed(t, d, "train store --config negative.json"); o.code != exitUsage ||
		!strings.Contains(o.stderr, "--threads -3") {
		t.Errorf("exit status %d, %s", o.code, o.stderr)
	}
}

func TestTheMemoryOfTheConfigurationIsTheBudget(t *testing.T) {
	d := disk(t)
	write(t, d, "small.json", `{"memory": "1MiB"}`)
	if o := hopfeed(t, d, "train store --config small.json"); o.code != exitDoesNotFit ||
		!strings.Contains(o.stderr, "--memory 1 MiB") {
		t.Errorf("exit status %d, %s", o.code, o.stderr)
	}
}

func TestTheScheduleOfTheLearningRateHasANewName(t *testing.T) {
	d := disk(t)
	write(t, d, "old.yaml", "schedule: cosine\n")
	for _, line := range []string{"train store --schedule cosine", "train store --config old.yaml"} {
		if o := hopfeed(t, d, line); o.code != exitUsage || !strings.Contains(o.stderr, "--lr-schedule cosine") {
			t.Errorf("%s: exit status %d, %s", line, o.code, o.stderr)
		}
	}
	old, now := map[string]string{"schedule": "step", "lr": "0.1"},
		map[string]string{"lr-schedule": "step", "lr": "0.1"}
	if found := differences(old, now); len(found) > 0 {
		t.Errorf("the same settings, saved by the former name: %v", found)
	}
	now["lr-schedule"] = "constant"
	if found := differences(old, now); len(found) != 1 || old["schedule"] != "step" {
		t.Errorf("%v after %v", found, old)
	}
}

// Configurations have the devices, as they change last digits, but a training goes on with others.
func TestATrainingGoesOnWithOtherDevices(t *testing.T) {
	o, err := optionsOf(tune.Settings{storeKey: "store", "model": "sgc"})
	if err != nil {
		t.Fatal(err)
	}
	saved := o.config(1)
	saved["emulate"] = "gpu=2,mem=1GiB"
	now := o.config(1)
	now["tf32"] = "true"
	if found := o.differencesFrom(now)(saved); len(found) > 0 || now["tf32"] == "" {
		t.Error(found, now)
	}
}
