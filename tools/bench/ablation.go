package bench

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"runtime/debug"
	"slices"
	"strings"

	"github.com/hopfeed/hopfeed/format"
	"github.com/hopfeed/hopfeed/gds"
	"github.com/hopfeed/hopfeed/internal/machine"
	"github.com/hopfeed/hopfeed/internal/units"
	"github.com/hopfeed/hopfeed/loader"
	"github.com/hopfeed/hopfeed/placement"
	"github.com/hopfeed/hopfeed/tools/chart"
	"github.com/hopfeed/hopfeed/trainer"
)

// AblationOptions are the options of Ablate.
type AblationOptions struct {
	Options
	Machine string // a description of processor and device for the reader
	Cases   []AblationCase
	Epochs  int // measured for each case in a round
}

// AblationCase is a model with a number of hops.
type AblationCase struct {
	Spec trainer.Spec
	Hops int
	// Alternatives are its placements; one that does not fit says why.
	Alternatives []placement.Alternative
}

var memories = map[loader.Placement]string{
	loader.Device: "device memory", loader.Host: "host memory", loader.Storage: "storage",
}

// Ablation holds the times of training with one optimisation of loading after another
// (preprop-gnn section 6.3), from each placement (Appendix H).
type Ablation struct {
	Dataset   string `json:"dataset"`
	Machine   string `json:"machine"`
	OneMemory bool   `json:"one_memory"` // device memory is host memory
	Rows      int64  `json:"rows"`       // training rows
	Features  int    `json:"features"`
	DType     string `json:"dtype"`
	BatchRows int    `json:"batch_rows"`
	ChunkRows int    `json:"chunk_rows"`
	Rounds    int    `json:"rounds"`
	Epochs    int    `json:"epochs"`

	Results  []AblationResult `json:"results"`
	LeftOut  []LeftOut        `json:"left_out"`
	Figure9  AblationFigure   `json:"figure_9"`         // variants of loading, by placement
	Figure14 AblationFigure   `json:"figure_14"`        // placements and shuffles
	Output   string           `json:"output,omitempty"` // the folder with the charts
}

// AblationResult is the time of one model with a number of hops and one way of loading, without validation.
type AblationResult struct {
	Model    string `json:"model"`
	Hops     int    `json:"hops"`
	Matrices int    `json:"matrices"` // in a batch
	Way
	EpochSeconds float64   `json:"epoch_seconds"` // median
	Seconds      []float64 `json:"seconds"`       // of each epoch
	Speedup      float64   `json:"speedup"`       // over the reference of Figure9; 0 if it has none
	// WithinNoise reports that the times of epochs overlap with the reference's.
	WithinNoise bool `json:"within_noise"`
	// StepSeconds is the time of each step of an epoch: load, forward, backward, optimizer. It
	// is the median of separate epochs, in which the loop waits for every step to end.
	StepSeconds map[string]float64 `json:"step_seconds"`
	// LoaderSeconds is the work of each stage of the loader; "wait" is their wait for storage and devices.
	LoaderSeconds map[string]float64 `json:"loader_seconds"`
	// InputBytes is rows * matrices * features * bytes of an element (preprop-gnn Appendix I).
	// The other numbers of bytes were counted by the loader.
	InputBytes     int64 `json:"input_bytes"`
	StorageBytes   int64 `json:"storage_bytes"`   // read from storage
	AssembledBytes int64 `json:"assembled_bytes"` // gathered or copied by the host
	CopiedInBytes  int64 `json:"copied_in_bytes"` // by the device from host memory, labels and row numbers included
}

// LeftOut is a case and way that could not be measured, with the reason.
type LeftOut struct {
	Model  string `json:"model"`
	Hops   int    `json:"hops"`
	Reason string `json:"reason"`
	Way
}

// AblationFigure compares epoch times with those of a reference, the first way that could be measured for all models
// and hops. Each bar is a geometric mean over hops. Without a reference there are no bars.
type AblationFigure struct {
	Reference Way           `json:"reference"`
	Bars      []AblationBar `json:"bars"`
}

// AblationBar is the bar of one model and one way.
type AblationBar struct {
	Model string `json:"model"`
	Way
	Normalized float64 `json:"normalized"`
}

// Ablate measures epochs of training for each case and way, once a round.
func Ablate(ctx context.Context, o AblationOptions) (*Ablation, error) {
	region, _ := o.Store.Region(format.RegionTrain)
	o.BatchRows = int(min(int64(o.BatchRows), region.Rows))
	layout := o.Store.Layout()
	a := &Ablation{
		Dataset: o.Store.Manifest.Name, Machine: o.Machine, OneMemory: o.Device.Info().Unified,
		Rows: region.Rows, Features: layout.Features, DType: layout.DType.String(),
		BatchRows: o.BatchRows, ChunkRows: cmp.Or(o.ChunkRows, layout.ChunkRows), Rounds: o.Rounds, Epochs: o.Epochs,
		LeftOut: []LeftOut{},
	}
	cells := o.cells()
	err := interleave(o.Progress, "ablation", o.Rounds, len(cells), func(i, _ int) error {
		c := cells[i]
		if c.obstacle != "" {
			return nil
		}
		err := c.measure(ctx, o)
		if errors.Is(err, gds.ErrOutOfMemory) {
			c.obstacle = err.Error()
		} else if err != nil {
			return fmt.Errorf("%s, hops %d, %s from %s: %w", c.Spec.Model, c.Hops, c.variant.name, c.placement, err)
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	for _, c := range cells {
		if c.obstacle == "" {
			a.Results = append(a.Results, c.result())
		} else {
			a.LeftOut = append(a.LeftOut, LeftOut{c.Spec.Model, c.Hops, c.obstacle, c.variant.way(c.placement)})
		}
	}
	if len(a.Results) == 0 {
		return nil, fmt.Errorf("training from %v %w: %s", o.Placements, machine.ErrDoesNotFit, a.LeftOut[0].Reason)
	}
	a.compare()
	return a, nil
}

// ablated are the variants of the paper.
func ablated() []variant {
	return slices.DeleteFunc(slices.Clone(variants), func(v variant) bool { return v.mapped })
}

// AblationVariants lists the names of the ways to load that Ablate measures.
func AblationVariants() []string { return names(ablated()) }

func (o *AblationOptions) cells() (cells []*cell) {
	for _, k := range o.Cases {
		for _, p := range o.Placements {
			for _, v := range ablated() {
				if !slices.Contains(v.placements, p) {
					continue
				}
				at := slices.IndexFunc(k.Alternatives, func(alt placement.Alternative) bool {
					return alt.Placement == string(p) && alt.Shuffle == v.shuffle
				})
				alt := k.Alternatives[at]
				cells = append(cells, &cell{AblationCase: k, variant: v, placement: p,
					inputBytes: int64(alt.EpochBytes), obstacle: alt.Obstacle})
			}
		}
	}
	return cells
}

type cell struct {
	AblationCase
	variant    variant
	placement  loader.Placement
	inputBytes int64
	obstacle   string // why it cannot be measured
	epochs     []measuredEpoch
	profiles   []map[string]float64 // steps
}

type measuredEpoch struct {
	seconds       float64
	before, after loader.Stats
}

// measure trains for an epoch that is not measured, as it touches memory for the first time,
// for some that are measured, and for one whose steps are measured one by one.
func (c *cell) measure(ctx context.Context, o AblationOptions) (err error) {
	debug.FreeOSMemory() // no cell pays for what the one before has left
	l, set, err := c.variant.open(ctx, o.Options, loader.Options{Matrices: c.Spec.Matrices, Placement: c.placement,
		Buffers: placement.Buffers})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, l.Close()) }()
	defaults, err := trainer.Defaults(c.Spec.Model, set.Rows())
	if err != nil {
		return err
	}
	last := 1 + o.Epochs + 1
	before := l.Stats()
	_, err = trainer.Fit(ctx, []trainer.Rank{{Device: o.Device,
		Data: trainer.Data{Train: set, BatchRows: o.BatchRows}}}, c.Spec, trainer.Options{
		Epochs: last, LearningRate: defaults.LearningRate, WeightDecay: defaults.WeightDecay, Seed: o.Seed,
		ProfileFrom: last,
	}, func(e trainer.Epoch, _ func() (*trainer.Result, error)) {
		after := l.Stats()
		switch e.Number {
		case 1:
		case last:
			c.profiles = append(c.profiles, e.StepSeconds)
		default:
			c.epochs = append(c.epochs, measuredEpoch{e.TrainSeconds, before, after})
		}
		before = after
	})
	return err
}

// result makes an AblationResult of the median epoch and the median of the step times.
func (c *cell) result() AblationResult {
	r := AblationResult{
		Model: c.Spec.Model, Hops: c.Hops, Matrices: len(c.Spec.Matrices), Way: c.variant.way(c.placement),
		InputBytes: c.inputBytes,
	}
	for _, e := range c.epochs {
		r.Seconds = append(r.Seconds, e.seconds)
	}
	slices.SortFunc(c.epochs, func(a, b measuredEpoch) int { return cmp.Compare(a.seconds, b.seconds) })
	slices.SortFunc(c.profiles, func(a, b map[string]float64) int { return cmp.Compare(total(a), total(b)) })
	e := c.epochs[len(c.epochs)/2]
	r.EpochSeconds, r.StepSeconds = e.seconds, c.profiles[len(c.profiles)/2]
	r.LoaderSeconds = stageSeconds(e.before, e.after)
	r.StorageBytes = e.after.BytesRead - e.before.BytesRead
	r.AssembledBytes = e.after.AssembledBytes - e.before.AssembledBytes
	r.CopiedInBytes = e.after.CopiedInBytes - e.before.CopiedInBytes
	return r
}

func total(steps map[string]float64) (seconds float64) {
	for _, s := range steps {
		seconds += s
	}
	return seconds
}

// compare makes the figures, and sets the speedups over the reference of Figure9.
func (a *Ablation) compare() {
	ways := func(skip func(variant) bool, placements ...loader.Placement) (ways []Way) {
		for _, p := range placements {
			for _, v := range slices.DeleteFunc(ablated(), skip) {
				ways = append(ways, v.way(p))
			}
		}
		return ways
	}
	ways9 := ways(func(variant) bool { return false }, loader.Host, loader.Device, loader.Storage)
	ways14 := ways(func(v variant) bool { return v.oneBuffer }, loader.Device, loader.Host, loader.Storage)
	a.Figure9, a.Figure14 = a.figure(ways9), a.figure(ways14)
	if len(a.Figure9.Bars) > 0 {
		for i, r := range a.Results {
			reference := a.find(r.Model, r.Hops, a.Figure9.Reference)
			a.Results[i].Speedup = reference.EpochSeconds / r.EpochSeconds
			a.Results[i].WithinNoise = r.Way != reference.Way && withinNoise(r.Seconds, reference.Seconds)
		}
	}
}

// find returns the result of a model, a number of hops and a way, or nil if it was not measured.
func (a *Ablation) find(model string, hops int, w Way) *AblationResult {
	for i, r := range a.Results {
		if r.Model == model && r.Hops == hops && r.Way == w {
			return &a.Results[i]
		}
	}
	return nil
}

// models lists the models that were measured, and hops the numbers of hops of one, in order.
func (a *Ablation) models() (models []string) {
	for _, r := range a.Results {
		if !slices.Contains(models, r.Model) {
			models = append(models, r.Model)
		}
	}
	return models
}

func (a *Ablation) hops(model string) (hops []int) {
	for _, r := range a.Results {
		if r.Model == model && !slices.Contains(hops, r.Hops) {
			hops = append(hops, r.Hops)
		}
	}
	return hops
}

// figure makes the bars of some ways. It leaves out a way that was not measured with all numbers of hops of a model.
func (a *Ablation) figure(ways []Way) AblationFigure {
	f := AblationFigure{Bars: []AblationBar{}}
	reference := slices.IndexFunc(ways, func(w Way) bool {
		return !slices.ContainsFunc(a.models(), func(m string) bool { _, ok := a.mean(m, w, w); return !ok })
	})
	if reference < 0 {
		return f
	}
	f.Reference = ways[reference]
	for _, model := range a.models() {
		for _, w := range ways {
			if mean, ok := a.mean(model, w, f.Reference); ok {
				f.Bars = append(f.Bars, AblationBar{model, w, mean})
			}
		}
	}
	return f
}

// mean is the geometric mean of (time of a way / time of the reference) over the model's numbers of hops. It is false
// if one of them was not measured.
func (a *Ablation) mean(model string, w, reference Way) (float64, bool) {
	logs := 0.0
	for _, hops := range a.hops(model) {
		measured, by := a.find(model, hops, w), a.find(model, hops, reference)
		if measured == nil || by == nil {
			return 0, false
		}
		logs += math.Log(measured.EpochSeconds / by.EpochSeconds)
	}
	return math.Exp(logs / float64(len(a.hops(model)))), true
}

// Text prints the figures as tables.
func (a *Ablation) Text(w io.Writer) {
	fmt.Fprintf(w, "%s\n%s\n", units.Printable(a.Work()), a.On())
	fmt.Fprintln(w, "\nmodel\thops\tfrom\tloading\tepoch\tspeedup\tload\tforward\tbackward\toptimizer"+
		"\tfetching\tassembling")
	for _, m := range a.Results {
		s, l := m.StepSeconds, m.LoaderSeconds
		fmt.Fprintf(w, "%s\t%d\t%s\t%s\t%.4f s\t%.2f%s\t%.4f s\t%.4f s\t%.4f s\t%.4f s\t%.4f s\t%.4f s\n", m.Model,
			m.Hops, m.Placement, m.Variant,
			m.EpochSeconds, m.Speedup, noiseMark(m.WithinNoise), s["load"], s["forward"], s["backward"], s["optimizer"],
			l["wait"], l["assemble"])
	}
	if slices.ContainsFunc(a.Results, func(m AblationResult) bool { return m.WithinNoise }) {
		fmt.Fprintln(w, "\n~ its epochs overlap the reference's (speedup 1): the difference may be noise")
	}
	fmt.Fprintln(w, "\nmodel\thops\tfrom\tloading\tby formula\tfrom storage\tassembled by the host\tcopied to the "+
		"device")
	for _, m := range a.Results {
		fmt.Fprintf(w, "%s\t%d\t%s\t%s\t%s\t%s\t%s\t%s\n", m.Model, m.Hops, m.Placement, m.Variant,
			units.Bytes(m.InputBytes),
			units.Bytes(m.StorageBytes), units.Bytes(m.AssembledBytes), units.Bytes(m.CopiedInBytes))
	}
	fmt.Fprintf(w, "\nFigure 9: %s\n", a.Figure9.About())
	barsText(w, a.Figure9.Bars, AblationVariants(), func(b Way) string { return b.Variant })
	fmt.Fprintf(w, "\nFigure 14: %s\n", a.Figure14.About())
	barsText(w, a.Figure14.Bars, LoadShuffles(), func(b Way) string { return b.Shuffle })
	for _, l := range a.LeftOut {
		fmt.Fprintf(w, "left out: %s, hops %d, %s from %s: %s\n", l.Model, l.Hops, l.Variant, l.Placement, l.Reason)
	}
	if a.Output != "" {
		fmt.Fprintf(w, "drawn in %s\n", a.Output)
	}
}

func barsText(w io.Writer, bars []AblationBar, columns []string, column func(Way) string) {
	fmt.Fprintf(w, "model\tfrom\t%s\n", strings.Join(columns, "\t"))
	for i, b := range bars {
		same := func(other AblationBar) bool { return other.Model == b.Model && other.Placement == b.Placement }
		if i > 0 && same(bars[i-1]) {
			continue
		}
		fmt.Fprintf(w, "%s\t%s", b.Model, b.Placement)
		for _, name := range columns {
			cell := ""
			if at := slices.IndexFunc(bars, func(other AblationBar) bool {
				return same(other) && column(other.Way) == name
			}); at >= 0 {
				cell = fmt.Sprintf("%.3f", bars[at].Normalized)
			}
			fmt.Fprintf(w, "\t%s", cell)
		}
		fmt.Fprintln(w)
	}
}

// AblationFiles lists the names of the files that Files makes, in its order.
func AblationFiles() []string {
	return []string{"figure-5.svg", "figure-9.svg", "figure-14.svg", "ablation.json"}
}

// Files makes the charts, and a JSON file with all numbers.
func (a *Ablation) Files() ([][]byte, error) {
	shuffles := map[string]string{placement.RR: "rows (SGD-RR)", placement.CR: "chunks (SGD-CR)"}
	figure9 := a.bars("Ablation: ways to load (preprop-gnn Figure 9)", &a.Figure9,
		func(w Way) string { return w.Variant })
	figure14 := a.bars("Placement: where the input lives, what is reshuffled (preprop-gnn Figure 14)", &a.Figure14,
		func(w Way) string { return shuffles[w.Shuffle] })
	text, err := json.MarshalIndent(a, "", "  ")
	return [][]byte{a.chart5().File(), figure9.File(), figure14.File(), append(text, '\n')}, err
}

// Work describes the measurement in words.
func (a *Ablation) Work() string {
	return fmt.Sprintf("%s: training on %d rows of %d features (%s), without validation; batches of %d rows, chunks "+
		"of %d",
		a.Dataset, a.Rows, a.Features, a.DType, a.BatchRows, a.ChunkRows)
}

func (a *Ablation) on() string {
	return a.Machine + map[bool]string{true: ", whose device and host memory are one"}[a.OneMemory]
}

// On describes in words the machine and the number of rounds and epochs.
func (a *Ablation) On() string {
	return fmt.Sprintf("%s; medians of %d x %d epochs", a.on(), a.Rounds, a.Epochs)
}

// About describes in words the reference of the bars.
func (f *AblationFigure) About() string {
	if len(f.Bars) == 0 {
		return "no way to load could be measured with all models and hops"
	}
	w := f.Reference
	return fmt.Sprintf("epoch times as multiples of that of %s (%s) from %s, geometric means over hops", w.Variant,
		w.Shuffle, memories[w.Placement])
}

var memoryColors = map[loader.Placement]string{loader.Host: chart.Blue, loader.Device: chart.Green,
	loader.Storage: chart.Orange}

func (a *Ablation) bars(title string, f *AblationFigure, name func(Way) string) *chart.Figure {
	c := &chart.Figure{Title: title, Notes: []string{a.Work(), a.On(), f.About()}}
	for _, p := range []loader.Placement{loader.Host, loader.Device, loader.Storage} {
		c.Keys = append(c.Keys, chart.Key{Name: memories[p], Color: memoryColors[p]})
	}
	a.eachModel(c, "epoch time, normalised", f.Bars, func(b AblationBar) chart.Row {
		bars := chart.Stack(nil, b.Normalized, memoryColors[b.Placement])
		return chart.Row{Name: name(b.Way), Label: fmt.Sprintf("%.2f", b.Normalized), Bars: bars}
	})
	return c
}

func (a *Ablation) eachModel(c *chart.Figure, axis string, bars []AblationBar, row func(b AblationBar) chart.Row) {
	for _, model := range a.models() {
		p := &chart.Rows{Title: fmt.Sprintf("%s, %s", model, hopsText(a.hops(model))), X: chart.Axis{Name: axis}}
		var before Way
		for _, b := range bars {
			if b.Model == model {
				r := row(b)
				r.Apart = b.Placement != before.Placement
				p.Rows = append(p.Rows, r)
				before = b.Way
			}
		}
		c.Plots = append(c.Plots, p)
	}
}

// steps are the steps of an epoch, in order, as they are measured and as they are drawn.
var steps = []struct {
	measured string
	chart.Key
}{
	{"load", chart.Key{Name: "loading that is not hidden", Color: chart.Red}},
	{"forward", chart.Key{Name: "forward pass", Color: chart.Blue}},
	{"backward", chart.Key{Name: "backward pass", Color: chart.Sky}},
	{"optimizer", chart.Key{Name: "optimizer", Color: chart.Purple}},
}

// chart5 draws Figure 5, the steps of an epoch, for every way of Figure 9.
func (a *Ablation) chart5() *chart.Figure {
	c := &chart.Figure{Title: "What an epoch of training waits for (preprop-gnn Figure 5)",
		Notes: []string{a.Work(), a.on(),
			fmt.Sprintf("medians of %s whose steps are waited for one by one, means over hops; behind bars, "+
				"the share of loading", units.Count(int64(a.Rounds), "epoch"))}}
	for _, s := range steps {
		c.Keys = append(c.Keys, s.Key)
	}
	longest := 0.0
	for _, r := range a.Results {
		longest = max(longest, total(r.StepSeconds))
	}
	unit, per := chart.TimeUnit(longest)
	a.eachModel(c, "time of an epoch ("+unit+")", a.Figure9.Bars, func(b AblationBar) chart.Row {
		row := chart.Row{Name: b.Variant + ", " + string(b.Placement)}
		load, sum := 0.0, 0.0
		for _, s := range steps {
			mean := 0.0
			for _, r := range a.Results {
				if r.Model == b.Model && r.Way == b.Way {
					mean += r.StepSeconds[s.measured] / float64(len(a.hops(b.Model)))
				}
			}
			if sum += mean; s.measured == "load" {
				load = mean
			}
			row.Bars = chart.Stack(row.Bars, mean/per, s.Color)
		}
		row.Label = fmt.Sprintf("%.0f %%", 100*load/sum)
		return row
	})
	return c
}

func hopsText(hops []int) string {
	hops = slices.Sorted(slices.Values(hops))
	text := units.Count(int64(hops[len(hops)-1]), "hop")
	for i, h := range slices.Backward(hops[:len(hops)-1]) {
		text = fmt.Sprint(h, map[bool]string{true: " and ", false: ", "}[i == len(hops)-2], text)
	}
	return text
}
