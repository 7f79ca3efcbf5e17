package preprop

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/hopfeed/hopfeed/format"
	"github.com/hopfeed/hopfeed/preprop/operator"
)

// takeNormalization takes the operator from a store, if the user did not set it.
func (o *Options) takeNormalization(m *format.Manifest) error {
	if !o.Defaulted.Operators || len(m.Operators) == 0 {
		return nil
	}
	first, err := operator.Parse(m.Operators[0].Name)
	if err == nil {
		o.Operators, o.Defaulted.Operators = []operator.Operator{{Name: first.Name}}, false
	}
	return err
}

// addStored adds the metapaths that a store has.
func (m *typedMatrices) addStored(store *format.Manifest) (hops int, err error) {
	for _, one := range store.Operators {
		o, err := operator.Parse(one.Name)
		if err != nil {
			return 0, err
		}
		if o.Labels {
			continue
		}
		path, err := m.add(o.Metapath)
		if err != nil {
			return 0, err
		}
		hops = max(hops, path)
	}
	return hops, nil
}

// findSame finds what is taken over from the earlier store, once the rows of the new one are known.
func (t *typedJob) findSame(ctx context.Context) error {
	e := t.earlier
	if e == nil {
		return nil
	}
	if reason, err := t.whyFresh(ctx); err != nil || reason != "" {
		if e.taken.Fresh = reason; reason != "" {
			t.options.Note(fmt.Sprintf("%s: all matrices are computed: %s", t.storeDir, reason))
		}
		return err
	}
	relations := map[string]bool{}
	for i, r := range t.typed.Relations {
		relations[r.String()] = r.Fingerprint == e.typed.Relations[i].Fingerprint
	}
	own, _ := t.typed.Type(t.typed.Target)
	before, _ := e.typed.Type(t.typed.Target)
	old := &e.store.Manifest
	labels := *own == *before && old.Split == t.target.Split && old.LabelHops == t.target.LabelHops
	changed := map[*typedMatrix]bool{}
	for _, n := range t.order { // inputs first
		switch {
		case len(n.relations) > 0:
			changed[n] = slices.ContainsFunc(n.relations, func(r format.Relation) bool { return !relations[r.String()] }) ||
				slices.ContainsFunc(n.inputs, func(x *typedMatrix) bool { return changed[x] })
		case n.labels:
			changed[n] = !labels
		default:
			same, err := t.sameFeatures(n.source.Name)
			if err != nil {
				return err
			}
			changed[n] = !same
		}
		for _, name := range n.stored {
			id := t.id(n, name)
			e.same[id] = !changed[n] && slices.Contains(e.store.Matrices(), id)
		}
	}
	if !t.target.NoInput {
		same, err := t.sameFeatures(own.Name)
		if err != nil {
			return err
		}
		e.same[format.Input] = same
	}
	for _, id := range t.target.matrices() {
		rows := t.target.StoredRows
		if e.same[id] {
			rows = 0
		}
		e.taken.Computed = append(e.taken.Computed, rows)
	}
	return nil
}

// whyFresh says why nothing can be taken over; "": something may.
func (t *typedJob) whyFresh(ctx context.Context) (reason string, err error) {
	e := t.earlier
	names := func(typed *format.Typed) (all []string) {
		for _, n := range typed.Types {
			all = append(all, n.Name)
		}
		for _, r := range typed.Relations {
			all = append(all, r.String())
		}
		return append(all, typed.Target)
	}
	l := e.store.Layout()
	switch {
	case !slices.Equal(names(t.typed), names(e.typed)):
		return fmt.Sprintf("%s has other types or relations", e.taken.Graph), nil
	case l.DType != t.layout.DType:
		return fmt.Sprintf("%s has features of another type", e.taken.Store), nil
	}
	rowOf, err := rowsOf(ctx, e.store, t.graph.Manifest.Nodes)
	if err != nil {
		return "", err
	}
	same := slices.EqualFunc(l.Regions, regionSizes(t.layout), func(a format.Region, b format.RegionSize) bool {
		return a.Name == b.Name && a.Rows == b.Rows
	})
	for i, v := range t.table.NodeID {
		if rowOf[v] == noRow {
			return fmt.Sprintf("%s has no row of node %d", e.taken.Store, v), nil
		}
		same = same && rowOf[v] == uint32(i)
	}
	if !same {
		e.rowOf = rowOf
	}
	return "", nil
}

// sameFeatures tells whether the features of a type are those of the earlier graph.
func (t *typedJob) sameFeatures(nodeType string) (same bool, err error) {
	now, _ := t.typed.Type(nodeType)
	before, _ := t.earlier.typed.Type(nodeType)
	if *now == *before || now.Features == 0 || now.Features != before.Features {
		return *now == *before, nil
	}
	a, err := t.typed.OpenNodes(t.fsys, t.graphDir, nodeType)
	if err != nil {
		return false, err
	}
	defer func() { err = errors.Join(err, a.Close()) }()
	b, err := t.earlier.typed.OpenNodes(t.fsys, t.earlier.taken.Graph, nodeType)
	if err != nil {
		return false, err
	}
	defer func() { err = errors.Join(err, b.Close()) }()
	return format.SameFeatures(a, b), nil
}

// takesOver tells whether a matrix is taken over from an earlier store.
func (t *typedJob) takesOver(id format.MatrixID) bool { return t.earlier != nil && t.earlier.same[id] }

// takeOver takes over what is the same in the earlier store.
func (t *typedJob) takeOver(ctx context.Context) error {
	for _, id := range t.target.matrices() {
		if !t.takesOver(id) || t.store.Finished(id) {
			continue
		}
		from, err := t.earlier.store.Matrix(id)
		if err != nil {
			return err
		}
		to, err := t.store.Matrix(id)
		if err == nil {
			err = t.earlier.takeRows(ctx, to, from, t.table.NodeID)
		}
		if err == nil {
			err = to.Close()
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// takeRows writes a matrix from the earlier one: the rows of these nodes.
func (e *earlier) takeRows(ctx context.Context, to *format.MatrixWriter, from *format.Matrix,
	nodes []uint32) (err error) {
	rows, taken := int64(len(nodes)), int64(0)
	if e.rowOf == nil {
		taken, err = to.Adopt(from, rows)
	}
	l := e.store.Layout()
	readers := make([]*format.RowReader, len(l.Regions)) // rows of one region keep their order, mostly
	for i := range readers {
		readers[i] = &format.RowReader{Matrix: from}
	}
	for row := taken; row < rows && err == nil; row++ {
		at := row
		if e.rowOf != nil {
			at = int64(e.rowOf[nodes[row]])
		}
		var data []byte
		if data, err = readers[regionOf(&l, at)].Row(at); err == nil {
			err = errors.Join(context.Cause(ctx), to.Write(data))
		}
	}
	return err
}
