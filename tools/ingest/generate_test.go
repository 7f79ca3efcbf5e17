package ingest

import (
	"context"
	"errors"
	"hash/fnv"
	"math"
	"slices"
	"sync"
	"testing"

	"github.com/hopfeed/hopfeed/format"
	"github.com/hopfeed/hopfeed/internal/dtype"
)

var small = GenerateOptions{Nodes: 1000, Edges: 150_000, Features: 8, Classes: 4, Labeled: 0.3, Seed: 7}

func graph500(o GenerateOptions) RMATOptions {
	return RMATOptions{GenerateOptions: o, A: 0.57, B: 0.19, C: 0.19, D: 0.05}
}

func allEdges(t *testing.T, s Source, threads int) [][2]uint32 {
	t.Helper()
	var mu sync.Mutex
	var out [][2]uint32
	err := s.Edges(context.Background(), threads, func(e Edges) error {
		mu.Lock()
		defer mu.Unlock()
		for i := range e.Src {
			out = append(out, [2]uint32{e.Src[i], e.Dst[i]})
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return out
}

func compareEdges(a, b [2]uint32) int {
	if a[0] != b[0] {
		return int(a[0]) - int(b[0])
	}
	return int(a[1]) - int(b[1])
}

func TestGeneratorsAreFunctionsOfTheirSeed(t *testing.T) {
	for name, make := range map[string]func(GenerateOptions) (Source, error){
		"rmat": func(o GenerateOptions) (Source, error) { return RMAT(graph500(o)) },
		"sbm":  func(o GenerateOptions) (Source, error) { return SBM(SBMOptions{o, 0.8, 2}) },
	} {
		a, err := make(small)
		if err != nil {
			t.Fatal(err)
		}
		b, _ := make(small)
		other := small
		other.Seed++
		c, _ := make(other)

		ordered := allEdges(t, a, 1)
		if !slices.Equal(ordered, allEdges(t, b, 1)) || slices.Equal(ordered, allEdges(t, c, 1)) {
			t.Errorf("%s: edges do not follow the seed", name)
		}
		parallel := allEdges(t, b, 4)
		slices.SortFunc(ordered, compareEdges)
		slices.SortFunc(parallel, compareEdges)
		if !slices.Equal(ordered, parallel) || int64(len(ordered)) != small.Edges {
			t.Errorf("%s: edges depend on threads", name)
		}

		whole, pieces := readFeatures(t, a, 1, 1000), readFeatures(t, b, 4, 7)
		if !slices.Equal(whole, pieces) {
			t.Errorf("%s: features depend on threads or blocks", name)
		}
		if slices.Equal(whole, readFeatures(t, c, 1, 1000)) {
			t.Errorf("%s: features do not follow the seed", name)
		}
	}
}

func readFeatures(t *testing.T, s Source, threads, rows int) []float32 {
	t.Helper()
	in, err := s.Features(threads)
	if err != nil {
		t.Fatal(err)
	}
	defer in.Close()
	cols := s.Info().Features
	out := make([]float32, s.Info().Nodes*int64(cols))
	for rest := out; len(rest) > 0; {
		n := min(len(rest), rows*cols)
		if err := in.Read(context.Background(), rest[:n]); err != nil {
			t.Fatal(err)
		}
		rest = rest[n:]
	}
	return out
}

// Generated graphs are named in reports by their options, so what options mean
// must stay. (Features pass through math.Log and math.Cos, whose last bit may
// differ between processors, so they are not pinned.)
func TestGeneratedEdgesAndLabelsAreThoseOfTheFirstVersion(t *testing.T) {
	r, _ := RMAT(graph500(small))
	s, _ := SBM(SBMOptions{small, 0.8, 2})
	for name, c := range map[string]struct {
		source Source
		want   uint64
	}{"rmat": {r, 0xd0225578e629ea9b}, "sbm": {s, 0x768cbafda4417439}} {
		h := fnv.New64a()
		for _, e := range allEdges(t, c.source, 1) {
			h.Write(dtype.BytesOf(e[:]))
		}
		rows, err := c.source.Rows(context.Background())
		if err != nil {
			t.Fatal(err)
		}
		h.Write(dtype.BytesOf(rows.Labels))
		h.Write(rows.Splits)
		if got := h.Sum64(); got != c.want {
			t.Errorf("%s: %#x, want %#x", name, got, c.want)
		}
	}
}

func TestRMATPermutesIdsWithoutLoss(t *testing.T) {
	for _, n := range []int64{1, 2, 3, 5, 64, 100, 1000} {
		o := RMATOptions{GenerateOptions: GenerateOptions{Nodes: n, Seed: uint64(n)}, A: 1}
		r := newRMATEdges(o)
		seen := make([]bool, n)
		for x := range n {
			y := r.permute(uint64(x))
			if int64(y) >= n || seen[y] {
				t.Fatalf("of %d nodes, %d becomes %d", n, x, y)
			}
			seen[y] = true
		}
	}
}

func TestRMATFollowsItsProbabilitiesOnEveryLevel(t *testing.T) {
	o := graph500(GenerateOptions{Nodes: 1 << 9, Seed: 3})
	r := newRMATEdges(o)
	const draws = 50_000
	counts := make([][4]float64, 9)
	for i := range uint64(draws) {
		u, v := r.draw(i)
		for level := range counts {
			counts[level][u>>level&1<<1|v>>level&1]++
		}
	}
	for level, c := range counts {
		for q, p := range []float64{o.A, o.B, o.C, o.D} {
			// Six standard deviations: one false alarm in 10^7 runs of all 36 tests,
			// and a deviation of 0.02 is always seen.
			if sigma := math.Sqrt(p * (1 - p) * draws); math.Abs(c[q]-p*draws) > 6*sigma {
				t.Errorf("level %d, quadrant %d: %v of %d, want %v", level, q, c[q], draws, p*draws)
			}
		}
	}
}

func TestRMATEndsEvenWhereItsEdgesLieOutside(t *testing.T) {
	o := small
	o.Nodes, o.Edges, o.Classes = 5, 100, 1
	s, err := RMAT(RMATOptions{GenerateOptions: o, D: 1})
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range allEdges(t, s, 1) {
		if e[0] >= 5 || e[1] >= 5 {
			t.Fatal(e)
		}
	}
}

func TestSBMNeighborsAreUniformOverThoseThatMayBe(t *testing.T) {
	for _, c := range []struct{ n, blocks uint64 }{{1, 1}, {2, 1}, {2, 2}, {11, 3}, {12, 3}, {13, 3}, {7, 7}, {5, 1}} {
		for u := range c.n {
			for _, within := range []bool{true, false} {
				var may []uint64
				for _, same := range []bool{within, !within} { // if there are none, the others
					for v := range c.n {
						if v != u && (v%c.blocks == u%c.blocks) == same {
							may = append(may, v)
						}
					}
					if len(may) > 0 {
						break
					}
				}
				if len(may) == 0 {
					may = []uint64{u}
				}
				const steps = 1 << 12
				counts := map[uint64]int{}
				for i := range uint64(steps) {
					counts[sbmNeighbor(u, c.n, c.blocks, within, i*(math.MaxUint64/steps+1))]++
				}
				for _, v := range may {
					if got, want := counts[v], steps/len(may); got < want || got > want+1 {
						t.Errorf("%+v: %d to %d %d times, want %d", c, u, v, got, want)
					}
				}
				if len(counts) != len(may) {
					t.Errorf("%+v: neighbours %v of %d, want %v", c, counts, u, may)
				}
			}
		}
	}
}

func TestSBMHasTheHomophilyAndSeparationAskedFor(t *testing.T) {
	o := small
	o.Features, o.Classes = 512, 10
	s, err := SBM(SBMOptions{GenerateOptions: o, Homophily: 0.7, Separation: 3})
	if err != nil {
		t.Fatal(err)
	}
	within := 0.0
	for _, e := range allEdges(t, s, 1) {
		if e[0]%10 == e[1]%10 {
			within++
		}
	}
	// Standard deviation 0.0012.
	if share := within / float64(o.Edges); math.Abs(share-0.7) > 0.007 {
		t.Errorf("%v of the edges are within blocks, want 0.7", share)
	}
	// 45 pairs of means of 512 components: the estimate is good to about 2 %.
	features := readFeatures(t, s, 2, 1000)
	means := make([]float64, 10*512)
	for i, x := range features {
		means[i/512%10*512+i%512] += float64(x) / 100
	}
	distance, noise := 0.0, 0.0
	for a := range 10 {
		for b := range a {
			for c := range 512 {
				d := means[a*512+c] - means[b*512+c]
				distance += d * d / 45
			}
		}
	}
	for i, x := range features {
		d := float64(x) - means[i/512%10*512+i%512]
		noise += d * d / float64(len(features))
	}
	distance -= 2 * 512 * noise / 100 // of estimating means from 100 nodes each
	if math.Abs(math.Sqrt(distance)-3) > 0.3 || math.Abs(noise-1) > 0.03 {
		t.Errorf("separation %v, want 3; variance %v, want 1", math.Sqrt(distance), noise)
	}
}

func TestLabelledNodesAreSplit(t *testing.T) {
	o := small
	o.Nodes = 20_000
	s, err := RMAT(graph500(o))
	if err != nil {
		t.Fatal(err)
	}
	rows, err := s.Rows(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	var parts, classes [4]float64
	for v, label := range rows.Labels {
		if (label < 0) != (rows.Splits[v] == format.SplitNone) {
			t.Fatalf("node %d has label %d and part %d", v, label, rows.Splits[v])
		}
		parts[rows.Splits[v]]++
		if label >= 0 {
			classes[label]++
		}
	}
	for part, share := range []float64{0.7, 0.18, 0.06, 0.06} {
		if math.Abs(parts[part]/20_000-share) > 0.02 {
			t.Errorf("part %d has %v nodes", part, parts[part])
		}
	}
	for class, n := range classes {
		if math.Abs(n/6000-0.25) > 0.04 {
			t.Errorf("class %d has %v nodes", class, n)
		}
	}
}

func TestGeneratorsRefuseOptionsThatMakeNoGraph(t *testing.T) {
	for name, change := range map[string]func(*RMATOptions, *SBMOptions){
		"no nodes":                func(r *RMATOptions, s *SBMOptions) { r.Nodes, s.Nodes = 0, 0 },
		"too many nodes":          func(r *RMATOptions, s *SBMOptions) { r.Nodes, s.Nodes = 1<<32, 1<<32 },
		"negative edges":          func(r *RMATOptions, s *SBMOptions) { r.Edges, s.Edges = -1, -1 },
		"no features":             func(r *RMATOptions, s *SBMOptions) { r.Features, s.Features = 0, 0 },
		"no classes":              func(r *RMATOptions, s *SBMOptions) { r.Classes, s.Classes = 0, 0 },
		"more classes than nodes": func(r *RMATOptions, s *SBMOptions) { r.Classes, s.Classes = 1001, 1001 },
		"a share of NaN": func(r *RMATOptions, s *SBMOptions) {
			r.Labeled, s.Labeled = math.NaN(),
				math.NaN()
		},
		"other probabilities":    func(r *RMATOptions, s *SBMOptions) { r.A, s.Homophily = 0.5, 1.5 },
		"negative probabilities": func(r *RMATOptions, s *SBMOptions) { r.A, r.B, r.C, s.Homophily = -1, 1, 1, -1 },
	} {
		r, s := graph500(small), SBMOptions{small, 0.8, 2}
		change(&r, &s)
		if _, err := RMAT(r); !errors.Is(err, ErrOptions) {
			t.Errorf("rmat with %s: %v", name, err)
		}
		if _, err := SBM(s); !errors.Is(err, ErrOptions) {
			t.Errorf("sbm with %s: %v", name, err)
		}
	}
}

func BenchmarkRMATEdges(b *testing.B) {
	r := newRMATEdges(graph500(GenerateOptions{Nodes: 1 << 27}))
	for i := range b.N {
		r.edge(uint64(i))
	}
}
