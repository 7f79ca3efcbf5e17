package bench

import (
	"bytes"
	"image/color"
	"slices"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/text"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
	"gonum.org/v1/plot/vg/vgimg"
	"gonum.org/v1/plot/vg/vgsvg"
)

// figure is one or more bar charts, one below the other.
type figure struct {
	title  string
	notes  []string // lines below the title
	layers []layer  // of each bar, from the bottom, and in the order of the legend
	charts []barChart
}

// layer is the name and colour of one of the values that are stacked in a bar.
type layer struct {
	name  string
	color color.Color
}

type barChart struct {
	title string
	yAxis string
	bars  []bar
}

// bar is a stack of values, in the order of the figure's layers.
type bar struct {
	name   string // may have several lines
	label  string // above it
	values []float64
	apart  bool // with a gap to the bar before
}

// Sizes in a chart.
const (
	chartWidth  = 7.5 * vg.Inch
	chartHeight = 2.3 * vg.Inch
	margin      = vg.Length(10)
	line        = vg.Length(14) // of text
	dotsPerInch = 160           // of a PNG
)

// size is the size of the whole chart.
func (c *figure) size() (width, height vg.Length) {
	return chartWidth, 2*margin + vg.Length(2+len(c.notes))*line + line/2 + vg.Length(len(c.charts))*chartHeight
}

func (c *figure) svg() ([]byte, error) {
	canvas := vgsvg.New(c.size())
	c.draw(draw.New(canvas))
	var out bytes.Buffer
	_, err := canvas.WriteTo(&out)
	// Fonts with the same widths, for viewers without Liberation Sans.
	return bytes.ReplaceAll(out.Bytes(), []byte("Liberation Sans"), []byte("Liberation Sans,Arial,Helvetica,sans-serif")), err
}

func (c *figure) png() ([]byte, error) {
	width, height := c.size()
	canvas := vgimg.PngCanvas{Canvas: vgimg.NewWith(vgimg.UseWH(width, height), vgimg.UseDPI(dotsPerInch))}
	c.draw(draw.New(canvas))
	var out bytes.Buffer
	_, err := canvas.WriteTo(&out)
	return out.Bytes(), err
}

func (c *figure) draw(dc draw.Canvas) {
	dc.SetColor(color.White)
	dc.Fill(dc.Rectangle.Path())
	dc = draw.Crop(dc, margin, -margin, margin, -margin)
	// next takes a strip off the top of the canvas.
	next := func(height vg.Length) draw.Canvas {
		strip := dc
		dc.Max.Y -= height
		strip.Min.Y = dc.Max.Y
		return strip
	}
	write := func(s string, style text.Style) {
		strip := next(line)
		dc.FillText(style, vg.Point{X: strip.Min.X, Y: strip.Max.Y}, s)
	}
	write(c.title, sans(11))
	for _, note := range c.notes {
		write(note, sans(8.5))
	}
	next(line / 2)
	c.legend(next(line))
	for _, p := range c.charts {
		p.draw(draw.Crop(next(chartHeight), 0, 0, 0, -margin), c.layers)
	}
}

// legend draws a line with the names and colours of all layers.
func (c *figure) legend(dc draw.Canvas) {
	x, style := dc.Min.X, sans(8.5)
	for _, p := range c.layers {
		const side = 9
		dc.FillPolygon(p.color, rectangle(x, dc.Max.Y-side, x+side, dc.Max.Y))
		dc.FillText(style, vg.Point{X: x + side + 4, Y: dc.Max.Y}, p.name)
		x += side + 4 + style.Width(p.name) + 28 // enough where a viewer's font is wider
	}
}

func (p *barChart) draw(dc draw.Canvas, layers []layer) {
	at := p.places()
	plt := plot.New()
	plt.Title.Text, plt.Title.Padding, plt.Title.TextStyle.Font = p.title, 6, sans(9.5).Font
	plt.Y.Label.Text, plt.Y.Label.TextStyle.Font = p.yAxis, sans(8.5).Font
	plt.Y.Tick.Label.Font, plt.X.Tick.Label.Font = sans(8).Font, sans(8).Font
	plt.X.Tick.Color, plt.X.Tick.Length, plt.X.Padding = color.White, 3, 0
	plt.X.Min, plt.X.Max, plt.Y.Min, plt.Y.Max = -0.7, 0.7, 0, 0
	var ticks []plot.Tick
	for i, b := range p.bars {
		ticks = append(ticks, plot.Tick{Value: at[i], Label: b.name})
		plt.X.Max = max(plt.X.Max, at[i]+0.7)
		plt.Y.Max = max(plt.Y.Max, sum(b.values))
	}
	plt.X.Tick.Marker = plot.ConstantTicks(ticks)
	plt.Y.Max *= 1.2 // room for labels
	plt.Add(&stacks{p.bars, at, layers})
	plt.Draw(dc)
}

// places are the x coordinates of the bars: at distance 1, and more where there is a gap.
func (p *barChart) places() []float64 {
	at := make([]float64, len(p.bars))
	for i := 1; i < len(at); i++ {
		at[i] = at[i-1] + 1
		if p.bars[i].apart {
			at[i] += 0.5
		}
	}
	return at
}

// stacks draws bars at places.
type stacks struct {
	bars   []bar
	at     []float64
	layers []layer
}

func (s *stacks) Plot(dc draw.Canvas, plt *plot.Plot) {
	x, y := plt.Transforms(&dc)
	style := sans(8)
	style.XAlign, style.YAlign = draw.XCenter, draw.YBottom
	for i, b := range s.bars {
		from := 0.0
		for k, v := range b.values {
			if v == 0 {
				continue
			}
			dc.FillPolygon(s.layers[k].color, rectangle(x(s.at[i]-0.4), y(from), x(s.at[i]+0.4), y(from+v)))
			from += v
		}
		dc.FillText(style, vg.Point{X: x(s.at[i]), Y: y(from) + 2}, b.label)
	}
}

func rectangle(x0, y0, x1, y1 vg.Length) []vg.Point {
	return []vg.Point{{X: x0, Y: y0}, {X: x1, Y: y0}, {X: x1, Y: y1}, {X: x0, Y: y1}}
}

// sans is a text style of a size in points.
func sans(points vg.Length) text.Style {
	font := plot.DefaultFont
	font.Variant, font.Size = "Sans", points
	return text.Style{Color: color.Black, Font: font, YAlign: draw.YTop, Handler: plot.DefaultTextHandler}
}

func sum(values []float64) (s float64) {
	for _, v := range values {
		s += v
	}
	return s
}

// in returns values with 0 for every layer but i.
func (c *figure) in(name string, value float64) []float64 {
	values := make([]float64, len(c.layers))
	values[slices.IndexFunc(c.layers, func(p layer) bool { return p.name == name })] = value
	return values
}
