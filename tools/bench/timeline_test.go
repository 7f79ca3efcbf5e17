package bench

import (
	"cmp"
	"math"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/hopfeed/hopfeed/internal/schedule"
	"github.com/hopfeed/hopfeed/placement/collective"
	"github.com/hopfeed/hopfeed/tools/chart"
)

// The geometry of a drawing, as a reader of SVG sees it.
func TestTimelinesShowEveryStageInItsLane(t *testing.T) {
	d := collective.Durations{CPUBatch: 90 * time.Millisecond, Workers: 3, DMA: 4 * time.Millisecond,
		GPUBatch: 10 * time.Millisecond, Model: 5 * time.Millisecond}
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
	figure := Timelines("Schedules", timelines)
	svg := string(figure.File())
	type rect struct{ x, width, y float64 }
	var found []rect
	mark := regexp.MustCompile(`<rect class="mark" x="(\S+)" y="(\S+)" width="(\S+)"`)
	for _, m := range mark.FindAllStringSubmatch(svg, -1) {
		var r rect
		for i, to := range []*float64{&r.x, &r.y, &r.width} {
			v, err := strconv.ParseFloat(m[i+1], 64)
			if err != nil {
				t.Fatal(err)
			}
			*to = v
		}
		found = append(found, r)
	}
	if len(found) != rects {
		t.Errorf("%d stages are drawn, want %d", len(found), rects)
	}
	slices.SortFunc(found, func(a, b rect) int { return cmp.Or(cmp.Compare(a.y, b.y), cmp.Compare(a.x, b.x)) })
	for i, r := range found {
		if r.width <= 0 {
			t.Errorf("%+v has no width", r)
		}
		if i > 0 && found[i-1].y == r.y && found[i-1].x+found[i-1].width > r.x+0.02 {
			t.Errorf("%+v lies over %+v", r, found[i-1])
		}
	}
	// The longest epoch fills the width: with three workers, ten turns of 90 ms, then the last batch moves and is
	// trained.
	lane := regexp.MustCompile(`<rect class="lane" x="(\S+)" y="\S+" width="(\S+)"`).FindStringSubmatch(svg)
	from, _ := strconv.ParseFloat(lane[1], 64)
	width, _ := strconv.ParseFloat(lane[2], 64)
	last := slices.MaxFunc(found, func(a, b rect) int { return cmp.Compare(a.x+a.width, b.x+b.width) })
	if end := last.x + last.width; math.Abs(end-from-width) > 0.2 || last.width < 0.004*width {
		t.Errorf("the epoch ends at %v of %v", end-from, width)
	}
	for _, want := range []string{"cpu &lt;1&gt;", "a &amp; b", "worker 3", "link", "device", "batch 29: trained"} {
		if !strings.Contains(svg, want) {
			t.Errorf("no %q", want)
		}
	}
	long := Timeline{Title: "long", Spans: []schedule.Span{{Stage: schedule.Train, End: time.Hour},
		{Stage: schedule.Train, Start: time.Hour, End: 2 * time.Hour}}}
	if cut := string(Timelines("", append(timelines, long)).File()); strings.Count(cut, `class="mark"`) != rects+1 {
		t.Error("of a long epoch, more is drawn than its beginning")
	}
	page := string(TimelinesPage("x < y", &chart.Table{Columns: []string{"a", "b"}, Texts: 2,
		Rows: []chart.TableRow{{Cells: []string{"1", "<2>"}}}}, timelines))
	for _, want := range []string{"<td>&lt;2&gt;</td>", "<th>b</th>", "<h1>x &lt; y</h1>", "batch 29: trained",
		"prefers-color-scheme"} {
		if !strings.Contains(page, want) {
			t.Errorf("no %q", want)
		}
	}
}
