package session

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/hopfeed/hopfeed/gds"
	"github.com/hopfeed/hopfeed/gds/devices"
	"github.com/hopfeed/hopfeed/internal/machine"
	"github.com/hopfeed/hopfeed/internal/units"
	"github.com/hopfeed/hopfeed/preprop"
	"github.com/hopfeed/hopfeed/preprop/plan"
)

// AutoDevice is --device where the plan chooses.
const AutoDevice = "auto"

// worthwhile is how many seconds products must take on the processor for a GPU to be opened unasked, which
// takes about as long.
const worthwhile = 1.0

// PropagationDevice is preprop.Options.Device for --device want ("": auto), on this machine with a budget, threads and
// devices as in ThisMachine.
func PropagationDevice(ctx context.Context, budget machine.Limit, threads int, o devices.Options, want string) (
	func(float64) (*preprop.Device, error), error) {
	kinds := sync.OnceValue(func() []devices.Kind { return Devices(ctx, budget, threads, o) })
	want = cmp.Or(want, AutoDevice)
	kind, number, err := parseDevice(want)
	if err != nil {
		return nil, err
	}
	onProcessor := func(format string, args ...any) (*preprop.Device, error) {
		return &preprop.Device{Name: preprop.CPU, Reason: fmt.Sprintf(format, args...)}, nil
	}
	return func(seconds float64) (*preprop.Device, error) {
		switch {
		case kind == preprop.CPU:
			return onProcessor("--device asks for it")
		case kind == AutoDevice && o.Emulate.GPUs == 0 && !devices.BuiltWithCUDA:
			return onProcessor(plan.OnlyProcessor)
		case kind == AutoDevice && o.Emulate.GPUs == 0 && seconds < worthwhile:
			return onProcessor("products take about %.2g s on it, and to open a GPU takes as long", seconds)
		}
		list := kinds()
		if kind == AutoDevice {
			at := slices.IndexFunc(list, func(k devices.Kind) bool { return k.Count > 0 && !k.Info.Unified })
			if at < 0 {
				why := list[slices.IndexFunc(list, func(k devices.Kind) bool { return k.Name == "cuda" })].WhyNone
				return onProcessor("there is no GPU: %s", why)
			}
			d := deviceOf(list[at], 0, o, "it is the first of "+countDevices(list[at]))
			d.Optional = true
			return d, nil
		}
		at := slices.IndexFunc(list, func(k devices.Kind) bool { return k.Name == kind })
		switch {
		case at < 0 || list[at].Info.Unified:
			return nil, Refuse("--device %s: there is no such kind of device (see hopfeed devices)", want)
		case list[at].Count == 0:
			return nil, fmt.Errorf("--device %s: there is none: %s (--device cpu computes on the processor)", want,
				list[at].WhyNone)
		case number >= list[at].Count:
			return nil, Refuse("--device %s: the number is too high: of %s, the first is %s:0", want,
				countDevices(list[at]), kind)
		}
		return deviceOf(list[at], number, o, "--device asks for it"), nil
	}, nil
}

// parseDevice parses auto, cpu, KIND or KIND:NUMBER.
func parseDevice(text string) (kind string, number int, err error) {
	kind, of, numbered := strings.Cut(text, ":")
	if numbered {
		number, err = strconv.Atoi(of)
	}
	if err != nil || number < 0 || kind == "" || numbered && (kind == AutoDevice || kind == preprop.CPU) {
		return "", 0, Refuse("--device %q: want auto, cpu, or a device such as cuda:0", text)
	}
	return kind, number, nil
}

func countDevices(k devices.Kind) string { return units.Count(int64(k.Count), k.Name+" device") }

// deviceOf is a device of a kind. Among several GPUs, FreeBytes is the least.
func deviceOf(k devices.Kind, number int, o devices.Options, reason string) *preprop.Device {
	d := &preprop.Device{
		Name: fmt.Sprintf("%s:%d", k.Name, number), Reason: reason + " (" + k.Info.Name + ")", FreeBytes: k.FreeBytes,
		Open: func() (gds.Device, error) { return k.Device(number, k.Count) },
	}
	if k.Name == "emulated" {
		d.LinkBytesPerSecond = float64(o.Emulate.Link)
		// No other device is open beside this one.
		d.Open = func() (gds.Device, error) { return k.Device(number, 1) }
	} else {
		d.FreeBytes = max(1, d.FreeBytes) // of a GPU that is full, 0, which would be no limit
	}
	return d
}

// DescribedDevice is the device of a machine that --hardware describes, for a plan.
func DescribedDevice(h *machine.Hardware, want string) func(float64) (*preprop.Device, error) {
	return func(float64) (*preprop.Device, error) {
		if want == preprop.CPU || h.Devices.Count == 0 {
			reason := "the machine is described without devices"
			if want == preprop.CPU {
				reason = "--device asks for it"
			}
			return &preprop.Device{Name: preprop.CPU, Reason: reason}, nil
		}
		name := want
		if want == AutoDevice {
			name = "cuda:0"
		}
		return &preprop.Device{
			Name: name, Reason: "it is described, with " + h.Devices.Memory.String() + " of memory",
			FreeBytes: int64(h.Devices.Memory), Optional: want == AutoDevice,
			// Random rows are read at about a third of the rate of long runs, as from memory of the host.
			LinkBytesPerSecond: float64(h.Devices.Link), GatherBytesPerSecond: float64(h.Devices.Bandwidth) / 3,
			Open: func() (gds.Device, error) { return nil, errors.New("it is only described") },
		}, nil
	}
}
