package sampling

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/hopfeed/hopfeed/chunk"
	"github.com/hopfeed/hopfeed/format"
	"github.com/hopfeed/hopfeed/gds"
	"github.com/hopfeed/hopfeed/gds/host"
	"github.com/hopfeed/hopfeed/gds/testdevice"
	"github.com/hopfeed/hopfeed/internal/pipeline"
	"github.com/hopfeed/hopfeed/internal/rng"
	"github.com/hopfeed/hopfeed/internal/vfs"
	"github.com/hopfeed/hopfeed/loader"
	"github.com/hopfeed/hopfeed/loader/cache"
	"github.com/hopfeed/hopfeed/loader/features"
	"github.com/hopfeed/hopfeed/loader/internal/graphtest"
)

// multigraph has nodes without in-neighbours, self-loops, parallel edges and a hub of 500 edges.
func multigraph(weighted bool) *format.CSC {
	const n = 400
	lists := make([][]uint32, n)
	for v := range lists {
		d := v % 9
		switch {
		case v == 4:
			d = 500
		case v%20 == 7:
			d = 60 + v%10
		}
		for i := range d {
			lists[v] = append(lists[v], uint32(rng.Hash(uint64(v), uint64(i))%n))
		}
		if v%6 == 2 && d > 0 {
			lists[v][0] = uint32(v)
		}
		slices.Sort(lists[v])
	}
	return fromLists(lists, weighted)
}

func TestTheDeviceSamplesWhatTheProcessorDoes(t *testing.T) {
	device := testdevice.Open(t, host.Options{Discrete: true, Threads: 2})
	stream, err := device.NewStream()
	if err != nil {
		t.Fatal(err)
	}
	defer stream.Close()
	b, w := &bench{t: t, device: device}, newWorker(t)
	batches := [][]uint32{{0, 4, 7, 2, 399}, {4}, {27, 47, 67, 1, 3, 5, 8, 12, 200, 201, 202, 14, 20}, {9}, {}}
	var many []uint32 // more than a chunk of the processor's
	for v := range uint32(400) {
		many = append(many, (v*7)%400)
	}
	batches = append(batches, many)
	for _, c := range []struct {
		name    string
		fanouts []int
		replace bool
	}{
		{"neighbor", []int{4, 3}, false}, {"neighbor", []int{1, 70, 2}, false}, {"neighbor", []int{5, All}, false},
		{"neighbor", []int{6, 2}, true},
		{"full", []int{1, 1}, false}, {"labor", []int{4, 3}, false}, {"labor", []int{61, 1, 2}, false},
		{"labor", []int{All, 5}, false},
	} {
		for _, a := range []Aggregation{Mean, Sym, Plain} {
			for _, weighted := range []bool{false, true} {
				o := Options{Fanouts: c.fanouts, Replace: c.replace, Aggregation: a}
				t.Run(fmt.Sprintf("%s %+v weighted %t", c.name, o, weighted), func(t *testing.T) {
					b.t = t
					b.topology, err = PinTopology(device, InMemory(multigraph(weighted)))
					b.must(err)
					defer func() { b.must(b.topology.Close()) }()
					m, err := NewMethod(t.Context(), c.name, b.topology, o)
					b.must(err)
					defer func() { b.must(m.Close()) }()
					for place, lists := range map[string]*DeviceLists{"pinned": nil, "no list": b.lists([]uint32{}),
						"some": b.lists([]uint32{399, 4, 7, 50, 200, 27}), "all": b.lists(nil), "each": b.lists(upTo(400))} {
						on := b.onDevice(m, stream, lists)
						for i, seeds := range append(batches, batches[0]) {
							b.checkSample(m, on, w, seeds, Key(3, 1, i))
						}
						all, err := on.sample(w, many, 1)
						b.must(err)
						if none := place == "all" || place == "each"; none != (all.read == 0) {
							t.Errorf("%s: %d bytes of lists are read in host memory", place, all.read)
						}
					}
				})
			}
		}
	}
}

// checkSample compares a batch that the device samples with that of the processor.
func (b *bench) checkSample(m *Method, on *deviceSampler, w *pipeline.Worker, seeds []uint32, key uint64) {
	b.t.Helper()
	var want MiniBatch
	b.must(m.Sample(b.t.Context(), &want, seeds, key))
	got, err := on.sample(w, seeds, key)
	b.must(err)
	if inputs := read[uint32](b, on.stream, got.inputs); !slices.Equal(inputs, want.Inputs) {
		b.t.Fatalf("batch of %d seeds: inputs are %v, want %v", len(seeds), inputs, want.Inputs)
	}
	for k, w := range want.Blocks {
		g := got.blocks[k]
		if g.Destinations != w.Destinations || g.Sources != w.Sources ||
			!slices.Equal(read[uint32](b, on.stream, g.Offsets), w.Offsets) ||
			!slices.Equal(read[uint32](b, on.stream, g.Indices), w.Indices) {
			b.t.Fatalf("batch of %d seeds: block %d has other edges", len(seeds), k)
		}
		if weights := read[float32](b, on.stream, g.Weights); !slices.Equal(weights, w.Weights) {
			b.t.Fatalf("batch of %d seeds: block %d has weights %v, want %v", len(seeds), k, weights, w.Weights)
		}
	}
}

func TestWhatOnlyTheProcessorSamplesIsRefusedWithTheReason(t *testing.T) {
	b := newUnifiedBench(t, toy)
	unmapped := testdevice.Host(t, host.Options{Discrete: true, Unmapped: true})
	unified := testdevice.Host(t, host.Options{})
	loaded, err := LoadTopology(t.Context(), b.graph, 1)
	b.must(err)
	defer func() { b.must(loaded.Close()) }()
	for _, c := range []struct {
		name, want string
		device     gds.Device
		topology   Topology
	}{
		{"ladies", "sampler ladies runs on the processor alone", b.device, b.topology},
		{"neighbor", "cannot read host memory", unmapped, b.topology},
		{"neighbor", "is the host's", unified, b.topology},
		{"labor", "not in pinned memory", b.device, loaded},
	} {
		m, err := NewMethod(t.Context(), c.name, c.topology, Options{Fanouts: []int{2}})
		b.must(err)
		if err := m.CheckOnDevice(c.device, nil); !errors.Is(err, ErrOptions) || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %q", c.name, err, c.want)
		}
		b.must(m.Close())
	}
	if _, err := PinTopology(b.device, b.topology); err == nil {
		t.Error("pinned topology twice")
	}
}

// newUnifiedBench opens a graph in memory that the device reads by itself.
func newUnifiedBench(t testing.TB, g graphtest.Graph) *bench {
	t.Helper()
	b := &bench{t: t, graph: graphtest.New(t, vfs.OS(), filepath.Join(t.TempDir(), "graph"), g)}
	b.device = testdevice.Open(t, host.Options{Threads: 2, Discrete: true})
	topology, err := LoadTopology(t.Context(), b.graph, 2)
	b.must(err)
	b.topology, err = PinTopology(b.device, topology)
	b.must(err)
	t.Cleanup(func() { b.must(b.topology.Close()) })
	b.features, err = features.LoadHost(t.Context(), b.graph, b.device, 2)
	b.must(err)
	t.Cleanup(func() { b.must(b.features.Close()) })
	b.labels, err = loader.ReadLabels(t.Context(), b.graph)
	b.must(err)
	return b
}

// onDevice makes a sampler that works on a stream of the bench's device.
func (b *bench) onDevice(m *Method, stream gds.Stream, lists *DeviceLists) *deviceSampler {
	b.t.Helper()
	s, err := newDeviceSampler(b.device, m, lists)
	b.must(err)
	s.stream = stream
	b.t.Cleanup(func() { b.must(s.close()) })
	return s
}

// lists copies lists to the bench's device.
func (b *bench) lists(nodes []uint32) *DeviceLists {
	b.t.Helper()
	lists, err := CopyLists(b.t.Context(), b.device, b.topology, nodes)
	b.must(err)
	b.t.Cleanup(func() { b.must(lists.Close()) })
	return lists
}

func newWorker(t *testing.T) *pipeline.Worker {
	p := pipeline.New(t.Context())
	t.Cleanup(p.Close)
	return p.Worker("test")
}

// allByDevice is a schedule by which the device prepares all batches of a set.
func allByDevice(s *Set) *Schedule { return &Schedule{Rules: byChance(s.Batches(), 1, 0)} }

func TestBatchesThatTheDevicePreparesAreThoseOfTheHost(t *testing.T) {
	for _, g := range []graphtest.Graph{
		{Nodes: 211, Columns: 5, ChunkRows: 50, DType: format.Float32, Labels: 1},
		{Nodes: 211, Columns: 7, ChunkRows: 50, DType: format.Float16, Labels: 3},
		{Nodes: 97, Columns: 6, ChunkRows: 10, DType: format.BFloat16, Labels: -2},
	} {
		b := newUnifiedBench(t, g)
		for _, sampler := range []string{"neighbor", "labor"} {
			for _, policy := range []string{"", "degree", "presampled", "gns", "ducati", "preload"} {
				t.Run(fmt.Sprintf("%v, %s, cache %q", g.DType, sampler, policy), func(t *testing.T) {
					outer := b.t
					b.t = t
					defer func() { b.t = outer }()
					m := b.method(sampler, Options{Fanouts: []int{3, 2}, Aggregation: Sym})
					nodes := everyThird(g.Nodes)
					plan := chunk.Plan{BatchRows: 16, Order: chunk.Shuffled, Seed: 4}
					o := LoaderOptions{Labels: b.labels, NodeIDs: true, Buffers: Buffers(5, 3)}
					var lists *DeviceLists
					preloaded := policy == "preload"
					switch pinned := b.features; policy {
					case "preload":
						lists, b.features = b.lists(nil), features.OnDevice(b.resident(g), 1)
						defer func() { b.features = pinned }()
					case "ducati":
						lists = b.lists(nodes)
						fallthrough
					default:
						o.Types = []TypeRows{{Cache: b.cache(policy, g, m, nodes, plan)}}
					}
					l := b.open(o)
					b.must(l.PrepareOnDevice(m, lists))
					train, err := l.Set(nodes, m, plan)
					b.must(err)
					train.SetSchedule(allByDevice(train))
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
						valid.SetSchedule(allByDevice(valid)) // after an epoch of the other route
					}
					stats := l.Stats()
					traffic := stats.Traffic
					want := loader.Traffic{Rows: traffic.Rows, Edges: traffic.Edges, TopologyBytes: traffic.TopologyBytes}
					if preloaded != (traffic.TopologyBytes == 0) {
						t.Errorf("%d bytes of lists are read in host memory", traffic.TopologyBytes)
					}
					if policy != "" && !preloaded {
						want.Rows, want.CachedRows, want.LoadedRows = stats.Cache.Lookups, stats.Cache.Hits,
							stats.Cache.Loaded
						want.CacheBytes = want.CachedRows * l.types[0].rowBytes()
					}
					if preloaded {
						want.AddBytes(loader.Device, want.Rows*4*int64(g.Columns))
					} else {
						want.AddBytes(loader.Host, (want.Rows-want.CachedRows+want.LoadedRows)*l.types[0].rowBytes())
					}
					if traffic != want || policy != "" && !preloaded && traffic.HitRate() == 0 && stats.Cache.Slots > 0 ||
						stats.Rows != 3*(train.Rows()+4) {
						t.Errorf("%+v, want %+v", stats, want)
					}
				})
			}
		}
	}
}

// resident are the features of a graph in memory of the bench's device.
func (b *bench) resident(g graphtest.Graph) gds.Tensor {
	b.t.Helper()
	memory := gds.Memory{Device: b.device}
	rows := memory.Matrix("features", g.Nodes, g.Columns, gds.Float32)
	b.must(memory.Err)
	b.t.Cleanup(func() { b.must(memory.Free()) })
	values := make([]float32, 0, g.Nodes*g.Columns)
	for v := range uint32(g.Nodes) {
		for c := range g.Columns {
			values = append(values, g.Value(v, c))
		}
	}
	b.must(gds.Upload(b.device, b.stream(), rows, values))
	return rows
}

// DUCATI: the larger the cache, the fewer bytes of lists and of rows come over the link. Batches stay the same.
func TestADeviceReadsLessOfTheTopologyTheLargerItsCache(t *testing.T) {
	b := newUnifiedBench(t, toy)
	m := b.method("neighbor", Options{Fanouts: []int{3, 2}, Aggregation: Sym})
	nodes, plan := everyThird(toy.Nodes), chunk.Plan{BatchRows: 16, Order: chunk.Shuffled, Seed: 4}
	var first, before loader.Traffic
	var want []string
	for i, size := range []string{"30", "400", "1500", "4000", "1MiB"} {
		spec, err := cache.Parse("ducati:" + size)
		b.must(err)
		caches, err := OpenCaches(t.Context(), spec, CacheOptions{Lists: true, Topology: b.topology,
			RowBytes: []int64{int64(toy.Columns * toy.DType.Size())}, Method: m, Nodes: nodes, Plan: plan})
		b.must(err)
		l := b.open(LoaderOptions{Types: []TypeRows{{Cache: caches[0].Cache}}, NodeIDs: true, Buffers: Buffers(5, 3)})
		b.must(l.PrepareOnDevice(m, b.lists(caches[0].Lists)))
		s, err := l.Set(nodes, m, plan)
		b.must(err)
		s.SetSchedule(allByDevice(s))
		got := b.batchesOf(s, 1, 0)
		traffic := l.Stats().Traffic
		if i == 0 {
			want, first = got, traffic
		} else if !slices.Equal(got, want) {
			t.Errorf("ducati:%s: other batches", size)
		} else if traffic.TopologyBytes >= before.TopologyBytes || traffic.HostBytes > before.HostBytes {
			t.Errorf("ducati:%s: %+v after %+v", size, traffic, before)
		}
		before = traffic
	}
	if before.TopologyBytes*10 > first.TopologyBytes { // of what the counted epoch did not visit
		t.Errorf("with a cache for all: %+v after %+v", before, first)
	}
}

func TestRoutesHitTheCacheAlike(t *testing.T) {
	b := newUnifiedBench(t, toy)
	m := b.method("neighbor", Options{Fanouts: []int{3, 2}})
	var hits [2]int64
	for route := range hits {
		spec, err := cache.Parse("degree:800")
		b.must(err)
		caches, err := OpenCaches(t.Context(), spec,
			CacheOptions{Topology: b.topology, RowBytes: []int64{20}, Plan: chunk.Plan{BatchRows: 1}})
		b.must(err)
		l := b.open(LoaderOptions{Types: []TypeRows{{Cache: caches[0].Cache}}, Buffers: Buffers(5, 3)})
		s, err := l.Set(everyThird(toy.Nodes), m, chunk.Plan{BatchRows: 16, Order: chunk.Shuffled})
		b.must(err)
		if route == 1 {
			b.must(l.PrepareOnDevice(m, nil))
			s.SetSchedule(allByDevice(s))
		}
		for _, err := range s.EpochFrom(t.Context(), b.stream(), 0, 0) {
			b.must(err)
		}
		hits[route] = l.Stats().Cache.Hits
	}
	if hits[0] != hits[1] || hits[0] == 0 {
		t.Errorf("routes hit the cache %d times", hits)
	}
}

func TestTheDevicePreparesOnlyWhatItReaches(t *testing.T) {
	b := newUnifiedBench(t, toy)
	m := b.method("neighbor", Options{Fanouts: []int{2}})
	loaded, err := features.LoadHost(t.Context(), b.graph, nil, 1)
	b.must(err)
	t.Cleanup(func() { b.must(loaded.Close()) })
	pinned := b.features
	b.features = loaded
	err = b.open(LoaderOptions{}).PrepareOnDevice(m, nil)
	if !errors.Is(err, ErrOptions) || !strings.Contains(err.Error(), "not in pinned host memory") {
		t.Errorf("features that are not pinned: %v", err)
	}
	b.features = pinned
	l := b.open(LoaderOptions{Buffers: Buffers(5, 3)})
	b.must(l.PrepareOnDevice(m, nil))
	s, err := l.Set([]uint32{1, 2}, b.method("labor", Options{Fanouts: []int{2}}), chunk.Plan{BatchRows: 2})
	b.must(err)
	s.SetSchedule(allByDevice(s))
	for _, err := range s.EpochFrom(t.Context(), b.stream(), 0, 0) {
		if !errors.Is(err, ErrOptions) {
			t.Errorf("a device prepares batches by another method than the host: %v", err)
		}
	}
}

func TestAnEpochThatTheDevicePreparesCanBeLeftAndGoesOn(t *testing.T) {
	b := newUnifiedBench(t, toy)
	m := b.method("labor", Options{Fanouts: []int{3, 2}})
	plan := chunk.Plan{BatchRows: 8, Order: chunk.Shuffled, Seed: 9}
	l := b.open(LoaderOptions{NodeIDs: true, Buffers: Buffers(5, 3)})
	s, err := l.Set(everyThird(toy.Nodes), m, plan)
	b.must(err)
	want := b.batchesOf(s, 1, 0)
	b.must(l.PrepareOnDevice(m, nil))
	s.SetSchedule(allByDevice(s))
	for leave := range 3 {
		ctx, cancel := context.WithCancelCause(t.Context())
		stop := errors.New("stopped")
		seen := 0
		for _, err := range s.EpochFrom(ctx, b.stream(), 1, 0) {
			if err != nil {
				if !errors.Is(err, stop) {
					t.Error(err)
				}
				break
			}
			if seen++; seen == leave+1 {
				if leave == 2 {
					cancel(stop)
					continue
				}
				break
			}
		}
		cancel(nil)
	}
	if got := b.batchesOf(s, 1, 0); !slices.Equal(got, want) {
		t.Error("the device prepares other batches")
	}
	if got := b.batchesOf(s, 1, 5); !slices.Equal(got, want[5:]) {
		t.Error("from batch 5 on there are others")
	}
}

func TestRanksSampleOnTheirDevices(t *testing.T) {
	b := newUnifiedBench(t, toy)
	m := b.method("neighbor", Options{Fanouts: []int{2}})
	nodes := everyThird(toy.Nodes)[:34]
	seen := 0
	for rank := range 4 {
		l := b.open(LoaderOptions{Labels: b.labels, NodeIDs: true, Buffers: Buffers(5, 3)})
		b.must(l.PrepareOnDevice(m, nil))
		s, err := l.Set(nodes, m, chunk.Plan{BatchRows: 16, Order: chunk.Shuffled, Rank: rank, World: 4})
		b.must(err)
		s.SetSchedule(allByDevice(s))
		stream := b.stream()
		for batch, err := range s.EpochFrom(t.Context(), stream, 0, 0) {
			b.must(err)
			seen += len(b.check(s, stream, batch, 0, toy)) // two ranks have no row of the last
		}
	}
	if seen != 34 {
		t.Errorf("ranks have %d rows", seen)
	}
}

func TestABatchThatDoesNotFitTheDeviceIsAnErrorThatSaysSo(t *testing.T) {
	b := newUnifiedBench(t, toy)
	m := b.method("full", Options{Fanouts: []int{1, 1, 1}})
	l := b.open(LoaderOptions{MaxBatchBytes: 3000, Buffers: Buffers(5, 3)})
	b.must(l.PrepareOnDevice(m, nil))
	s, err := l.Set(everyThird(toy.Nodes), m, chunk.Plan{BatchRows: 60})
	b.must(err)
	s.SetSchedule(allByDevice(s))
	batches := 0
	for _, err = range s.EpochFrom(t.Context(), b.stream(), 0, 0) {
		batches++
	}
	if batches != 1 || !errors.Is(err, gds.ErrOutOfMemory) ||
		!strings.Contains(err.Error(), "more than the 2.93 KiB that a batch may take") {
		t.Errorf("%d batches, %v", batches, err)
	}
}

// changing does something whenever it is asked for memory.
type changing struct {
	gds.Device
	change func()
}

func (d changing) Alloc(bytes int64) (gds.Buffer, error) {
	d.change()
	return d.Device.Alloc(bytes)
}

func TestListsThatGrowWhileTheyAreCopiedAreCorrupt(t *testing.T) {
	for _, weighted := range []bool{false, true} {
		c := fromLists([][]uint32{{1, 2}, {0, 2, 3}, {3}, {0, 1}}, weighted)
		mapped := &mappedTopology{loadedTopology{c}, c.Nodes(), "topology"}
		device := changing{testdevice.Host(t, host.Options{Discrete: true}), func() { c.Offsets[1] = 7 }}
		if lists, err := CopyLists(t.Context(), device, mapped, []uint32{0}); !errors.Is(err, format.ErrCorrupt) {
			t.Errorf("weighted %t: %+v, %v", weighted, lists, err)
		}
	}
}
