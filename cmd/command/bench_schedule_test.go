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
		if r.Schedule == "mixed" { // a share that nothing follows from by hand
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
	if text := must(t, disk(t), line).stdout; !strings.Contains(text, "collective") {
		t.Error(text)
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
