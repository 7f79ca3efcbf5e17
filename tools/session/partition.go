package session

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/hopfeed/hopfeed/format"
	"github.com/hopfeed/hopfeed/internal/machine"
	"github.com/hopfeed/hopfeed/internal/units"
	"github.com/hopfeed/hopfeed/internal/vfs"
	"github.com/hopfeed/hopfeed/loader"
	"github.com/hopfeed/hopfeed/tools/npy"
)

// Partition divides the rows of a store, or the nodes of a graph, by a split: each row trains, validates, tests, or
// does none of these.
type Partition struct {
	Train, Valid, Test, Rest loader.Rows // regions of a store, or else lists
}

// Scattered tells that the parts are lists of rows, not the regions of the store.
func (p Partition) Scattered() bool { return p.Train.List != nil }

// RegionPartition is the split that stores are laid out by.
func RegionPartition() Partition {
	return Partition{
		Train: loader.Rows{Region: format.RegionTrain},
		Valid: loader.Rows{Region: format.RegionValid},
		Test:  loader.Rows{Region: format.RegionTest},
		Rest:  loader.Rows{Region: format.RegionRest},
	}
}

// Parts lists the parts of the partition.
func (p Partition) Parts() []Part {
	return []Part{
		{format.RegionTrain, format.SplitTrain, p.Train}, {format.RegionValid, format.SplitValid, p.Valid},
		{format.RegionTest, format.SplitTest, p.Test}, {format.RegionRest, format.SplitNone, p.Rest},
	}
}

// Part is one part of a partition.
type Part struct {
	Name  string // of the region of a store that is laid out by the split
	Split uint8  // format.Split*
	Rows  loader.Rows
}

// Each calls do with the number of each row of the part.
func (p Part) Each(store *format.Dir, do func(row int64)) {
	for _, row := range p.Rows.List {
		do(int64(row))
	}
	if r, ok := store.Region(p.Rows.Region); ok && p.Rows.List == nil {
		for row := r.FirstRow; row < r.FirstRow+r.Rows; row++ {
			do(row)
		}
	}
}

// RowsOf finds the rows of a part ("all": every row) of split number split of a store or graph (nil: the split that a
// store is laid out by). It is ErrOptions if there is no such part or split.
func RowsOf(ctx context.Context, store *format.Dir, part string, split *int) (loader.Rows, error) {
	if part == format.RegionAll {
		rows := loader.Rows{List: make([]uint32, store.Manifest.Rows)}
		for row := range rows.List {
			rows.List[row] = uint32(row)
		}
		return rows, nil
	}
	if split == nil {
		return loader.Rows{Region: part}, nil
	}
	wanted := slices.IndexFunc(RegionPartition().Parts(), func(p Part) bool { return p.Name == part })
	switch splits := store.Manifest.Splits; {
	case wanted < 0:
		return loader.Rows{}, fmt.Errorf("%w: there is no part %q of a split: want %s, %s, %s, %s or %s", ErrOptions,
			part, format.RegionTrain, format.RegionValid, format.RegionTest, format.RegionRest, format.RegionAll)
	case *split < 0 || *split >= max(1, splits):
		return loader.Rows{}, fmt.Errorf("%w: split %d: %s has %s, numbered from 0", ErrOptions, *split,
			store.Path(), units.Count(int64(splits), "split"))
	}
	partition, err := OpenPartition(ctx, store, *split, "", machine.Limit{})
	return partition.Parts()[wanted].Rows, err
}

// RowsOfNodes finds the rows of a store that hold some nodes, in their order. A node without a row is ErrOptions.
func RowsOfNodes(ctx context.Context, store *format.Dir, nodes []uint32) (loader.Rows, error) {
	rowOf := map[uint32]uint32{}
	for _, node := range nodes {
		rowOf[node] = math.MaxUint32
	}
	err := store.VisitRows(ctx, func(t *format.RowTable, first int64) {
		for i, node := range t.NodeID {
			if _, wanted := rowOf[node]; wanted {
				rowOf[node] = uint32(first) + uint32(i)
			}
		}
	})
	list := make([]uint32, len(nodes))
	for i, node := range nodes {
		if list[i] = rowOf[node]; list[i] == math.MaxUint32 && err == nil {
			err = fmt.Errorf("%w: node %d has no row in %s, which holds %d of %d nodes", ErrOptions, node, store.Path(),
				store.Manifest.Rows, store.Manifest.Nodes)
		}
	}
	return loader.Rows{List: list}, err
}

// CountRows is the number of rows in a region of a store, or in a list.
func CountRows(layout format.Layout, rows loader.Rows) int64 {
	if rows.List != nil {
		return int64(len(rows.List))
	}
	for _, r := range layout.Regions {
		if r.Name == rows.Region {
			return r.Rows
		}
	}
	return 0
}

// OpenPartition reads split number split of a file [k,n] of splits of the nodes (.npy) or, if it has
// no name, of a store. With split < 0 it is the first one of the file, or the one that the store is
// laid out by. It is machine.ErrDoesNotFit if that takes more than the budget.
func OpenPartition(ctx context.Context, store *format.Dir, split int, file string, budget machine.Limit) (Partition,
	error) {
	m := &store.Manifest
	if file == "" && m.Kind == format.KindGraph {
		split = max(split, 0)
	} else if file == "" && (split < 0 || split == m.Split) {
		return RegionPartition(), nil
	}
	if m.LabelHops > 0 {
		return Partition{}, fmt.Errorf("%w: the matrices of %s have labels of the training nodes of split %d, which may be "+
			"tested by another split: use that split (or propagate by the other: --split K --label-hops %d)", ErrOptions,
			store.Path(), m.Split, m.LabelHops)
	}
	if file != "" {
		if err := budget.Fits(fmt.Sprintf("reading splits of %d nodes", m.Nodes),
			m.Nodes+rowListBytes*m.Rows); err != nil {
			return Partition{}, err
		}
		return filePartition(ctx, file, store, max(split, 0))
	}
	if split >= m.Splits && split > 0 {
		return Partition{}, fmt.Errorf("%w: split %d: the store has %s, numbered from 0", ErrOptions, split,
			units.Count(int64(m.Splits), "split"))
	}
	if err := budget.Fits(fmt.Sprintf("splitting %d rows", m.Rows), rowListBytes*m.Rows); err != nil {
		return Partition{}, err
	}
	return tablePartition(ctx, store, func(t *format.RowTable, i, _ int64) uint8 {
		if t.NumSplits == 0 { // a graph without splits
			return format.SplitNone
		}
		return t.Splits[i*int64(t.NumSplits)+int64(split)]
	})
}

// rowListBytes is the size of the part of a row and its number in the list of that part.
const rowListBytes = 1 + 4

func partitionByRow(parts []uint8) Partition {
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
	return Partition{
		Train: list(format.SplitTrain), Valid: list(format.SplitValid), Test: list(format.SplitTest),
		Rest: list(format.SplitNone),
	}
}

// tablePartition takes the part of each row of a store from its row table.
func tablePartition(ctx context.Context, store *format.Dir,
	part func(t *format.RowTable, i, row int64) uint8) (Partition, error) {
	parts := make([]uint8, store.Manifest.Rows)
	err := store.VisitRows(ctx, func(t *format.RowTable, first int64) {
		for i := range t.Rows {
			parts[first+i] = part(t, i, first+i)
		}
	})
	if err != nil {
		return Partition{}, err
	}
	return partitionByRow(parts), nil
}

// ReadNodeNumbers reads the integers of a .npy file [k,n] or [n] over the nodes of a graph: row number row of it, of
// which what is the name. check fails for a value that cannot be.
func ReadNodeNumbers(graph *format.Dir, path, what string, row int, check func(node, value int64) error) error {
	nodes := graph.Manifest.Nodes
	array, err := npy.Open(graph.FS(), path)
	if err != nil {
		return err
	}
	defer array.Close()
	invalid := func(err error) error { return fmt.Errorf("%w: %s: %w", npy.ErrInvalid, path, err) }
	shape := array.Shape
	if len(shape) == 1 {
		shape = []int64{1, shape[0]}
	}
	switch {
	case !array.Type.IsInteger():
		return invalid(fmt.Errorf("%ss of %s (want integers)", what, array.Type))
	case len(shape) != 2 || shape[1] != nodes:
		return invalid(fmt.Errorf("%ss of shape %v for a graph of %d nodes (want [k,%d])", what, array.Shape, nodes,
			nodes))
	case int64(row) >= shape[0]:
		return fmt.Errorf("%w: %s %d: %s has %d %ss, numbered from 0", ErrOptions, what, row, path, shape[0], what)
	}
	from, stride, column := int64(row)*nodes, int64(1), int64(0)
	if array.Fortran { // the numbers of a node lie together
		from, stride, column = 0, shape[0], int64(row)
	}
	values := make([]int64, max(stride, 1<<16))
	for first, n := int64(0), int64(0); first < nodes; first += n {
		n = min(int64(len(values))/stride, nodes-first)
		if err := npy.Read(array, values[:n*stride], from+first*stride); err != nil {
			return err
		}
		for i := range n {
			if err := check(first+i, values[i*stride+column]); err != nil {
				return invalid(fmt.Errorf("%s %d, node %d: %w", what, row, first+i, err))
			}
		}
	}
	return nil
}

// filePartition is split number split of a file: 0 train, 1 valid, 2 test, -1 none.
func filePartition(ctx context.Context, path string, store *format.Dir, split int) (Partition, error) {
	ofNodes := make([]uint8, store.Manifest.Nodes)
	err := ReadNodeNumbers(store, path, "split", split, func(node, v int64) error {
		if v < -1 || v > 2 {
			return fmt.Errorf("%d is none of 0 (train), 1 (valid), 2 (test), -1 (none)", v)
		}
		ofNodes[node] = uint8(v + 1)
		return nil
	})
	if err != nil {
		return Partition{}, err
	}
	return tablePartition(ctx, store, func(t *format.RowTable, i, row int64) uint8 {
		if t.NodeID == nil { // of a graph
			return ofNodes[row]
		}
		return ofNodes[t.NodeID[i]]
	})
}

// PartitionOf is the partition with the format.Split* of each row: the regions of the store if they agree.
func PartitionOf(store *format.Dir, parts []uint8) Partition {
	same := store.Manifest.Kind == format.KindStore
	for _, part := range RegionPartition().Parts() {
		part.Each(store, func(row int64) { same = same && parts[row] == part.Split })
	}
	if same {
		return RegionPartition()
	}
	return partitionByRow(parts)
}

// Labels counts the rows of a part of a partition.
type Labels struct {
	Rows, Labelled int64
	Classes        []int64 // labelled rows of each class, where labels are classes
}

// CountLabels counts the labels of each part. Lists of rows are ascending. Regions without rows of the parts are not
// read.
func CountLabels(ctx context.Context, store *format.Dir, parts []Part) ([]Labels, error) {
	counts, lists := make([]Labels, len(parts)), make([][]uint32, len(parts))
	for i, part := range parts {
		counts[i].Classes, lists[i] = make([]int64, store.Manifest.Classes), part.Rows.List
	}
	for _, region := range store.Layout().Regions {
		in := func(p Part) bool { return p.Rows.List != nil || p.Rows.Region == region.Name }
		if !slices.ContainsFunc(parts, in) {
			continue
		}
		err := store.VisitRegion(ctx, region, func(t *format.RowTable, first int64) {
			for i, part := range parts {
				if part.Rows.List == nil && in(part) {
					for row := range t.Rows {
						counts[i].add(t, row)
					}
				}
				for ; len(lists[i]) > 0 && int64(lists[i][0]) < first+t.Rows; lists[i] = lists[i][1:] {
					counts[i].add(t, int64(lists[i][0])-first)
				}
			}
		})
		if err != nil {
			return nil, err
		}
	}
	return counts, nil
}

func (n *Labels) add(t *format.RowTable, row int64) {
	n.Rows++
	if !t.Labelled(row) {
		return
	}
	n.Labelled++
	if t.Labels != nil {
		n.Classes[t.Labels[row]]++
	}
}

// chosenBytes bounds the memory for each byte of a file that names nodes.
const chosenBytes = 32

// NodesInFile lists the nodes of a graph that a text file names, ascending. Each line has an original id, if the graph
// has original ids, or else the number of a node. A file that names no node, or an unknown one, is ErrOptions.
func NodesInFile(ctx context.Context, graph *format.Dir, fsys vfs.FS, path string, budget machine.Limit) ([]uint32,
	error) {
	f, size, err := vfs.OpenSized(fsys, path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	if err := budget.Fits("the nodes in "+path, chosenBytes*size); err != nil {
		return nil, err
	}
	m := &graph.Manifest
	nodes := []uint32{}
	named := map[string]bool{} // original ids: whether the graph has them
	lines := bufio.NewScanner(io.NewSectionReader(f, 0, size))
	for line := 1; lines.Scan(); line++ {
		id := strings.TrimSpace(lines.Text())
		if id == "" {
			continue
		}
		if m.OrigIDs {
			named[id] = false
			continue
		}
		node, err := strconv.ParseUint(id, 10, 32)
		if err != nil || int64(node) >= m.Nodes {
			return nil, fmt.Errorf("%w: %s: line %d is %.50q: want the number of a node, from 0 to %d",
				ErrOptions, path, line, id, m.Nodes-1)
		}
		nodes = append(nodes, uint32(node))
	}
	if err := lines.Err(); err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	if m.OrigIDs {
		err := graph.VisitRows(ctx, func(t *format.RowTable, first int64) {
			for i, id := range t.OrigID {
				if _, wanted := named[id]; wanted {
					named[strings.Clone(id)] = true
					nodes = append(nodes, uint32(first)+uint32(i))
				}
			}
		})
		if err != nil {
			return nil, err
		}
		for id, found := range named {
			if !found {
				return nil, fmt.Errorf("%w: %s: no node of the graph has the original id %.50q",
					ErrOptions, path, units.Printable(id))
			}
		}
	}
	slices.Sort(nodes)
	if nodes = slices.Compact(nodes); len(nodes) == 0 {
		return nil, fmt.Errorf("%w: %s names no node", ErrOptions, path)
	}
	return nodes, nil
}
