package chart

import (
	"encoding/xml"
	"errors"
	"fmt"
	"io"
	"math"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
)

const longName = "a-very-long-folder/with-another-in-it/and-a-run-of-a-long-name"

// samples has plots of each kind, from empty to crowded.
func samples() map[string]*Figure {
	names := []string{"first", longName, "x", "图神经网络训练图神经网络训练", "y", "runs/z"}
	var keys []Key
	curves := &XY{X: Axis{Name: "epoch", Whole: true}, Y: Axis{Name: "loss", Log: true}}
	scatter := &XY{X: Axis{Name: "an epoch of training (ms)", Log: true}, Y: Axis{Name: "accuracy (%)"}}
	bars := &Rows{Title: "bars", Notes: []string{strings.Repeat("a long note ", 12)}, X: Axis{Name: "time (s)"}}
	seeds := &Rows{X: Axis{Name: "accuracy (%)"}, From: 70, To: 90}
	lanes := &Rows{X: Axis{Name: "time (s)"}, To: 2, Cut: true}
	for i, name := range names {
		color, v := Color(i), float64(i)
		keys = append(keys, Key{Name: name, Color: color, Pale: i == 1})
		line := Line{Color: color}
		lane := Row{Name: fmt.Sprintf("worker %d", i+1), Lane: true}
		for e := range 40 {
			y := 1000 * math.Pow(0.8, float64(e)+v)
			line.X, line.Y = append(line.X, float64(e+1)), append(line.Y, y)
			line.Low, line.High = append(line.Low, y/1.2), append(line.High, y*1.2)
			at := float64(e) / 10
			lane.Bars = append(lane.Bars, Bar{From: at, To: at + 0.09, Color: color, Text: fmt.Sprint(e),
				About: "<batch>"})
		}
		curves.Lines = append(curves.Lines, line)
		curves.Points = append(curves.Points, Point{X: 40, Y: line.Y[39], Color: color})
		scatter.Points = append(scatter.Points, Point{X: 3 * math.Pow(7, v), Y: 80 + v/2, Spread: v / 3, Color: color,
			Mark: Mark(i % 4), Name: name, About: name})
		mean := 80 + v
		bars.Rows = append(bars.Rows, Row{Name: name, Label: "221 KiB (6.48 ×), 13 % cached",
			Bars: Stack(Stack(nil, v, Red), 2, Blue), Apart: i%2 == 0})
		seeds.Rows = append(seeds.Rows, Row{Name: name, Label: "81.00 ± 1.00 %", Color: color,
			Rings: []float64{mean - 2, mean, mean + 2}, Mean: &mean,
			Bars: []Bar{{From: mean - 1, To: mean + 1, Color: color, Pale: true}}})
		lanes.Rows = append(lanes.Rows, lane)
	}
	scatter.Lines = []Line{{Color: Grey, X: []float64{3, 147, 50421}, Y: []float64{80, 81, 82.5}, Dashed: true}}
	one := &XY{X: Axis{Name: "epoch"}, Y: Axis{Name: "loss"}, Points: []Point{{X: 3, Y: 7, Name: "one"}}}
	return map[string]*Figure{
		"curves":  {Title: "Curves <1>", Keys: keys, Plots: []Plot{curves}},
		"scatter": {Title: "Scatter", Notes: []string{"a & b", longName}, Keys: keys, Plots: []Plot{scatter}},
		"rows":    {Title: "Rows of " + longName, Plots: []Plot{bars, seeds}},
		"lanes":   {Title: "Lanes", Keys: keys, Plots: []Plot{lanes}},
		"one":     {Plots: []Plot{one}},
		"empty":   {Title: "nothing", Plots: []Plot{&Rows{X: Axis{Name: "time (s)"}}}},
	}
}

var svgPattern = regexp.MustCompile(`(?s)<svg [^>]*viewBox="(\S+) \S+ (\S+) (\S+)".*?</svg>`)

// number is an attribute of an element.
func number(t *testing.T, e xml.StartElement, name string) float64 {
	t.Helper()
	v, err := strconv.ParseFloat(attribute(e, name), 64)
	if err != nil {
		t.Fatalf("%v of %+v: %v", name, e, err)
	}
	return v
}

func attribute(e xml.StartElement, name string) string {
	at := slices.IndexFunc(e.Attr, func(a xml.Attr) bool { return a.Name.Local == name })
	if at < 0 {
		return ""
	}
	return e.Attr[at].Value
}

// drawn are the texts and marks of a drawing, and what is written inside marks.
func drawn(t *testing.T, svg string) (texts, inside, marks []box) {
	t.Helper()
	var text xml.StartElement
	for d := xml.NewDecoder(strings.NewReader(svg)); ; {
		token, err := d.Token()
		if errors.Is(err, io.EOF) {
			return texts, inside, marks
		}
		if err != nil {
			t.Fatalf("%v in %s", err, svg)
		}
		switch token := token.(type) {
		case xml.StartElement:
			text = xml.StartElement{}
			switch mark := attribute(token, "class") == "mark"; {
			case token.Name.Local == "text":
				text = token
			case token.Name.Local == "rect" && (mark || attribute(token, "rx") != ""):
				x, y := number(t, token, "x"), number(t, token, "y")
				marks = append(marks, box{x, y, x + number(t, token, "width"), y + number(t, token, "height")})
			case token.Name.Local == "circle":
				x, y, r := number(t, token, "cx"), number(t, token, "cy"), number(t, token, "r")
				marks = append(marks, box{x - r, y - r, x + r, y + r})
			}
		case xml.EndElement:
			text = xml.StartElement{}
		case xml.CharData:
			if text.Name.Local == "" {
				continue
			}
			// a little less than it is
			x, y, long := number(t, text, "x"), number(t, text, "y"), 5.5*float64(columns(string(token)))
			switch attribute(text, "text-anchor") {
			case "end":
				x -= long
			case "middle":
				x -= long / 2
			}
			b := box{x, y - 9, x + long, y}
			if attribute(text, "class") == "inside" {
				inside = append(inside, b)
			} else {
				texts = append(texts, b)
			}
		}
	}
}

// Every figure is drawn in each width, unscaled, with all marks and texts within it and no text over another or over a
// mark, but for the numbers inside bars. Text is 12 pixels high, and on a screen of 400 pixels at least 11.
func TestNothingIsCoveredInAnyWidth(t *testing.T) {
	for name, f := range samples() {
		page, file := string(f.HTML()), string(f.File())
		all := svgPattern.FindAllStringSubmatch(page, -1)
		if len(all) != len(widths) {
			t.Fatalf("%s: %d drawings", name, len(all))
		}
		for i, svg := range append(all, svgPattern.FindStringSubmatch(file)) {
			left, _ := strconv.ParseFloat(svg[1], 64)
			width, _ := strconv.ParseFloat(svg[2], 64)
			height, _ := strconv.ParseFloat(svg[3], 64)
			if i < len(widths) && (width != widths[i] ||
				!strings.Contains(svg[0], fmt.Sprintf(`width="%.0f"`, widths[i]))) {
				t.Errorf("%s: drawing %d is %v wide", name, i, width)
			}
			within := box{left - 1, left - 1, left + width + 1, left + height + 1}
			texts, inside, marks := drawn(t, svg[0])
			for k, b := range slices.Concat(texts, marks, inside) {
				if b.left < within.left || b.right > within.right || b.top < within.top || b.bottom > within.bottom {
					t.Errorf("%s, %v wide: %d of %d texts and %d marks, %v, is outside of %v", name, width, k,
						len(texts), len(marks), b, within)
				}
			}
			for k, b := range texts {
				for _, other := range slices.Concat(texts[:k], marks) {
					if b.overlaps(other) {
						t.Errorf("%s, %v wide: text at %v covers %v", name, width, b, other)
					}
				}
			}
			for _, b := range inside {
				if !slices.ContainsFunc(marks, func(m box) bool {
					return b.left >= m.left && b.right <= m.right && b.top >= m.top && b.bottom <= m.bottom
				}) {
					t.Errorf("%s, %v wide: text at %v leaves its bar", name, width, b)
				}
			}
		}
		if found := regexp.MustCompile(`NaN|Inf|%!|src=|url\(|<script`).FindString(page + file); found != "" {
			t.Errorf("%s has %q", name, found)
		}
	}
	if height := 12 * 400.0 / fileWidth; height < 11 || widths[len(widths)-1] > 400-2*20 {
		t.Errorf("text of %v pixels on a phone", height)
	}
	for _, s := range []string{look, style} {
		if !strings.Contains(s, "prefers-color-scheme: dark") || !strings.Contains(s, "font: 12px") {
			t.Errorf("%s", s)
		}
	}
	for _, w := range widths {
		if !strings.Contains(style, fmt.Sprintf("svg.w%.0f { display: block; }", w)) {
			t.Errorf("no rule shows a drawing of %v pixels", w)
		}
	}
}

// Bars and lanes lie where the axis says, worked by hand: 2 of 8 at a quarter of the way.
func TestBarsAreAsLongAsTheirValues(t *testing.T) {
	p := &Rows{X: Axis{Name: "s"}, Rows: []Row{{Name: "a", Bars: Stack(Stack(nil, 2, Red), 6, Blue)},
		{Name: "b", Bars: Stack(nil, 4, Red)}}}
	_, _, marks := drawn(t, svgPattern.FindString(string((&Figure{Plots: []Plot{p}}).HTML())))
	whole := marks[1].right - marks[0].left
	for i, want := range []box{{left: 0, right: 0.25}, {left: 0.25, right: 1}, {left: 0, right: 0.5}} {
		from, to := (marks[i].left-marks[0].left)/whole, (marks[i].right-marks[0].left)/whole
		if math.Abs(from-want.left)+math.Abs(to-want.right) > 1e-4 {
			t.Errorf("bar %d goes from %v to %v, want %v to %v", i, from, to, want.left, want.right)
		}
	}
	p.To, p.Cut = 4, true
	_, _, marks = drawn(t, svgPattern.FindString(string((&Figure{Plots: []Plot{p}}).HTML())))
	if len(marks) != 3 || marks[1].right != marks[2].right ||
		marks[1].right-marks[1].left != marks[0].right-marks[0].left {
		t.Errorf("cut at 4: %v", marks)
	}
}

func TestTicksAreRoundAndWithinTheRange(t *testing.T) {
	for _, e := range []extent{{0, 1}, {0.283, 0.806}, {-3, 7000}, {5, 5}, {1e-9, 2e-9}, {1, 40}, {1e5, 1e5 + 1}} {
		ticks := (&Axis{}).ticks(e, 6)
		slack := 1e-9 * math.Abs(e.high)
		if n := len(ticks); n > 7 || n < 2 && e.low < e.high || ticks[0] < e.low-slack || ticks[n-1] > e.high+slack {
			t.Errorf("%v: %v", e, ticks)
		}
	}
	for _, e := range []extent{{0.003, 2}, {1e-12, 5}, {1, 11}, {20, 90}} {
		if ticks := (&Axis{Log: true}).ticks(e, 6); len(ticks) < 3 || len(ticks) > 15 {
			t.Errorf("%v: %v", e, ticks)
		}
	}
	if ticks := (&Axis{Whole: true}).ticks(extent{1, 3}, 10); !slices.Equal(ticks, []float64{1, 2, 3}) {
		t.Errorf("of three epochs: %v", ticks)
	}
}

func TestNamesOfEastAsiaHaveRoom(t *testing.T) {
	for _, c := range []struct {
		text, short string
		width       float64
	}{
		{"short", "short", 5 * charWidth},
		{"a long name of a run", "… of a run", 10 * charWidth},
		{"图神经网络", "图神经网络", 10 * charWidth},
		{"图神经网络训练", "…网络训练", 9 * charWidth},
	} {
		if got := Shorten(c.text, 10); got != c.short || textWidth(got) != c.width {
			t.Errorf("%s is shortened to %s, %.0f pixels wide; want %s, %.0f", c.text, got, textWidth(got), c.short,
				c.width)
		}
	}
}

// Points near one another, on a line that leaves little room, all have a label.
func TestLabelsOfPointsThatAreNearFindRoom(t *testing.T) {
	points := []Point{{X: 0.0015, Y: 73, Name: "SGC"}, {X: 0.061, Y: 82.6, Name: "SIGN"}, {X: 0.12, Y: 82, Name: "HOGA"},
		{X: 0.225, Y: 80.5, Name: "SAGE-LABOR"}, {X: 0.296, Y: 81.5, Name: "SAGE-neighbor"}, {X: 1.14, Y: 83,
			Name: "GAT-neighbor"}}
	xy := &XY{X: Axis{Log: true}, Lines: []Line{{X: []float64{0.0015, 0.061, 1.14}, Y: []float64{73, 82.6, 83}}},
		Points: points}
	file := string((&Figure{Title: "t", Plots: []Plot{xy}}).File())
	for _, p := range points {
		if strings.Count(file, ">"+p.Name+"</text>") != 1 {
			t.Errorf("%s has no label", p.Name)
		}
	}
}
