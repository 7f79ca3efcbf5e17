package command

import (
	"context"
	"strings"

	"github.com/hopfeed/hopfeed/format"
	"github.com/hopfeed/hopfeed/internal/dtype"
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

// planDescribed plans for a described data set on a described machine.
func (a *app) planDescribed(ctx context.Context, o *planOptions) (result, error) {
	d := o.described.Dataset
	copy(d.Split[:], o.described.split)
	if o.dataset != "" {
		var err error
		if d, err = placement.FindDataset(o.dataset); err != nil {
			return nil, usagef("--dataset: %s", err)
		}
	} else {
		d.Name, d.Hops = "described", 3
	}
	if len(o.Hops) > 1 {
		return nil, usagef("--hops %s: one number is for all operators of a described store",
			flagValue(o.flags.Lookup("hops")))
	} else if len(o.Hops) == 1 {
		d.Hops = o.Hops[0]
	}
	if len(o.described.split) != len(d.Split) {
		return nil, usagef("--split-shares: want three, for training, validation and test")
	}
	if err := d.Check(); err != nil {
		return nil, usagef("data set: %s", err)
	}
	t, err := parseDType(o.described.dtype)
	if err != nil {
		return nil, err
	}
	if t == 0 {
		t = dtype.Float32
	}
	train, valid, test := d.Rows()
	spec := trainer.Spec{Model: o.Model, Features: d.Features, Classes: d.Classes}
	if spec.Settings, err = o.ModelValues(train); err != nil {
		return nil, err
	}
	if spec.Matrices, err = o.describedMatrices(d.Hops); err != nil {
		return nil, usagef("%s", err)
	}
	layout := format.NewLayout([]format.RegionSize{{Name: format.RegionTrain, Rows: train},
		{Name: format.RegionValid, Rows: valid}, {Name: format.RegionTest, Rows: test}},
		0, d.Features, t)
	if err := o.FillDefaults(train); err != nil {
		return nil, err
	}
	to, err := o.OptionsFor(session.Machine{}, &format.Manifest{}, spec, session.RegionPartition())
	if err != nil {
		return nil, err
	}
	plan, err := a.describedPlan(layout, to, o)
	if err != nil {
		return nil, err
	}
	p := o.planned(plan, layout, len(spec.Matrices))
	p.Dataset = d.Name
	// The input, every hop of every operator, and a little beside them.
	p.StoreBytes = int64(plan.Needs.Input) / int64(len(spec.Matrices)) * int64(1+d.Hops*max(1, len(o.Operators)))
	p.ChunkQuality = measureQuality(plan.Needs, a.seed, nil)
	if o.described.edges != 0 {
		err = a.planPropagation(ctx, o, d, t, p)
	}
	return p, err
}

// planPropagation adds the propagation of a described data set to a plan.
func (a *app) planPropagation(ctx context.Context, o *planOptions, d placement.Dataset, t dtype.DType,
	p *planned) error {
	operators, err := o.describedOperators()
	if err != nil {
		return usagef("%s", err)
	}
	train, valid, test := d.Rows()
	options := preprop.Options{Hops: d.Hops, Operators: operators, MemoryBytes: int64(a.memory), DryRun: true}
	if err := a.planFor(ctx, &options, o.hardware, o.device); err != nil {
		return err
	}
	graph := preprop.Described{
		Nodes: d.Nodes, Edges: o.described.edges, Features: d.Features, DType: t, Rows: train + valid + test,
	}
	if o.machines > 0 {
		options.Tasks = o.tasks
		p.Tasks, err = preprop.PlanTasks(graph, o.machines, options)
		return err
	}
	r, err := preprop.PlanDescribed(graph, options)
	if err == nil {
		p.Propagation = &r.Plan
	}
	return err
}

// describedOperators are the operators of a described store.
func (o *trainOptions) describedOperators() ([]operator.Operator, error) {
	list := "sym"
	if len(o.Operators) > 0 {
		list = strings.Join(o.Operators, ",")
	}
	return operator.ParseList(list, operator.DefaultTolerance)
}

// describedMatrices are the matrices that the model reads of a store with these hops.
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
	return trainer.Matrices(o.Model, stored, nil, nil)
}
