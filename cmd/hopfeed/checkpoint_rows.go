package main

import (
	"cmp"
	"context"
	"hash/crc32"
	"slices"

	"github.com/hopfeed/hopfeed/format"
	"github.com/hopfeed/hopfeed/internal/dtype"
	"github.com/hopfeed/hopfeed/tools/session"
	"github.com/hopfeed/hopfeed/trainer"
)

// labelledRows are node and label of each row of a store. Where a row has several labels, or values, a
// digest stands for the label.
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
		if target, _ := targetOf(&store.Manifest); target == trainer.ClassTarget {
			if err := store.ReadLabels(ctx, region, r.labels[lo:hi]); err != nil {
				return r, err
			}
		}
	}
	if target, _ := targetOf(&store.Manifest); target != trainer.ClassTarget {
		return r, store.VisitRows(ctx, func(t *format.RowTable, first int64) {
			for i := range t.Rows {
				r.labels[first+i] = labelDigest(t, i)
			}
		})
	}
	return r, nil
}

// labelDigest tells the labels of a row apart from those of others; it is -1 if all are missing.
func labelDigest(t *format.RowTable, row int64) int32 {
	lo, hi := row*int64(t.LabelColumns), (row+1)*int64(t.LabelColumns)
	var bytes []byte
	missing := true
	if t.MultiLabels != nil {
		labels := t.MultiLabels[lo:hi]
		bytes, missing = dtype.BytesOf(labels), !slices.ContainsFunc(labels, func(v int8) bool { return v >= 0 })
	} else {
		labels := t.LabelValues[lo:hi]
		bytes, missing = dtype.BytesOf(labels), !slices.ContainsFunc(labels, func(v float32) bool { return v == v })
	}
	if missing {
		return -1
	}
	return int32(crc32.ChecksumIEEE(bytes) >> 1)
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
func (r labelledRows) split(store *format.Dir, p session.Partition) (s trainer.Split) {
	parts := make([]uint8, len(r.nodes))
	rows := 0
	for _, part := range p.Parts() {
		part.Each(store, func(row int64) {
			if parts[row] = part.Split; part.Split != format.SplitNone {
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
