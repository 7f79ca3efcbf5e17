package main

import (
	"fmt"

	"github.com/hopfeed/hopfeed/format"
	"github.com/hopfeed/hopfeed/internal/vfs"
	"github.com/hopfeed/hopfeed/loader"
	"github.com/hopfeed/hopfeed/tools/npy"
)

// partition is the rows of a store by their part in a split.
type partition struct {
	train, valid, test loader.Rows
	scattered          bool // not the regions of the store
}

// regionPartition is the split that the store is laid out by.
var regionPartition = partition{
	train: loader.Rows{Region: format.RegionTrain},
	valid: loader.Rows{Region: format.RegionValid},
	test:  loader.Rows{Region: format.RegionTest},
}

// rows is how many one part of it has.
func (p partition) rows(store *format.Dir, part loader.Rows) int64 {
	if p.scattered {
		return int64(len(part.List))
	}
	region, _ := store.Region(part.Region)
	return region.Rows
}

// scatter makes a partition of a value of format.Split* for each row.
func scatter(rows int64, part func(row int64) uint8) partition {
	lists := map[uint8][]uint32{}
	for row := range rows {
		p := part(row)
		lists[p] = append(lists[p], uint32(row))
	}
	list := func(p uint8) loader.Rows { return loader.Rows{List: append([]uint32{}, lists[p]...)} }
	return partition{
		train: list(format.SplitTrain), valid: list(format.SplitValid), test: list(format.SplitTest),
		scattered: true,
	}
}

// shippedPartition is one of the splits that the graph shipped.
func shippedPartition(table *format.RowTable, split int) (partition, error) {
	if split >= table.NumSplits {
		return partition{}, usagef("--split %d: the store has %d splits, from 0", split, table.NumSplits)
	}
	return scatter(table.Rows, func(row int64) uint8 { return table.Splits[row*int64(table.NumSplits)+int64(split)] }), nil
}

// filePartition is split number split of a file [k,n] or [n] over the nodes of
// the graph: 0 train, 1 valid, 2 test, -1 none.
func filePartition(fsys vfs.FS, path string, table *format.RowTable, nodes int64, split int) (partition, error) {
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
		return partition{}, usagef("--split %d: %s has %d splits, from 0", split, path, shape[0])
	}
	values := make([]int64, nodes)
	if err := npy.ReadRows(array, values, int64(split)); err != nil { // of an [n] array split is 0
		return partition{}, err
	}
	for node, v := range values {
		if v < -1 || v > 2 {
			return invalid("split %d, node %d: %d is none of 0 (train), 1 (valid), 2 (test), -1 (none)", split, node, v)
		}
	}
	return scatter(table.Rows, func(row int64) uint8 { return uint8(values[table.NodeID[row]] + 1) }), nil
}
