package command

import (
	"cmp"
	"context"
	"strings"

	"github.com/hopfeed/hopfeed/format"
	"github.com/hopfeed/hopfeed/internal/machine"
	"github.com/hopfeed/hopfeed/placement"
	"github.com/hopfeed/hopfeed/preprop"
	"github.com/hopfeed/hopfeed/preprop/operator"
	"github.com/hopfeed/hopfeed/tools/session"
	"github.com/hopfeed/hopfeed/tools/training"
	"github.com/hopfeed/hopfeed/trainer"
)

// described is a data set that is known by its numbers alone, such as nodes and features.
type described struct {
	placement.Dataset
	edges int64
	split []float64
	dtype string
}

// unmadeStore describes a store that is not there yet.
type unmadeStore struct {
	name     string
	manifest format.Manifest // numbers of nodes and rows, as far as memory depends on them
	layout   format.Layout
	stored   []format.MatrixID
	target   trainer.Target
	classes  int
}

// planUnmade plans the training on a store that is not there yet.
func (a *app) planUnmade(ctx context.Context, o *planOptions, s unmadeStore) (*planned, error) {
	train := s.layout.Regions[0].Rows
	spec := trainer.Spec{Model: o.Model, Features: s.layout.Features, Widths: s.layout.Widths, Target: s.target,
		Classes: s.classes}
	var err error
	if spec.Matrices, err = trainer.Matrices(o.Model, s.stored, nil, nil); err != nil {
		return nil, usagef("%s: %s", cmp.Or(o.Input, s.name), err)
	}
	if spec.Settings, err = o.ModelValues(train); err != nil {
		return nil, err
	}
	if err := o.FillDefaults(train); err != nil {
		return nil, err
	}
	to, err := o.OptionsFor(session.Machine{}, &s.manifest, spec, session.RegionPartition())
	if err != nil {
		return nil, err
	}
	var plan session.Plan
	if o.machine != nil {
		plan, err = a.describedPlan(s.layout, to, o)
	} else {
		o.unknown = "a few training steps are measured once there is a store (plan STORE)"
		plan, err = session.DescribedPlan(a.machine(ctx).Facts(), s.layout, placement.Compute{}, to.Session(s.layout))
	}
	if err != nil {
		return nil, err
	}
	p := o.planned(plan, s.layout, len(spec.Matrices))
	p.Dataset, p.ChunkQuality = s.name, measureQuality(plan.Needs, a.seed, nil)
	return p, nil
}

// describedPlan plans for the machine that --hardware describes, and estimates how fast it computes.
func (a *app) describedPlan(layout format.Layout, to training.Options, o *planOptions) (p session.Plan, err error) {
	facts, err := placement.FactsOf(*o.machine, o.devices, machine.Limit{Bytes: a.memory, By: "--memory"})
	if err != nil {
		return p, err
	}
	parameters, err := to.Spec.Parameters()
	if err != nil {
		return p, err
	}
	return session.DescribedPlan(facts, layout, placement.ComputeOf(parameters, o.machine.Devices), to.Session(layout))
}

// oneHops returns the number of --hops, or otherwise without the flag. It refuses several: one number is for all.
func (o *planOptions) oneHops(otherwise int, all string) (int, error) {
	switch len(o.Hops) {
	case 0:
		return otherwise, nil
	case 1:
		return o.Hops[0], nil
	}
	return 0, usagef("--hops %s: one number is for all %s", flagValue(o.flags.Lookup("hops")), all)
}

// operators parses --operator or, without the flag, the list otherwise.
func (o *planOptions) operators(otherwise string) ([]operator.Operator, error) {
	all, err := operator.ParseList(cmp.Or(strings.Join(o.Operators, ","), otherwise), operator.DefaultTolerance)
	if err != nil {
		return nil, usagef("%s", err)
	}
	return all, nil
}

// planDescribed plans for a described data set on a described machine.
func (a *app) planDescribed(ctx context.Context, o *planOptions) (result, error) {
	d := o.described.Dataset
	copy(d.Split[:], o.described.split)
	d.Name, d.Hops = "described", 3
	var err error
	if o.dataset != "" {
		if d, err = placement.FindDataset(o.dataset); err != nil {
			return nil, usagef("--dataset: %s", err)
		}
	}
	if d.Hops, err = o.oneHops(d.Hops, "operators of a described store"); err != nil {
		return nil, err
	}
	if len(o.described.split) != len(d.Split) {
		return nil, usagef("--split-shares: want three, for training, validation and test")
	}
	if err := d.Check(); err != nil {
		return nil, usagef("data set: %s", err)
	}
	t, err := parseDType(cmp.Or(o.described.dtype, "float32"))
	if err != nil {
		return nil, err
	}
	operators, err := o.operators(operator.Sym)
	if err != nil {
		return nil, err
	}
	train, valid, test := d.Rows()
	stored := []format.MatrixID{format.Input}
	for _, operator := range operators {
		for hop := range d.Hops {
			stored = append(stored, format.MatrixID{Operator: operator.String(), Hop: hop + 1})
		}
	}
	layout := format.NewLayout([]format.RegionSize{{Name: format.RegionTrain, Rows: train},
		{Name: format.RegionValid, Rows: valid}, {Name: format.RegionTest, Rows: test}},
		0, d.Features, t)
	p, err := a.planUnmade(ctx, o, unmadeStore{name: d.Name, layout: layout, stored: stored, classes: d.Classes})
	if err != nil {
		return nil, err
	}
	// The input, every hop of every operator, and a little beside them.
	p.StoreBytes = int64(p.InputBytes) / int64(p.Matrices) * int64(len(stored))
	if o.described.edges == 0 {
		return p, nil
	}
	options := preprop.Options{Hops: d.Hops, Operators: operators, MemoryBytes: int64(a.memory), DryRun: true,
		Tasks: o.tasks}
	if err := a.planFor(ctx, &options, o.hardware, o.device); err != nil {
		return p, err
	}
	graph := preprop.Described{
		Nodes: d.Nodes, Edges: o.described.edges, Features: d.Features, DType: t, Rows: train + valid + test,
	}
	if o.machines > 0 {
		p.Tasks, err = preprop.PlanTasks(graph, o.machines, options)
		return p, err
	}
	r, err := preprop.PlanDescribed(graph, options)
	if err == nil {
		p.Propagation = &r.Plan
	}
	return p, err
}

// planTyped plans the propagation of a typed graph, and the training on the store that it would make.
func (a *app) planTyped(ctx context.Context, o *planOptions) (result, error) {
	graph, err := format.OpenTarget(a.fs, o.Input)
	if err != nil {
		return nil, err
	}
	defer graph.Close()
	store, err := a.fs.Resolve(graph.TypedPath)
	if err != nil {
		return nil, err
	}
	store += ".store"
	po := o.store
	po.DryRun, po.Force = true, true // whatever is there
	po.Seed, po.Threads, po.MemoryBytes, po.Split = a.seed, a.threads, int64(a.budget.Bytes), max(0, o.Split)
	po.Note, po.Defaulted.Hops = a.tell, len(o.Hops) == 0
	if po.Hops, err = o.oneHops(2, "metapaths of a typed graph"); err != nil {
		return nil, err
	}
	if len(o.Operators) > 0 {
		if po.Operators, err = o.operators(""); err != nil {
			return nil, err
		}
	}
	if err := a.planFor(ctx, &po, o.hardware, o.device); err != nil {
		return nil, err
	}
	alone := po
	if o.machines > 0 {
		alone.MemoryBytes = 0 // what one machine would take need not fit
	}
	r, err := preprop.Propagate(ctx, a.fs, o.Input, store, alone)
	if err != nil {
		return nil, err
	}
	s := unmadeStore{name: graph.Manifest.Name, layout: r.Layout, manifest: format.Manifest{Nodes: r.Nodes, Rows: r.Rows}}
	if r.Layout.Features > 0 {
		s.stored = append(s.stored, format.Input)
	}
	for _, name := range r.Operators {
		s.stored = append(s.stored, format.MatrixID{Operator: name, Hop: 1})
	}
	switch s.target, s.classes = training.TargetOf(&graph.Manifest); {
	case s.classes == 0:
		return nil, usagef("%s has no labels to train on (propagate --dry-run plans its propagation)", o.Input)
	case r.Layout.Regions[0].Rows == 0:
		return nil, usagef("%s has no training rows (propagate --dry-run plans its propagation)", o.Input)
	}
	p, err := a.planUnmade(ctx, o, s)
	if err != nil {
		return nil, err
	}
	p.StoreBytes, p.Metapaths = r.Plan.StoreBytes, r.Metapaths
	if o.machines == 0 {
		p.Propagation = &r.Plan
		return p, nil
	}
	po.Tasks = o.tasks
	p.Tasks, err = preprop.PlanTypedTasks(ctx, a.fs, o.Input, store, o.machines, po)
	return p, err
}
