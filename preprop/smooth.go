package preprop

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"slices"

	"github.com/hopfeed/hopfeed/format"
	"github.com/hopfeed/hopfeed/internal/dtype"
	"github.com/hopfeed/hopfeed/preprop/operator"
	"github.com/hopfeed/hopfeed/preprop/product"
)

// Smoothing are the parameters of Correct and Smooth (Huang et al. 2021, arXiv 2010.13993, section 2). S is
// D^-1/2 A D^-1/2 of the graph as given, without self-loops that it does not have. In a typed graph, S is the mean over
// metapaths of the products of these matrices of their relations, whose two D are the degrees of either side.
type Smoothing struct {
	// Metapaths lead from the target of a typed graph to itself, as paper<author<paper. None: all of one relation or,
	// where there are none, all of two.
	Metapaths    []string
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

// paths are the relations of the metapaths, each from the target on. A graph of one type is a path of one relation
// without names.
func (o *Smoothing) paths(graph *format.Dir) (all [][]format.Relation, err error) {
	t := graph.Typed
	if t == nil {
		if len(o.Metapaths) > 0 {
			return nil, fmt.Errorf("%s has one type of nodes, so there are no metapaths (leave them out)", graph.Path())
		}
		return [][]format.Relation{{{}}}, nil
	}
	for _, text := range o.Metapaths {
		path, err := newTypedMatrices(t).parse(text)
		if err != nil {
			return nil, err
		}
		if end := path[len(path)-1].Source; end != t.Target {
			return nil, fmt.Errorf("metapath %q ends at %s: predictions travel from %s to %s", text, end, t.Target, t.Target)
		}
		all = append(all, path)
	}
	for hops := 1; hops <= 2 && len(all) == 0; hops++ {
		all = pathsToItself(t, hops)
	}
	if len(all) == 0 {
		return nil, fmt.Errorf("%s has no metapath of one or two relations from %s to %s: give one", graph.TypedPath,
			t.Target, t.Target)
	}
	return all, nil
}

// pathsToItself lists the metapaths of exactly hops relations from the target to itself.
func pathsToItself(t *format.Typed, hops int) (all [][]format.Relation) {
	_ = eachPath(t, hops, func(path []format.Relation) error {
		if len(path) == hops && path[hops-1].Source == t.Target {
			all = append(all, path)
		}
		return nil
	})
	return all
}

// openEdges opens the edges of a relation of paths.
func openEdges(graph *format.Dir, r format.Relation) (*format.Dir, error) {
	if graph.Typed == nil {
		return format.OpenGraph(graph.FS(), graph.Path())
	}
	return graph.Typed.OpenRelation(graph.FS(), graph.TypedPath, r)
}

// betweenRows is how many rows each of two matrices must have for what has come to other types along paths: relation k
// of a path writes matrix k%2, and relation 0 none of them.
func betweenRows(t *format.Typed, paths [][]format.Relation) (rows [2]int64) {
	for _, path := range paths {
		for k, r := range path[1:] {
			n, _ := t.Type(r.Destination)
			rows[(k+1)%2] = max(rows[(k+1)%2], n.Nodes)
		}
	}
	return rows
}

// SmoothBytes bounds the memory of Smooth for a graph, or for the target of a typed one, with the predictions.
func SmoothBytes(graph *format.Dir, o Smoothing) (bytes int64, err error) {
	paths, err := o.paths(graph)
	if err != nil {
		return 0, fmt.Errorf("%w: %w", ErrOptions, err)
	}
	between := betweenRows(graph.Typed, paths)
	m := &graph.Manifest
	bytes = 4*int64(m.Classes)*(4*m.Nodes+between[0]+between[1]) + 4*m.Nodes
	counted := map[format.Relation]bool{}
	for _, path := range paths {
		for _, r := range path {
			if counted[r] {
				continue
			}
			counted[r] = true
			d, err := openEdges(graph, r)
			if err != nil {
				return 0, err
			}
			m, edge := &d.Manifest, int64(4)
			if m.Weighted {
				edge = 8
			}
			// Offsets; factors of both ends, and degrees while these are found.
			bytes += edge*m.Edges + 8*m.Nodes + 4*m.Nodes + 12*cmp.Or(m.SourceNodes, m.Nodes)
			if err := d.Close(); err != nil {
				return 0, err
			}
		}
	}
	return bytes, nil
}

// Smooth corrects and smooths the predictions z [nodes, classes] for all nodes of a graph (if it is typed, of its
// target) in place, by the labels of the training nodes of a split. Rows of z then need not add up to 1.
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
	s := &smoother{Smoothing: o, z: z, nodes: m.Nodes, classes: m.Classes, threads: threads,
		labels: product.Labels{Columns: m.Classes}, edges: map[format.Relation]*product.MemoryTopology{}}
	if s.relations, err = o.paths(graph); err != nil {
		return fmt.Errorf("%w: %w", ErrOptions, err)
	}
	if err := s.labels.Load(ctx, graph, split); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.close()) }()
	if err := s.open(ctx, graph); err != nil {
		return err
	}
	if err := s.correct(ctx); err != nil {
		return err
	}
	return s.smooth(ctx)
}

// smoother holds the matrices of Smooth, all float32 [nodes, classes].
type smoother struct {
	Smoothing
	relations   [][]format.Relation // of metapaths: see Smoothing.paths
	edges       map[format.Relation]*product.MemoryTopology
	labels      product.Labels
	z           []float32
	nodes       int64
	classes     int
	threads     int
	start, x, y *product.Matrix    // what a propagation starts from; the last step and the next
	between     [2]*product.Matrix // of other types: see betweenRows
}

// open reads the edges, and makes room for the matrices.
func (s *smoother) open(ctx context.Context, graph *format.Dir) error {
	for _, path := range s.relations {
		for _, r := range path {
			if s.edges[r] != nil {
				continue
			}
			d, err := openEdges(graph, r)
			if err != nil {
				return err
			}
			csc, err := d.Topology(ctx, s.threads)
			if err == nil {
				s.edges[r] = &product.MemoryTopology{CSC: csc}
			}
			if err := errors.Join(err, d.Close()); err != nil {
				return err
			}
		}
	}
	between := betweenRows(graph.Typed, s.relations)
	for _, m := range []struct {
		place **product.Matrix
		rows  int64
	}{{&s.start, s.nodes}, {&s.x, s.nodes}, {&s.y, s.nodes}, {&s.between[0], between[0]}, {&s.between[1], between[1]}} {
		var err error
		if *m.place, err = product.NewMatrix(m.rows, s.classes, format.Float32); err != nil {
			return err
		}
	}
	return nil
}

func (s *smoother) close() (err error) {
	for _, edges := range s.edges {
		err = errors.Join(err, edges.Close())
	}
	for _, m := range []*product.Matrix{s.start, s.x, s.y, s.between[0], s.between[1]} {
		if m != nil {
			err = errors.Join(err, m.Buf.Free())
		}
	}
	return err
}

// eachRow calls body with each node that is labelled for training, or not, and its row of z.
func (s *smoother) eachRow(training bool, body func(v int64, z []float32)) {
	for v := range s.nodes {
		if s.labels.IsTraining(v) == training {
			body(v, s.z[v*int64(s.classes):][:s.classes])
		}
	}
}

func row(m *product.Matrix, v int64) []float32 { return dtype.Float32s(m.Rows(v, v+1)) }

// propagate computes, for E in s.start, from X = E, as many steps of X <- (1-alpha) E + alpha S X.
func (s *smoother) propagate(ctx context.Context, alpha float64) error {
	return s.steps(ctx, operator.Sym, alpha, 1-alpha, func() {})
}

// steps computes s.x, from s.start, by steps of X <- factor B X + theta E, each followed by after. B is the mean over
// metapaths of the products of an operator of their relations.
func (s *smoother) steps(ctx context.Context, name string, factor, theta float64, after func()) (err error) {
	products := map[format.Relation]*product.Propagator{}
	defer func() {
		for _, p := range products {
			err = errors.Join(err, p.Buf.Free())
		}
	}()
	for r, edges := range s.edges {
		o := operator.Operator{Name: name, NoLoops: true, Metapath: r.Source}
		if products[r], err = product.NewPropagator(ctx, edges, o, s.threads,
			product.Alone(ctx, edges, s.threads)); err != nil {
			delete(products, r)
			return err
		}
	}
	copy(s.x.Buf.Bytes(), s.start.Buf.Bytes())
	for range s.Steps {
		for i, path := range s.relations {
			with := &product.Blend{Factor: float32(factor / float64(len(s.relations))), Theta: float32(theta), X: s.start}
			if i > 0 { // add to what other metapaths have brought
				with.Theta, with.X = 1, s.y
			}
			from := s.x
			for k, r := range slices.Backward(path) {
				to, blend := s.between[k%2], (*product.Blend)(nil)
				if k == 0 {
					to, blend = s.y, with
				}
				if err := context.Cause(ctx); err != nil {
					return err
				}
				if _, err := products[r].Hop(ctx, to, from, blend, nil, s.threads, func(int64) {}); err != nil {
					return err
				}
				from = to
			}
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
		if err := s.steps(ctx, operator.RW, 1, 0, func() {
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
