package main

import (
	"context"
	"errors"
	"slices"
	"strings"

	"github.com/spf13/pflag"

	"github.com/hopfeed/hopfeed/chunk"
	"github.com/hopfeed/hopfeed/format"
	"github.com/hopfeed/hopfeed/gds"
	"github.com/hopfeed/hopfeed/gds/devices"
	"github.com/hopfeed/hopfeed/internal/machine"
	"github.com/hopfeed/hopfeed/internal/units"
	"github.com/hopfeed/hopfeed/loader"
	"github.com/hopfeed/hopfeed/loader/cache"
	"github.com/hopfeed/hopfeed/loader/sampling"
	"github.com/hopfeed/hopfeed/loader/wholegraph"
	"github.com/hopfeed/hopfeed/placement"
	"github.com/hopfeed/hopfeed/tools/session"
	"github.com/hopfeed/hopfeed/trainer"
)

// samplingOptions are those of trainings on a graph.
type samplingOptions struct {
	sampler        string
	fanouts        []int
	cache          string
	bias           trainer.Values // "bias" of locality, if it is given
	batchByDefault bool
}

// fullSampler takes all in-neighbours, and localitySampler prefers cached nodes.
const (
	fullSampler     = "full"
	localitySampler = "locality"
)

func (o *samplingOptions) declareFlags(f *pflag.FlagSet) {
	f.StringVar(&o.sampler, "sampler", "", "of models that read a graph: "+strings.Join(sampling.Names(), ", ")+
		" (default neighbor; full takes all in-neighbours and, unless --batch says otherwise, all training nodes at once; --batch of saint-node, saint-edge and saint-rw is a number of draws)")
	f.IntSliceVar(&o.fanouts, "fanout", nil, "in-neighbours of a node, or nodes, of each layer; the first is nearest the seeds, -1 is all (default 15,10,5, as many as --layers)")
	f.StringVar(&o.cache, "cache", "", "cache of feature rows, POLICY:SIZE, such as degree:1GiB or lru:20000rows: "+strings.Join(cache.Policies(), ", "))
	o.bias = trainer.Values{}
	f.Var(settingFlag{trainer.Setting{Name: "bias"}, o.bias}, "bias", biasUsage)
}

const biasUsage = "locality: how many times as likely as others cached nodes are sampled; 1 is as likely"

// fillGraphDefaults checks and completes the options that only models that read a graph have.
func (o *trainOptions) fillGraphDefaults() error {
	aggregation, err := trainer.AggregationOf(o.model)
	if err != nil {
		return usagef("--model: %s", err)
	}
	if aggregation == "" {
		for _, flag := range []string{"sampler", "fanout", "cache", "bias"} {
			if o.flags.Changed(flag) {
				return usagef("--%s: %s reads a hop store, of which nothing is sampled", flag, o.model)
			}
		}
		return nil
	}
	for _, flag := range []string{"hops", "operator", "placement", "shuffle", "chunk-rows"} {
		if f := o.flags.Lookup(flag); f.Changed && !slices.Contains([]string{placement.Auto, "0"}, f.Value.String()) { // which configurations have
			return usagef("--%s: %s reads a graph, which has no hops of its own (it is for models that read a hop store)", flag, o.model)
		}
	}
	if o.sampler == "" {
		o.sampler = "neighbor"
	}
	if err := oneOf("sampler", o.sampler, sampling.Names()...); err != nil {
		return err
	}
	if o.cache != "" {
		if _, err := cache.Parse(o.cache); err != nil {
			return usagef("--cache: %s", err)
		}
	}
	if locality := o.sampler == localitySampler; locality != (len(o.bias) > 0) {
		if locality {
			return usagef("--sampler locality prefers cached nodes: say how much by --bias, such as 4 (1 is not at all)")
		}
		return usagef("--bias: sampler %s does not look at what is cached (use --sampler locality)", o.sampler)
	}
	return nil
}

// fillSampling completes the options for the model and the training nodes, when these are known.
func (o *trainOptions) fillSampling(trainRows int64) error {
	layers := int(o.Values["layers"])
	if o.sampler == fullSampler && o.batchByDefault {
		o.BatchRows = int(trainRows)
	}
	if o.takesAllEdges() {
		if len(o.fanouts) > 0 {
			return usagef("--fanout: --sampler %s takes all edges of the nodes that it has chosen", o.sampler)
		}
		return nil
	}
	if len(o.fanouts) == 0 {
		for i := range layers {
			o.fanouts = append(o.fanouts, max(5, 15-5*i))
		}
	}
	if len(o.fanouts) != layers {
		return usagef("--fanout has %d numbers for %d layers: give one for each (or another --layers)", len(o.fanouts), layers)
	}
	return nil
}

// takesAllEdges tells that a sampler has no fanouts.
func (o *samplingOptions) takesAllEdges() bool {
	return o.sampler == fullSampler || sampling.ChoosesSeeds(o.sampler)
}

// inferenceRows is how many rows a model that reads a graph is evaluated on at a time.
const inferenceRows = 8192

// graphInput is a graph on one device.
type graphInput struct {
	device gds.Device
	whole  *wholegraph.Graph
	layers int
	rows   int // of a batch
	// Most nodes whose outputs are computed at once: in training on all, all of them.
	batchNodes int
	sets       rowSets
	sampled    *session.Sampled // nil: batches are all nodes
}

// openWhole brings a graph to the first device of the machine. held is what the command holds in host memory.
func (a *app) openWhole(ctx context.Context, graph *format.Dir, model string, held int64) (_ *graphInput, err error) {
	m := &graph.Manifest
	aggregation, err := trainer.AggregationOf(model)
	if err != nil {
		return nil, err
	}
	machineOf := a.machine(ctx)
	// The topology, factors of nodes, features as stored and the block are in host memory while it is opened.
	host := held + int64(machine.ProgramBytes) + 8*(m.Nodes+1) + 12*m.Edges + 16*m.Nodes + m.Nodes*int64(m.Features)*4
	if machineOf.Devices.Info.Unified {
		host += wholegraph.Bytes(m, aggregation)
	}
	if err := a.budget.Fits("bringing the graph to the device as a whole, as layer-wise inference wants it,", host); err != nil {
		return nil, err
	}
	in := &graphInput{}
	opened, err := machineOf.Devices.Open(1)
	if err != nil {
		return nil, err
	}
	in.device = opened[0]
	topology, err := sampling.LoadTopology(ctx, graph, a.threads)
	if err == nil {
		in.whole, err = wholegraph.Open(ctx, in.device, wholegraph.Options{Graph: graph, Topology: topology, Aggregation: aggregation, Threads: a.threads})
		err = errors.Join(err, topology.Close())
	}
	if err != nil {
		return nil, errors.Join(err, in.Close())
	}
	return in, nil
}

func (a *app) openGraphInput(ctx context.Context, graph *format.Dir, o *trainOptions, spec trainer.Spec, part session.Partition, held int64) (_ *graphInput, err error) {
	spec, err = spec.Normalized()
	if err != nil {
		return nil, err
	}
	layers := int(spec.Settings["layers"])
	m := &graph.Manifest
	train := int(session.CountRows(graph.Layout(), part.Train))
	rows := min(o.BatchRows, train)
	if sampling.ChoosesSeeds(o.sampler) {
		rows = o.BatchRows // draws
	}
	if all := o.sampler == fullSampler && rows == train; !all || o.cache != "" {
		held += 8*(m.Nodes+1) + 4*m.Edges + m.Nodes*int64(m.Features)*4 // of sampler and features
	}
	in, err := a.openWhole(ctx, graph, o.model, held)
	if err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, in.Close())
		}
	}()
	in.layers, in.rows, in.batchNodes = layers, rows, rows
	if o.sampler == fullSampler && rows == train && o.cache == "" {
		in.batchNodes = int(m.Nodes)
		return in, nil
	}
	if err := a.openSampled(ctx, graph, o, in, part); err != nil {
		return nil, err
	}
	in.batchNodes = in.sampled.Method.MostSeeds(rows)
	return in, nil
}

// openSampled opens what samples batches, and brings their features.
func (a *app) openSampled(ctx context.Context, graph *format.Dir, o *trainOptions, in *graphInput, part session.Partition) (err error) {
	aggregation, err := trainer.AggregationOf(o.model)
	if err != nil {
		return err
	}
	fanouts := o.fanouts
	if o.takesAllEdges() {
		fanouts = slices.Repeat([]int{sampling.All}, in.layers)
	}
	// What is cached does not depend on --seed: a run is a function of its own seed, and all runs share the cache.
	in.sampled, err = session.OpenSampled(ctx, graph, session.SampledOptions{
		Machine: a.machine(ctx), Sampler: o.sampler, Sampling: sampling.Options{Fanouts: fanouts, Aggregation: aggregation, Bias: o.bias["bias"]},
		Seeds: part.Train.List, Plan: in.plan(0), Cache: o.cache, Device: in.device, Placement: placement.Host,
	})
	return err
}

// plan is the order of training nodes.
func (in *graphInput) plan(seed uint64) chunk.Plan {
	return chunk.Plan{BatchRows: in.rows, ChunkRows: 1, Order: chunk.Shuffled, Seed: seed}
}

// sampledSet is the training nodes of one run.
type sampledSet struct{ *sampling.Set }

// RowNumbers are the nodes of a batch.
func (s sampledSet) RowNumbers(epoch, batch int) []uint32 {
	nodes, _ := s.BatchNodes(context.Background(), epoch, batch) // as far as they can be had: they explain an error
	return nodes
}

// Remote is none: see loader.Set.
func (s sampledSet) Remote() (read, remote int64) { return 0, 0 }

func (in *graphInput) Close() error {
	var errs []error
	if in.sampled != nil {
		errs = append(errs, in.sampled.Close())
	}
	if in.whole != nil {
		errs = append(errs, in.whole.Close())
	}
	return errors.Join(append(errs, devices.Close([]gds.Device{in.device}))...)
}

func (in *graphInput) devices() []gds.Device     { return []gds.Device{in.device} }
func (in *graphInput) shareRows() int            { return max(in.batchNodes, inferenceRows) }
func (in *graphInput) predictedSeconds() float64 { return 0 }

func (in *graphInput) batches() trainer.Batches {
	return trainer.Batches{Rows: in.rows, Shuffle: placement.RR, ChunkRows: 1, Placement: placement.Device, Devices: 1}
}

func (in *graphInput) rowSets(p session.Partition, seed uint64, test bool) (d rowSets, err error) {
	d = in.sets // of earlier runs: but for samples, they are the same in each
	if d.valid == nil {
		if d.valid, err = in.inOrder(p.Valid); err == nil && test {
			d.test, err = in.inOrder(p.Test)
		}
		if err != nil {
			return d, err
		}
	}
	switch {
	case in.sampled != nil:
		set, err := in.sampled.Loader.Set(p.Train.List, in.sampled.Method, in.plan(seed))
		if err != nil {
			return d, err
		}
		d.train = []rowSet{sampledSet{set}}
	case d.train == nil:
		set, err := in.whole.Batch(p.Train.List, in.layers)
		if err != nil {
			return d, err
		}
		d.train = []rowSet{set}
	}
	in.sets = d
	return d, nil
}

func (in *graphInput) inOrder(rows loader.Rows) ([]rowSet, error) {
	set, err := in.whole.Nodes(rows.List, inferenceRows, 0)
	return []rowSet{set}, err
}

func (in *graphInput) PeakBytes() int64 { return in.device.Usage().Peak }

func (in *graphInput) note(a *app) {
	a.note("the whole graph is on the device: %s", units.Bytes(in.device.Usage().InUse))
}

func (in *graphInput) describe(r *trained) {
	r.Placement, r.Shuffle, r.Devices = placement.Device, placement.RR, 1
	r.Reasons = []string{"the whole graph is on the device"}
	if in.sampled == nil {
		return
	}
	r.Load = in.sampled.Loader.Stats().Stats
}
