package bench

import (
	"encoding/json"
	"fmt"
	"image/color"
	"slices"
	"strings"

	"github.com/hopfeed/hopfeed/loader"
	"github.com/hopfeed/hopfeed/placement"
)

// AblationFiles lists the names of the files that Files makes, in its order.
func AblationFiles() []string {
	return []string{"figure-5.svg", "figure-5.png", "figure-9.svg", "figure-9.png", "figure-14.svg", "figure-14.png", "ablation.json"}
}

// Files makes the charts, and a JSON file with all numbers.
func (a *Ablation) Files() ([][]byte, error) {
	var files [][]byte
	for _, c := range []*figure{a.chart5(), a.chart9(), a.chart14()} {
		svg, err := c.svg()
		if err != nil {
			return nil, err
		}
		png, err := c.png()
		if err != nil {
			return nil, err
		}
		files = append(files, svg, png)
	}
	text, err := json.MarshalIndent(a, "", "  ")
	return append(files, append(text, '\n')), err
}

var (
	blue, green  = color.RGBA{0x4c, 0x78, 0xa8, 0xff}, color.RGBA{0x54, 0xa2, 0x4b, 0xff}
	orange, red  = color.RGBA{0xf5, 0x85, 0x18, 0xff}, color.RGBA{0xe4, 0x57, 0x56, 0xff}
	cyan, violet = color.RGBA{0x72, 0xb7, 0xb2, 0xff}, color.RGBA{0xb2, 0x79, 0xa2, 0xff}
)

// Work describes in words what was measured.
func (a *Ablation) Work() string {
	return fmt.Sprintf("%s: training on %d rows of %d features (%s), without validation; batches of %d rows, chunks of %d",
		a.Dataset, a.Rows, a.Features, a.DType, a.BatchRows, a.ChunkRows)
}

// on describes the machine.
func (a *Ablation) on() string {
	if a.OneMemory {
		return a.Machine + ", whose device and host memory are one"
	}
	return a.Machine
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
	return fmt.Sprintf("epoch times as multiples of that of %s (%s) from %s, geometric means over hops", w.Variant, w.Shuffle, memories[w.Placement])
}

// chart9 draws Figure 9, with the bars of each placement.
func (a *Ablation) chart9() *figure {
	return a.bars("Ablation: ways to load (preprop-gnn Figure 9)", &a.Figure9, func(w Way) string { return w.Variant })
}

// chart14 draws Figure 14.
func (a *Ablation) chart14() *figure {
	return a.bars("Placement: where the input lives, what is reshuffled (preprop-gnn Figure 14)", &a.Figure14, func(w Way) string {
		return map[string]string{placement.RR: "rows (SGD-RR)", placement.CR: "chunks (SGD-CR)"}[w.Shuffle]
	})
}

func (a *Ablation) bars(title string, f *AblationFigure, name func(Way) string) *figure {
	c := &figure{title: title, notes: []string{a.Work(), a.On(), f.About()}, layers: []layer{
		{memories[loader.Host], blue}, {memories[loader.Device], green}, {memories[loader.Storage], orange},
	}}
	for _, model := range a.models() {
		p := barChart{title: fmt.Sprintf("%s, %s", model, hopsText(a.hops(model))), yAxis: "epoch time, normalised"}
		var before Way
		for _, b := range f.Bars {
			if b.Model == model {
				p.bars = append(p.bars, bar{name(b.Way), fmt.Sprintf("%.2f", b.Normalized), c.in(memories[b.Placement], b.Normalized), b.Placement != before.Placement})
				before = b.Way
			}
		}
		c.charts = append(c.charts, p)
	}
	return c
}

// steps are the steps of an epoch, in order.
var steps = []string{"load", "forward", "backward", "optimizer"}

// chart5 draws Figure 5, the steps of an epoch, for every way of Figure 9.
func (a *Ablation) chart5() *figure {
	c := &figure{title: "What an epoch of training waits for (preprop-gnn Figure 5)", layers: []layer{
		{"loading that is not hidden", red}, {"forward pass", blue}, {"backward pass", cyan}, {"optimizer", violet},
	}, notes: []string{a.Work(), a.on(),
		fmt.Sprintf("medians of %d epochs whose steps are waited for one by one, means over hops; above bars, the share of loading", a.Rounds)}}
	for _, model := range a.models() {
		p := barChart{title: fmt.Sprintf("%s, %s", model, hopsText(a.hops(model))), yAxis: "seconds an epoch"}
		var before Way
		for _, b := range a.Figure9.Bars {
			if b.Model != model {
				continue
			}
			values := make([]float64, len(steps))
			for _, r := range a.Results {
				if r.Model == model && r.Way == b.Way {
					for i, step := range steps {
						values[i] += r.StepSeconds[step] / float64(len(a.hops(model)))
					}
				}
			}
			p.bars = append(p.bars, bar{
				b.Variant + "\n" + string(b.Placement), fmt.Sprintf("%.0f %%", 100*values[0]/sum(values)), values, b.Placement != before.Placement,
			})
			before = b.Way
		}
		c.charts = append(c.charts, p)
	}
	return c
}

// hopsText is "2, 3 and 4 hops".
func hopsText(hops []int) string {
	var words []string
	for _, h := range slices.Sorted(slices.Values(hops)) {
		words = append(words, fmt.Sprint(h))
	}
	text := strings.Join(words, ", ")
	if at := strings.LastIndex(text, ", "); at >= 0 {
		text = text[:at] + " and " + text[at+2:]
	}
	if text == "1" {
		return "1 hop"
	}
	return text + " hops"
}
