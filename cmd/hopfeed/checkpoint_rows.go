package main

import (
	"cmp"
	"context"
	"slices"

	"github.com/hopfeed/hopfeed/format"
	"github.com/hopfeed/hopfeed/tools/session"
	"github.com/hopfeed/hopfeed/trainer"
)

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
