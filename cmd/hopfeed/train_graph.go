package main

import (
	"context"
	"errors"

	"github.com/spf13/pflag"

	"github.com/hopfeed/hopfeed/format"
	"github.com/hopfeed/hopfeed/gds"
	"github.com/hopfeed/hopfeed/gds/devices"
	"github.com/hopfeed/hopfeed/internal/machine"
	"github.com/hopfeed/hopfeed/internal/units"
	"github.com/hopfeed/hopfeed/loader"
	"github.com/hopfeed/hopfeed/loader/sampling"
	"github.com/hopfeed/hopfeed/loader/wholegraph"
	"github.com/hopfeed/hopfeed/placement"
	"github.com/hopfeed/hopfeed/tools/session"
	"github.com/hopfeed/hopfeed/trainer"
)

// samplingOptions are those of trainings on a graph.
type samplingOptions struct {
	sampler        string
	batchByDefault bool
}

func (o *samplingOptions) declareFlags(f *pflag.FlagSet) {
	f.StringVar(&o.sampler, "sampler", "", "of models that read a graph: full (all in-neighbours; the default batch is all training nodes)")
}

// fillGraphDefaults checks and completes the options that only models that read a graph have.
func (o *trainOptions) fillGraphDefaults() error {
	aggregation, err := trainer.AggregationOf(o.model)
	if err != nil {
		return usagef("--model: %s", err)
	}
	if aggregation == "" {
		if o.sampler != "" {
			return usagef("--sampler %s: %s reads a hop store, of which nothing is sampled", o.sampler, o.model)
		}
		return nil
	}
	for _, flag := range []string{"hops", "operator", "placement", "shuffle", "chunk-rows"} {
		if o.flags.Changed(flag) {
			return usagef("--%s: %s reads a graph, which has no hops of its own (it is for models that read a hop store)", flag, o.model)
		}
	}
	if o.sampler == "" {
		o.sampler = "full"
	}
	return oneOf("sampler", o.sampler, "full")
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

func (a *app) openGraphInput(ctx context.Context, graph *format.Dir, o *trainOptions, spec trainer.Spec, part session.Partition, held int64) (*graphInput, error) {
	in, err := a.openWhole(ctx, graph, o.model, held)
	if err != nil {
		return nil, err
	}
	spec, err = spec.Normalized()
	if err != nil {
		return nil, errors.Join(err, in.Close())
	}
	in.layers = int(spec.Settings["layers"])
	train := int(session.CountRows(graph.Layout(), part.Train))
	if in.rows = o.BatchRows; o.batchByDefault || in.rows > train {
		in.rows = train
	}
	in.batchNodes = int(graph.Manifest.Nodes)
	if in.rows < train {
		return nil, errors.Join(usagef("--batch %d: --sampler full takes all %d training nodes at once", in.rows, train), in.Close())
	}
	return in, nil
}

func (in *graphInput) Close() error {
	var errs []error
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

func (in *graphInput) rowSets(p session.Partition, _ uint64, test bool) (rowSets, error) {
	if in.sets.train != nil { // batches of all nodes are the same in each run
		return in.sets, nil
	}
	var d rowSets
	train, err := in.whole.Batch(p.Train.List, in.layers)
	if err != nil {
		return d, err
	}
	if d.valid, err = in.inOrder(p.Valid); err == nil && test {
		d.test, err = in.inOrder(p.Test)
	}
	if d.train = []rowSet{train}; err == nil {
		in.sets = d
	}
	return d, err
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
}
