package placement

import (
	"math"
	"math/rand/v2"
	"testing"

	"github.com/hopfeed/hopfeed/gds"
	"github.com/hopfeed/hopfeed/internal/machine"
)

// alternative is one of those that Choose finds.
func alternative(t *testing.T, f Facts, n Needs, placement, shuffle string) Alternative {
	t.Helper()
	d, err := Choose(f, n, Override{Auto, Auto})
	if err != nil {
		t.Fatal(err)
	}
	for _, a := range d.Alternatives {
		if a.Placement == placement && a.Shuffle == shuffle {
			return a
		}
	}
	t.Fatalf("no %s %s in %+v", placement, shuffle, d.Alternatives)
	return Alternative{}
}

// Epochs worked out by hand: of 1000 rows of 100 bytes to train on in 10 batches and
// 500 to validate on in 5. The busiest part takes its time, and the first batch passes
// through the others before.
func TestEpochsTakeWhatTheirBusiestPartTakes(t *testing.T) {
	rates := Rates{Storage: 1000, Check: 100_000, HostCopy: 50_000, HostGather: 5000, Link: 10_000, DeviceCopy: 200_000,
		DeviceGather: 100_000, Convert: 400_000}
	card := Facts{Device: gds.Info{Name: "card"}, DeviceFree: 1 << 40, Budget: machine.Limit{Bytes: 1 << 40},
		Rates: rates}
	host := Facts{Device: gds.Info{Name: "host", Unified: true}, DeviceFree: 1 << 40,
		Budget: machine.Limit{Bytes: 1 << 40}, Rates: rates}
	n := Needs{Input: 150_000, TrainRows: 1000, ValidRows: 500, RowBytes: 100, BatchRows: 100, ChunkRows: 30,
		Compute: Compute{TrainSeconds: 0.015, ValidSeconds: 0.005}}
	half := n
	half.Convert = true
	aligned := n
	aligned.ChunkRows = 200
	scattered := n
	scattered.ScatteredRows = true
	ordered := n
	ordered.OrderSeconds = 0.004
	mapping, slowly := card, card
	mapping.Rates.MappedGather, slowly.Rates.MappedGather = 50_000, 10_000
	for _, c := range []struct {
		name      string
		facts     Facts
		needs     Needs
		placement string
		shuffle   string
		epoch     float64
		busiest   string
	}{
		{"gathered on the card, by the card", card, n, Device, RR, (15 + 1) + 2.5, "device"},
		{"chunks copied on the card", card, n, Device, CR, (15 + 0.5) + 2.5, "device"},
		{"chunks of whole batches are views", card, aligned, Device, CR, 15 + 2.5, "device"},
		{"gathered by the host, beside the link and the card", card, n, Host, RR, 20 + (15+10)/10. + 5 + (1+2.5)/5.,
			"host"},
		{"rows are found by the host, beside the card", card, ordered, Device, RR, (15 + 1) + 4/10. + 2.5, "device"},
		{"chunks cost nothing to find", card, ordered, Device, CR, (15 + 0.5) + 2.5, "device"},
		{"rows are found by the processor that computes", host, ordered, Device, RR, 15 + 1 + 4 + 2.5, "device"},
		{"chunks over the link", card, n, Host, CR, 15 + (10+2)/10. + 5 + (1+2.5)/5., "device"},
		{"read beside checks, link and card", card, n, Storage, CR, 100 + (1+10+15)/10. + 50 + (0.5+5+2.5)/5.,
			"storage"},
		{"scattered rows are gathered for validation too", card, scattered, Host, RR,
			20 + (15+10)/10. + 10 + (5+2.5)/5., "host"},
		{"gathered by the card over the link, while it computes nothing", mapping, n, Host, RR,
			15 + 2 + 2/10. + 5 + (1+2.5)/5., "device"},
		{"by the card takes longer than by the host beside it", slowly, n, Host, RR, 20 + (15+10)/10. + 5 + (1+2.5)/5.,
			"host"},
		{"chunks are copied, whoever gathers faster", mapping, n, Host, CR, 15 + (10+2)/10. + 5 + (1+2.5)/5., "device"},
		{"scattered rows are gathered by the card for validation too", mapping, scattered, Host, RR,
			17 + 2/10. + 2.5 + 1 + 1/5., "device"},
		{"the processor gathers and computes in turn", host, n, Host, RR, 20 + 15 + 1 + 2.5, "device"},
		{"the processor copies, checks and computes while storage is read", host, n, Storage, CR,
			100 + (1+2+15)/10. + 50 + (0.5+1+2.5)/5., "storage"},
		{"what is converted is not copied", host, half, Storage, CR, 100 + (1+0.25+15)/10. + 50 + (0.5+0.125+2.5)/5.,
			"storage"},
		{"what is gathered is converted after", host, half, Device, RR, 15 + 1 + 0.25 + 2.5 + 0.125, "device"},
	} {
		t.Run(c.name, func(t *testing.T) {
			a := alternative(t, c.facts, c.needs, c.placement, c.shuffle)
			if math.Abs(a.EpochSeconds/c.epoch-1) > 1e-9 || a.Busiest != c.busiest {
				t.Errorf("%v s, limited by %s; want %v s, by %s", a.EpochSeconds, a.Busiest, c.epoch, c.busiest)
			}
			if a.ComputeSeconds != 17.5 || a.LoadSeconds > a.EpochSeconds {
				t.Errorf("computing takes %v s and loading %v s of %v s", a.ComputeSeconds, a.LoadSeconds,
					a.EpochSeconds)
			}
		})
	}
}

// Devices share batches, but not the memory that they are fed from, nor storage.
func TestDevicesShareWhatTheyDoNotWaitFor(t *testing.T) {
	rates := Rates{Storage: 1000, HostCopy: 50_000, HostGather: 5000, Link: 10_000}
	n := Needs{Input: 100_000, TrainRows: 1000, RowBytes: 100, BatchRows: 1000, ChunkRows: 1000,
		Compute: Compute{TrainSeconds: 0.04}}
	f := Facts{Device: gds.Info{Name: "card"}, Devices: 4, DeviceFree: 30_000, Budget: machine.Limit{Bytes: 1 << 40},
		Rates: rates}
	for _, c := range []struct {
		placement, shuffle string
		devices            int
		deviceBytes        int64
		epoch              float64 // of one batch: all one after another
	}{
		{Device, RR, 4, 25_000, 10},
		{Host, RR, 4, 0, 20 + 2.5 + 10},
		{Host, CR, 4, 0, 2 + 2.5 + 10},
		{Storage, CR, 1, 0, 100 + 10 + 40},
	} {
		a := alternative(t, f, n, c.placement, c.shuffle)
		if math.Abs(a.EpochSeconds/c.epoch-1) > 1e-9 || a.Devices != c.devices ||
			int64(a.DeviceBytes) != c.deviceBytes {
			t.Errorf("%s %s: %v s on %d devices of %s; want %v s on %d of %d", c.placement, c.shuffle, a.EpochSeconds,
				a.Devices, a.DeviceBytes, c.epoch, c.devices, c.deviceBytes)
		}
	}
}

// The rows of a batch lie on devices at random; those beyond equal shares move.
func TestRemoteRowsAreTheSurplusOverEqualShares(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 1))
	const trials = 2000
	for _, devices := range []int{1, 2, 4, 8} {
		for _, batch := range []int{512, 8000} {
			moved := 0.0
			for range trials {
				on := make([]int, devices)
				for range batch {
					on[r.IntN(devices)]++
				}
				for _, rows := range on {
					moved += max(0, float64(rows)-float64(batch)/float64(devices)) / float64(batch) / trials
				}
			}
			if want := RemoteRows(devices, batch); math.Abs(moved-want) > 0.05*want {
				t.Errorf("%d devices, batches of %d: %.5f of the rows move, want %.5f", devices, batch, moved, want)
			}
		}
	}
}

func TestComputingIsEstimatedByParameters(t *testing.T) {
	// 10^9 parameters at 6 operations a row in training, 2 in evaluation.
	if got := ComputeOf(1e9, machine.Devices{GFLOPS: 6}); math.Abs(got.TrainSeconds-1) > 1e-12 ||
		math.Abs(got.ValidSeconds-1./3) > 1e-12 {
		t.Errorf("%+v", got)
	}
	if got := ComputeOf(1e9, machine.Devices{}); got != (Compute{}) {
		t.Errorf("of a device that nothing is known of: %+v", got)
	}
}

func TestAProcessorAloneHoldsItsInputOnce(t *testing.T) {
	h := machine.Hardware{Cores: 2, Memory: 1000, MemoryBandwidth: 300, GatherBandwidth: 100,
		Storage: machine.Storage{Count: 1, Read: 10, Write: 10}}
	f, err := FactsOf(h, 0, machine.Limit{Bytes: 500, By: "--memory"})
	if err != nil || !f.Device.Unified || f.Budget != (machine.Limit{Bytes: 500,
		By: "--memory"}) || f.DeviceFree != 1000 || f.Rates.DeviceGather != 100 || f.Rates.HostCopy != 100 {
		t.Errorf("%+v (%v)", f, err)
	}
	if _, err := FactsOf(h, 1, machine.Limit{}); err == nil {
		t.Error("a device that the machine does not have")
	}
}
