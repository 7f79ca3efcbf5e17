package sampling

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"math"

	"github.com/hopfeed/hopfeed/chunk"
	"github.com/hopfeed/hopfeed/internal/parallel"
	"github.com/hopfeed/hopfeed/loader"
	"github.com/hopfeed/hopfeed/loader/cache"
)

// CacheOptions say what the policies of caches look at.
type CacheOptions struct {
	Topology Topology
	RowBytes int64 // of a row of features, as stored
	// Method, Nodes and Plan say how training samples. The Method must not prefer cached nodes: take one that draws
	// neighbours uniformly.
	Method  *Method
	Nodes   []uint32
	Plan    chunk.Plan
	Workers int // that sample at a time; 0: parallel.Threads
	Samples int // there are at a time; 0: as many as the workers can have on their way
	// Lists: a device will sample the adjacency lists that a policy chooses. Else they are worth nothing.
	Lists bool
	// TraceRows is how many rows of batches the optimal cache looks ahead; 0: cache.MostTraceRows.
	TraceRows int64
	// Held tells which nodes are of the device's partitions, if edges do not leave these; nil: all.
	Held func(node uint32) bool
}

// OpenCache opens a cache for training on sampled mini-batches.
func OpenCache(ctx context.Context, spec cache.Spec, o CacheOptions) (cache.Opened, error) {
	if o.Workers <= 0 {
		o.Workers = parallel.Threads()
	}
	o.Plan = o.Plan.WithRows(len(o.Nodes))
	if err := o.Plan.Check(); err != nil {
		return cache.Opened{}, err
	}
	v := &visits{o: o}
	opened, err := spec.Open(cache.Inputs{
		Nodes: o.Topology.Nodes(), RowBytes: o.RowBytes, TraceRows: o.TraceRows, Seed: o.Plan.Seed,
		OutDegrees: func() ([]uint32, error) { return outDegrees(ctx, o.Topology, o.Held) },
		Visits:     func() ([]uint32, error) { err := v.count(ctx); return v.rows, err },
		ListVisits: func() ([]float64, error) { err := v.count(ctx); return v.lists, err },
		ListBytes:  v.listBytes,
		Reach:      func() ([]float32, error) { return reach(ctx, o) },
	})
	return opened, errors.Join(err, v.failed)
}

// visits counts what one epoch of sampling visits (GNNLab's pre-sampling).
type visits struct {
	o     CacheOptions
	rows  []uint32
	lists []float64 // bytes that are read of each list
	// failed is why listBytes could not tell.
	failed error
}

// presampledEpoch is an epoch that no training reaches, so that its batches are others.
const presampledEpoch = -1

// offsetBytes is the size of a list's offset.
const offsetBytes = 8

// edgeBytes is the size of an edge that sampling reads: its source and its weight.
func (v *visits) edgeBytes() int64 {
	if v.o.Topology.Weighted() {
		return 8
	}
	return 4
}

func (v *visits) count(ctx context.Context) error {
	if v.rows != nil {
		return nil
	}
	v.rows, v.lists = make([]uint32, v.o.Topology.Nodes()), make([]float64, v.o.Topology.Nodes())
	e, err := planEpochs(v.o.Method, v.o.Nodes, v.o.Plan)
	if err != nil {
		return err
	}
	return e.Visit(ctx, v.o.Workers, v.o.Samples, presampledEpoch, 0, e.plan.Batches(), func(b *MiniBatch) bool {
		for _, node := range b.Inputs {
			v.rows[node]++
		}
		for i := range b.Blocks {
			if !v.o.Lists {
				break
			}
			offsets := b.Blocks[i].Offsets
			for d, node := range b.Destinations(i) {
				v.lists[node] += 2*offsetBytes + float64(v.edgeBytes())*float64(offsets[d+1]-offsets[d])
			}
		}
		return true
	})
}

func (v *visits) listBytes(node uint32) int64 {
	var list [1]List
	if err := v.o.Topology.Lists([]uint32{node}, list[:]); err != nil {
		v.failed = err
	}
	return offsetBytes + v.edgeBytes()*list[0].Degree()
}

// outDegrees counts the lists that each node is in, of nodes that are held (CacheOptions.Held).
func outDegrees(ctx context.Context, t Topology, held func(uint32) bool) ([]uint32, error) {
	degrees := make([]uint32, t.Nodes())
	return degrees, visitLists(ctx, t, 1, false, func(v uint32, sources []uint32, _ []float32) {
		if held != nil && !held(v) {
			return
		}
		for _, u := range sources {
			degrees[u]++
		}
	})
}

// reach is proportional to the probability that a batch reaches each node: the in-degree, if most nodes are trained on
// (mq-gnn Eq. 14), and else what random walks of as many steps as there are layers reach. The paper prints a step as
// P(l) = (D A + I) P(l-1) with D = diag(d), where d(v) is the number of sampled neighbours of v by its degree (Eq. 15,
// 16). Since d is the part of v's neighbours that are sampled, it belongs to the node where a step begins: node u gets
// P(u) += d(v) P(v) of each v that it is an in-neighbour of.
func reach(ctx context.Context, o CacheOptions) ([]float32, error) {
	n := o.Topology.Nodes()
	p := make([]float32, n)
	if 2*int64(len(o.Nodes)) > n {
		return p, visitLists(ctx, o.Topology, 1, false,
			func(v uint32, sources []uint32, _ []float32) { p[v] = float32(len(sources)) })
	}
	for i, node := range o.Nodes {
		if int64(node) >= n {
			return nil, fmt.Errorf("seed %d is node %d: the graph has %d nodes", i, node, n)
		}
		p[node] = 1 / float32(len(o.Nodes))
	}
	before := make([]float32, n)
	for _, fanout := range o.Method.options.Fanouts {
		copy(before, p)
		if err := visitLists(ctx, o.Topology, 1, false, func(v uint32, sources []uint32, _ []float32) {
			if before[v] == 0 || len(sources) == 0 {
				return
			}
			d := float32(1)
			if fanout != All {
				d = min(1, float32(fanout)/float32(len(sources)))
			}
			for _, u := range sources {
				p[u] += d * before[v]
			}
		}); err != nil {
			return nil, err
		}
	}
	return p, nil
}

// beginWindow begins the cache for the batches of the epoch from one on: until x.windowEnd. It returns what it has
// brought into the cache.
func (x *run) beginWindow(ctx context.Context, batch int) (loaded loader.Traffic, err error) {
	l := x.s.l
	x.windowEnd = math.MaxInt
	// Evaluation between two epochs of training leaves the cache as it is.
	if l.o.Cache == nil || x.s.plan.Order == chunk.Sequential && l.began && !l.o.Cache.Traced() {
		return loaded, nil
	}
	l.began = true
	load, batches := l.o.Cache.Begin(x.n, x.s.trace(ctx, x.n, batch, &err))
	if err != nil {
		return loaded, err
	}
	if batches < math.MaxInt-batch {
		x.windowEnd = batch + batches
	}
	loaded.LoadedRows = int64(len(load.Nodes))
	loaded.AddBytes(l.placement(), loaded.LoadedRows*l.rowBytes())
	if l.rows != nil {
		if err = l.rows.load(ctx, x.stream, load); err != nil {
			l.o.Cache.Forget(load.Slots)
		}
	}
	return loaded, err
}

// trace yields the inputs of the batches from first on, which it samples for that.
func (s *Set) trace(ctx context.Context, n, first int, failed *error) iter.Seq[[]uint32] {
	return func(yield func([]uint32) bool) {
		*failed = s.Visit(ctx, s.l.o.Workers, s.l.o.Samples, n, first, s.Batches(),
			func(b *MiniBatch) bool { return yield(b.Inputs) })
	}
}
