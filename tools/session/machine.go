package session

import (
	"context"
	"fmt"
	"math"

	"github.com/hopfeed/hopfeed/gds/devices"
	"github.com/hopfeed/hopfeed/internal/machine"
	"github.com/hopfeed/hopfeed/internal/need"
	"github.com/hopfeed/hopfeed/internal/units"
	"github.com/hopfeed/hopfeed/placement"
)

// Machine holds the threads, memory and devices that sessions may use. It is made once for a run, so that all of it
// sees the same budget.
type Machine struct {
	Devices devices.Kind  // a session opens as many as its placement uses
	Budget  machine.Limit // of host memory, for everything: program, input, batches, model
	Threads int

	within func(machine.Limit) Machine // this machine with another budget; nil: its devices do not depend on it
}

// Less is the machine with less host memory to use, on its devices too where they use it.
func (m Machine) Less(bytes units.Bytes) Machine {
	if m.Budget.Bytes -= bytes; m.within != nil {
		return m.within(m.Budget)
	}
	return m
}

// ThisMachine is this machine within a budget (the zero Limit: machine.Budget) and a number of
// threads (0: all), with devices as wanted. It sets the options of devices that follow from budget and
// threads. The end of ctx ends the waiting for emulated links.
func ThisMachine(ctx context.Context, budget machine.Limit, threads int, want devices.Options) Machine {
	m, options := machineWithin(ctx, budget, threads, want)
	m.Devices = devices.Default(options)
	m.within = func(less machine.Limit) Machine { return ThisMachine(ctx, less, threads, want) }
	return m
}

// Devices lists all kinds of devices. ThisMachine has the first kind that this machine has.
func Devices(ctx context.Context, budget machine.Limit, threads int, want devices.Options) []devices.Kind {
	_, options := machineWithin(ctx, budget, threads, want)
	return devices.List(options)
}

func machineWithin(ctx context.Context, budget machine.Limit, threads int, want devices.Options) (Machine,
	devices.Options) {
	if budget == (machine.Limit{}) {
		budget = machine.Budget()
	}
	if threads == 0 {
		threads = machine.Threads()
	}
	want.HostBytes, want.Threads, want.Stop = int64(max(1, budget.Bytes-machine.ProgramBytes)), threads, ctx.Done()
	return Machine{Budget: budget, Threads: threads}, want
}

// orThis is the machine, with budget, threads and devices of this one where none are given.
func (m Machine) orThis(ctx context.Context) Machine {
	this := ThisMachine(ctx, m.Budget, m.Threads, devices.Options{})
	if m.Devices.Name == "" {
		return this
	}
	m.Budget, m.Threads = this.Budget, this.Threads
	return m
}

// Program is the memory of the process before it holds any data.
var Program = need.OnHeap("program", int64(machine.ProgramBytes))

// Fits is machine.ErrDoesNotFit unless there is room for what, which takes memory. A device that is the host's
// processor has its memory from the budget.
func (m Machine) Fits(what string, memory need.Memory) error {
	host := memory.HostBytes - Program.Bytes
	switch d := m.Devices; {
	case d.Info.Unified:
		host += memory.DeviceBytes
	case d.FreeBytes > 0 && memory.DeviceBytes > d.FreeBytes:
		return fmt.Errorf("%w: %s takes %s of device memory, and %s are free", machine.ErrDoesNotFit, what,
			units.Bytes(memory.DeviceBytes), units.Bytes(d.FreeBytes))
	}
	return m.Budget.Fits(what, host)
}

// Facts are the inputs of the choice of a placement, without rates. No device is opened for them.
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
