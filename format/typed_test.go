package format

import (
	"context"
	"errors"
	"testing"

	"github.com/hopfeed/hopfeed/internal/progress"
	"github.com/hopfeed/hopfeed/internal/vfs"
)

func TestMatricesOfAStoreMayDifferInWidth(t *testing.T) {
	for _, features := range []int{2, 0} { // without features there is no hop 0
		fsys := vfs.NewMem()
		layout := NewLayout([]RegionSize{{RegionTrain, 3}, {RegionValid, 1}, {RegionTest, 0}, {RegionRest, 1}}, 2, features,
			Float32)
		layout.Widths = map[string]int{"rw:a<b": 5, "rw:a<b<a": 1}
		w, err := Create(fsys, "store", layout, CreateOptions{Job: "job"})
		if err != nil {
			t.Fatal(err)
		}
		m := &Manifest{Nodes: 9, RowSet: RowsAll, Operators: []Operator{{Name: "rw:a<b", Hops: 1, Features: 5},
			{Name: "rw:a<b<a", Hops: 1, Features: 1}}}
		widths := map[MatrixID]int{{"rw:a<b", 1}: 5, {"rw:a<b<a", 1}: 1}
		if features > 0 {
			widths[Input] = features
		} else if _, err := w.Matrix(Input); err == nil {
			t.Error("a store without features has a hop 0")
		}
		for id, width := range widths {
			out, err := w.Matrix(id)
			if err != nil {
				t.Fatal(err)
			}
			rows := make([]byte, 4*width*5)
			rows[4*width] = byte(width) // in row 1
			if err := errors.Join(out.Write(rows), out.Close()); err != nil {
				t.Fatal(err)
			}
		}
		if err := errors.Join(w.Rows(&RowTable{Rows: 5, NodeID: []uint32{6, 2, 4, 1, 0}}), w.Publish(m)); err != nil {
			t.Fatal(err)
		}
		d, err := OpenStore(fsys, "store")
		if err != nil {
			t.Fatal(err)
		}
		if len(d.Matrices()) != len(widths) {
			t.Errorf("matrices %v", d.Matrices())
		}
		for id, width := range widths {
			matrix, err := d.Matrix(id)
			if err != nil {
				t.Fatal(err)
			}
			chunk := make([]byte, 2*4*width)
			if err := matrix.ReadChunk(0, chunk); err != nil || matrix.Layout.Features != width ||
				chunk[4*width] != byte(width) {
				t.Errorf("%s: %d columns, chunk %v, %v", id, matrix.Layout.Features, chunk, err)
			}
		}
		d.Close()
		report, err := Verify(context.Background(), fsys, "store", 1, progress.Silent)
		if err != nil {
			t.Fatal(err)
		}
		for _, bad := range report.Bad { // training rows are not in their order
			if bad.File != "store/rows/part-00000.arrow" {
				t.Error(bad)
			}
		}
	}
}

func TestARelationHasSourcesOfItsOwn(t *testing.T) {
	c := &CSC{Offsets: []int64{0, 2, 3}, Neighbors: []uint32{0, 6, 3}}
	write := func(fsys vfs.FS, sources int64) error {
		layout := NewLayout([]RegionSize{{RegionAll, 2}}, 0, 0, Float32)
		layout.SourceNodes = sources
		w, err := Create(fsys, "graph", layout, CreateOptions{})
		if err == nil {
			err = errors.Join(w.Topology(c), w.Rows(&RowTable{Rows: 2}))
		}
		if err == nil {
			err = w.Publish(&Manifest{})
		}
		return err
	}
	for _, sources := range []int64{0, 6} {
		if err := write(vfs.NewMem(), sources); err == nil {
			t.Errorf("an in-neighbour 6 of %d sources", sources)
		}
	}
	fsys := vfs.NewMem()
	if err := write(fsys, 7); err != nil {
		t.Fatal(err)
	}
	if _, err := OpenGraph(fsys, "graph"); !errors.Is(err, ErrKind) {
		t.Errorf("opened as a graph of one type: %v", err)
	}
	d, err := OpenRelation(fsys, "graph")
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	read, err := d.Topology(context.Background(), 1)
	if err != nil || read.Sources() != 7 || read.Nodes() != 2 {
		t.Fatalf("%v, %v", read, err)
	}
	defer read.Close()
	file, err := d.OpenTopology(context.Background(), 1)
	if err != nil || file.Sources() != 7 || file.Nodes() != 2 {
		t.Fatalf("%v, %v", file, err)
	}
	defer file.Close()
	if report, err := Verify(context.Background(), fsys, "graph", 1, progress.Silent); err != nil || len(report.Bad) > 0 {
		t.Errorf("%v, %v", report, err)
	}
}
