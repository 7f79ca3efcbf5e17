package devices

import (
	"errors"
	"strings"
	"testing"

	"github.com/hopfeed/hopfeed/gds"
	"github.com/hopfeed/hopfeed/gds/host"
)

var cards = host.Emulation{GPUs: 3, Memory: 1 << 20, Link: 1 << 30}

// What is said of devices that are not open is what they say when they are.
func TestTheListKnowsWhatOpenDevicesSay(t *testing.T) {
	names := map[string]bool{}
	for _, k := range List(Options{Emulate: cards, HostBytes: 1 << 30, Threads: 2}) {
		if names[k.Name] {
			t.Errorf("%q is listed twice", k.Name)
		}
		names[k.Name] = true
		if k.Count == 0 {
			if k.WhyNone == "" {
				t.Errorf("nothing is said of why there is no %s device", k.Name)
			}
			continue
		}
		opened, err := k.Open(k.Count)
		if err != nil {
			t.Errorf("%s: %v", k.Name, err)
			continue
		}
		// Other programs may use a GPU too.
		if info := opened[0].Info(); info != k.Info || k.Name != "cuda" && info.MemoryBytes != k.FreeBytes ||
			k.FreeBytes > info.MemoryBytes {
			t.Errorf("%s: %+v, and listed as %+v with %d bytes free", k.Name, info, k.Info, k.FreeBytes)
		}
		for i, d := range opened {
			info := d.Info()
			if info.Name = k.Info.Name; info != k.Info {
				t.Errorf("%s device %d is not like the first: %+v, %+v", k.Name, i, info, k.Info)
			}
		}
		if err := Close(opened); err != nil {
			t.Errorf("%s: %v", k.Name, err)
		}
	}
	if !names["host"] || !names["emulated"] || !names["cuda"] {
		t.Errorf("%v", names)
	}
}

func TestEmulatedDevicesComeBeforeTheHost(t *testing.T) {
	if k := Default(Options{Emulate: cards}); k.Name != "emulated" || k.Count != 3 || k.Info.Unified ||
		k.Info.MemoryBytes != 1<<20 {
		t.Errorf("%+v", k)
	}
	if k := Default(Options{}); k.Name == "emulated" || k.Count < 1 {
		t.Errorf("%+v", k)
	}
}

func TestOpeningMoreDevicesThanThereAreIsAnError(t *testing.T) {
	for _, c := range []struct {
		kind Kind
		n    int
		says string
	}{
		{processor(Options{}), 2, "2 host devices are to be opened, and there are 1"},
		{Default(Options{Emulate: cards}), 4, "there are 3"},
		{processor(Options{}), 0, "0 host devices"},
		{List(Options{})[0], 1, "there is no emulated device: none was asked for"},
	} {
		if opened, err := c.kind.Open(c.n); err == nil || opened != nil || !strings.Contains(err.Error(), c.says) {
			t.Errorf("%d of %s: %v, %v", c.n, c.kind.Name, opened, err)
		}
	}
}

// counted is a device that counts how often it is closed.
type counted struct {
	gds.Device
	closed *int
}

func (c counted) Close() error { *c.closed++; return c.Device.Close() }

func TestWhenOneDeviceDoesNotOpenTheOthersAreClosed(t *testing.T) {
	closed, bad := 0, errors.New("lost")
	k := Default(Options{Emulate: cards})
	open := k.Device
	k.Device = func(i, n int) (gds.Device, error) {
		if i == 2 {
			return nil, bad
		}
		d, err := open(i, n)
		return counted{d, &closed}, err
	}
	opened, err := k.Open(3)
	if !errors.Is(err, bad) || !strings.Contains(err.Error(), "emulated device 2") || opened != nil || closed != 2 {
		t.Errorf("%v, %v, %d closed", opened, err, closed)
	}
}
