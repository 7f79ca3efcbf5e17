package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"runtime"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/hopfeed/hopfeed/chunk"
	"github.com/hopfeed/hopfeed/format"
	"github.com/hopfeed/hopfeed/internal/dtype"
	"github.com/hopfeed/hopfeed/internal/machine"
	"github.com/hopfeed/hopfeed/internal/units"
	"github.com/hopfeed/hopfeed/placement"
	"github.com/hopfeed/hopfeed/preprop"
	"github.com/hopfeed/hopfeed/trainer"
)

type planOptions struct {
	trainOptions
	hardware string
	devices  int
	dataset  string
	described
}

// described is a data set of which only numbers are known.
type described struct {
	placement.Dataset
	edges int64
	split []float64
	dtype string
}

func newPlanCommand(a *app) *cobra.Command {
	o := planOptions{trainOptions: trainOptions{runs: 1, Settings: trainer.Settings{EvalEvery: 1}}}
	c := &cobra.Command{
		Use:   "plan [STORE]",
		Short: "Print where train would keep its input, why, and how long an epoch would take",
		Long: "Plan lists the placements and shuffles that are possible for training on a hop store, the memory and the time\n" +
			"of an epoch that each would take, and the one that train would choose.\n\n" +
			"On this machine it measures for about a second: how fast rows are read and copied, and the time of a few\n" +
			"training steps. For a machine that --hardware describes, it estimates. Without a STORE, it plans for a known\n" +
			"data set (--dataset) or for one with --nodes and --features; with --edges, also its propagation.",
		Args: cobra.MaximumNArgs(1),
	}
	f := c.Flags()
	a.declareEmulate(f)
	o.declarePlacedFlags(f)
	f.StringVar(&o.hardware, "hardware", "", hardwareUsage)
	f.IntVar(&o.devices, "devices", 0, "number of devices of the --hardware to use (default all)")
	f.StringVar(&o.dataset, "dataset", "", "known data set to plan for instead of a STORE: "+placement.DatasetNames())
	f.Int64Var(&o.Nodes, "nodes", 0, "number of nodes")
	f.Int64Var(&o.edges, "edges", 0, "number of edges, each direction counted: also plan the propagation")
	f.IntVar(&o.Features, "features", 0, "features of a node")
	f.IntVar(&o.Classes, "classes", 2, "number of classes")
	f.Float64Var(&o.Labeled, "labeled", 1, "share of the nodes that have a label")
	f.Float64SliceVar(&o.described.split, "split-shares", []float64{0.6, 0.2, 0.2}, "shares of the labelled nodes that train, validate and test")
	f.StringVar(&o.dtype, "dtype", "", dtypeUsage+" (default float32)")
	c.RunE = a.verb(func(ctx context.Context, args []string) (result, error) {
		if err := o.fillDefaults(f); err != nil {
			return nil, err
		}
		if len(args) > 0 {
			o.store = args[0]
		}
		for _, name := range []string{"dataset", "nodes", "edges", "features", "classes", "labeled", "split-shares", "dtype"} {
			switch {
			case !f.Changed(name):
			case o.store != "":
				return nil, usagef("--%s: STORE determines it (leave out one of the two)", name)
			case o.dataset != "" && !slices.Contains([]string{"dataset", "edges", "dtype"}, name):
				return nil, usagef("--%s: --dataset %s determines it (leave out one of the two)", name, o.dataset)
			}
		}
		return runPlan(ctx, a, o)
	})
	return c
}

// planned is the result of plan.
type planned struct {
	Dataset               string                  `json:"dataset"`
	Model                 string                  `json:"model"`
	Machine               plannedMachine          `json:"machine"`
	Matrices              int                     `json:"matrices"`
	Features              int                     `json:"features"`
	DType                 string                  `json:"dtype"`
	Rows                  int64                   `json:"rows"`
	TrainRows             int64                   `json:"train_rows"`
	ValidRows             int64                   `json:"valid_rows"`
	StoreBytes            int64                   `json:"store_bytes"`
	InputBytes            units.Bytes             `json:"input_bytes"` // of what the model reads
	WorkBytes             units.Bytes             `json:"work_bytes"`  // of batches and model, on the device
	Placement             string                  `json:"placement"`
	Shuffle               string                  `json:"shuffle"`
	Buffers               int                     `json:"buffers"`
	Devices               int                     `json:"devices"`
	PredictedEpochSeconds *float64                `json:"predicted_epoch_seconds"` // null where the time of computing is not known
	Reasons               []string                `json:"reasons"`
	Alternatives          []placement.Alternative `json:"alternatives"`
	ChunkQuality          *chunkQuality           `json:"chunk_quality"` // null where chunks cannot be reshuffled
	// Propagation is what making the store would take; null where the edges are not known.
	Propagation *preprop.Plan `json:"propagation"`
}

// plannedMachine is what was planned for.
type plannedMachine struct {
	Described   string      `json:"described,omitempty"` // by this file
	Cores       int         `json:"cores"`
	NUMANodes   int         `json:"numa_nodes,omitempty"`
	MemoryBytes units.Bytes `json:"memory_bytes"` // that may be used
	MemoryBy    string      `json:"memory_by"`
	// Pinnable is how much of the memory can be locked for devices to copy from, where
	// something limits that.
	PinnableBytes *units.Bytes    `json:"pinnable_bytes"`
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

func (p *planned) text(w io.Writer) {
	line := func(name, format string, args ...any) { fmt.Fprintf(w, name+"\t"+format+"\n", args...) }
	m := p.Machine
	switch {
	case m.Described != "":
		line("machine", "%s: %s", m.Described, count(int64(m.Cores), "core"))
	default:
		line("machine", "%s of %s", count(int64(m.Cores), "core"), count(int64(m.NUMANodes), "NUMA node"))
	}
	line("", "%s of memory (%s)", m.MemoryBytes, m.MemoryBy)
	if m.Unified {
		line("", "device %q, in host memory", m.Device)
	} else {
		if m.PinnableBytes != nil {
			line("", "%s of it can be pinned (%s)", *m.PinnableBytes, m.PinnableBy)
		}
		line("", "%s of %s each", count(int64(m.Devices), "device"), m.DeviceBytes)
	}
	var rates []string
	for _, r := range m.Rates.List() {
		rates = append(rates, r.Name+" "+r.Rate.String())
	}
	line("rates", "%s", strings.Join(rates, ", "))
	if p.Propagation != nil {
		for i, text := range planLines(p.Propagation, m.MemoryBytes) {
			line([]string{"propagate", ""}[min(i, 1)], "%s", text)
		}
	}
	line("input", "%s of %d features, %s, of %d rows: %s; %d train, %d validate", matricesText(p.Matrices), p.Features, p.DType, p.Rows, p.InputBytes, p.TrainRows, p.ValidRows)
	line("model", "%s: it and its batches take %s on the device", p.Model, p.WorkBytes)
	if q := p.ChunkQuality; q != nil {
		line("by chunk", "of %d rows: %.3g %% of rows that are next to each other in storage share a batch (%.3g %% if rows were reshuffled)", q.ChunkRows, 100*q.Neighbours, 100*q.RRNeighbours)
		if q.LabelVariance != nil {
			line("", "the variance of label counts in batches is %.3g times that if rows were reshuffled", *q.LabelVariance)
		}
	}
	fmt.Fprintln(w, "\nplacement\tshuffle\tpossible\tepoch\tloading\tcomputing\tlimit\tdevice memory\thost memory\tread an epoch")
	for _, a := range p.Alternatives {
		name := a.Placement
		if a.Sharded {
			name = fmt.Sprintf("%s, over %d", name, a.Devices)
		}
		possible := "yes"
		if a.Obstacle != "" {
			possible = "no"
		}
		fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\n", name, a.Shuffle, possible, seconds(a.EpochSeconds), seconds(a.LoadSeconds),
			seconds(a.ComputeSeconds), a.Busiest, a.DeviceBytes, a.HostBytes, a.EpochBytes)
	}
	fmt.Fprintf(w, "\nplan: %s%s, %d buffers\n", p.Placement, shuffleText(p.Shuffle), p.Buffers)
	for _, reason := range append(p.Reasons, p.otherObstacles()...) {
		fmt.Fprintf(w, "  %s\n", reason)
	}
}

// otherObstacles lists why alternatives are impossible, each once, without those that the reasons
// have already.
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

func runPlan(ctx context.Context, a *app, o planOptions) (_ result, err error) {
	if err := o.validate(); err != nil {
		return nil, err
	}
	if o.hardware == "" && o.devices != 0 {
		return nil, usagef("--devices needs --hardware (on this machine, --emulate gpu=N gives N devices)")
	}
	if o.hardware != "" && a.emulate.GPUs > 0 {
		return nil, usagef("--emulate with --hardware: the first is for this machine, the second describes another (give --devices N for its devices)")
	}
	if o.devices < 0 {
		return nil, usagef("--devices %d: must not be negative", o.devices)
	}
	if o.store != "" {
		return a.planStore(ctx, o)
	}
	if o.hardware == "" {
		return nil, usagef("without a STORE nothing can be measured: describe the machine by --hardware FILE")
	}
	return a.planDescribed(o)
}

// planStore plans for an existing store.
func (a *app) planStore(ctx context.Context, o planOptions) (_ result, err error) {
	store, err := a.openStore(o.store, "plan")
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, store.Close()) }()
	spec, part, err := a.planTraining(ctx, store, &o.trainOptions)
	if err != nil {
		return nil, err
	}
	so, m := o.sessionOptions(store, part), &store.Manifest
	v, err := a.storeInputs(ctx, store, spec, so, o)
	if err != nil {
		return nil, err
	}
	p, err := a.plan(v, store.Layout(), spec, so, o)
	if err != nil {
		return nil, err
	}
	p.Dataset, p.StoreBytes = m.Name, m.Bytes()
	if !part.scattered {
		train, _ := store.Region(format.RegionTrain)
		var labels []int32
		if m.Labels == 1 {
			labels = make([]int32, train.Rows)
			if err := store.ReadLabels(ctx, train, labels); err != nil {
				return nil, err
			}
		}
		p.ChunkQuality = measureQuality(v.needs, a.seed, labels)
	}
	return p, nil
}

// storeInputs measures this machine, or reads the description of another.
func (a *app) storeInputs(ctx context.Context, store *format.Dir, spec trainer.Spec, so sessionOptions, o planOptions) (v placementInputs, err error) {
	if o.hardware != "" {
		return a.describedInputs(store.Layout(), spec, so, o)
	}
	if v.facts, err = a.machineFacts(); err != nil {
		return v, err
	}
	if v.needs, err = so.needs(store.Layout(), spec, v.facts.Devices); err != nil {
		return v, err
	}
	v.needs.Host += indexBytes(store)
	// If nothing fits, there is no point in measuring.
	d, err := placement.Choose(v.facts, v.needs, placement.Override{Placement: o.placement, Shuffle: o.shuffle})
	if err != nil {
		return v, err
	}
	err = v.measure(ctx, a, store, spec, so, d.Devices)
	return v, err
}

// describedInputs reads the description of a machine, and estimates how fast it computes.
func (a *app) describedInputs(layout format.Layout, spec trainer.Spec, so sessionOptions, o planOptions) (v placementInputs, err error) {
	h, err := machine.ReadHardware(a.fs, o.hardware)
	if err != nil {
		return v, err
	}
	if v.facts, err = placement.FactsOf(h, o.devices, machine.Limit{Bytes: a.memory, By: "--memory"}); err != nil {
		return v, err
	}
	if v.needs, err = so.needs(layout, spec, max(1, v.facts.Devices)); err != nil {
		return v, err
	}
	parameters, err := spec.Parameters()
	v.needs.Compute = placement.ComputeOf(parameters, h.Devices)
	v.cores = h.Cores
	return v, err
}

// planDescribed plans for a described data set on a described machine.
func (a *app) planDescribed(o planOptions) (result, error) {
	d := o.Dataset
	copy(d.Split[:], o.described.split)
	if o.dataset != "" {
		var err error
		if d, err = placement.FindDataset(o.dataset); err != nil {
			return nil, usagef("--dataset: %s", err)
		}
	} else {
		d.Name, d.Hops = "described", 3
	}
	if o.hops >= 0 {
		d.Hops = o.hops
	}
	if len(o.described.split) != len(d.Split) {
		return nil, usagef("--split-shares: want three, for training, validation and test")
	}
	if err := d.Check(); err != nil {
		return nil, usagef("data set: %s", err)
	}
	t, err := parseDType(o.dtype)
	if err != nil {
		return nil, err
	}
	if t == 0 {
		t = dtype.Float32
	}
	spec := trainer.Spec{Model: o.model, Features: d.Features, Classes: d.Classes, Hidden: o.Hidden, Layers: o.Layers}
	if spec.Matrices, err = o.describedMatrices(d.Hops); err != nil {
		return nil, usagef("%s", err)
	}
	train, valid, test := d.Rows()
	layout := format.NewLayout([]format.RegionSize{{Name: format.RegionTrain, Rows: train}, {Name: format.RegionValid, Rows: valid}, {Name: format.RegionTest, Rows: test}},
		0, d.Features, t)
	so := sessionOptions{batch: o.BatchRows, train: true, placement: o.placement, shuffle: o.shuffle, chunkRows: o.chunkRows, trainRows: train, validRows: valid}
	v, err := a.describedInputs(layout, spec, so, o)
	if err != nil {
		return nil, err
	}
	p, err := a.plan(v, layout, spec, so, o)
	if err != nil {
		return nil, err
	}
	p.Dataset = d.Name
	// Of the input, of every hop of every operator, and of a little beside them.
	p.StoreBytes = int64(v.needs.Input) / int64(len(spec.Matrices)) * int64(1+d.Hops*max(1, len(o.operators)))
	p.ChunkQuality = measureQuality(v.needs, a.seed, nil)
	if o.edges != 0 {
		p.Propagation, err = a.planPropagation(o, d, t)
	}
	return p, err
}

// planPropagation plans the propagation of a described data set.
func (a *app) planPropagation(o planOptions, d placement.Dataset, t dtype.DType) (*preprop.Plan, error) {
	operators, err := o.describedOperators()
	if err != nil {
		return nil, usagef("%s", err)
	}
	train, valid, test := d.Rows()
	options := preprop.Options{Hops: d.Hops, Operators: operators, MemoryBytes: int64(a.memory), DryRun: true}
	if err := a.planFor(&options, o.hardware); err != nil {
		return nil, err
	}
	r, err := preprop.PlanDescribed(preprop.Described{
		Nodes: d.Nodes, Edges: o.edges, Features: d.Features, DType: t, Rows: train + valid + test,
	}, options)
	if err != nil {
		return nil, err
	}
	return &r.Plan, nil
}

// describedOperators are those of a store that is not there.
func (o *trainOptions) describedOperators() ([]preprop.Operator, error) {
	list := "sym"
	if len(o.operators) > 0 {
		list = strings.Join(o.operators, ",")
	}
	return preprop.ParseOperators(list, preprop.DefaultTolerance)
}

// describedMatrices are what the model reads of a store with so many hops.
func (o *trainOptions) describedMatrices(hops int) ([]format.MatrixID, error) {
	operators, err := o.describedOperators()
	if err != nil {
		return nil, err
	}
	stored := []format.MatrixID{format.Input}
	for _, operator := range operators {
		for hop := 1; hop <= hops; hop++ {
			stored = append(stored, format.MatrixID{Operator: operator.String(), Hop: hop})
		}
	}
	return trainer.Matrices(o.model, stored, nil, -1)
}

// plan chooses a placement, and lists the alternatives.
func (a *app) plan(v placementInputs, layout format.Layout, spec trainer.Spec, so sessionOptions, o planOptions) (*planned, error) {
	d, err := placement.Choose(v.facts, v.needs, placement.Override{Placement: o.placement, Shuffle: o.shuffle})
	if err != nil {
		return nil, err
	}
	f, n := v.facts, v.needs
	p := &planned{
		Model: o.model, Matrices: len(spec.Matrices), Features: layout.Features, DType: layout.DType.String(),
		Rows: so.rows(layout), TrainRows: n.TrainRows, ValidRows: n.ValidRows, InputBytes: n.Input, WorkBytes: n.WorkOn(d.Devices),
		Placement: d.Placement, Shuffle: d.Shuffle, Buffers: placement.Buffers, Devices: d.Devices,
		Reasons: d.Reasons, Alternatives: d.Alternatives,
		Machine: plannedMachine{
			Described: o.hardware, Cores: v.cores, MemoryBytes: f.Budget.Bytes, MemoryBy: f.Budget.By,
			Device: f.Device.Name, Unified: f.Device.Unified, Devices: f.Devices, DeviceBytes: f.DeviceFree, Rates: f.Rates,
		},
	}
	if f.Pinnable.By != "" && f.Pinnable.Bytes < f.Budget.Bytes {
		p.Machine.PinnableBytes, p.Machine.PinnableBy = &f.Pinnable.Bytes, f.Pinnable.By
	}
	if o.hardware == "" {
		p.Machine.Cores, p.Machine.NUMANodes = runtime.NumCPU(), machine.NUMANodes()
	}
	if d.ComputeSeconds > 0 {
		p.PredictedEpochSeconds = &d.EpochSeconds
	} else if o.hardware != "" {
		p.Reasons = append(p.Reasons, "times are of loading alone: devices.gflops in --hardware, the speed of computing, is not given")
	} else {
		p.Reasons = append(p.Reasons, "no times are predicted: there is too little memory to measure a few training steps")
	}
	return p, nil
}

// qualityRows is a number of rows that is large enough to measure how well batches are mixed.
const qualityRows = 10_000_000

// measureQuality measures how well the first epoch is mixed if chunks are reshuffled.
func measureQuality(n placement.Needs, seed uint64, labels []int32) *chunkQuality {
	plan := chunk.Plan{Rows: n.TrainRows, ChunkRows: n.ChunkRows, BatchRows: n.BatchRows, Order: chunk.Shuffled, Seed: seed}
	q := plan.Quality(0, qualityRows, labels)
	out := &chunkQuality{ChunkRows: n.ChunkRows, Neighbours: q.Neighbours, RRNeighbours: q.RRNeighbours}
	if !math.IsNaN(q.LabelVariance) {
		out.LabelVariance = &q.LabelVariance
	}
	return out
}
