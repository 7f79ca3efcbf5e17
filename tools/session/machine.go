package session

import (
	"context"
	"math"

	"github.com/hopfeed/hopfeed/gds/devices"
	"github.com/hopfeed/hopfeed/gds/host"
	"github.com/hopfeed/hopfeed/internal/machine"
	"github.com/hopfeed/hopfeed/internal/units"
	"github.com/hopfeed/hopfeed/placement"
)

// Machine is what sessions may use of a machine. It is made once for a run, so that all of it sees
// the same budget.
type Machine struct {
	Devices devices.Kind  // of which a session opens as many as its placement uses
	Budget  machine.Limit // of host memory, for everything: program, input, batches, model
	Threads int
}

// ThisMachine is this machine within a budget (the zero Limit: machine.Budget) and a number of
// threads (0: all), with the devices that are emulated, if any. The end of ctx ends the waiting for
// emulated links.
func ThisMachine(ctx context.Context, budget machine.Limit, threads int, emulate host.Emulation) Machine {
	m, options := machineWithin(ctx, budget, threads, emulate)
	m.Devices = devices.Default(options)
	return m
}

// Devices lists all kinds of devices of this machine, of which ThisMachine has the first that there is.
func Devices(ctx context.Context, budget machine.Limit, threads int, emulate host.Emulation) []devices.Kind {
	_, options := machineWithin(ctx, budget, threads, emulate)
	return devices.List(options)
}

func machineWithin(ctx context.Context, budget machine.Limit, threads int, emulate host.Emulation) (Machine, devices.Options) {
	if budget == (machine.Limit{}) {
		budget = machine.Budget()
	}
	if threads == 0 {
		threads = machine.Threads()
	}
	return Machine{Budget: budget, Threads: threads}, devices.Options{
		Emulate: emulate, HostBytes: int64(max(1, budget.Bytes-machine.ProgramBytes)), Threads: threads, Stop: ctx.Done(),
	}
}

// orThis is the machine, with budget, threads and devices of this one where none are given.
func (m Machine) orThis(ctx context.Context) Machine {
	this := ThisMachine(ctx, m.Budget, m.Threads, host.Emulation{})
	if m.Devices.Name == "" {
		return this
	}
	m.Budget, m.Threads = this.Budget, this.Threads
	return m
}

// Facts are what placements are chosen by, without rates. No device is opened for them.
func (m Machine) Facts() placement.Facts {
	f := placement.Facts{
		Device: m.Devices.Info, Devices: m.Devices.Count, DeviceFree: units.Bytes(m.Devices.FreeBytes),
		Budget: m.Budget, Pinnable: machine.Lockable(),
	}
	if f.Device.MemoryBytes == 0 {
		f.DeviceFree = math.MaxInt64 // it has no limit of its own
	}
	return f
}
