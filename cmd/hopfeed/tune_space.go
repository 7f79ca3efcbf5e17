package main

import (
	"context"
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/pflag"
	"go.yaml.in/yaml/v3"

	"github.com/hopfeed/hopfeed/format"
	"github.com/hopfeed/hopfeed/placement"
	"github.com/hopfeed/hopfeed/tools/scheduler"
	"github.com/hopfeed/hopfeed/tools/session"
	"github.com/hopfeed/hopfeed/tools/training"
	"github.com/hopfeed/hopfeed/tools/tune"
	"github.com/hopfeed/hopfeed/trainer"
)

// readSpace reads lists of values by names of flags from a file that a flag names, and checks that all can be set.
func (a *app) readSpace(flag, path string, o *trainOptions) (space tune.Space, err error) {
	var nodes map[string]yaml.Node
	if err := a.readYAML(flag, path, &nodes); err != nil {
		return space, err
	}
	space.Base = o.given(a.seed)
	settings := pflag.NewFlagSet("trial", pflag.ContinueOnError)
	new(trainOptions).declareFlags(settings)
	for _, name := range slices.Sorted(maps.Keys(nodes)) {
		if settings.Lookup(name) == nil || slices.Contains(notSettings, name) && !slices.Contains(scheduleFlags, name) || name == "runs" || name == "metric" {
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

// matrixChoice is the values of the flags that decide which matrices a model reads.
type matrixChoice struct{ model, operators, hops string }

// pinnedTo names the matrices that are chosen among those that there are. What cannot be chosen stays as it is: the
// trial says so.
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

// pinInput adds to the settings of trials what data they are of and, where it is left open, the matrices that they read:
// the input may be another, or have more of them, when the search, or a training by its result, goes on.
func pinInput(space *tune.Space, input *format.Dir) {
	maps.Copy(space.Base, dataSettings(&input.Manifest))
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
	if slices.ContainsFunc(space.Dimensions, func(d tune.Dimension) bool { return slices.Contains([]string{"model", "hops", "operator"}, d.Name) }) {
		space.Simplify = pin
	} else {
		space.Base = pin(space.Base)
	}
}

// dimension has each value once, and begins with one of them.
func dimension(name, first string, values ...string) tune.Dimension {
	d := tune.Dimension{Name: name}
	for _, v := range values {
		if !slices.Contains(d.Values, v) {
			d.Values = append(d.Values, v)
		}
	}
	d.Default = max(0, slices.Index(d.Values, first))
	return d
}

// batchDimension is around the default: from a quarter of it to four times.
func batchDimension(o *trainOptions, trainRows int64) tune.Dimension {
	batch := int(min(int64(o.BatchRows), trainRows))
	var values []string
	for i := range 5 {
		values = append(values, fmt.Sprint(min(int64(max(1, batch<<i>>2)), max(trainRows, 1))))
	}
	return dimension("batch", fmt.Sprint(batch), values...)
}

// operatorHops lists the operators of a store, or those that are wanted, and how many hops all of them have.
func operatorHops(store *format.Dir, wanted []string) (operators []string, hops int) {
	last := map[string]int{}
	for _, id := range store.Matrices() {
		if id.Hop == 0 || len(wanted) > 0 && !slices.Contains(wanted, id.Operator) {
			continue
		}
		if last[id.Operator] == 0 {
			operators = append(operators, id.Operator)
		}
		last[id.Operator] = max(last[id.Operator], id.Hop)
	}
	for i, name := range operators {
		if i == 0 || last[name] < hops {
			hops = last[name]
		}
	}
	return operators, hops
}

// storeSpace is what trials of a training on a store vary, around the settings that it has otherwise.
func storeSpace(store *format.Dir, o *trainOptions, part session.Partition) (space tune.Space) {
	operators, hops := operatorHops(store, nil)
	add := func(d tune.Dimension) {
		if len(d.Values) > 1 {
			space.Dimensions = append(space.Dimensions, d)
		}
	}
	// around has four values on both sides of one, each a factor from the next.
	around := func(name string, v, factor float64) {
		var values []string
		for i := -4; i <= 4; i++ {
			digits := 2
			if i == 0 {
				digits = -1
			}
			values = append(values, strconv.FormatFloat(v*math.Pow(factor, float64(i)), 'g', digits, 64))
		}
		add(dimension(name, values[4], values...))
	}
	around("lr", o.LearningRate, math.Pow(10, 0.25))
	if o.WeightDecay > 0 {
		around("weight-decay", o.WeightDecay, math.Sqrt(10))
	}
	add(batchDimension(o, session.CountRows(store.Layout(), part.Train)))
	if v, ok := o.Values["dropout"]; ok {
		all := []float64{v}
		for i := range 9 {
			all = append(all, float64(i)/10)
		}
		slices.Sort(all)
		var values []string
		for _, v := range all {
			values = append(values, strconv.FormatFloat(v, 'g', -1, 64))
		}
		add(dimension("dropout", strconv.FormatFloat(v, 'g', -1, 64), values...))
	}
	if len(operators) > 0 {
		var values []string
		for h := range hops {
			values = append(values, fmt.Sprint(h+1))
		}
		add(dimension("hops", fmt.Sprint(hops), values...))
		all := strings.Join(operators, ",")
		add(dimension("operator", all, append(operators, all)...))
	}
	return space
}

// graphSpace is what tune varies of a training on a graph (a3gnn Table I), around the settings that it has
// otherwise.
func (a *app) graphSpace(graph *format.Dir, o *trainOptions, part session.Partition) (tune.Space, error) {
	if err := o.checkInputFlags(); err != nil {
		return tune.Space{}, err
	}
	trainRows := session.CountRows(graph.Layout(), part.Train)
	// The fanouts of the default, scaled.
	var fanouts []string
	for _, percent := range []int{34, 67, 100, 200} {
		var numbers []string
		for _, f := range o.Fanouts {
			if f > 0 {
				f = max(1, f*percent/100)
			}
			numbers = append(numbers, fmt.Sprint(f))
		}
		fanouts = append(fanouts, strings.Join(numbers, ","))
	}
	caches := []string{""}
	for _, policy := range []string{"degree", "presampled", "lru"} {
		for _, percent := range []int64{10, 30} {
			if rows := graph.Manifest.Nodes * percent / 100; rows > 0 {
				caches = append(caches, fmt.Sprintf("%s:%drows", policy, rows))
			}
		}
	}
	var workers []string
	for w := 1; w < a.threads; w *= 2 {
		workers = append(workers, fmt.Sprint(w))
	}
	workers = append(workers, fmt.Sprint(a.threads))
	return tune.Space{Dimensions: []tune.Dimension{
		batchDimension(o, trainRows),
		dimension("fanout", fanouts[2], fanouts...),
		dimension("sampler", "neighbor", "neighbor", "labor", training.LocalitySampler),
		dimension("bias", "2", "2", "8"),
		dimension("cache", "", caches...),
		dimension("placement", placement.Auto, placement.Auto, placement.Host, placement.Storage),
		dimension("schedule", "", "", "sequential", "mode-2", "mode-1"),
		dimension("workers", fmt.Sprint(a.threads), workers...),
		dimension("buffers", fmt.Sprint(placement.Buffers), "1", "2", "4"),
	}}, nil
}

// fixedCaches are the policies whose caches stay as they are during an epoch.
var fixedCaches = []string{"degree", "presampled", "gns", "ducati"}

// simplifyGraph drops settings that change nothing: a cache in the same memory as the features, a preference
// for cached nodes without a cache that keeps them, a bias without the preference, workers and buffers where
// one stage follows another, shares of other schedules than mixed, queues of others than multi-queue, and fanouts of samplers that take all edges. Of a
// schedule and a cache that changes from batch to batch, which exclude each other, it drops the one that is not of
// the base.
func (a *app) simplifyGraph(ctx context.Context, base tune.Settings) func(tune.Settings) tune.Settings {
	unified := a.machine(ctx).Devices.Info.Unified
	return func(s tune.Settings) tune.Settings {
		if unified && s["placement"] != placement.Storage {
			delete(s, "cache")
		}
		fixed := func() bool {
			policy, _, _ := strings.Cut(s["cache"], ":")
			return slices.Contains(fixedCaches, policy)
		}
		if s["cache"] != "" && s["schedule"] != "" && !fixed() {
			drop := "schedule"
			if base[drop] != "" {
				drop = "cache"
			}
			if base[drop] == "" {
				delete(s, drop)
			}
		}
		if s["sampler"] == training.LocalitySampler && !fixed() {
			s["sampler"] = "neighbor"
		}
		if s["sampler"] != training.LocalitySampler {
			delete(s, "bias")
		}
		if s["schedule"] != "mixed" {
			delete(s, "cpu-share")
		}
		if s["schedule"] == scheduler.MultiQueue {
			delete(s, "buffers")
		} else {
			for _, name := range []string{"queue", "gradients", "sync-every"} {
				delete(s, name)
			}
		}
		if s["schedule"] == "sequential" {
			delete(s, "workers")
			delete(s, "buffers")
		}
		if (&training.Sampling{Sampler: s["sampler"]}).TakesAllEdges() {
			delete(s, "fanout")
		}
		return s
	}
}
