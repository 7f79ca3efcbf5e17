package bench

import (
	"bytes"
	"cmp"
	"encoding/xml"
	"errors"
	"io"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/hopfeed/hopfeed/internal/schedule"
	"github.com/hopfeed/hopfeed/placement/collective"
)

// The geometry of a drawing, as a reader of SVG sees it.
func TestTimelinesShowEveryStageInItsLane(t *testing.T) {
	d := collective.Durations{CPUBatch: 90 * time.Millisecond, Workers: 3, DMA: 4 * time.Millisecond, GPUBatch: 10 * time.Millisecond, Model: 5 * time.Millisecond}
	var timelines []Timeline
	rects := 0
	for _, name := range []string{"cpu", "collective"} {
		s, err := collective.Find(name)
		if err != nil {
			t.Fatal(err)
		}
		c, err := s.Choose(collective.Inputs{Durations: d, Batches: 30, CPUBuffer: 20, GPUBuffer: 10})
		if err != nil {
			t.Fatal(err)
		}
		line := Timeline{Title: name + " <1>", Notes: "a & b"}
		collective.Simulate(d, c.Plan, 30, func(s schedule.Span) {
			line.Spans = append(line.Spans, s)
			if rects++; s.Stage == schedule.Prepare {
				rects++ // on the link too
			}
		})
		timelines = append(timelines, line)
	}
	svg := TimelinesSVG(timelines)
	type rect struct{ x, width, y float64 }
	var found []rect
	var texts strings.Builder
	height := 0.0
	for decoder := xml.NewDecoder(bytes.NewReader(svg)); ; {
		token, err := decoder.Token()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		switch token := token.(type) {
		case xml.CharData:
			texts.Write(token)
		case xml.StartElement:
			value := map[string]string{}
			for _, a := range token.Attr {
				value[a.Name.Local] = a.Value
			}
			number := func(name string) float64 {
				v, err := strconv.ParseFloat(value[name], 64)
				if err != nil {
					t.Fatal(err)
				}
				return v
			}
			if token.Name.Local == "svg" {
				height, err = strconv.ParseFloat(strings.Fields(value["viewBox"])[3], 64)
				if err != nil {
					t.Fatal(err)
				}
			}
			if value["class"] == "stage" {
				found = append(found, rect{number("x"), number("width"), number("y")})
			}
		}
	}
	if len(found) != rects {
		t.Errorf("%d stages are drawn, want %d", len(found), rects)
	}
	slices.SortFunc(found, func(a, b rect) int { return cmp.Or(cmp.Compare(a.y, b.y), cmp.Compare(a.x, b.x)) })
	for i, r := range found {
		if r.x < laneNames || r.x+r.width > timelineWidth || r.width <= 0 || r.y < 0 || r.y+laneHeight > height {
			t.Errorf("%+v lies outside", r)
		}
		if i > 0 && found[i-1].y == r.y && found[i-1].x+found[i-1].width > r.x+0.02 {
			t.Errorf("%+v lies over %+v", r, found[i-1])
		}
	}
	// The longest epoch fills the width: with three workers, ten turns of 90 ms, then the last batch moves and is trained.
	last := slices.MaxFunc(found, func(a, b rect) int { return cmp.Compare(a.x+a.width, b.x+b.width) })
	if end := last.x + last.width; end < timelineWidth-11 || last.width < 0.004*float64(timelineWidth-laneNames)*0.9 {
		t.Errorf("the epoch ends at %v", end)
	}
	for _, want := range []string{"cpu <1>", "a & b", "worker 3", "link", "device", "batch 29: trained"} {
		if !strings.Contains(texts.String(), want) {
			t.Errorf("no %q", want)
		}
	}
	long := Timeline{Title: "long", Spans: []schedule.Span{{Stage: schedule.Train, End: time.Hour}, {Stage: schedule.Train, Start: time.Hour, End: 2 * time.Hour}}}
	if cut := string(TimelinesSVG(append(timelines, long))); strings.Count(cut, `class="stage"`) != rects+1 {
		t.Error("of a long epoch, more is drawn than its beginning")
	}
	page := string(TimelinesHTML("x < y", [][]string{{"a", "b"}, {"1", "<2>"}}, timelines))
	if !strings.Contains(page, string(svg)) || !strings.Contains(page, "<td>&lt;2&gt;</td>") || !strings.Contains(page, "<h1>x &lt; y</h1>") {
		t.Error(page[:800])
	}
}
