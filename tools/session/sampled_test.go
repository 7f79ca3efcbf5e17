package session

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/hopfeed/hopfeed/chunk"
	"github.com/hopfeed/hopfeed/format"
	"github.com/hopfeed/hopfeed/gds"
	"github.com/hopfeed/hopfeed/internal/dtype"
	"github.com/hopfeed/hopfeed/internal/machine"
	"github.com/hopfeed/hopfeed/internal/offheap"
	"github.com/hopfeed/hopfeed/internal/units"
	"github.com/hopfeed/hopfeed/internal/vfs"
	"github.com/hopfeed/hopfeed/loader"
	"github.com/hopfeed/hopfeed/loader/sampling"
	"github.com/hopfeed/hopfeed/placement"
	"github.com/hopfeed/hopfeed/preprop"
	"github.com/hopfeed/hopfeed/tools/ingest"
)

func openGraph(t *testing.T, fsys vfs.FS) *format.Dir {
	t.Helper()
	graph, err := format.OpenGraph(fsys, "graph")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { graph.Close() })
	return graph
}

// sampledOptions are those of a sampler that reads the training nodes of a graph.
func sampledOptions(t *testing.T, graph *format.Dir, sampler string, budget units.Bytes) SampledOptions {
	t.Helper()
	seeds, err := NodesOf(t.Context(), graph, format.RegionTrain, 0)
	if err != nil {
		t.Fatal(err)
	}
	m := thisMachine(t, budget, "")
	device, err := m.Devices.Open(1)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := device[0].Close(); err != nil {
			t.Error(err)
		}
	})
	o := SampledOptions{
		Machine: m, Sampler: sampler, Sampling: sampling.Options{Fanouts: []int{4, 3}}, Seeds: seeds,
		Plan: chunk.Plan{BatchRows: 17, Order: chunk.Shuffled, Seed: 3}, Device: device[0], NodeIDs: true,
	}
	if sampler == locality {
		o.Cache = "degree:50rows"
	}
	return o
}

func TestEverySamplerBringsTheRowsOfItsInputs(t *testing.T) {
	files := makeFiles(t)
	graph := openGraph(t, files)
	n, columns := graph.Manifest.Nodes, graph.Manifest.Features
	matrix, err := graph.Matrix(format.Input)
	if err != nil {
		t.Fatal(err)
	}
	want := make([]byte, 4*n*int64(columns))
	at := 0
	for k := range matrix.Chunks() {
		bytes := int(matrix.Extent(k).Length)
		if err := matrix.ReadChunk(k, want[at:][:bytes]); err != nil {
			t.Fatal(err)
		}
		at += bytes
	}
	labels := make([]int32, n)
	if err := graph.ReadLabels(t.Context(), graph.Layout().Regions[0], labels); err != nil {
		t.Fatal(err)
	}
	before := offheap.InUse()
	for _, name := range sampling.Names() {
		for _, where := range []string{placement.Host, placement.Storage} {
			o := sampledOptions(t, graph, name, enough)
			o.Placement, o.Mapped = where, where == placement.Storage
			s, err := OpenSampled(t.Context(), graph, o)
			if err != nil {
				t.Fatalf("%s from %s: %v", name, where, err)
			}
			if s.Placement != where {
				t.Errorf("%s: features from %s, not %s", name, s.Placement, where)
			}
			set, err := s.Loader.Set(o.Seeds, s.Method, o.Plan)
			if err != nil {
				t.Fatal(err)
			}
			stream, err := o.Device.NewStream()
			if err != nil {
				t.Fatal(err)
			}
			var seen []uint32
			for b, err := range set.EpochFrom(t.Context(), stream, 0, 0) {
				if err == nil {
					err = stream.Record().Wait(t.Context())
				}
				if err != nil {
					t.Fatalf("%s: %v", name, err)
				}
				nodes, inputs := values[uint32](b.NodeIDs), values[uint32](b.InputIDs)
				seen = append(seen, nodes...)
				if !sampling.Apart(name) && !slices.Equal(nodes, inputs[:len(nodes)]) || len(inputs) != b.X[0].Rows ||
					len(b.Blocks) != 2 {
					t.Fatalf("%s: rows %v of inputs %v, %d rows of features", name, nodes, inputs, b.X[0].Rows)
				}
				x, label := values[float32](b.X[0]), values[int32](b.Labels)
				for i, node := range inputs {
					if !slices.Equal(x[i*columns:][:columns], dtype.Float32s(want)[int(node)*columns:][:columns]) {
						t.Fatalf("%s from %s: other features of node %d", name, where, node)
					}
				}
				for i, node := range nodes {
					if label[i] != labels[node] {
						t.Fatalf("%s: node %d has label %d, not %d", name, node, label[i], labels[node])
					}
				}
			}
			if slices.Sort(seen); !sampling.ChoosesSeeds(name) && !slices.Equal(seen, o.Seeds) {
				t.Errorf("%s: the seeds of an epoch are %v", name, seen)
			}
			if err := errors.Join(stream.Close(), s.Close()); err != nil {
				t.Error(err)
			}
		}
	}
	if left := offheap.InUse() - before; left > 0 {
		t.Errorf("%d bytes are left", left)
	}
}

// values are those of a tensor of a device whose memory is the host's.
func values[T dtype.Number](x gds.Tensor) []T {
	if x.Rows*x.Cols == 0 {
		return nil
	}
	return dtype.As[T](x.Buf.Bytes()[x.Offset:])[:x.Rows*x.Cols]
}

func TestSampledOptionsThatCannotBe(t *testing.T) {
	graph := openGraph(t, makeFiles(t))
	for _, c := range []struct {
		change func(o *SampledOptions)
		want   error
		says   string
	}{
		{func(o *SampledOptions) { o.Sampler = "walk" }, sampling.ErrOptions, `"walk"`},
		{func(o *SampledOptions) { o.Sampling.Fanouts = nil }, sampling.ErrOptions, "needs fanouts"},
		{func(o *SampledOptions) { o.Sampler = locality }, ErrOptions, "needs a cache"},
		{func(o *SampledOptions) { o.Sampler, o.Cache = locality, "lru:9rows" }, ErrOptions,
			"changes from batch to batch"},
		{func(o *SampledOptions) { o.Cache = "lru" }, ErrOptions, "no size"},
		{func(o *SampledOptions) { o.Placement = "tape" }, ErrOptions, `"tape"`},
		{func(o *SampledOptions) { o.Seeds, o.Cache = []uint32{1, 7, 1}, "presampled:9rows" }, sampling.ErrOptions,
			"node 1 is twice"},
		{func(o *SampledOptions) { o.Seeds, o.Cache = []uint32{1, 240}, "optimal:9rows" }, sampling.ErrOptions,
			"seed 1 is node 240"},
		{func(o *SampledOptions) { o.Buffers = -1 }, ErrOptions, "-1 batch buffers"},
		{func(o *SampledOptions) { o.Workers = -1 }, ErrOptions, "-1 workers"},
		{func(o *SampledOptions) { o.Plan.BatchRows = 0 }, ErrOptions, "batch"},
		{func(o *SampledOptions) { o.Sampler, o.Plan.World = "saint-rw", 2 }, ErrOptions, "2 ranks cannot share"},
		{func(o *SampledOptions) { o.Machine.Budget.Bytes = machine.ProgramBytes + 100 }, machine.ErrDoesNotFit,
			"sampling 240 nodes"},
	} {
		o := sampledOptions(t, graph, "neighbor", enough)
		c.change(&o)
		s, err := OpenSampled(t.Context(), graph, o)
		if !errors.Is(err, c.want) || !strings.Contains(err.Error(), c.says) {
			t.Errorf("%v, want %v with %q", err, c.want, c.says)
		}
		if err == nil {
			_ = s.Close()
		}
	}
	for _, part := range []struct {
		name  string
		split int
	}{{"night", 0}, {format.RegionTrain, 1}, {format.RegionTrain, -1}} {
		if _, err := NodesOf(t.Context(), graph, part.name, part.split); !errors.Is(err, ErrOptions) {
			t.Errorf("%v: %v", part, err)
		}
	}
}

func TestFeaturesThatDoNotFitStayInStorageAndBatchesThatDoNotAreRefused(t *testing.T) {
	files := vfs.NewMem() // rows so long that all of them take more than buffers to read some
	if err := makeStore(t.Context(), files, ".", ingest.GenerateOptions{Nodes: 240, Edges: 900, Features: 10000,
		Classes: 3, Labeled: 1, Seed: 3}, preprop.Options{ChunkRows: 16, Hops: 1}); err != nil {
		t.Fatal(err)
	}
	graph := openGraph(t, files)
	all := 4 * int64(graph.Manifest.Features) * graph.Manifest.Nodes
	whole, err := OpenSampled(t.Context(), graph, sampledOptions(t, graph, "neighbor", enough))
	if err != nil {
		t.Fatal(err)
	}
	need := whole.Memory.HostBytes - all
	if err := whole.Close(); err != nil {
		t.Error(err)
	}
	for _, c := range []struct {
		left int64
		want string
	}{{all, placement.Host}, {all - 1, placement.Storage}} {
		o := sampledOptions(t, graph, "neighbor", units.Bytes(need+c.left))
		s, err := OpenSampled(t.Context(), graph, o)
		if err != nil {
			t.Fatal(err)
		}
		if one := strings.Contains(s.Reason, "samples 1 batch at a time"); s.Placement != c.want ||
			one != (c.want == placement.Host) || one != (s.samples == 1) {
			t.Errorf("with %d bytes: from %s, since %s", c.left, s.Placement, s.Reason)
		}
		set, err := s.Loader.Set(o.Seeds, s.Method, o.Plan)
		if err != nil {
			t.Fatal(err)
		}
		stream, err := o.Device.NewStream()
		if err != nil {
			t.Fatal(err)
		}
		var failed error
		for _, err := range set.EpochFrom(t.Context(), stream, 0, 0) {
			failed = err
		}
		if c.want == placement.Host && !errors.Is(failed, gds.ErrOutOfMemory) {
			t.Errorf("batches for which nothing is left: %v", failed)
		}
		if err := errors.Join(stream.Close(), s.Close()); err != nil {
			t.Error(err)
		}
		o.Placement = placement.Host
		if s, err := OpenSampled(t.Context(), graph, o); (err == nil) != (c.want == placement.Host) {
			t.Errorf("host memory of %d bytes: %v", c.left, err)
		} else if err == nil {
			_ = s.Close()
		}
	}
}

func TestLinksAndTimesOfSeedsArePartOfThePlan(t *testing.T) {
	graph := openGraph(t, makeFiles(t))
	planned := func(change func(*SampledOptions)) int64 {
		o := sampledOptions(t, graph, "neighbor", enough)
		o.Workers, o.Buffers = 1, 2
		change(&o)
		var s Sampled
		shape, err := sampling.ShapeOf(graph)
		if err = errors.Join(err, s.place(shape, &o)); err != nil {
			t.Fatal(err)
		}
		return s.Memory.HostBytes
	}
	m, seeds := &graph.Manifest, 0
	none := planned(func(o *SampledOptions) { seeds = len(o.Seeds) })
	timed := planned(func(o *SampledOptions) { o.Times = "time" })
	if want := none + 8*max(m.Nodes, m.Edges) + 8*int64(seeds); timed != want {
		t.Errorf("with times: %d bytes, want %d", timed, want)
	}
	const n = 1000
	links := planned(func(o *SampledOptions) {
		o.Seeds = nil
		o.Links = &sampling.Links{Sources: make([]uint32, n), Destinations: make([]uint32, n), Times: make([]int64, n)}
	})
	if want := none - 4*int64(seeds) + 16*n; links != want {
		t.Errorf("links: %d bytes, want %d", links, want)
	}
}

func TestAGraphThatIsSampledIsNotClosedWhileBatchesAreHeld(t *testing.T) {
	graph := openGraph(t, makeFiles(t))
	o := sampledOptions(t, graph, "neighbor", enough)
	s, err := OpenSampled(t.Context(), graph, o)
	if err != nil {
		t.Fatal(err)
	}
	set, err := s.Loader.Set(o.Seeds, s.Method, o.Plan)
	if err != nil {
		t.Fatal(err)
	}
	stream, err := o.Device.NewStream()
	if err != nil {
		t.Fatal(err)
	}
	var held *loader.Batch
	for b, err := range set.EpochFrom(t.Context(), stream, 0, 0) {
		if err != nil {
			t.Fatal(err)
		}
		b.Hold()
		held = b
		break
	}
	if err := s.Close(); !errors.Is(err, loader.ErrInUse) {
		t.Errorf("closed with a batch that is held: %v", err)
	}
	held.Release(nil)
	if err := errors.Join(stream.Close(), s.Close()); err != nil {
		t.Error(err)
	}
}
