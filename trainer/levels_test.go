package trainer

import (
	"testing"

	"github.com/hopfeed/hopfeed/gds/host"
	"github.com/hopfeed/hopfeed/loader"
)

// Activations of a batch larger than those before take a quarter more, and where there is no more just what they need.
func TestActivationsTakeWhatTheyNeedWhereThereIsNoMore(t *testing.T) {
	spec := Spec{Model: "gcn", Matrices: hops("sym", 0), Features: 8, Classes: 3, Settings: blocksOf(16, 2, 0, 1, 0)}
	batch := func(inner, sources int) *loader.Batch {
		return &loader.Batch{Rows: 4, Blocks: []loader.Block{{Destinations: inner, Sources: sources}, {Destinations: 4, Sources: inner}}}
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
		if err := n.close(); err != nil {
			t.Error(err)
		}
	}
}
