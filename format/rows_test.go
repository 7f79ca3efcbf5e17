package format

import (
	"bytes"
	"context"
	"slices"
	"testing"

	"github.com/hopfeed/hopfeed/internal/arrowfile"
	"github.com/hopfeed/hopfeed/internal/dtype"
)

// TestTrainingKeysNeverChange has values that were computed apart from this code.
func TestTrainingKeysNeverChange(t *testing.T) {
	for _, c := range []struct {
		seed uint64
		node uint32
		want uint64
	}{
		{0, 0, 0xa706dd2f4d197e6f},
		{0, 1, 0xb382a305f4414f5e},
		{7, 4294967295, 0x7c8d113d252046e6},
	} {
		if got := TrainKey(c.seed, c.node); got != c.want {
			t.Errorf("seed %d, node %d: %#x, want %#x", c.seed, c.node, got, c.want)
		}
	}
}

// FuzzRows reads a chunk of three rows of all columns.
func FuzzRows(f *testing.F) {
	const rows = 3
	m := &Manifest{Kind: KindStore, Nodes: 10, Labels: 2, Splits: 2, OrigIDs: true}
	layout := Layout{Regions: Regions([]RegionSize{{RegionAll, rows}}, rows), ChunkRows: rows}
	lengths := m.rowColumns().table(layout).lengths
	least := slices.Clone(lengths(rows))
	least[len(least)-1] = 0
	_, size := arrowfile.Place(least...)
	chunk := func(t *RowTable) []byte {
		var out []byte
		for _, b := range t.buffers(0, rows) {
			out = append(out, make([]byte, (64-len(out)%64)%64)...)
			out = append(out, b...)
		}
		return out
	}
	empty := func() *RowTable {
		return &RowTable{Rows: rows, NodeID: make([]uint32, rows), MultiLabels: make([]int8, 2*rows), LabelColumns: 2,
			Splits: make([]uint8, 2*rows), NumSplits: 2, OrigID: make([]string, rows)}
	}
	f.Add(chunk(empty()))
	full := empty()
	full.NodeID, full.OrigID, full.MultiLabels = []uint32{9, 8, 7}, []string{"abc", "", "π"}, []int8{1, -1, 0, 1, 0, 1}
	f.Add(chunk(full))
	f.Fuzz(func(t *testing.T, data []byte) {
		if int64(len(data)) < size {
			return // the index is checked for that
		}
		table := empty()
		if _, err := table.decode(m, 0, 0, rows, data); err != nil {
			return
		}
		again := empty()
		if _, err := again.decode(m, 0, 0, rows, chunk(table)); err != nil ||
			!slices.Equal(again.OrigID, table.OrigID) ||
			!slices.Equal(again.NodeID, table.NodeID) || !slices.Equal(again.MultiLabels, table.MultiLabels) ||
			!bytes.Equal(again.Splits, table.Splits) {
			t.Fatalf("%+v became %+v, %v", table, again, err)
		}
	})
}

// FuzzTopology checks a topology of up to seven nodes.
func FuzzTopology(f *testing.F) {
	f.Add(dtype.BytesOf([]int64{0, 2, 2, 3}), dtype.BytesOf([]uint32{0, 2, 1}))
	f.Add(dtype.BytesOf([]int64{0}), []byte{})
	f.Fuzz(func(t *testing.T, offsets, neighbors []byte) {
		c := &CSC{Offsets: make([]int64, max(1, min(8, len(offsets)/8))), Neighbors: make([]uint32, len(neighbors)/4)}
		copy(dtype.BytesOf(c.Offsets), offsets)
		copy(dtype.BytesOf(c.Neighbors), neighbors)
		if c.check(context.Background(), 1) != nil {
			return
		}
		edges := int64(0)
		for v := range c.Nodes() {
			list := c.In(v)
			edges += int64(len(list))
			if !slices.IsSorted(list) || len(list) > 0 && int64(list[len(list)-1]) >= c.Nodes() {
				t.Fatalf("neighbours %v of node %d are accepted", list, v)
			}
		}
		if edges != c.Edges() {
			t.Fatalf("%d of %d edges are in lists", edges, c.Edges())
		}
	})
}
