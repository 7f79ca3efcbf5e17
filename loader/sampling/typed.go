package sampling

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sort"
	"sync"

	"github.com/hopfeed/hopfeed/format"
	"github.com/hopfeed/hopfeed/internal/vfs"
)

// typedTopology is a typed graph as one graph, which numbers nodes type after type. A node has a list of in-neighbours
// for each relation that ends in its type. Lists reads the lists by row; rows are numbered relation after relation,
// with a row for each destination. Edges are numbered in the order of the rows.
type typedTopology struct {
	size      *format.Manifest // TypedManifest
	relations []relation
	types     []rowRange // the nodes of each type; they have no rows
	parts     []rowRange // relations, then types: see Options.ByType
	shifted   sync.Pool  // of *numbers, of a relation
}

// relation has the topology of a relation, which numbers its rows, edges and sources from 0 on, and what is added to
// these numbers in the graph of all relations.
type relation struct {
	rowRange // row is added to rows
	Topology
	edge   int64
	source uint32
}

// rowRange says which rows a relation has.
type rowRange struct {
	row        uint32 // the first
	first, end uint32 // the destinations are the nodes first to end-1
}

func (t *typedTopology) Nodes() int64   { return t.size.Nodes }
func (t *typedTopology) Edges() int64   { return t.size.Edges }
func (t *typedTopology) Weighted() bool { return t.size.Weighted }

func (t *typedTopology) Close() error {
	var errs []error
	for _, r := range t.relations {
		errs = append(errs, r.Close())
	}
	return errors.Join(errs...)
}

// numbers are memory for the numbers that rows, lists or edges have in their relation.
type numbers struct {
	rows  []uint32
	lists []List
	edges []int64
}

// ofEdge is the relation of an edge.
func (t *typedTopology) ofEdge(edge int64) *relation {
	return &t.relations[sort.Search(len(t.relations), func(i int) bool { return t.relations[i].edge > edge })-1]
}

// hasList tells that a list is the relation's, or empty.
func (r *relation) hasList(l List) bool { return l.First >= r.edge && l.End <= r.edge+r.Edges() }

func (t *typedTopology) Lists(rows []uint32, lists []List) error {
	m := t.shifted.Get().(*numbers)
	defer t.shifted.Put(m)
	for len(rows) > 0 {
		r := &t.relations[t.relation(rows[0])]
		m.rows = m.rows[:0]
		for _, row := range rows {
			if row < r.row || row-r.row >= r.end-r.first {
				break
			}
			m.rows = append(m.rows, row-r.row)
		}
		n := len(m.rows)
		if err := r.Topology.Lists(m.rows, lists[:n]); err != nil {
			return err
		}
		for i := range lists[:n] {
			lists[i].First, lists[i].End = lists[i].First+r.edge, lists[i].End+r.edge
		}
		rows, lists = rows[n:], lists[n:]
	}
	return nil
}

func (t *typedTopology) Read(edges []int64, sources []uint32, weights []float32) error {
	m := t.shifted.Get().(*numbers)
	defer t.shifted.Put(m)
	for len(edges) > 0 {
		r := t.ofEdge(edges[0])
		m.edges = m.edges[:0]
		for _, e := range edges {
			if !r.hasList(List{e, e + 1}) {
				break
			}
			m.edges = append(m.edges, e-r.edge)
		}
		n := len(m.edges)
		if err := r.read(n, sources, weights, func(sources []uint32, weights []float32) error {
			return r.Topology.Read(m.edges, sources, weights)
		}); err != nil {
			return err
		}
		edges, sources = edges[n:], sources[n:]
		if weights != nil {
			weights = weights[n:]
		}
	}
	return nil
}

func (t *typedTopology) ReadLists(lists []List, sources []uint32, weights []float32) error {
	m := t.shifted.Get().(*numbers)
	defer t.shifted.Put(m)
	for len(lists) > 0 {
		r := t.ofEdge(lists[0].First)
		m.lists = m.lists[:0]
		for _, l := range lists {
			if !r.hasList(l) {
				break
			}
			m.lists = append(m.lists, List{l.First - r.edge, l.End - r.edge})
		}
		n := int(countEdges(m.lists))
		if err := r.read(n, sources, weights, func(sources []uint32, weights []float32) error {
			return r.Topology.ReadLists(m.lists, sources, weights)
		}); err != nil {
			return err
		}
		lists, sources = lists[len(m.lists):], sources[n:]
		if weights != nil {
			weights = weights[n:]
		}
	}
	return nil
}

// read reads n edges of the relation, and gives their sources the numbers of the one graph. Weights are 1 if the
// relation has none; nil: they are not wanted.
func (r *relation) read(n int, sources []uint32, weights []float32, read func([]uint32, []float32) error) error {
	wanted := weights
	if weights != nil && !r.Weighted() {
		wanted = nil
		for i := range weights[:n] {
			weights[i] = 1
		}
	}
	if err := read(sources, wanted); err != nil {
		return err
	}
	for i := range sources[:n] {
		sources[i] += r.source
	}
	return nil
}

// typesOf are the nodes of each type of a graph.
func typesOf(t Topology) []rowRange {
	if typed, is := t.(*typedTopology); is {
		return typed.types
	}
	return []rowRange{{end: uint32(t.Nodes())}}
}

// destination is the node whose in-neighbours a row has.
func destination(t Topology, row uint32) uint32 {
	if typed, is := t.(*typedTopology); is {
		r := typed.relations[typed.relation(row)]
		return r.first + row - r.row
	}
	return row
}

// TypedManifest describes a typed graph as one graph: its nodes and edges, whether these have weights, and, as rows,
// its lists of in-neighbours.
func TypedManifest(t *format.Typed, weighted bool) *format.Manifest {
	m := &format.Manifest{Weighted: weighted}
	for _, n := range t.Types {
		m.Nodes += n.Nodes
	}
	for _, r := range t.Relations {
		to, _ := t.Type(r.Destination)
		m.Edges, m.Rows = m.Edges+r.Edges, m.Rows+to.Nodes
	}
	return m
}

// FirstNodes are the numbers that the first nodes of the types have in the one graph of them all.
func FirstNodes(t *format.Typed) map[string]uint32 {
	firsts, next := map[string]uint32{}, int64(0)
	for _, n := range t.Types {
		firsts[n.Name] = uint32(next)
		next += n.Nodes
	}
	return firsts
}

// OpenTypedTopology reads and checks the relations of a typed graph in dir, and holds them in memory or maps them: see
// LoadTopology and MapTopology. The caller closes the topology.
func OpenTypedTopology(ctx context.Context, fsys vfs.FS, dir string, t *format.Typed, mapped bool, threads int) (
	_ Topology, err error) {
	weighted, err := t.Weighted(fsys, dir)
	if err != nil {
		return nil, err
	}
	all := TypedManifest(t, weighted)
	if all.Nodes > format.MaxNodes || all.Rows > format.MaxNodes || all.Edges > format.MaxEdges {
		return nil, fmt.Errorf("%w: %s has %d nodes in all, %d lists of in-neighbours and %d edges: at most %d, %d and "+
			"%d can be sampled", ErrOptions, dir, all.Nodes, all.Rows, all.Edges, int64(format.MaxNodes),
			int64(format.MaxNodes), int64(format.MaxEdges))
	}
	out := &typedTopology{size: all, shifted: sync.Pool{New: func() any { return new(numbers) }}}
	firsts, row, edge := FirstNodes(t), uint32(0), int64(0)
	for _, n := range t.Types {
		first := firsts[n.Name]
		out.types = append(out.types, rowRange{first: first, end: first + uint32(n.Nodes)})
	}
	for _, r := range t.Relations {
		one, err := openRelation(ctx, fsys, dir, t, r, mapped, threads)
		if err != nil {
			return nil, errors.Join(err, out.Close())
		}
		first, rows := firsts[r.Destination], uint32(one.Nodes())
		out.relations = append(out.relations, relation{rowRange{row, first, first + rows}, one, edge, firsts[r.Source]})
		out.parts = append(out.parts, out.relations[len(out.relations)-1].rowRange)
		row, edge = row+rows, edge+one.Edges()
	}
	out.parts = append(out.parts, out.types...)
	return out, nil
}

// openRelation loads or maps a relation, whose numbers begin at 0.
func openRelation(ctx context.Context, fsys vfs.FS, dir string, t *format.Typed, r format.Relation, mapped bool,
	threads int) (_ Topology, err error) {
	d, err := t.OpenRelation(fsys, dir, r)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, d.Close()) }()
	if mapped {
		return MapTopology(ctx, d)
	}
	return LoadTopology(ctx, d, threads)
}

// typedRows is the memory by which a sampler finds the rows of nodes of a typed graph.
type typedRows struct {
	rows   []uint32 // of some nodes
	chosen []uint32 // of a subgraph, in the order in which edges were chosen for them
	order  []int    // places in chosen, by relation
	sorted Block
	places []uint32 // of nodes, within their types or in the lists of a block
}

// rows returns the rows that have the in-neighbours of nodes. In a plain graph these are the nodes; in a typed graph
// they come relation after relation, each in the order of the nodes. They are valid until the next call.
func (s *sampler) rows(nodes []uint32) []uint32 {
	if s.typed == nil {
		return nodes
	}
	rows := s.byRelation.rows[:0]
	for _, r := range s.typed.relations {
		for _, v := range nodes {
			if r.has(v) {
				rows = append(rows, r.row+v-r.first)
			}
		}
	}
	s.byRelation.rows = rows
	return rows
}

// relation is the number of the relation of a row.
func (t *typedTopology) relation(row uint32) int {
	return sort.Search(len(t.relations), func(i int) bool { return t.relations[i].row > row }) - 1
}

// sortRows brings the edges of a subgraph, which were chosen layer by layer, into the order of the rows of its nodes.
// Rows without edges that were chosen get empty lists.
func (s *sampler) sortRows(b *Block, nodes []uint32) {
	t, g := s.typed, &s.byRelation
	g.order = resize(g.order, len(g.chosen))
	for i := range g.order {
		g.order[i] = i
	}
	slices.SortStableFunc(g.order, func(i, j int) int { return t.relation(g.chosen[i]) - t.relation(g.chosen[j]) })
	to, next := &g.sorted, 0
	to.Offsets, to.Indices, to.Weights, to.Edges = append(to.Offsets[:0], 0), to.Indices[:0], to.Weights[:0], to.Edges[:0]
	for _, row := range s.rows(nodes) {
		if next < len(g.order) && g.chosen[g.order[next]] == row {
			first, end := b.Offsets[g.order[next]], b.Offsets[g.order[next]+1]
			to.Indices = append(to.Indices, b.Indices[first:end]...)
			to.Weights = append(to.Weights, b.Weights[first:end]...)
			if s.options.EdgeIDs {
				to.Edges = append(to.Edges, b.Edges[first:end]...)
			}
			next++
		}
		to.Offsets = append(to.Offsets, uint32(len(to.Indices)))
	}
	*b, *to = *to, *b
}

// splitByType makes b, a block whose destinations are nodes, and sums what Options.ByType says.
func (s *sampler) splitByType(b, sums *Block, inputs []uint32) error {
	t, g, n := s.typed, &s.byRelation, b.Destinations
	nodes := inputs[:n]
	if uint64(len(b.Indices))+uint64(n) > MaxBlockEdges {
		return errBlockEdges
	}
	*sums = Block{Destinations: n, Offsets: append(sums.Offsets[:0], 0), Indices: sums.Indices, Weights: sums.Weights[:0]}
	g.places = resize(g.places, n)
	for i, v := range nodes {
		g.places[i] = sums.Offsets[i]
		end := sums.Offsets[i]
		for _, part := range t.parts {
			if part.has(v) {
				end++
			}
		}
		sums.Offsets = append(sums.Offsets, end)
	}
	rows := int(sums.Offsets[n])
	sums.Indices = resize(sums.Indices, rows)
	b.Parts = append(b.Parts[:0], 0)
	row := uint32(0)
	for k, part := range t.parts {
		for i, v := range nodes {
			if !part.has(v) {
				continue
			}
			sums.Indices[g.places[i]] = row
			g.places[i]++
			if row++; k >= len(t.relations) {
				b.Indices, b.Weights = append(b.Indices, uint32(i)), append(b.Weights, 1)
				b.Offsets = append(b.Offsets, uint32(len(b.Indices)))
			}
		}
		b.Parts = append(b.Parts, row)
	}
	b.Destinations, sums.Sources = rows, rows
	for range rows {
		sums.Weights = append(sums.Weights, 1)
	}
	return nil
}

// has tells whether a node is a destination of the relation, or of the type.
func (r rowRange) has(v uint32) bool { return v >= r.first && v < r.end }

// sortInputs orders the inputs of a mini-batch by type, and numbers them within their types.
func (s *sampler) sortInputs(dst *MiniBatch) {
	g, b := &s.byRelation, &dst.Blocks[0]
	g.places, g.rows, dst.Types = resize(g.places, len(dst.Inputs)), g.rows[:0], dst.Types[:0]
	for _, nodes := range s.typed.types {
		first := len(g.rows)
		dst.Types = append(dst.Types, first)
		for i, v := range dst.Inputs {
			if nodes.has(v) {
				g.places[i] = uint32(len(g.rows) - first)
				g.rows = append(g.rows, v-nodes.first)
			}
		}
	}
	dst.Types = append(dst.Types, len(g.rows))
	for e, i := range b.Indices {
		b.Indices[e] = g.places[i]
	}
	dst.Inputs, g.rows = g.rows, dst.Inputs
}
