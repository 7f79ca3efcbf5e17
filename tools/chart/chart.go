// Package chart draws figures as SVG in one look, for reports, benchmarks, searches and timelines. A figure follows
// the reader's light or dark setting and needs no other file. All sizes are in pixels; text is 12 pixels high.
package chart

import (
	"fmt"
	"html/template"
	"strings"
	"unicode"
	"unicode/utf8"
)

// Figure is plots below each other under one title and one legend.
type Figure struct {
	Title string
	Notes []string // paragraphs below the title
	Keys  []Key    // the legend
	Plots []Plot
}

// Key is an entry of a legend.
type Key struct {
	Name, Color string
	Pale        bool
}

// Plot is an XY or Rows.
type Plot interface {
	// draw adds the plot below y and returns where it ends.
	draw(c *canvas, y float64) (end float64)
}

// The colours of Okabe and Ito, which most colour-blind readers tell apart, with grey for black: they show on light
// and on dark pages.
const (
	Blue   = "#0072b2"
	Red    = "#d55e00"
	Green  = "#009e73"
	Purple = "#cc79a7"
	Orange = "#e69f00"
	Sky    = "#56b4e9"
	Grey   = "#888888"
	Olive  = "#8a8a00"
)

var series = []string{Blue, Red, Green, Purple, Orange, Sky, Grey, Olive}

// Color is the colour of the i-th of several series.
func Color(i int) string { return series[i%len(series)] }

// TimeUnit is the unit in which the longest of some times has few digits, and its seconds.
func TimeUnit(longest float64) (unit string, seconds float64) {
	switch {
	case longest >= 7200:
		return "h", 3600
	case longest >= 120:
		return "min", 60
	case longest >= 1:
		return "s", 1
	}
	return "ms", 0.001
}

// Widths of the drawings in HTML. The page shows the widest that fits, unscaled, so text has the same size on all
// screens. style has the same widths.
var widths = []float64{900, 600, 360}

// fileWidth is the width of a drawing of its own. On a phone of 400 pixels its text is 11 pixels high.
const fileWidth = 430

// Sizes.
const (
	lineHeight  = 17.0
	titleHeight = 21.0
	charWidth   = 7.0 // of a character, at most
	// capitalWidth is how much wider a capital is.
	capitalWidth = 1.5
	tickLength   = 4.0
)

// look is the style of a drawing. Viewers without media queries see the light one.
const look = `svg text { font: 12px system-ui, "Segoe UI", Roboto, Arial, sans-serif; fill: #1a1a1a; stroke: #fff;
  stroke-width: 3px; stroke-linejoin: round; paint-order: stroke; }
svg .title { font-size: 14px; font-weight: 600; }
svg .plot { font-weight: 600; }
svg .note { fill: #555; font-size: 12px; }
svg .inside { fill: #000; stroke: none; }
svg .page { fill: #fff; }
svg .lane { fill: #f1f1f1; }
svg .grid { stroke: #e4e4e4; }
svg .axis { stroke: #888; }
svg .curve { fill: none; stroke-width: 1.8; stroke-linejoin: round; }
@media (prefers-color-scheme: dark) {
  svg text { fill: #e8e8e8; stroke: #16181c; }
  svg .note { fill: #aaa; }
  svg .inside { fill: #000; stroke: none; }
  svg .page { fill: #16181c; }
  svg .lane { fill: #25282e; }
  svg .grid { stroke: #33363c; }
}
`

const style = `
:root { color-scheme: light dark; --ink: #1a1a1a; --soft: #555; --page: #fff; --rule: #e4e4e4; }
@media (prefers-color-scheme: dark) { :root { --ink: #e8e8e8; --soft: #aaa; --page: #16181c; --rule: #33363c; } }
body { font: 15px/1.45 system-ui, "Segoe UI", Roboto, "Helvetica Neue", Arial, sans-serif; color: var(--ink);
  background: var(--page); max-width: 900px; margin: 2em auto; padding: 0 20px; overflow-wrap: break-word; }
h1 { font-size: 1.5em; margin-bottom: 0; }
h2 { font-size: 1.15em; margin: 2em 0 .5em; }
p { margin: .4em 0; max-width: 75ch; }
.note { color: var(--soft); font-size: .9em; }
.scroll { overflow-x: auto; }
table { border-collapse: collapse; font-size: .88em; font-variant-numeric: tabular-nums; }
th, td { padding: 4px 14px 4px 0; text-align: left; vertical-align: top; border-bottom: 1px solid var(--rule); }
th { font-weight: 600; white-space: nowrap; }
td.n, th.n { text-align: right; white-space: nowrap; }
td:first-child:not(.n) { min-width: 9em; }
tr.chosen td { font-weight: 600; }
.swatch { display: inline-block; width: 11px; height: 11px; margin-right: 6px; border-radius: 2px; }
details { margin: .8em 0; }
summary { cursor: pointer; }
figure { margin: .8em 0 1.2em; }
svg { display: none; max-width: 100%; height: auto; }
svg.w900 { display: block; }
@media (max-width: 939px) { svg.w900 { display: none; } svg.w600 { display: block; } }
@media (max-width: 639px) { svg.w600 { display: none; } svg.w360 { display: block; } }
@media print { body { margin: 0; max-width: none; } }
` + look

// HTML returns the figure for a page that has style.
func (f *Figure) HTML() template.HTML {
	var page strings.Builder
	page.WriteString("<figure>")
	for _, width := range widths {
		body, height := f.draw(width)
		fmt.Fprintf(&page,
			`<svg class="w%.0f" width="%.0f" viewBox="0 0 %.0f %.0f" role="img" aria-label="%s">`+"\n%s</svg>\n",
			width, width, width, height, template.HTMLEscapeString(f.Title), body)
	}
	page.WriteString("</figure>")
	return template.HTML(page.String())
}

// File returns the figure as a file.
func (f *Figure) File() []byte {
	const margin = 12
	body, height := f.draw(fileWidth - 2*margin)
	return fmt.Appendf(nil, `<svg xmlns="http://www.w3.org/2000/svg" width="%[1]d" height="%.0[3]f"
  viewBox="-%[2]d -%[2]d %[1]d %.0[3]f" role="img" aria-label="%[4]s">
<style>
svg { max-width: 100%%; height: auto; color-scheme: light dark; }
%[5]s</style>
<rect class="page" x="-%[2]d" y="-%[2]d" width="100%%" height="100%%"/>
%[6]s</svg>
`, fileWidth, margin, height+2*margin, template.HTMLEscapeString(f.Title), look, body)
}

// draw returns the elements of the figure in a width.
func (f *Figure) draw(width float64) (body string, height float64) {
	c := &canvas{width: width}
	y := c.paragraph(0, "title", titleHeight, f.Title)
	for _, note := range f.Notes {
		y = c.paragraph(y, "note", lineHeight, note)
	}
	y = c.legend(y, f.Keys)
	for _, p := range f.Plots {
		if rows, ok := p.(*Rows); ok {
			rows.reserve(c)
		}
	}
	for _, p := range f.Plots {
		y = p.draw(c, y+6)
	}
	return c.String(), y
}

type canvas struct {
	strings.Builder
	width               float64
	nameRoom, labelRoom float64 // beside the bars of all Rows, so that these are aligned
}

func (c *canvas) add(format string, args ...any) { fmt.Fprintf(&c.Builder, format+"\n", args...) }

// text adds a line of text. Anchor is start, middle or end; y is its base line.
func (c *canvas) text(x, y float64, anchor, class, text string) {
	if text == "" {
		return
	}
	if class != "" {
		class = ` class="` + class + `"`
	}
	c.add(`<text x="%.1f" y="%.1f" text-anchor="%s"%s>%s</text>`, x, y, anchor, class, template.HTMLEscapeString(text))
}

// title is a tooltip.
func title(about string) string {
	if about == "" {
		return ""
	}
	return "<title>" + template.HTMLEscapeString(about) + "</title>"
}

// paragraph adds text in as many lines as it needs and returns the y below.
func (c *canvas) paragraph(y float64, class string, height float64, text string) float64 {
	most := int(c.width / charWidth)
	if class == "title" {
		most = int(c.width / (charWidth * 14 / 12))
	}
	line := ""
	flush := func() {
		if line != "" {
			y += height
			c.text(0, y-5, "start", class, Shorten(line, most))
		}
	}
	for _, word := range strings.Fields(text) {
		if line != "" && columns(line)+1+columns(word) > most {
			flush()
			line = ""
		}
		line = strings.TrimSpace(line + " " + word)
	}
	flush()
	return y
}

func (c *canvas) legend(y float64, keys []Key) float64 {
	const side, gap = 11.0, 18.0
	x := 0.0
	for i, k := range keys {
		name := Shorten(k.Name, int((c.width-side-6)/charWidth))
		width := side + 6 + textWidth(name)
		if i == 0 || x+width > c.width {
			x, y = 0, y+lineHeight+3
		}
		c.add(`<rect x="%.1f" y="%.1f" width="%.0f" height="%.0f" rx="2" fill="%s"%s/>`, x, y-14, side, side, k.Color,
			paleness(k.Pale))
		c.text(x+side+6, y-5, "start", "", name)
		x += width + gap
	}
	return y
}

func paleness(pale bool) string {
	if pale {
		return ` fill-opacity="0.4"`
	}
	return ""
}

func textWidth(text string) float64 {
	capitals := 0
	for _, r := range text {
		if unicode.IsUpper(r) {
			capitals++
		}
	}
	return charWidth*float64(columns(text)) + capitalWidth*float64(capitals)
}

// columns is the width of a text in characters. A character of East Asia or a picture counts two.
func columns(text string) (n int) {
	for _, r := range text {
		if n++; r >= 0x1100 && r < 0x1160 || r >= 0x2e80 {
			n++
		}
	}
	return n
}

// Shorten keeps the end of a text that is wider than most columns, at least 1.
func Shorten(text string, most int) string {
	if columns(text) <= most {
		return text
	}
	for columns(text) >= most {
		_, first := utf8.DecodeRuneInString(text)
		text = text[first:]
	}
	return "…" + text
}

// box is a rectangle that a label must not cover.
type box struct{ left, top, right, bottom float64 }

func (b box) overlaps(other box) bool {
	return b.left < other.right && b.right > other.left && b.top < other.bottom && b.bottom > other.top
}
