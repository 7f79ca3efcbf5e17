package sampling

import (
	"bytes"
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/hopfeed/hopfeed/format"
	"github.com/hopfeed/hopfeed/internal/dtype"
	"github.com/hopfeed/hopfeed/internal/vfs"
)

// writeGraph writes a graph with one column of features, and opens it.
func writeGraph(t *testing.T, c *format.CSC) *format.Dir {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "graph")
	l := format.Layout{Regions: format.Regions([]format.RegionSize{{Name: format.RegionAll, Rows: c.Nodes()}}, 1000),
		ChunkRows: 1000, Features: 1, DType: format.Float32}
	w, err := format.Create(vfs.OS(), dir, l, format.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	m, err := w.Matrix(format.Input)
	if err != nil {
		t.Fatal(err)
	}
	for _, err := range []error{
		m.Write(make([]byte, 4*c.Nodes())), m.Close(), w.Topology(c), w.Rows(&format.RowTable{Rows: c.Nodes()}),
		w.Publish(&format.Manifest{Name: "test", Directed: true}),
	} {
		if err != nil {
			t.Fatal(err)
		}
	}
	d, err := format.OpenGraph(vfs.OS(), dir)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { d.Close() })
	return d
}

// The file is cut off, or every byte of it replaced, after it was checked; no method may panic.
func TestAMappedTopologyThatChangesIsCorrupt(t *testing.T) {
	// 40 edges for each of 400 nodes take many pages, and are more than a fanout.
	lists := make([][]uint32, 400)
	for v := range lists {
		for j := range uint32(40) {
			lists[v] = append(lists[v], uint32(v)%10+10*j)
		}
	}
	graph := fromLists(lists, false)
	damages := map[string]func(path string) error{
		"cut off": func(path string) error { return os.Truncate(path, 4096) },
		"overwritten": func(path string) error {
			info, err := os.Stat(path)
			if err != nil {
				return err
			}
			f, err := os.OpenFile(path, os.O_WRONLY, 0)
			if err != nil {
				return err
			}
			_, err = f.Write(slices.Repeat([]byte{0xff}, int(info.Size())))
			return errors.Join(err, f.Close())
		},
	}
	g := writeGraph(t, graph)
	path := filepath.Join(g.Path(), format.PartPath("topology", 0))
	whole, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range Names() {
		for damage, do := range damages {
			for _, a := range []Aggregation{Mean, Sym} {
				if name != "neighbor" && name != "labor-1" && (a == Mean) == (damage == "cut off") {
					continue // half of the cases are enough
				}
				if err := os.WriteFile(path, whole, 0o644); err != nil {
					t.Fatal(err)
				}
				mapped, err := MapTopology(t.Context(), g)
				if err != nil {
					t.Fatal(err)
				}
				o := Options{Fanouts: []int{3, 3}, Aggregation: a}
				if name == "locality" {
					o.Cached = func(u uint32) bool { return u < 100 }
				}
				m, err := NewMethod(context.Background(), name, mapped, o)
				if err != nil {
					t.Fatal(err)
				}
				if err := do(path); err != nil {
					t.Fatal(err)
				}
				seeds := make([]uint32, 300)
				for i := range seeds {
					seeds[i] = uint32(i)
				}
				if err := m.Sample(t.Context(), new(MiniBatch), seeds, 1); !errors.Is(err, format.ErrCorrupt) {
					t.Errorf("%s, %s, %s: the error is %v", name, a, damage, err)
				}
				if err := errors.Join(m.Close(), mapped.Close()); err != nil {
					t.Error(err)
				}
			}
		}
	}
}

func TestATopologyThatIsDamagedWhenItIsOpenedIsRefused(t *testing.T) {
	g := writeGraph(t, smallGraph(false))
	path := filepath.Join(g.Path(), format.PartPath("topology", 0))
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	at := bytes.Index(b, dtype.BytesOf(smallGraph(false).Neighbors))
	if at < 0 {
		t.Fatal("no neighbours in the file")
	}
	b[at+100] ^= 1
	if err := os.WriteFile(path, b, 0o644); err != nil {
		t.Fatal(err)
	}
	if _, err := MapTopology(t.Context(), g); !errors.Is(err, format.ErrCorrupt) {
		t.Errorf("mapped: %v", err)
	}
	if _, err := LoadTopology(t.Context(), g, 1); !errors.Is(err, format.ErrCorrupt) {
		t.Errorf("loaded: %v", err)
	}
}

// Batches are the same of a topology in memory and of a mapped one.
func TestMappedTopologiesGiveTheSameBatches(t *testing.T) {
	for _, weighted := range []bool{false, true} {
		csc := smallGraph(weighted)
		mapped, err := MapTopology(t.Context(), writeGraph(t, csc))
		if err != nil {
			t.Fatal(err)
		}
		defer mapped.Close()
		for _, c := range methodCases() {
			if c.weighted != weighted {
				continue
			}
			var batches [2]MiniBatch
			for i, topology := range []Topology{InMemory(csc), mapped} {
				m, err := NewMethod(t.Context(), c.name, topology, c.options)
				if err != nil {
					t.Fatal(err)
				}
				for key := range uint64(5) {
					if err := m.Sample(t.Context(), &batches[i], []uint32{0, 4, 5, 50}, key); err != nil {
						t.Fatalf("%v: %v", c, err)
					}
				}
				if err := m.Close(); err != nil {
					t.Fatal(err)
				}
			}
			if !equal(&batches[0], &batches[1]) {
				t.Fatalf("%v: mapped %+v, want %+v", c, batches[1], batches[0])
			}
		}
	}
}
