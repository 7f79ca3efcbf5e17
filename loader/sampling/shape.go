package sampling

import (
	"slices"

	"github.com/hopfeed/hopfeed/format"
	"github.com/hopfeed/hopfeed/gds"
	"github.com/hopfeed/hopfeed/internal/dtype"
	"github.com/hopfeed/hopfeed/loader/cache"
)

// Shape is what plans of sampling know of a graph. A plain graph has one type of nodes and one relation.
type Shape struct {
	*format.Dir // the graph; of a typed one, the nodes of a type
	// All is the graph as one: the nodes and edges of all types, whether edges have weights and, as Rows, the lists of
	// in-neighbours.
	All       *format.Manifest
	Types     []TypeShape
	Relations []RelationShape
}

// TypeShape describes the nodes of a type and their features, as stored.
type TypeShape struct {
	First    uint32 // the number of the first in the one graph of all types
	Nodes    int64
	Features int
	DType    gds.DType
}

// RelationShape describes the edges from one type of nodes to another.
type RelationShape struct {
	From, To int // among Shape.Types
	Edges    int64
}

// ShapeOf is the shape of a graph, or of the typed graph whose nodes it has (format.Dir.Typed). It opens types and
// relations for a moment.
func ShapeOf(graph *format.Dir) (*Shape, error) {
	t, m := graph.Typed, &graph.Manifest
	if t == nil {
		return &Shape{Dir: graph, All: m, Relations: []RelationShape{{Edges: m.Edges}},
			Types: []TypeShape{{Nodes: m.Nodes, Features: m.Features, DType: graph.Layout().DType}}}, nil
	}
	weighted, err := t.Weighted(graph.FS(), graph.TypedPath)
	if err != nil {
		return nil, err
	}
	s, place, first := &Shape{Dir: graph, All: TypedManifest(t, weighted)}, map[string]int{}, FirstNodes(t)
	for i, n := range t.Types {
		of := TypeShape{First: first[n.Name], Nodes: n.Nodes, Features: n.Features, DType: dtype.Float32}
		if n.Features > 0 {
			d, err := t.OpenNodes(graph.FS(), graph.TypedPath, n.Name)
			if err != nil {
				return nil, err
			}
			of.DType = d.Layout().DType
			if err := d.Close(); err != nil {
				return nil, err
			}
		}
		place[n.Name], s.Types = i, append(s.Types, of)
	}
	for _, r := range t.Relations {
		s.Relations = append(s.Relations, RelationShape{place[r.Source], place[r.Destination], r.Edges})
	}
	return s, nil
}

// Target is the type of the nodes that have labels.
func (s *Shape) Target() int {
	if s.Typed == nil {
		return 0
	}
	return slices.IndexFunc(s.Typed.Types, func(n format.NodeType) bool { return n.Name == s.Typed.Target })
}

// TopologyBytes is the memory of the relations, loaded.
func (s *Shape) TopologyBytes() (bytes int64) {
	for _, r := range s.Relations {
		bytes += TopologyNeed(&format.Manifest{Nodes: s.Types[r.To].Nodes, Edges: r.Edges, Weighted: s.All.Weighted}).Bytes
	}
	return bytes
}

// Rows are the rows of features of each type, as stored.
func (s *Shape) Rows() (rows []cache.Rows) {
	for _, t := range s.Types {
		rows = append(rows, cache.Rows{Nodes: t.Nodes, Bytes: gds.Bytes(1, t.Features, t.DType)})
	}
	return rows
}

// degree is the mean number of edges of a relation to a node, rounded up.
func (s *Shape) degree(r RelationShape) int64 {
	nodes := max(s.Types[r.To].Nodes, 1)
	return (r.Edges + nodes - 1) / nodes
}
