package sampling

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"

	"github.com/hopfeed/hopfeed/chunk"
	"github.com/hopfeed/hopfeed/internal/parallel"
	"github.com/hopfeed/hopfeed/internal/rng"
	"github.com/hopfeed/hopfeed/loader"
	"github.com/hopfeed/hopfeed/loader/cache"
	"github.com/hopfeed/hopfeed/loader/internal/epoch"
)

// Set yields epochs over some seed nodes.
type Set struct {
	l *Loader
	*Epochs
	schedule *Schedule // nil: as fast as the loader can
}

// Epochs are the mini-batches of any number of epochs.
type Epochs struct {
	method  *Method
	nodes   []uint32 // seeds
	plan    chunk.Plan
	members nodeSet // nodes
	times   []int64 // of nodes, after which they reach nothing; nil: no limits
	links   *Links  // that are seeds instead of nodes
	visited pool[job]
}

// NewEpochs are the mini-batches of nodes, by a plan of them all or, with OwnRows, of the rank's: see Visit. Nodes are
// distinct (CheckSeeds).
func NewEpochs(method *Method, nodes []uint32, plan chunk.Plan) *Epochs {
	return &Epochs{method: method, nodes: nodes, plan: plan.WithRows(len(nodes))}
}

// Set plans epochs over nodes, which are distinct, sampled by a method. It sets plan.Rows, unless they are the rank's
// own (OwnRows); plan.Seed names the random
// numbers of samples too. If the method chooses seed nodes itself, a batch has plan.BatchRows draws, and the batches
// of an epoch have about as many seed nodes as there are nodes. Ranks share each batch as the plan says. A plan that
// is not Shuffled is for evaluation: it leaves the content of the cache as training has it, as far as the policy can.
func (l *Loader) Set(nodes []uint32, method *Method, plan chunk.Plan) (*Set, error) {
	if n, rows := method.topology.Nodes(), countNodes(l.o.Types); n != rows {
		return nil, fmt.Errorf("a topology of %d nodes and features of %d", n, rows)
	}
	types := 1
	if method.options.ByType {
		types = len(method.typed.types)
	}
	if len(l.types) != types {
		return nil, fmt.Errorf("%w: blocks by type are of a typed graph with features", ErrOptions)
	}
	if t := l.o.Labels; len(l.types) > 1 && t != nil {
		end := int64(l.o.First) + int64(len(t.Data)/t.RowBytes())
		for i, v := range nodes {
			if v < l.o.First || int64(v) >= end {
				return nil, fmt.Errorf("%w: seed %d is node %d: labels are of the nodes %d to %d", ErrOptions, i, v, l.o.First,
					end-1)
			}
		}
	}
	if plan.Holder != nil {
		return nil, fmt.Errorf("seeds are held by all ranks")
	}
	e, err := planEpochs(method, nodes, plan)
	if err != nil {
		return nil, err
	}
	return &Set{l: l, Epochs: e}, nil
}

// CheckSeeds returns an error unless seeds are distinct nodes of a graph of n.
func CheckSeeds(seeds []uint32, n int64) error {
	_, err := seedSet(seeds, n)
	return err
}

// seedSet is the set of seeds, which must be distinct nodes of a graph of n.
func seedSet(seeds []uint32, n int64) (nodeSet, error) {
	s := noNodes(n)
	for i, node := range seeds {
		if int64(node) >= n {
			return s, fmt.Errorf("%w: seed %d is node %d: the graph has %d nodes", ErrOptions, i, node, n)
		}
		if !s.add(node) {
			return s, fmt.Errorf("%w: node %d is twice among the seeds: they must be distinct", ErrOptions, node)
		}
	}
	return s, nil
}

// planEpochs plans epochs over nodes: see Loader.Set.
func planEpochs(method *Method, nodes []uint32, plan chunk.Plan) (s *Epochs, err error) {
	s = NewEpochs(method, nodes, plan)
	if !method.options.Disjoint {
		s.members, err = seedSet(nodes, method.topology.Nodes())
	}
	if err == nil {
		err = s.plan.Check()
	}
	if own := s.plan.RankRows; err == nil && plan.OwnRows && own() != int64(len(nodes)) {
		err = fmt.Errorf("%w: %d seeds for rank %d, whose shares have %d", ErrOptions, len(nodes), plan.Rank, own())
	}
	if err != nil || !method.kind.graphWise {
		return s, err
	}
	if plan.World > 1 {
		return s, fmt.Errorf("%w: sampler %s chooses the seeds of a batch itself, which several devices cannot share",
			ErrOptions, method.name)
	}
	mean := method.meanSeeds(plan.BatchRows, nodes)
	if len(nodes) > 0 && mean < 0.5 {
		return s, fmt.Errorf("%w: sampler %s: batches of %d draws have %.2g of the %d seeds on average: draw more",
			ErrOptions, method.name, plan.BatchRows, mean, len(nodes))
	}
	batches := int64(math.Ceil(float64(len(nodes)) / max(mean, 0.5)))
	s.plan.Rows, s.plan.DropLast = batches*int64(plan.BatchRows), false
	return s, s.plan.Check()
}

// Rows is the number of seeds of an epoch, over all ranks; if the sampler chooses them, about.
func (s *Set) Rows() int64 {
	if s.links != nil || s.plan.OwnRows {
		return s.plan.Rows
	}
	return int64(len(s.nodes))
}

// RowNumbers are this rank's seeds of a batch, as far as they can be had.
func (s *Set) RowNumbers(epoch, batch int) (nodes []uint32) {
	switch {
	case s.method.kind.graphWise:
		_ = s.Visit(context.Background(), 1, 1, epoch, batch, s.Batches(), func(b *MiniBatch) bool {
			nodes = b.Seeds
			return false
		})
	case batch < s.Batches():
		var j job
		j.begin(s.Epochs, epoch, batch)
		nodes = j.seeds
	}
	return nodes
}

// Batches is the number of batches of an epoch.
func (s *Set) Batches() int { return s.plan.Batches() }

// job is a mini-batch on its way through the stages.
type job struct {
	plan     chunk.Batch
	epoch    int
	seeds    []uint32 // nodes, or numbers of links
	ends     []uint32 // local ids of the sources and the destinations of pairs
	times    []int64  // of seeds, if they have some
	sample   MiniBatch
	lookups  []cache.Lookup // of each type
	loaded   loader.Traffic // of rows that were brought into the cache for it and later ones
	onDevice bool           // the device prepares it
	device   deviceBatch
	size     batchSize
	layout   layout
	buffer   *batchBuffer
	pinned   *epoch.Growing // for what the host writes, until the batch has moved; nil: it writes to the buffer
}

// begin gives the job to a batch of an epoch.
func (j *job) begin(s *Epochs, epoch, batch int) {
	b := s.plan.Batch(epoch, batch)
	j.plan, j.epoch, j.buffer, j.pinned, j.onDevice = b, epoch, nil, nil, false
	j.seeds = resize(j.seeds, b.Rows)
	if s.method.kind.graphWise { // it looks at their number alone
		clear(j.seeds)
		return
	}
	b.RowNumbers(j.seeds)
	if s.links != nil {
		return
	}
	j.times = j.times[:0]
	for _, at := range j.seeds {
		if s.times != nil {
			j.times = append(j.times, s.times[at])
		}
	}
	for i, at := range j.seeds {
		j.seeds[i] = s.nodes[at]
	}
}

// key names the random numbers of a job. Each rank has its own.
func (s *Epochs) key(j *job) uint64 {
	key := Key(s.plan.Seed, j.epoch, j.plan.Index)
	if s.plan.World > 1 {
		key = rng.Hash(key, uint64(s.plan.Rank))
	}
	return key
}

// sample makes the mini-batch of a job.
func (s *Epochs) sample(ctx context.Context, j *job) error {
	if len(j.seeds) == 0 {
		j.sample.Seeds, j.sample.Inputs, j.sample.Blocks, j.sample.SeedWeights = j.sample.Seeds[:0],
			j.sample.Inputs[:0], j.sample.Blocks[:0], j.sample.SeedWeights[:0]
		j.sample.Trees, j.sample.Types, j.ends = j.sample.Trees[:0], j.sample.Types[:0], j.ends[:0]
		return nil
	}
	var err error
	switch {
	case s.links != nil:
		err = s.method.lend(ctx, func(sampler *sampler) error { return s.sampleLinks(sampler, j) })
	case s.times != nil:
		err = s.method.lend(ctx, func(sampler *sampler) error {
			return sampler.sampleSubgraph(&j.sample, &request{seeds: j.seeds, times: j.times}, s.key(j))
		})
	default:
		err = s.method.Sample(ctx, &j.sample, j.seeds, s.key(j))
	}
	if err != nil {
		return j.failed(err)
	}
	return nil
}

// failed is the error of a job.
func (j *job) failed(err error) error {
	return fmt.Errorf("batch %d of epoch %d: %w", j.plan.Index, j.epoch+1, err)
}

// Visit samples batches first to end-1 of epoch n by workers, at most samples at a time (0: any number), and calls do
// for each in order until it returns false. The memory of a batch is used again after do.
func (s *Epochs) Visit(ctx context.Context, workers, samples, n, first, end int, do func(*MiniBatch) bool) error {
	jobs := make([]*job, min(cmp.Or(samples, math.MaxInt), 2*workers+4))
	for i := range jobs {
		jobs[i] = s.visited.take()
		defer s.visited.put(jobs[i])
	}
	enough := errors.New("enough")
	err := parallel.OrderedIn(ctx, workers, int64(end-first), jobs, func(k int64, j *job) (*job, error) {
		j.begin(s, n, first+int(k))
		return j, s.sample(ctx, j)
	}, func(j *job) error {
		if !do(&j.sample) {
			return enough
		}
		return nil
	})
	if err == enough {
		return nil
	}
	return err
}
