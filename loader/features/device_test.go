package features_test

import (
	"path/filepath"
	"slices"
	"testing"

	"github.com/hopfeed/hopfeed/gds"
	"github.com/hopfeed/hopfeed/gds/host"
	"github.com/hopfeed/hopfeed/gds/testdevice"
	"github.com/hopfeed/hopfeed/internal/dtype"
	"github.com/hopfeed/hopfeed/internal/vfs"
	"github.com/hopfeed/hopfeed/loader/features"
	"github.com/hopfeed/hopfeed/loader/internal/graphtest"
)

// A device has the rows of all nodes as float32: of one type, and of several of different widths. Where its memory is
// its own, it gathers them alone; else the host does, as from any source.
func TestADeviceHasTheRowsOfAllNodes(t *testing.T) {
	for _, discrete := range []bool{true, false} {
		device := testdevice.Open(t, host.Options{Discrete: true, Threads: 2})
		if !discrete {
			device = newDevice(t)
		}
		stream, err := device.NewStream()
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = stream.Close() })
		var all []features.Source
		for _, g := range []graphtest.Graph{graphs[1], graphs[3], graphs[7]} {
			graph := graphtest.New(t, vfs.OS(), filepath.Join(t.TempDir(), "graph"), g)
			one, err := features.LoadDevice(t.Context(), graph, device, 2)
			if err != nil {
				t.Fatal(err)
			}
			all = append(all, one)
			node, row := uint32(g.Nodes-1), make([]float32, g.Columns)
			if err := one.Gather(t.Context(), dtype.BytesOf(row), gds.Float32, []uint32{node}); (err != nil) != discrete {
				t.Errorf("discrete %t: gathered with %v", discrete, err)
			}
			there := features.Resident(one)
			if !discrete {
				if there != nil || row[0] != g.Value(node, 0) || one.Stats().Rows != 1 {
					t.Errorf("the host reads %v as %v, after %+v", there, row[0], one.Stats())
				}
				continue
			}
			got := make([]float32, g.Nodes*g.Columns)
			if err := gds.Download(device, stream, got, there[0]); err != nil {
				t.Fatal(err)
			}
			for i, v := range got {
				if want := g.Value(uint32(i/g.Columns), i%g.Columns); v != want {
					t.Fatalf("row %d, column %d is %g, want %g", i/g.Columns, i%g.Columns, v, want)
				}
			}
			places := make([]uint32, 2)
			if features.Places(one, places, []uint32{node, 0}); !slices.Equal(places, []uint32{node, 0}) {
				t.Errorf("places %v", places)
			}
		}
		typed := features.NewTyped(all)
		there := features.Resident(typed)
		if discrete != (len(there) == 3) || typed.Rows() != 997+700+9 || typed.Width(2) != 31000 {
			t.Errorf("discrete %t: %d matrices, %d nodes", discrete, len(there), typed.Rows())
		}
		places := make([]uint32, 5)
		features.Places(typed, places, []uint32{0, 996, 1000, 1697, 1705})
		if want := []uint32{0, 996, 3, 0, 8}; !slices.Equal(places, want) {
			t.Errorf("places %v, want %v", places, want)
		}
		if err := typed.Close(); err != nil {
			t.Error(err)
		}
	}
}
