package sampling

import (
	"context"
	"errors"
	"fmt"

	"github.com/hopfeed/hopfeed/format"
	"github.com/hopfeed/hopfeed/internal/vfs"
)

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
	return &mappedTopology{loadedTopology{c}, c.Nodes(), file.Path()}, nil
}

// mappedTopology checks every value that it reads.
type mappedTopology struct {
	loadedTopology
	nodes int64
	path  string
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
		if int64(u) >= t.nodes {
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
