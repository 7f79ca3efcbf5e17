package command

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/hopfeed/hopfeed/internal/vfs"
	"github.com/hopfeed/hopfeed/tools/bench"
)

const ablationLine = "bench ablation store --hidden 8 --layers 2 --batch 80 --rounds 2 --epochs 2 --hops 2,1 "

// ablation is what an ablation prints.
func ablation(t *testing.T, fsys vfs.FS, flags string) (a struct {
	bench.Ablation
	Output string
}) {
	t.Helper()
	if err := json.Unmarshal([]byte(must(t, fsys, ablationLine+"--json "+flags).stdout), &a); err != nil {
		t.Fatal(err)
	}
	return a
}

// ways are the results of one model on so many hops.
func ways(a bench.Ablation, model string, hops int) (text string) {
	for _, r := range a.Results {
		if r.Model == model && r.Hops == hops {
			text += fmt.Sprintf("%s %s, ", r.Placement, r.Variant)
		}
	}
	return strings.TrimSuffix(text, ", ")
}

const allWays = "device baseline, device fused, device double-buffer, device chunk, " +
	"host baseline, host fused, host double-buffer, host chunk, storage chunk"

func TestAblationTrainsEveryModelInEveryWay(t *testing.T) {
	d := disk(t, generateLine, propagateLine+" --force --chunk-rows 80")
	for _, emulate := range []string{"", "--emulate gpu=1,mem=16MiB,link=8GiB/s"} {
		a := ablation(t, d, emulate)
		if len(a.Results) != 4*9 || len(a.LeftOut) != 0 || a.OneMemory != (emulate == "") || a.Rows != 160 ||
			a.BatchRows != 80 || a.ChunkRows != 80 {
			t.Errorf("%q: %d results, %+v left out, %+v", emulate, len(a.Results), a.LeftOut, a)
		}
		for _, model := range []string{"sgc", "sign"} {
			for hops := 1; hops <= 2; hops++ {
				if got := ways(a.Ablation, model, hops); got != allWays {
					t.Errorf("%q: %s on %d hops: %s", emulate, model, hops, got)
				}
			}
		}
		for _, r := range a.Results {
			matrices := map[string]int{"sgc": 2, "sign": 1 + 2*r.Hops}[r.Model] // of two operators
			input := a.Rows * int64(matrices) * 6 * 4
			var storage, assembled, copied int64
			if r.Placement == "storage" {
				storage = input
			}
			naive, labels := r.Variant == "baseline", 4*a.Rows
			gathered := r.Shuffle == "rr" && !naive
			switch {
			case r.Placement == "device" && gathered:
				copied = labels + 4*a.Rows // row numbers
			case r.Placement == "device":
				copied = labels
			case a.OneMemory && !naive:
				assembled, copied = input, labels
			case gathered:
				assembled, copied = input, input+labels
			default:
				copied = input + labels
			}
			if r.Matrices != matrices || r.InputBytes != input || r.StorageBytes != storage ||
				r.AssembledBytes != assembled || r.CopiedInBytes != copied {
				t.Errorf("%q: %+v: want %d matrices, %d bytes: %d from storage, %d assembled, %d copied in", emulate, r,
					matrices, input, storage, assembled, copied)
			}
			if r.EpochSeconds <= 0 || len(r.Seconds) != 2*2 || len(r.StepSeconds) != 4 || len(r.LoaderSeconds) != 3 ||
				r.Speedup <= 0 {
				t.Errorf("%+v", r)
			}
			if first := r.Variant == "baseline" && r.Placement == "host"; first && r.Speedup != 1 {
				t.Errorf("the reference is %v times as fast as itself", r.Speedup)
			}
		}
		if got := len(a.Figure9.Bars); got != 2*9 || a.Figure9.Reference.Variant != "baseline" ||
			a.Figure9.Reference.Placement != "host" {
			t.Errorf("figure 9 has %d bars of %+v", got, a.Figure9.Reference)
		}
		if got := len(a.Figure14.Bars); got != 2*5 || a.Figure14.Reference.Shuffle != "rr" ||
			a.Figure14.Reference.Placement != "device" {
			t.Errorf("figure 14 has %d bars of %+v", got, a.Figure14.Reference)
		}
	}
	text := must(t, d, ablationLine+"--rounds 1 --epochs 1 --models sign --placement host").stdout
	for _, want := range []string{"host memory are one", "double-buffer", "Figure 9: epoch times as multiples",
		"Figure 14: ", "optimizer", "copied to the device"} {
		if !strings.Contains(text, want) {
			t.Errorf("no %q in\n%s", want, text)
		}
	}
	if a := ablation(t, d, "--rounds 1 --epochs 1 --models sgc --placement storage --chunk-rows 160"); ways(a.Ablation,
		"sgc", 2) != "storage chunk" || a.ChunkRows != 160 {
		t.Errorf("%+v", a)
	}
}

func TestAblationTakesTheHopsOfTheStore(t *testing.T) {
	d := disk(t, generateLine, "propagate graph -o store --hops 4 --operator sym", "propagate graph -o one --hops 1")
	for store, want := range map[string]string{"store": "2 3 4", "one": "1"} {
		var a bench.Ablation
		line := "bench ablation " + store + " --json --models sgc --placement device --rounds 1 --epochs 1"
		if err := json.Unmarshal([]byte(must(t, d, line).stdout), &a); err != nil {
			t.Fatal(err)
		}
		hops := ""
		for _, r := range a.Results {
			if r.Variant == "chunk" {
				hops += fmt.Sprint(" ", r.Hops)
			}
		}
		if hops != " "+want {
			t.Errorf("%s: hops%s, want %s", store, hops, want)
		}
	}
}

func TestAblationLeavesOutWhatDoesNotFit(t *testing.T) {
	d := disk(t, "generate sbm -o graph --nodes 4000 --edges 4000 --features 24 --classes 3 --labeled 1",
		"propagate graph -o store --hops 2")
	a := ablation(t, d, "--rounds 1 --epochs 1 --emulate mem=400KiB")
	if got := ways(a.Ablation, "sgc", 2); got != allWays {
		t.Errorf("sgc: %s", got)
	}
	if got, want := ways(a.Ablation, "sign",
		2), "host baseline, host fused, host double-buffer, host chunk, storage chunk"; got != want {
		t.Errorf("sign: %s", got)
	}
	if len(a.LeftOut) != 2*4 {
		t.Fatalf("left out: %+v", a.LeftOut)
	}
	for _, l := range a.LeftOut {
		if l.Model != "sign" || l.Placement != "device" || !strings.Contains(l.Reason, "400 KiB") {
			t.Errorf("left out: %+v", l)
		}
	}
	// Device memory is no reference if not all fit it.
	if a.Figure14.Reference.Placement != "host" {
		t.Errorf("%+v", a.Figure14)
	}
	a = ablation(t, d, "--rounds 1 --epochs 1 --models sgc --chunk-rows 50")
	if l := a.LeftOut; len(l) != 2 || l[0].Placement != "storage" || !strings.Contains(l[0].Reason, "whole chunks") {
		t.Errorf("chunks that are cut: %+v", l)
	}
	if o := must(t, d, ablationLine+"--rounds 1 --epochs 1 --models sgc --chunk-rows 50"); !strings.Contains(o.stdout,
		"left out: sgc, hops 1, chunk from storage: ") {
		t.Errorf("%s", o.stdout)
	}
	if o := hopfeed(t, d, ablationLine+"--emulate mem=4KiB"); o.code != exitDoesNotFit ||
		!strings.Contains(o.stderr, "4 KiB") {
		t.Errorf("a device without memory: status %d, %s", o.code, o.stderr)
	}
}

func TestAblationMeasuresWhatFitsByCount(t *testing.T) {
	d := disk(t, "generate sbm -o graph --nodes 4000 --edges 4000 --features 24 --classes 3 --labeled 1",
		"propagate graph -o store --hops 2")
	for kib := 360; kib > 0; kib -= 20 {
		o := hopfeed(t, d, fmt.Sprintf("bench ablation store --models sgc --batch 80 --rounds 2 --epochs 1 "+
			"--emulate mem=%dKiB --json", kib))
		if left := object(t, o)["left_out"].([]any); len(left) > 0 {
			if reason := fmt.Sprint(left[0]); !strings.Contains(reason, "batches and model") {
				t.Errorf("of %d KiB: %s", kib, reason)
			}
			return
		}
	}
	t.Error("nothing was left out")
}

func TestAblationRefusesWhatCannotBeMeasured(t *testing.T) {
	d := disk(t, generateLine, propagateLine)
	write(t, d, "figure-9.svg", "mine")
	for flags, want := range map[string]string{
		"--placement tape": "tape",
		"--models gcn":     "gcn",
		"--models sgc,":    `--models ""`,
		"--hops 3":         "propagate with more hops",
		"--hops 2,-1":      "--hops -1",
		"--rounds 0":       "--rounds 0",
		"--epochs 0":       "--epochs 0",
		"--batch 0":        "--batch 0",
		"--chunk-rows -1":  "--chunk-rows -1",
		"--layers 1":       "layers 1: must be an integer from 2",
		"-o store":         "to which nothing may be added",
		"-o .":             "figure-9.svg",
	} {
		if o := hopfeed(t, d, ablationLine+flags); o.code != exitUsage || !strings.Contains(o.stderr, want) {
			t.Errorf("%s: status %d, %s", flags, o.code, o.stderr)
		}
	}
	if o := hopfeed(t, d, "bench ablation graph"); o.code != exitUsage || !strings.Contains(o.stderr, "is a graph") {
		t.Errorf("a graph: status %d, %s", o.code, o.stderr)
	}
	if got := content(t, d, "figure-9.svg"); got != "mine" {
		t.Errorf("the file is now %q", got)
	}
}

func TestAblationWritesChartsOnceOrNothing(t *testing.T) {
	d := disk(t, generateLine, propagateLine)
	line := ablationLine + "--rounds 1 --epochs 1 --models sgc --placement storage -o deep/charts"
	before := len(tree(t, d, "."))
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if o := hopfeedUntil(t, ctx, d, line); o.code != exitInterrupted || len(tree(t, d, ".")) != before {
		t.Errorf("interrupted: status %d, %s", o.code, o.stderr)
	}
	o := must(t, d, line+" --json")
	files := tree(t, d, "deep")
	if len(files) != len(bench.AblationFiles()) {
		t.Errorf("%d files", len(files))
	}
	for name, data := range files {
		if strings.HasSuffix(name, ".svg") && !strings.HasPrefix(data, "<svg xmlns=") {
			t.Errorf("%s begins with %q", name, data[:20])
		}
	}
	var printed, written map[string]any
	printed = object(t, o)
	if err := json.Unmarshal([]byte(files["deep/charts/ablation.json"]), &written); err != nil ||
		printed["output"] != "deep/charts" {
		t.Errorf("%v, output %v", err, printed["output"])
	}
	delete(printed, "output")
	if a, b := fmt.Sprint(printed), fmt.Sprint(written); a != b {
		t.Errorf("printed\n%s\nand written\n%s", a, b)
	}
	if o := hopfeed(t, d, line); o.code != exitUsage || !strings.Contains(o.stderr, "output exists") {
		t.Errorf("again: status %d, %s", o.code, o.stderr)
	}
}
