package bench

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"maps"
	"slices"
	"time"

	"github.com/hopfeed/hopfeed/chunk"
	"github.com/hopfeed/hopfeed/format"
	"github.com/hopfeed/hopfeed/internal/progress"
	"github.com/hopfeed/hopfeed/internal/units"
	"github.com/hopfeed/hopfeed/loader/cache"
	"github.com/hopfeed/hopfeed/loader/sampling"
	"github.com/hopfeed/hopfeed/tools/session"
)

// Samples is how fast mini-batches of a graph were sampled, and how many nodes they need.
type Samples struct {
	Typed           *format.Typed `json:"-"` // the typed graph that is sampled, or nil
	Sampler         string        `json:"sampler"`
	Fanouts         []int         `json:"fanout"`
	Threads         int           `json:"threads"`
	Batches         int           `json:"batches"`
	Seconds         float64       `json:"seconds"` // of sampling alone
	SeedsPerSecond  float64       `json:"seeds_per_second"`
	EdgesPerSecond  float64       `json:"edges_per_second"`
	SeedsPerBatch   float64       `json:"seeds_per_batch"`
	EdgesPerBatch   float64       `json:"edges_per_batch"`
	NodesPerBatch   float64       `json:"nodes_per_batch"` // whose features are needed
	PreparedSeconds float64       `json:"prepared_seconds"`
	// of a typed graph, by relation
	RelationEdges map[string]float64 `json:"relation_edges_per_batch,omitempty"`
	Cache         string             `json:"cache,omitempty"`
	CacheHitRate  float64            `json:"cache_hit_rate"` // of the nodes of batches; 0 without a cache
	// of adjacency lists in a ducati cache
	CacheListBytes   int64    `json:"cache_list_bytes,omitempty"`
	CacheListHitRate *float64 `json:"cache_list_hit_rate,omitempty"`
}

// Text prints the figures as a table.
func (r *Samples) Text(w io.Writer) {
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
	for _, relation := range slices.Sorted(maps.Keys(r.RelationEdges)) {
		fmt.Fprintf(w, "\t%.0f edges of %s\n", r.RelationEdges[relation], relation)
	}
}

// countEdges counts the edges of a batch. Of a typed graph, it adds them to those of each relation.
func (r *Samples) countEdges(b *sampling.MiniBatch, relations []int64) (edges int64) {
	for i := range b.Blocks {
		block := &b.Blocks[i]
		if r.Typed == nil {
			edges += int64(len(block.Indices))
		} else if len(block.Parts) > 0 { // else it adds up what the parts of the one before have made
			for k := range r.Typed.Relations {
				n := int64(block.Offsets[block.Parts[k+1]] - block.Offsets[block.Parts[k]])
				edges, relations[k] = edges+n, relations[k]+n
			}
		}
	}
	return edges
}

// measuredCache is the cache of the rows of a type.
type measuredCache struct {
	*cache.Cache
	kind  int
	until int // the first batch that it was not told of
}

// tell tells the cache of an epoch, and of its batches from first on.
func (c *measuredCache) tell(ctx context.Context, e *sampling.Epochs, epoch, first, end int) (failed error) {
	_, n := c.Begin(epoch, func(yield func([]uint32) bool) {
		failed = e.Visit(ctx, 1, 1, epoch, first, end, func(b *sampling.MiniBatch) bool { return yield(b.OfType(c.kind)) })
	})
	c.until = first + min(n, end-first)
	return failed
}

// Sample samples mini-batches of the nodes in all threads, by a plan of epochs, and measures that. In each epoch it
// samples the first most batches, or all if most is 0.
func (r *Samples) Sample(ctx context.Context, opened *session.Sampled, plan chunk.Plan, nodes []uint32,
	epochs, most int, reporter progress.Reporter) error {
	var joint cache.Opened // of a graph of one type
	var caches []*measuredCache
	for kind, c := range opened.Caches {
		if c.Cache != nil {
			caches = append(caches, &measuredCache{Cache: c.Cache, kind: kind})
		}
	}
	if r.Typed == nil && opened.Caches != nil {
		joint = opened.Caches[0]
	}
	e := sampling.NewEpochs(opened.Method, nodes, plan)
	each := plan.Batches()
	if most > 0 {
		each = min(each, most)
	}
	task := reporter.Start("sample", int64(epochs*each), progress.Items)
	defer task.Done()
	var seeds, edges, inputs, hits, lists, listHits int64
	var found cache.Lookup
	var relationEdges []int64
	if r.Typed != nil {
		relationEdges = make([]int64, len(r.Typed.Relations))
	}
	listed := make([]uint64, (opened.Topology.Nodes()+63)/64) // a bit for each node
	for _, v := range joint.Lists {
		listed[v/64] |= 1 << (v % 64)
	}
	atATime := r.Threads + 1 // batches
	for epoch := range epochs {
		at := 0 // the batch that comes next
		for _, c := range caches {
			if err := c.tell(ctx, e, epoch, 0, each); err != nil {
				return err
			}
		}
		if epoch == 0 { // memory is allocated by the first batches
			if err := e.Visit(ctx, r.Threads, atATime, epoch, 0, min(each, atATime),
				func(*sampling.MiniBatch) bool { return true }); err != nil {
				return err
			}
		}
		start := time.Now()
		var failed error
		if err := e.Visit(ctx, r.Threads, atATime, epoch, 0, each, func(b *sampling.MiniBatch) bool {
			seeds += int64(len(b.Seeds))
			inputs += int64(len(b.Inputs))
			edges += r.countEdges(b, relationEdges)
			for i := range b.Blocks {
				if lists += int64(b.Blocks[i].Destinations); joint.ListBytes == 0 {
					continue
				}
				for _, v := range b.Destinations(i) {
					listHits += int64(listed[v/64] >> (v % 64) & 1)
				}
			}
			for _, c := range caches {
				if at >= c.until {
					if failed = c.tell(ctx, e, epoch, at, each); failed != nil {
						return false
					}
				}
				c.Lookup(b.OfType(c.kind), &found)
				hits += int64(found.Hits())
			}
			at++
			r.Batches++
			task.Add(1)
			return true
		}); err != nil || failed != nil {
			return cmp.Or(err, failed)
		}
		r.Seconds += time.Since(start).Seconds()
	}
	r.CacheHitRate = float64(hits) / float64(max(1, inputs))
	if r.CacheListBytes = joint.ListBytes; r.CacheListBytes > 0 {
		rate := float64(listHits) / float64(max(1, lists))
		r.CacheListHitRate = &rate
	}
	n := float64(max(1, r.Batches))
	for k, edges := range relationEdges {
		if r.RelationEdges == nil {
			r.RelationEdges = map[string]float64{}
		}
		r.RelationEdges[r.Typed.Relations[k].String()] = float64(edges) / n
	}
	r.SeedsPerSecond, r.EdgesPerSecond = float64(seeds)/r.Seconds, float64(edges)/r.Seconds
	r.SeedsPerBatch, r.EdgesPerBatch, r.NodesPerBatch = float64(seeds)/n, float64(edges)/n, float64(inputs)/n
	return nil
}
