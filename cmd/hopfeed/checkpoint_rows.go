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
		if store.Manifest.Kind == format.KindGraph {
			for row := lo; row < hi; row++ {
				r.nodes[row] = uint32(row)
			}
		} else if err := store.ReadNodes(ctx, region, r.nodes[lo:hi]); err != nil {
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
	if !t.Labelled(row) {
		return -1
	}
	lo, hi := row*int64(t.LabelColumns), (row+1)*int64(t.LabelColumns)
	var bytes []byte
	if t.MultiLabels != nil {
		bytes = dtype.BytesOf(t.MultiLabels[lo:hi])
	} else {
		bytes = dtype.BytesOf(t.LabelValues[lo:hi])
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

// comparison is what the nodes of a store are to those that a model was trained on.
type comparison struct {
	parts []uint8 // of each row, in the split of the training; nil: the store has other nodes
	grown bool    // with other nodes: labels are as of the same nodes, but there are more or fewer of them
}

// compare finds the rows of a store in the split that a model was trained on. The nodes are the same if both were
// propagated from the same graph, or if there are as many and their labels say so: see sameNodes. Some may be
// missing among the rows, or have another label.
func (r labelledRows) compare(store *format.Dir, c *trainer.Checkpoint) (found comparison) {
	parts := make([]uint8, len(r.nodes))
	rows, s := r.byNode(), &c.Split
	most := min(len(r.nodes), len(s.Nodes))
	trained, stored := make([]int32, 0, most), make([]int32, 0, most)
	inSplit, inStore := 0, 0 // labelled nodes
	for _, label := range r.labels {
		if label >= 0 {
			inStore++
		}
	}
	for i, node := range s.Nodes {
		if s.Labels[i] >= 0 {
			inSplit++
		}
		for len(rows) > 0 && r.nodes[rows[0]] < node {
			rows = rows[1:]
		}
		if len(rows) == 0 || r.nodes[rows[0]] != node {
			continue
		}
		row := rows[0]
		if parts[row] = s.Parts[i]; s.Labels[i] >= 0 && r.labels[row] >= 0 {
			trained, stored = append(trained, s.Labels[i]), append(stored, r.labels[row])
		}
	}
	m := &store.Manifest
	switch {
	case c.Data.SameRows(identityOf(m)):
		found.parts = parts
	case !sameNodes(max(m.Nodes, c.Data.Nodes), inSplit, inStore, trained, stored):
	case m.Nodes == c.Data.Nodes:
		found.parts = parts
	default:
		found.grown = true
	}
	return found
}

// sameNodes tells whether two graphs have the same nodes, from their labels: of n nodes, the first graph has
// labels of so many, the second of so many, and both of some by number, which are a and b. The nodes are the
// same if the number of those, and the part of them that agrees, are nearer to what is possible than to what
// chance gives: each label belongs to a random node. So a graph is known that was imported again with other edges,
// without some labels, or with corrected ones. It sorts a and b.
func sameNodes(n int64, first, second int, a, b []int32) bool {
	both, agree := float64(len(a)), 0.0
	for i, label := range a {
		if label == b[i] {
			agree++
		}
	}
	slices.Sort(a)
	slices.Sort(b)
	chance := 0.0
	for i, j := 0, 0; i < len(a); {
		label, inA, inB := a[i], 0.0, 0.0
		for ; i < len(a) && a[i] == label; i++ {
			inA++
		}
		for ; j < len(b) && b[j] <= label; j++ {
			if b[j] == label {
				inB++
			}
		}
		chance += inA * inB / both
	}
	overlap := float64(first) * float64(second) / float64(n)
	return both > 0 && 2*both >= overlap+float64(min(first, second)) && 2*agree >= chance+both
}
