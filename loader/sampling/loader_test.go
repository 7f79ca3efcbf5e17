package sampling

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/hopfeed/hopfeed/chunk"
	"github.com/hopfeed/hopfeed/format"
	"github.com/hopfeed/hopfeed/gds"
	"github.com/hopfeed/hopfeed/gds/host"
	"github.com/hopfeed/hopfeed/internal/dtype"
	"github.com/hopfeed/hopfeed/internal/vfs"
	"github.com/hopfeed/hopfeed/loader"
	"github.com/hopfeed/hopfeed/loader/cache"
	"github.com/hopfeed/hopfeed/loader/features"
	"github.com/hopfeed/hopfeed/loader/internal/graphtest"
)

// bench is a graph, opened for loaders.
type bench struct {
	t        testing.TB
	graph    *format.Dir
	topology Topology
	device   gds.Device
	features features.Source
	labels   *loader.Labels
	copies   gds.Buffer // pinned, for read
}

// newBench opens a graph. What it opens is closed after the test, after the loaders.
func newBench(t testing.TB, g graphtest.Graph, discrete, storage bool) *bench {
	t.Helper()
	b := &bench{t: t, graph: graphtest.New(t, vfs.OS(), filepath.Join(t.TempDir(), "graph"), g)}
	device, err := host.New(host.Options{Threads: 2, Discrete: discrete})
	b.must(err)
	b.device = device
	t.Cleanup(func() { b.must(device.Close()) })
	b.topology, err = LoadTopology(t.Context(), b.graph, 2)
	b.must(err)
	t.Cleanup(func() { b.must(b.topology.Close()) })
	switch {
	case storage:
		b.features, err = features.OpenStorage(t.Context(), b.graph, device, 2)
	case g.Sparse:
		elements, found := features.FindElements(t.Context(), b.graph, 2)
		b.must(found)
		b.features, err = features.LoadSparse(t.Context(), b.graph, elements, 2)
	default:
		b.features, err = features.LoadHost(t.Context(), b.graph, nil, 2)
	}
	b.must(err)
	t.Cleanup(func() { b.must(b.features.Close()) })
	b.labels, err = loader.ReadLabels(t.Context(), b.graph)
	b.must(err)
	return b
}

func (b *bench) must(err error) {
	b.t.Helper()
	if err != nil {
		b.t.Fatal(err)
	}
}

func (b *bench) method(name string, o Options) *Method {
	b.t.Helper()
	m, err := NewMethod(context.Background(), name, b.topology, o)
	b.must(err)
	b.t.Cleanup(func() { b.must(m.Close()) })
	return m
}

func (b *bench) open(o LoaderOptions) *Loader {
	b.t.Helper()
	if o.Device = b.device; o.Types == nil {
		o.Types = make([]TypeRows, 1)
	}
	o.Types[0].Features = b.features
	l, err := Open(o)
	b.must(err)
	b.t.Cleanup(func() { b.must(l.Close()) })
	return l
}

// cache is one of a policy that has room for 600 bytes of rows; "": none.
func (b *bench) cache(policy string, g graphtest.Graph, m *Method, nodes []uint32, plan chunk.Plan) *cache.Cache {
	b.t.Helper()
	if policy == "" {
		return nil
	}
	spec, err := cache.Parse(policy + ":600")
	b.must(err)
	caches, err := OpenCaches(b.t.Context(), spec, CacheOptions{Topology: b.topology,
		RowBytes: []int64{int64(g.Columns * g.DType.Size())}, Method: m, Nodes: nodes, Plan: plan})
	b.must(err)
	return caches[0].Cache
}

func (b *bench) stream() gds.Stream {
	b.t.Helper()
	s, err := b.device.NewStream()
	b.must(err)
	b.t.Cleanup(func() { b.must(s.Close()) })
	return s
}

func read[T dtype.Number](b *bench, s gds.Stream, t gds.Tensor) []T {
	b.t.Helper()
	out := make([]T, t.Rows*t.Cols)
	if len(out) == 0 {
		return out
	}
	bytes := gds.Bytes(t.Rows, t.Cols, t.DType)
	if b.copies == nil || b.copies.Len() < bytes {
		memory, err := b.device.AllocPinned(max(bytes, 256<<10))
		b.must(err)
		b.t.Cleanup(func() { b.copies = nil; b.must(memory.Free()) })
		b.copies = memory
	}
	s.Copy(gds.NewTensor(b.copies, t.Rows, t.Cols, t.DType), t)
	b.must(s.Synchronize(b.t.Context()))
	copy(out, dtype.As[T](b.copies.Bytes()))
	return out
}

// everyThird are seeds in no order.
func everyThird(nodes int) (out []uint32) {
	for v := 0; v < nodes; v += 3 {
		out = append(out, uint32((v*7)%nodes))
	}
	slices.Sort(out)
	out = slices.Compact(out)
	slices.Reverse(out)
	return out
}

// check compares a batch with a sample of its seeds that is made for that.
func (b *bench) check(s *Set, stream gds.Stream, batch *loader.Batch, epoch int, g graphtest.Graph) []uint32 {
	t := b.t
	t.Helper()
	var plan chunk.Batch
	for plan = range s.plan.EpochFrom(epoch, batch.Index) {
		break
	}
	numbers := make([]uint32, plan.Rows)
	plan.RowNumbers(numbers)
	for i, at := range numbers {
		numbers[i] = s.nodes[at]
	}
	if plan.Rows == 0 {
		if batch.Rows != 0 || len(batch.Blocks) != 0 || len(batch.X) != 1 || batch.X[0].Rows != 0 {
			t.Fatalf("a batch without rows is %+v", batch)
		}
		return nil
	}
	var want MiniBatch
	b.must(s.method.Sample(t.Context(), &want, numbers, s.key(&job{plan: plan, epoch: epoch})))
	if batch.Rows != len(want.Seeds) || batch.X[0].Rows != len(want.Inputs) || len(batch.X) != 1 ||
		len(batch.Blocks) != len(want.Blocks) {
		t.Fatalf("batch %d has %d rows, X %v, %d blocks; want %d, %d, %d", batch.Index, batch.Rows, batch.X,
			len(batch.Blocks), len(want.Seeds), len(want.Inputs), len(want.Blocks))
	}
	edges := int64(0)
	for _, k := range want.Blocks {
		edges += int64(len(k.Indices))
	}
	if batch.Traffic.Rows != int64(len(want.Inputs)) || batch.Traffic.Edges != edges {
		t.Fatalf("batch %d has %+v, want %d rows and %d edges", batch.Index, batch.Traffic, len(want.Inputs), edges)
	}
	x := b.features32(stream, batch)
	for i, node := range want.Inputs {
		for c := range g.Columns {
			if got := x[i*g.Columns+c]; got != g.Value(node, c) {
				t.Fatalf("epoch %d, batch %d: column %d of input %d, node %d, is %g, want %g", epoch, batch.Index, c, i,
					node, got, g.Value(node, c))
			}
		}
	}
	for i, k := range want.Blocks {
		got := batch.Blocks[i]
		if got.Destinations != k.Destinations || got.Sources != k.Sources ||
			!slices.Equal(read[uint32](b, stream, got.Offsets), k.Offsets) ||
			!slices.Equal(read[uint32](b, stream, got.Indices), k.Indices) ||
			!slices.Equal(read[float32](b, stream, got.Weights), k.Weights) {
			t.Fatalf("batch %d: block %d is not the one that was sampled", batch.Index, i)
		}
	}
	if !slices.Equal(read[uint32](b, stream, batch.NodeIDs), want.Seeds) ||
		!slices.Equal(read[uint32](b, stream, batch.InputIDs), want.Inputs) {
		t.Fatalf("batch %d: other node ids", batch.Index)
	}
	if len(want.SeedWeights) > 0 && !slices.Equal(read[float32](b, stream, batch.RowWeights), want.SeedWeights) ||
		len(want.SeedWeights) == 0 && batch.RowWeights.Buf != nil {
		t.Fatalf("batch %d: other weights of seeds", batch.Index)
	}
	size := b.labels.RowBytes()
	var labels []byte
	for _, node := range want.Seeds {
		labels = append(labels, b.labels.Data[int(node)*size:][:size]...)
	}
	var found []byte
	switch b.labels.Type {
	case gds.Int32:
		found = dtype.BytesOf(read[int32](b, stream, batch.Labels))
	case gds.Int8:
		found = dtype.BytesOf(read[int8](b, stream, batch.Labels))
	default:
		found = dtype.BytesOf(read[float32](b, stream, batch.Labels))
	}
	if !slices.Equal(found, labels) {
		t.Fatalf("batch %d: other labels", batch.Index)
	}
	return want.Seeds
}

// features32 is the features of a batch, as dense rows.
func (b *bench) features32(stream gds.Stream, batch *loader.Batch) []float32 {
	b.t.Helper()
	x, s := batch.X[0], batch.Sparse
	if s == nil {
		return read[float32](b, stream, x)
	}
	out := make([]float32, x.Rows*x.Cols)
	offsets, columns, values := read[uint32](b, stream, s.Offsets), read[uint32](b, stream, s.Columns),
		read[float32](b, stream, s.Values)
	for i := range x.Rows {
		for e := offsets[i]; e < offsets[i+1]; e++ {
			out[i*x.Cols+int(columns[e])] = values[e]
		}
	}
	if x.Buf != nil || s.Cols != x.Cols || len(values) != int(offsets[x.Rows]) {
		b.t.Fatalf("%v with %+v", x, s)
	}
	return out
}

func TestBatchesAreThoseOfTheSamplerWhereverFeaturesAre(t *testing.T) {
	for _, g := range []graphtest.Graph{
		{Nodes: 211, Columns: 5, ChunkRows: 50, DType: format.Float32, Labels: 1},
		{Nodes: 211, Columns: 7, ChunkRows: 50, DType: format.Float16, Labels: 3},
		{Nodes: 97, Columns: 6, ChunkRows: 10, DType: format.BFloat16, Labels: -2},
		{Nodes: 211, Columns: 45, ChunkRows: 10, DType: format.Float16, Labels: 1, Sparse: true},
	} {
		for _, discrete := range []bool{false, true} {
			for _, storage := range []bool{false, true} {
				if g.Sparse && storage { // rows are dense there
					continue
				}
				policies := append([]string{""}, cache.Policies()...)
				if g.Sparse { // has no cache
					policies = policies[:1]
				}
				b := newBench(t, g, discrete, storage)
				m := b.method("neighbor", Options{Fanouts: []int{3, 2}})
				nodes := everyThird(g.Nodes)
				plan := chunk.Plan{BatchRows: 16, Order: chunk.Shuffled, Seed: 4}
				for _, policy := range policies {
					name := fmt.Sprintf("%v, discrete %t, storage %t, cache %q", g.DType, discrete, storage, policy)
					t.Run(name, func(t *testing.T) {
						outer := b.t
						b.t = t
						defer func() { b.t = outer }()
						o := LoaderOptions{Labels: b.labels, NodeIDs: true, Workers: 3}
						o.Types = []TypeRows{{Cache: b.cache(policy, g, m, nodes, plan)}}
						l := b.open(o)
						train, err := l.Set(nodes, m, plan)
						b.must(err)
						valid, err := l.Set([]uint32{1, 2, 4, 3}, m, chunk.Plan{BatchRows: 3})
						b.must(err)
						stream := b.stream()
						for epoch := range 3 {
							for _, s := range []*Set{train, valid} {
								var seen []uint32
								for batch, err := range s.EpochFrom(t.Context(), stream, epoch, 0) {
									b.must(err)
									seen = append(seen, b.check(s, stream, batch, epoch, g)...)
								}
								slices.Sort(seen)
								if want := slices.Sorted(slices.Values(s.nodes)); !slices.Equal(seen, want) {
									t.Fatalf("an epoch has the seeds %v, want %v", seen, want)
								}
							}
						}
						stats := l.Stats()
						traffic := stats.Traffic
						if stats.Rows != 3*(train.Rows()+4) || traffic.Rows == 0 || traffic.Edges == 0 ||
							len(stats.Stages) != 3 {
							t.Errorf("%+v", stats)
						}
						want := loader.Traffic{Rows: traffic.Rows, Edges: traffic.Edges}
						if policy != "" {
							want.Rows, want.CachedRows, want.LoadedRows = stats.Cache.Lookups, stats.Cache.Hits,
								stats.Cache.Loaded
							want.CacheBytes = want.CachedRows * l.types[0].rowBytes()
						}
						want.AddBytes(stats.Placement, (want.Rows-want.CachedRows+want.LoadedRows)*l.types[0].rowBytes())
						if g.Sparse { // elements, and where each row of a batch begins and ends
							want.HostBytes = b.features.Stats().Bytes +
								4*(traffic.Rows+3*int64(train.Batches()+valid.Batches()))
						}
						if traffic != want || (traffic.StorageBytes > 0) != storage || policy != "" &&
							traffic.HitRate() == 0 {
							t.Errorf("%+v, want %+v", traffic, want)
						}
					})
				}
			}
		}
	}
}

// batchesOf are the batches of an epoch as text.
func (b *bench) batchesOf(s *Set, epoch, first int) (out []string) {
	b.t.Helper()
	stream := b.stream()
	for batch, err := range s.EpochFrom(b.t.Context(), stream, epoch, first) {
		b.must(err)
		text := fmt.Sprint(batch.Index, batch.Rows, batch.GlobalRows, read[uint32](b, stream, batch.NodeIDs),
			read[float32](b, stream, batch.X[0]))
		for _, k := range batch.Blocks {
			text += fmt.Sprint(read[uint32](b, stream, k.Offsets), read[uint32](b, stream, k.Indices),
				read[float32](b, stream, k.Weights))
		}
		out = append(out, text)
	}
	return out
}

var toy = graphtest.Graph{Nodes: 211, Columns: 5, ChunkRows: 50, DType: format.Float32, Labels: 1}

func TestWorkersAndTheFirstBatchChangeNothing(t *testing.T) {
	b := newBench(t, toy, true, false)
	m := b.method("labor", Options{Fanouts: []int{3, 2}})
	plan := chunk.Plan{BatchRows: 8, Order: chunk.Shuffled, Seed: 9}
	var want []string
	for _, workers := range []int{1, 2, 7} {
		// With fewer samples than workers, some of these have nothing to do.
		l := b.open(LoaderOptions{NodeIDs: true, Workers: workers, Buffers: 1 + workers/2, Samples: workers % 3,
			MaxBatchBytes: int64(workers) << 20})
		s, err := l.Set(everyThird(toy.Nodes), m, plan)
		b.must(err)
		got := b.batchesOf(s, 1, 0)
		if want == nil {
			want = got
		}
		if len(got) != s.Batches() || !slices.Equal(got, want) {
			t.Errorf("%d workers give other batches", workers)
		}
		if rest := b.batchesOf(s, 1, 5); !slices.Equal(rest, want[5:]) {
			t.Error("from batch 5 on there are others")
		}
		if other := b.batchesOf(s, 2, 0); slices.Equal(other, want) {
			t.Error("two epochs are the same")
		}
	}
}

func TestRanksShareEachBatch(t *testing.T) {
	b := newBench(t, toy, false, false)
	m := b.method("neighbor", Options{Fanouts: []int{2}})
	nodes := everyThird(toy.Nodes)[:34]
	seen := make(map[int]int)
	for rank := range 4 {
		l := b.open(LoaderOptions{Labels: b.labels, NodeIDs: true})
		s, err := l.Set(nodes, m, chunk.Plan{BatchRows: 16, Order: chunk.Shuffled, Rank: rank, World: 4})
		b.must(err)
		if s.Rows() != 34 || s.Batches() != 3 {
			t.Fatalf("%d rows, %d batches", s.Rows(), s.Batches())
		}
		stream := b.stream()
		for batch, err := range s.EpochFrom(t.Context(), stream, 0, 0) {
			b.must(err)
			if want := min(16, 34-16*batch.Index); batch.GlobalRows != want {
				t.Errorf("batch %d: %d rows on all ranks, want %d", batch.Index, batch.GlobalRows, want)
			}
			seen[batch.Index] += len(b.check(s, stream, batch, 0, toy))
		}
	}
	if seen[0] != 16 || seen[1] != 16 || seen[2] != 2 { // two ranks have no row of the last
		t.Errorf("ranks have %v rows", seen)
	}
}

func TestSeedsThatASamplerChoosesHaveLabelsOnlyIfTheyAreOfTheSet(t *testing.T) {
	b := newBench(t, toy, true, false)
	m := b.method("saint-rw", Options{Fanouts: []int{1, 1}})
	l := b.open(LoaderOptions{Labels: b.labels, NodeIDs: true})
	nodes := everyThird(toy.Nodes)
	s, err := l.Set(nodes, m, chunk.Plan{BatchRows: 20, Order: chunk.Shuffled})
	b.must(err)
	stream := b.stream()
	others := 0
	for batch, err := range s.EpochFrom(t.Context(), stream, 0, 0) {
		b.must(err)
		ids, labels := read[uint32](b, stream, batch.NodeIDs), read[int32](b, stream, batch.Labels)
		if batch.Rows != len(ids) || batch.GlobalRows != len(ids) || batch.RowWeights.Cols != len(ids) {
			t.Fatalf("%d rows, %d on all ranks, %d ids, %d weights", batch.Rows, batch.GlobalRows, len(ids),
				batch.RowWeights.Cols)
		}
		for i, node := range ids {
			want := graphtest.Label(node)
			if !slices.Contains(nodes, node) {
				want = -1
				others++
			}
			if labels[i] != want {
				t.Errorf("node %d has label %d, want %d", node, labels[i], want)
			}
		}
	}
	if others == 0 {
		t.Error("no seed is of another set")
	}
	if _, err := l.Set(nodes, m, chunk.Plan{BatchRows: 20, World: 2}); !errors.Is(err, ErrOptions) ||
		!strings.Contains(err.Error(), "several devices") {
		t.Errorf("several devices: %v", err)
	}
}

// The mean over 60 epochs of the seeds of an epoch is compared with the number of nodes that may be seeds: an
// epoch has less than one batch more, and 6 standard errors are allowed.
func TestAnEpochOfSeedsThatASamplerChoosesHasAboutAsManyAsThereAreNodes(t *testing.T) {
	const epochs = 60
	b := newBench(t, toy, false, false)
	l := b.open(LoaderOptions{Labels: b.labels, NodeIDs: true})
	nodes := everyThird(toy.Nodes)
	stream := b.stream()
	for _, name := range []string{"saint-node", "saint-edge", "saint-rw"} {
		m := b.method(name, Options{Fanouts: []int{1, 1}, Targets: nodes})
		s, err := l.Set(nodes, m, chunk.Plan{BatchRows: 5, Order: chunk.Shuffled, Seed: 3})
		b.must(err)
		sum, squares, most := 0.0, 0.0, 0
		for epoch := range epochs {
			seeds, batches := 0, 0
			for batch, err := range s.EpochFrom(t.Context(), stream, epoch, 0) {
				b.must(err)
				want := s.RowNumbers(epoch, batch.Index)
				if !slices.Equal(read[uint32](b, stream, batch.NodeIDs), want) {
					t.Fatalf("%s: batch %d of epoch %d has other nodes than %d", name, batch.Index, epoch, want)
				}
				seeds, batches, most = seeds+batch.Rows, batches+1, max(most, batch.Rows)
			}
			if batches != s.Batches() {
				t.Fatalf("%s: %d batches, want %d", name, batches, s.Batches())
			}
			sum += float64(seeds)
			squares += float64(seeds) * float64(seeds)
		}
		mean := sum / epochs
		tolerance := 6 * math.Sqrt((squares/epochs-mean*mean)/epochs)
		if each := mean / float64(s.Batches()); mean < float64(s.Rows())-tolerance ||
			mean > float64(s.Rows())+each+tolerance || s.Rows() != int64(len(nodes)) {
			t.Errorf("%s: %v seeds in an epoch of %d batches, want %d to %.1f more, ± %.1f", name, mean, s.Batches(),
				s.Rows(), each, tolerance)
		}
		if bound := m.MostSeeds(5); most > bound || bound > 15 {
			t.Errorf("%s: %d seeds in a batch, at most %d were said", name, most, bound)
		}
	}
	m := b.method("saint-node", Options{Fanouts: []int{1}, Targets: nodes[:1]})
	if _, err := l.Set(nodes[:1], m, chunk.Plan{BatchRows: 1, Order: chunk.Shuffled}); !errors.Is(err, ErrOptions) ||
		!strings.Contains(err.Error(), "draw more") {
		t.Errorf("batches without seeds: %v", err)
	}
}

func TestBatchesThatAreHeldStay(t *testing.T) {
	for _, discrete := range []bool{false, true} {
		b := newBench(t, toy, discrete, false)
		m := b.method("neighbor", Options{Fanouts: []int{2}})
		l := b.open(LoaderOptions{Labels: b.labels, NodeIDs: true, Buffers: 2})
		s, err := l.Set(everyThird(toy.Nodes), m, chunk.Plan{BatchRows: 8, Order: chunk.Shuffled})
		b.must(err)
		stream := b.stream()
		var held *loader.Batch
		for batch, err := range s.EpochFrom(t.Context(), stream, 0, 0) {
			b.must(err)
			if held == nil {
				held = batch
				held.Hold()
				held.Hold()
				held.Release(nil)
			}
		}
		b.check(s, stream, held, 0, toy)
		if err := l.Close(); !errors.Is(err, loader.ErrInUse) {
			t.Errorf("closed while a batch is held: %v", err)
		}
		held.Release(stream.Record())
		held.Release(nil)
		// The buffer is used again.
		if got := len(b.batchesOf(s, 1, 0)); got != s.Batches() || l.buffers.Free() != 2 {
			t.Errorf("%d batches, %d free buffers", got, l.buffers.Free())
		}
	}
}

// Batches that are held get buffers of their own, as long as all together take no more memory than there
// is; of buffers that are free it is given back to a batch that needs it.
func TestALoaderGrowsForBatchesThatAreHeldWithinItsMemory(t *testing.T) {
	b := newBench(t, toy, false, false)
	m := b.method("neighbor", Options{Fanouts: []int{2}})
	const most = 100 << 10
	l := b.open(LoaderOptions{Labels: b.labels, NodeIDs: true, Buffers: 2, MostBuffers: 100, MaxBatchBytes: most / 2})
	small, err := l.Set(everyThird(toy.Nodes), m, chunk.Plan{BatchRows: 2, Order: chunk.Shuffled})
	b.must(err)
	stream := b.stream()
	var held []*loader.Batch
	for batch, err := range small.EpochFrom(t.Context(), stream, 0, 0) {
		b.must(err)
		batch.Hold()
		if held = append(held, batch); len(held) < 2 {
			continue
		}
		if err := l.Grow(); errors.Is(err, loader.ErrFull) {
			break
		} else {
			b.must(err)
		}
	}
	if used := b.device.Usage().InUse; len(held) < 10 || used > most || l.batchBytes.Load() > most {
		t.Errorf("%d batches are held in %d bytes; a batch takes %d", len(held), used, l.batchBytes.Load())
	}
	for _, batch := range held {
		b.check(small, stream, batch, 0, toy)
	}
	many := b.method("neighbor", Options{Fanouts: []int{9, 9}})
	large, err := l.Set(everyThird(toy.Nodes), many, chunk.Plan{BatchRows: 40, Order: chunk.Shuffled})
	b.must(err)
	held[0].Release(nil)
	var last error
	for _, err := range large.EpochFrom(t.Context(), stream, 0, 0) {
		last = err
	}
	if last == nil || !strings.Contains(last.Error(), "the batches that are held leave") {
		t.Errorf("a large batch beside the held ones: %v", last)
	}
	for _, batch := range held[1:] {
		batch.Release(nil)
	}
	if got := len(b.batchesOf(large, 0, 0)); got != large.Batches() {
		t.Errorf("%d batches", got)
	}
	if l.batchBytes.Load() > most {
		t.Errorf("batches take %d of %d bytes", l.batchBytes.Load(), most)
	}
}

func TestAnEpochEndsWhenTheLoopDoesOrTheContext(t *testing.T) {
	b := newBench(t, toy, true, false)
	m := b.method("neighbor", Options{Fanouts: []int{2}})
	l := b.open(LoaderOptions{NodeIDs: true})
	s, err := l.Set(everyThird(toy.Nodes), m, chunk.Plan{BatchRows: 4, Order: chunk.Shuffled})
	b.must(err)
	stream := b.stream()
	before := runtime.NumGoroutine()
	for _, err := range s.EpochFrom(t.Context(), stream, 0, 0) {
		b.must(err)
		for _, err := range s.EpochFrom(t.Context(), stream, 0, 0) {
			if !errors.Is(err, loader.ErrInUse) {
				t.Errorf("two epochs at a time: %v", err)
			}
		}
		break
	}
	cause := errors.New("enough")
	ctx, cancel := context.WithCancelCause(t.Context())
	defer cancel(nil)
	var last error
	for batch, err := range s.EpochFrom(ctx, stream, 0, 0) {
		if last = err; err == nil && batch.Index == 3 {
			cancel(cause)
		}
	}
	if last != cause {
		t.Errorf("the epoch ends with %v", last)
	}
	for wait := 0; runtime.NumGoroutine() > before && wait < 60_000; wait++ { // a minute, where the machine is busy
		time.Sleep(time.Millisecond)
	}
	if n := runtime.NumGoroutine(); n > before {
		t.Errorf("%d goroutines, %d before", n, before)
	}
	if got := len(b.batchesOf(s, 0, 0)); got != s.Batches() {
		t.Errorf("%d batches afterwards", got)
	}
}

func TestWhatDoesNotFitOrIsWrongIsAnError(t *testing.T) {
	b := newBench(t, toy, true, false)
	m := b.method("neighbor", Options{Fanouts: []int{2}})
	small := b.open(LoaderOptions{MaxBatchBytes: 500})
	s, err := small.Set(everyThird(toy.Nodes), m, chunk.Plan{BatchRows: 40, Order: chunk.Shuffled})
	b.must(err)
	stream := b.stream()
	var last error
	for _, err := range s.EpochFrom(t.Context(), stream, 0, 0) {
		last = err
	}
	if last == nil || !strings.Contains(last.Error(), "batch 0 needs") || !strings.Contains(last.Error(), "500 B") {
		t.Errorf("a batch that is too large: %v", last)
	}
	for _, c := range []struct {
		want  string
		nodes []uint32
		plan  chunk.Plan
	}{
		{"node 211", []uint32{3, 211}, chunk.Plan{BatchRows: 4}},
		{"node 3 is twice", []uint32{3, 1, 3}, chunk.Plan{BatchRows: 4}},
		{"batches of 0 rows", []uint32{3}, chunk.Plan{}},
	} {
		if _, err := small.Set(c.nodes, m, c.plan); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("want an error with %q, got %v", c.want, err)
		}
	}
	rows := []TypeRows{{Features: b.features}}
	for _, o := range []LoaderOptions{{}, {Device: b.device, Types: rows, Buffers: -1},
		{Device: b.device, Types: rows, Samples: -1},
		{Device: b.device, Types: rows, Labels: &loader.Labels{Type: gds.Int32, Columns: 1}}} {
		if _, err := Open(o); err == nil {
			t.Errorf("%+v was opened", o)
		}
	}
	before := b.device.Usage()
	rows[0].Cache = b.cache("lru", toy, m, nil, chunk.Plan{BatchRows: 4})
	_, err = Open(LoaderOptions{Device: b.device, Types: rows, Labels: &loader.Labels{Type: gds.Int32, Columns: 1}})
	if after := b.device.Usage(); err == nil || after.InUse != before.InUse {
		t.Errorf("%v; %d bytes in use, %d before", err, after.InUse, before.InUse)
	}
}

// What is allocated for a batch does not grow with it, once its memory is there.
func TestABatchAllocatesLittle(t *testing.T) {
	g := graphtest.Graph{Nodes: 3000, Columns: 16, ChunkRows: 500, DType: format.Float32, Labels: 1}
	b := newBench(t, g, true, false)
	m := b.method("neighbor", Options{Fanouts: []int{5, 5}})
	c, err := cache.Spec{Policy: "lru", Rows: 500}.Open(cache.Inputs{Nodes: int64(g.Nodes), RowBytes: 1})
	b.must(err)
	l := b.open(LoaderOptions{Labels: b.labels, NodeIDs: true, Types: []TypeRows{{Cache: c.Cache}}, Workers: 2})
	nodes := make([]uint32, g.Nodes)
	for i := range nodes {
		nodes[i] = uint32(i)
	}
	s, err := l.Set(nodes, m, chunk.Plan{BatchRows: 100, Order: chunk.Shuffled})
	b.must(err)
	stream := b.stream()
	epoch := func(n int) {
		for _, err := range s.EpochFrom(t.Context(), stream, n, 0) {
			b.must(err)
		}
	}
	for n := range 4 {
		epoch(n)
	}
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	for n := range 4 {
		epoch(n)
	}
	runtime.ReadMemStats(&after)
	// A batch has 30 kB of indices and 100 kB of features.
	if per := (after.TotalAlloc - before.TotalAlloc) / uint64(4*s.Batches()); per > 8<<10 {
		t.Errorf("%d bytes are allocated for a batch", per)
	}
}

func TestCachesLookAtTheGraphAndTheSampler(t *testing.T) {
	// 0 <- 1 <- 2, 0 <- 2, 3 alone
	c := &format.CSC{Offsets: []int64{0, 2, 3, 3, 3}, Neighbors: []uint32{1, 2, 2}}
	topology := InMemory(c)
	m, err := NewMethod(context.Background(), "full", topology, Options{Fanouts: []int{All, All}})
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	o := CacheOptions{Topology: topology, RowBytes: []int64{4}, Method: m, Nodes: []uint32{0},
		Plan: chunk.Plan{BatchRows: 1}, Workers: 2, Lists: true}
	o.Plan.Rows = 1
	v := &visits{o: o}
	if err := v.countOutDegrees(t.Context()); err != nil || !slices.Equal(v.outDegrees, []uint32{0, 1, 2, 0}) {
		t.Errorf("out-degrees %v, %v", v.outDegrees, err)
	}
	if err := v.count(t.Context()); err != nil || !slices.Equal(v.rows, []uint32{1, 1, 1, 0}) {
		t.Errorf("visits %v, %v", v.rows, err)
	}
	// Node 0 is read for both layers, 1 and 2 for the second; 16 bytes to find a list, 4 an edge.
	if want := []float64{2 * 24, 20, 16, 0}; !slices.Equal(v.lists, want) {
		t.Errorf("bytes of lists %v, want %v", v.lists, want)
	}
	if v.listBytes(0) != 16 || v.listBytes(3) != 8 {
		t.Errorf("lists have %d and %d bytes", v.listBytes(0), v.listBytes(3))
	}
	// A walk: all of node 0's mass goes to 1 and 2 (d = 1), then again, and that of 1 to 2.
	reach := func() ([]float32, error) {
		v := &visits{o: o}
		err := v.countReach(t.Context())
		return v.reach, err
	}
	p, err := reach()
	if want := []float32{1, 2, 3, 0}; err != nil || !slices.Equal(p, want) {
		t.Errorf("reach %v, %v, want %v", p, err, want)
	}
	half, err := NewMethod(context.Background(), "neighbor", topology, Options{Fanouts: []int{1}})
	if err != nil {
		t.Fatal(err)
	}
	defer half.Close()
	o.Method = half
	if p, err = reach(); err != nil || !slices.Equal(p, []float32{1, 0.5, 0.5, 0}) {
		t.Errorf("reach with fanout 1: %v, %v", p, err)
	}
	o.Nodes = []uint32{0, 1, 3}
	if p, err = reach(); err != nil || !slices.Equal(p, []float32{2, 1, 0, 0}) {
		t.Errorf("reach where most nodes are trained on: %v, %v", p, err)
	}
}

// The rows of batches that were on their way when an epoch was left are not taken to be in the cache.
func TestEpochsThatAreLeftEarlyLeaveNothingFalseInTheCache(t *testing.T) {
	for _, discrete := range []bool{false, true} {
		b := newBench(t, toy, discrete, true)
		nodes := everyThird(toy.Nodes)
		m := b.method("neighbor", Options{Fanouts: []int{3, 3}})
		plan := chunk.Plan{BatchRows: 3, Order: chunk.Shuffled, Seed: 2}
		for _, policy := range []string{"lru", "fifo", "optimal", "gns"} {
			spec, err := cache.Parse(policy + ":30rows")
			b.must(err)
			caches, err := OpenCaches(t.Context(), spec,
				CacheOptions{Topology: b.topology, RowBytes: []int64{int64(toy.Columns * toy.DType.Size())}, Method: m,
					Nodes: nodes, Plan: plan})
			b.must(err)
			l := b.open(LoaderOptions{Labels: b.labels, NodeIDs: true, Types: []TypeRows{{Cache: caches[0].Cache}}})
			s, err := l.Set(nodes, m, plan)
			b.must(err)
			stream := b.stream()
			for epoch := range 12 {
				for batch, err := range s.EpochFrom(t.Context(), stream, epoch, 0) {
					b.must(err)
					b.check(s, stream, batch, epoch, toy)
					if epoch%4 != 3 && batch.Index == epoch%4 {
						break
					}
				}
			}
		}
	}
}

// unreadable is a topology whose reads of edges fail once fails of them have been made; negative: none fails.
type unreadable struct {
	Topology
	fails atomic.Int64
}

func (u *unreadable) Read(edges []int64, sources []uint32, weights []float32) error {
	if u.fails.Add(-1) == 0 {
		return io.ErrUnexpectedEOF
	}
	return u.Topology.Read(edges, sources, weights)
}

// An epoch that ends because the optimal cache could not look ahead leaves no row in the cache that did not come.
func TestACacheThatCannotLookAheadHasNoFalseRows(t *testing.T) {
	for _, discrete := range []bool{false, true} {
		b := newBench(t, toy, discrete, true)
		topology := &unreadable{Topology: b.topology}
		b.topology = topology
		nodes, m := everyThird(toy.Nodes), b.method("neighbor", Options{Fanouts: []int{1, 1}})
		plan := chunk.Plan{BatchRows: 3, Order: chunk.Shuffled, Seed: 2}
		l := b.open(LoaderOptions{NodeIDs: true, Labels: b.labels,
			Types: []TypeRows{{Cache: b.cache("optimal", toy, m, nodes, plan)}}})
		s, err := l.Set(nodes, m, plan)
		b.must(err)
		stream, failed := b.stream(), 0
		for epoch := range 12 {
			topology.fails.Store(int64(epoch%2) * int64(5+3*epoch))
			for batch, err := range s.EpochFrom(t.Context(), stream, epoch, 0) {
				if errors.Is(err, io.ErrUnexpectedEOF) {
					failed++
					break
				}
				b.must(err)
				b.check(s, stream, batch, epoch, toy)
			}
		}
		if failed != 6 {
			t.Errorf("%d epochs failed", failed)
		}
	}
}

// A device that has no row of a batch gets no blocks, also after batches of which it had some.
func TestABatchWithoutRowsHasNoBlocks(t *testing.T) {
	b := newBench(t, toy, true, false)
	m := b.method("neighbor", Options{Fanouts: []int{3, 3}})
	s, err := b.open(LoaderOptions{Buffers: 1}).Set([]uint32{1, 5, 3, 9, 2, 8, 4}, m,
		chunk.Plan{BatchRows: 6, Order: chunk.Shuffled, Rank: 1, World: 3})
	b.must(err)
	empty := 0
	for epoch := range 6 {
		for batch, err := range s.EpochFrom(t.Context(), b.stream(), epoch, 0) {
			if b.must(err); (batch.Rows == 0) != (batch.Blocks == nil) {
				t.Errorf("%d blocks of %d rows", len(batch.Blocks), batch.Rows)
			}
			if batch.Rows == 0 {
				empty++
			}
		}
	}
	if empty == 0 {
		t.Error("the device has rows of each batch")
	}
}
