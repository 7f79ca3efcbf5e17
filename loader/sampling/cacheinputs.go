package sampling

import (
	"context"
	"fmt"
	"iter"
	"math"
	"slices"

	"github.com/hopfeed/hopfeed/chunk"
	"github.com/hopfeed/hopfeed/internal/parallel"
	"github.com/hopfeed/hopfeed/loader"
	"github.com/hopfeed/hopfeed/loader/cache"
)

// CacheOptions say what the policies of caches look at.
type CacheOptions struct {
	Topology Topology
	RowBytes []int64 // of a row of features, as stored, of the nodes of each type; 0: they have none
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

// OpenCaches opens a cache for the rows of each type, of those with room for a row, for training on sampled
// mini-batches. A plain graph has one type.
func OpenCaches(ctx context.Context, spec cache.Spec, o CacheOptions) ([]cache.Opened, error) {
	if o.Workers <= 0 {
		o.Workers = parallel.Threads()
	}
	o.Plan = o.Plan.WithRows(len(o.Nodes))
	if err := o.Plan.Check(); err != nil {
		return nil, err
	}
	types := typesOf(o.Topology)
	rows := make([]cache.Rows, len(types))
	for i, t := range types {
		rows[i] = cache.Rows{Nodes: int64(t.end - t.first), Bytes: o.RowBytes[i]}
	}
	if err := spec.CheckRoom(rows); err != nil {
		return nil, err
	}
	v, all := &visits{o: o}, make([]cache.Opened, len(types))
	for i, one := range spec.Divide(rows) {
		t, r := types[i], rows[i]
		if one.Slots(r.Nodes, r.Bytes) == 0 && len(types) > 1 {
			continue
		}
		var err error
		if all[i], err = one.Open(cache.Inputs{
			Nodes: r.Nodes, RowBytes: r.Bytes, Seed: o.Plan.Seed + uint64(i),
			TraceRows:  cache.Part(o.TraceRows, r.Nodes, o.Topology.Nodes()),
			OutDegrees: func() ([]uint32, error) { return ofType(t, &v.outDegrees, v.countOutDegrees(ctx)) },
			Visits:     func() ([]uint32, error) { return ofType(t, &v.rows, v.count(ctx)) },
			ListVisits: func() ([]float64, error) { return ofType(t, &v.lists, v.count(ctx)) },
			ListBytes:  v.listBytes,
			Reach:      func() ([]float32, error) { return ofType(t, &v.reach, v.countReach(ctx)) },
		}); err != nil {
			return nil, err
		}
	}
	return all, v.failed
}

// ofType are the counts of the nodes of a type, unless they could not be counted.
func ofType[T any](t rowRange, counts *[]T, err error) ([]T, error) {
	if err != nil {
		return nil, err
	}
	return (*counts)[t.first:t.end], nil
}

// visits counts what one epoch of sampling visits (GNNLab's pre-sampling), and what else policies look at. It numbers
// the nodes of all types together, type after type.
type visits struct {
	o          CacheOptions
	rows       []uint32
	lists      []float64 // bytes that are read of each list
	outDegrees []uint32
	reach      []float32
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
	types := typesOf(v.o.Topology)
	v.rows, v.lists = make([]uint32, v.o.Topology.Nodes()), make([]float64, v.o.Topology.Nodes())
	e, err := planEpochs(v.o.Method, v.o.Nodes, v.o.Plan)
	if err != nil {
		return err
	}
	return e.Visit(ctx, v.o.Workers, v.o.Samples, presampledEpoch, 0, e.plan.Batches(), func(b *MiniBatch) bool {
		for i, t := range types {
			for _, node := range b.OfType(i) {
				v.rows[t.first+node]++
			}
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
	if !v.o.Lists {
		return offsetBytes // of what is worth nothing
	}
	var list [1]List
	if err := v.o.Topology.Lists([]uint32{node}, list[:]); err != nil {
		v.failed = err
	}
	return offsetBytes + v.edgeBytes()*list[0].Degree()
}

// countOutDegrees counts the lists that each node is in, of nodes that are held (CacheOptions.Held).
func (v *visits) countOutDegrees(ctx context.Context) error {
	if v.outDegrees != nil {
		return nil
	}
	v.outDegrees = make([]uint32, v.o.Topology.Nodes())
	return visitLists(ctx, v.o.Topology, 1, false, func(row uint32, sources []uint32, _ []float32) {
		if held := v.o.Held; held != nil && !held(row) {
			return
		}
		for _, u := range sources {
			v.outDegrees[u]++
		}
	})
}

// countReach makes reach proportional to the probability that a batch reaches each node: the in-degree, if most nodes
// are trained on (mq-gnn Eq. 14), and else what random walks of as many steps as there are layers reach. The paper
// prints a step as P(l) = (D A + I) P(l-1) with D = diag(d), where d(v) is the number of sampled neighbours of v by its
// degree (Eq. 15, 16). Since d is the part of v's neighbours that are sampled, it belongs to the node where a step
// begins: node u gets P(u) += d(v) P(v) of each v that it is an in-neighbour of.
func (v *visits) countReach(ctx context.Context) error {
	if v.reach != nil {
		return nil
	}
	o, n := &v.o, v.o.Topology.Nodes()
	p := make([]float32, n)
	v.reach = p
	if 2*int64(len(o.Nodes)) > n {
		return visitLists(ctx, o.Topology, 1, false, func(row uint32, sources []uint32, _ []float32) {
			p[destination(o.Topology, row)] += float32(len(sources))
		})
	}
	for i, node := range o.Nodes {
		if int64(node) >= n {
			return fmt.Errorf("seed %d is node %d: the graph has %d nodes", i, node, n)
		}
		p[node] = 1 / float32(len(o.Nodes))
	}
	before := make([]float32, n)
	for _, fanout := range o.Method.options.Fanouts {
		copy(before, p)
		if err := visitLists(ctx, o.Topology, 1, false, func(row uint32, sources []uint32, _ []float32) {
			v := destination(o.Topology, row)
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
			return err
		}
	}
	return nil
}

// beginWindow begins the caches that end before a batch for the batches of the epoch from it on: until x.windowEnds. It
// returns what it has brought into them.
func (x *run) beginWindow(ctx context.Context, batch int) (loaded loader.Traffic, err error) {
	var due []*window
	for kind, t := range x.s.l.types {
		if batch < x.windowEnds[kind] {
			continue
		}
		x.windowEnds[kind] = math.MaxInt
		// Evaluation between two epochs of training leaves the cache as it is.
		if t.Cache == nil || x.s.plan.Order == chunk.Sequential && t.began && !t.Cache.Traced() {
			continue
		}
		t.began = true
		due = append(due, &window{typeRows: t, kind: kind})
	}
	if len(due) > 0 {
		err = x.begin(ctx, batch, due)
	}
	for _, w := range due {
		if err == nil && w.cached != nil {
			err = w.cached.load(ctx, x.stream, w.load)
		}
		if err != nil {
			w.Cache.Forget(w.load.Slots)
			continue
		}
		if w.batches < math.MaxInt-batch {
			x.windowEnds[w.kind] = batch + w.batches
		}
		rows := int64(len(w.load.Nodes))
		loaded.LoadedRows += rows
		loaded.AddBytes(w.placement(), rows*w.rowBytes())
	}
	return loaded, err
}

// window is the cache of a type that begins, and what cache.Begin returns.
type window struct {
	*typeRows
	kind    int
	load    cache.Load
	batches int
}

// begin begins caches. Some policies read the batches from first on: each batch is sampled once, and all of them read
// it before the next is.
func (x *run) begin(ctx context.Context, first int, windows []*window) (err error) {
	var next *MiniBatch // nil: there are no more
	var readers []func() (struct{}, bool)
	for _, w := range windows {
		resume, _ := iter.Pull(func(wait func(struct{}) bool) {
			w.load, w.batches = w.Cache.Begin(x.n, func(read func([]uint32) bool) {
				for wait(struct{}{}) && next != nil && read(next.OfType(w.kind)) {
				}
			})
		})
		readers = append(readers, resume)
	}
	resume := func() (more bool) { // lets readers go on until each waits for the next batch, or has read enough
		readers = slices.DeleteFunc(readers, func(resume func() (struct{}, bool)) bool {
			_, waits := resume()
			return !waits
		})
		return len(readers) > 0
	}
	if resume() {
		s := x.s
		err = s.Visit(ctx, s.l.o.Workers, s.l.o.Samples, x.n, first, s.Batches(), func(b *MiniBatch) bool {
			next = b
			return resume()
		})
		next = nil
		resume()
	}
	return err
}
