package command

import (
	"strings"
	"testing"
	"testing/synctest"

	"github.com/hopfeed/hopfeed/internal/need"
	"github.com/hopfeed/hopfeed/internal/offheap"
	"github.com/hopfeed/hopfeed/internal/vfs"
	"github.com/hopfeed/hopfeed/loader/cache"
	"github.com/hopfeed/hopfeed/placement"
	"github.com/hopfeed/hopfeed/tools/scheduler"
)

// trainingPeak is what a training on a graph takes at most, off the heap of Go and on all devices, what is planned of
// that, and what the fullest device takes and is planned to.
type trainingPeak struct{ taken, planned, device, plannedDevice int64 }

func peakOf(t *testing.T, d vfs.FS, line string) (p trainingPeak) {
	t.Helper()
	before := offheap.InUse()
	offheap.ResetPeak()
	o := must(t, d, line+" --json --quiet")
	p.taken = offheap.Peak() - before
	var r struct {
		Devices int
		Memory  need.Memory `json:"memory_plan"`
		Peak    int64       `json:"peak_device_bytes"`
	}
	readJSON(t, o.stdout, &r)
	m := r.Memory
	// The peaks of host and first device may be of different phases; the other devices take theirs in epochs.
	p.planned = m.Terms.Peak(need.Pinned, need.OffHeap, need.Device, need.FirstDevice) + int64(r.Devices-1)*m.OtherBytes
	p.device, p.plannedDevice = r.Peak, m.DeviceBytes
	return p
}

// What trainings on a graph allocate is what is planned or less, and not much less: by all schedules, wherever the
// features are, with and without memory of the device's own, with all caches, on several devices.
func TestTrainingsOnAGraphTakeWhatIsPlanned(t *testing.T) {
	const most = 1.1 // planned bytes divided by taken bytes, in all and on the fullest device
	const one = " --emulate gpu=1,mem=1GiB"
	const staged = ",workers=2,cpu=20ms,gather=4ms,dma=2ms,sampling=9ms,compute=4ms" // by which schedules are chosen
	type job struct {
		flags  string
		places []string
	}
	everywhere := []string{placement.Device, placement.Host, placement.Storage}
	reached := everywhere[:2] // by the device itself
	jobs := []job{{"", everywhere}, {one, everywhere}}
	for _, name := range append(scheduler.Names(), scheduler.MultiQueue) {
		flags := " --schedule " + name
		if name == scheduler.Auto || name == "collective" || name == "collective-paper" {
			flags += " --batch 16" // enough batches to fill larger buffers
		}
		switch name {
		case "gpu", "mixed", "collective", "collective-paper":
			jobs = append(jobs, job{flags + one + staged, reached}, job{flags + " --cache ducati:100KB" + one + staged,
				reached[1:]})
		case scheduler.MultiQueue:
			jobs = append(jobs, job{flags, everywhere}, job{flags + one + staged, everywhere})
			for _, more := range []string{"", " --gradients 1", " --gradients 3 --sync-every 4",
				" --updates arrival --sync-every 6", " --queue 5 --cache degree:200KB"} {
				jobs = append(jobs, job{flags + " --hidden 100" + more + strings.Replace(one, "gpu=1", "gpu=3", 1) +
					staged, everywhere[:1]})
			}
		default:
			jobs = append(jobs, job{flags, everywhere}, job{flags + one + staged, everywhere})
		}
	}
	jobs = append(jobs, job{" --partitions 3", everywhere}, job{" --partitions 3 --schedule mode-1" + one, reached})
	for _, policy := range cache.Policies() {
		jobs = append(jobs, job{" --map --cache " + policy + ":200KB", everywhere[2:]},
			job{" --cache " + policy + ":200KB" + one, reached[:1]})
	}
	d := disk(t, "generate sbm -o graph --nodes 3000 --edges 30000 --features 64 --classes 4 --labeled 0.4 --seed 5")
	for _, j := range jobs {
		synctest.Test(t, func(t *testing.T) { // so that what is measured is the same each time
			for _, place := range j.places {
				line := "train graph --model sage --hidden 32 --layers 2 --epochs 1 --batch 32 --fanout 3,3 " +
					"--threads 2 --placement " + place + j.flags
				p := peakOf(t, d, line)
				ratio := float64(p.planned) / float64(p.taken)
				t.Logf("%.3f: %+v: %s", ratio, p, line)
				onDevice := float64(p.plannedDevice) / float64(p.device)
				if ratio < 1 || ratio > most || onDevice < 1 || onDevice > most {
					t.Errorf("hopfeed %s: %d bytes are planned, %d were taken; %d and %d of the fullest device", line,
						p.planned, p.taken, p.plannedDevice, p.device)
				}
			}
		})
	}
}

// Validation that computes what a few rows need, and then a test on all nodes, take no more than is planned.
func TestInferenceOfSomeAndOfAllNodesTakesWhatIsPlanned(t *testing.T) {
	d := disk(t, "generate sbm -o graph --nodes 6000 --edges 12000 --features 8 --classes 4 --labeled 0.05 --seed 5")
	for _, model := range []string{"gcn", "sage", "gat"} {
		line := "train graph --hidden 128 --layers 2 --epochs 1 --batch 32 --fanout 3,3 --threads 2 --emulate " +
			"gpu=1,mem=1GiB --model " + model
		if p := peakOf(t, d, line); p.device > p.plannedDevice {
			t.Errorf("hopfeed %s: %d bytes of the device are planned, %d were taken", line, p.plannedDevice, p.device)
		}
	}
}

// On a device of any size a training ends well, or says that there is too little memory.
func TestTrainingsOnSmallDevicesDoNotFit(t *testing.T) {
	d := disk(t, "generate sbm -o graph --nodes 6000 --edges 60000 --features 64 --classes 4 --labeled 0.4 --seed 5")
	codes := map[int]bool{}
	for _, memory := range []string{"4MiB", "6MiB", "7MiB", "9MiB", "16MiB"} {
		o := hopfeed(t, d, "train graph --model sage --hidden 16 --layers 2 --epochs 1 --batch 64 --fanout 3,3 "+
			"--cache degree:200KB --placement host --emulate gpu=1,mem="+memory)
		if codes[o.code] = true; o.code != exitDone && o.code != exitDoesNotFit {
			t.Errorf("on a device of %s: exit status %d: %s", memory, o.code, o.stderr)
		}
	}
	if len(codes) != 2 {
		t.Errorf("exit statuses %v, want both", codes)
	}
}

// What is planned for a store, in all and on a device, is what a training takes, for all models and placements, on one
// device and on two, with and without memory of their own.
func TestTrainingsOnAStoreTakeWhatIsPlanned(t *testing.T) {
	d := disk(t, "generate sbm -o graph --nodes 1500 --edges 3000 --features 64 --classes 4 --labeled 0.8 --seed 5",
		"propagate graph -o store --hops 1 --chunk-rows 100")
	for _, model := range []string{"sgc --hops 1", "ssgc", "sign", "gamlp", "hoga"} {
		for _, machine := range []string{"", " --emulate gpu=1,mem=1GiB", " --emulate gpu=2,mem=1GiB"} {
			for _, place := range []string{placement.Device, placement.Host, placement.Storage} {
				line := "train store --hidden 64 --batch 256 --epochs 1 --threads 2 --placement " + place +
					" --model " + model + machine
				p := peakOf(t, d, line)
				if machine == "" && place == placement.Storage { // chunks being read are in the same memory
					p.plannedDevice = max(p.plannedDevice, min(p.device, p.planned))
				}
				ratio, onDevice := float64(p.planned)/float64(p.taken), float64(p.plannedDevice)/float64(p.device)
				t.Logf("%.3f %.3f: %+v: %s", ratio, onDevice, p, line)
				// Storage feeds one of two devices, and is planned the chunks that others are loaded by.
				if ratio < 1 || ratio > 1.3 || onDevice < 1 || onDevice > 1.1 {
					t.Errorf("hopfeed %s: %+v", line, p)
				}
			}
		}
	}
}

// Whatever samples batches, for whatever model, wherever the graph lies, no more memory is taken than is planned, and
// not
// much less. What a GPU keeps of each edge, for attention and to order edges by source, is planned for all devices.
func TestSamplersAndModelsTakeWhatIsPlanned(t *testing.T) {
	d := disk(t, "generate sbm -o graph --nodes 3000 --edges 30000 --features 64 --classes 4 --labeled 0.4 --seed 5")
	samples := map[string]string{
		"neighbor": "--fanout 3,3", "labor-1": "--fanout 3,3", "ladies": "--fanout 60,60", "fastgcn": "--fanout 60,60",
		"locality": "--fanout 3,3 --bias 4 --cache degree:200KB", "saint-node": "", "saint-edge": "", "saint-rw": "",
		"full": "",
	}
	var lines []string
	for _, machine := range []string{"", " --emulate gpu=1,mem=1GiB"} {
		for _, model := range []string{"gcn", "sage", "gat"} {
			for _, place := range []string{placement.Device, placement.Host, placement.Storage} {
				lines = append(lines, "--batch 32 --fanout 3,3 --model "+model+" --placement "+place+machine)
			}
			lines = append(lines, "--batch 2000 --sampler full --model "+model+machine) // all nodes at once
		}
	}
	for name, flags := range samples {
		lines = append(lines,
			"--batch 32 --model gcn --placement host --emulate gpu=1,mem=1GiB --sampler "+name+" "+flags)
	}
	for _, line := range lines {
		synctest.Test(t, func(t *testing.T) {
			p := peakOf(t, d, "train graph --hidden 16 --layers 2 --epochs 1 --threads 2 "+line)
			ratio, onDevice := float64(p.planned)/float64(p.taken), float64(p.plannedDevice)/float64(p.device)
			t.Logf("%.3f %.3f: %+v: %s", ratio, onDevice, p, line)
			if ratio < 1 || ratio > 1.1 || onDevice < 1 || onDevice > 1.1 {
				t.Errorf("%s: %+v", line, p)
			}
		})
	}
}
