package command

import (
	"encoding/json"
	"os"
	"reflect"
	"strings"
	"testing"

	"github.com/hopfeed/hopfeed/preprop"
)

func TestPropagateOnADeviceMakesTheSameStoreAndSaysWhy(t *testing.T) {
	d := disk(t, generateLine, propagateLine)
	want := tree(t, d, "store")
	for _, c := range []struct {
		flags, name, why string
		code             int
	}{
		{"--device cpu --emulate mem=4MiB", "cpu", "--device asks for it", 0},
		{"--emulate mem=4MiB", "emulated:0", "it is the first of 1 emulated device (emulated gpu 0)", 0},
		{"--device emulated:1 --emulate gpu=2,mem=4MiB,link=1GiB/s", "emulated:1", "--device asks for it", 0},
		{"--device auto --emulate mem=1KiB", "cpu", "emulated:0 has 1 KiB of memory free", 0},
		{"--device emulated:0 --emulate mem=1KiB", "", "emulated:0 has 1 KiB of memory free", exitDoesNotFit},
		{"--device auto", "cpu", "GPU", 0},
		{"--device emulated:2 --emulate gpu=2,mem=4MiB", "",
			"the number is too high: of 2 emulated devices, the first is emulated:0", exitUsage},
		{"--device emulated:0", "", "none was asked for", exitFailed},
		{"--device host:0", "", "no such kind of device", exitUsage},
		{"--device gpu", "", "no such kind of device", exitUsage},
		{"--device cuda:-1", "", "want auto, cpu, or a device", exitUsage},
		{"--device cpu:0", "", "want auto, cpu, or a device", exitUsage},
		{"--device :0", "", "want auto, cpu, or a device", exitUsage},
	} {
		line := propagateLine + " --json --force " + c.flags
		o := hopfeed(t, d, line)
		if o.code != c.code {
			t.Errorf("%s: %+v", c.flags, o)
			continue
		}
		if o.code != 0 {
			if !strings.Contains(o.stderr, c.why) {
				t.Errorf("%s: %s", c.flags, o.stderr)
			}
			continue
		}
		var r preprop.Result
		if err := json.Unmarshal([]byte(o.stdout), &r); err != nil {
			t.Fatal(err)
		}
		if dev := r.Plan.Device; dev == nil || dev.Name != c.name || !strings.Contains(dev.Reason, c.why) ||
			(r.TransferredBytes > 0) != (c.name != "cpu") || (dev.Bytes > 0) != (c.name != "cpu") {
			t.Errorf("%s: %+v, %d bytes to and from it", c.flags, r.Plan.Device, r.TransferredBytes)
		}
		if !reflect.DeepEqual(tree(t, d, "store"), want) {
			t.Errorf("%s: another store", c.flags)
		}
	}
	out := must(t, d, propagateLine+" --force --emulate mem=4MiB")
	for _, text := range []string{"on emulated:0: ", "to it and back"} {
		if !strings.Contains(out.stdout, text) {
			t.Errorf("no %q in %s", text, out.stdout)
		}
	}
	if !strings.Contains(out.stderr, "products on emulated:0: it is the first") {
		t.Errorf("the plan does not say the device: %s", out.stderr)
	}
}

// The result for a typed graph says what computes each matrix.
func TestPropagateOfATypedGraphOnADeviceMakesTheSameStore(t *testing.T) {
	d := typedDisk(t)
	line := "propagate graph -o store --hops 2 --label-hops 2 --json --force "
	must(t, d, line)
	want := tree(t, d, "store")
	for _, c := range []struct{ flags, name, of, why string }{
		{"--device cpu --emulate mem=4MiB", "cpu", "cpu", ""}, {"--device auto", "cpu", "cpu", ""},
		{"--emulate mem=4MiB", "emulated:0", "emulated:0", ""},
		{"--device emulated:1 --emulate gpu=2,mem=4MiB,link=1GiB/s", "emulated:1", "emulated:1", ""},
		{"--device emulated:0 --emulate mem=1KiB", "emulated:0", "cpu", "emulated:0 has 1 KiB of memory free"},
	} {
		var r preprop.Result
		readJSON(t, must(t, d, line+c.flags).stdout, &r)
		if dev := r.Plan.Device; dev == nil || dev.Name != c.name || dev.Reason == "" || len(r.Metapaths) == 0 ||
			(r.TransferredBytes > 0) != (c.of != "cpu") || (dev.Bytes > 0) != (c.of != "cpu") {
			t.Errorf("%s: %+v, %d bytes to and from it", c.flags, r.Plan.Device, r.TransferredBytes)
		}
		for _, m := range r.Metapaths {
			if m.Device != c.of || !strings.Contains(m.DeviceReason, c.why) || (m.DeviceReason == "") != (c.why == "") {
				t.Errorf("%s: %+v", c.flags, m)
			}
		}
		if !reflect.DeepEqual(tree(t, d, "store"), want) {
			t.Errorf("%s: another store", c.flags)
		}
	}
	line = strings.Replace(line, "--json", "", 1)
	if out := must(t, d, line+"--emulate mem=4MiB").stdout; !strings.Contains(out, "on emulated:0: ") {
		t.Errorf("the device is not named: %s", out)
	}
	if out := must(t, d, line+"--device emulated:0 --emulate mem=1KiB").stdout; !strings.Contains(out,
		"on the processor: propagation does not fit: emulated:0") {
		t.Errorf("why the processor computes is not said: %s", out)
	}
	for flags, code := range map[string]int{"--device emulated:0": exitFailed, "--device host:0": exitUsage,
		"--device emulated:2 --emulate gpu=2,mem=4MiB": exitUsage} {
		if o := hopfeed(t, d, line+flags); o.code != code || !strings.Contains(o.stderr, "--device") {
			t.Errorf("%s: status %d: %s", flags, o.code, o.stderr)
		}
	}
}

// The plan of a described propagation says what would compute it, and is the quicker for a GPU.
func TestThePlanOfADescribedPropagationSaysTheDevice(t *testing.T) {
	d := disk(t)
	paper, err := os.ReadFile("../../docs/paper-machine.yaml")
	if err != nil {
		t.Fatal(err)
	}
	write(t, d, "paper.yaml", string(paper))
	var seconds [2]float64
	for i, c := range []struct {
		device, name,
		says string
	}{{"auto", "cuda:0", "it is described, with 44.7 GiB of memory"},
		{"cpu", "cpu", "--device asks for it"}} {
		line := "plan --hardware paper.yaml --dataset papers100M --edges 1600000000 --device " + c.device
		var r struct{ Propagation preprop.Plan }
		if err := json.Unmarshal([]byte(must(t, d, line+" --json").stdout), &r); err != nil {
			t.Fatal(err)
		}
		p := r.Propagation
		if p.Device == nil || p.Device.Name != c.name || p.Device.Reason != c.says || p.Device.Columns%16 != 0 ||
			p.Device.Bytes > 48_000_000_000 {
			t.Errorf("%s: %+v", c.device, p.Device)
		}
		seconds[i] = p.Seconds
		if out := must(t, d, line).stdout; !strings.Contains(out, c.says) {
			t.Errorf("%s: %s", c.device, out)
		}
	}
	if seconds[0] >= seconds[1] {
		t.Errorf("%g s are predicted on a GPU, %g on the processor", seconds[0], seconds[1])
	}
}
