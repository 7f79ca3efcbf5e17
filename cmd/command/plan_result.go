package command

import (
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/hopfeed/hopfeed/internal/need"
	"github.com/hopfeed/hopfeed/internal/units"
	"github.com/hopfeed/hopfeed/placement"
	"github.com/hopfeed/hopfeed/preprop"
	"github.com/hopfeed/hopfeed/tools/scheduler"
)

// planned is the result of plan.
type planned struct {
	Dataset    string         `json:"dataset"`
	Model      string         `json:"model"`
	Machine    plannedMachine `json:"machine"`
	Matrices   int            `json:"matrices"`
	Features   int            `json:"features"`
	DType      string         `json:"dtype"`
	Rows       int64          `json:"rows"`
	TrainRows  int64          `json:"train_rows"`
	ValidRows  int64          `json:"valid_rows"`
	StoreBytes int64          `json:"store_bytes"`
	InputBytes units.Bytes    `json:"input_bytes"` // of the matrices that the model reads
	WorkBytes  units.Bytes    `json:"work_bytes"`  // of batches and model, on the device
	Memory     *need.Memory   `json:"memory_plan"`
	// of a graph, as the next fields
	Edges   int64  `json:"edges,omitempty"`
	Sampler string `json:"sampler,omitempty"`
	Fanouts []int  `json:"fanouts,omitempty"`
	Batch   int    `json:"batch,omitempty"` // nodes, or draws
	Cache   string `json:"cache,omitempty"`
	// who prepares batches; null: the processor, ahead
	Schedule  *scheduler.Report      `json:"schedule,omitempty"`
	Queues    *scheduler.QueueReport `json:"multi_queue,omitempty"`
	Placement string                 `json:"placement"`
	Shuffle   string                 `json:"shuffle"`
	Buffers   int                    `json:"buffers"`
	Devices   int                    `json:"devices"`
	// null: the time of computing is unknown
	PredictedEpochSeconds *float64                `json:"predicted_epoch_seconds"`
	Reasons               []string                `json:"reasons"`
	Alternatives          []placement.Alternative `json:"alternatives"`
	mixed                 bool                    // the matrices have different widths
	ChunkQuality          *chunkQuality           `json:"chunk_quality"` // null: chunks cannot be reshuffled
	// making the store; null: edges are unknown
	Propagation *preprop.Plan `json:"propagation"`
	// of a typed graph, what the store has beside hop 0
	Metapaths []preprop.Metapath `json:"metapaths,omitempty"`
	// making it by tasks of several machines, with --machines
	Tasks *preprop.TasksPlan `json:"tasks,omitempty"`
}

// plannedMachine is the machine of the plan.
type plannedMachine struct {
	Described     string          `json:"described,omitempty"` // by this file
	Cores         int             `json:"cores"`
	NUMANodes     int             `json:"numa_nodes,omitempty"`
	MemoryBytes   units.Bytes     `json:"memory_bytes"` // that may be used
	MemoryBy      string          `json:"memory_by"`
	PinnableBytes *units.Bytes    `json:"pinnable_bytes"` // the limit of locked memory
	PinnableBy    string          `json:"pinnable_by,omitempty"`
	Device        string          `json:"device"`
	Unified       bool            `json:"unified"` // its memory is the host's
	Devices       int             `json:"devices"`
	DeviceBytes   units.Bytes     `json:"device_bytes"` // free on each
	Rates         placement.Rates `json:"rates"`
}

// chunkQuality is chunk.Quality of reshuffling by chunk.
type chunkQuality struct {
	ChunkRows     int      `json:"chunk_rows"`
	LabelVariance *float64 `json:"label_variance"` // null where no labels are known
	Neighbours    float64  `json:"neighbours"`
	RRNeighbours  float64  `json:"rr_neighbours"`
}

func (p *planned) Text(w io.Writer) {
	line := func(name, format string, args ...any) { fmt.Fprintf(w, name+"\t"+format+"\n", args...) }
	m := p.Machine
	switch {
	case m.Described != "":
		line("machine", "%s: %s", m.Described, units.Count(int64(m.Cores), "core"))
	default:
		line("machine", "%s of %s", units.Count(int64(m.Cores), "core"), units.Count(int64(m.NUMANodes), "NUMA node"))
	}
	line("", "%s of memory (%s)", m.MemoryBytes, m.MemoryBy)
	if m.Unified {
		line("", "device %q, in host memory", m.Device)
	} else {
		if m.PinnableBytes != nil {
			line("", "%s of it can be pinned (%s)", *m.PinnableBytes, m.PinnableBy)
		}
		line("", "%s of %s each", units.Count(int64(m.Devices), "device"), m.DeviceBytes)
	}
	var rates []string
	for _, r := range m.Rates.List() {
		rates = append(rates, r.Name+" "+r.Rate.String())
	}
	if len(rates) > 0 {
		line("rates", "%s", strings.Join(rates, ", "))
	}
	if p.Propagation != nil {
		for i, text := range p.Propagation.Lines(m.MemoryBytes) {
			line([]string{"propagate", ""}[min(i, 1)], "%s", text)
		}
	}
	if p.Tasks != nil {
		p.writeTasks(line)
	}
	for _, m := range p.Metapaths {
		line("", "%s", m)
	}
	p.writeInput(line)
	line("model", "%s: it and its batches take %s on the device", p.Model, p.WorkBytes)
	if q := p.ChunkQuality; q != nil {
		line("by chunk", "of %d rows: %.3g %% of rows that are next to each other in storage share a batch (%.3g %% "+
			"if rows were reshuffled)", q.ChunkRows, 100*q.Neighbours, 100*q.RRNeighbours)
		if q.LabelVariance != nil {
			line("", "label counts of batches vary %.3g times as much as with reshuffled rows", *q.LabelVariance)
		}
	}
	fmt.Fprintln(w, "\nplacement\tshuffle\tpossible\tepoch\tloading\tcomputing\tlimit\tdevice memory\thost "+
		"memory\tread an epoch")
	for _, a := range p.Alternatives {
		name := a.Placement
		if a.Sharded {
			name = fmt.Sprintf("%s, over %d", name, a.Devices)
		}
		possible := "yes"
		if a.Obstacle != "" {
			possible = "no"
		}
		read := "-" // not measured
		if a.EpochBytes > 0 {
			read = a.EpochBytes.String()
		}
		fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\n", name, a.Shuffle, possible, seconds(a.EpochSeconds),
			seconds(a.LoadSeconds),
			seconds(a.ComputeSeconds), a.Busiest, a.DeviceBytes, a.HostBytes, read)
	}
	fmt.Fprintf(w, "\nplan: %s%s, %d buffers\n", p.Placement, shuffleText(p.Shuffle), p.Buffers)
	for _, reason := range append(p.Reasons, p.otherObstacles()...) {
		fmt.Fprintf(w, "  %s\n", reason)
	}
}

// writeTasks says what the propagation by tasks takes.
func (p *planned) writeTasks(line func(name, format string, args ...any)) {
	t := p.Tasks
	line("propagate", "%s, %s of each kind: %.3g s, %.3g machine-hours", units.Count(int64(t.Machines), "machine"),
		units.Count(int64(t.Tasks), "task"), t.Seconds, t.Seconds*float64(t.Machines)/3600)
	line("", "%s read and %s written, scratch files included; shared beside the graph: up to %s, and at last %s",
		units.Bytes(t.ReadBytes), units.Bytes(t.WrittenBytes), units.Bytes(t.SharedBytes), units.Bytes(t.StoreBytes))
	for _, s := range t.Stages {
		line("", "%s: %s of %s of memory and %s of local disk: %.3g s each, %.3g s in all; %s read, %s written", s.Kind,
			units.Count(int64(s.Tasks), "task"), units.Bytes(s.MemoryBytes), units.Bytes(s.ScratchBytes), s.TaskSeconds,
			s.Seconds, units.Bytes(s.ReadBytes), units.Bytes(s.WrittenBytes))
	}
}

// writeInput says what is read: matrices of a store, or a graph.
func (p *planned) writeInput(line func(name, format string, args ...any)) {
	name := units.Printable(p.Dataset)
	if p.Sampler == "" {
		columns := "different widths"
		if !p.mixed {
			columns = fmt.Sprintf("%d features", p.Features)
		}
		line("input", "%s: %s of %s, %s, of %d rows: %s; %d train, %d validate", name,
			matricesText(p.Matrices), columns, p.DType, p.Rows, p.InputBytes, p.TrainRows, p.ValidRows)
		return
	}
	line("input", "%s: %d nodes with %d features, %s, and %d edges: %s; %d train, %d validate", name,
		p.Rows, p.Features, p.DType, p.Edges, p.InputBytes, p.TrainRows, p.ValidRows)
	text := fmt.Sprintf("%s, batches of %d", p.Sampler, p.Batch)
	if len(p.Fanouts) > 0 {
		text += ", fanout " + strings.Trim(strings.Join(strings.Fields(fmt.Sprint(p.Fanouts)), ","), "[]")
	}
	if p.Cache != "" {
		text += ", cache " + p.Cache
	}
	line("sampler", "%s", text)
	if p.Schedule != nil {
		line("schedule", "%s: %s", p.Schedule.Name, units.Printable(p.Schedule.Reason))
	}
	if p.Queues != nil {
		line("schedule", "%s on %s: %s", scheduler.MultiQueue, units.Count(int64(p.Queues.Devices), "device"),
			p.Queues.Reason)
	}
}

// otherObstacles lists why alternatives are impossible, each reason once, unless the reasons of the plan say it.
func (p *planned) otherObstacles() (out []string) {
	reasons := strings.Join(p.Reasons, "\n")
	for _, a := range p.Alternatives {
		if a.Obstacle == "" || strings.Contains(reasons, a.Obstacle) {
			continue
		}
		text := fmt.Sprintf("not %s%s: %s", a.Placement, shuffleText(a.Shuffle), a.Obstacle)
		if !slices.Contains(out, text) {
			out = append(out, text)
		}
	}
	return out
}

func matricesText(n int) string {
	if n == 1 {
		return "1 matrix"
	}
	return fmt.Sprintf("%d matrices", n)
}

// seconds prints a prediction, "-" for what is unknown.
func seconds(s float64) string {
	if s == 0 {
		return "-"
	}
	return fmt.Sprintf("%.3g s", s)
}
