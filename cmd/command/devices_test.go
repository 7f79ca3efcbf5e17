package command

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/hopfeed/hopfeed/format"
	"github.com/hopfeed/hopfeed/gds"
	"github.com/hopfeed/hopfeed/gds/devices"
	"github.com/hopfeed/hopfeed/gds/gdstest"
	"github.com/hopfeed/hopfeed/gds/host"
	"github.com/hopfeed/hopfeed/loader"
	"github.com/hopfeed/hopfeed/placement"
	"github.com/hopfeed/hopfeed/tools/session"
	"github.com/hopfeed/hopfeed/tools/training"
	"github.com/hopfeed/hopfeed/trainer"
)

func TestTrainingOnSeveralDevicesIsTrainingOnOne(t *testing.T) {
	d := disk(t, "generate sbm -o graph --nodes 4000 --edges 9000 --features 20 --classes 3 --labeled 1 --seed 7",
		"propagate graph -o store --hops 2 --operator sym")
	type report struct {
		Devices   int
		Sharded   bool
		Loss      float64 `json:"train_loss"`
		Valid     float64 `json:"valid_metric"`
		Test      float64 `json:"test_metric"`
		Remote    float64 `json:"remote_rows"`
		Predicted float64 `json:"predicted_remote_rows"`
		Bytes     int64   `json:"remote_bytes"`
	}
	train := func(flags string) (r report) {
		t.Helper()
		line := "train store --hidden 8 --epochs 3 --batch 128 --dropout 0 --shuffle rr --json " + flags
		if err := json.Unmarshal([]byte(must(t, d, line).stdout), &r); err != nil {
			t.Fatal(err)
		}
		return r
	}
	alone := train("")
	for _, c := range []struct {
		flags   string
		devices int
		sharded bool
	}{
		{"--emulate gpu=2,mem=4MiB", 2, false},
		{"--emulate gpu=3,mem=4MiB --placement host", 3, false},
		{"--emulate gpu=3,mem=640KiB", 3, true},
		{"--emulate gpu=8,mem=640KiB", 8, true},
		{"--emulate gpu=3,mem=640KiB --split 0 --splits splits.npy", 3, true},
	} {
		r, want := report{}, alone
		if strings.Contains(c.flags, "--splits") {
			write(t, d, "splits.npy", scatteredSplits(4000))
			want = train("--split 0 --splits splits.npy")
		}
		r = train(c.flags)
		if r.Devices != c.devices || r.Sharded != c.sharded || math.Abs(r.Loss/want.Loss-1) > 1e-4 ||
			math.Abs(r.Valid-want.Valid) > 0.002 || math.Abs(r.Test-want.Test) > 0.002 {
			t.Errorf("%s: %+v, want %+v", c.flags, r, want)
		}
		if c.sharded != (r.Bytes > 0) || c.sharded && math.Abs(r.Remote/r.Predicted-1) > 0.3 {
			t.Errorf("%s: %v of the rows moved, %d bytes; predicted %v", c.flags, r.Remote, r.Bytes, r.Predicted)
		}
	}
	out := must(t, d, "train store --hidden 8 --epochs 2 --batch 128 --emulate gpu=3,mem=640KiB --run run")
	for _, want := range []string{"devices  3, which share each batch; ", "each of 3 devices holds a part"} {
		if !strings.Contains(out.stdout+out.stderr, want) {
			t.Errorf("no %q in\n%s%s", want, out.stdout, out.stderr)
		}
	}
	// A model is the same whatever it was trained on, and is evaluated on.
	one := object(t, must(t, d, "evaluate --checkpoint run store --json"))
	three := object(t, must(t, d, "evaluate --checkpoint run store --json --emulate gpu=3,mem=1MiB --batch 500"))
	if fmt.Sprint(one["regions"]) != fmt.Sprint(three["regions"]) {
		t.Errorf("on three devices %v, on one %v", three["regions"], one["regions"])
	}
	// What a plan says is enough, is.
	var plan struct{ Alternatives []placement.Alternative }
	const line = " store --model sgc --batch 100 --json --placement device --emulate gpu=3,mem="
	readJSON(t, must(t, d, "plan"+line+"640KiB").stdout, &plan)
	must(t, d, fmt.Sprintf("train%s%dB --epochs 1", line, int64(plan.Alternatives[0].DeviceBytes)))
	storage := must(t, d, "train store --hidden 8 --epochs 2 --emulate gpu=3,mem=4MiB --placement storage")
	if !strings.Contains(storage.stderr, "1 of 3 devices is used: only one can be fed from storage") {
		t.Errorf("nothing is said of the devices that idle: %s", storage.stderr)
	}
}

func TestDevicesAreListedWithWhatThereIsNot(t *testing.T) {
	d := disk(t)
	var r devicesResult
	if err := json.Unmarshal([]byte(must(t, d, "devices --json --emulate gpu=2,mem=4MiB").stdout), &r); err != nil {
		t.Fatal(err)
	}
	counts := map[string]int{}
	for _, k := range r.Devices {
		counts[k.Kind] = k.Count
		if (k.Count == 0) != (k.WhyNone != "") && k.Kind != "emulated" || k.Count > 0 &&
			(k.Name == "" || k.FreeBytes <= 0) {
			t.Errorf("%+v", k)
		}
	}
	if _, listed := counts["cuda"]; !listed || len(r.Devices) != 3 || counts["emulated"] != 2 || counts["host"] != 1 ||
		r.Devices[0].MemoryBytes != 4<<20 {
		t.Errorf("%+v", r)
	}
	out := strings.Join(strings.Fields(must(t, d, "devices").stdout), " ")
	if !strings.Contains(out, "emulated none: none was asked for") ||
		!strings.Contains(out, "host 1, host, memory of the host: ") {
		t.Errorf("%s", out)
	}
}

// Loaders and trainer together, each step of each device failing once. The bubble fails
// when all goroutines wait for one another and when one is left, the devices when memory
// or a stream is.
func TestWhateverFailsOnADeviceEndsTraining(t *testing.T) {
	const world, batch = 2, 40
	d := disk(t, generateLine, propagateLine)
	// Training measures its first batch, and throws away what its loaders have begun of the next, with
	// what fails there.
	const mostUnseen = 10
	unseen := 0
	run := func(t *testing.T, failing, at int, placed loader.Placement) (ended bool) {
		var failer gdstest.FailingDevice
		failer.FailAt(at)
		synctest.Test(t, func(t *testing.T) {
			store, err := format.OpenStore(d, "store")
			if err != nil {
				t.Fatal(err)
			}
			defer store.Close()
			opened := make([]gds.Device, world)
			for i := range opened {
				if opened[i], err = host.New(host.Options{Discrete: true, Threads: 1}); err != nil {
					t.Fatal(err)
				}
			}
			failer.Device = opened[failing]
			opened[failing] = &failer
			spec := trainer.Spec{Model: "sgc", Matrices: store.Matrices(), Features: store.Manifest.Features,
				Classes: store.Manifest.Classes}
			_, err = trainOn(t.Context(), opened, spec,
				loader.Options{Store: store, Matrices: spec.Matrices, Placement: placed,
					Sharded: placed == loader.Device, BatchRows: batch})
			ended = !failer.Failed()
			if err == nil && !ended {
				unseen++
			}
			if ended && err != nil || err != nil && (!failer.Is(err) || strings.Contains(err.Error(), "\n")) {
				t.Errorf("%s, device %d, step %d: failed %t, %v", placed, failing, at, !ended, err)
			}
			if err := devices.Close(opened); err != nil {
				t.Errorf("%s, device %d, step %d: %v", placed, failing, at, err)
			}
		})
		return ended
	}
	for _, placed := range []loader.Placement{loader.Device, loader.Host} {
		for failing := range world {
			at := 1
			unseen = 0
			for ; !run(t, failing, at, placed); at++ {
			}
			if unseen > mostUnseen {
				t.Errorf("%s, device %d: %d failures were not seen", placed, failing, unseen)
			}
			if at < 30 {
				t.Errorf("%s, device %d: only %d steps", placed, failing, at)
			}
		}
	}
}

// trainOn opens loaders, trains for an epoch, and closes them.
func trainOn(ctx context.Context, devices []gds.Device, spec trainer.Spec, o loader.Options) (r *trainer.Result,
	err error) {
	s := &session.Session{Devices: devices, BatchRows: o.BatchRows}
	if s.Loaders, err = loader.OpenRanks(ctx, o, devices); err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, s.Loaders.Close()) }()
	d, err := training.Store{Session: s, Part: session.RegionPartition()}.Sets(ctx, 1, true)
	if err != nil {
		return nil, err
	}
	return trainer.Fit(ctx, d.Ranks(training.Store{Session: s}), spec, trainer.Options{Epochs: 1, LearningRate: 0.01},
		nil)
}

// scatteredSplits is a .npy file [1, nodes] of int8 in which every third node trains and the
// next validates.
func scatteredSplits(nodes int) string {
	header := fmt.Sprintf("{'descr': '|i1', 'fortran_order': False, 'shape': (1, %d), }", nodes)
	header += strings.Repeat(" ", 128-10-len(header)-1) + "\n"
	splits := make([]byte, nodes)
	for i := range splits {
		splits[i] = byte(i % 3)
	}
	return "\x93NUMPY\x01\x00" + string([]byte{byte(len(header)), 0}) + header + string(splits)
}
