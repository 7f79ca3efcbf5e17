package chart

// Rows shows rows of bars, intervals and marks above one horizontal axis, linear and from 0 unless From says otherwise.
type Rows struct {
	Title string
	Notes []string
	X     Axis
	From  float64
	To    float64 // at least; bars that go on are longer
	Cut   bool    // leave out what lies beyond To
	Rows  []Row
}

// Row is one line of Rows.
type Row struct {
	Name  string // beside the row, or above where there is no room
	Label string // behind the bars
	Apart bool   // with a gap to the row before
	Lane  bool   // on a background over the whole width
	Bars  []Bar
	Rings []float64
	Mean  *float64 // a line across the row; nil: none
	Color string   // of Rings and Mean
}

// Bar is an interval in a row.
type Bar struct {
	From, To float64
	Color    string
	Pale     bool
	Text     string // inside, where there is room
	About    string // a tooltip
}

// Stack returns a bar that begins where the others end.
func Stack(bars []Bar, length float64, color string) []Bar {
	from := 0.0
	if n := len(bars); n > 0 {
		from = bars[n-1].To
	}
	return append(bars, Bar{From: from, To: from + length, Color: color})
}

const (
	rowHeight = 17.0
	rowGap    = 5.0
	apartGap  = 9.0
)

// mostName is how many columns of a name fit beside a row.
func (c *canvas) mostName() int { return max(28, int(c.width/3/charWidth)) }

// reserve makes room for names and labels beside the bars.
func (p *Rows) reserve(c *canvas) {
	for _, r := range p.Rows {
		c.nameRoom = max(c.nameRoom, textWidth(Shorten(r.Name, c.mostName()))+8)
		c.labelRoom = max(c.labelRoom, textWidth(r.Label)+8)
	}
}

func (p *Rows) draw(c *canvas, y float64) float64 {
	if p.Title != "" {
		y = c.paragraph(y, "plot", lineHeight, p.Title)
	}
	for _, note := range p.Notes {
		y = c.paragraph(y, "note", lineHeight, note)
	}
	e := extent{p.From, max(p.From, p.To)}
	for _, r := range p.Rows {
		for _, b := range r.Bars {
			if !p.Cut {
				e.include(b.To)
			}
		}
		e.include(r.Rings...)
	}
	above := c.width-c.nameRoom-c.labelRoom < c.width*2/5
	left, right := c.nameRoom, c.width-max(c.labelRoom, 10)
	if above {
		left, right = 10, c.width-10
	}
	x := p.X.place(e, left, right)
	y += 3
	for i, r := range p.Rows {
		if r.Apart && i > 0 {
			y += apartGap
		}
		if above && r.Name+r.Label != "" {
			y += lineHeight
			c.text(c.width, y-5, "end", "", r.Label)
			c.text(0, y-5, "start", "", Shorten(r.Name, int((c.width-textWidth(r.Label))/charWidth)-2))
		} else {
			c.text(left-8, y+rowHeight-4, "end", "", Shorten(r.Name, c.mostName()))
		}
		if end := r.draw(c, y, left, right, e.high, x); !above {
			c.text(end+6, y+rowHeight-4, "start", "", r.Label)
		}
		y += rowHeight + rowGap
	}
	c.drawXAxis(&p.X, y, left, right, p.X.ticks(e, ticksIn(right-left)), x)
	return y + axisHeight
}

// draw adds the bars and marks between two values of the axis, and returns where the last one ends.
func (r *Row) draw(c *canvas, y, left, right, last float64, x func(float64) float64) (end float64) {
	if r.Lane {
		c.add(`<rect class="lane" x="%.1f" y="%.1f" width="%.1f" height="%.0f"/>`, left, y, right-left, rowHeight)
	}
	end = left
	for _, b := range r.Bars {
		if b.From >= last && b.To > b.From {
			continue
		}
		from, to := x(b.From), x(min(b.To, last))
		end = max(end, to)
		c.add(`<rect class="mark" x="%.2f" y="%.1f" width="%.2f" height="%.0f" fill="%s"%s>%s</rect>`,
			from, y, to-from, rowHeight, b.Color, paleness(b.Pale), title(b.About))
		if b.Text != "" && to-from >= textWidth(b.Text)+3 {
			c.text((from+to)/2, y+rowHeight-4, "middle", "inside", b.Text)
		}
	}
	for _, v := range r.Rings {
		end = max(end, x(v)+4)
		c.add(`<circle class="mark" cx="%.1f" cy="%.1f" r="4" fill="none" stroke="%s" stroke-width="1.5"/>`, x(v),
			y+rowHeight/2, r.Color)
	}
	if r.Mean != nil {
		c.add(`<line x1="%.1f" x2="%.1f" y1="%.1f" y2="%.1f" stroke="%s" stroke-width="2.5"/>`, x(*r.Mean), x(*r.Mean),
			y, y+rowHeight, r.Color)
	}
	return end
}
