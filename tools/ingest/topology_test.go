package ingest

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"maps"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/hopfeed/hopfeed/format"
	"github.com/hopfeed/hopfeed/internal/folder"
	"github.com/hopfeed/hopfeed/internal/machine"
	"github.com/hopfeed/hopfeed/internal/parallel"
	"github.com/hopfeed/hopfeed/internal/vfs"
)

// listSource is a source whose edges are a list.
type listSource struct {
	info     Info
	src, dst []uint32
	weights  []float32
	features []float32
	rows     format.RowTable
	block    int64
	change   func(*listSource) // called before edges are streamed
}

func (s *listSource) Info() Info {
	info := s.info
	info.Edges = int64(len(s.src))
	return info
}

func (s *listSource) Close() error { return nil }

func (s *listSource) Edges(ctx context.Context, threads int, emit func(Edges) error) error {
	if s.change != nil {
		s.change(s)
	}
	return parallel.For(ctx, threads, int64(len(s.src)), max(1, s.block), func(first, end int64) error {
		e := Edges{Src: s.src[first:end], Dst: s.dst[first:end]}
		if s.weights != nil {
			e.Weights = s.weights[first:end]
		}
		return emit(e)
	})
}

func (s *listSource) Features(threads int) (FeatureReader, error) { return &listReader{s, 0}, nil }

func (s *listSource) Rows(context.Context) (*format.RowTable, error) {
	t := s.rows
	t.Rows = s.info.Nodes
	return &t, nil
}

type listReader struct {
	*listSource
	at int
}

func (r *listReader) Read(_ context.Context, dst []float32) error {
	r.at += copy(dst, r.features[r.at:])
	return nil
}

func (r *listReader) Place(row int64) string { return "list: row " + string(rune('0'+row)) }

// entry is an edge in a list of the reference.
type entry struct {
	source uint32
	weight float32
}

// referenceTopology builds the lists with maps, edge by edge.
func referenceTopology(s *listSource, reverses bool, o Options) [][]entry {
	lists := make([][]entry, s.info.Nodes)
	add := func(u, v uint32, w float32) {
		if o.Duplicates != KeepDuplicates {
			for _, e := range lists[v] {
				if e.source == u {
					return
				}
			}
		}
		lists[v] = append(lists[v], entry{u, w})
	}
	sums := map[[2]uint32]float64{}
	for i, u := range s.src {
		v, w := s.dst[i], float32(1)
		if s.weights != nil {
			w = s.weights[i]
		}
		if u == v && o.SelfLoops == DropLoops {
			continue
		}
		add(u, v, w)
		sums[[2]uint32{u, v}] += float64(w)
		if reverses && u != v {
			add(v, u, w)
			sums[[2]uint32{v, u}] += float64(w)
		}
	}
	for v, list := range lists {
		slices.SortStableFunc(list, func(a, b entry) int { return int(a.source) - int(b.source) })
		if o.Duplicates == SumDuplicates {
			for i, e := range list {
				list[i].weight = float32(sums[[2]uint32{e.source, uint32(v)}])
			}
		}
	}
	return lists
}

// plans are ways to sort edges; with some, buckets are split until all keys of each are the same.
func plans(t *topology) map[string]sortPlan {
	own, _ := t.planSort()
	return map[string]sortPlan{
		"by the planner": own,
		"in memory": {threads: 2, bucketBits: min(3, t.nodeBits()), bufferRecords: 5,
			sortRecords: math.MaxInt64},
		"on disk": {onDisk: true, threads: 3, bucketBits: min(2, t.nodeBits()), bufferRecords: 1,
			sortRecords: 1000},
		"split buckets": {threads: 3, bucketBits: 1, bufferRecords: 3, sortRecords: 3},
		"all split on disk": {onDisk: true, threads: 1, bucketBits: min(4, t.nodeBits()), bufferRecords: 1,
			sortRecords: 1},
	}
}

// writeSorted writes a graph of edges alone, by a plan or, with none, that of the planner.
func writeSorted(ctx context.Context, fsys vfs.FS, s *listSource, reverses bool, o Options, name string) (_ *topology,
	err error) {
	w, err := format.Create(fsys, "graph", format.Layout{
		Regions:   format.Regions([]format.RegionSize{{Name: format.RegionAll, Rows: s.info.Nodes}}, 1000),
		ChunkRows: 1000,
		DType:     format.Float32,
	}, format.CreateOptions{})
	if err != nil {
		return nil, err
	}
	defer w.Abort()
	topology := newTopology(s, s.Info(), reverses, o)
	scratch, err := topology.openScratch(fsys, "graph", w)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, scratch.Close()) }()
	sorted, err := topology.sort(ctx, fsys, scratch, plans(topology)[name])
	if err != nil {
		return nil, err
	}
	defer sorted.free()
	if err := sorted.write(ctx, w); err != nil {
		return nil, err
	}
	if err := w.Rows(&format.RowTable{Rows: s.info.Nodes}); err != nil {
		return nil, err
	}
	return topology, w.Publish(&format.Manifest{Name: "sorted"})
}

func readTopology(t *testing.T, disk vfs.FS) *format.CSC {
	t.Helper()
	csc, err := openGraph(t, disk, "graph").Topology(context.Background(), 1)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { csc.Close() })
	return csc
}

// randomSource has edges, many of them the same or self-loops.
func randomSource(r *rand.Rand, nodes int64, edges int, weighted bool) *listSource {
	s := &listSource{info: Info{Nodes: nodes, Weighted: weighted}, block: 16}
	if weighted {
		s.weights = []float32{}
	}
	for range edges {
		s.src = append(s.src, uint32(r.Int64N(nodes)))
		s.dst = append(s.dst, uint32(r.Int64N(nodes)))
		if weighted {
			s.weights = append(s.weights, r.Float32())
		}
	}
	return s
}

func TestTopologyIsThatOfTheReferenceAndHasTheSameBytesForAnyPlan(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	r := rand.New(rand.NewPCG(seed, 1))
	for _, nodes := range []int64{1, 7, 3000} {
		for _, edges := range []int{0, 200} {
			for _, weighted := range []bool{false, true} {
				s := randomSource(r, nodes, edges, weighted)
				s.info.Edges = int64(edges) * int64(r.IntN(2)) // or to be counted
				for _, loops := range []Loops{KeepLoops, DropLoops} {
					for _, duplicates := range []Duplicates{MergeDuplicates, SumDuplicates, KeepDuplicates} {
						for _, reverses := range []bool{false, true} {
							if edges == 0 && (loops == DropLoops || duplicates != SumDuplicates) {
								continue // without edges these change nothing
							}
							comparePlans(t, s, reverses, Options{SelfLoops: loops, Duplicates: duplicates,
								Threads: 1 + r.IntN(4)})
						}
					}
				}
			}
		}
	}
}

func TestAListMayBeLongerThanAnyPiece(t *testing.T) {
	r := rand.New(rand.NewPCG(3, 3))
	for _, weighted := range []bool{false, true} {
		s := randomSource(r, 700, 3000, weighted)
		for i := range s.dst {
			if i%10 > 0 {
				s.dst[i] = 699
			}
			if i%3 == 0 {
				s.src[i], s.dst[i] = 5, 699 // one edge, a thousand times
			}
		}
		for _, duplicates := range []Duplicates{MergeDuplicates, SumDuplicates, KeepDuplicates} {
			comparePlans(t, s, false, Options{Duplicates: duplicates, Threads: 2})
		}
	}
}

// comparePlans compares the topology with the reference, and the files of all plans.
func comparePlans(t *testing.T, s *listSource, reverses bool, o Options) {
	t.Helper()
	o, err := o.withDefaults()
	if err != nil {
		t.Fatal(err)
	}
	weighted := s.info.Weighted || o.Duplicates == SumDuplicates
	var want map[string]string
	for name := range plans(newTopology(s, s.Info(), reverses, o)) {
		disk := vfs.NewMem()
		topology, err := writeSorted(context.Background(), disk, s, reverses, o, name)
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		if got := files(t, disk, "graph"); want == nil {
			want = got
			csc := readTopology(t, disk)
			compareTopology(t, csc, referenceTopology(s, reverses, o), weighted)
			if merged := len(topology.notes(csc.Edges())) > 0; merged != (csc.Edges() < topology.recordCount ||
				topology.loops > 0 && o.SelfLoops == DropLoops) {
				t.Errorf("%s: %q", name, topology.notes(csc.Edges()))
			}
		} else {
			sameFiles(t, name, got, want)
		}
		if t.Failed() {
			t.Fatalf("%s: %d nodes, %d edges, weighted %v, %+v, reverses %v", name, s.info.Nodes, len(s.src),
				s.info.Weighted, o, reverses)
		}
	}
}

func compareTopology(t *testing.T, got *format.CSC, want [][]entry, weighted bool) {
	t.Helper()
	if got.Nodes() != int64(len(want)) || (got.Weights != nil) != weighted {
		t.Fatalf("%d nodes, weights %v; want %d, %v", got.Nodes(), got.Weights != nil, len(want), weighted)
	}
	edges := int64(0)
	for v, list := range want {
		edges += int64(len(list))
		in := got.In(int64(v))
		if len(in) != len(list) {
			t.Fatalf("node %d has %d in-neighbours, want %d", v, len(in), len(list))
		}
		for i, e := range list {
			if in[i] != e.source {
				t.Fatalf("in-neighbour %d of node %d is %d, want %d", i, v, in[i], e.source)
			}
			if weighted && got.Weights[got.Offsets[v]+int64(i)] != e.weight {
				t.Fatalf("weight %d of node %d is %v, want %v", i, v, got.Weights[got.Offsets[v]+int64(i)], e.weight)
			}
		}
	}
	if got.Edges() != edges || weighted && int64(len(got.Weights)) != edges {
		t.Fatalf("%d edges, want %d", got.Edges(), edges)
	}
}

func TestWeightsAreSummedInFloat64AndRoundedOnce(t *testing.T) {
	// In float32, 2^24 + 1 + 1 + ... stays where it is.
	s := &listSource{info: Info{Nodes: 2, Weighted: true}, weights: []float32{1 << 24, 1, 1, 1, 1},
		src: []uint32{0, 0, 0, 0, 0}, dst: []uint32{1, 1, 1, 1, 1}}
	o, _ := Options{Duplicates: SumDuplicates}.withDefaults()
	disk := vfs.NewMem()
	topology, err := writeSorted(context.Background(), disk, s, false, o, "on disk")
	if err != nil {
		t.Fatal(err)
	}
	csc := readTopology(t, disk)
	if !slices.Equal(csc.Weights, []float32{1<<24 + 4}) {
		t.Error(csc.Weights)
	}
	if notes := topology.notes(csc.Edges()); !slices.Equal(notes, []string{"4 duplicate edges were added up"}) {
		t.Error(notes)
	}

	s.weights[0], s.weights[1] = math.MaxFloat32, math.MaxFloat32
	for name := range plans(newTopology(s, s.Info(), false, o)) {
		if _, err := writeSorted(context.Background(), vfs.NewMem(), s, false, o, name); !errors.Is(err, ErrInvalid) ||
			!strings.Contains(err.Error(), "node 1") {
			t.Errorf("a sum beyond float32, %s: %v", name, err)
		}
	}
}

func TestMoreOrFewerEdgesThanTheSourceSaidAreRefused(t *testing.T) {
	for name, change := range map[string]func(*listSource){
		"one more":  func(s *listSource) { s.src, s.dst = append(s.src, 0), append(s.dst, 1) },
		"one less":  func(s *listSource) { s.src, s.dst = s.src[1:], s.dst[1:] },
		"none left": func(s *listSource) { s.src, s.dst = nil, nil },
	} {
		s := &listSource{info: Info{Nodes: 3}, src: []uint32{0, 1, 2}, dst: []uint32{1, 1, 2}, change: change}
		o, _ := Options{SelfLoops: DropLoops}.withDefaults()
		if _, err := writeSorted(context.Background(), vfs.NewMem(), s, true, o, "by the planner"); !errors.Is(err,
			ErrInvalid) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestAPlanKeepsToTheMemoryAndTheLeastSuffices(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	r := rand.New(rand.NewPCG(seed, 2))
	kinds := map[bool]int{}
	for range 5000 {
		o, _ := Options{Threads: 1 + r.IntN(64), Duplicates: []Duplicates{MergeDuplicates,
			SumDuplicates}[r.IntN(2)]}.withDefaults()
		s := &listSource{info: Info{Nodes: r.Int64N(1 << r.IntN(33)), Weighted: r.IntN(2) == 0}}
		x := newTopology(s, s.Info(), false, o)
		x.recordCount = r.Int64N(1 << r.IntN(40))
		fixed, least := 4*s.info.Nodes+o.workingBytes(), x.leastMemory()+o.workingBytes()
		for _, x.o.MemoryBytes = range []int64{least, fixed + r.Int64N(1<<r.IntN(42)), fixed - 1} {
			p, err := x.planSort()
			if err != nil {
				if !errors.Is(err, machine.ErrDoesNotFit) || x.o.MemoryBytes >= least {
					t.Fatalf("%d edges: %v", x.recordCount, err)
				}
				continue
			}
			kinds[p.onDisk]++
			needed := x.sortMemory(p) + o.workingBytes()
			if needed > x.o.MemoryBytes || p.sortRecords < 1 || p.bufferRecords < 1 || p.threads < 1 ||
				p.bucketBits < 1 || p.bucketBits > x.nodeBits() || x.recordCount/p.bufferRecords > maxBlocks {
				t.Fatalf("%d edges, %d bytes, %+v: %d", x.recordCount, x.o.MemoryBytes, p, needed)
			}
		}
	}
	if len(kinds) != 2 {
		t.Errorf("plans of %v", kinds)
	}
}

func TestSortingEdgesEndsWithItsContextAndLeavesNothing(t *testing.T) {
	for name := range plans(newTopology(&listSource{}, Info{}, false, Options{Threads: 2})) {
		for _, stage := range []string{"distribute edges", "sort edges", "write edges"} {
			ctx, cancel := context.WithCancel(context.Background())
			o, _ := Options{Threads: 2, Progress: cancelAt{stage, cancel}}.withDefaults()
			disk := vfs.NewMem()
			s := randomSource(rand.New(rand.NewPCG(1, 1)), 40, 300, false)
			if _, err := writeSorted(ctx, disk, s, true, o, name); !errors.Is(err, context.Canceled) {
				t.Errorf("%s, %s: %v", name, stage, err)
			}
			if left, err := disk.ReadDir("."); err != nil || len(left) > 0 {
				t.Errorf("%s, %s: %v is left, %v", name, stage, left, err)
			}
		}
	}
}

func TestNoFaultWhileEdgesAreSortedOnDiskLeavesAnything(t *testing.T) {
	s := randomSource(rand.New(rand.NewPCG(1, 2)), 40, 8, true)
	o, _ := Options{Threads: 1}.withDefaults()
	const plan = "all split on disk"
	whole := vfs.NewMem()
	if _, err := writeSorted(context.Background(), whole, s, true, o, plan); err != nil {
		t.Fatal(err)
	}
	want := files(t, whole, "graph")
	for n := int64(1); ; n++ {
		fault := []syscall.Errno{syscall.EIO, syscall.ENOSPC}[n%2]
		disk := vfs.NewMem()
		faulty := vfs.NewFault(disk)
		faulty.FailAt(n, fault)
		_, err := writeSorted(context.Background(), faulty, s, true, o, plan)
		if err == nil && faulty.Operations() < n {
			if n < 100 {
				t.Errorf("only %d operations", n-1)
			}
			return
		}
		if !errors.Is(err, fault) {
			t.Fatalf("operation %d failed with %v, sorting with %v", n, fault, err)
		}
		left := files(t, disk, "graph")
		if _, published := left["graph/manifest.json"]; published {
			openGraph(t, disk, "graph")
			continue
		}
		if len(left) > 1 { // the lock, where removing it was what failed
			t.Fatalf("operation %d failed, and left %d files", n, len(left))
		}
		if _, err := writeSorted(context.Background(), disk, s, true, o, plan); err != nil {
			t.Fatalf("after a fault at operation %d: %v", n, err)
		}
		sameFiles(t, "after a fault", files(t, disk, "graph"), want)
	}
}

// flipped is a disk that returns one bit wrong in the n-th read of scratch files.
type flipped struct {
	vfs.FS
	n, bit, reads *int64
}

func (f flipped) Open(path string) (vfs.File, error) {
	file, err := f.FS.Open(path)
	if err != nil || !strings.Contains(path, folder.Suffix) || strings.HasSuffix(path, folder.LockName) {
		return file, err
	}
	return flippedFile{file, f}, nil
}

type flippedFile struct {
	vfs.File
	disk flipped
}

func (f flippedFile) ReadAt(p []byte, off int64) (int, error) {
	n, err := f.File.ReadAt(p, off)
	if *f.disk.reads++; *f.disk.reads == *f.disk.n && n > 0 {
		bit := *f.disk.bit % int64(8*n)
		p[bit/8] ^= 1 << (bit % 8)
	}
	return n, err
}

// everyFlip runs work with a bit flipped in each of its reads of scratch files, and
// fails unless that is an error which names the file and leaves nothing.
func everyFlip(t *testing.T, least int64, work func(fsys vfs.FS) error, disk func() vfs.FS) {
	t.Helper()
	for n := int64(1); ; n++ {
		bit, reads := []int64{0, 20, 63, 1<<40 - 1, 12345}[n%5], int64(0)
		err := work(flipped{disk(), &n, &bit, &reads})
		if reads < n {
			if err != nil || n <= least {
				t.Fatalf("%d reads: %v", n-1, err)
			}
			return
		}
		if !errors.Is(err, folder.ErrDamaged) || !strings.Contains(err.Error(), folder.Suffix) {
			t.Fatalf("bit %d flipped in read %d: %v", bit, n, err)
		}
	}
}

func TestABitThatFlipsWhileEdgesAreSortedOnDiskIsAnError(t *testing.T) {
	for _, weighted := range []bool{true, false} {
		s := randomSource(rand.New(rand.NewPCG(1, 3)), 40, 30, weighted)
		o, _ := Options{Threads: 1}.withDefaults()
		for name := range plans(newTopology(s, s.Info(), false, o)) {
			if !strings.Contains(name, "disk") {
				continue
			}
			everyFlip(t, 4, func(fsys vfs.FS) error {
				_, err := writeSorted(context.Background(), fsys, s, true, o, name)
				return err
			}, func() vfs.FS { return vfs.NewMem() })
		}
	}
}

func TestShortenedScratchIsAnError(t *testing.T) {
	s := randomSource(rand.New(rand.NewPCG(1, 3)), 40, 12, true)
	o, _ := Options{Threads: 1}.withDefaults()
	for n := int64(1); ; n++ {
		disk := vfs.NewMem()
		faulty := vfs.NewFault(disk)
		faulty.ShortenRead(n)
		_, err := writeSorted(context.Background(), faulty, s, false, o, "all split on disk")
		if faulty.Reads() < n {
			if err != nil || n < 20 {
				t.Fatalf("%d reads, %v", n-1, err)
			}
			return
		}
		if err == nil {
			openGraph(t, disk, "graph")
		} else if left := files(t, disk, "graph"); len(left) > 0 && !errors.Is(err, folder.ErrForeign) &&
			!errors.Is(err, vfs.ErrNotLock) {
			t.Fatalf("read %d: %d files are left after %v", n, len(left), err)
		}
	}
}

func TestScratchFilesAreInTheFolderGivenAndGoneAtTheEnd(t *testing.T) {
	want := csvDisk(t)
	if err := importCSV(want, false); err != nil {
		t.Fatal(err)
	}
	disk := csvDisk(t)
	s, err := OpenCSV(context.Background(), disk, "in/edges", ScratchOptions{Output: "out/graph", Scratch: "elsewhere"},
		TableOptions{MapIDs: true, NodeFiles: NodeFiles{Features: "in/features", Labels: "in/labels",
			Splits: "in/splits"}})
	if err != nil {
		t.Fatal(err)
	}
	o, _ := Options{Threads: 1, Scratch: "elsewhere"}.withDefaults()
	x := newTopology(s, s.Info(), false, o)
	o.MemoryBytes = x.info.HeldBytes + x.leastMemory() + o.workingBytes() // so edges are sorted on disk
	var there, beside map[string]string
	o.Progress = cancelAt{"sort edges", func() { there, beside = files(t, disk, "elsewhere"), files(t, disk, "out") }}
	if _, err := Run(context.Background(), disk, s, "out/graph", o); err != nil {
		t.Fatal(err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	if len(there) != 7 { // a lock, edges in three files, and features as they were read; a lock and records
		t.Errorf("scratch files: %q", slices.Sorted(maps.Keys(there)))
	}
	for name := range beside {
		if strings.Contains(name, "edges") {
			t.Errorf("%s is not in the folder for scratch files", name)
		}
	}
	if left := files(t, disk, "elsewhere"); len(left) > 0 {
		t.Errorf("%d scratch files are left", len(left))
	}
	sameFiles(t, "with scratch files elsewhere", files(t, disk, "out"), files(t, want, "out"))
}

// A graph is a function of its input and options for ever: the digest is of what
// the first version wrote.
func TestTopologiesHaveTheBytesTheyAlwaysHad(t *testing.T) {
	digest := sha256.New()
	for _, weighted := range []bool{false, true} {
		s := randomSource(rand.New(rand.NewPCG(7, 7)), 300, 9000, weighted)
		for i := range s.dst {
			if i%3 == 0 {
				s.dst[i] = 299
			}
		}
		for _, loops := range []Loops{KeepLoops, DropLoops} {
			for _, duplicates := range []Duplicates{MergeDuplicates, SumDuplicates, KeepDuplicates} {
				for _, reverses := range []bool{false, true} {
					o, _ := Options{SelfLoops: loops, Duplicates: duplicates, Threads: 2}.withDefaults()
					disk := vfs.NewMem()
					if _, err := writeSorted(context.Background(), disk, s, reverses, o, "by the planner"); err != nil {
						t.Fatal(err)
					}
					written := files(t, disk, "graph")
					digest.Write([]byte(written[format.PartPath("graph/topology",
						0)] + written[format.PartPath("graph/weights", 0)]))
				}
			}
		}
	}
	if got, want := hex.EncodeToString(digest.Sum(nil)),
		"91261c285e78d314e12600934cb4fc640166418b36a144c1aabea9d2d31b625b"; got != want {
		t.Errorf("digest %s, want %s", got, want)
	}
}

func BenchmarkSortEdges(b *testing.B) {
	s := randomSource(rand.New(rand.NewPCG(1, 1)), 1<<19, 1<<22, false)
	s.block = edgeBlock
	for _, onDisk := range []bool{false, true} {
		b.Run(fmt.Sprintf("disk=%v", onDisk), func(b *testing.B) {
			o, _ := Options{}.withDefaults()
			x := newTopology(s, s.Info(), false, o)
			b.SetBytes(8 * x.info.Edges) // as pairs of node ids
			for b.Loop() {
				plan, err := x.planSort()
				plan.onDisk = onDisk
				if err != nil {
					b.Fatal(err)
				}
				scratch, err := folder.OpenScratch(vfs.OS(), b.TempDir())
				if err != nil {
					b.Fatal(err)
				}
				sorted, err := x.sort(b.Context(), vfs.OS(), scratch, plan)
				if err != nil {
					b.Fatal(err)
				}
				sorted.free()
				scratch.Close()
			}
		})
	}
}
