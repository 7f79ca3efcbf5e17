package bench

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/hopfeed/hopfeed/internal/progress"
	"github.com/hopfeed/hopfeed/internal/schedule"
	"github.com/hopfeed/hopfeed/internal/units"
	"github.com/hopfeed/hopfeed/loader"
	"github.com/hopfeed/hopfeed/loader/sampling"
	"github.com/hopfeed/hopfeed/placement/collective"
	"github.com/hopfeed/hopfeed/placement/multiqueue"
	"github.com/hopfeed/hopfeed/tools/bench/papers"
	"github.com/hopfeed/hopfeed/tools/chart"
	"github.com/hopfeed/hopfeed/tools/scheduler"
	"github.com/hopfeed/hopfeed/tools/training"
	"github.com/hopfeed/hopfeed/trainer"
)

// ScheduleResult is an epoch by a schedule: measured, or only simulated.
type ScheduleResult struct {
	Setting          string   `json:"setting,omitempty"` // machine and data set of a paper
	Schedule         string   `json:"schedule"`
	EpochSeconds     float64  `json:"epoch_seconds"`
	PredictedSeconds *float64 `json:"predicted_epoch_seconds,omitempty"` // where epoch_seconds is measured
	TimesBest        float64  `json:"times_best"`                        // epoch_seconds / the shortest
	PaperTimes       *float64 `json:"paper_times_collective,omitempty"`  // published epoch / collective's
	// use of processor, link and GPU, calibrated by DUCATI's in Table 5, and MorphGL's there
	Used      []float64 `json:"used,omitempty"`
	PaperUsed []float64 `json:"paper_used,omitempty"`
	// MorphGL's epoch in Table 4 for each batch, which no duration follows from
	PaperBatchSeconds *float64 `json:"paper_batch_seconds,omitempty"`
	CPUBatches        int      `json:"cpu_batches"`
	GPUBatches        int      `json:"gpu_batches"`
	CPUBuffer         int      `json:"cpu_buffer"`
	GPUBuffer         int      `json:"gpu_buffer"`
	CPUBusy           float64  `json:"cpu_busy"` // share of the epoch
	LinkBusy          float64  `json:"link_busy"`
	GPUBusy           float64  `json:"gpu_busy"`
	Rounds            int      `json:"dispatch_rounds,omitempty"` // simulations
	// bytes of adjacency lists and of rows that an epoch's batches took from host memory, where epochs run
	TopologyBytes *int64    `json:"topology_bytes,omitempty"`
	RowBytes      *int64    `json:"row_bytes,omitempty"`
	EpochsSeconds []float64 `json:"measured_epochs_seconds,omitempty"`
}

func newScheduleResult(c collective.Choice, run collective.Run) ScheduleResult {
	r := ScheduleResult{
		Schedule: c.Name, EpochSeconds: run.Total.Seconds(), Rounds: c.Rounds,
		CPUBatches: run.CPUBatches, GPUBatches: run.GPUBatches, CPUBuffer: c.Plan.PreparedBuffer(),
		GPUBuffer: c.Plan.GPUBuffer,
	}
	r.CPUBusy, r.LinkBusy, r.GPUBusy = run.Busy()
	return r
}

func compareToBest(all []ScheduleResult) {
	best := math.Inf(1)
	for _, r := range all {
		best = min(best, r.EpochSeconds)
	}
	for i := range all {
		all[i].TimesBest = all[i].EpochSeconds / best
	}
}

// ScheduleTable is results of schedules as text.
type ScheduleTable []ScheduleResult

// Text prints a line for each result.
func (all ScheduleTable) Text(w io.Writer) {
	t := all.table()
	fmt.Fprintln(w, strings.Join(t.Columns, "\t"))
	for _, row := range t.Rows {
		fmt.Fprintln(w, strings.Join(row.Cells, "\t"))
	}
}

func (all ScheduleTable) table() *chart.Table {
	t := &chart.Table{Rows: make([]chart.TableRow, len(all))}
	column := func(name string, text func(r ScheduleResult) string) {
		t.Columns, t.Texts = append(t.Columns, name), t.Texts+1
		for i, r := range all {
			t.Rows[i].Cells = append(t.Rows[i].Cells, text(r))
		}
	}
	short := func(seconds float64) string {
		digits := time.Millisecond
		if seconds < 1 {
			digits = time.Microsecond
		}
		return time.Duration(seconds * float64(time.Second)).Round(digits).String()
	}
	setting := slices.ContainsFunc(all, func(r ScheduleResult) bool { return r.Setting != "" })
	if setting {
		column("setting", func(r ScheduleResult) string { return r.Setting })
	}
	column("schedule", func(r ScheduleResult) string { return r.Schedule })
	column("epoch", func(r ScheduleResult) string { return short(r.EpochSeconds) })
	if slices.ContainsFunc(all, func(r ScheduleResult) bool { return r.PredictedSeconds != nil }) {
		column("predicted", func(r ScheduleResult) string {
			return fmt.Sprintf("%s (%+.1f %%)", short(*r.PredictedSeconds), 100*(*r.PredictedSeconds/r.EpochSeconds-1))
		})
	}
	column("times the best", func(r ScheduleResult) string { return fmt.Sprintf("%.2f", r.TimesBest) })
	column("batches by CPU and GPU", func(r ScheduleResult) string {
		return fmt.Sprintf("%d, %d", r.CPUBatches, r.GPUBatches)
	})
	column("buffers", func(r ScheduleResult) string { return fmt.Sprintf("%d, %d", r.CPUBuffer, r.GPUBuffer) })
	if slices.ContainsFunc(all, func(r ScheduleResult) bool { return r.RowBytes != nil }) {
		column("lists and rows from the host", func(r ScheduleResult) string {
			return units.Bytes(*r.TopologyBytes).String() + ", " + units.Bytes(*r.RowBytes).String()
		})
	}
	column("CPU, link and GPU busy", func(r ScheduleResult) string {
		return percents(r.CPUBusy, r.LinkBusy, r.GPUBusy)
	})
	if setting {
		column("paper: times collective", func(r ScheduleResult) string {
			paper := "-"
			if r.PaperTimes != nil {
				paper = fmt.Sprintf("%.2f", *r.PaperTimes)
			}
			if r.PaperBatchSeconds != nil {
				paper += fmt.Sprintf("; a batch in %s, in the paper %s (not calibrated)",
					short(r.EpochSeconds/float64(r.CPUBatches+r.GPUBatches)), short(*r.PaperBatchSeconds))
			}
			if r.Used != nil {
				paper += "; used " + percents(r.Used...) + ", in the paper " + percents(r.PaperUsed...) +
					" (calibrated by DUCATI's use)"
			}
			return paper
		})
	}
	return t
}

func percents(shares ...float64) string {
	var texts []string
	for _, s := range shares {
		texts = append(texts, fmt.Sprintf("%.0f %%", 100*s))
	}
	return strings.Join(texts, ", ")
}

// SimulateSchedules simulates an epoch by each of some schedules.
func SimulateSchedules(ctx context.Context, names []string, in collective.Inputs) (all []ScheduleResult, err error) {
	for _, name := range names {
		s, err := collective.Find(name)
		if err != nil {
			return nil, err
		}
		c, err := s.Choose(in)
		if err == nil {
			err = context.Cause(ctx)
		}
		if err != nil {
			return nil, err
		}
		all = append(all, newScheduleResult(c, c.Predicted))
	}
	compareToBest(all)
	return all, nil
}

// Schedules are epochs of a graph that are trained by one schedule after another.
type Schedules struct {
	Graph   *training.Graph
	Spec    trainer.Spec
	Options trainer.Options
	Seed    uint64
	Names   []string
	Rounds  int
	Note    func(format string, args ...any) // gets what is left out, and why
	Others  []ScheduleRow                    // that have run, below those of Names
}

// ScheduleRow is epochs by a schedule, in a table and a drawing.
type ScheduleRow struct {
	Result   ScheduleResult
	Timeline Timeline
}

// RunAs trains by one schedule, and gives the row another name; nil: it is left out.
func (s *Schedules) RunAs(ctx context.Context, schedule, name string) (*ScheduleRow, error) {
	s.Names = []string{schedule}
	results, timelines, err := s.Run(ctx, nil)
	if err != nil || len(results) == 0 {
		return nil, err
	}
	results[0].Schedule, timelines[0].Title = name, name
	return &ScheduleRow{results[0], timelines[0]}, nil
}

// Run trains by all schedules, one after another in each round. The graph's machine has the stages of a setting of a
// paper, if there is one.
func (s *Schedules) Run(ctx context.Context, paper *papers.MorphGL) ([]ScheduleResult, []Timeline, error) {
	s.Graph.Schedule = nil
	if paper != nil {
		s.Graph.Emulate(paper.Stages())
	}
	profile, err := s.Graph.Profile(ctx)
	if err != nil {
		return nil, nil, err
	}
	if paper != nil {
		profile.Durations = paper.Durations
	}
	var all []*scheduler.Scheduler
	var timelines []Timeline
	for _, name := range s.Names {
		of, err := s.Graph.Scheduler(name, profile)
		if errors.Is(err, sampling.ErrOptions) { // the device prepares nothing
			why := s.Graph.WhyNot
			if why == "" {
				why = err.Error()
			}
			s.Note("schedule %s is left out: %s", name, why)
			continue
		}
		if err != nil {
			return nil, nil, err
		}
		i := len(all)
		timelines = append(timelines, Timeline{Title: name})
		of.Keep(func(spans []schedule.Span) { timelines[i].Spans = slices.Clone(spans) })
		all = append(all, of)
	}
	traffic := make([]loader.Traffic, len(all))
	err = interleave(progress.Silent, "schedules", s.Rounds, len(all), func(i, _ int) error {
		s.Graph.Schedule = all[i]
		before := s.Graph.Traffic()
		if _, err := s.epoch(ctx, nil); err != nil {
			return fmt.Errorf("schedule %s: %w", all[i].Choice.Name, err)
		}
		traffic[i] = s.Graph.Traffic()
		traffic[i].TopologyBytes -= before.TopologyBytes
		traffic[i].HostBytes -= before.HostBytes
		return nil
	})
	if err != nil {
		return nil, nil, err
	}
	var results []ScheduleResult
	for i, of := range all {
		report := of.Report()
		r := newScheduleResult(of.Choice, of.Median())
		if timelines[i].Title == scheduler.Auto {
			r.Schedule = fmt.Sprintf("%s: %s, %s", scheduler.Auto, report.Name,
				units.Count(int64(report.Workers), "worker"))
			s.Note("schedule %s: %s", report.Name, report.Reason)
		}
		r.PredictedSeconds, r.EpochsSeconds = &report.PredictedSeconds, of.Seconds()
		r.TopologyBytes, r.RowBytes = &traffic[i].TopologyBytes, &traffic[i].HostBytes
		if paper != nil {
			r.Setting, r.PaperTimes = paper.Name(), paper.Times(report.Name)
			if strings.HasPrefix(report.Name, "collective") {
				seconds := paper.BatchSeconds()
				if r.PaperBatchSeconds = &seconds; paper.Used[0] > 0 {
					used := paper.Utilization(of.Median())
					r.Used, r.PaperUsed = used[:], paper.Used[:]
				}
			}
		}
		results = append(results, r)
		timelines[i].Notes = fmt.Sprintf("%s by the processor, %d by the device; the median epoch took %.3g s, %.3g s "+
			"were predicted",
			units.Count(int64(r.CPUBatches), "batch"), r.GPUBatches, r.EpochSeconds, report.PredictedSeconds)
	}
	for _, o := range s.Others {
		results, timelines = append(results, o.Result), append(timelines, o.Timeline)
	}
	compareToBest(results)
	return results, timelines, nil
}

// RunAll is Run on each of some settings, nil for none, with two charts of each: a drawing and a page.
func (s *Schedules) RunAll(ctx context.Context, settings []*papers.MorphGL, title string) (
	all []ScheduleResult, charts [][]byte, err error) {
	for _, paper := range settings {
		found, timelines, err := s.Run(ctx, paper)
		if err != nil {
			return nil, nil, err
		}
		all = append(all, found...)
		title := title
		if paper != nil {
			title += fmt.Sprintf(": MorphGL's machine %s with %s, emulated", paper.Machine, paper.Data)
		}
		charts = append(charts, Timelines(title, timelines).File(),
			TimelinesPage(title, ScheduleTable(found).table(), timelines))
	}
	return all, charts, nil
}

// epoch trains a model on an epoch, and drops it. It returns the seconds of the epoch.
func (s *Schedules) epoch(ctx context.Context, queues *scheduler.Queues) (seconds float64, err error) {
	sets, err := s.Graph.TrainSets(s.Seed)
	if err != nil {
		return 0, err
	}
	options := s.Options
	options.Epochs, options.EvalEvery, options.Patience = 1, 1, 0
	if queues != nil {
		options.Queues = queues.Training()
	}
	var ranks []trainer.Rank
	for i, device := range s.Graph.Devices() {
		ranks = append(ranks, trainer.Rank{Device: device,
			Data: trainer.Data{Train: sets[i], BatchRows: s.Graph.ShareRows()}})
	}
	f, err := trainer.Start(ctx, ranks, s.Spec, options)
	if err != nil {
		return 0, s.Graph.Explain(err)
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	if queues != nil {
		f.Time(queues.Times())
	}
	err = f.Train(ctx, func(e trainer.Epoch, _ func() (*trainer.Result, error)) { seconds = e.TrainSeconds })
	return seconds, s.Graph.Explain(err)
}

// Synchronous is the name of trainings that multi-queue is compared with: the same devices and batches, queues of one
// batch, and no stale gradient.
const Synchronous = "synchronous"

// QueueResult is an epoch of several devices, with queues or synchronous.
type QueueResult struct {
	Schedule string `json:"schedule"`
	Devices  int    `json:"devices"`
	multiqueue.Plan
	Staleness        multiqueue.Staleness `json:"staleness"`
	EpochSeconds     float64              `json:"epoch_seconds"` // of training: the median
	PredictedSeconds float64              `json:"predicted_epoch_seconds"`
	RowsPerSecond    float64              `json:"rows_per_second"`
	TimesSynchronous float64              `json:"times_synchronous"` // rows_per_second / Synchronous's
	EpochsSeconds    []float64            `json:"measured_epochs_seconds"`
}

// RunQueues compares the queues that the graph has chosen with synchronous training, on rows training nodes.
func (s *Schedules) RunQueues(ctx context.Context, rows int) (all []QueueResult, err error) {
	chosen := s.Graph.Queues
	plans := []*scheduler.Queues{chosen.Synchronous(), chosen}
	for i, name := range []string{Synchronous, scheduler.MultiQueue} {
		r := plans[i].Report
		all = append(all, QueueResult{
			Schedule: name, Devices: r.Devices, Plan: r.Plan, PredictedSeconds: r.Predicted,
		})
	}
	err = interleave(progress.Silent, "queues", s.Rounds, len(plans), func(i, _ int) error {
		s.Graph.Queues = plans[i]
		seconds, err := s.epoch(ctx, plans[i])
		all[i].EpochsSeconds = append(all[i].EpochsSeconds, seconds)
		return err
	})
	if err != nil {
		return nil, err
	}
	for i := range all {
		r := &all[i]
		r.Staleness, r.EpochSeconds = plans[i].Report.Staleness, median(r.EpochsSeconds)
		r.RowsPerSecond = float64(rows) / r.EpochSeconds
		r.TimesSynchronous = all[0].EpochSeconds / r.EpochSeconds
	}
	return all, nil
}

// QueueTable is results of queues as text.
type QueueTable []QueueResult

// Text prints a line for each result.
func (t QueueTable) Text(w io.Writer) {
	fmt.Fprintln(w, "devices\tschedule\tepoch\tpredicted\trows/s\ttimes synchronous\tqueue, gradients, "+
		"period\tstaleness: mean, largest")
	for _, r := range t {
		fmt.Fprintf(w, "%d\t%s\t%.3g s\t%.3g s (%+.1f %%)\t%.0f\t%.2f\t%d, %d, %d\t%.2g, %d\n",
			r.Devices, r.Schedule, r.EpochSeconds, r.PredictedSeconds, 100*(r.PredictedSeconds/r.EpochSeconds-1),
			r.RowsPerSecond, r.TimesSynchronous, r.Queue, r.Gradients, r.Period, r.Staleness.Mean, r.Staleness.Largest)
	}
}

// BothTables are results on one device, and on several.
type BothTables struct {
	One     ScheduleTable
	Several QueueTable
}

// Text prints both tables.
func (b BothTables) Text(w io.Writer) {
	b.One.Text(w)
	fmt.Fprintln(w)
	b.Several.Text(w)
}

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
