package command

import (
	"context"
	"strings"

	"github.com/hopfeed/hopfeed/format"
	"github.com/hopfeed/hopfeed/placement"
	"github.com/hopfeed/hopfeed/preprop"
	"github.com/hopfeed/hopfeed/preprop/operator"
	"github.com/hopfeed/hopfeed/tools/session"
	"github.com/hopfeed/hopfeed/tools/training"
	"github.com/hopfeed/hopfeed/trainer"
)

// planTyped plans the propagation of a typed graph, and the training on the store that it would make.
func (a *app) planTyped(ctx context.Context, o *planOptions) (result, error) {
	graph, err := format.OpenTarget(a.fs, o.Input)
	if err != nil {
		return nil, err
	}
	defer graph.Close()
	beside, err := a.fs.Resolve(graph.TypedPath)
	if err != nil {
		return nil, err
	}
	store := beside + ".store"
	po, err := a.typedPropagation(ctx, o)
	if err != nil {
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
	layout, stored := r.Layout, []format.MatrixID{}
	if layout.Features > 0 {
		stored = append(stored, format.Input)
	}
	for _, name := range r.Operators {
		stored = append(stored, format.MatrixID{Operator: name, Hop: 1})
	}
	spec := trainer.Spec{Model: o.Model, Features: layout.Features, Widths: layout.Widths}
	spec.Target, spec.Classes = training.TargetOf(&graph.Manifest)
	train := layout.Regions[0].Rows
	switch {
	case spec.Classes == 0:
		return nil, usagef("%s has no labels to train on (propagate --dry-run plans its propagation)", o.Input)
	case train == 0:
		return nil, usagef("%s has no training rows (propagate --dry-run plans its propagation)", o.Input)
	}
	if spec.Matrices, err = trainer.Matrices(o.Model, stored, nil, nil); err != nil {
		return nil, usagef("%s: %s", o.Input, err)
	}
	if spec.Settings, err = o.ModelValues(train); err != nil {
		return nil, err
	}
	if err := o.FillDefaults(train); err != nil {
		return nil, err
	}
	to, err := o.OptionsFor(a.machine(ctx), &format.Manifest{Nodes: r.Nodes, Rows: r.Rows}, spec,
		session.RegionPartition())
	if err != nil {
		return nil, err
	}
	var plan session.Plan
	if o.machine != nil {
		plan, err = a.describedPlan(layout, to, o)
	} else {
		o.unknown = "a few training steps are measured once there is a store (plan STORE)"
		plan, err = session.DescribedPlan(to.Machine.Facts(), layout, placement.Compute{}, to.Session(layout))
	}
	if err != nil {
		return nil, err
	}
	p := o.planned(plan, layout, len(spec.Matrices))
	p.Dataset, p.StoreBytes, p.Propagation, p.Metapaths = graph.Manifest.Name, r.Plan.StoreBytes, &r.Plan, r.Metapaths
	p.ChunkQuality = measureQuality(plan.Needs, a.seed, nil)
	if o.machines > 0 {
		p.Propagation, po.Tasks = nil, o.tasks
		p.Tasks, err = preprop.PlanTypedTasks(ctx, a.fs, o.Input, store, o.machines, po)
	}
	return p, err
}

// typedPropagation are the options of a dry run of propagate.
func (a *app) typedPropagation(ctx context.Context, o *planOptions) (po preprop.Options, err error) {
	po = o.store
	po.DryRun, po.Force = true, true // whatever is there
	po.Seed, po.Threads, po.MemoryBytes, po.Split = a.seed, a.threads, int64(a.budget.Bytes), max(0, o.Split)
	po.Note = func(text string) { a.note("%s", text) }
	switch len(o.Hops) {
	case 0:
		po.Hops, po.Defaulted.Hops = 2, true
	case 1:
		po.Hops = o.Hops[0]
	default:
		return po, usagef("--hops %s: one number is for all metapaths of a typed graph",
			flagValue(o.flags.Lookup("hops")))
	}
	if len(o.Operators) > 0 {
		if po.Operators, err = operator.ParseList(strings.Join(o.Operators, ","), operator.DefaultTolerance); err != nil {
			return po, usagef("%s", err)
		}
	}
	return po, a.planFor(ctx, &po, o.hardware, o.device)
}
