package bench

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/hopfeed/hopfeed/internal/schedule"
	"github.com/hopfeed/hopfeed/tools/chart"
)

// Timeline is the stages of an epoch's batches, drawn by what they keep busy (a Gantt chart).
type Timeline struct {
	Title string
	Notes string // below the title
	Spans []schedule.Span
}

var stageKeys = [...]chart.Key{
	schedule.Sample:  {Name: "sampled and gathered by the processor", Color: chart.Sky},
	schedule.Move:    {Name: "moves to the device", Color: chart.Orange},
	schedule.Prepare: {Name: "sampled and gathered by the device", Color: chart.Purple},
	schedule.Train:   {Name: "trained", Color: chart.Green},
}

// lanes are a row for each worker, the link and the device. A device that prepares a batch keeps the link busy too.
func (t *Timeline) lanes() []chart.Row {
	workers := 0
	for _, s := range t.Spans {
		if s.Stage == schedule.Sample {
			workers = max(workers, s.Worker+1)
		}
	}
	rows := make([]chart.Row, workers+2)
	for i := range rows {
		rows[i] = chart.Row{Name: fmt.Sprintf("worker %d", i+1), Lane: true}
	}
	link, device := &rows[workers], &rows[workers+1]
	link.Name, device.Name = "link", "device"
	for _, s := range t.Spans {
		round := 10 * time.Microsecond
		bar := chart.Bar{From: s.Start.Seconds(), To: s.End.Seconds(), Color: stageKeys[s.Stage].Color,
			Text: fmt.Sprint(s.Batch),
			About: fmt.Sprintf("batch %d: %s, %v to %v", s.Batch, stageKeys[s.Stage].Name, s.Start.Round(round),
				s.End.Round(round))}
		switch s.Stage {
		case schedule.Sample:
			rows[s.Worker].Bars = append(rows[s.Worker].Bars, bar)
		case schedule.Move:
			link.Bars = append(link.Bars, bar)
		case schedule.Prepare:
			link.Bars, device.Bars = append(link.Bars, bar), append(device.Bars, bar)
		case schedule.Train:
			device.Bars = append(device.Bars, bar)
		}
	}
	for _, r := range rows {
		slices.SortFunc(r.Bars, func(a, b chart.Bar) int { return cmp.Compare(a.From, b.From) })
	}
	return rows
}

// longest is how many times as long as the shortest epoch the scale of time is at most.
const longest = 3

// Timelines draws timelines below each other, in one scale of time that begins with each epoch. An epoch longer
// than 3 times the shortest is cut off there.
func Timelines(title string, all []Timeline) *chart.Figure {
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
	f := &chart.Figure{Title: title, Keys: stageKeys[:]}
	for _, t := range all {
		p := &chart.Rows{Title: t.Title, X: chart.Axis{Name: "time since the epoch began (s)"}, To: end.Seconds(),
			Cut: true, Rows: t.lanes()}
		if t.Notes != "" {
			p.Notes = []string{t.Notes}
		}
		f.Plots = append(f.Plots, p)
	}
	return f
}

// TimelinesPage is a page with a table and timelines. Stages say what they are where the pointer is.
func TimelinesPage(title string, table *chart.Table, all []Timeline) []byte {
	p := chart.NewPage(title)
	p.Table(table)
	p.Figure(Timelines("Stages of batches", all))
	return p.File()
}
