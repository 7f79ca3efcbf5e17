package command

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
	"github.com/hopfeed/hopfeed/tools/session"
)

// autoDevice is --device where the plan chooses.
const autoDevice = "auto"

// worthwhile is how many seconds products must take on the processor for a GPU to be opened unasked, which
// takes about as long.
const worthwhile = 1.0

// onlyProcessor is the reason for the processor where there is nothing else, which need not be said.
const onlyProcessor = "there is no GPU: this program was built without CUDA"

const deviceUsage = "device that propagates: auto, cpu, or one of hopfeed devices, such as cuda:0"

// propagationDevice is preprop.Options.Device for --device; "" is auto.
func (a *app) propagationDevice(ctx context.Context, want string) (func(float64) (*preprop.Device, error), error) {
	kinds := sync.OnceValue(func() []devices.Kind {
		return session.Devices(ctx, a.budget, a.threads, devices.Options{Emulate: a.emulate})
	})
	want = cmp.Or(want, autoDevice)
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
		case kind == autoDevice && a.emulate.GPUs == 0 && !devices.BuiltWithCUDA:
			return onProcessor(onlyProcessor)
		case kind == autoDevice && a.emulate.GPUs == 0 && seconds < worthwhile:
			return onProcessor("products take about %.2g s on it, and to open a GPU takes as long", seconds)
		}
		list := kinds()
		if kind == autoDevice {
			at := slices.IndexFunc(list, func(k devices.Kind) bool { return k.Count > 0 && !k.Info.Unified })
			if at < 0 {
				why := list[slices.IndexFunc(list, func(k devices.Kind) bool { return k.Name == "cuda" })].WhyNone
				return onProcessor("there is no GPU: %s", why)
			}
			d := a.deviceOf(list[at], 0, "it is the first of "+countDevices(list[at]))
			d.Optional = true
			return d, nil
		}
		at := slices.IndexFunc(list, func(k devices.Kind) bool { return k.Name == kind })
		switch {
		case at < 0 || list[at].Info.Unified:
			return nil, usagef("--device %s: there is no such kind of device (see hopfeed devices)", want)
		case list[at].Count == 0:
			return nil, fmt.Errorf("--device %s: there is none: %s (--device cpu computes on the processor)", want,
				list[at].WhyNone)
		case number >= list[at].Count:
			return nil, usagef("--device %s: the number is too high: of %s, the first is %s:0", want,
				countDevices(list[at]), kind)
		}
		return a.deviceOf(list[at], number, "--device asks for it"), nil
	}, nil
}

// parseDevice parses auto, cpu, KIND or KIND:NUMBER.
func parseDevice(text string) (kind string, number int, err error) {
	kind, of, numbered := strings.Cut(text, ":")
	if numbered {
		number, err = strconv.Atoi(of)
	}
	if err != nil || number < 0 || kind == "" || numbered && (kind == autoDevice || kind == preprop.CPU) {
		return "", 0, usagef("--device %q: want auto, cpu, or a device such as cuda:0", text)
	}
	return kind, number, nil
}

func countDevices(k devices.Kind) string { return units.Count(int64(k.Count), k.Name+" device") }

// deviceOf is a device of a kind. Among several GPUs, FreeBytes is the least.
func (a *app) deviceOf(k devices.Kind, number int, reason string) *preprop.Device {
	d := &preprop.Device{
		Name: fmt.Sprintf("%s:%d", k.Name, number), Reason: reason + " (" + k.Info.Name + ")", FreeBytes: k.FreeBytes,
		Open: func() (gds.Device, error) { return k.Device(number, k.Count) },
	}
	if k.Name == "emulated" {
		d.LinkBytesPerSecond = float64(a.emulate.Link)
		// No other device is open beside this one.
		d.Open = func() (gds.Device, error) { return k.Device(number, 1) }
	} else {
		d.FreeBytes = max(1, d.FreeBytes) // of a GPU that is full, 0, which would be no limit
	}
	return d
}

// describedDevice is the device of a machine that --hardware describes, for a plan.
func describedDevice(h *machine.Hardware, want string) func(float64) (*preprop.Device, error) {
	return func(float64) (*preprop.Device, error) {
		if want == preprop.CPU || h.Devices.Count == 0 {
			reason := "the machine is described without devices"
			if want == preprop.CPU {
				reason = "--device asks for it"
			}
			return &preprop.Device{Name: preprop.CPU, Reason: reason}, nil
		}
		name := want
		if want == autoDevice {
			name = "cuda:0"
		}
		return &preprop.Device{
			Name: name, Reason: "it is described, with " + h.Devices.Memory.String() + " of memory",
			FreeBytes: int64(h.Devices.Memory), Optional: want == autoDevice,
			// Random rows are read at about a third of the rate of long runs, as from memory of the host.
			LinkBytesPerSecond: float64(h.Devices.Link), GatherBytesPerSecond: float64(h.Devices.Bandwidth) / 3,
			Open: func() (gds.Device, error) { return nil, errors.New("it is only described") },
		}, nil
	}
}

// deviceLines says what computes the products of a plan, and why.
func deviceLines(p *preprop.Plan) []string {
	d := p.Device
	switch {
	case d == nil, d.Name == preprop.CPU && d.Reason == onlyProcessor:
		return nil
	case d.Name == preprop.CPU:
		return []string{"products on the processor: " + d.Reason}
	}
	stays := func(yes bool) string {
		if yes {
			return "stays on it"
		}
		return "comes in parts"
	}
	columns := "all columns of a panel at once"
	if d.Columns < p.PanelColumns {
		columns = units.Count(int64(d.Columns), "column") + " at a time"
	}
	matrices := "matrices come for each product"
	if d.MatricesOnDevice {
		matrices = "matrices stay on it"
	}
	return []string{
		fmt.Sprintf("products on %s: %s", d.Name, d.Reason),
		fmt.Sprintf("%s, %s, the topology %s: %s of its memory, %s of pinned memory", columns, matrices,
			stays(d.TopologyOnDevice), units.Bytes(d.Bytes), units.Bytes(d.PinnedBytes)),
	}
}
