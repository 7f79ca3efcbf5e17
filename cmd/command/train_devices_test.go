package command

import (
	"fmt"
	"math"
	"strings"
	"testing"
)

// sharedLine trains on a graph of some 3000 training nodes.
const sharedLine = "train graph --model sage --hidden 8 --epochs 3 --eval-every 3 --dropout 0 --seed 3 --json"

// rowsPerSecond is the throughput of a training on emulated devices, in time that passes only while all wait.
func rowsPerSecond(t *testing.T, line string) (rows float64) {
	t.Helper()
	inBubble(func(t *testing.T) {
		d := disk(t, "generate sbm -o graph --nodes 6000 --edges 20000 --features 6 --classes 3 --labeled 0.9 --seed 7")
		rows = object(t, must(t, d, line))["rows_per_second"].(float64)
	})(t)
	return rows
}

func TestFourDevicesTrainThreeTimesAsFastAsOne(t *testing.T) {
	const stages = ",mem=1GiB,workers=4,cpu=60ms,gather=10ms,dma=4ms,compute=20ms"
	for _, flags := range []string{"--batch-per-device 8", "--batch 32",
		"--batch-per-device 8 --schedule multi-queue --queue 4 --sync-every 1"} {
		one := rowsPerSecond(t, sharedLine+" "+flags+" --emulate gpu=1"+stages)
		four := rowsPerSecond(t, sharedLine+" "+flags+" --emulate gpu=4"+stages)
		if four < 3*one || four > 4.01*one {
			t.Errorf("%s: %.0f rows a second on one device, %.0f on four: %.2f times as many", flags, one, four, four/one)
		}
	}
	// A step takes as long as its last device does.
	one := rowsPerSecond(t, sharedLine+" --batch-per-device 8 --emulate gpu=4"+stages)
	late := rowsPerSecond(t, sharedLine+" --batch-per-device 8 --emulate gpu=4"+stages+",straggle=1")
	if by := one / late; by < 1.5 || by > 2 {
		t.Errorf("devices that take up to twice as long slow training down %.2f times", by)
	}
}

// TestSeveralDevicesTrainAsOneOnTheirBatchesTogether compares the losses of third epochs. The sampler draws nothing:
// each device has random numbers of its own.
func TestSeveralDevicesTrainAsOneOnTheirBatchesTogether(t *testing.T) {
	d := disk(t, generateLine, propagateLine)
	for _, line := range []string{
		"graph --model sage --sampler neighbor --fanout 300,300", "graph --model gat --sampler full",
		"graph --model gcn --sampler full --as-printed 1", "store --model sign",
	} {
		line = "train " + line + " --hidden 8 --epochs 3 --eval-every 3 --dropout 0 --seed 3 --lr 0.01 --json "
		loss := func(flags string) (loss, batch float64) {
			r := object(t, must(t, d, line+flags))
			return r["train_loss"].(float64), r["settings"].(map[string]any)["batch"].(float64)
		}
		want, rows := loss("--batch 40")
		got, rowsOfFour := loss("--batch-per-device 10 --emulate gpu=4,mem=64MiB")
		if rows != 40 || rowsOfFour != 40 || !(math.Abs(got/want-1) < 1e-4) {
			t.Errorf("%s: batches of %v rows with loss %v on one device, of %v with %v on four", line, rows, want,
				rowsOfFour, got)
		}
	}
}

func TestABatchPerDeviceThatCannotBeIsAnErrorOfUsage(t *testing.T) {
	d := disk(t, generateLine)
	for flags, says := range map[string]string{
		"--batch-per-device 4 --batch 8":                                 "--batch 8 with --batch-per-device 4",
		"--batch-per-device -1":                                          "--batch-per-device",
		"--emulate gpu=2,mem=1GiB --batch-per-device 4 --schedule cpu":   "several devices share",
		"--emulate gpu=2,mem=1GiB --sampler full":                        "several devices share",
		"--emulate gpu=2,mem=1GiB --sampler saint-rw --batch 16":         "several devices share",
		"--emulate gpu=1,mem=1GiB,compute=2ms --sampler full --epochs 1": "every batch is all nodes",
	} {
		line := fmt.Sprint("train graph --model sage --hidden 8 --epochs 3 ", flags)
		if o := hopfeed(t, d, line); o.code != exitUsage || !strings.Contains(o.stderr, says) {
			t.Errorf("%s: %d, %s", flags, o.code, o.stderr)
		}
	}
}

// A step counts as soon as it is made, even if the training ends while its emulated device still computes.
func TestATrainingOnASlowDeviceThatIsStoppedEndsTheSame(t *testing.T) {
	inBubble(func(t *testing.T) {
		whole, d := disk(t, generateLine), disk(t, generateLine)
		const line = "train graph --model gcn --batch 40 --epochs 4 --run run --emulate gpu=1,mem=1GiB,compute=50ms"
		must(t, whole, line)
		if o := hopfeed(t, d, line+" --save-every 0s --max-time 320ms"); o.code != exitInterrupted {
			t.Fatalf("it was not stopped: status %d", o.code)
		}
		must(t, d, line)
		for name, text := range tree(t, whole, "run") {
			if strings.HasPrefix(name, "run/parameters-") && content(t, d, name) != text {
				t.Errorf("%s differs", name)
			}
		}
	})(t)
}

func TestABatchForEachDeviceIsRefusedWhereOthersSayHowLargeItIs(t *testing.T) {
	d := disk(t, generateLine, propagateLine)
	must(t, d, "train store --model sign --epochs 1 --batch 40 --run run")
	must(t, d, "train --config run/config.yaml --batch-per-device 20 --emulate gpu=2,mem=64MiB")
	for _, line := range []string{
		"train store --model sign --batch-per-device 20 --batch 30",
		"train store --model sign --batch-per-device 20 --tune 2",
		"tune store --model sign --batch-per-device 20",
		"train store --model sign --batch-per-device 20 --placement storage --emulate gpu=4,mem=64MiB",
	} {
		if o := hopfeed(t, d, line); o.code != exitUsage || !strings.Contains(o.stderr, "--batch-per-device") {
			t.Errorf("%s: status %d: %s", line, o.code, o.stderr)
		}
	}
}
