package ingest

import (
	"context"
	"fmt"
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
	Labeled      float64 // share of nodes with a label; of these 60 % train, 20 % valid, 20 % test
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
