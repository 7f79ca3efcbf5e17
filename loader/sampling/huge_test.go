package sampling

import (
	"errors"
	"math"
	"slices"
	"testing"
)

// hubs is a made-up topology of nodes that all have the same number of in-neighbours: those of v are (v + j) % nodes.
// No edge of it is stored.
type hubs struct{ nodes, degree int64 }

func (h hubs) Nodes() int64   { return h.nodes }
func (h hubs) Edges() int64   { return h.nodes * h.degree }
func (h hubs) Weighted() bool { return false }
func (h hubs) Close() error   { return nil }

func (h hubs) Lists(nodes []uint32, lists []List) error {
	for i, v := range nodes {
		lists[i] = List{int64(v) * h.degree, (int64(v) + 1) * h.degree}
	}
	return nil
}

func (h hubs) Read(edges []int64, sources []uint32, _ []float32) error {
	for i, e := range edges {
		sources[i] = uint32((e/h.degree + e%h.degree) % h.nodes)
	}
	return nil
}

func (h hubs) ReadLists(lists []List, sources []uint32, _ []float32) error {
	for _, l := range lists {
		first := l.First / h.degree
		for j := range l.Degree() {
			sources[j] = uint32((first + j) % h.nodes)
		}
		sources = sources[l.Degree():]
	}
	return nil
}

// upTo are the nodes 0 to n-1.
func upTo(n int) []uint32 {
	nodes := make([]uint32, n)
	for v := range nodes {
		nodes[v] = uint32(v)
	}
	return nodes
}

// newHugeSampler is a sampler of one layer.
func newHugeSampler(t *testing.T, name string, topology Topology, fanout int) *Method {
	t.Helper()
	m, err := NewMethod(t.Context(), name, topology, Options{Fanouts: []int{fanout}, Threads: 1})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := m.Close(); err != nil {
			t.Error(err)
		}
	})
	return m
}

// A chunk of 512 destinations whose edges are 2^32 is refused before memory is taken for any of them.
func TestABlockOfTooManyEdgesIsRefusedBeforeItIsMade(t *testing.T) {
	topology := hubs{nodes: 1024, degree: 1 << 23}
	for _, name := range []string{"full", "neighbor", "labor", "ladies"} {
		s := newHugeSampler(t, name, topology, All)
		var b MiniBatch
		if err := s.Sample(t.Context(), &b, upTo(chunkNodes), 1); !errors.Is(err, errBlockEdges) {
			t.Errorf("%s: %v", name, err)
		}
		if cap(s.idle[0].edges.edges) > 0 {
			t.Errorf("%s: there is memory for %d edges", name, cap(s.idle[0].edges.edges))
		}
	}
	// A few edges of each destination are no problem.
	s := newHugeSampler(t, "neighbor", topology, 3)
	var b MiniBatch
	if err := s.Sample(t.Context(), &b, upTo(chunkNodes), 1); err != nil || len(b.Blocks[0].Indices) != 3*chunkNodes {
		t.Errorf("%d edges, %v", len(b.Blocks[0].Indices), err)
	}
}

// The lists of many hubs are not in memory together, and each is sampled as it is alone.
func TestListsOfHubsAreReadInChunks(t *testing.T) {
	topology := hubs{nodes: 1 << 18, degree: 1 << 18}
	const hub = 6
	for name, fanout := range map[string]int{"labor": 50, "labor-1": 50, "ladies": 40, "full": All} {
		s := newHugeSampler(t, name, topology, fanout)
		var all MiniBatch
		if err := s.Sample(t.Context(), &all, upTo(hub), 7); err != nil {
			t.Fatal(err)
		}
		if most := max(cap(s.idle[0].edges.in.sources), cap(s.idle[0].edges.edges)); most > 2*chunkEdges {
			t.Errorf("%s: memory for %d edges of a chunk", name, most)
		}
		block := &all.Blocks[0]
		if name != "labor" && name != "full" { // a node is drawn as it is alone
			continue
		}
		for _, v := range []uint32{0, hub - 1} {
			var alone MiniBatch
			if err := s.Sample(t.Context(), &alone, []uint32{v}, 7); err != nil {
				t.Fatal(err)
			}
			sources := func(b *MiniBatch, indices []uint32) (nodes []uint32) {
				for _, i := range indices {
					nodes = append(nodes, b.Inputs[i])
				}
				return nodes
			}
			if !slices.Equal(sources(&all, block.Indices[block.Offsets[v]:block.Offsets[v+1]]),
				sources(&alone, alone.Blocks[0].Indices)) {
				t.Errorf("%s: the edges of node %d depend on who else is in the batch", name, v)
			}
		}
	}
	// So are those of all nodes, once for a method.
	most := 0
	if err := visitLists(t.Context(), hubs{nodes: 64, degree: 1 << 16}, 1, false,
		func(_ uint32, sources []uint32, _ []float32) {
			most = max(most, cap(sources))
		}); err != nil || most > 2*chunkEdges {
		t.Errorf("memory for %d edges, %v", most, err)
	}
}

func TestCountsOfVisitsDoNotWrap(t *testing.T) {
	for _, c := range []struct {
		nodes int64
		steps int
		want  int64
	}{{60, 2, minWalks}, {111_059_956, 2, 111_059_956 * 50 / 3}, {math.MaxUint32, 1, math.MaxUint32},
		{math.MaxUint32, 3, math.MaxUint32}} {
		if got := countedWalks(c.nodes, c.steps); got != c.want {
			t.Errorf("%d walks of %d steps in a graph of %d nodes, want %d", got, c.steps, c.nodes, c.want)
		}
	}
}
