// Package graphtest writes small graphs whose numbers follow from the node, for tests of loaders.
package graphtest

import (
	"context"
	"fmt"
	"slices"
	"testing"

	"github.com/hopfeed/hopfeed/format"
	"github.com/hopfeed/hopfeed/internal/dtype"
	"github.com/hopfeed/hopfeed/internal/vfs"
)

// Graph describes a graph. Node v has Degree(v) in-neighbours, v+1, v+2 and so on (modulo Nodes).
type Graph struct {
	Nodes, Columns, ChunkRows int
	DType                     format.DType
	Labels                    int // columns; -n: n of values
	// External: the features are in a file of their own, behind ten bytes.
	External bool
	// Sparse: one feature in twenty is not zero, and all of the first DenseNodes are.
	Sparse     bool
	DenseNodes int
}

// Value is a feature, which every type holds exactly.
func Value(node uint32, column int) float32 { return float32((int(node)*31+column*3)%127) - 60 }

// Value is a feature of the graph.
func (g Graph) Value(node uint32, column int) float32 {
	if g.Sparse && int(node) >= g.DenseNodes && (int(node)*7+column)%20 != 0 {
		return 0
	}
	return Value(node, column)
}

// Label is a class; -1 for some nodes.
func Label(node uint32) int32 { return int32(node*5%11) - 1 }

// Degree is the number of in-neighbours: 0 for some nodes, and many for node 3.
func (g Graph) Degree(node int) int {
	if node == 3 {
		return g.Nodes - 1
	}
	return min(node%7, g.Nodes-1)
}

// New writes and opens a graph.
func New(t testing.TB, fsys vfs.FS, dir string, g Graph) *format.Dir {
	t.Helper()
	if err := g.write(fsys, dir); err != nil {
		t.Fatal(err)
	}
	d, err := format.OpenGraph(fsys, dir)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = d.Close() })
	return d
}

func (g Graph) write(fsys vfs.FS, dir string) error {
	layout := format.Layout{
		Regions:   format.Regions([]format.RegionSize{{Name: format.RegionAll, Rows: int64(g.Nodes)}}, g.ChunkRows),
		ChunkRows: g.ChunkRows, Features: g.Columns, DType: g.DType,
	}
	w, err := format.Create(fsys, dir, layout, format.CreateOptions{})
	if err != nil {
		return err
	}
	defer w.Abort()
	c := &format.CSC{Offsets: []int64{0}}
	rows := &format.RowTable{Rows: int64(g.Nodes), LabelColumns: g.Labels}
	for v := range g.Nodes {
		for k := range g.Degree(v) {
			c.Neighbors = append(c.Neighbors, uint32((v+1+k)%g.Nodes))
		}
		slices.Sort(c.Neighbors[c.Offsets[v]:])
		c.Offsets = append(c.Offsets, int64(len(c.Neighbors)))
	}
	classes := 10
	switch {
	case g.Labels < 0:
		classes, rows.LabelColumns = 0, -g.Labels
		for i := range g.Nodes * rows.LabelColumns {
			rows.LabelValues = append(rows.LabelValues, float32(i)/8)
		}
	case g.Labels == 1:
		for v := range g.Nodes {
			rows.Labels = append(rows.Labels, Label(uint32(v)))
		}
	default:
		for i := range g.Nodes * g.Labels {
			rows.MultiLabels = append(rows.MultiLabels, int8(i*7%3)-1)
		}
	}
	if err := w.Topology(c); err != nil {
		return err
	}
	if err := w.Rows(rows); err != nil {
		return err
	}
	if err := g.writeFeatures(fsys, dir, w); err != nil {
		return err
	}
	return w.Publish(&format.Manifest{Name: "toy", Nodes: int64(g.Nodes), Edges: c.Edges(), Classes: classes,
		Labels: rows.LabelColumns, LabelValues: g.Labels < 0, Input: map[string]string{"importer": "test"}})
}

func (g Graph) writeFeatures(fsys vfs.FS, dir string, w *format.Writer) error {
	if g.Columns == 0 {
		return nil
	}
	wide := make([]float32, g.Nodes*g.Columns)
	for i := range wide {
		wide[i] = g.Value(uint32(i/g.Columns), i%g.Columns)
	}
	stored := make([]byte, len(wide)*g.DType.Size())
	if i := dtype.Encode(stored, wide, g.DType); i >= 0 {
		return fmt.Errorf("value %d does not fit", i)
	}
	if !g.External {
		m, err := w.Matrix(format.Input)
		if err != nil {
			return err
		}
		if err := m.Write(stored); err != nil {
			return err
		}
		return m.Close()
	}
	if err := vfs.WriteFile(fsys, dir+"-features", append([]byte("ten bytes!"), stored...)); err != nil {
		return err
	}
	files := []format.SourceFile{{Path: dir + "-features", Offset: 10, Rows: int64(g.Nodes)}}
	return w.UseSources(context.Background(), files, 1, func(int64, []byte) error { return nil })
}
