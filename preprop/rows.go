package preprop

import (
	"cmp"
	"slices"

	"github.com/hopfeed/hopfeed/format"
)

// storeRows picks the nodes of a store and orders them: by region of the split,
// train rows by (format.TrainKey, node), others by node.
func storeRows(graph *format.RowTable, rowSet string, split int, seed uint64) ([]uint32, []format.RegionSize) {
	names := map[uint8]string{
		format.SplitTrain: format.RegionTrain, format.SplitValid: format.RegionValid,
		format.SplitTest: format.RegionTest, format.SplitNone: format.RegionRest,
	}
	var nodes []uint32
	var sizes []format.RegionSize
	for _, value := range []uint8{format.SplitTrain, format.SplitValid, format.SplitTest, format.SplitNone} {
		from := len(nodes)
		for v := range graph.Rows {
			in := format.SplitNone
			if graph.NumSplits > 0 {
				in = graph.Splits[v*int64(graph.NumSplits)+int64(split)]
			}
			if in == value && (rowSet == format.RowsAll || labeled(graph, v)) {
				nodes = append(nodes, uint32(v))
			}
		}
		if value == format.SplitTrain {
			sortByTrainKey(nodes, seed)
		}
		sizes = append(sizes, format.RegionSize{Name: names[value], Rows: int64(len(nodes) - from)})
	}
	return nodes, sizes
}

// labeled tells whether node v is in the row set format.RowsLabeled: it has a
// label, or is in any of the splits that the graph ships, chosen or not.
func labeled(graph *format.RowTable, v int64) bool {
	k := int64(graph.NumSplits)
	for _, in := range graph.Splits[v*k : (v+1)*k] {
		if in != format.SplitNone {
			return true
		}
	}
	if graph.Labels != nil {
		return graph.Labels[v] >= 0
	}
	l := int64(graph.LabelColumns)
	return graph.MultiLabels != nil && slices.ContainsFunc(graph.MultiLabels[v*l:(v+1)*l],
		func(label int8) bool { return label >= 0 })
}

func sortByTrainKey(nodes []uint32, seed uint64) {
	type entry struct {
		key  uint64
		node uint32
	}
	entries := make([]entry, len(nodes))
	for i, v := range nodes {
		entries[i] = entry{format.TrainKey(seed, v), v}
	}
	slices.SortFunc(entries, func(a, b entry) int {
		return cmp.Or(cmp.Compare(a.key, b.key), cmp.Compare(a.node, b.node))
	})
	for i, e := range entries {
		nodes[i] = e.node
	}
}

// pickRows is the row table of a store with these nodes.
func pickRows(graph *format.RowTable, nodes []uint32) *format.RowTable {
	return &format.RowTable{
		Rows:         int64(len(nodes)),
		NodeID:       nodes,
		Labels:       pick(graph.Labels, 1, nodes),
		MultiLabels:  pick(graph.MultiLabels, graph.LabelColumns, nodes),
		LabelColumns: graph.LabelColumns,
		Splits:       pick(graph.Splits, graph.NumSplits, nodes),
		NumSplits:    graph.NumSplits,
		OrigID:       pick(graph.OrigID, 1, nodes),
	}
}

// pick is rows of width elements; an absent column stays absent.
func pick[T any](column []T, width int, nodes []uint32) []T {
	if column == nil {
		return nil
	}
	out := make([]T, 0, len(nodes)*width)
	for _, v := range nodes {
		out = append(out, column[int(v)*width:(int(v)+1)*width]...)
	}
	return out
}
