package placement

import (
	"errors"
	"strings"
	"testing"

	"github.com/hopfeed/hopfeed/gds"
	"github.com/hopfeed/hopfeed/internal/machine"
	"github.com/hopfeed/hopfeed/internal/units"
)

func TestChoose(t *testing.T) {
	host := Facts{Device: gds.Info{Name: "host", Unified: true}, DeviceFree: 1 << 40,
		Budget: machine.Limit{Bytes: 100, By: "--memory"}}
	gpu := Facts{Device: gds.Info{Name: "gpu"}, DeviceFree: 100,
		Budget: machine.Limit{Bytes: 1000, By: "available memory"}}
	four := gpu
	four.Devices = 4
	mapping, slowly := gpu, gpu
	mapping.Rates = Rates{HostGather: 4, Link: 8, MappedGather: 9}
	slowly.Rates = Rates{HostGather: 4, Link: 8, MappedGather: 3}
	auto := Override{Auto, Auto}
	for _, c := range []struct {
		name     string
		facts    Facts
		needs    Needs
		override Override
		want     string // "placement shuffle"
		reason   string // in the reasons, or the error
		err      error
	}{
		{"what fits the device goes there", gpu, Needs{Input: 90, Work: 10}, auto, "device rr", "fits its memory", nil},
		{"what does not fit the device goes to the host", gpu, Needs{Input: 91, Work: 10}, auto, "host rr",
			"not device", nil},
		{"what fits neither is read from storage, by chunk", gpu, Needs{Input: 1001, Work: 10}, auto, "storage chunk",
			"not host", nil},
		{"a device in host memory is held to the budget", host, Needs{Input: 91, Work: 10}, auto, "storage chunk",
			"by --memory", nil},
		{"of two limits that are the same, what set the budget is named",
			Facts{Device: host.Device, DeviceFree: 100, Budget: machine.Limit{Bytes: 100,
				By: "--memory"}}, Needs{Input: 101}, Override{Device, Auto}, "", "by --memory", machine.ErrDoesNotFit},
		{"a device in host memory holds the input once", host, Needs{Input: 90, Work: 10}, auto, "device rr",
			"held once", nil},
		{"storage is taken when asked for", host, Needs{Input: 1}, Override{Storage, Auto}, "storage chunk",
			"asked for", nil},
		{"chunks are shuffled in memory when asked for", host, Needs{Input: 1}, Override{Auto, CR}, "device chunk",
			"asked for", nil},
		{"what is evaluated is not shuffled", host, Needs{Input: 1}, Override{Auto, ""}, "device ", "fits", nil},
		{"what is read once is read from storage", gpu, Needs{Input: 1, Once: true}, Override{Auto, ""}, "storage ",
			"read once", nil},
		{"an input that is read once goes to the device if no chunks fit", gpu,
			Needs{Input: 1, Chunks: 2000, Once: true}, Override{Auto, ""}, "device ", "not storage", nil},
		{"a device too small for a demand is an error", gpu, Needs{Input: 200}, Override{Device, Auto}, "", "200 B",
			machine.ErrDoesNotFit},
		{"a host too small for a demand is an error", gpu, Needs{Input: 2000}, Override{Host, Auto}, "",
			"memory budget", machine.ErrDoesNotFit},
		{"rows shuffled one by one must fit a memory", gpu, Needs{Input: 2000}, Override{Auto, RR}, "", "single rows",
			machine.ErrDoesNotFit},
		{"rows cannot be shuffled one by one in storage", host, Needs{Input: 1}, Override{Storage, RR}, "",
			"whole chunks", ErrContradiction},
		{"scattered rows cannot be read from storage", host, Needs{Input: 1, ScatteredRows: true},
			Override{Storage, Auto}, "", "that split", ErrContradiction},
		{"scattered rows cannot be shuffled by chunk", host, Needs{Input: 1, ScatteredRows: true}, Override{Auto, CR},
			"", "that split", ErrContradiction},
		{"chunks cannot be cut in storage", host, Needs{Input: 1, CutChunks: true}, Override{Storage, CR}, "",
			"chunk rows", ErrContradiction},
		{"chunks that are cut must fit a memory", gpu, Needs{Input: 2000, CutChunks: true}, Override{Auto, CR}, "",
			"a multiple of the store's", machine.ErrDoesNotFit},
		{"chunks are cut in memory", gpu, Needs{Input: 1, CutChunks: true}, Override{Auto, CR}, "device chunk",
			"asked for", nil},
		{"scattered rows that fit no memory fit nowhere", gpu, Needs{Input: 2000, ScatteredRows: true}, auto, "",
			"scattered", machine.ErrDoesNotFit},
		{"batches must fit the device wherever the input lives", gpu, Needs{Input: 1, Work: 101}, Override{Host, Auto},
			"", "batches and model", machine.ErrDoesNotFit},
		{"chunks being read must fit beside batches and model", host, Needs{Input: 200, Work: 60, Chunks: 41}, auto, "",
			"chunks being read", machine.ErrDoesNotFit},
		{"chunks being read for a device must fit the host", gpu, Needs{Input: 2000, Work: 60, Chunks: 1001}, auto, "",
			"chunks being read", machine.ErrDoesNotFit},
		{"batches gathered for a device must fit beside the input", gpu, Needs{Input: 900, Work: 60, Staging: 101},
			auto, "storage chunk", "batches that are gathered (101 B)", nil},
		{"batches are gathered where a device in host memory has them", host, Needs{Input: 90, Work: 10, Staging: 100},
			Override{Host, Auto}, "host rr", "asked for", nil},
		{"chunks are no matter where the input is in memory", host, Needs{Input: 90, Work: 10, Chunks: 100}, auto,
			"device rr", "fits", nil},
		{"shares of batches leave room for the input", four, Needs{Input: 90, Work: 40, ShareWork: 10}, auto,
			"device rr", "each of 4 devices holds the whole input", nil},
		{"what does not fit one device beside them is spread", four,
			Needs{Input: 360, Work: 40, ShareWork: 10, BatchRows: 100}, auto, "device rr",
			"holds a part of the input and computes on its rows of a batch; 6.9 % of", nil},
		{"next to no rows move where they stay together", four, Needs{Input: 360, Work: 40, ShareWork: 10,
			BatchRows: 100}, Override{Auto, CR}, "device chunk", "; 0 % of", nil},
		{"what does not fit all devices is in one host memory", four, Needs{Input: 361, Work: 40, ShareWork: 10}, auto,
			"host rr", "the share of the input (91 B)", nil},
		{"whole batches must fit the one device that storage feeds", four, Needs{Input: 2000, Work: 101, ShareWork: 26},
			auto, "", "not storage: no room for the batches and model (101 B)", machine.ErrDoesNotFit},
		{"shares of batches must fit wherever else the input lives", four, Needs{Input: 1, Work: 404, ShareWork: 101},
			Override{Host, Auto}, "", "batches and model (101 B)", machine.ErrDoesNotFit},
		{"rows are gathered by the device where that is faster", mapping,
			Needs{Input: 91, Work: 10, TrainRows: 10, RowBytes: 10,
				Staging: 100}, auto, "host rr", "the device gathers rows: it does so from host memory by itself 9 B/s, the " +
				"host 4 B/s, and the link carries 8 B/s", nil},
		{"rows are gathered by the host where that is faster", slowly,
			Needs{Input: 91, Work: 10, TrainRows: 10, RowBytes: 10}, auto, "host rr",
			"the host gathers rows: the device would do so from host memory by itself 3 B/s", nil},
		{"an unknown placement is an error", host, Needs{Input: 1}, Override{"disk", Auto}, "", `placement "disk"`,
			ErrContradiction},
		{"an unknown shuffle is an error", host, Needs{Input: 1}, Override{Auto, "rows"}, "", `shuffle "rows"`,
			ErrContradiction},
		{"an unknown shuffle of a placement asked for is an error", host, Needs{Input: 1}, Override{Device, "rows"}, "",
			`shuffle "rows"`, ErrContradiction},
		{"batches that fit nowhere do not fit storage either", host, Needs{Input: 1, Work: 101}, auto, "",
			"batches and model", machine.ErrDoesNotFit},
	} {
		t.Run(c.name, func(t *testing.T) {
			d, err := Choose(c.facts, c.needs, c.override)
			if !errors.Is(err, c.err) {
				t.Fatalf("error %v, want %v", err, c.err)
			}
			said := strings.Join(d.Reasons, "; ")
			if err != nil {
				said = err.Error()
			} else if got := d.Placement + " " + d.Shuffle; got != c.want {
				t.Errorf("chose %s, want %s", got, c.want)
			}
			if !strings.Contains(said, c.reason) {
				t.Errorf("%q does not say %q", said, c.reason)
			}
		})
	}
}

// Chunks that a device reads by itself take its memory, if there is enough.
func TestChunksThatADeviceReadsByItselfCountThere(t *testing.T) {
	for _, c := range []struct {
		direct bool
		free   int64
		want   units.Bytes // of the device, for storage
	}{{true, 50, 50}, {true, 49, 10}, {false, 50, 10}} {
		f := Facts{Device: gds.Info{Name: "gpu", DirectStorage: c.direct}, DeviceFree: units.Bytes(c.free), Devices: 1,
			Budget: machine.Limit{Bytes: 1000}}
		n := Needs{Input: 2000, Work: 10, Chunks: 40}
		d, err := Choose(f, n, Override{Storage, Auto})
		if err != nil {
			t.Fatal(err)
		}
		for _, a := range d.Alternatives {
			if a.Placement == Storage && (a.DeviceBytes != c.want ||
				a.HostBytes != 40) || n.ChunksOnDevice(f) != (c.want == 50) {
				t.Errorf("%+v: %+v", c, a)
			}
		}
	}
}
