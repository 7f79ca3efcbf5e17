package format

import (
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/hopfeed/hopfeed/internal/dtype"
	"github.com/hopfeed/hopfeed/internal/parallel"
	"github.com/hopfeed/hopfeed/internal/vfs"
)

// compareRanges reads a topology by node ranges, from several goroutines.
func compareRanges(t *testing.T, f *TopologyFile, c *CSC) {
	t.Helper()
	if f.Nodes() != c.Nodes() || f.Edges() != c.Edges() || f.Weighted() != (c.Weights != nil) {
		t.Fatalf("%d nodes, %d edges, weighted %v", f.Nodes(), f.Edges(), f.Weighted())
	}
	if v, e := f.Bounds(0); v != 0 || e != 0 {
		t.Fatalf("the first block starts at node %d, edge %d", v, e)
	}
	if v, e := f.Bounds(f.Ranges()); v != c.Nodes() || e != c.Edges() {
		t.Fatalf("the last block ends at node %d, edge %d", v, e)
	}
	grain := 1 + int64(f.Ranges())/64 // each with a buffer
	if err := parallel.For(context.Background(), 4, int64(f.Ranges()), grain, func(lo, hi int64) error {
		buf := make([]byte, f.RangeBytes())
		for k := lo; k < hi; k++ {
			first, edge := f.Bounds(int(k))
			end, _ := f.Bounds(int(k) + 1)
			got, err := f.ReadRange(int(k), buf)
			if err != nil {
				return err
			}
			want := c.Range(first, end)
			if got.First != first || got.Rows() != want.Rows() || got.Edges() != want.Edges() ||
				got.Offsets[0] != edge || first == end {
				return fmt.Errorf("block %d has %d nodes from %d and %d edges from %d", k, got.Rows(), got.First,
					got.Edges(), got.Offsets[0])
			}
			if !slices.Equal(got.Offsets, want.Offsets) || !slices.Equal(got.Neighbors, want.Neighbors) ||
				!slices.Equal(got.Weights, want.Weights) ||
				(got.Weights == nil) != (want.Weights == nil) {
				return fmt.Errorf("block %d differs", k)
			}
			for v := first; v < end; v++ {
				if !slices.Equal(got.In(v), c.In(v)) || c.Weights != nil &&
					!slices.Equal(got.InWeights(v), c.Weights[c.Offsets[v]:c.Offsets[v+1]]) {
					return fmt.Errorf("the list of node %d differs", v)
				}
			}
		}
		return nil
	}); err != nil {
		t.Fatal(err)
	}
}

func TestNodeRangesAreTheTopologyInPieces(t *testing.T) {
	r := rand.New(rand.NewPCG(5, 6))
	for _, size := range []struct{ nodes, edges int }{{0, 0}, {1, 0}, {1, 5}, {7, 0}, {300, 3000}, {3, 3000},
		{200_000, 10}} {
		for _, weighted := range []bool{false, true} {
			c, _ := randomCSC(r, size.nodes, size.edges, weighted)
			disk := topologyDisk(t, size.nodes, func(w *Writer) error { return w.Topology(c) })
			d, err := OpenGraph(disk, "/d")
			if err != nil {
				t.Fatal(err)
			}
			perEdge := int64(4)
			if weighted {
				perEdge = 8
			}
			for _, most := range []int64{0, 16, 100, 1000, 4096, 1 << 20, 1 << 40} {
				f, err := d.OpenTopology(context.Background(), most)
				if err != nil {
					t.Fatal(err)
				}
				if most <= 16 && size.nodes > 1000 {
					most = 1000 // for the sums below
				}
				compareRanges(t, f, c)
				for k := range f.Ranges() {
					from, edge := f.Bounds(k)
					to, end := f.Bounds(k + 1)
					if bytes := 8*(to-from+1) + perEdge*(end-edge); bytes > f.RangeBytes() || bytes > most &&
						to-from > 1 {
						t.Errorf("%+v: block %d of %d nodes has %d bytes, more than %d", size, k, to-from, bytes, most)
					}
				}
				if err := f.Close(); err != nil {
					t.Error(err)
				}
			}
		}
	}
}

func TestNodeRangesHaveAboutEqualSizes(t *testing.T) {
	s := makeGraph("even", 20_000, 0, 1000, Float32, false, columns{})
	fsys, dir := s.mustWrite(t)
	d, err := OpenGraph(fsys, dir)
	if err != nil {
		t.Fatal(err)
	}
	f, err := d.OpenTopology(context.Background(), 50_000)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	total := 8*f.Nodes() + 4*f.Edges()
	least := total/50_000 + 1
	if n := int64(f.Ranges()); n < least || n > least+1 {
		t.Errorf("%d node ranges, want %d", n, least)
	}
	for k := range f.Ranges() {
		from, edge := f.Bounds(k)
		to, end := f.Bounds(k + 1)
		if bytes := 8*(to-from+1) + 4*(end-edge); bytes < total/(least+1)*9/10 {
			t.Errorf("block %d has %d bytes", k, bytes)
		}
	}
}

func TestDamageOfATopologyIsFoundWhenItIsOpenedByNodeRanges(t *testing.T) {
	s := tiny()[0]
	fsys, dir := s.mustWrite(t)
	d, err := OpenGraph(fsys, dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, folder := range []string{topologyFolder, weightsFolder} {
		path := dir + "/" + PartPath(folder, 0)
		e := d.tables[folder].parts[0].extents[0]
		for at := e.Offset; at < e.Offset+e.Length; at++ {
			for _, length := range []int64{-1, at} {
				d.fsys = &damaged{FS: fsys, path: path, flip: at, bit: uint(at % 8), length: length, hidden: true}
				if _, err := d.OpenTopology(context.Background(), 40); !errors.Is(err, ErrCorrupt) ||
					!strings.Contains(err.Error(), path) {
					t.Fatalf("byte %d of %s, length %d: %v", at, path, length, err)
				}
			}
		}
	}
}

// What a network or a cache has damaged is read once more, when a topology is opened and later.
func TestDamageThatPassesIsReadOnceMoreByNodeRanges(t *testing.T) {
	s := makeGraph("graph", 9, 0, 3, Float32, true, columns{})
	fsys, dir := s.mustWrite(t)
	for _, folder := range []string{topologyFolder, weightsFolder} {
		bad := &damaged{FS: fsys, path: dir + "/" + PartPath(folder, 0), flip: -1, length: -1, passing: true}
		d, err := OpenGraph(bad, dir)
		if err != nil {
			t.Fatal(err)
		}
		e := d.tables[folder].parts[0].extents[0]
		for at := e.Offset; at < e.Offset+e.Length; at++ {
			bad.flip, bad.bit = at, uint(at%8)
			f, err := d.OpenTopology(context.Background(), 64)
			if err != nil {
				t.Fatalf("byte %d of %s: %v", at, bad.path, err)
			}
			bad.flip = at
			buf := make([]byte, f.RangeBytes())
			for k := range f.Ranges() {
				if _, err := f.ReadRange(k, buf); err != nil {
					t.Fatalf("byte %d of %s, later: %v", at, bad.path, err)
				}
			}
			f.Close()
		}
	}
}

func TestATopologyThatChangesWhileOpenIsCorrupt(t *testing.T) {
	s := makeGraph("graph", 9, 0, 3, Float32, true, columns{})
	fsys, dir := s.mustWrite(t)
	for _, folder := range []string{topologyFolder, weightsFolder} {
		bad := &damaged{FS: fsys, path: dir + "/" + PartPath(folder, 0), flip: -1, length: -1, hidden: true}
		d, err := OpenGraph(bad, dir)
		if err != nil {
			t.Fatal(err)
		}
		f, err := d.OpenTopology(context.Background(), 64)
		if err != nil {
			t.Fatal(err)
		}
		buf := make([]byte, f.RangeBytes())
		readAll := func() (err error) {
			for k := range f.Ranges() {
				_, blockErr := f.ReadRange(k, buf)
				err = errors.Join(err, blockErr)
			}
			return err
		}
		e := d.tables[folder].parts[0].extents[0]
		for at := e.Offset; at < e.Offset+e.Length; at++ {
			padding := folder == topologyFolder && at >= e.Offset+80 && at < e.Offset+128
			bad.flip, bad.bit = at, uint(at%8)
			if err := readAll(); padding != (err == nil) || err != nil &&
				(!errors.Is(err, ErrCorrupt) || !strings.Contains(err.Error(), bad.path)) {
				t.Fatalf("byte %d of %s: %v", at, bad.path, err)
			}
			bad.flip, bad.length = -1, at
			if err := readAll(); !errors.Is(err, ErrCorrupt) || !strings.Contains(err.Error(), "ends at byte") {
				t.Fatalf("%s ends at byte %d: %v", bad.path, at, err)
			}
			bad.length = -1
		}
		if _, err := f.ReadRange(0, buf[:f.BytesOf(0)-1]); err == nil {
			t.Error("a buffer that is too small is taken")
		}
		if err := f.Close(); err != nil {
			t.Error(err)
		}
	}
}

func TestAFaultAnywhereFailsReadingByNodeRanges(t *testing.T) {
	s := makeGraph("graph", 9, 0, 3, Float32, true, columns{})
	fsys, dir := s.mustWrite(t)
	for n := int64(1); ; n++ {
		d, err := OpenGraph(fsys, dir)
		if err != nil {
			t.Fatal(err)
		}
		fault := vfs.NewFault(fsys)
		fault.FailAt(n, syscall.EIO)
		d.fsys = fault
		f, err := d.OpenTopology(context.Background(), 64)
		if err == nil {
			buf := make([]byte, f.RangeBytes())
			for k := range f.Ranges() {
				_, blockErr := f.ReadRange(k, buf)
				err = errors.Join(err, blockErr)
			}
			f.Close()
		}
		if fault.Operations() < n {
			break
		}
		if !errors.Is(err, syscall.EIO) {
			t.Fatalf("operation %d: %v", n, err)
		}
	}
}

func TestARawTopologyIsCheckedAndReadByNodeRanges(t *testing.T) {
	neighbors, weights := []uint32{0, 1, 2, 2}, []float32{1, 2, 3, 4}
	for name, c := range map[string]struct {
		offsets   []int64
		neighbors []uint32
		weights   []float32
		text      string
	}{
		"sound":                     {[]int64{0, 2, 2, 4}, neighbors, nil, ""},
		"sound, with weights":       {[]int64{0, 2, 2, 4}, neighbors, weights, ""},
		"offsets that do not begin": {[]int64{1, 2, 2, 4}, neighbors, nil, "offset of node 0"},
		"offsets that fall":         {[]int64{0, 2, 1, 4}, neighbors, nil, "offset of node 2"},
		"offsets below zero":        {[]int64{0, -2, 2, 4}, neighbors, nil, "offset of node 1"},
		"offsets beyond":            {[]int64{0, 1 << 62, 2, 4}, neighbors, nil, "offset of node 1"},
		"offsets that end early":    {[]int64{0, 2, 2, 3}, neighbors, nil, "offset of node 3"},
		"neighbours that fall":      {[]int64{0, 2, 2, 4}, []uint32{0, 1, 2, 1}, nil, "neighbour 1 of node 2"},
		"a neighbour beyond":        {[]int64{0, 2, 2, 4}, []uint32{0, 3, 2, 2}, nil, "neighbour 3 of node 0"},
		"fewer neighbours":          {[]int64{0, 2, 2, 4}, neighbors[:3], nil, "ends at byte"},
		"fewer weights":             {[]int64{0, 2, 2, 4}, neighbors, weights[:3], "ends at byte"},
		"an infinite weight": {[]int64{0, 2, 2, 4}, neighbors, []float32{0, 1, 2, float32(math.Inf(1))},
			"weight of edge 3"},
		"fewer offsets than are due": {[]int64{0}, nil, nil, "ends at byte"},
	} {
		fsys := vfs.NewMem()
		put(t, fsys, "/topology", "12345678"+string(dtype.BytesOf(c.offsets))+string(dtype.BytesOf(c.neighbors)))
		put(t, fsys, "/weights", string(dtype.BytesOf(c.weights)))
		raw := RawTopology{Nodes: 3, Edges: 4, OffsetsAt: 8, NeighborsAt: 40}
		raw.File, _ = fsys.Open("/topology")
		if c.weights != nil {
			raw.Weights, _ = fsys.Open("/weights")
		}
		f, err := NewTopologyFile(context.Background(), raw, 20)
		if c.text == "" {
			if err != nil {
				t.Fatalf("%s: %v", name, err)
			}
			compareRanges(t, f, &CSC{Offsets: c.offsets, Neighbors: c.neighbors, Weights: c.weights})
			continue
		}
		if !errors.Is(err, ErrCorrupt) || !strings.Contains(err.Error(), c.text) {
			t.Errorf("%s: %v", name, err)
		}
		if err := raw.File.Close(); err == nil {
			t.Errorf("%s: the file is still open", name)
		}
	}
	over := errors.New("--max-time is over")
	ctx, cancel := context.WithTimeoutCause(context.Background(), 0, over)
	defer cancel()
	fsys, dir := tinyGraph(t)
	d, err := OpenGraph(fsys, dir)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := d.OpenTopology(ctx, 64); !errors.Is(err, over) {
		t.Error(err)
	}
}

func tinyGraph(t *testing.T) (*vfs.Mem, string) {
	t.Helper()
	s := tiny()[0]
	return s.mustWrite(t)
}
