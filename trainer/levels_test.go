package trainer

import (
	"errors"
	"fmt"
	"testing"

	"github.com/hopfeed/hopfeed/gds"
	"github.com/hopfeed/hopfeed/gds/host"
	"github.com/hopfeed/hopfeed/loader"
)

// Activations of a batch larger than those before take a quarter more, and where there is no more just what they need.
func TestActivationsTakeWhatTheyNeedWhereThereIsNoMore(t *testing.T) {
	spec := Spec{Model: "gcn", Matrices: hops("sym", 0), Features: 8, Classes: 3, Settings: blocksOf(16, 2, 0, 1, 0)}
	batch := func(inner, sources int) *loader.Batch {
		return &loader.Batch{Rows: 4, Blocks: []loader.Block{{Destinations: inner, Sources: sources},
			{Destinations: 4, Sources: inner}}}
	}
	bytes := int64(0)
	for _, limit := range []bool{false, true} {
		o := host.Options{Threads: 1}
		if limit {
			o.MemoryBytes = bytes
		}
		dev := openDevice(t, o)
		n, err := newNetwork(dev, spec, 4, taskFor(t, true))
		if err != nil {
			t.Fatal(err)
		}
		if limit {
			if err := n.reserve(batch(100, 1000)); err != nil {
				t.Error(err)
			}
		}
		if err := n.reserve(batch(400, 4000)); err != nil {
			t.Errorf("with memory for it: %v", err)
		}
		if bytes = dev.Usage().Peak; limit && bytes > o.MemoryBytes {
			t.Errorf("%d bytes of %d", bytes, o.MemoryBytes)
		}
		if limit {
			if err := n.reserve(batch(500, 5000)); !errors.Is(err, gds.ErrOutOfMemory) {
				t.Errorf("without memory for it: %v", err)
			}
			if err := n.reserve(batch(400, 4000)); err != nil {
				t.Errorf("again with memory for it: %v", err)
			}
		}
		if err := n.close(); err != nil {
			t.Error(err)
		}
	}
}

// What validation of a few nodes takes, and then a test on all of them, is planned, whatever the order of the first
// layer.
func TestPassesOverAGraphTakeNoMoreThanIsPlanned(t *testing.T) {
	const nodes = 3000
	for _, c := range []struct {
		model            string
		features, hidden int
		sparse           bool
	}{{"gcn", 4, 64, false}, {"sage", 4, 64, false}, {"sage", 64, 4, false}, {"gat", 64, 4, false},
		{"sage", 64, 8, true}} {
		t.Run(fmt.Sprintf("%s of %d features, sparse=%t", c.model, c.features, c.sparse), func(t *testing.T) {
			spec := Spec{Model: c.model, Matrices: hops("sym", 0), Features: c.features, Classes: 3,
				Settings: Values{"hidden": float64(c.hidden)}}
			dev := openDevice(t, host.Options{Threads: 1})
			n, err := newNetwork(dev, spec, 4, taskFor(t, true))
			if err != nil {
				t.Fatal(err)
			}
			defer n.close()
			before := dev.Usage().InUse
			near := &loader.Batch{Rows: 4, Whole: &loader.WholeGraph{Inputs: gds.Tensor{Rows: 1, Cols: 2700},
				Blocks: []loader.Block{{Destinations: 500, Sources: 2700}, {Destinations: 4, Sources: 500}}}}
			all := &loader.Batch{Rows: 4, Whole: &loader.WholeGraph{Blocks: []loader.Block{{Destinations: nodes,
				Sources: nodes}}}}
			if c.sparse {
				near.Whole.Inputs = gds.Tensor{}
				near.Sparse = &loader.SparseRows{Cols: c.features}
				all.Sparse = near.Sparse
			}
			for _, b := range []*loader.Batch{near, all, near} {
				if err := n.reserve(b); err != nil {
					t.Fatal(err)
				}
			}
			plan, err := spec.GraphBytes(nodes, c.sparse, true)
			if took := dev.Usage().InUse - before; err != nil || took > plan {
				t.Errorf("%d bytes, of %d that are planned; %v", took, plan, err)
			}
		})
	}
}
