package command

import (
	"cmp"
	"context"
	"errors"
	"math"
	"runtime"
	"slices"

	"github.com/spf13/cobra"

	"github.com/hopfeed/hopfeed/chunk"
	"github.com/hopfeed/hopfeed/format"
	"github.com/hopfeed/hopfeed/internal/machine"
	"github.com/hopfeed/hopfeed/placement"
	"github.com/hopfeed/hopfeed/preprop"
	"github.com/hopfeed/hopfeed/tools/session"
	"github.com/hopfeed/hopfeed/tools/training"
	"github.com/hopfeed/hopfeed/trainer"
)

type planOptions struct {
	trainOptions
	hardware  string
	machine   *machine.Hardware // that hardware describes; nil: this machine
	devices   int
	dataset   string
	device    string
	machines  int // machines that share the propagation; 0: it is of one, without tasks
	tasks     int
	described described
	store     preprop.Options // what the store of a typed graph shall have
	unknown   string          // why no times are predicted; "": they could not be measured
}

func newPlanCommand(a *app) *cobra.Command {
	o := planOptions{trainOptions: trainOptions{repeats: repeats{runs: 1}}}
	c := a.verb("plan [STORE|GRAPH]",
		"Print where train would keep its input, why, and how long an epoch would take",
		`Plan lists the placements and shuffles that are possible for training on a hop store or a graph, the
memory and the time of an epoch that each would take, and the one that train would choose.

On this machine it measures for about a second: how fast rows are read and copied, and the time of a few
training steps. For a machine that --hardware describes, it estimates. Without a STORE, it plans for a known
data set (--dataset) or for one with --nodes and --features. With --edges it plans the propagation too, and with
--machines N a propagation that N such machines divide into tasks (see 'hopfeed propagate --help').

For a typed GRAPH and a model that reads a hop store, it plans the propagation that makes such a store: all
metapaths of up to --hops relations, or what --metapaths, --relations-subsets and --label-hops say. It plans the
training as on a described data set.

For a GRAPH, plan trains some batches and validates once, from the placement that train would choose or that
--placement names.`, o.do)
	f := c.Flags()
	a.declareDevices(f)
	a.declareGraphMemory(f)
	o.declarePlacedFlags(f)
	declareSchedule(f, &o.Schedule)
	f.StringVar(&o.hardware, "hardware", "", hardwareUsage)
	f.IntVar(&o.devices, "devices", 0, "number of devices of the --hardware to use (default all)")
	f.StringVar(&o.dataset, "dataset", "", "known data set to plan for instead of a STORE: "+placement.DatasetNames())
	f.Int64Var(&o.described.Nodes, "nodes", 0, "number of nodes")
	f.Int64Var(&o.described.edges, "edges", 0, "number of edges, each direction counted: also plan the propagation")
	f.IntVar(&o.machines, "machines", 0, "plan the propagation by tasks of this many machines, as --hardware describes")
	f.IntVar(&o.tasks, "tasks", 0, "tasks of each kind, with --machines (default: what is quickest)")
	f.StringVar(&o.device, "device", session.AutoDevice, deviceUsage)
	f.IntVar(&o.described.Features, "features", 0, "features of a node")
	f.IntVar(&o.described.Classes, "classes", 2, "number of classes")
	f.Float64Var(&o.described.Labeled, "labeled", 1, "share of the nodes that have a label")
	f.Float64SliceVar(&o.described.split, "split-shares", []float64{0.6, 0.2, 0.2},
		"`shares` of the labelled nodes that train, validate and test")
	declareTypedStore(f, &o.store)
	f.StringVar(&o.described.dtype, "dtype", "", dtypeUsage+" (default float32)")
	atLeast(f, 0, "devices", "machines", "tasks")
	return c
}

func (o *planOptions) do(ctx context.Context, a *app, args []string) (_ result, err error) {
	if err := o.complete(); err != nil {
		return nil, err
	}
	a.noteUnusedSettings(o.Model, o.settingsGiven())
	if len(args) > 0 {
		o.Input = args[0]
	}
	for _, name := range []string{"dataset", "nodes", "edges", "features", "classes", "labeled", "split-shares",
		"dtype"} {
		switch {
		case !a.given(name):
		case o.Input != "":
			return nil, usagef("--%s: STORE determines it (leave out one of the two)", name)
		case o.dataset != "" && !slices.Contains([]string{"dataset", "edges", "dtype"}, name):
			return nil, usagef("--%s: --dataset %s determines it (leave out one of the two)", name, o.dataset)
		}
	}
	readsGraph, err := o.ReadsGraph()
	if err != nil {
		return nil, err
	}
	typed := o.Input != "" && !readsGraph && format.IsTyped(a.fs, o.Input)
	for _, name := range []string{"metapaths", "relations-subsets", "label-hops"} {
		if a.given(name) && !typed {
			return nil, usagef("--%s: it is for the propagation of a typed GRAPH", name)
		}
	}
	switch {
	case o.hardware == "" && o.devices != 0:
		return nil, usagef("--devices needs --hardware (on this machine, --emulate gpu=N gives N devices)")
	case o.machines > 0 && o.described.edges == 0 && !typed:
		return nil, usagef("--machines plans the propagation of a described graph (give --edges), or of a typed GRAPH")
	case o.machines > 0 && o.hardware == "":
		return nil, usagef("--machines needs --hardware FILE, which describes them")
	case a.given("device") && o.described.edges == 0 && !typed:
		return nil, usagef("--device: it is for the propagation of a described graph (give --edges), or of a typed GRAPH")
	case o.tasks > 0 && o.machines == 0:
		return nil, usagef("--tasks needs --machines, the number of machines")
	case o.hardware != "" && a.emulate.GPUs > 0:
		return nil, usagef("--emulate with --hardware: the first is for this machine, the second describes another " +
			"(give --devices N for its devices)")
	case readsGraph && o.Input == "":
		return nil, usagef("%s reads a graph, whose batches are measured: give a GRAPH", o.Model)
	case readsGraph && o.hardware != "":
		return nil, usagef("--hardware: batches of a graph are measured on this machine (leave it out, or choose a " +
			"model that reads a hop store)")
	case o.Input == "" && o.hardware == "":
		return nil, usagef("give a STORE or a GRAPH, with which this machine is measured, or describe a machine by " +
			"--hardware FILE")
	case o.Input != "" && len(o.splitNumbers) > 1:
		return nil, usagef("--split %s: a plan is for one split", o.splitNumbers.String())
	}
	if o.hardware != "" {
		h, err := machine.ReadHardware(a.fs, o.hardware)
		if err != nil {
			return nil, err
		}
		o.machine = &h
	}
	if !readsGraph {
		if err := o.checkInputFlags(); err != nil {
			return nil, err
		}
	}
	switch {
	case o.Input == "":
		return a.planDescribed(ctx, o)
	case typed:
		return a.planTyped(ctx, o)
	}
	input, err := a.openInputOf(o.Input, o.Model)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, input.Close()) }()
	if err := o.checkInputFlags(); err != nil {
		return nil, err
	}
	to, err := a.resolve(ctx, input, &o.trainOptions)
	if err != nil {
		return nil, err
	}
	var p *planned
	if readsGraph {
		p, err = a.planGraph(ctx, input, o, to)
	} else {
		p, err = a.planStore(ctx, input, o, to)
	}
	if err != nil {
		return nil, err
	}
	p.Dataset, p.StoreBytes = input.Manifest.Name, input.Manifest.Bytes()
	return p, nil
}

// planStore plans for an existing store.
func (a *app) planStore(ctx context.Context, store *format.Dir, o *planOptions, to training.Options) (p *planned,
	err error) {
	layout, m := store.Layout(), &store.Manifest
	var plan session.Plan
	if o.machine != nil {
		plan, err = a.describedPlan(layout, to, o)
	} else {
		plan, err = session.MakePlan(ctx, store, to.Session(layout))
	}
	if err != nil {
		return nil, err
	}
	p = o.planned(plan, layout, len(to.Spec.Matrices))
	if to.Part.Scattered() {
		return p, nil
	}
	train, _ := store.Region(format.RegionTrain)
	var labels []int32
	if m.Labels == 1 && to.Spec.Target == trainer.ClassTarget {
		labels = make([]int32, train.Rows)
		if err := store.ReadLabels(ctx, train, labels); err != nil {
			return nil, err
		}
	}
	p.ChunkQuality = measureQuality(plan.Needs, a.seed, labels)
	return p, nil
}

// planned reports a plan.
func (o *planOptions) planned(plan session.Plan, layout format.Layout, matrices int) *planned {
	d, n := plan.Decision, plan.Needs
	p := &planned{
		Model: o.Model, Matrices: matrices, Features: layout.Features, mixed: layout.Widths != nil,
		DType: layout.DType.String(),
		Rows:  int64(n.Input) / n.RowBytes, TrainRows: n.TrainRows, ValidRows: n.ValidRows, InputBytes: n.Input,
		WorkBytes: n.WorkOn(d.Devices), Memory: plan.Memory(),
		Placement: d.Placement, Shuffle: d.Shuffle, Buffers: placement.Buffers, Devices: d.Devices,
		Reasons: d.Reasons, Alternatives: d.Alternatives, Machine: o.plannedMachine(plan.Facts),
	}
	switch {
	case d.ComputeSeconds > 0:
		p.PredictedEpochSeconds = &d.EpochSeconds
	case o.machine != nil:
		p.Reasons = append(p.Reasons,
			"times are of loading alone: devices.gflops in --hardware, the speed of computing, is not given")
	default:
		p.Reasons = append(p.Reasons, "no times are predicted: "+cmp.Or(o.unknown,
			"there is too little memory to measure a few training steps"))
	}
	return p
}

// plannedMachine reports what is planned for.
func (o *planOptions) plannedMachine(f placement.Facts) plannedMachine {
	m := plannedMachine{
		Described: o.hardware, Cores: runtime.NumCPU(), NUMANodes: machine.NUMANodes(), MemoryBytes: f.Budget.Bytes,
		MemoryBy: f.Budget.By,
		Device:   f.Device.Name, Unified: f.Device.Unified, Devices: f.Devices, DeviceBytes: f.DeviceFree, Rates: f.Rates,
	}
	if f.Pinnable.By != "" && f.Pinnable.Bytes < f.Budget.Bytes {
		m.PinnableBytes, m.PinnableBy = &f.Pinnable.Bytes, f.Pinnable.By
	}
	if o.machine != nil {
		m.Cores, m.NUMANodes = o.machine.Cores, 0
	}
	return m
}

// qualityRows is a number of rows that is large enough to measure how well batches are mixed.
const qualityRows = 10_000_000

// measureQuality measures how well the first epoch is mixed if chunks are reshuffled.
func measureQuality(n placement.Needs, seed uint64, labels []int32) *chunkQuality {
	plan := chunk.Plan{Rows: n.TrainRows, ChunkRows: n.ChunkRows, BatchRows: n.BatchRows, Order: chunk.Shuffled,
		Seed: seed}
	q := plan.Quality(0, qualityRows, labels)
	out := &chunkQuality{ChunkRows: n.ChunkRows, Neighbours: q.Neighbours, RRNeighbours: q.RRNeighbours}
	if !math.IsNaN(q.LabelVariance) {
		out.LabelVariance = &q.LabelVariance
	}
	return out
}
