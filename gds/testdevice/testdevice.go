// Package testdevice opens the device for tests of packages above gds: the host's, and in
// builds with the tag cuda a GPU, so that one suite of tests is for both.
package testdevice

import (
	"sync"
	"testing"

	"github.com/hopfeed/hopfeed/gds"
	"github.com/hopfeed/hopfeed/gds/host"
)

// Open opens a device that the test must leave without a buffer or a stream. It is a GPU in builds
// with the tag cuda, unless o limits memory or links, which the host alone emulates.
func Open(t testing.TB, o host.Options) gds.Device {
	t.Helper()
	return leftClean(t, func() (gds.Device, error) { return New(o) })
}

// New opens such a device, which the test closes itself.
func New(o host.Options) (gds.Device, error) {
	if !GPU || o.MemoryBytes > 0 || o.LinkBytesPerSecond > 0 {
		return host.New(o)
	}
	return openGPU()
}

// Host opens a device of the host that the test must leave without a buffer or a stream.
func Host(t testing.TB, o host.Options) gds.Device {
	t.Helper()
	return leftClean(t, func() (gds.Device, error) { return host.New(o) })
}

// Another opens another device of the kind of d, for memory of the test's own. A GPU stays open.
func Another(t testing.TB, d gds.Device) gds.Device {
	t.Helper()
	if _, ok := d.(*host.Device); ok {
		return Host(t, host.Options{})
	}
	another, err := anotherGPU()
	if err != nil {
		t.Fatal(err)
	}
	return another
}

// anotherGPU is opened once: to load its kernels takes long.
var anotherGPU = sync.OnceValues(openGPU)

func leftClean(t testing.TB, open func() (gds.Device, error)) gds.Device {
	t.Helper()
	d, err := open()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if u := d.Usage(); u.InUse != 0 || u.PinnedInUse != 0 {
			t.Errorf("memory left on the device: %+v", u)
		}
		if err := d.Close(); err != nil {
			t.Errorf("closing the device: %v", err)
		}
	})
	return d
}
