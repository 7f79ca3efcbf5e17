package ingest

import (
	"context"
	"errors"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/hopfeed/hopfeed/format"
	"github.com/hopfeed/hopfeed/internal/machine"
	"github.com/hopfeed/hopfeed/internal/parallel"
)

// listSource is a source whose edges are a list.
type listSource struct {
	info     Info
	src, dst []uint32
	weights  []float32
	features []float32
	rows     format.RowTable
	block    int64
	second   func(*listSource) // called before the second stream of edges
	streams  int
}

func (s *listSource) Info() Info   { return s.info }
func (s *listSource) Close() error { return nil }

func (s *listSource) Edges(ctx context.Context, threads int, emit func(Edges) error) error {
	if s.streams++; s.streams == 2 && s.second != nil {
		s.second(s)
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

func TestTopologyIsThatOfTheReferenceForAnyOptionsAndThreads(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	r := rand.New(rand.NewPCG(seed, 1))
	for _, nodes := range []int64{1, 2, 5, 40, 5000} {
		for _, edges := range []int{0, 1, 7, 300} {
			for _, weighted := range []bool{false, true} {
				s := &listSource{info: Info{Nodes: nodes, Weighted: weighted}, block: 16}
				for range edges {
					s.src = append(s.src, uint32(r.Int64N(nodes)))
					s.dst = append(s.dst, uint32(r.Int64N(nodes)))
					if weighted {
						s.weights = append(s.weights, r.Float32())
					}
				}
				if weighted && edges == 0 {
					s.weights = []float32{}
				}
				for _, loops := range []Loops{KeepLoops, DropLoops} {
					for _, duplicates := range []Duplicates{MergeDuplicates, SumDuplicates, KeepDuplicates} {
						for _, reverses := range []bool{false, true} {
							for _, threads := range []int{1, 4} {
								o, err := Options{SelfLoops: loops, Duplicates: duplicates, Threads: threads}.withDefaults()
								if err != nil {
									t.Fatal(err)
								}
								got, err := buildTopology(context.Background(), s, s.info, reverses, o)
								if err != nil {
									t.Fatal(err)
								}
								compareTopology(t, got, referenceTopology(s, reverses, o), weighted || duplicates == SumDuplicates)
								got.free()
								if t.Failed() {
									t.Fatalf("%d nodes, %d edges, weighted %v, %+v, reverses %v", nodes, edges, weighted, o, reverses)
								}
							}
						}
					}
				}
			}
		}
	}
}

func compareTopology(t *testing.T, got *topology, want [][]entry, weighted bool) {
	t.Helper()
	if got.csc.Nodes() != int64(len(want)) || (got.csc.Weights != nil) != weighted {
		t.Fatalf("%d nodes, weights %v; want %d, %v", got.csc.Nodes(), got.csc.Weights != nil, len(want), weighted)
	}
	edges := int64(0)
	for v, list := range want {
		edges += int64(len(list))
		in := got.csc.In(int64(v))
		if len(in) != len(list) {
			t.Fatalf("node %d has %d in-neighbours, want %d", v, len(in), len(list))
		}
		for i, e := range list {
			if in[i] != e.source {
				t.Fatalf("in-neighbour %d of node %d is %d, want %d", i, v, in[i], e.source)
			}
			if weighted && got.csc.Weights[got.csc.Offsets[v]+int64(i)] != e.weight {
				t.Fatalf("weight %d of node %d is %v, want %v", i, v, got.csc.Weights[got.csc.Offsets[v]+int64(i)], e.weight)
			}
		}
	}
	if got.csc.Edges() != edges || weighted && int64(len(got.csc.Weights)) != edges {
		t.Fatalf("%d edges, want %d", got.csc.Edges(), edges)
	}
}

func TestWeightsAreSummedInFloat64AndRoundedOnce(t *testing.T) {
	// In float32, 2^24 + 1 + 1 + ... stays where it is.
	s := &listSource{info: Info{Nodes: 2, Weighted: true}, weights: []float32{1 << 24, 1, 1, 1, 1}, src: []uint32{0, 0, 0, 0, 0}, dst: []uint32{1, 1, 1, 1, 1}}
	o, _ := Options{Duplicates: SumDuplicates}.withDefaults()
	got, err := buildTopology(context.Background(), s, s.info, false, o)
	if err != nil {
		t.Fatal(err)
	}
	defer got.free()
	if !slices.Equal(got.csc.Weights, []float32{1<<24 + 4}) {
		t.Error(got.csc.Weights)
	}
	if !slices.Equal(got.notes, []string{"4 duplicate edges were added up"}) {
		t.Error(got.notes)
	}

	s.weights[0], s.weights[1] = math.MaxFloat32, math.MaxFloat32
	if _, err := buildTopology(context.Background(), s, s.info, false, o); !errors.Is(err, ErrInvalid) || !strings.Contains(err.Error(), "node 1") {
		t.Errorf("a sum beyond float32: %v", err)
	}
}

func TestEdgesThatChangeBetweenTheirStreamsAreRefused(t *testing.T) {
	for name, second := range map[string]func(*listSource){
		"one more":       func(s *listSource) { s.src, s.dst = append(s.src, 0), append(s.dst, 1) },
		"one less":       func(s *listSource) { s.src, s.dst = s.src[1:], s.dst[1:] },
		"one elsewhere":  func(s *listSource) { s.dst[0] = 2 },
		"a loop no more": func(s *listSource) { s.src[2] = 0 },
	} {
		s := &listSource{info: Info{Nodes: 3}, src: []uint32{0, 1, 2}, dst: []uint32{1, 1, 2}, second: second}
		o, _ := Options{SelfLoops: DropLoops}.withDefaults()
		if _, err := buildTopology(context.Background(), s, s.info, true, o); !errors.Is(err, ErrInvalid) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestMemoryIsPlannedBeforeItIsTaken(t *testing.T) {
	s := &listSource{info: Info{Nodes: 1000, Weighted: true}, src: make([]uint32, 5000), dst: make([]uint32, 5000), weights: make([]float32, 5000)}
	o, _ := Options{Threads: 2}.withDefaults()
	// Offsets and degrees; neighbours and weights; what two threads sort the one long list in.
	o.MemoryBytes = workingBytes(o) + 12*1000 + 8 + 8*5000 + 2*12*5000
	got, err := buildTopology(context.Background(), s, s.info, false, o)
	if err != nil {
		t.Fatal(err)
	}
	got.free()
	o.MemoryBytes--
	if _, err := buildTopology(context.Background(), s, s.info, false, o); !errors.Is(err, machine.ErrDoesNotFit) || !strings.Contains(err.Error(), "5000 edges") {
		t.Error(err)
	}
}

func TestTheEndOfTheContextEndsTheTopology(t *testing.T) {
	ctx, cancel := context.WithCancel(context.Background())
	s := &listSource{info: Info{Nodes: 3}, src: []uint32{0, 1, 2}, dst: []uint32{1, 1, 2}, second: func(*listSource) { cancel() }}
	o, _ := Options{}.withDefaults()
	if _, err := buildTopology(ctx, s, s.info, true, o); !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
}
