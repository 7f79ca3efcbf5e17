package sampling

import (
	"cmp"
	"context"
	"errors"
	"fmt"

	"github.com/hopfeed/hopfeed/format"
	"github.com/hopfeed/hopfeed/internal/vfs"
)

// Topology is what samplers read of a graph: the in-neighbours of nodes, and the weights of edges. Calls are for many
// nodes or edges at once, so that whoever holds the graph, be it in memory, in mapped files or on a device, can have
// many accesses on their way. Edges are numbered from 0 to Edges()-1 by destination, and for one destination by source,
// ascending.
//
// It is safe for concurrent use until Close. Arguments are valid: nodes are below Nodes(), edges
// and lists exist, and destinations are long enough.
type Topology interface {
	Nodes() int64
	Edges() int64
	Weighted() bool

	// Lists writes where the in-neighbours of each of the nodes are.
	Lists(nodes []uint32, lists []List) error
	// Read writes the source of each of the edges and, unless weights is nil, its weight.
	Read(edges []int64, sources []uint32, weights []float32) error
	// ReadLists writes the sources of all edges of the lists, one list after another, and, unless weights is nil, their
	// weights.
	ReadLists(lists []List, sources []uint32, weights []float32) error

	Close() error
}

// List is the edges of one destination: First to End-1.
type List struct{ First, End int64 }

// Degree is the number of edges.
func (l List) Degree() int64 { return l.End - l.First }

// countEdges is the number of edges of all lists.
func countEdges(lists []List) int64 {
	n := int64(0)
	for _, l := range lists {
		n += l.Degree()
	}
	return n
}

// LoadTopology reads and checks the topology (and weights) of a graph into memory; the caller
// closes it. threads 0 is parallel.Threads.
func LoadTopology(ctx context.Context, graph *format.Dir, threads int) (Topology, error) {
	c, err := graph.Topology(ctx, threads)
	if err != nil {
		return nil, err
	}
	return InMemory(c), nil
}

// InMemory is the topology that c holds, which it closes. Its lists must be checked, as format.Dir.Topology does.
func InMemory(c *format.CSC) Topology { return &loadedTopology{c} }

type loadedTopology struct{ c *format.CSC }

func (t *loadedTopology) Nodes() int64   { return t.c.Nodes() }
func (t *loadedTopology) Edges() int64   { return t.c.Edges() }
func (t *loadedTopology) Weighted() bool { return t.c.Weights != nil }
func (t *loadedTopology) Close() error   { return t.c.Close() }

func (t *loadedTopology) Lists(nodes []uint32, lists []List) error {
	offsets, lists := t.c.Offsets, lists[:len(nodes)]
	for i, v := range nodes {
		lists[i] = List{offsets[v], offsets[v+1]}
	}
	return nil
}

func (t *loadedTopology) Read(edges []int64, sources []uint32, weights []float32) error {
	pick(sources, t.c.Neighbors, edges)
	if weights != nil {
		pick(weights, t.c.Weights, edges)
	}
	return nil
}

func (t *loadedTopology) ReadLists(lists []List, sources []uint32, weights []float32) error {
	pickLists(sources, t.c.Neighbors, lists)
	if weights != nil {
		pickLists(weights, t.c.Weights, lists)
	}
	return nil
}

// pick copies the values of edges. Its loads do not depend on each other, so that a processor has
// many of them on their way at once.
func pick[T any](dst, values []T, edges []int64) {
	dst = dst[:len(edges)]
	for i, e := range edges {
		dst[i] = values[e]
	}
}

// pickLists copies the values of the edges of lists.
func pickLists[T any](dst, values []T, lists []List) {
	for _, l := range lists {
		n := copy(dst, values[l.First:l.End])
		dst = dst[n:]
	}
}

// mapBlockBytes is how much of a topology is read at a time when it is checked.
const mapBlockBytes = 16 << 20

// MapTopology checks the topology (and weights) of a graph, reading it once, and maps its files, so
// that the page cache holds what samplers read of it. The caller closes it. If a file has been
// changed or cut off since, what samplers return is format.ErrCorrupt, or a sample of other edges.
func MapTopology(ctx context.Context, graph *format.Dir) (_ Topology, err error) {
	file, err := graph.OpenTopology(ctx, mapBlockBytes)
	if err != nil {
		return nil, err
	}
	c, err := file.Map()
	if closing := file.Close(); err == nil && closing != nil {
		return nil, errors.Join(closing, c.Close())
	}
	if err != nil {
		return nil, err
	}
	sources := cmp.Or(graph.Manifest.SourceNodes, c.Nodes())
	return &mappedTopology{loadedTopology{c}, sources, file.Path()}, nil
}

// mappedTopology checks every value that it reads.
type mappedTopology struct {
	loadedTopology
	sources int64 // nodes that edges come from
	path    string
}

// guard reads by read, which touches mapped files.
func (t *mappedTopology) guard(read func() error) error {
	err := vfs.Guard(read)
	if errors.Is(err, vfs.ErrFault) {
		return &format.CorruptError{File: t.path, Reason: err.Error()}
	}
	return err
}

func (t *mappedTopology) changed(what string, value int64) error {
	return &format.CorruptError{File: t.path, Reason: fmt.Sprintf("%s %d is out of range: the file has changed "+
		"since it was opened and checked", what, value)}
}

func (t *mappedTopology) Lists(nodes []uint32, lists []List) error {
	return t.guard(func() error {
		if err := t.loadedTopology.Lists(nodes, lists); err != nil {
			return err
		}
		for i := range nodes {
			if l := lists[i]; l.First < 0 || l.End < l.First || l.End > t.Edges() {
				return t.changed("offset", l.End)
			}
		}
		return nil
	})
}

func (t *mappedTopology) checkSources(sources []uint32) error {
	for _, u := range sources {
		if int64(u) >= t.sources {
			return t.changed("in-neighbour", int64(u))
		}
	}
	return nil
}

func (t *mappedTopology) Read(edges []int64, sources []uint32, weights []float32) error {
	return t.guard(func() error {
		for _, e := range edges {
			if uint64(e) >= uint64(t.Edges()) {
				return t.changed("edge", e)
			}
		}
		_ = t.loadedTopology.Read(edges, sources, weights) // it has no errors
		return t.checkSources(sources[:len(edges)])
	})
}

func (t *mappedTopology) ReadLists(lists []List, sources []uint32, weights []float32) error {
	return t.guard(func() error {
		_ = t.loadedTopology.ReadLists(lists, sources, weights)
		return t.checkSources(sources[:countEdges(lists)])
	})
}
