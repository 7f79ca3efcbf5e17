package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/spf13/cobra"

	"github.com/hopfeed/hopfeed/chunk"
	"github.com/hopfeed/hopfeed/format"
	"github.com/hopfeed/hopfeed/internal/parallel"
	"github.com/hopfeed/hopfeed/internal/progress"
	"github.com/hopfeed/hopfeed/internal/units"
	"github.com/hopfeed/hopfeed/loader/cache"
	"github.com/hopfeed/hopfeed/loader/sampling"
	"github.com/hopfeed/hopfeed/tools/session"
)

type sampleOptions struct {
	sampling.Options
	sampler     string
	aggregation string
	seeds       string // a part of the split, or all
	split       int
	batch       int
	epochs      int
	maxBatches  int // of an epoch; 0: all
	mapped      bool
	cache       string // POLICY:SIZE, or ""
}

func newSampleCommand(a *app) *cobra.Command {
	var o sampleOptions
	c := &cobra.Command{
		Use:   "sample GRAPH --sampler NAME --fanout 15,10,5 --batch B",
		Short: "Sample mini-batches of a graph, and measure how fast",
		Long: `Sample makes mini-batches for message-passing models in all threads, and prints how many seed nodes and
edges a second it samples, and how many nodes' features a batch needs. It writes nothing.

Samplers:
  neighbor         up to fanout in-neighbours of each node
  labor, labor-1   the same, with random numbers that destinations share, so that batches need fewer nodes
  locality         the same, where cached nodes are preferred --bias times (a3gnn)
  ladies, fastgcn  fanout nodes a layer; also -flat, -debias and -flat-debias
  saint-node, saint-edge, saint-rw
                   subgraphs of as many draws of nodes, edges or random walks as a batch has seed nodes
  full             all in-neighbours

Caches of feature rows (--cache POLICY:SIZE, such as degree:1GiB or lru:20000rows), whose hits it counts:
` + cache.Help(),
		Args: cobra.ExactArgs(1),
		RunE: a.verb(func(ctx context.Context, args []string) (result, error) { return runSample(ctx, a, args[0], o) }),
	}
	f := c.Flags()
	f.StringVar(&o.sampler, "sampler", "neighbor", "how to sample: one of the above")
	f.IntSliceVar(&o.Fanouts, "fanout", []int{15, 10, 5}, fanoutUsage)
	f.IntVar(&o.batch, "batch", 1024, "seed nodes of a batch")
	f.IntVar(&o.epochs, "epochs", 1, "times that all seed nodes are sampled")
	f.IntVar(&o.maxBatches, "max-batches", 0, "batches of an epoch to sample (0: all)")
	f.StringVar(&o.seeds, "seeds", format.RegionTrain, "seed nodes: train, valid, test, rest or all")
	f.IntVar(&o.split, "split", 0, "split that --seeds refers to")
	f.StringVar(&o.aggregation, "aggregation", string(sampling.Mean),
		"what the weights of edges estimate: mean, sym (as in propagation) or plain (sum)")
	f.BoolVar(&o.Replace, "replace", false, "draw with replacement")
	f.BoolVar(&o.ByWeight, "by-weight", false, "neighbor: draw in-neighbours by the weights of their edges")
	f.StringVar(&o.cache, "cache", "", "count how many nodes of batches a cache has: POLICY:SIZE")
	f.Float64Var(&o.Bias, "bias", 0, biasUsage)
	f.BoolVar(&o.Debias, "debias", false, "locality: estimates without bias")
	f.BoolVar(&o.mapped, "map", false, "map the topology from disk instead of loading it")
	return c
}

// sampleResult is the result of sample.
type sampleResult struct {
	Sampler         string  `json:"sampler"`
	Fanouts         []int   `json:"fanout"`
	Threads         int     `json:"threads"`
	Batches         int     `json:"batches"`
	Seconds         float64 `json:"seconds"` // of sampling alone
	SeedsPerSecond  float64 `json:"seeds_per_second"`
	EdgesPerSecond  float64 `json:"edges_per_second"`
	SeedsPerBatch   float64 `json:"seeds_per_batch"`
	EdgesPerBatch   float64 `json:"edges_per_batch"`
	NodesPerBatch   float64 `json:"nodes_per_batch"` // whose features are needed
	PreparedSeconds float64 `json:"prepared_seconds"`
	Cache           string  `json:"cache,omitempty"`
	CacheHitRate    float64 `json:"cache_hit_rate"` // of the nodes of batches; 0 without a cache
	// bytes of adjacency lists in a ducati cache; the rate is the part of the lists read that it had
	CacheListBytes   int64    `json:"cache_list_bytes,omitempty"`
	CacheListHitRate *float64 `json:"cache_list_hit_rate,omitempty"`
}

func (r *sampleResult) text(w io.Writer) {
	fmt.Fprintf(w, "sampler\t%s, fanouts %v, %s\n", r.Sampler, r.Fanouts, units.Count(int64(r.Threads), "thread"))
	fmt.Fprintf(w, "sampled\t%s in %.3g s (prepared in %.3g s)\n", units.Count(int64(r.Batches), "batch"), r.Seconds,
		r.PreparedSeconds)
	fmt.Fprintf(w, "seed nodes/s\t%.4g\n", r.SeedsPerSecond)
	fmt.Fprintf(w, "edges/s\t%.4g\n", r.EdgesPerSecond)
	if r.Cache != "" {
		fmt.Fprintf(w, "cache\t%s has %.2f %% of the nodes of batches", r.Cache, 100*r.CacheHitRate)
		if r.CacheListHitRate != nil {
			fmt.Fprintf(w, ", and %.2f %% of the adjacency lists (%s)", 100**r.CacheListHitRate,
				units.Bytes(r.CacheListBytes))
		}
		fmt.Fprintln(w)
	}
	fmt.Fprintf(w, "a batch\t%.0f seed nodes, %.0f edges, features of %.0f nodes\n", r.SeedsPerBatch, r.EdgesPerBatch,
		r.NodesPerBatch)
}

func runSample(ctx context.Context, a *app, dir string, o sampleOptions) (_ result, err error) {
	if o.batch < 1 || o.epochs < 1 || o.maxBatches < 0 {
		return nil, usagef("--batch %d, --epochs %d, --max-batches %d: want 1 or more, and no negative ones", o.batch,
			o.epochs, o.maxBatches)
	}
	if err := oneOf("sampler", o.sampler, sampling.Names()...); err != nil {
		return nil, err
	}
	graph, err := format.OpenGraph(a.fs, dir)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, graph.Close()) }()
	seeds, err := session.NodesOf(ctx, graph, o.seeds, o.split)
	if err != nil {
		return nil, err
	}
	plan := chunk.Plan{Rows: int64(len(seeds)), BatchRows: o.batch, Seed: a.seed, Order: chunk.Shuffled}
	o.Aggregation = sampling.Aggregation(o.aggregation)
	start := time.Now()
	opened, err := session.OpenSampled(ctx, graph, session.SampledOptions{
		Machine: a.machine(ctx), Sampler: o.sampler, Sampling: o.Options, Seeds: seeds, Plan: plan, Cache: o.cache,
		Mapped: o.mapped,
	})
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, opened.Close()) }()
	r := &sampleResult{Sampler: o.sampler, Fanouts: o.Fanouts, Threads: a.threads, Cache: o.cache,
		PreparedSeconds: time.Since(start).Seconds()}
	err = a.sampleEpochs(ctx, r, opened, plan, seeds, &o)
	if l := opened.Lists; l != nil && !sampling.ChoosesSeeds(o.sampler) { // else nobody reads them
		rate := l.HitRate()
		r.CacheListBytes, r.CacheListHitRate = l.Bytes(), &rate
	}
	return r, err
}

// sampledBatch is the memory of one batch.
type sampledBatch struct {
	seeds []uint32
	batch sampling.MiniBatch
}

// sampleEpochs samples all batches, in all threads, and measures.
func (a *app) sampleEpochs(ctx context.Context, r *sampleResult, opened *session.Sampled, plan chunk.Plan,
	nodes []uint32, o *sampleOptions) (err error) {
	rows := opened.Cache
	samplers := make(chan *sampling.Sampler, a.threads)
	for range a.threads {
		s, err := opened.Method.NewSampler()
		if err != nil {
			return err
		}
		defer func() { err = errors.Join(err, s.Close()) }()
		samplers <- s
	}
	each := plan.Batches()
	if o.maxBatches > 0 {
		each = min(each, o.maxBatches)
	}
	task := a.progress().Start("sample", int64(o.epochs*each), progress.Items)
	defer task.Done()
	var seeds, edges, inputs int64
	var found cache.Lookup
	memory := make([]sampledBatch, a.threads+1)
	sample := func(b *sampledBatch, epoch int, batch chunk.Batch) error {
		s := <-samplers
		defer func() { samplers <- s }()
		b.seeds = append(b.seeds[:0], make([]uint32, batch.Rows)...)
		batch.RowNumbers(b.seeds)
		for i, at := range b.seeds {
			b.seeds[i] = nodes[at]
		}
		return s.Sample(ctx, &b.batch, b.seeds, sampling.Key(plan.Seed, epoch, batch.Index))
	}
	for epoch := range o.epochs {
		batches := make([]chunk.Batch, 0, each)
		for b := range plan.Epoch(epoch) {
			if len(batches) == each {
				break
			}
			batches = append(batches, b)
		}
		// The cache is told of an epoch, and of its batches from k on, when they come.
		told, at := 0, 0
		tell := func(k int) (failed error) {
			_, n := rows.Begin(epoch, func(yield func([]uint32) bool) {
				var b sampledBatch
				for ; k < len(batches); k++ {
					if failed = sample(&b, epoch, batches[k]); failed != nil || !yield(b.batch.Inputs) {
						return
					}
				}
			})
			told += min(n, len(batches))
			return failed
		}
		if rows != nil {
			if err := tell(0); err != nil {
				return err
			}
		}
		if epoch == 0 { // memory is allocated by the first batches
			if err := parallel.For(ctx, a.threads, int64(min(len(batches), len(memory))), 1, func(k, _ int64) error {
				return sample(&memory[k], epoch, batches[k])
			}); err != nil {
				return err
			}
			if opened.Lists != nil {
				opened.Lists.Count()
			}
		}
		start, taken := time.Now(), 0
		if err := parallel.Ordered(ctx, a.threads, int64(len(batches)),
			func() *sampledBatch { taken++; return &memory[taken-1] },
			func(k int64, b *sampledBatch) (*sampledBatch, error) {
				return b, sample(b, epoch, batches[k])
			},
			func(b *sampledBatch) error {
				seeds += int64(len(b.batch.Seeds))
				inputs += int64(len(b.batch.Inputs))
				for i := range b.batch.Blocks {
					edges += int64(len(b.batch.Blocks[i].Indices))
				}
				if rows != nil {
					if at >= told {
						if err := tell(at); err != nil {
							return err
						}
					}
					rows.Lookup(b.batch.Inputs, &found)
				}
				at++
				r.Batches++
				task.Add(1)
				return nil
			}); err != nil {
			return err
		}
		r.Seconds += time.Since(start).Seconds()
	}
	if rows != nil {
		r.CacheHitRate = rows.Stats().HitRate()
	}
	n := float64(max(1, r.Batches))
	r.SeedsPerSecond, r.EdgesPerSecond = float64(seeds)/r.Seconds, float64(edges)/r.Seconds
	r.SeedsPerBatch, r.EdgesPerBatch, r.NodesPerBatch = float64(seeds)/n, float64(edges)/n, float64(inputs)/n
	return nil
}
