package command

import (
	"context"
	"errors"
	"time"

	"github.com/spf13/cobra"

	"github.com/hopfeed/hopfeed/chunk"
	"github.com/hopfeed/hopfeed/format"
	"github.com/hopfeed/hopfeed/loader/cache"
	"github.com/hopfeed/hopfeed/loader/sampling"
	"github.com/hopfeed/hopfeed/tools/bench"
	"github.com/hopfeed/hopfeed/tools/session"
)

type sampleOptions struct {
	session.SampledOptions
	seeds      string // a part of the split, or all
	split      int
	epochs     int
	maxBatches int // of an epoch; 0: all
}

func newSampleCommand(a *app) *cobra.Command {
	var o sampleOptions
	c := a.verb("sample GRAPH --sampler NAME --fanout 15,10,5 --batch B",
		"Sample mini-batches of a graph, and measure how fast",
		`Sample makes mini-batches for message-passing models in all threads, and prints how many seed nodes and
edges a second it samples, and how many nodes' features a batch needs. It writes nothing. In a typed graph, seed
nodes are of the target type, up to fanout in-neighbours are drawn of each node by each relation, and a cache has
the same part of each type's rows.

Samplers:
  neighbor         up to fanout in-neighbours of each node
  labor, labor-1   the same, with random numbers that destinations share, so that batches need fewer nodes
  locality         as neighbor, but cached nodes are --bias times as likely (a3gnn)
  ladies, fastgcn  fanout nodes a layer beside the destinations; also -flat, -debias and -flat-debias
  ladies-paper, fastgcn-paper
                   fanout nodes a layer and no others, rows normalised, as the papers print it; also -flat-paper, ...
  saint-node, saint-edge, saint-rw
                   subgraphs of as many draws of nodes, edges or random walks as a batch has seed nodes
                   (saint-node-paper: all draws by the norms of columns)
  full             all in-neighbours

Caches of feature rows (--cache POLICY:SIZE, such as degree:1GiB or lru:20000rows), whose hits it counts:
`+cache.Help(), o.do)
	f, s := c.Flags(), &o.Sampling
	f.StringVar(&o.Sampler, "sampler", "neighbor", "how to sample: one of the above")
	f.IntSliceVar(&s.Fanouts, "fanout", []int{15, 10, 5}, fanoutUsage)
	f.IntVar(&o.Plan.BatchRows, "batch", 1024, "seed nodes of a batch")
	f.IntVar(&o.epochs, "epochs", 1, "times that all seed nodes are sampled")
	f.IntVar(&o.maxBatches, "max-batches", 0, "batches of an epoch to sample (0: all)")
	f.StringVar(&o.seeds, "seeds", format.RegionTrain, "seed nodes: train, valid, test, rest or all")
	f.IntVar(&o.split, "split", 0, "split that --seeds refers to")
	f.StringVar((*string)(&s.Aggregation), "aggregation", string(sampling.Mean),
		"what the weights of edges estimate: mean, sym (as in propagation) or plain (sum)")
	f.BoolVar(&s.Replace, "replace", false, replaceUsage)
	f.BoolVar(&s.ByWeight, "by-weight", false, "neighbor: draw in-neighbours by the weights of their edges")
	f.StringVar(&o.Cache, "cache", "", "count how many nodes of batches a cache has: POLICY:SIZE")
	f.Float64Var(&s.Bias, "bias", 0, biasUsage)
	f.BoolVar(&s.Debias, "debias", false, debiasUsage)
	f.BoolVar(&o.Mapped, mapFlag, false, mapUsage)
	among(f, "sampler", sampling.Names()...)
	atLeast(f, 1, "batch", "epochs")
	atLeast(f, 0, "max-batches")
	return c
}

func (o *sampleOptions) do(ctx context.Context, a *app, args []string) (_ result, err error) {
	open := format.OpenGraph
	if format.IsTyped(a.fs, args[0]) {
		open = format.OpenTarget
	}
	graph, err := open(a.fs, args[0])
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, graph.Close()) }()
	if o.Seeds, err = session.NodesOf(ctx, graph, o.seeds, o.split); err != nil {
		return nil, err
	}
	o.Machine = a.machine(ctx)
	o.Plan.Rows, o.Plan.Seed, o.Plan.Order = int64(len(o.Seeds)), a.seed, chunk.Shuffled
	start := time.Now()
	typed := graph.Typed
	if o.Sampling.ByType = typed != nil; typed != nil {
		first := sampling.FirstNodes(typed)[typed.Target]
		for i := range o.Seeds {
			o.Seeds[i] += first
		}
	}
	opened, err := session.OpenSampled(ctx, graph, o.SampledOptions)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, opened.Close()) }()
	r := &bench.Samples{Typed: typed, Sampler: o.Sampler, Fanouts: o.Sampling.Fanouts, Threads: a.threads, Cache: o.Cache,
		PreparedSeconds: time.Since(start).Seconds()}
	err = r.Sample(ctx, opened, o.Plan, o.Seeds, o.epochs, o.maxBatches, a.progress())
	return r, err
}
