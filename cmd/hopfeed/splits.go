package main

import (
	"cmp"
	"context"
	"fmt"
	"slices"

	"github.com/hopfeed/hopfeed/format"
	"github.com/hopfeed/hopfeed/internal/vfs"
	"github.com/hopfeed/hopfeed/loader"
	"github.com/hopfeed/hopfeed/tools/npy"
	"github.com/hopfeed/hopfeed/trainer"
)

// partition divides the rows of a store by a split: rows that train, validate, test, or do none
// of these.
type partition struct {
	train, valid, test loader.Rows
	rest               loader.Rows // of no part
	scattered          bool        // they are lists of rows, not the regions of the store
}

// regionPartition is the split that the store is laid out by.
var regionPartition = partition{
	train: loader.Rows{Region: format.RegionTrain},
	valid: loader.Rows{Region: format.RegionValid},
	test:  loader.Rows{Region: format.RegionTest},
	rest:  loader.Rows{Region: format.RegionRest},
}

// rowParts lists the parts of the partition.
func (p partition) rowParts() []rowPart {
	return []rowPart{
		{format.RegionTrain, format.SplitTrain, p.train}, {format.RegionValid, format.SplitValid, p.valid},
		{format.RegionTest, format.SplitTest, p.test}, {format.RegionRest, format.SplitNone, p.rest},
	}
}

// rowPart is one part of a partition.
type rowPart struct {
	name string // of the region of a store that is laid out by the split
	part uint8  // format.Split*
	rows loader.Rows
}

// each calls do with the number of each row of the part.
func (p rowPart) each(store *format.Dir, do func(row int64)) {
	for _, row := range p.rows.List {
		do(int64(row))
	}
	if r, ok := store.Region(p.rows.Region); ok && p.rows.List == nil {
		for row := r.FirstRow; row < r.FirstRow+r.Rows; row++ {
			do(row)
		}
	}
}

// choosePartition returns split number split of a file or, without a file, of a store. With split
// < 0 it is the first one of the file, or the one that the store is laid out by.
func (a *app) choosePartition(ctx context.Context, store *format.Dir, split int, file string) (partition, error) {
	m := &store.Manifest
	if file == "" && (split < 0 || split == m.Split) {
		return regionPartition, nil
	}
	if file != "" {
		if err := a.budget.Fits(fmt.Sprintf("reading splits of %d nodes", m.Nodes), m.Nodes+rowListBytes*m.Rows); err != nil {
			return partition{}, err
		}
		return filePartition(ctx, a.fs, file, store, max(split, 0))
	}
	if split >= m.Splits {
		return partition{}, usagef("--split %d: the store has %d splits, numbered from 0", split, m.Splits)
	}
	if err := a.budget.Fits(fmt.Sprintf("splitting %d rows", m.Rows), rowListBytes*m.Rows); err != nil {
		return partition{}, err
	}
	return tablePartition(ctx, store, func(t *format.RowTable, i int64) uint8 { return t.Splits[i*int64(t.NumSplits)+int64(split)] })
}

// rows is the number of rows of one of its parts.
func (p partition) rows(store *format.Dir, part loader.Rows) int64 {
	if p.scattered {
		return int64(len(part.List))
	}
	region, _ := store.Region(part.Region)
	return region.Rows
}

// rowListBytes is what the part of a row and its number in the list of that part take.
const rowListBytes = 1 + 4

// partitionByRow makes a partition from the format.Split* of each row.
func partitionByRow(parts []uint8) partition {
	var counts [format.SplitTest + 1]int64
	for _, part := range parts {
		counts[part]++
	}
	var lists [format.SplitTest + 1][]uint32
	for part, rows := range counts {
		lists[part] = make([]uint32, 0, rows)
	}
	for row, part := range parts {
		lists[part] = append(lists[part], uint32(row))
	}
	list := func(part uint8) loader.Rows { return loader.Rows{List: lists[part]} }
	return partition{
		train: list(format.SplitTrain), valid: list(format.SplitValid), test: list(format.SplitTest), rest: list(format.SplitNone),
		scattered: true,
	}
}

// tablePartition takes the part of each row of a store from its row table.
func tablePartition(ctx context.Context, store *format.Dir, part func(t *format.RowTable, i int64) uint8) (partition, error) {
	parts := make([]uint8, store.Manifest.Rows)
	err := store.VisitRows(ctx, func(t *format.RowTable, first int64) {
		for i := range t.Rows {
			parts[first+i] = part(t, i)
		}
	})
	if err != nil {
		return partition{}, err
	}
	return partitionByRow(parts), nil
}

// filePartition is split number split of a file [k,n] or [n] over the nodes of
// the graph: 0 train, 1 valid, 2 test, -1 none.
func filePartition(ctx context.Context, fsys vfs.FS, path string, store *format.Dir, split int) (partition, error) {
	nodes := store.Manifest.Nodes
	invalid := func(format string, args ...any) (partition, error) {
		return partition{}, fmt.Errorf("%w: %s: %s", npy.ErrInvalid, path, fmt.Sprintf(format, args...))
	}
	array, err := npy.Open(fsys, path)
	if err != nil {
		return partition{}, err
	}
	defer array.Close()
	shape := array.Shape
	if len(shape) == 1 {
		shape = []int64{1, shape[0]}
	}
	switch {
	case !array.Type.IsInteger():
		return invalid("splits of %s (want integers)", array.Type)
	case len(shape) != 2 || shape[1] != nodes:
		return invalid("splits of shape %v for a graph of %d nodes (want [k,%d])", array.Shape, nodes, nodes)
	case int64(split) >= shape[0]:
		return partition{}, usagef("--split %d: %s has %d splits, numbered from 0", split, path, shape[0])
	}
	ofNodes := make([]uint8, 0, nodes)
	err = eachOfSplit(array, shape, int64(split), func(v int64) error {
		if v < -1 || v > 2 {
			_, err := invalid("split %d, node %d: %d is none of 0 (train), 1 (valid), 2 (test), -1 (none)", split, len(ofNodes), v)
			return err
		}
		ofNodes = append(ofNodes, uint8(v+1))
		return nil
	})
	if err != nil {
		return partition{}, err
	}
	return tablePartition(ctx, store, func(t *format.RowTable, i int64) uint8 { return ofNodes[t.NodeID[i]] })
}

// eachOfSplit calls do with each element of a row of an array [k,n], in order.
func eachOfSplit(array *npy.Array, shape []int64, row int64, do func(v int64) error) error {
	const block = 1 << 16 // elements that are read at a time
	at, stride, step := row*shape[1], int64(1), int64(block)
	if array.Fortran && shape[0] > 1 { // column by column
		at, stride, step = 0, shape[0], max(1, block/shape[0])
	}
	values := make([]int64, min(step, shape[1])*stride)
	for n := shape[1]; n > 0; n -= step {
		values = values[:min(step, n)*stride]
		if err := npy.Read(array, values, at); err != nil {
			return err
		}
		at += int64(len(values))
		for i := 0; i < len(values); i += int(stride) {
			v := values[i]
			if stride > 1 {
				v = values[i+int(row)]
			}
			if err := do(v); err != nil {
				return err
			}
		}
	}
	return nil
}

// labelledRows are node and label of each row of a store.
type labelledRows struct {
	nodes  []uint32
	labels []int32
}

func readLabelledRows(ctx context.Context, store *format.Dir) (r labelledRows, err error) {
	r = labelledRows{make([]uint32, store.Manifest.Rows), make([]int32, store.Manifest.Rows)}
	for _, region := range store.Layout().Regions {
		lo, hi := region.FirstRow, region.FirstRow+region.Rows
		if err := store.ReadNodes(ctx, region, r.nodes[lo:hi]); err != nil {
			return r, err
		}
		if err := store.ReadLabels(ctx, region, r.labels[lo:hi]); err != nil {
			return r, err
		}
	}
	return r, nil
}

// byNode are the numbers of the rows, ordered by node.
func (r labelledRows) byNode() []uint32 {
	rows := make([]uint32, len(r.nodes))
	for i := range rows {
		rows[i] = uint32(i)
	}
	slices.SortFunc(rows, func(a, b uint32) int { return cmp.Compare(r.nodes[a], r.nodes[b]) })
	return rows
}

// split converts a partition of rows to one of nodes, for the checkpoint.
func (r labelledRows) split(store *format.Dir, p partition) (s trainer.Split) {
	parts := make([]uint8, len(r.nodes))
	rows := 0
	for _, part := range p.rowParts() {
		part.each(store, func(row int64) {
			if parts[row] = part.part; part.part != format.SplitNone {
				rows++
			}
		})
	}
	s = trainer.Split{Nodes: make([]uint32, 0, rows), Parts: make([]uint8, 0, rows), Labels: make([]int32, 0, rows)}
	for _, row := range r.byNode() {
		if parts[row] != format.SplitNone {
			s.Nodes, s.Parts, s.Labels = append(s.Nodes, r.nodes[row]), append(s.Parts, parts[row]), append(s.Labels, r.labels[row])
		}
	}
	return s
}

// partsOf returns the part of each row of a store in the split that a model was trained on. It is nil
// if the store has other nodes: another number of them, or another label at a labelled one of the
// split.
func (r labelledRows) partsOf(store *format.Dir, c *trainer.Checkpoint) []uint8 {
	if store.Manifest.Nodes != c.Data.Nodes {
		return nil
	}
	parts := make([]uint8, len(r.nodes))
	rows, s := r.byNode(), &c.Split
	for i, node := range s.Nodes {
		for len(rows) > 0 && r.nodes[rows[0]] < node {
			rows = rows[1:]
		}
		found := len(rows) > 0 && r.nodes[rows[0]] == node
		if found {
			parts[rows[0]] = s.Parts[i]
		}
		if s.Labels[i] >= 0 && (!found || r.labels[rows[0]] != s.Labels[i]) {
			return nil
		}
	}
	return parts
}

// partitionOf returns the partition with these parts: the regions of the store if they agree.
func partitionOf(store *format.Dir, parts []uint8) partition {
	same := true
	for _, part := range regionPartition.rowParts() {
		part.each(store, func(row int64) { same = same && parts[row] == part.part })
	}
	if same {
		return regionPartition
	}
	return partitionByRow(parts)
}
