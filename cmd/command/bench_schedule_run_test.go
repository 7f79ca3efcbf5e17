package command

import (
	"bufio"
	"encoding/json"
	"math"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/hopfeed/hopfeed/tools/bench"
)

func scheduleLines(t *testing.T, o outcome) (all []bench.ScheduleResult) {
	t.Helper()
	for s := bufio.NewScanner(strings.NewReader(o.stdout)); s.Scan(); {
		var r bench.ScheduleResult
		if err := json.Unmarshal(s.Bytes(), &r); err != nil {
			t.Fatalf("%v: %s", err, s.Text())
		}
		all = append(all, r)
	}
	return all
}

const benchScheduleLine = "bench schedule graph --hidden 8 --batch 8 --rounds 1 "

// On the paper's machines, in time that passes only while all wait: collective batching is the fastest on
// each, by about as much as published, and epochs are as long as predicted.
func TestSchedulesRunOnTheMachinesOfThePaper(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := disk(t, "generate sbm -o graph --nodes 1800 --edges 3000 --features 6 --classes 3 --labeled 0.9 --seed 7")
		line := benchScheduleLine + "--paper --schedules cpu,gpu,mixed,collective -o charts"
		all := scheduleLines(t, must(t, d, line+" --json"))
		if len(all) != 9*4 {
			t.Fatalf("%d results", len(all))
		}
		for i, r := range all {
			best := all[i/4*4+3]
			if r.PredictedSeconds == nil || *r.PredictedSeconds < 0.95*r.EpochSeconds ||
				*r.PredictedSeconds > 1.05*r.EpochSeconds {
				t.Errorf("predicted %v: %+v", *r.PredictedSeconds, r)
			}
			if best.Schedule != "collective" || r.Schedule != "collective" && r.EpochSeconds <= best.EpochSeconds {
				t.Errorf("%+v is not slower than %+v", r, best)
			}
			for k, used := range r.Used {
				// In short epochs, workers have nothing to do at the end.
				if tolerance := []float64{0.2, 0.1, 0.1}[k]; math.Abs(used-r.PaperUsed[k]) > tolerance {
					t.Errorf("%s: used %v, Table 5 has %v", r.Setting, r.Used, r.PaperUsed)
				}
			}
			if r.PaperTimes != nil {
				if gain := r.EpochSeconds / best.EpochSeconds; gain < 0.9**r.PaperTimes || gain > 1.4**r.PaperTimes {
					t.Errorf("%s %s takes %.2f times as long as collective, %.2f in the paper", r.Setting, r.Schedule,
						gain, *r.PaperTimes)
				}
			}
		}
		for _, name := range []string{"A-PA", "C-UK"} {
			for _, file := range scheduleFiles(name) {
				if text := content(t, d, "charts/"+file); !strings.Contains(text, "collective") ||
					!strings.Contains(text, `class="mark"`) {
					t.Errorf("%s lacks stages", file)
				}
			}
		}
		if o := hopfeed(t, d, line); o.code != exitUsage || !strings.Contains(o.stderr, "schedule-A-PA.svg") {
			t.Errorf("charts are written over: exit status %d, %s", o.code, o.stderr)
		}
	})
}

// The larger DUCATI's cache, the fewer lists and rows come from the host; from device memory none do.
func TestRowsOfDeviceMemoryTakeLessFromTheHost(t *testing.T) {
	d := disk(t, generateLine)
	all := scheduleLines(t, must(t, d, benchScheduleLine+"--fanout 3,3 --emulate gpu=1,mem=1GiB --json "+
		"--schedules gpu,ducati,ducati:6KiB,ducati:20KiB,preload"))
	names := []string{"gpu", "ducati", "ducati:6KiB", "ducati:20KiB", "preload"}
	if len(all) != len(names) {
		t.Fatalf("%+v", all)
	}
	for i, r := range all {
		if r.Schedule != names[i] || r.GPUBatches == 0 || r.CPUBatches > 0 {
			t.Errorf("%+v, want a row %s by the device", r, names[i])
		}
		if i > 0 && (*r.TopologyBytes > *all[i-1].TopologyBytes || *r.RowBytes > *all[i-1].RowBytes) {
			t.Errorf("%s: %d bytes of lists and %d of rows come from the host, %s %d and %d", r.Schedule, *r.TopologyBytes,
				*r.RowBytes, all[i-1].Schedule, *all[i-1].TopologyBytes, *all[i-1].RowBytes)
		}
	}
	if *all[3].TopologyBytes > *all[0].TopologyBytes/2 || *all[1].RowBytes > *all[0].RowBytes/2 {
		t.Errorf("a cache saves little: %+v", all)
	}
	if last := all[4]; *last.TopologyBytes != 0 || *last.RowBytes != 0 {
		t.Errorf("from device memory: %+v", last)
	}
}

func TestBenchScheduleRunsWhatTheMachineHas(t *testing.T) {
	d := disk(t, generateLine)
	o := must(t, d, benchScheduleLine+"--model gcn --emulate gpu=1,mem=1GiB --cache ducati:9000 -o charts")
	for _, want := range []string{"collective", "mode-2", "predicted"} {
		if !strings.Contains(o.stdout, want) {
			t.Errorf("no %q in %s", want, o.stdout)
		}
	}
	if page := content(t, d, "charts/schedule.html"); !strings.Contains(page, "<th>schedule</th>") {
		t.Error("a page without a table")
	}
	o = must(t, d, benchScheduleLine+"--emulate gpu=1,mem=1GiB --schedules mixed --cpu-share 0 --json")
	if all := scheduleLines(t, o); len(all) != 1 || all[0].CPUBatches != 0 {
		t.Errorf("no share by the processor: %+v", all)
	}
	o = must(t, d, benchScheduleLine+"--json")
	if all := scheduleLines(t, o); len(all) != 4 || !strings.Contains(o.stderr, "schedule collective is left out: ") ||
		all[0].Setting != "" {
		t.Errorf("%+v, %s", all, o.stderr)
	}
	for flags, want := range map[string]string{
		"graph --dma 2ms":             "without a GRAPH",
		"--rounds 2":                  "give a GRAPH",
		"":                            "needs a GRAPH, or durations",
		"graph --rounds 0":            "--rounds 0",
		"graph --schedules cpu,quick": "quick",
		"graph --model sign":          "sign reads a hop store",
		"graph --paper --emulate mem=1GiB,compute=2ms": "leave their times out",
		"graph --cpu-share 7":                          "--cpu-share 7",
	} {
		if o := hopfeed(t, d, "bench schedule "+flags); o.code != exitUsage || !strings.Contains(o.stderr, want) {
			t.Errorf("%s: exit status %d, %s", flags, o.code, o.stderr)
		}
	}
}
