package command

import (
	"context"
	"maps"
	"slices"

	"github.com/spf13/pflag"
	"go.yaml.in/yaml/v3"

	"github.com/hopfeed/hopfeed/format"
	"github.com/hopfeed/hopfeed/placement"
	"github.com/hopfeed/hopfeed/tools/checkpoint"
	"github.com/hopfeed/hopfeed/tools/session"
	"github.com/hopfeed/hopfeed/tools/training"
	"github.com/hopfeed/hopfeed/tools/tune"
	"github.com/hopfeed/hopfeed/trainer"
)

// readSpace reads a list of values for each of some flags from a file, and checks that all can be set.
func (a *app) readSpace(flag, path string, o *trainOptions) (space tune.Space, err error) {
	var nodes map[string]yaml.Node
	if err := a.readYAML(flag, path, &nodes); err != nil {
		return space, err
	}
	space.Base = o.given(a.seed)
	settings := pflag.NewFlagSet("trial", pflag.ContinueOnError)
	new(trainOptions).declareFlags(settings)
	for _, name := range slices.Sorted(maps.Keys(nodes)) {
		if settings.Lookup(name) == nil || slices.Contains(notSettings, name) &&
			!slices.Contains(scheduleFlags, name) || name == "runs" || name == "metric" {
			return space, usagef("--%s %s: %q is no flag that trials can vary", flag, path, name)
		}
		node := nodes[name]
		items := node.Content
		if node.Kind != yaml.SequenceNode {
			items = []*yaml.Node{&node}
		}
		d := tune.Dimension{Name: name}
		listed := map[string]bool{}
		for _, item := range items {
			text, err := flagText(item)
			if err == nil && text != "" {
				_, err = optionsOf(o.given(a.seed).With(tune.Settings{name: text}))
			}
			if err != nil {
				return space, usagef("--%s %s: %s: %s", flag, path, name, err)
			}
			if !listed[text] {
				d.Values = append(d.Values, text)
			}
			listed[text] = true
		}
		if len(d.Values) == 0 {
			return space, usagef("--%s %s: %s has no values", flag, path, name)
		}
		space.Dimensions = append(space.Dimensions, d)
	}
	if len(space.Dimensions) == 0 {
		return space, usagef("--%s %s: it names no flags", flag, path)
	}
	return space, nil
}

// matrixChoice has the values of the flags that decide which matrices a model reads.
type matrixChoice struct{ model, operators, hops string }

// pinnedTo replaces a choice by the names of the matrices of the store that it means. An impossible choice stays as it
// is: its trial fails.
func (c matrixChoice) pinnedTo(stored []format.MatrixID) matrixChoice {
	settings := tune.Settings{"model": c.model, "operator": c.operators, "hops": c.hops}
	maps.DeleteFunc(settings, func(_, value string) bool { return value == "" })
	o, err := optionsOf(settings)
	if err != nil {
		return c
	}
	matrices, err := trainer.Matrices(o.Model, stored, o.Operators, o.Hops)
	if err != nil {
		return c
	}
	o.Operators, o.Hops = trainer.Spec{Matrices: matrices}.Choice()
	return matrixChoice{c.model, flagValue(o.flags.Lookup("operator")), flagValue(o.flags.Lookup("hops"))}
}

// pinInput adds to the settings of trials what data they are of and, where flags leave it open, the matrices that they
// read: the store may have more of them when the search, or a training by its result, goes on.
func pinInput(space *tune.Space, input *format.Dir) {
	maps.Copy(space.Base, checkpoint.DataSetOf(&input.Manifest).Settings())
	if input.Manifest.Kind != format.KindStore {
		return
	}
	pinned := map[matrixChoice]matrixChoice{}
	pin := func(s tune.Settings) tune.Settings {
		given := matrixChoice{s["model"], s["operator"], s["hops"]}
		c, known := pinned[given]
		if !known {
			c = given.pinnedTo(input.Matrices())
			pinned[given] = c
		}
		s["operator"], s["hops"] = c.operators, c.hops
		maps.DeleteFunc(s, func(_, value string) bool { return value == "" })
		return s
	}
	if slices.ContainsFunc(space.Dimensions, func(d tune.Dimension) bool {
		return slices.Contains([]string{"model", "hops", "operator"}, d.Name)
	}) {
		space.Simplify = pin
	} else {
		space.Base = pin(space.Base)
	}
}

// searchDefaults resolves the training that given settings are of, and says what a search among others begins with.
func (a *app) searchDefaults(ctx context.Context, input *format.Dir, given tune.Settings) (o *trainOptions,
	to training.Options, d tune.Defaults, err error) {
	if o, err = optionsOf(given); err != nil {
		return nil, to, d, err
	}
	if to, err = a.resolve(ctx, input, o); err != nil {
		return nil, to, d, err
	}
	d = tune.Defaults{
		BatchRows: int64(o.BatchRows), TrainRows: session.CountRows(input.Layout(), to.Part.Train),
		LearningRate: o.LearningRate, WeightDecay: o.WeightDecay,
		Nodes: input.Manifest.Nodes, Fanouts: o.Sampling.Fanouts, Threads: a.threads, Buffers: placement.Buffers,
		Unified: a.machine(ctx).Devices.Info.Unified,
	}
	d.Operators, d.Hops = trainer.CommonHops(input.Matrices(), nil)
	if v, ok := o.Values["dropout"]; ok {
		d.Dropout = &v
	}
	return o, to, d, nil
}
