package preprop

import (
	"context"
	"fmt"

	"github.com/hopfeed/hopfeed/format"
	"github.com/hopfeed/hopfeed/preprop/operator"
	"github.com/hopfeed/hopfeed/preprop/plan"
	"github.com/hopfeed/hopfeed/preprop/product"
)

// In a typed graph, labels of training nodes travel along metapaths from the target back to it (SeHGNN, Yang et al.
// 2023, section 4.1): the store gets (B - diag(B)) Y of each metapath of up to LabelHops relations, B the product of
// its relations, as a matrix of its own. Steps make B Y like matrices of features; the elements that a node's own label
// would change are computed without it.

// planLabels finds the metapaths of labels: these or, without any, all of up to hops relations.
func (t *typedJob) planLabels(hops int, paths []string) error {
	if hops == 0 {
		return nil
	}
	m := &t.graph.Manifest
	if err := (&Options{Hops: format.MaxHops, LabelHops: hops}).checkLabels(m); err != nil {
		return err
	}
	labels := labelMatrices(t.typed, m.OneHotColumns())
	for _, path := range paths {
		if _, err := labels.add(path); err != nil {
			return err
		}
	}
	if len(paths) == 0 {
		if err := labels.addAllPaths(hops); err != nil {
			return err
		}
	}
	t.order = append(t.order, labels.inOrder()...)
	if len(labels.roots) == 0 {
		return fmt.Errorf("no metapath of up to %d relations leads from %s back to it, so labels cannot travel (give more "+
			"--label-hops, or leave them out)", hops, t.typed.Target)
	}
	t.options.LabelHops = hops
	return nil
}

// newLabels are the labels of all nodes of the target type.
func (t *typedJob) newLabels(hops int) *product.Labels {
	return newLabels(&t.graph.Manifest, 0, hops)
}

// labelMemory is the memory that leaving own labels out of a matrix takes: it has all topologies of its relations. It
// fails if that does not fit.
func (t *typedJob) labelMemory(n *typedMatrix) (bytes int64, err error) {
	own, _ := t.typed.Type(t.typed.Target)
	need := plan.ProcessBytes + plan.HeldBytes(&t.graph.Manifest, t.target.StoredRows)
	most := own.Nodes
	for _, step := range n.path() {
		from, _ := t.typed.Type(step.relations[0].Source)
		to, _ := t.typed.Type(step.relations[0].Destination)
		need += 8*to.Nodes + 8*step.relations[0].Edges + plan.FactorsBytes(t.operator(step, step.name), to.Nodes, from.Nodes)
		most = max(most, to.Nodes)
	}
	path := len(n.path())
	need += t.newLabels(path).Bytes(most, t.layout.Regions[0].Rows, 1, t.options.Threads)
	if t.options.MemoryBytes > 0 && need > t.options.MemoryBytes {
		err = fmt.Errorf("metapath %s: %w", n.title(n.name), plan.ErrDoesNotFit(t.options.MemoryBytes, need))
	}
	return need, err
}

// ownLabels is a function that changes columns of stored rows of B Y, as the store has them, to what the matrix has
// without a node's own label.
func (t *typedJob) ownLabels(ctx context.Context, n *typedMatrix) (func(rows []byte, s product.ColumnRange,
	first, end int64), error) {
	if err := t.reserve.Free(); err != nil {
		return nil, err
	}
	path := n.path()
	own := t.labels.Own(t.nodes, t.options.DType)
	products := make([]product.Level, len(path))
	ids := make([]format.MatrixID, len(path))
	ids[len(path)-1] = t.id(n, n.name)
	defer func() {
		for _, p := range products {
			if p.Propagator != nil {
				_ = p.Buf.Free()
			}
			if p.CSC != nil {
				_ = p.CSC.Close()
			}
		}
	}()
	for i, step := range path {
		if err := t.openLevel(ctx, &products[i], step.relations[0], t.operator(step, step.name)); err != nil {
			return nil, err
		}
	}
	if err := t.labels.Compute(ctx, own, products, t.nodes, t.options.DType, ids, t.options.Threads); err != nil {
		return nil, fmt.Errorf("metapath %s: %w", n.title(n.name), err)
	}
	return func(rows []byte, s product.ColumnRange, first, end int64) {
		t.labels.Clean(own, t.id(n, n.name), rows, s, first, end)
	}, nil
}

// openLevel reads the edges of a relation, and computes the factors of an operator.
func (t *typedJob) openLevel(ctx context.Context, to *product.Level, r format.Relation,
	o operator.Operator) (err error) {
	d, err := t.typed.OpenRelation(t.fsys, t.graphDir, r)
	if err != nil {
		return err
	}
	defer d.Close()
	if to.CSC, err = d.Topology(ctx, t.options.Threads); err != nil {
		return err
	}
	topology := &product.MemoryTopology{CSC: to.CSC}
	return product.WalkTogether(ctx, topology, t.options.Threads, func(walk product.WalkAll) (err error) {
		to.Propagator, err = product.NewPropagator(ctx, topology, o, t.options.Threads, walk)
		return err
	})
}
