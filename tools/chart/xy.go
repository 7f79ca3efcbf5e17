package chart

import (
	"fmt"
	"math"
	"slices"
	"strings"
)

// XY shows lines and points against two axes.
type XY struct {
	Title  string
	X, Y   Axis
	Lines  []Line
	Points []Point
}

// Line joins points, in the order of X.
type Line struct {
	Color     string
	X, Y      []float64
	Low, High []float64 // a band around the line; nil: none
	Dashed    bool
}

// Point is a mark.
type Point struct {
	X, Y, Spread float64 // Spread: half the length of an error bar
	Color        string
	Mark         Mark
	Name         string // written beside the mark where there is room
	About        string // a tooltip
}

// Mark is the shape of a point.
type Mark int

// The marks.
const (
	Dot Mark = iota
	Ring
	Square
	Cross
)

const (
	xyHeight = 260.0 // between the axes
	inset    = 9.0   // between the data and the ends of an axis
	reach    = 7.0   // of a mark, from its middle
)

func (p *XY) draw(c *canvas, y float64) float64 {
	if p.Title != "" {
		y = c.paragraph(y, "plot", lineHeight, p.Title)
	}
	xs, ys := nothing(), nothing()
	for _, l := range p.Lines {
		xs.include(l.X...)
		ys.include(l.Y...)
		ys.include(l.Low...)
		ys.include(l.High...)
	}
	for _, o := range p.Points {
		xs.include(o.X)
		ys.include(o.Y-o.Spread, o.Y+o.Spread)
	}
	y = c.paragraph(y, "note", lineHeight, p.Y.Name)
	ticks := p.Y.ticks(ys, 6)
	left := 0.0
	for _, t := range ticks {
		left = max(left, textWidth(p.Y.text(t))+8)
	}
	top, bottom, right := y, y+xyHeight, c.width-8
	atX, atY := p.X.place(xs, left+inset, right-inset), p.Y.place(ys, bottom-inset, top+inset)
	for _, t := range ticks {
		c.add(`<line x1="%.1f" x2="%.1f" y1="%.1f" y2="%.1f" class="grid"/>`, left, right, atY(t), atY(t))
		c.text(left-8, atY(t)+4, "end", "", p.Y.text(t))
	}
	c.drawXAxis(&p.X, bottom, left, right, p.X.ticks(xs, ticksIn(right-left)), atX)
	var lines, taken []box
	for _, l := range p.Lines {
		lines = append(lines, l.draw(c, atX, atY)...)
	}
	for _, o := range p.Points {
		taken = append(taken, o.draw(c, atX(o.X), atY(o.Y), atY(o.Y-o.Spread), atY(o.Y+o.Spread)))
	}
	within := box{left, top, right, bottom}
	for _, o := range p.Points {
		name := Shorten(o.Name, int(c.width/charWidth/2))
		if b, ok := findRoom(within, atX(o.X), atY(o.Y), textWidth(name), taken, lines); ok && name != "" {
			taken = append(taken, b)
			if b.right < atX(o.X) { // widths are estimates: the end near the point is exact
				c.text(b.right, b.bottom-3, "end", "", name)
			} else {
				c.text(b.left, b.bottom-3, "start", "", name)
			}
		}
	}
	return bottom + axisHeight
}

// draw adds the line and its band, and returns what it covers.
func (l *Line) draw(c *canvas, x, y func(float64) float64) (covered []box) {
	var line, there, back strings.Builder
	for i := range l.X {
		fmt.Fprintf(&line, "%.1f,%.1f ", x(l.X[i]), y(l.Y[i]))
		if i > 0 {
			covered = append(covered, alongLine(x(l.X[i-1]), y(l.Y[i-1]), x(l.X[i]), y(l.Y[i]))...)
		}
	}
	if l.Low != nil {
		for i := range l.X {
			j := len(l.X) - 1 - i
			fmt.Fprintf(&there, "%.1f,%.1f ", x(l.X[i]), y(l.High[i]))
			fmt.Fprintf(&back, "%.1f,%.1f ", x(l.X[j]), y(l.Low[j]))
		}
		c.add(`<polygon points="%s%s" fill="%s" fill-opacity="0.15"/>`, there.String(), back.String(), l.Color)
	}
	dash := ""
	if l.Dashed {
		dash = ` stroke-dasharray="5 4"`
	}
	c.add(`<polyline points="%s" stroke="%s"%s class="curve"/>`, line.String(), l.Color, dash)
	return covered
}

// draw adds the point and its error bar, and returns what it covers.
func (o *Point) draw(c *canvas, x, y, low, high float64) box {
	if o.Spread > 0 {
		c.add(`<line x1="%.1f" x2="%.1f" y1="%.1f" y2="%.1f" stroke="%s"/>`, x, x, low, high, o.Color)
	}
	switch about := title(o.About); o.Mark {
	case Dot:
		c.add(`<circle class="mark" cx="%.1f" cy="%.1f" r="5" fill="%s">%s</circle>`, x, y, o.Color, about)
	case Ring:
		c.add(`<circle class="mark" cx="%.1f" cy="%.1f" r="4" fill="none" stroke="%s" stroke-width="1.5">%s</circle>`,
			x, y, o.Color, about)
	case Square:
		c.add(`<rect class="mark" x="%.1f" y="%.1f" width="10" height="10" fill="%s">%s</rect>`, x-5, y-5, o.Color,
			about)
	case Cross:
		c.add(`<path class="mark" d="M%.1f %.1f l8 8 m0 -8 l-8 8" stroke="%s" stroke-width="1.5" fill="none">%s</path>`,
			x-4, y-4, o.Color, about)
	}
	return box{x - reach, min(y-reach, high), x + reach, max(y+reach, low)}
}

// alongLine are small boxes that cover a line.
func alongLine(x0, y0, x1, y1 float64) (boxes []box) {
	const step = 4.0
	n := math.Ceil(math.Hypot(x1-x0, y1-y0) / step)
	for i := 0.0; i <= n; i++ {
		x, y := x0+(x1-x0)*i/max(n, 1), y0+(y1-y0)*i/max(n, 1)
		boxes = append(boxes, box{x - 2, y - 2, x + 2, y + 2})
	}
	return boxes
}

// findRoom is where a label of this width beside a point covers nothing that is taken, nor a line if that can be.
func findRoom(within box, x, y, width float64, taken, lines []box) (box, bool) {
	const height, gap = 15.0, reach + 1
	for _, avoided := range [][]box{slices.Concat(taken, lines), taken} {
		for _, up := range []float64{height / 2, height + 6, -6, height + gap, -gap} {
			for _, from := range []float64{x + gap, x - gap - width, x - width/2, x - width/3} {
				b := box{from, y - up, from + width, y - up + height}
				if b.left >= within.left && b.right <= within.right && b.top >= within.top && b.bottom <= within.bottom &&
					!slices.ContainsFunc(avoided, b.overlaps) {
					return b, true
				}
			}
		}
	}
	return box{}, false
}
