package features_test

import (
	"path/filepath"
	"testing"

	"github.com/hopfeed/hopfeed/gds"
	"github.com/hopfeed/hopfeed/gds/host"
	"github.com/hopfeed/hopfeed/gds/testdevice"
	"github.com/hopfeed/hopfeed/internal/dtype"
	"github.com/hopfeed/hopfeed/internal/vfs"
	"github.com/hopfeed/hopfeed/loader/features"
	"github.com/hopfeed/hopfeed/loader/internal/graphtest"
)

// A device has the rows of all nodes as float32. Where its memory is
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
		for _, g := range []graphtest.Graph{graphs[1], graphs[3], graphs[7]} {
			graph := graphtest.New(t, vfs.OS(), filepath.Join(t.TempDir(), "graph"), g)
			one, err := features.LoadDevice(t.Context(), graph, device, 2)
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { one.Close() })
			node, row := uint32(g.Nodes-1), make([]float32, g.Columns)
			if err := one.Gather(t.Context(), dtype.BytesOf(row), gds.Float32, []uint32{node}); (err != nil) != discrete {
				t.Errorf("discrete %t: gathered with %v", discrete, err)
			}
			there := features.Resident(one)
			if !discrete {
				if there.Cols > 0 || row[0] != g.Value(node, 0) || one.Stats().Rows != 1 {
					t.Errorf("the host reads %v as %v, after %+v", there, row[0], one.Stats())
				}
				continue
			}
			got := make([]float32, g.Nodes*g.Columns)
			if err := gds.Download(device, stream, got, there); err != nil {
				t.Fatal(err)
			}
			for i, v := range got {
				if want := g.Value(uint32(i/g.Columns), i%g.Columns); v != want {
					t.Fatalf("row %d, column %d is %g, want %g", i/g.Columns, i%g.Columns, v, want)
				}
			}
		}
	}
}
