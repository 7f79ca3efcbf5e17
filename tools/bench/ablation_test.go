package bench

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/hopfeed/hopfeed/format"
	"github.com/hopfeed/hopfeed/gds/host"
	"github.com/hopfeed/hopfeed/internal/machine"
	"github.com/hopfeed/hopfeed/internal/progress"
	"github.com/hopfeed/hopfeed/internal/vfs"
	"github.com/hopfeed/hopfeed/loader"
	"github.com/hopfeed/hopfeed/placement"
	"github.com/hopfeed/hopfeed/preprop"
	"github.com/hopfeed/hopfeed/preprop/operator"
	"github.com/hopfeed/hopfeed/tools/chart"
	"github.com/hopfeed/hopfeed/tools/ingest"
	"github.com/hopfeed/hopfeed/trainer"
)

// measured is an Ablation whose epochs take so long, by model, hops, placement and
// variant.
func measured(lines string) *Ablation {
	a := &Ablation{Dataset: "toy", Machine: "an <abacus>", Rows: 1000, Features: 8, DType: "float32", BatchRows: 100,
		ChunkRows: 10, Rounds: 3, Epochs: 2}
	for line := range strings.Lines(lines) {
		var r AblationResult
		if n, _ := fmt.Sscan(line, &r.Model, &r.Hops, &r.Placement, &r.Variant, &r.EpochSeconds); n < 5 {
			continue
		}
		at := slices.IndexFunc(variants, func(v variant) bool { return v.name == r.Variant })
		r.Shuffle = variants[at].shuffle
		r.Seconds = []float64{r.EpochSeconds}
		r.StepSeconds = map[string]float64{"load": r.EpochSeconds * 0.4, "forward": r.EpochSeconds * 0.3,
			"backward": r.EpochSeconds * 0.2, "optimizer": r.EpochSeconds * 0.1}
		a.Results = append(a.Results, r)
	}
	a.compare()
	return a
}

func (f AblationFigure) String() string {
	var b strings.Builder
	for _, bar := range f.Bars {
		fmt.Fprintf(&b, "%s %s %s %.4g\n", bar.Model, bar.Placement, bar.Variant, bar.Normalized)
	}
	return b.String()
}

const twoModels = `
	sgc 2 device baseline 3
	sgc 2 device double-buffer 2
	sgc 2 device chunk 1
	sgc 2 host baseline 8
	sgc 2 host double-buffer 4
	sgc 2 storage chunk 4
	sign 2 host baseline 10
	sign 2 host double-buffer 5
	sign 2 storage chunk 20
	sign 3 host baseline 20
	sign 3 host double-buffer 2.5
	sign 3 storage chunk 10
`

func TestBarsAreGeometricMeansOfMultiplesOfOneWay(t *testing.T) {
	a := measured(twoModels)
	want := "sgc host baseline 1\nsgc host double-buffer 0.5\nsgc device baseline 0.375\nsgc device double-buffer " +
		"0.25\nsgc device chunk 0.125\nsgc storage chunk 0.5\n" +
		"sign host baseline 1\nsign host double-buffer 0.25\nsign storage chunk 1\n"
	if got := a.Figure9.String(); got != want || a.Figure9.Reference != (Way{loader.Host, "baseline", "rr"}) {
		t.Errorf("figure 9, of %v:\n%swant\n%s", a.Figure9.Reference, got, want)
	}
	// Device memory, which comes first, has not all models.
	want = "sgc device double-buffer 0.5\nsgc device chunk 0.25\nsgc host double-buffer 1\nsgc storage chunk 1\nsign " +
		"host double-buffer 1\nsign storage chunk 4\n"
	if got := a.Figure14.String(); got != want || a.Figure14.Reference != (Way{loader.Host, "double-buffer", "rr"}) {
		t.Errorf("figure 14, of %v:\n%swant\n%s", a.Figure14.Reference, got, want)
	}
	for i, want := range []float64{8.0 / 3, 4, 8, 1, 2, 2, 1, 2, 0.5, 1, 8, 2} {
		if got := a.Results[i].Speedup; math.Abs(got-want) > 1e-12 {
			t.Errorf("%+v: want a speedup of %v", a.Results[i], want)
		}
	}
}

func TestWhatWasNotMeasuredOnAllHopsHasNoBar(t *testing.T) {
	a := measured("sign 2 device chunk 1\nsign 2 storage chunk 2\nsign 3 storage chunk 5")
	if got, want := a.Figure14.String(), "sign storage chunk 1\n"; got != want {
		t.Errorf("bars\n%swant\n%s", got, want)
	}
	a = measured("sgc 2 device chunk 1\nsign 2 storage chunk 2")
	if len(a.Figure9.Bars)+len(a.Figure14.Bars) > 0 || a.Results[0].Speedup != 0 {
		t.Errorf("without a way that all have: %+v", a)
	}
	if files, err := a.Files(); err != nil || len(files) != len(AblationFiles()) {
		t.Errorf("charts without bars: %d files, %v", len(files), err)
	}
}

func TestTheMedianEpochAndTheMedianProfileCount(t *testing.T) {
	c := cell{variant: variants[0], placement: loader.Storage}
	for _, s := range []float64{5, 1, 3} {
		c.epochs = append(c.epochs, measuredEpoch{
			seconds: s,
			before: loader.Stats{BytesRead: 10, Stages: []loader.StageStats{{Name: "assemble", WorkSeconds: 2,
				WaitSeconds: 1}}},
			after: loader.Stats{BytesRead: 10 + int64(s),
				Stages: []loader.StageStats{{Name: "assemble", WorkSeconds: 4, WaitSeconds: 1 + s}}},
		})
		c.profiles = append(c.profiles, map[string]float64{"load": s, "forward": 10 - 2*s})
	}
	r := c.result()
	if r.EpochSeconds != 3 || !slices.Equal(r.Seconds, []float64{5, 1, 3}) || r.LoaderSeconds["assemble"] != 2 ||
		r.LoaderSeconds["wait"] != 3 || r.StorageBytes != 3 || r.StepSeconds["load"] != 3 {
		t.Errorf("%+v", r)
	}
}

var svgBar = regexp.MustCompile(`<rect class="mark" x="\S+" y="\S+" width="(\S+)" height="\S+" fill="(\S+)"`)

// svgBars are the lengths of the bars of a colour.
func svgBars(svg []byte, color string) (lengths []float64) {
	for _, m := range svgBar.FindAllSubmatch(svg, -1) {
		if length, _ := strconv.ParseFloat(string(m[1]), 64); string(m[2]) == color {
			lengths = append(lengths, length)
		}
	}
	return lengths
}

func TestChartsShowWhatWasMeasured(t *testing.T) {
	a := measured(twoModels)
	files, err := a.Files()
	if err != nil {
		t.Fatal(err)
	}
	named := map[string][]byte{}
	for i, name := range AblationFiles() {
		named[name] = files[i]
	}
	for name, wants := range map[string][]string{
		"figure-5.svg": {"an &lt;abacus&gt;", "sgc, 2 hops", "sign, 2 and 3 hops", "time of an epoch (s)",
			"double-buffer, host", "optimizer", "40 %"},
		"figure-9.svg": {"medians of 3 x 2 epochs", "sign, 2 and 3 hops", "baseline", "host memory", "storage", "0.38",
			"0.13", "epoch times as multiples"},
		"figure-14.svg": {"sgc, 2 hops", "chunks (SGD-CR)", "rows (SGD-RR)", "4.00", "epoch times as multiples"},
	} {
		for _, want := range wants {
			if !strings.Contains(string(named[name]), ">"+want) && !strings.Contains(string(named[name]), want+"<") {
				t.Errorf("%s lacks %q: %s", name, want, named[name])
			}
		}
	}
	// Bars as long as their values: of sgc 0.375, 0.25 and 0.125.
	green := svgBars(named["figure-9.svg"], chart.Green)
	if len(green) != 3 || math.Abs(green[0]/green[2]-3) > 0.01 || math.Abs(green[1]/green[2]-2) > 0.01 {
		t.Errorf("bars of device memory are %v long", green)
	}
	// In each bar, forward is three quarters of load.
	load, forward := svgBars(named["figure-5.svg"], chart.Red), svgBars(named["figure-5.svg"], chart.Blue)
	if len(load) != len(a.Figure9.Bars) || len(forward) != len(load) {
		t.Fatalf("%d and %d pieces", len(load), len(forward))
	}
	for i := range load {
		if math.Abs(forward[i]/load[i]-0.75) > 0.01 {
			t.Errorf("pieces are %v and %v long", load[i], forward[i])
		}
	}
	var again Ablation
	if err := json.Unmarshal(named["ablation.json"], &again); err != nil ||
		again.Figure9.String() != a.Figure9.String() || len(again.Results) != len(a.Results) {
		t.Errorf("ablation.json: %+v, %v", again, err)
	}
}

// smallStore has some 600 rows to train on, of 64 features and one hop.
func smallStore(t *testing.T) *format.Dir {
	t.Helper()
	disk := vfs.NewMem()
	source, err := ingest.SBM(ingest.SBMOptions{GenerateOptions: ingest.GenerateOptions{Nodes: 1000, Edges: 3000,
		Features: 64, Classes: 3, Labeled: 1}, Homophily: 0.7, Separation: 1})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := ingest.Run(t.Context(), disk, source, "graph", ingest.Options{}); err != nil {
		t.Fatal(err)
	}
	sym, err := operator.Parse("sym")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := preprop.Propagate(t.Context(), disk, "graph", "store",
		preprop.Options{Hops: 1, Operators: []operator.Operator{sym}, ChunkRows: 100}); err != nil {
		t.Fatal(err)
	}
	store, err := format.OpenStore(disk, "store")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { store.Close() })
	return store
}

// everything is that all can be had.
var everything = []placement.Alternative{
	{Placement: placement.Device, Shuffle: placement.RR}, {Placement: placement.Device, Shuffle: placement.CR},
	{Placement: placement.Host, Shuffle: placement.RR}, {Placement: placement.Host, Shuffle: placement.CR},
	{Placement: placement.Storage, Shuffle: placement.CR},
}

func TestAblationLeavesNothingBehindWhateverHappens(t *testing.T) {
	store := smallStore(t)
	region, _ := store.Region(format.RegionTrain)
	input := region.Rows * 64 * 4
	for _, c := range []struct {
		name   string
		memory int64 // of the device
		stop   bool
		want   string
	}{
		{"all fits", 4 * input, false, allVariants},
		{"the input does not", input - 1, false,
			"host baseline, host fused, host double-buffer, host chunk, storage chunk"},
		{"nothing does", 8192, false, ""},
		{"interrupted", 4 * input, true, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			device, err := host.New(host.Options{Discrete: true, MemoryBytes: c.memory})
			if err != nil {
				t.Fatal(err)
			}
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			a, err := Ablate(ctx, AblationOptions{
				Epochs: 1,
				Cases: []AblationCase{{Spec: trainer.Spec{Model: "sgc", Matrices: store.Matrices()[1:], Features: 64,
					Classes: 3}, Hops: 1, Alternatives: everything}},
				Options: Options{Device: device, Store: store, Placements: loader.Placements(), BatchRows: 50,
					Rounds: 2,
					// Interrupted when the third is done.
					Progress: stopper{done: func(n int) {
						if c.stop && n == 3 {
							cancel()
						}
					}}},
			})
			got := []string{}
			if err == nil {
				for _, r := range a.Results {
					got = append(got, fmt.Sprintf("%s %s", r.Placement, r.Variant))
				}
				for _, l := range a.LeftOut {
					if !strings.Contains(l.Reason, "out of device memory") {
						t.Errorf("%+v", l)
					}
				}
				if len(a.Results)+len(a.LeftOut) != 9 {
					t.Errorf("%d results, %d left out", len(a.Results), len(a.LeftOut))
				}
			} else if !errors.Is(err, map[bool]error{true: context.Canceled, false: machine.ErrDoesNotFit}[c.stop]) {
				t.Error(err)
			}
			if got := strings.Join(got, ", "); got != c.want {
				t.Errorf("measured %s, want %s", got, c.want)
			}
			if err := device.Close(); err != nil {
				t.Error(err)
			}
		})
	}
}

const allVariants = "device baseline, device fused, device double-buffer, device chunk, " +
	"host baseline, host fused, host double-buffer, host chunk, storage chunk"

// stopper is told how many things are done.
type stopper struct{ done func(n int) }

func (s stopper) Start(string, int64, progress.Unit) progress.Task { return &stopperTask{s, 0} }

type stopperTask struct {
	stopper
	n int
}

func (s *stopperTask) Add(n int64) { s.n += int(n); s.done(s.n) }
func (s *stopperTask) Done()       {}
