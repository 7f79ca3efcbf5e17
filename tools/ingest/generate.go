package ingest

import (
	"context"
	"fmt"
	"math"
	"math/bits"
	"strconv"
	"sync"

	"github.com/hopfeed/hopfeed/format"
	"github.com/hopfeed/hopfeed/internal/parallel"
	"github.com/hopfeed/hopfeed/internal/rng"
)

// GenerateOptions are common to all generators. Everything that they make is a pure function of the seed and of a
// position, so it is streamed, never stored, and the same for any threads.
type GenerateOptions struct {
	Nodes, Edges int64 // edges as drawn: before duplicates are merged and reverses added
	Features     int
	Classes      int
	Labeled      float64 // share of nodes with a label; 60 % of the labelled nodes train, 20 % valid, 20 % test
	Seed         uint64
}

func (o GenerateOptions) check() error {
	switch {
	case o.Nodes < 1 || o.Nodes > MaxNodes:
		return badOptions("--nodes %d (want 1 to %d)", o.Nodes, int64(MaxNodes))
	case o.Edges < 0 || o.Edges > format.MaxEdges:
		return badOptions("--edges %d (want 0 to %d)", o.Edges, int64(format.MaxEdges))
	case o.Features < 1 || o.Features > format.MaxFeatures:
		return badOptions("--features %d (want 1 to %d)", o.Features, format.MaxFeatures)
	case o.Classes < 1 || o.Classes > MaxClasses || int64(o.Classes) > o.Nodes:
		return badOptions("--classes %d (want 1 to %d)", o.Classes, min(MaxClasses, o.Nodes))
	case !(o.Labeled >= 0 && o.Labeled <= 1):
		return badOptions("--labeled %v (want 0 to 1)", o.Labeled)
	}
	return nil
}

// synthetic is a generator as a source. What differs between generators is where an edge goes, which class a node has,
// and the mean features of a class.
type synthetic struct {
	GenerateOptions
	info  Info
	edge  func(i uint64) (src, dst uint32)
	class func(v uint64) int32
	means []float64 // [Classes, Features]; nil: all zero
}

func newSynthetic(kind string, o GenerateOptions, direction Direction) *synthetic {
	return &synthetic{GenerateOptions: o, info: Info{
		Name:      kind,
		Nodes:     o.Nodes,
		Features:  o.Features,
		Edges:     o.Edges,
		Direction: direction,
		RowBytes:  5,
		Input: map[string]string{
			"source":   kind,
			"nodes":    strconv.FormatInt(o.Nodes, 10),
			"edges":    strconv.FormatInt(o.Edges, 10),
			"features": strconv.Itoa(o.Features),
			"classes":  strconv.Itoa(o.Classes),
			"labeled":  formatFloat(o.Labeled),
			"seed":     strconv.FormatUint(o.Seed, 10),
		},
	}}
}

func formatFloat(v float64) string { return strconv.FormatFloat(v, 'g', -1, 64) }

func (s *synthetic) Info() Info   { return s.info }
func (s *synthetic) Close() error { return nil }

func (s *synthetic) Edges(ctx context.Context, threads int, emit func(Edges) error) error {
	buffers := sync.Pool{New: func() any {
		return &Edges{Src: make([]uint32, edgeBlock), Dst: make([]uint32, edgeBlock)}
	}}
	return parallel.For(ctx, threads, s.GenerateOptions.Edges, edgeBlock, func(first, end int64) error {
		b := buffers.Get().(*Edges)
		defer buffers.Put(b)
		e := Edges{Src: b.Src[:end-first], Dst: b.Dst[:end-first]}
		for i := range e.Src {
			e.Src[i], e.Dst[i] = s.edge(uint64(first) + uint64(i))
		}
		return emit(e)
	})
}

// Rows labels each node with probability Labeled, independently, and puts each labelled node into a part of the split.
func (s *synthetic) Rows(ctx context.Context) (*format.RowTable, error) {
	t := &format.RowTable{
		Rows:      s.Nodes,
		Labels:    make([]int32, s.Nodes),
		Splits:    make([]uint8, s.Nodes),
		NumSplits: 1,
	}
	labeled, split := rng.Derive(s.Seed, "labeled"), rng.Derive(s.Seed, "split")
	for v := range t.Labels {
		if v%edgeBlock == 0 && ctx.Err() != nil {
			return nil, context.Cause(ctx)
		}
		t.Labels[v] = -1
		if rng.Float64(rng.Hash(labeled, uint64(v))) >= s.Labeled {
			continue
		}
		t.Labels[v] = s.class(uint64(v))
		switch part := rng.Float64(rng.Hash(split, uint64(v))); {
		case part < 0.6:
			t.Splits[v] = format.SplitTrain
		case part < 0.8:
			t.Splits[v] = format.SplitValid
		default:
			t.Splits[v] = format.SplitTest
		}
	}
	return t, nil
}

func (s *synthetic) Features(threads int) (FeatureReader, error) {
	return &normalReader{s, threads, 0}, nil
}

// normalReader draws features: the mean of the node's class plus standard normal noise.
type normalReader struct {
	*synthetic
	threads int
	row     int64
}

func (r *normalReader) Read(ctx context.Context, dst []float32) error {
	seed, cols := rng.Derive(r.Seed, "features"), r.GenerateOptions.Features
	rows := int64(len(dst) / cols)
	err := parallel.For(ctx, r.threads, rows, max(1, int64(1<<13/cols)), func(first, end int64) error {
		for i := first; i < end; i++ {
			v := uint64(r.row + i)
			row := dst[i*int64(cols) : (i+1)*int64(cols)]
			var mean []float64
			if r.means != nil {
				mean = r.means[int(r.class(v))*cols:]
			}
			for c := range row {
				// The conversion keeps the product within from being fused with the sum.
				x := float64(rng.Normal(seed, v*uint64(cols)+uint64(c)))
				if mean != nil {
					x += mean[c]
				}
				row[c] = float32(x)
			}
		}
		return nil
	})
	r.row += rows
	return err
}

func (r *normalReader) Place(row int64) string { return fmt.Sprintf("%s: row %d", r.info.Name, row) }

// below maps a hash to [0,n), each number as likely up to n/2^64.
func below(h, n uint64) uint64 {
	hi, _ := bits.Mul64(h, n)
	return hi
}

// RMATOptions are the options of RMAT. A, B, C and D are the probabilities of the four quadrants; Graph500 takes
// 0.57, 0.19, 0.19 and 0.05.
type RMATOptions struct {
	GenerateOptions
	A, B, C, D float64
	Undirected bool // add the reverse of every edge
}

// RMAT is a generator of graphs with skewed degrees (Chakrabarti, Zhan, Faloutsos 2004, "R-MAT: a recursive model for
// graph mining"): each edge descends through the quadrants of the adjacency matrix, one bit of source and destination a
// level. Edges outside of n x n, where n is no power of two, are drawn again, and ids are permuted, so that they tell
// nothing of degrees. Features are noise and classes uniform: such a graph is for measuring speed, and nothing can be
// learnt from it.
func RMAT(o RMATOptions) (Source, error) {
	if err := o.check(); err != nil {
		return nil, err
	}
	for _, p := range []float64{o.A, o.B, o.C, o.D} {
		if !(p >= 0) {
			return nil, badOptions("--quadrants: probability %v (want 0 to 1)", p)
		}
	}
	if sum := o.A + o.B + o.C + o.D; math.Abs(sum-1) > 1e-6 {
		return nil, badOptions("--quadrants: the probabilities add up to %v (want 1)", sum)
	}
	direction := Directed
	if o.Undirected {
		direction = Undirected
	}
	s := newSynthetic("rmat", o.GenerateOptions, direction)
	for key, p := range map[string]float64{"a": o.A, "b": o.B, "c": o.C, "d": o.D} {
		s.info.Input[key] = formatFloat(p)
	}
	s.edge = newRMATEdges(o).edge
	classes := rng.Derive(o.Seed, "classes")
	s.class = func(v uint64) int32 { return int32(below(rng.Hash(classes, v), uint64(o.Classes))) }
	return s, nil
}

// rmatEdges draws edges. A level takes 16 bits of a hash, so the probabilities are rounded to multiples of 2^-16.
type rmatEdges struct {
	seed      uint64
	nodes     uint64
	levels    int
	bounds    [3]int32 // where quadrants b, c and d begin, in 2^-16
	multiply  [2]uint64
	add       [2]uint64
	halfShift int
}

func newRMATEdges(o RMATOptions) *rmatEdges {
	permutation := rng.Derive(o.Seed, "permutation")
	levels := bits.Len64(uint64(o.Nodes - 1))
	cut := func(p float64) int32 { return int32(math.Round(p * (1 << 16))) }
	r := &rmatEdges{
		seed:      rng.Derive(o.Seed, "edges"),
		nodes:     uint64(o.Nodes),
		levels:    levels,
		halfShift: (levels + 1) / 2,
	}
	r.bounds = [3]int32{cut(o.A), cut(o.A + o.B), cut(o.A + o.B + o.C)}
	for i := range r.multiply {
		r.multiply[i] = rng.Hash(permutation, uint64(2*i)) | 1
		r.add[i] = rng.Hash(permutation, uint64(2*i+1))
	}
	return r
}

// maxRedraws ends the search of an edge within n x n where probabilities make one next to impossible.
const maxRedraws = 100

func (r *rmatEdges) edge(i uint64) (src, dst uint32) {
	u, v := r.draw(i)
	return r.permute(u), r.permute(v)
}

// draw is edge i before ids are permuted.
func (r *rmatEdges) draw(i uint64) (u, v uint64) {
	stream := rng.Hash(r.seed, i)
	next := uint64(0)
	for redraw := 0; ; redraw++ {
		u, v = 0, 0
		var h uint64
		for level := range r.levels {
			if level%4 == 0 {
				h = rng.Hash(stream, next)
				next++
			}
			x := int32(h & 0xffff)
			h >>= 16
			// The number of bounds at or below x is the quadrant: its upper bit is the source's, its lower the
			// destination's.
			q := uint32(r.bounds[0]-1-x)>>31 + uint32(r.bounds[1]-1-x)>>31 + uint32(r.bounds[2]-1-x)>>31
			u, v = u<<1|uint64(q>>1), v<<1|uint64(q&1)
		}
		if u < r.nodes && v < r.nodes {
			return u, v
		}
		if redraw == maxRedraws {
			return u % r.nodes, v % r.nodes
		}
	}
}

// permute is a bijection of [0, nodes): one of [0, 2^levels), applied until the result is in range.
func (r *rmatEdges) permute(x uint64) uint32 {
	mask := uint64(1)<<r.levels - 1
	for {
		for i := range r.multiply {
			x = (x*r.multiply[i] + r.add[i]) & mask
			x ^= x >> r.halfShift
		}
		if x < r.nodes {
			return uint32(x)
		}
	}
}

// SBMOptions are the options of SBM.
type SBMOptions struct {
	GenerateOptions
	// Homophily is the expected share of edges within a class.
	Homophily float64
	// Separation is the root mean square distance between the mean features of two classes, in standard deviations of
	// the noise of a feature.
	Separation float64
}

// maxMeans bounds Classes * Features, which are in memory.
const maxMeans = 1 << 26

// SBM is a generator of graphs that can be learnt: a stochastic block model (Holland, Laskey, Leinhardt 1983) given the
// number of edges. Node v is in block v mod Classes, which is its class. The source of an edge is uniform; its
// destination is uniform within the same block with probability Homophily, and otherwise uniform outside of it. Edges
// are undirected: both directions are stored. Features are Gaussian around the mean of the class.
func SBM(o SBMOptions) (Source, error) {
	if err := o.check(); err != nil {
		return nil, err
	}
	if !(o.Homophily >= 0 && o.Homophily <= 1) {
		return nil, badOptions("--homophily %v (want 0 to 1)", o.Homophily)
	}
	if !(o.Separation >= 0 && o.Separation <= 1e6) {
		return nil, badOptions("--separation %v (want 0 to 1e6)", o.Separation)
	}
	if means := int64(o.Classes) * int64(o.Features); means > maxMeans {
		return nil, badOptions("--classes %d times --features %d is more than %d", o.Classes, o.Features, maxMeans)
	}
	s := newSynthetic("sbm", o.GenerateOptions, Undirected)
	s.info.Input["homophily"] = formatFloat(o.Homophily)
	s.info.Input["separation"] = formatFloat(o.Separation)

	// A component of the difference of two means has the variance 2*scale^2.
	means, scale := rng.Derive(o.Seed, "means"), o.Separation/math.Sqrt(2*float64(o.Features))
	s.means = make([]float64, o.Classes*o.Features)
	s.info.FeatureBytes = 8 * int64(len(s.means))
	for i := range s.means {
		s.means[i] = scale * rng.Normal(means, uint64(i))
	}
	s.class = func(v uint64) int32 { return int32(v % uint64(o.Classes)) }
	edges := rng.Derive(o.Seed, "edges")
	n, blocks := uint64(o.Nodes), uint64(o.Classes)
	s.edge = func(i uint64) (src, dst uint32) {
		stream := rng.Hash(edges, i)
		u := below(rng.Hash(stream, 0), n)
		within := rng.Float64(rng.Hash(stream, 1)) < o.Homophily
		return uint32(u), uint32(sbmNeighbor(u, n, blocks, within, rng.Hash(stream, 2)))
	}
	return s, nil
}

// sbmNeighbor picks one of the other nodes of u's block, or, if within is false or there are none, a node outside of
// it. (In a graph of one node it is u.)
func sbmNeighbor(u, n, blocks uint64, within bool, h uint64) uint64 {
	block := u % blocks
	size := (n-1-block)/blocks + 1
	if size == n && n == 1 {
		return u
	}
	if size > 1 && within || size == n {
		j := below(h, size-1)
		if j >= u/blocks {
			j++
		}
		return block + j*blocks
	}
	// Without this block, node ids come in groups of blocks-1.
	t := below(h, n-size)
	group, at := t/(blocks-1), t%(blocks-1)
	if at >= block {
		at++
	}
	return group*blocks + at
}
