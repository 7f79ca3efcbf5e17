package bench

import (
	"cmp"
	"fmt"
	"html"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/hopfeed/hopfeed/internal/schedule"
)

// Timeline is the stages of an epoch's batches, drawn by what they keep busy (a Gantt chart).
type Timeline struct {
	Title string
	Notes string // below the title
	Spans []schedule.Span
}

// stageColors tell stages apart, also for most who do not see all colours (Okabe and Ito).
var stageColors = [...]string{schedule.Sample: "#56b4e9", schedule.Move: "#e69f00", schedule.Prepare: "#cc79a7", schedule.Train: "#009e73"}

// stageTexts are what the legend says of stages.
var stageTexts = [...]string{
	schedule.Sample: "sampled and gathered by the processor", schedule.Move: "moves to the device", schedule.Prepare: "sampled and gathered by the device", schedule.Train: "trained",
}

// Sizes of a timeline, in pixels.
const (
	timelineWidth = 1200
	laneNames     = 110
	laneHeight    = 16
	laneGap       = 3
	timelineHead  = 44
	timelineFoot  = 34
)

// lanes are the names of what is busy, and the spans of each; preparing takes the link too.
func (t *Timeline) lanes() (names []string, spans [][]schedule.Span) {
	workers := 0
	for _, s := range t.Spans {
		if s.Stage == schedule.Sample {
			workers = max(workers, s.Worker+1)
		}
	}
	for w := range workers {
		names = append(names, fmt.Sprintf("worker %d", w+1))
	}
	names = append(names, "link", "device")
	spans = make([][]schedule.Span, len(names))
	add := func(lane int, s schedule.Span) { spans[lane] = append(spans[lane], s) }
	for _, s := range t.Spans {
		switch s.Stage {
		case schedule.Sample:
			add(s.Worker, s)
		case schedule.Move:
			add(workers, s)
		case schedule.Prepare:
			add(workers, s)
			add(workers+1, s)
		case schedule.Train:
			add(workers+1, s)
		}
	}
	for _, lane := range spans {
		slices.SortFunc(lane, func(a, b schedule.Span) int { return cmp.Compare(a.Start, b.Start) })
	}
	return names, spans
}

// draw adds the timeline to an SVG from y on, in a scale of so many pixels a second, and returns its height.
func (t *Timeline) draw(b *strings.Builder, y float64, perSecond float64, end time.Duration) float64 {
	names, lanes := t.lanes()
	text := func(x, y float64, anchor, class, s string) {
		fmt.Fprintf(b, `<text x="%.1f" y="%.1f" text-anchor="%s" class="%s">%s</text>`+"\n", x, y, anchor, class, html.EscapeString(s))
	}
	x := func(at time.Duration) float64 { return laneNames + at.Seconds()*perSecond }
	text(0, y+14, "start", "title", t.Title)
	text(0, y+30, "start", "note", t.Notes)
	top := y + timelineHead
	bottom := top + float64(len(names))*(laneHeight+laneGap)
	for i, name := range names {
		at := top + float64(i)*(laneHeight+laneGap)
		text(laneNames-8, at+laneHeight-4, "end", "note", name)
		fmt.Fprintf(b, `<rect x="%d" y="%.1f" width="%d" height="%d" fill="#f3f3f3"/>`+"\n", laneNames, at, timelineWidth-laneNames, laneHeight)
		for _, s := range lanes[i] {
			if s.Start >= end {
				break
			}
			width := x(min(s.End, end)) - x(s.Start)
			stroke := "none" // of what is narrow, it would hide the colour
			if width > 4 {
				stroke = "#fff"
			}
			fmt.Fprintf(b, `<rect class="stage" stroke="%s" x="%.2f" y="%.1f" width="%.2f" height="%d" fill="%s"><title>batch %d: %s, %v to %v</title></rect>`+"\n",
				stroke, x(s.Start), at, width, laneHeight, stageColors[s.Stage], s.Batch, stageTexts[s.Stage], s.Start.Round(10*time.Microsecond), s.End.Round(10*time.Microsecond))
			if number := fmt.Sprint(s.Batch); width >= float64(7*len(number)+3) {
				text(x(s.Start)+width/2, at+laneHeight-4, "middle", "batch", number)
			}
		}
	}
	step := tick(end)
	for at := time.Duration(0); at <= end; at += step {
		fmt.Fprintf(b, `<line x1="%.1f" x2="%.1f" y1="%.1f" y2="%.1f" stroke="#888"/>`+"\n", x(at), x(at), bottom, bottom+4)
		text(x(at), bottom+16, "middle", "note", at.String())
	}
	return timelineHead + float64(len(names))*(laneHeight+laneGap) + timelineFoot
}

// tick is a step of a scale that has about ten of them.
func tick(end time.Duration) time.Duration {
	step := time.Microsecond
	for i := 0; step*12 < end; i++ {
		step = step * []time.Duration{2, 5, 10}[i%3] / []time.Duration{1, 2, 5}[i%3]
	}
	return step
}

// longest is how many times as long as the shortest epoch the scale of time is at most.
const longest = 3

// TimelinesSVG draws timelines one below the other, in one scale of time that begins with each epoch. Of an
// epoch of more than 3 times the shortest, the beginning is drawn.
func TimelinesSVG(all []Timeline) []byte {
	end, shortest := time.Duration(1), time.Duration(math.MaxInt64/longest)
	for _, t := range all {
		last := time.Duration(0)
		for _, s := range t.Spans {
			last = max(last, s.End)
		}
		if end = max(end, last); last > 0 {
			shortest = min(shortest, last)
		}
	}
	end = min(end, longest*shortest)
	perSecond := float64(timelineWidth-laneNames-10) / end.Seconds()
	var body strings.Builder
	y := 26.0
	for i, color := range stageColors {
		x := laneNames + 260*i
		fmt.Fprintf(&body, `<rect x="%d" y="4" width="12" height="12" fill="%s"/><text x="%d" y="14" class="note">%s</text>`+"\n", x, color, x+17, stageTexts[i])
	}
	for _, t := range all {
		y += t.draw(&body, y, perSecond, end)
	}
	return fmt.Appendf(nil, `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %d %.0f" font-family="Liberation Sans,Arial,Helvetica,sans-serif">
<style>.title{font-size:14px;font-weight:bold}.note{font-size:11px;fill:#333}.batch{font-size:9px;fill:#fff}.stage{stroke-width:0.5}</style>
<rect width="100%%" height="100%%" fill="#fff"/>
%s</svg>
`, timelineWidth, y, body.String())
}

// TimelinesHTML is a page with a table, whose first row is its head, and timelines. It needs nothing but
// itself; stages say what they are where the pointer is.
func TimelinesHTML(title string, table [][]string, all []Timeline) []byte {
	var b strings.Builder
	fmt.Fprintf(&b, `<!DOCTYPE html>
<html lang="en"><meta charset="utf-8"><title>%[1]s</title>
<style>body{font-family:"Liberation Sans",Arial,Helvetica,sans-serif;max-width:1240px;margin:20px auto;padding:0 16px}
table{border-collapse:collapse;font-size:13px}td,th{padding:4px 10px;border-bottom:1px solid #ddd;text-align:right}td:first-child,th:first-child{text-align:left}</style>
<h1>%[1]s</h1>
<table>
`, html.EscapeString(title))
	for i, row := range table {
		cell := "td"
		if i == 0 {
			cell = "th"
		}
		b.WriteString("<tr>")
		for _, text := range row {
			fmt.Fprintf(&b, "<%[1]s>%[2]s</%[1]s>", cell, html.EscapeString(text))
		}
		b.WriteString("</tr>\n")
	}
	fmt.Fprintf(&b, "</table>\n%s</html>\n", TimelinesSVG(all))
	return []byte(b.String())
}
