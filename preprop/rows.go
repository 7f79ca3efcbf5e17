package preprop

import (
	"cmp"
	"context"
	"runtime/debug"
	"slices"
	"strings"

	"github.com/hopfeed/hopfeed/format"
	"github.com/hopfeed/hopfeed/preprop/plan"
)

// regionOrder is the regions of a store: where rows of each part of a split go.
var regionOrder = []struct {
	part uint8
	name string
}{
	{format.SplitTrain, format.RegionTrain}, {format.SplitValid, format.RegionValid},
	{format.SplitTest, format.RegionTest}, {format.SplitNone, format.RegionRest},
}

// stores tells, by the row table of the graph, whether the store has a row of node v, which is row i of the table.
func (o *Options) stores(t *format.RowTable, i, v int64) bool {
	switch o.Rows {
	case format.RowsAll:
		return true
	case format.RowsChosen:
		_, chosen := slices.BinarySearch(o.Nodes, uint32(v))
		return chosen
	}
	return labeled(t, i)
}

// storeRows chooses the nodes of a store, orders them by region of the split, train rows by (format.TrainKey, node)
// and others by node, and makes the row table of the store. It reads the row table of the graph three times, a chunk
// at a time. It calls fits with the sizes of the regions and their sum before it allocates memory for the rows.
func storeRows(ctx context.Context, graph *format.Dir, o *Options,
	fits func(sizes []format.RegionSize, rows int64) error) (*format.RowTable, error) {
	// each calls body with each row that the store has: its region, and its place in t.
	each := func(body func(t *format.RowTable, i, v int64, region int)) error {
		return graph.VisitRows(ctx, func(t *format.RowTable, first int64) {
			for i := range t.Rows {
				if !o.stores(t, i, first+i) {
					continue
				}
				part := format.SplitNone
				if t.NumSplits > 0 {
					part = t.Splits[i*int64(t.NumSplits)+int64(o.Split)]
				}
				for region, r := range regionOrder {
					if r.part == part {
						body(t, i, first+i, region)
					}
				}
			}
		})
	}
	sizes := make([]format.RegionSize, len(regionOrder))
	for region, r := range regionOrder {
		sizes[region].Name = r.name
	}
	total := int64(0)
	if err := each(func(_ *format.RowTable, _, _ int64, region int) { sizes[region].Rows++; total++ }); err != nil {
		return nil, err
	}
	if err := fits(sizes, total); err != nil {
		return nil, err
	}
	if plan.PickedBytes(&graph.Manifest, total) > plan.NoticeableBytes { // the table may not double the heap
		defer debug.SetGCPercent(debug.SetGCPercent(20))
	}
	next := make([]int64, len(regionOrder)) // row of each region
	begin := func() {
		at := int64(0)
		for region, size := range sizes {
			next[region] = at
			at += size.Rows
		}
	}
	begin()
	out := graph.Manifest.NewRowTable(total)
	out.NodeID = make([]uint32, total)
	err := each(func(_ *format.RowTable, _, v int64, region int) {
		out.NodeID[next[region]] = uint32(v)
		next[region]++
	})
	if err != nil {
		return nil, err
	}
	train := out.NodeID[:sizes[0].Rows]
	slices.SortFunc(train, func(a, b uint32) int {
		return cmp.Or(cmp.Compare(format.TrainKey(o.Seed, a), format.TrainKey(o.Seed, b)), cmp.Compare(a, b))
	})
	places := make([]uint32, len(train)) // of train rows, by node
	for i := range places {
		places[i] = uint32(i)
	}
	slices.SortFunc(places, func(a, b uint32) int { return cmp.Compare(train[a], train[b]) })
	begin()
	return out, each(func(t *format.RowTable, i, _ int64, region int) {
		at := next[region]
		if next[region]++; region == 0 {
			at = int64(places[at])
		}
		copyRow(out, t, at, i)
	})
}

// copyRow copies labels, splits and original id of row i of from to a row of to.
func copyRow(to, from *format.RowTable, row, i int64) {
	copyItems(to.Labels, from.Labels, 1, row, i)
	copyItems(to.MultiLabels, from.MultiLabels, from.LabelColumns, row, i)
	copyItems(to.LabelValues, from.LabelValues, from.LabelColumns, row, i)
	copyItems(to.Splits, from.Splits, from.NumSplits, row, i)
	if from.OrigID != nil {
		to.OrigID[row] = strings.Clone(from.OrigID[i]) // not the text of all of the chunk
	}
}

// copyItems copies row i of from to a row of to. Rows have width elements; nil columns stay nil.
func copyItems[T any](to, from []T, width int, row, i int64) {
	if from != nil {
		w := int64(width)
		copy(to[row*w:(row+1)*w], from[i*w:(i+1)*w])
	}
}

// labeled tells whether node v is in the row set format.RowsLabeled: it has a label, or is in any of the splits that
// the graph ships, chosen or not.
func labeled(graph *format.RowTable, v int64) bool {
	k := int64(graph.NumSplits)
	inSplit := func(in uint8) bool { return in != format.SplitNone }
	return slices.ContainsFunc(graph.Splits[v*k:(v+1)*k], inSplit) || graph.Labelled(v)
}
