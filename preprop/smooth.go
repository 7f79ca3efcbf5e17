package preprop

import (
	"context"
	"errors"
	"fmt"
	"math"

	"github.com/hopfeed/hopfeed/format"
	"github.com/hopfeed/hopfeed/internal/dtype"
	"github.com/hopfeed/hopfeed/preprop/operator"
	"github.com/hopfeed/hopfeed/preprop/product"
)

// Smoothing are the parameters of Correct and Smooth (Huang et al. 2021, arXiv 2010.13993, section 2). S is
// D^-1/2 A D^-1/2 of the graph as given, without self-loops that it does not have.
type Smoothing struct {
	Fixed        bool    // the residuals of training nodes stay fixed (FDiff-scale); else Autoscale
	Scale        float64 // of corrections, if Fixed
	CorrectAlpha float64 // of residuals, unless Fixed: the weight of neighbours
	SmoothAlpha  float64 // of labels and corrected predictions
	Steps        int     // of each propagation
}

// Check fails for parameters out of range.
func (o *Smoothing) Check() error {
	for _, alpha := range []float64{o.CorrectAlpha, o.SmoothAlpha} {
		if !(alpha >= 0 && alpha <= 1) {
			return fmt.Errorf("alpha is %v: it must be from 0 to 1", alpha)
		}
	}
	if o.Steps < 1 || o.Steps > format.MaxHops {
		return fmt.Errorf("%d steps: there can be 1 to %d", o.Steps, format.MaxHops)
	}
	if !(o.Scale > 0 && o.Scale <= math.MaxFloat32) {
		return fmt.Errorf("scale is %v: it must be finite and above 0", o.Scale)
	}
	return nil
}

// SmoothBytes bounds the memory of Smooth, with the predictions.
func SmoothBytes(g *format.Manifest) int64 {
	edge := int64(4)
	if g.Weighted {
		edge = 8
	}
	return 4*4*g.Nodes*int64(g.Classes) + edge*g.Edges + (8+4+8)*g.Nodes
}

// Smooth corrects and smooths the predictions z [nodes, classes] for all nodes of a graph, in place, by the labels of
// the training nodes of a split. Rows of z then need not add up to 1.
func Smooth(ctx context.Context, graph *format.Dir, split int, z []float32, o Smoothing, threads int) (err error) {
	m := &graph.Manifest
	if err := o.Check(); err != nil {
		return fmt.Errorf("%w: %w", ErrOptions, err)
	}
	if m.Labels != 1 || m.LabelValues || split < 0 || split >= m.Splits {
		return fmt.Errorf("%s: %w: predictions are smoothed by the classes of training nodes, and the graph has %d columns "+
			"of labels and %d splits (it needs 1, with classes, and split %d)", graph.Path(), ErrOptions, m.Labels, m.Splits,
			split)
	}
	if int64(len(z)) != m.Nodes*int64(m.Classes) {
		return fmt.Errorf("%s: %w: there are %d predictions for %d nodes and %d classes", graph.Path(), ErrOptions, len(z),
			m.Nodes, m.Classes)
	}
	s := &smoother{Smoothing: o, z: z, classes: m.Classes, threads: threads, labels: product.Labels{Columns: m.Classes}}
	if err := s.labels.Load(ctx, graph, split); err != nil {
		return err
	}
	csc, err := graph.Topology(ctx, threads)
	if err != nil {
		return err
	}
	s.graph = &product.MemoryTopology{CSC: csc}
	defer func() { err = errors.Join(err, s.close()) }()
	for _, place := range []**product.Matrix{&s.start, &s.x, &s.y} {
		if *place, err = product.NewMatrix(m.Nodes, m.Classes, format.Float32); err != nil {
			return err
		}
	}
	if err := s.correct(ctx); err != nil {
		return err
	}
	return s.smooth(ctx)
}

// smoother holds the matrices of Smooth, all float32 [nodes, classes].
type smoother struct {
	Smoothing
	graph       *product.MemoryTopology
	labels      product.Labels
	z           []float32
	classes     int
	threads     int
	start, x, y *product.Matrix // what a propagation starts from; the last step and the next
}

func (s *smoother) close() error {
	err := s.graph.Close()
	for _, m := range []*product.Matrix{s.start, s.x, s.y} {
		if m != nil {
			err = errors.Join(err, m.Buf.Free())
		}
	}
	return err
}

// eachRow calls body with each node that is labelled for training, or not, and its row of z.
func (s *smoother) eachRow(training bool, body func(v int64, z []float32)) {
	for v := range s.graph.Nodes() {
		if s.labels.IsTraining(v) == training {
			body(v, s.z[v*int64(s.classes):][:s.classes])
		}
	}
}

func row(m *product.Matrix, v int64) []float32 { return dtype.Float32s(m.Rows(v, v+1)) }

// propagate computes, for E in s.start, from X = E, as many steps of X <- (1-alpha) E + alpha S X.
func (s *smoother) propagate(ctx context.Context, alpha float64) error {
	return s.steps(ctx, operator.Sym, &product.Blend{Factor: float32(alpha), Theta: float32(1 - alpha), X: s.start},
		func() {})
}

// steps computes s.x, from s.start, by steps of an operator, each followed by after.
func (s *smoother) steps(ctx context.Context, name string, with *product.Blend, after func()) error {
	p, err := product.NewPropagator(ctx, s.graph, operator.Operator{Name: name, NoLoops: true}, s.threads,
		product.Alone(ctx, s.graph, s.threads))
	if err != nil {
		return err
	}
	defer p.Buf.Free()
	copy(s.x.Buf.Bytes(), s.start.Buf.Bytes())
	for range s.Steps {
		if err := context.Cause(ctx); err != nil {
			return err
		}
		if _, err := p.Hop(ctx, s.y, s.x, with, nil, s.threads, func(int64) {}); err != nil {
			return err
		}
		s.x, s.y = s.y, s.x
		after()
	}
	return nil
}

// correct adds to predictions the residuals of training nodes, propagated. Rows of training nodes do not matter: smooth
// replaces them.
func (s *smoother) correct(ctx context.Context) error {
	clear(dtype.Float32s(s.start.Buf.Bytes()))
	sum, rows := 0.0, 0
	s.eachRow(true, func(v int64, z []float32) {
		residual := row(s.start, v)
		s.labels.Put(residual, v, 0)
		for c := range residual {
			residual[c] -= z[c]
			sum += math.Abs(float64(residual[c]))
		}
		rows++
	})
	if rows == 0 {
		return nil
	}
	if s.Fixed {
		if err := s.steps(ctx, operator.RW, nil, func() {
			s.eachRow(true, func(v int64, _ []float32) { copy(row(s.x, v), row(s.start, v)) })
		}); err != nil {
			return err
		}
	} else if err := s.propagate(ctx, s.CorrectAlpha); err != nil {
		return err
	}
	mean := sum / float64(rows) // the norm of a residual
	s.eachRow(false, func(v int64, z []float32) {
		correction, scale := row(s.x, v), s.Scale
		if !s.Fixed {
			norm := 0.0
			for _, x := range correction {
				norm += math.Abs(float64(x))
			}
			if norm == 0 { // no residual reaches it
				return
			}
			scale = mean / norm
		}
		for c, x := range correction {
			z[c] += float32(scale * float64(x))
		}
	})
	return nil
}

// smooth propagates the labels of training nodes and the predictions for others.
func (s *smoother) smooth(ctx context.Context) error {
	s.eachRow(true, func(v int64, z []float32) { s.labels.Put(z, v, 0) })
	copy(dtype.Float32s(s.start.Buf.Bytes()), s.z)
	if err := s.propagate(ctx, s.SmoothAlpha); err != nil {
		return err
	}
	copy(s.z, dtype.Float32s(s.x.Buf.Bytes()))
	return nil
}
