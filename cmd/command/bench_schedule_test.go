package command

import (
	"encoding/json"
	"math"
	"strings"
	"testing"
)

// With one batch of the processor for each of the GPU, by hand: the GPU prepares in 10 ms and trains two
// in 20, and the processor takes 30 for one, so that both are always busy.
func TestBenchScheduleSharesBatchesBetweenProcessorAndGPU(t *testing.T) {
	const line = "bench schedule --cpu-batch 30ms --dma 5ms --gpu-batch 10ms --training 10ms --batches 400"
	want := map[string]struct{ epoch, cpu float64 }{"cpu": {12, 400}, "gpu": {8, 0}, "collective": {6, 200},
		"sequential": {18, 400}, "mode-1": {12, 400}, "mode-2": {12, 400}}
	total := map[string]float64{}
	lines := strings.Split(strings.TrimSpace(must(t, disk(t), line+" --json").stdout), "\n")
	for _, text := range lines {
		var r struct {
			Schedule string  `json:"schedule"`
			Epoch    float64 `json:"epoch_seconds"`
			CPU      float64 `json:"cpu_batches"`
			GPU      float64 `json:"gpu_batches"`
		}
		if err := json.Unmarshal([]byte(text), &r); err != nil {
			t.Fatal(err)
		}
		if total[r.Schedule] = r.Epoch; r.Schedule == "mixed" || r.Schedule == "collective-paper" { // not by hand
			if r.Epoch < 6 || r.Epoch > 8 {
				t.Error(text)
			}
			continue
		}
		w := want[r.Schedule]
		if math.Abs(r.Epoch/w.epoch-1) > 0.02 || math.Abs(r.CPU-w.cpu) > 8 || r.CPU+r.GPU != 400 {
			t.Errorf("%s, want %+v", text, w)
		}
		delete(want, r.Schedule)
	}
	if len(want) > 0 {
		t.Errorf("missing: %v", want)
	}
	if total["collective-paper"] < total["collective"] {
		t.Errorf("ours takes longer than the printed one: %v", total)
	}
	if text := must(t, disk(t), line).stdout; !strings.Contains(text, "collective") {
		t.Error(text)
	}
}

func TestSweepsAreTablesAndCharts(t *testing.T) {
	d := disk(t)
	for _, sweep := range []string{"cores", "buffer", "machines", "memory", "preparation"} {
		text := must(t, d, "bench schedule --sweep "+sweep+" -o charts").stdout
		if !strings.Contains(text, "collective-paper") {
			t.Errorf("%s: %s", sweep, text)
		}
		if svg := content(t, d, "charts/schedule-"+sweep+".svg"); !strings.Contains(svg, "MorphGL)") {
			t.Errorf("%s: a chart without schedules", sweep)
		}
	}
	for _, flags := range []string{"--sweep night", "--dma 2ms -o charts"} {
		if o := hopfeed(t, d, "bench schedule "+flags); o.code != exitUsage {
			t.Errorf("%q: status %d: %s", flags, o.code, o.stderr)
		}
	}
}

func TestBenchScheduleWantsDurationsAndRoom(t *testing.T) {
	for _, flags := range []string{"", "--cpu-batch 1ms --dma 1ms --gpu-batch 1ms --training -1ms",
		"--cpu-batch 1ms --dma 1ms --gpu-batch 1ms --training 1ms --batches 0",
		"--cpu-batch 1ms --dma 1ms --gpu-batch 1ms --training 1ms --gpu-buffer 0",
		"--cpu-batch 1ms --dma 1ms --gpu-batch 1ms --training 1ms --batches 2000000"} {
		if o := hopfeed(t, disk(t), "bench schedule "+flags); o.code != exitUsage {
			t.Errorf("%q: status %d: %s", flags, o.code, o.stderr)
		}
	}
}
