package session

import (
	"context"

	"github.com/hopfeed/hopfeed/format"
)

// Labels counts the rows of a part of a partition.
type Labels struct {
	Rows, Labelled int64
	Classes        []int64 // labelled rows of each class, where labels are classes
}

// CountLabels counts the labels of each of some parts. Lists of rows are ascending.
func CountLabels(ctx context.Context, store *format.Dir, parts []Part) ([]Labels, error) {
	counts := make([]Labels, len(parts))
	var lists []func(t *format.RowTable, first int64)
	for i, part := range parts {
		n := &counts[i]
		n.Classes = make([]int64, store.Manifest.Classes)
		count := func(t *format.RowTable, row int64) {
			n.Rows++
			if !t.Labelled(row) {
				return
			}
			n.Labelled++
			if t.Labels != nil {
				n.Classes[t.Labels[row]]++
			}
		}
		if list := part.Rows.List; list != nil {
			lists = append(lists, func(t *format.RowTable, first int64) {
				for ; len(list) > 0 && int64(list[0]) < first+t.Rows; list = list[1:] {
					count(t, int64(list[0])-first)
				}
			})
			continue
		}
		region, _ := store.Region(part.Rows.Region)
		err := store.VisitRegion(ctx, region, func(t *format.RowTable, _ int64) {
			for row := range t.Rows {
				count(t, row)
			}
		})
		if err != nil {
			return nil, err
		}
	}
	if lists == nil {
		return counts, nil
	}
	return counts, store.VisitRows(ctx, func(t *format.RowTable, first int64) {
		for _, visit := range lists {
			visit(t, first)
		}
	})
}
