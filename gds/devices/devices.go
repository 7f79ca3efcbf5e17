// Package devices lists the devices that a process can compute on: GPUs, the host, and what it
// emulates. Listing them opens nothing.
//
// A kind of device is a file with a function that describes its devices, and a line in kinds. One
// that needs a build tag has a second file, for builds without it, whose function says so.
package devices

import (
	"cmp"
	"errors"
	"fmt"
	"slices"

	"github.com/hopfeed/hopfeed/gds"
	"github.com/hopfeed/hopfeed/gds/host"
	"github.com/hopfeed/hopfeed/gds/paced"
	"github.com/hopfeed/hopfeed/internal/parallel"
)

// Options say what devices may take of this machine.
type Options struct {
	Emulate   host.Emulation  // the zero value emulates none
	HostBytes int64           // of memory, for the host; 0: no limit
	Threads   int             // of the processor, shared by the devices that compute on it; 0: parallel.Threads
	TF32      bool            // lets GPUs round factors of products to 10 bits of fraction
	Stop      <-chan struct{} // closed when waiting for an emulated link is to end; nil: never
}

// Kind is a number of devices that are all alike.
type Kind struct {
	Name    string // "cuda", "host", "emulated"
	Count   int
	WhyNone string   // why Count is 0
	Info    gds.Info // of the first
	// FreeBytes is what nobody uses of Info.MemoryBytes.
	FreeBytes int64

	// Device opens device i of n that are used together.
	Device func(i, n int) (gds.Device, error)
}

// kinds lists all kinds of devices: first emulated ones, which a user asks for, then the faster ones.
var kinds = []func(Options) Kind{emulated, nvidia, processor}

// List lists all kinds, also kinds without devices here. The host is always there.
func List(o Options) []Kind {
	list := make([]Kind, len(kinds))
	for i, describe := range kinds {
		list[i] = describe(o)
	}
	return list
}

// Default is the first kind that has devices.
func Default(o Options) Kind {
	list := List(o)
	return list[slices.IndexFunc(list, func(k Kind) bool { return k.Count > 0 })]
}

// Open opens the first n devices, all or none. The caller closes them.
func (k Kind) Open(n int) (opened []gds.Device, err error) {
	switch {
	case k.Count == 0:
		return nil, fmt.Errorf("there is no %s device: %s", k.Name, k.WhyNone)
	case n < 1 || n > k.Count:
		return nil, fmt.Errorf("%d %s devices are to be opened, and there are %d", n, k.Name, k.Count)
	}
	for i := range n {
		d, err := k.Device(i, n)
		if err != nil {
			return nil, errors.Join(fmt.Errorf("%s device %d: %w", k.Name, i, err), Close(opened))
		}
		opened = append(opened, d)
	}
	return opened, nil
}

// Close closes devices.
func Close(opened []gds.Device) error {
	var errs []error
	for _, d := range opened {
		errs = append(errs, d.Close())
	}
	return errors.Join(errs...)
}

// processor is the host.
func processor(o Options) Kind {
	return onHost("host", 1, func(int, int) host.Options {
		return host.Options{Name: "host", MemoryBytes: o.HostBytes, Threads: o.Threads}
	})
}

// emulated are devices that the host emulates.
func emulated(o Options) Kind {
	k := onHost("emulated", o.Emulate.GPUs, func(i, n int) host.Options {
		options := o.Emulate.Device(i, max(1, cmp.Or(o.Threads, parallel.Threads())/n))
		options.Stop = o.Stop
		return options
	})
	open := k.Device
	k.Device = func(i, n int) (gds.Device, error) {
		d, err := open(i, n)
		if err != nil {
			return nil, err
		}
		return paced.New(d, o.Emulate.Stages), nil
	}
	k.WhyNone = "none was asked for"
	return k
}

// onHost is count devices of gds/host; options(i, n) are the options of device i of n.
func onHost(name string, count int, options func(i, n int) host.Options) Kind {
	first := options(0, 1)
	return Kind{
		Name: name, Count: count,
		Info: first.Info(), FreeBytes: first.MemoryBytes,
		Device: func(i, n int) (gds.Device, error) { return host.New(options(i, n)) },
	}
}
