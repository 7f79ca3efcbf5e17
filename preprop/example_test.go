package preprop_test

import (
	"context"
	"encoding/binary"
	"fmt"
	"log"
	"math"

	"github.com/hopfeed/hopfeed/format"
	"github.com/hopfeed/hopfeed/internal/vfs"
	"github.com/hopfeed/hopfeed/preprop"
	"github.com/hopfeed/hopfeed/preprop/operator"
)

// writePath writes the graph 0 -> 1 -> 2 -> 3 with one feature, which is 1 at node 0.
func writePath(fsys vfs.FS, dir string) error {
	layout := format.NewLayout([]format.RegionSize{{Name: format.RegionAll, Rows: 4}}, 0, 1, format.Float32)
	w, err := format.Create(fsys, dir, layout, format.CreateOptions{})
	if err != nil {
		return err
	}
	defer w.Abort()
	if err := w.Rows(&format.RowTable{Rows: 4, Labels: []int32{0, 1, 0, -1}}); err != nil {
		return err
	}
	inNeighbors := &format.CSC{Offsets: []int64{0, 0, 1, 2, 3}, Neighbors: []uint32{0, 1, 2}}
	if err := w.Topology(inNeighbors); err != nil {
		return err
	}
	features, err := w.Matrix(format.Input)
	if err != nil {
		return err
	}
	if err := features.Write(binary.LittleEndian.AppendUint32(nil, math.Float32bits(1))); err != nil {
		return err
	}
	if err := features.Write(make([]byte, 3*4)); err != nil {
		return err
	}
	if err := features.Close(); err != nil {
		return err
	}
	return w.Publish(&format.Manifest{Kind: format.KindGraph, Nodes: 4, Edges: 3, Directed: true, Classes: 2,
		Labels: 1})
}

// Two hops along a path. With rw, a row of the next hop is the average of the rows of a node
// and of its in-neighbours. The store has the rows of the labelled nodes.
func ExamplePropagate() {
	fsys := vfs.NewMem()
	if err := writePath(fsys, "graph"); err != nil {
		log.Fatal(err)
	}
	options := preprop.Options{Hops: 2, Operators: []operator.Operator{{Name: operator.RW}}}
	r, err := preprop.Propagate(context.Background(), fsys, "graph", "store", options)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Printf("%d hops of %v, %d of %d nodes stored\n", r.Hops, r.Operators, r.Rows, r.Nodes)

	store, err := format.OpenStore(fsys, "store")
	if err != nil {
		log.Fatal(err)
	}
	defer store.Close()
	for _, id := range store.Matrices() {
		m, err := store.Matrix(id)
		if err != nil {
			log.Fatal(err)
		}
		chunk := make([]byte, m.Extent(0).Length)
		if err := m.ReadChunk(0, chunk); err != nil {
			log.Fatal(err)
		}
		fmt.Printf("%v:", id)
		for ; len(chunk) > 0; chunk = chunk[4:] {
			fmt.Printf(" %g", math.Float32frombits(binary.LittleEndian.Uint32(chunk)))
		}
		fmt.Println()
		m.Close()
	}
	// Output:
	// 2 hops of [rw], 3 of 4 nodes stored
	// x/hop-0: 1 0 0
	// rw/hop-1: 1 0.5 0
	// rw/hop-2: 1 0.75 0.25
}
