package engine

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/hopfeed/hopfeed/format"
	"github.com/hopfeed/hopfeed/internal/folder"
	"github.com/hopfeed/hopfeed/internal/vfs"
)

func TestABitThatFlipsInADerivedTopologyOnDiskIsAnError(t *testing.T) {
	for n := int64(1); ; n++ {
		for _, bit := range []int64{0, 33, 1<<40 - 1, 12345} {
			fault := vfs.NewFault(vfs.NewMem())
			w, err := newTopologyWriter(fault, "topology", 3, 6, true)
			if err != nil {
				t.Fatal(err)
			}
			for _, b := range []format.NodeRange{
				{First: 0, Offsets: []int64{7, 9, 10}, Neighbors: []uint32{0, 2, 1}, Weights: []float32{1, 2, 3}},
				{First: 2, Offsets: []int64{0, 2}, Neighbors: []uint32{0, 1}, Weights: []float32{4, 5}},
			} {
				if err := w.add(&b); err != nil {
					t.Fatal(err)
				}
			}
			fault.FlipBit(n, bit)
			g, err := w.open(context.Background())
			if fault.Reads() < n {
				if err != nil || n < 4 {
					t.Fatalf("%d reads: %v", n-1, err)
				}
				if err := g.Close(); err != nil {
					t.Error(err)
				}
				return
			}
			if !errors.Is(err, folder.ErrDamaged) || !strings.Contains(err.Error(), "topology.scratch") {
				t.Fatalf("bit %d flipped in read %d: %v", bit, n, err)
			}
		}
	}
}
