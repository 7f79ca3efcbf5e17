package features_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/hopfeed/hopfeed/format"
	"github.com/hopfeed/hopfeed/gds"
	"github.com/hopfeed/hopfeed/gds/host"
	"github.com/hopfeed/hopfeed/internal/dtype"
	"github.com/hopfeed/hopfeed/internal/vfs"
	"github.com/hopfeed/hopfeed/loader/features"
	"github.com/hopfeed/hopfeed/loader/internal/graphtest"
)

func newDevice(t testing.TB) gds.Device {
	t.Helper()
	d, err := host.New(host.Options{Threads: 2})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := d.Close(); err != nil {
			t.Error(err)
		}
	})
	return d
}

// sources opens the features of a graph in all ways.
func sources(t testing.TB, graph *format.Dir) map[string]features.Source {
	t.Helper()
	device := newDevice(t)
	out := make(map[string]features.Source)
	add := func(name string, s features.Source, err error) {
		if err != nil {
			t.Fatal(err)
		}
		out[name] = s
		t.Cleanup(func() {
			if err := s.Close(); err != nil {
				t.Error(err)
			}
		})
	}
	h, err := features.LoadHost(t.Context(), graph, nil, 2)
	add("host", h, err)
	s, err := features.OpenStorage(t.Context(), graph, device, 2)
	add("storage", s, err)
	return out
}

var graphs = []graphtest.Graph{
	{Nodes: 1, Columns: 1, ChunkRows: 5, DType: format.Float32, Labels: 1},
	{Nodes: 997, Columns: 3, ChunkRows: 400, DType: format.Float32, Labels: 1},
	{Nodes: 3000, Columns: 100, ChunkRows: 1000, DType: format.Float32, Labels: 1},
	{Nodes: 700, Columns: 100, ChunkRows: 300, DType: format.Float16, Labels: 1},
	{Nodes: 700, Columns: 33, ChunkRows: 300, DType: format.BFloat16, Labels: 1, External: true},
	{Nodes: 60, Columns: 1024, ChunkRows: 8, DType: format.Float32, Labels: 1},
	{Nodes: 60, Columns: 1500, ChunkRows: 7, DType: format.Float32, Labels: 1, External: true},
	{Nodes: 9, Columns: 31000, ChunkRows: 4, DType: format.Float32, Labels: 1},
	{Nodes: 997, Columns: 45, ChunkRows: 100, DType: format.Float32, Labels: 1, Sparse: true},
}

func TestRowsAreThoseOfTheNodesInAnyOrder(t *testing.T) {
	for _, g := range graphs {
		name := fmt.Sprintf("%d rows of %d %v in chunks of %d", g.Nodes, g.Columns, g.DType, g.ChunkRows)
		t.Run(name, func(t *testing.T) {
			graph := graphtest.New(t, vfs.OS(), filepath.Join(t.TempDir(), "graph"), g)
			r := rand.New(rand.NewPCG(1, uint64(g.Nodes)))
			for way, s := range sources(t, graph) {
				if s.Rows() != int64(g.Nodes) || s.Columns() != g.Columns || s.DType() != g.DType {
					t.Fatalf("%s has %d rows of %d %v", way, s.Rows(), s.Columns(), s.DType())
				}
				for _, count := range []int{0, 1, 2, g.Nodes, 2 * g.Nodes} {
					nodes := make([]uint32, count)
					for i := range nodes {
						nodes[i] = uint32(r.IntN(g.Nodes))
						if count == g.Nodes {
							nodes[i] = uint32(i)
						}
					}
					for _, as := range []gds.DType{g.DType, gds.Float32} {
						rowBytes := g.Columns * as.Size()
						const guard = 64
						dst := make([]byte, count*rowBytes+guard)
						for i := range guard {
							dst[count*rowBytes+i] = 0xa5
						}
						if err := s.Gather(t.Context(), dst[:count*rowBytes], as, nodes); err != nil {
							t.Fatalf("%s: %v", way, err)
						}
						got := make([]float32, count*g.Columns)
						dtype.Decode(got, dst, as)
						for i, v := range got {
							if want := g.Value(nodes[i/g.Columns], i%g.Columns); v != want {
								t.Fatalf("%s as %v: element %d of the row of node %d is %g, want %g", way, as,
									i%g.Columns, nodes[i/g.Columns], v, want)
							}
						}
						for _, b := range dst[count*rowBytes:] {
							if b != 0xa5 {
								t.Fatalf("%s wrote past the rows", way)
							}
						}
					}
				}
				stats := s.Stats()
				if rows := int64(2 * (3 + 3*g.Nodes)); stats.Rows != rows ||
					stats.Bytes != rows*int64(g.Columns*g.DType.Size()) {
					t.Errorf("%s: %+v, want %d rows", way, stats, rows)
				}
			}
		})
	}
}

// 10 rows of 400 bytes are in a page: rows of pages next to one another are one read, of no more
// bytes than these pages.
func TestNeighbouringRowsAreOneRead(t *testing.T) {
	g := graphtest.Graph{Nodes: 3000, Columns: 100, ChunkRows: 1000, DType: format.Float32, Labels: 1}
	graph := graphtest.New(t, vfs.OS(), filepath.Join(t.TempDir(), "graph"), g)
	s, err := features.OpenStorage(t.Context(), graph, newDevice(t), 2)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	dst := make([]byte, 3000*400)
	gather := func(nodes ...uint32) (reads, bytes int64) {
		before := s.Stats()
		if err := s.Gather(t.Context(), dst, gds.Float32, nodes); err != nil {
			t.Fatal(err)
		}
		after := s.Stats()
		return after.Reads - before.Reads, after.ReadBytes - before.ReadBytes
	}
	for _, c := range []struct {
		nodes        []uint32
		reads, pages int64
	}{
		{[]uint32{5}, 1, 1},
		{[]uint32{10}, 1, 2},                            // bytes 4000 to 4400
		{[]uint32{7, 3, 5, 1, 3}, 1, 1},                 // one page, in any order
		{[]uint32{25, 1, 15}, 1, 3},                     // pages next to one another
		{[]uint32{1, 15, 25, 45}, 1, 5},                 // one page in passing
		{[]uint32{1, 15, 25, 55}, 2, 4},                 // not two, after three
		{[]uint32{1, 45}, 2, 2},                         // with others between
		{[]uint32{999, 1000}, 2, 2},                     // two chunks
		{[]uint32{0, 100, 200, 300, 400, 500}, 6, 6},    // far from one another
		{[]uint32{2999, 2000, 1000, 0, 2998}, 4, 4},     // the end of a chunk is no whole page
		{[]uint32{0, 11, 21, 31, 41, 52, 62, 72}, 1, 8}, // a page each
	} {
		if reads, bytes := gather(c.nodes...); reads != c.reads || bytes != c.pages*4096 {
			t.Errorf("rows %v take %d reads of %d bytes, want %d of %d pages", c.nodes, reads, bytes, c.reads, c.pages)
		}
	}
	all := make([]uint32, 3000)
	for i := range all {
		all[i] = uint32(i)
	}
	// A row that is in two reads' pages is in the second one.
	if _, bytes := gather(all...); bytes < 3*98*4096 || bytes > 3*(98+4)*4096 {
		t.Errorf("all rows take %d bytes, want about the 98 pages of each chunk", bytes)
	}
}

func TestAFlippedBitOfAnyRowIsFound(t *testing.T) {
	for _, external := range []bool{false, true} {
		g := graphtest.Graph{Nodes: 60, Columns: 100, ChunkRows: 25, DType: format.Float32, Labels: 1,
			External: external}
		dir := filepath.Join(t.TempDir(), "graph")
		graph := graphtest.New(t, vfs.OS(), dir, g)
		m, err := graph.Matrix(format.Input)
		if err != nil {
			t.Fatal(err)
		}
		file := filepath.Join(dir, m.Extent(0).File)
		if external {
			file = m.Extent(0).File
		}
		for _, node := range []int{0, 10, 24, 25, 59} {
			s, err := features.OpenStorage(t.Context(), graph, newDevice(t), 2)
			if err != nil {
				t.Fatal(err)
			}
			flip := func() {
				data, err := os.ReadFile(file)
				if err != nil {
					t.Fatal(err)
				}
				data[m.Extent(node/25).Offset+int64(node%25)*400+399] ^= 4
				if err := os.WriteFile(file, data, 0o666); err != nil {
					t.Fatal(err)
				}
			}
			flip()
			err = s.Gather(t.Context(), make([]byte, 400), gds.Float32, []uint32{uint32(node)})
			if !errors.Is(err, format.ErrCorrupt) || !strings.Contains(err.Error(), filepath.Base(file)) {
				t.Errorf("node %d, external %t: %v", node, external, err)
			}
			if again, err := features.OpenStorage(t.Context(), graph, newDevice(t), 2); !errors.Is(err,
				format.ErrCorrupt) {
				t.Errorf("a damaged file was opened: %v, %v", again, err)
			}
			flip()
			if err := s.Gather(t.Context(), make([]byte, 400), gds.Float32, []uint32{uint32(node)}); err != nil {
				t.Errorf("mended: %v", err)
			}
			if err := s.Close(); err != nil {
				t.Error(err)
			}
		}
	}
}

func TestAFileThatIsCutOffIsDamage(t *testing.T) {
	g := graphtest.Graph{Nodes: 60, Columns: 100, ChunkRows: 25, DType: format.Float32, Labels: 1}
	dir := filepath.Join(t.TempDir(), "graph")
	graph := graphtest.New(t, vfs.OS(), dir, g)
	s, err := features.OpenStorage(t.Context(), graph, newDevice(t), 2)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	m, err := graph.Matrix(format.Input)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Truncate(filepath.Join(dir, m.Extent(0).File), 9000); err != nil {
		t.Fatal(err)
	}
	if err := s.Gather(t.Context(), make([]byte, 400), gds.Float32, []uint32{59}); !errors.Is(err, format.ErrCorrupt) {
		t.Errorf("got the error %v", err)
	}
}

func TestGatherRefusesWhatItCannotDo(t *testing.T) {
	g := graphtest.Graph{Nodes: 20, Columns: 4, ChunkRows: 10, DType: format.Float16, Labels: 1}
	graph := graphtest.New(t, vfs.NewMem(), "/graph", g)
	for way, s := range sources(t, graph) {
		for what, err := range map[string]error{
			"a node that there is not": s.Gather(t.Context(), make([]byte, 100), gds.Float32, []uint32{3, 20}),
			"too little room":          s.Gather(t.Context(), make([]byte, 31), gds.Float32, []uint32{3, 4}),
			"another type":             s.Gather(t.Context(), make([]byte, 100), gds.BFloat16, []uint32{3}),
		} {
			if err == nil {
				t.Errorf("%s: %s went through", way, what)
			}
		}
	}
	if _, err := features.LoadHost(t.Context(), graphtest.New(t, vfs.NewMem(), "/g",
		graphtest.Graph{Nodes: 3, ChunkRows: 2, DType: format.Float32, Labels: 1}), nil, 1); err == nil ||
		!strings.Contains(err.Error(), "no features") {
		t.Errorf("a graph without features: %v", err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := features.LoadHost(ctx, graph, nil, 1); !errors.Is(err, context.Canceled) {
		t.Errorf("loading goes on: %v", err)
	}
	if _, err := features.OpenStorage(ctx, graph, newDevice(t), 1); !errors.Is(err, context.Canceled) {
		t.Errorf("opening goes on: %v", err)
	}
}

// A thousand rows take a few allocations more than one, at most: none for each.
func TestGatheringAllocatesNothingForARow(t *testing.T) {
	g := graphtest.Graph{Nodes: 3000, Columns: 10, ChunkRows: 1000, DType: format.Float16, Labels: 1}
	graph := graphtest.New(t, vfs.OS(), filepath.Join(t.TempDir(), "graph"), g)
	nodes := make([]uint32, 1000)
	for i := range nodes {
		nodes[i] = uint32(i * 2999 / 999)
	}
	dst := make([]byte, len(nodes)*40)
	for way, s := range sources(t, graph) {
		if n := testing.AllocsPerRun(10, func() {
			if err := s.Gather(t.Context(), dst, gds.Float32, nodes); err != nil {
				t.Fatal(err)
			}
		}); n > 300 {
			t.Errorf("%s: %g allocations", way, n)
		}
	}
}

// TestSparseRowsAreTheElementsThatAreNotZero compares them with what was written, in all types.
func TestSparseRowsAreTheElementsThatAreNotZero(t *testing.T) {
	for _, dt := range []gds.DType{gds.Float32, gds.Float16, gds.BFloat16} {
		g := graphtest.Graph{Nodes: 997, Columns: 45, ChunkRows: 30, DType: dt, Labels: 1, Sparse: true}
		graph := graphtest.New(t, vfs.OS(), filepath.Join(t.TempDir(), "graph"), g)
		elements, err := features.FindElements(t.Context(), graph, 2)
		if err != nil || elements == nil {
			t.Fatalf("%v: %v, %v", dt, elements, err)
		}
		s, err := features.LoadSparse(t.Context(), graph, elements, 2)
		if err != nil {
			t.Fatal(err)
		}
		nodes := []uint32{996, 0, 5, 5, 400}
		n := s.In(nodes)
		offsets, columns, values := make([]uint32, 6), make([]uint32, n), make([]float32, n)
		if err := s.GatherElements(offsets, columns, values, nodes); err != nil {
			t.Fatal(err)
		}
		at := 0
		for i, v := range nodes {
			if int(offsets[i]) != at {
				t.Fatalf("row %d begins at %d, want %d", i, offsets[i], at)
			}
			for j := range g.Columns {
				if want := g.Value(v, j); want != 0 {
					if columns[at] != uint32(j) || values[at] != want {
						t.Fatalf("%v: node %d has %v in column %d, want %v in %d", dt, v, values[at], columns[at], want,
							j)
					}
					at++
				}
			}
		}
		if at != int(n) || int(offsets[5]) != at {
			t.Errorf("%d of %d elements", at, n)
		}
		dense := make([]float32, len(nodes)*g.Columns)
		if err := s.Gather(t.Context(), dtype.BytesOf(dense), gds.Float32, nodes); err != nil {
			t.Fatal(err)
		}
		for i, x := range dense {
			if want := g.Value(nodes[i/g.Columns], i%g.Columns); x != want {
				t.Fatalf("element %d of node %d is %v, want %v", i%g.Columns, nodes[i/g.Columns], x, want)
			}
		}
		if stats := s.Stats(); stats.Rows != 10 || stats.Bytes != 2*8*n || s.Bytes() != elements.Bytes() ||
			s.Bytes() != 4*998+8*elements.Count() {
			t.Errorf("%+v, %d bytes of %d elements", stats, s.Bytes(), elements.Count())
		}
		if s.GatherElements(offsets[:5], columns, values, nodes) == nil ||
			s.GatherElements(offsets, columns[1:], values, nodes) == nil {
			t.Error("too little room is accepted")
		}
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	}
}

func TestDenseFeaturesAreNotSparse(t *testing.T) {
	for _, g := range graphs {
		graph := graphtest.New(t, vfs.OS(), filepath.Join(t.TempDir(), "graph"), g)
		if elements, err := features.FindElements(t.Context(), graph, 2); err != nil || (elements != nil) != g.Sparse {
			t.Errorf("%+v: %v, %v", g, elements, err)
		}
	}
}
