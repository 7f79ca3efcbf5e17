package command

import (
	"strings"
	"testing"
	"testing/synctest"

	"github.com/hopfeed/hopfeed/tools/scheduler"
)

const queuedLine = scheduledLine + " --run run --json --schedule multi-queue "

// queuedParameters are the parameters of a run by queues.
func queuedParameters(t *testing.T, flags string) (parameters string, r scheduler.QueueReport) {
	t.Helper()
	d := disk(t, generateLine)
	var out struct {
		Devices int
		Queues  *scheduler.QueueReport `json:"multi_queue"`
		Measure *float64               `json:"epoch_seconds"`
	}
	readJSON(t, must(t, d, queuedLine+flags).stdout, &out)
	if out.Queues == nil || out.Devices != out.Queues.Devices || out.Queues.Predicted <= 0 || out.Measure == nil {
		t.Fatalf("%s: %+v", flags, out)
	}
	return parametersOf(t, tree(t, d, "run")), *out.Queues
}

func TestOneDeviceTrainsByQueuesAsWithout(t *testing.T) {
	for _, flags := range []string{"", "--emulate gpu=1,mem=1GiB --cache degree:600 --placement host",
		"--sampler saint-rw"} {
		d := disk(t, generateLine)
		must(t, d, scheduledLine+" --run run "+flags)
		want := parametersOf(t, tree(t, d, "run"))
		got, r := queuedParameters(t, flags)
		if got != want || r.Period != 1 || r.Lag != 0 || r.Queue < 2 || r.Staleness.Largest != 0 {
			t.Errorf("%s: other parameters, or %+v", flags, r)
		}
	}
}

// Neither stragglers nor what else takes time change a model, nor does a stop; gradients that wait do.
func TestModelsBySeveralDevicesDoNotDependOnTime(t *testing.T) {
	const plan, machine = " --queue 3 --gradients 3 --sync-every 4", "--emulate gpu=3,mem=1GiB"
	want, r := queuedParameters(t, machine+plan)
	if r.Devices != 3 || r.Queue != 3 || r.Period != 4 || r.Lag != 2 || r.Staleness.Largest != 2 {
		t.Errorf("%+v", r)
	}
	inBubble(func(t *testing.T) {
		if got, _ := queuedParameters(t,
			machine+",workers=2,cpu=2ms,dma=1ms,compute=2ms,straggle=3"+plan); got != want {
			t.Error("other parameters with stragglers")
		}
	})(t)
	if got, r := queuedParameters(t, machine+" --queue 3 --sync-every 1"); got == want || r.Lag != 0 {
		t.Errorf("gradients that wait change nothing: %+v", r)
	}
	d := disk(t, generateLine)
	if o := interruptedAtSave(t, d, 1, queuedLine+machine+plan+" --save-every 0s"); o.code != exitInterrupted {
		t.Fatal(o.stderr)
	}
	must(t, d, queuedLine+machine) // by the plan that it began with
	if got := parametersOf(t, tree(t, d, "run")); got != want {
		t.Error("other parameters after a stop")
	}
	must(t, d, "train --config run/config.yaml --run again") // it has the machine, and the plan of the first command
	if got := parametersOf(t, tree(t, d, "again")); got != want {
		t.Error("other parameters by the configuration of the run")
	}
}

// A run whose gradients are applied as they arrive goes on from a synchronisation, and says how stale they were.
func TestARunOnArrivalGoesOn(t *testing.T) {
	const plan = "--sync-every 4 --updates arrival"
	const machine = "--emulate gpu=3,mem=1GiB,workers=2,cpu=2ms,dma=1ms,compute=2ms,straggle=3 "
	d := disk(t, generateLine)
	if o := interruptedAtSave(t, d, 1, queuedLine+machine+plan+" --save-every 0s"); o.code != exitInterrupted {
		t.Fatal(o.stderr)
	}
	inBubble(func(t *testing.T) {
		var out struct {
			Queues *scheduler.QueueReport `json:"multi_queue"`
		}
		readJSON(t, must(t, d, queuedLine+machine).stdout, &out)
		if r := out.Queues; !r.OnArrival || r.Period != 4 || r.Gradients != 4 || r.Staleness.Mean <= 0 ||
			r.Staleness.Mean >= 1.5 || r.Staleness.Largest > 3 {
			t.Errorf("%+v", r)
		}
		if says := out.Queues.Reproducible(); !strings.Contains(says, "another training gives another model") {
			t.Error(says)
		}
		if config := content(t, d, "run/config.yaml"); !strings.Contains(config, "updates: arrival") {
			t.Error(config)
		}
	})(t)
}

func TestQueuesAreChosenByMeasurement(t *testing.T) {
	_, r := queuedParameters(t, "--emulate gpu=2,mem=1GiB,workers=4,cpu=30ms,dma=3ms,compute=8ms,straggle=1 --epochs 1")
	// Times are of one device, which trains on half of a batch.
	if r.Queue < 2 || r.Capacity != scheduler.MostQueue || r.Prepare < 0.0165 || r.Compute < 0.004 || r.Period < 1 ||
		r.Gradients > r.Period {
		t.Errorf("%+v", r)
	}
	if r.Predicted > r.PredictedBy {
		t.Errorf("queues are predicted to be slower than none: %+v", r)
	}
}

func TestQueuesThatCannotBeAreUsageErrors(t *testing.T) {
	for flags, says := range map[string]string{
		"--schedule multi-queue --queue 33":                                         "--queue 33",
		"--schedule multi-queue --queue -1":                                         "--queue -1",
		"--schedule multi-queue --gradients 99":                                     "--gradients 99",
		"--schedule multi-queue --sync-every -4":                                    "--sync-every -4",
		"--schedule multi-queue --buffers 3":                                        "--queue",
		"--schedule cpu --queue 3":                                                  "are for --schedule multi-queue",
		"--updates arrival":                                                         "are for --schedule multi-queue",
		"--schedule multi-queue --updates late":                                     "want one of planned, arrival",
		"--schedule multi-queue --sampler full":                                     "every batch is all nodes",
		"--emulate gpu=2,mem=1GiB --sampler full":                                   "with --schedule multi-queue",
		"--schedule multi-queue --emulate gpu=2,mem=1GiB --sampler saint-rw":        "chooses the seeds of a batch",
		"--schedule multi-queue --emulate gpu=2,mem=1GiB,straggle=x --sampler full": "no part of a time",
	} {
		line := scheduledLine
		if strings.Contains(flags, "full") {
			line = strings.ReplaceAll(line, "--batch 16 ", "")
		}
		if o := hopfeed(t, disk(t, generateLine), line+" "+flags); o.code != exitUsage ||
			!strings.Contains(o.stderr, says) {
			t.Errorf("%s: %d, %s", flags, o.code, o.stderr)
		}
	}
}

// Ranks wait for batches side by side, so waiting takes no longer than training does.
func TestDevicesThatWaitSideBySideLeaveTimeToCompute(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := disk(t, generateLine)
		var r struct {
			Seconds float64            `json:"epoch_seconds"`
			Stages  map[string]float64 `json:"stage_seconds"`
		}
		line := strings.Replace(queuedLine, "--run run ", "", 1) + "--queue 2 --gradients 2 --sync-every 4"
		readJSON(t, must(t, d, line+" --emulate gpu=3,mem=1GiB,workers=1,cpu=180ms,dma=3ms,compute=6ms").stdout, &r)
		if compute, wait := r.Stages["compute"], r.Stages["load_wait"]; compute <= 0 || wait <= 0 ||
			compute+wait > 3.001*r.Seconds {
			t.Errorf("3 epochs of %v s: %v", r.Seconds, r.Stages)
		}
	})
}
