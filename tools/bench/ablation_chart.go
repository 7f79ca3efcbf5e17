package bench

import (
	"encoding/json"
	"fmt"
	"slices"

	"github.com/hopfeed/hopfeed/internal/units"
	"github.com/hopfeed/hopfeed/loader"
	"github.com/hopfeed/hopfeed/placement"
	"github.com/hopfeed/hopfeed/tools/chart"
)

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

// Work describes in words what was measured.
func (a *Ablation) Work() string {
	return fmt.Sprintf("%s: training on %d rows of %d features (%s), without validation; batches of %d rows, chunks "+
		"of %d",
		a.Dataset, a.Rows, a.Features, a.DType, a.BatchRows, a.ChunkRows)
}

// on describes the machine.
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

// memoryColors are the colours of placements.
var memoryColors = map[loader.Placement]string{loader.Host: chart.Blue, loader.Device: chart.Green,
	loader.Storage: chart.Orange}

// bars draws a figure with a bar for each way, named by name.
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

// eachModel adds a plot for each model, with a row for each of its bars.
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

// hopsText is "2, 3 and 4 hops".
func hopsText(hops []int) string {
	hops = slices.Sorted(slices.Values(hops))
	text := units.Count(int64(hops[len(hops)-1]), "hop")
	for i, h := range slices.Backward(hops[:len(hops)-1]) {
		text = fmt.Sprint(h, map[bool]string{true: " and ", false: ", "}[i == len(hops)-2], text)
	}
	return text
}
