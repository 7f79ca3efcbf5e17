package placement

import (
	"math"
	"strings"
	"testing"

	"github.com/hopfeed/hopfeed/internal/machine"
	"github.com/hopfeed/hopfeed/internal/units"
)

// paperMachine is that of preprop-gnn, Appendix C.
var paperMachine = machine.Hardware{
	Cores: 48, Memory: 380e9, MemoryBandwidth: 200e9, GatherBandwidth: 4e9,
	Devices: machine.Devices{Count: 4, Memory: 48e9, Link: 25e9, Bandwidth: 768e9, GFLOPS: 20000},
	Storage: machine.Storage{Count: 2, Read: 6.5e9, Write: 4e9},
}

// needsOf is what training on a data set of the paper needs: float32, batches of
// 8000, one operator, and a GiB for batches and model.
func needsOf(t *testing.T, name string, hops int) Needs {
	t.Helper()
	d, err := FindDataset(name)
	if err == nil {
		err = d.Check()
	}
	if err != nil {
		t.Fatal(err)
	}
	train, valid, test := d.Rows()
	rowBytes := int64(hops+1) * int64(d.Features) * 4
	return Needs{
		Input: units.Bytes((train + valid + test) * rowBytes), Work: 1 << 30, Chunks: 1 << 30,
		TrainRows: train, ValidRows: valid, RowBytes: rowBytes, BatchRows: 8000, ChunkRows: 8000,
	}
}

func paperFacts(t *testing.T, devices int) Facts {
	t.Helper()
	f, err := FactsOf(paperMachine, devices, machine.Limit{})
	if err != nil {
		t.Fatal(err)
	}
	return f
}

// Sections 6.1 and 6.4, and Appendix I: products, pokec, wiki and papers100M train
// from GPU memory, IGB-medium from host memory, IGB-large from storage.
func TestTheDataSetsOfThePaperArePlacedAsThere(t *testing.T) {
	for _, c := range []struct {
		dataset   string
		want      string
		reason    string
		with4     string // devices
		with4says string
	}{
		{"products", "device rr", "fits its memory", "device rr", "each of 4 devices holds the whole input"},
		{"pokec", "device rr", "fits its memory", "device rr", "each of 4 devices holds the whole input"},
		{"wiki", "device rr", "fits its memory", "device rr", "each of 4 devices holds the whole input"},
		{"papers100M", "device rr", "fits its memory", "device rr", "each of 4 devices holds the whole input"},
		{"igb-medium", "host rr", "not device: ", "device rr", "0.77 % of the rows move"},
		{"igb-large", "storage chunk", "not host: no room for the input (1.49 TiB)", "storage chunk", "1 of 4 devices"},
	} {
		d, err := FindDataset(c.dataset)
		if err != nil {
			t.Fatal(err)
		}
		n := needsOf(t, c.dataset, d.Hops)
		for _, with := range []struct {
			devices      int
			want, reason string
		}{{1, c.want, c.reason}, {4, c.with4, c.with4says}} {
			got, err := Choose(paperFacts(t, with.devices), n, Override{Auto, Auto})
			said := strings.Join(got.Reasons, "; ")
			if err != nil || got.Placement+" "+got.Shuffle != with.want || !strings.Contains(said, with.reason) {
				t.Errorf("%s on %d devices: %s %s (%v), want %s; %q should say %q", c.dataset, with.devices,
					got.Placement, got.Shuffle, err, with.want, said, with.reason)
			}
		}
	}
}

// SIGN of 512 hidden units computes faster than rows are gathered: chunks are
// reshuffled, as in Table 4, where that trains three times as many epochs a minute.
func TestAStarvingDeviceIsFedByChunk(t *testing.T) {
	const parameters = 4*1024*512 + 4*512*512 + 512*19
	n := needsOf(t, "igb-medium", 3)
	n.Compute = ComputeOf(parameters, paperMachine.Devices)
	got, err := Choose(paperFacts(t, 1), n, Override{Auto, Auto})
	if said := strings.Join(got.Reasons,
		"; "); err != nil || got.Placement+" "+got.Shuffle != "host chunk" || !strings.Contains(said, "waiting") {
		t.Errorf("%s %s (%v): %s", got.Placement, got.Shuffle, err, said)
	}
	// Chunks are copied from where they lie, so all of the input has to be pinned.
	small := paperMachine
	small.Pinnable = 64e9
	facts, err := FactsOf(small, 1, machine.Limit{})
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		shuffle, want, reason string
	}{
		{Auto, "host rr", "only 59.6 GiB can be pinned, by the machine's limit"},
		{CR, "host chunk", "may wait for pages: the input has 153 GiB, and only 59.6 GiB"},
		{RR, "host rr", "was asked for"},
	} {
		got, err := Choose(facts, n, Override{Auto, c.shuffle})
		if said := strings.Join(got.Reasons,
			"; "); err != nil || got.Placement+" "+got.Shuffle != c.want || !strings.Contains(said, c.reason) {
			t.Errorf("pinning little, %s: %s %s (%v), want %s; %q should say %q", c.shuffle, got.Placement, got.Shuffle,
				err, c.want, said, c.reason)
		}
	}
	small.Pinnable = 200e9
	if facts, err = FactsOf(small, 1, machine.Limit{}); err != nil {
		t.Fatal(err)
	}
	if got, err := Choose(facts, n, Override{Auto, Auto}); err != nil || got.Shuffle != CR {
		t.Errorf("where all of the input can be pinned, %s is shuffled (%v)", got.Shuffle, err)
	}
	for _, override := range []Override{{Auto, RR}, {Host, RR}} {
		if got, err := Choose(paperFacts(t, 1), n, override); err != nil || got.Shuffle != RR {
			t.Errorf("%+v: %s (%v)", override, got.Shuffle, err)
		}
	}
	// A model that takes longer than loading does not wait.
	n.Compute.TrainSeconds *= 10
	n.Compute.ValidSeconds *= 10
	if got, err := Choose(paperFacts(t, 1), n, Override{Auto, Auto}); err != nil || got.Shuffle != RR {
		t.Errorf("of a slow model, %s is shuffled (%v)", got.Shuffle, err)
	}
}

// Appendix I. Its volumes are in GB or GiB, which is not said, and some have one digit.
func TestVolumesAnEpochAgreeWithThePaper(t *testing.T) {
	for _, c := range []struct {
		dataset string
		hops    int
		want    float64
		within  float64
	}{
		{"products", 2, 0.2, 0.1}, // the least of the medium-sized ones; one digit
		{"wiki", 6, 15, 0.07},     // the most
		{"papers100M", 4, 3, 0.07},
		{"igb-medium", 2, 70, 0.07},
		{"igb-medium", 3, 93, 0.07},
		{"igb-large", 2, 720, 0.07},
		{"igb-large", 3, 960, 0.07},
	} {
		d, err := Choose(paperFacts(t, 1), needsOf(t, c.dataset, c.hops), Override{Auto, Auto})
		if err != nil {
			t.Fatal(err)
		}
		decimal, binary := float64(d.EpochBytes)/1e9, float64(d.EpochBytes)/(1<<30)
		if off := min(math.Abs(decimal/c.want-1), math.Abs(binary/c.want-1)); off > c.within {
			t.Errorf("%s, %d hops: %.4g GB or %.4g GiB, want %v within %v", c.dataset, c.hops, decimal, binary, c.want,
				c.within)
		}
	}
}

func TestDataSetsThatCannotBeAreRefused(t *testing.T) {
	good := Dataset{Nodes: 10, Labeled: 1, Split: [3]float64{0.5, 0.25, 0.25}, Features: 3, Classes: 2}
	if err := good.Check(); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		change func(*Dataset)
		want   string
	}{
		{func(d *Dataset) { d.Nodes = 0 }, "0 nodes"},
		{func(d *Dataset) { d.Nodes = 1 << 32 }, "4294967296 nodes"},
		{func(d *Dataset) { d.Features = 0 }, "0 features"},
		{func(d *Dataset) { d.Classes = -1 }, "-1 classes"},
		{func(d *Dataset) { d.Hops = -1 }, "-1 hops"},
		{func(d *Dataset) { d.Labeled = 1.5 }, "1.5 of the nodes"},
		{func(d *Dataset) { d.Labeled = math.NaN() }, "NaN of the nodes"},
		{func(d *Dataset) { d.Split[0] = 0 }, "splits of 0"},
		{func(d *Dataset) { d.Split[2] = 0.5 }, "0.5 (want fractions"},
		{func(d *Dataset) { d.Split[1] = math.NaN() }, "NaN of the labelled"},
	} {
		d := good
		c.change(&d)
		if err := d.Check(); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%v, want %q", err, c.want)
		}
	}
	if _, err := FindDataset("cora"); err == nil || !strings.Contains(err.Error(), "papers100M") {
		t.Errorf("an unknown data set: %v", err)
	}
}
