package format

import (
	"bytes"
	"errors"
	"io"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/hopfeed/hopfeed/internal/dtype"
	"github.com/hopfeed/hopfeed/internal/vfs"
)

// randomCSC has lists of very different lengths, many of them empty.
func randomCSC(r *rand.Rand, nodes, edges int, weighted bool) (c *CSC, degrees []uint32) {
	degrees = make([]uint32, nodes)
	for range edges {
		degrees[int(float64(nodes)*math.Pow(r.Float64(), 8))]++
	}
	c = &CSC{Offsets: []int64{0}}
	for _, d := range degrees {
		list := make([]uint32, d)
		for i := range list {
			list[i] = uint32(r.IntN(nodes))
		}
		slices.Sort(list)
		c.Neighbors = append(c.Neighbors, list...)
		c.Offsets = append(c.Offsets, int64(len(c.Neighbors)))
	}
	if weighted {
		c.Weights = make([]float32, len(c.Neighbors))
		for i := range c.Weights {
			c.Weights[i] = r.Float32()
		}
	}
	return c, degrees
}

func topologyDisk(t *testing.T, nodes int, write func(w *Writer) error) vfs.FS {
	t.Helper()
	fsys := vfs.NewMem()
	w, err := Create(fsys, "/d", Layout{Regions: Regions([]RegionSize{{RegionAll, int64(nodes)}}, 2), ChunkRows: 2,
		DType: Float32}, CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(write(w), w.Rows(&RowTable{Rows: int64(nodes)}), w.Publish(&Manifest{})); err != nil {
		t.Fatal(err)
	}
	return fsys
}

func TestAStreamedTopologyHasTheBytesOfOneInMemory(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 1))
	for _, size := range []struct{ nodes, edges int }{{1, 0}, {1, 5}, {7, 0}, {1000, 3000}, {200_000, 10}, {3, 300_000},
		{131072, 262144}} {
		for _, weighted := range []bool{false, true} {
			c, degrees := randomCSC(r, size.nodes, size.edges, weighted)
			want := topologyDisk(t, size.nodes, func(w *Writer) error { return w.Topology(c) })
			got := topologyDisk(t, size.nodes, func(w *Writer) error {
				var weights io.Reader
				if weighted {
					weights = bytes.NewReader(dtype.BytesOf(c.Weights))
				}
				return w.StreamTopology(degrees, iotest.HalfReader(bytes.NewReader(dtype.BytesOf(c.Neighbors))),
					weights)
			})
			for _, path := range filesOf(t, want, "/d") {
				a, errA := readFile(want, path, sizeOf(t, want, path))
				b, errB := readFile(got, path, sizeOf(t, got, path))
				if errA != nil || errB != nil || !bytes.Equal(a, b) {
					t.Errorf("%+v, weighted %v: %s differs", size, weighted, path)
				}
			}
		}
	}
}

func TestAStreamThatIsNoTopologyIsRefused(t *testing.T) {
	ids := func(list ...uint32) io.Reader { return bytes.NewReader(dtype.BytesOf(list)) }
	floats := func(list ...float32) io.Reader { return bytes.NewReader(dtype.BytesOf(list)) }
	broken := errors.New("broken")
	for name, c := range map[string]struct {
		degrees            []uint32
		neighbors, weights io.Reader
		text               string
	}{
		"another number of nodes": {[]uint32{1, 2}, ids(0, 1, 2), nil, "2 nodes, but the layout 3 rows"},
		"a neighbour beyond":      {[]uint32{1, 2, 0}, ids(0, 1, 3), nil, "neighbour 3 of node 1"},
		"falling neighbours":      {[]uint32{1, 0, 2}, ids(0, 2, 1), nil, "neighbour 1 of node 2"},
		"too few neighbours":      {[]uint32{1, 0, 2}, ids(0, 2), nil, "EOF"},
		"too few weights":         {[]uint32{1, 0, 1}, ids(0, 2), floats(1), "EOF"},
		"an infinite weight":      {[]uint32{1, 0, 1}, ids(0, 2), floats(1, float32(math.Inf(1))), "weight of edge 1"},
		"a negative weight":       {[]uint32{1, 0, 1}, ids(0, 2), floats(-1, 1), "weight of edge 0"},
		"a reader that fails":     {[]uint32{1, 0, 1}, iotest.ErrReader(broken), nil, "broken"},
	} {
		fsys := vfs.NewMem()
		w, err := Create(fsys, "/d", Layout{Regions: Regions([]RegionSize{{RegionAll, 3}}, 2), ChunkRows: 2,
			DType: Float32}, CreateOptions{})
		if err != nil {
			t.Fatal(err)
		}
		if err := w.StreamTopology(c.degrees, c.neighbors, c.weights); err == nil ||
			!strings.Contains(err.Error(), c.text) {
			t.Errorf("%s: %v", name, err)
		}
		if err := w.Abort(); err != nil {
			t.Error(err)
		}
		if _, err := fsys.Stat("/d"); err == nil {
			t.Errorf("%s: something is left", name)
		}
	}
}

func TestScratchGoesWithTheJobOrWithTheNextOne(t *testing.T) {
	fsys := vfs.NewMem()
	layout := Layout{Regions: Regions([]RegionSize{{RegionAll, 1}}, 2), ChunkRows: 2, DType: Float32}
	var folder string
	start := func() *Writer {
		w, err := Create(fsys, "/d", layout, CreateOptions{})
		if err != nil {
			t.Fatal(err)
		}
		if folder != "" {
			if _, err := fsys.Stat(folder); err == nil {
				t.Error("scratch of a job before is there")
			}
		}
		if folder, err = w.Scratch(); err != nil {
			t.Fatal(err)
		}
		put(t, fsys, folder+"/edges.scratch", "some")
		return w
	}
	start()
	fsys = fsys.CrashClone()
	if err := start().Abort(); err != nil {
		t.Fatal(err)
	}
	if left := filesOf(t, fsys, "/d"); len(left) > 0 {
		t.Errorf("%v is left", left)
	}
	w := start()
	if err := errors.Join(w.Topology(&CSC{Offsets: []int64{0, 0}}), w.Rows(&RowTable{Rows: 1}),
		w.Publish(&Manifest{})); err != nil {
		t.Fatal(err)
	}
	if _, err := fsys.Stat("/d/.job"); err == nil {
		t.Error(".job is left")
	}
}
