//go:build cuda && cgo && linux

package command

import (
	"fmt"
	"math"
	"strings"
	"testing"

	"github.com/hopfeed/hopfeed/gds/cuda"
	"github.com/hopfeed/hopfeed/gds/testdevice"
)

// A training on a GPU that is lost in the middle of an epoch, or has no more memory, ends with an error that
// names it, and goes on where there is no GPU any more.
func TestATrainingThatLosesItsGPUGoesOnOnTheHost(t *testing.T) {
	soft := testdevice.Software(t)
	for _, c := range []struct {
		name, line string
		function   string
		call       int32
		result     testdevice.Result
		code       int
		want       string
	}{
		{"lost while it trains on a store", "train store --model sign --hidden 8 --lr 0.02 --batch 50",
			"cuLaunchKernel", 700, testdevice.Lost, exitFailed, "launchfailed"},
		{"lost while it reads a store", "train store --model sgc --hops 2 --lr 0.02 --batch 50 --placement storage",
			"cuMemcpyAsync", 300, testdevice.Lost, exitFailed, "launchfailed"},
		{"lost while it trains on samples", "train graph --model sage --hidden 8 --batch 40 --fanout 3,3",
			"cuLaunchKernel", 900, testdevice.Lost, exitFailed, "launchfailed"},
		{"full while it trains on samples", "train graph --model sage --hidden 8 --batch 40 --fanout 3,3",
			"cuMemAlloc_v2", 40, testdevice.OutOfMemory, exitDoesNotFit, "out of device memory"},
	} {
		t.Run(c.name, func(t *testing.T) {
			d := disk(t, generateLine, propagateLine)
			line := c.line + " --epochs 8 --patience 0 --run run --save-every 0s --json"
			soft.Fail(c.function, c.call, c.result)
			o := hopfeed(t, d, line)
			// The driver's errors have names of their own in gorgonia.org/cu.
			said := strings.ReplaceAll(strings.ToLower(o.stderr), "_", "")
			if o.code != c.code || !strings.Contains(said, "cuda device ") || !strings.Contains(said, c.want) {
				t.Fatalf("status %d, want %d: %s", o.code, c.code, o.stderr)
			}
			_, err := d.Stat("run/checkpoint.json")
			saved := err == nil
			if !saved && c.result == testdevice.Lost { // memory ends before the first epoch does
				t.Error("nothing was saved")
			}
			soft.Lose(true)
			defer soft.Lose(false)
			if o := must(t, d, "devices"); !strings.Contains(o.stdout, "none: ") {
				t.Errorf("there is a GPU: %s", o.stdout)
			}
			var trained struct {
				Epochs  float64
				Resumed bool
			}
			readJSON(t, must(t, d, line).stdout, &trained)
			if trained.Epochs != 8 || trained.Resumed != saved {
				t.Errorf("on the host: %+v", trained)
			}
		})
		soft.Fail("", 0, testdevice.Unknown)
		soft.Lose(false)
	}
}

// The same training on GPUs and on as many devices of the host: sums run in other orders, so losses differ in their
// last digits.
func TestGPUsTrainToTheAccuracyOfTheHost(t *testing.T) {
	n, err := cuda.Count()
	if err != nil {
		t.Fatal(err)
	}
	host := fmt.Sprintf(" --emulate gpu=%d,mem=1GiB", n)
	d := wholeTypedDisk(t)
	must(t, d, strings.Replace(generateLine, "-o graph", "-o sbm", 1))
	must(t, d, strings.Replace(propagateLine, "propagate graph", "propagate sbm", 1))
	must(t, d, "propagate whole -o typed --hops 2 --label-hops 2")
	lines := []string{"train store --model sign --hidden 8 --batch 50", "train whole --model rgcn --hidden 8",
		"train whole --model sage --hidden 8 --placement host", "train store --model hoga --hidden 8",
		"train sbm --model sage --hidden 8 --batch 40 --fanout 3,3", "train sbm --model gat --hidden 8 --batch 40"}
	for i, model := range []string{"sehgnn", "nars", "sign", "sgc", "gamlp"} { // of a store of several widths
		lines = append(lines, fmt.Sprintf("train typed --model %s --placement %s", model,
			[]string{"device", "host", "storage"}[i%3]))
	}
	for _, line := range lines {
		type figures struct {
			Loss  float64 `json:"train_loss"`
			Valid float64 `json:"valid_metric"`
			Test  float64 `json:"test_metric"`
		}
		var all [2]figures
		for i, where := range []string{"", host} {
			readJSON(t, must(t, d, line+" --epochs 6 --patience 0 --lr 0.01 --json"+where).stdout, &all[i])
		}
		if gpu, cpu := all[0], all[1]; math.Abs(gpu.Loss-cpu.Loss) > 1e-3*cpu.Loss ||
			math.Abs(gpu.Valid-cpu.Valid) > 0.01 || math.Abs(gpu.Test-cpu.Test) > 0.01 || cpu.Test == 0 {
			t.Errorf("%s: %+v on GPUs, %+v on the host", line, gpu, cpu)
		}
	}
}

// What a training takes of a GPU does not grow with its epochs.
func TestAThousandEpochsTakeNoMoreOfAGPUThanAFew(t *testing.T) {
	soft := testdevice.Software(t)
	type figures struct {
		Peak int64 `json:"peak_device_bytes"`
		Load struct {
			Memory struct {
				Peak   int64 `json:"peak"`
				Pinned int64 `json:"pinned_peak"`
			}
		}
	}
	d := disk(t, "generate sbm -o graph --nodes 60 --edges 200 --features 4 --classes 2 --labeled 0.9",
		"propagate graph -o store --hops 1 --chunk-rows 16")
	for _, line := range []string{
		"train store --model sgc --batch 40 --placement host",
		"train store --model sgc --batch 40 --placement storage",
		"train graph --model sage --layers 1 --batch 40 --fanout 2 --placement host",
	} {
		var few, many figures
		for epochs, to := range map[int]*figures{10: &few, 1000: &many} {
			before := [2]uint64{soft.Allocated(), soft.Objects()}
			readJSON(t, must(t, d, fmt.Sprintf("%s --epochs %d --eval-every 200 --patience 0 --json", line,
				epochs)).stdout, to)
			if after := [2]uint64{soft.Allocated(), soft.Objects()}; after != before {
				t.Errorf("%s: %v bytes, and streams and events, after %d epochs, %v before", line, after, epochs,
					before)
			}
		}
		if many != few || few.Peak == 0 {
			t.Errorf("%s: 1000 epochs take %+v, 10 take %+v", line, many, few)
		}
	}
}

// Batches that a GPU samples and gathers by itself, out of host memory, are those of the processor, so trainings end
// with the same numbers, through a cache too.
func TestBatchesThatAGPUPreparesTrainTheSameModel(t *testing.T) {
	testdevice.Software(t)
	d := disk(t, generateLine)
	for _, flags := range []string{"--model sage --fanout 3,3",
		"--model gcn --sampler labor --fanout 3,3 --cache degree:900"} {
		type figures struct {
			Loss  float64 `json:"train_loss"`
			Valid float64 `json:"valid_metric"`
			Test  float64 `json:"test_metric"`
		}
		var all [2]figures
		for i, schedule := range []string{"cpu", "gpu"} {
			line := "train graph --hidden 8 --epochs 3 --batch 40 --placement host --json " + flags + " --schedule " +
				schedule
			readJSON(t, must(t, d, line).stdout, &all[i])
		}
		if all[0] != all[1] || all[0].Loss == 0 {
			t.Errorf("%s: by the processor %+v, by the GPU %+v", flags, all[0], all[1])
		}
	}
}
