package ingest

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"
	"math"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/hopfeed/hopfeed/format"
	"github.com/hopfeed/hopfeed/internal/vfs"
	"github.com/hopfeed/hopfeed/tools/npy"
)

// parquetColumn is a column of a table: []int64, []float32, []float64, []string, a list
// ([][]float32, where nil is null), or []any of int64 and nil.
type parquetColumn struct {
	name   string
	values any
}

// thrift are structures in Thrift's compact protocol, of fields with long headers.
type thrift []byte

func structure(fields ...thrift) thrift { return append(slices.Concat(fields...), 0) }

func field(id int64, kind byte, value ...byte) thrift {
	return append(binary.AppendVarint(thrift{kind}, id), value...)
}

func number(id, v int64) thrift           { return field(id, 6, binary.AppendVarint(nil, v)...) }
func nested(id int64, f ...thrift) thrift { return field(id, 12, structure(f...)...) }
func list(id int64, items ...thrift) thrift {
	return field(id, 9, append(binary.AppendUvarint([]byte{0xfc}, uint64(len(items))), slices.Concat(items...)...)...)
}
func name(id int64, s string) thrift {
	return field(id, 8, append(binary.AppendUvarint(nil, uint64(len(s))), s...)...)
}

// parquetFile is a table in row groups of at most three rows, as plain as can be.
func parquetFile(columns ...parquetColumn) []byte {
	out := []byte("PAR1")
	schema := []thrift{structure(name(4, "schema"), number(5, int64(len(columns))))}
	rows := 0
	for _, c := range columns {
		leaf := func(physical, repetition int64, more ...thrift) thrift {
			return structure(slices.Concat(append([]thrift{number(1, physical), number(3, repetition), name(4, c.name)},
				more...)...))
		}
		switch v := c.values.(type) {
		case []int64:
			schema, rows = append(schema, leaf(2, 0)), len(v)
		case []any:
			schema, rows = append(schema, leaf(2, 1)), len(v)
		case []float32:
			schema, rows = append(schema, leaf(4, 0)), len(v)
		case []float64:
			schema, rows = append(schema, leaf(5, 0)), len(v)
		case []string:
			schema, rows = append(schema, leaf(6, 0, number(6, 0))), len(v)
		case [][]float32:
			rows = len(v)
			schema = append(schema, structure(number(3, 1), name(4, c.name), number(5, 1)),
				structure(number(3, 2), name(4, "list"), number(5, 1)), leaf(4, 0))
		}
	}
	var groups []thrift
	for first := 0; first < rows; first += 3 {
		end := min(first+3, rows)
		var chunks []thrift
		for _, c := range columns {
			cells, data := plainCells(c.values, first, end)
			at, size := int64(len(out)), int64(len(data))
			out = append(append(out, structure(number(1, 0), number(2, size), number(3, size), nested(5, number(1,
				cells), number(2, 0), number(3, 3), number(4, 3)))...), data...)
			chunks = append(chunks, structure(nested(3, number(4, 0), number(5, cells), number(7, int64(len(out))-at),
				number(9, at))))
		}
		groups = append(groups, structure(list(1, chunks...), number(3, int64(end-first))))
	}
	footer := structure(number(1, 1), list(2, schema...), number(3, int64(rows)), list(4, groups...))
	return append(binary.LittleEndian.AppendUint32(append(out, footer...), uint32(len(footer))), "PAR1"...)
}

// plainCells are the levels, in runs of one, and values of some rows.
func plainCells(values any, first, end int) (cells int64, data []byte) {
	var rep, def []byte
	switch v := values.(type) {
	case []int64:
		data = raw(v[first:end])
	case []float32:
		data = raw(v[first:end])
	case []float64:
		data = raw(v[first:end])
	case []string:
		for _, s := range v[first:end] {
			data = append(binary.LittleEndian.AppendUint32(data, uint32(len(s))), s...)
		}
	case []any:
		for _, x := range v[first:end] {
			if x == nil {
				def = append(def, 2, 0)
				continue
			}
			def, data = append(def, 2, 1), append(data, raw([]int64{x.(int64)})...)
		}
	case [][]float32:
		for _, list := range v[first:end] {
			if len(list) == 0 {
				def, rep = append(def, 2, 0), append(rep, 2, 0)
			}
			for i := range list {
				def, rep = append(def, 2, 2), append(rep, 2, byte(min(1, i)))
			}
			data = append(data, raw(list)...)
		}
	}
	cells = int64(end - first)
	if rep != nil {
		cells = int64(len(rep) / 2)
	}
	for _, levels := range [][]byte{def, rep} {
		if levels != nil {
			data = slices.Concat(binary.LittleEndian.AppendUint32(nil, uint32(len(levels))), levels, data)
		}
	}
	return cells, data
}

// smallTables are smallLayout as tables.
func smallTables() layout {
	return layout{
		"edges.parquet": parquetFile(parquetColumn{"source", []int64{0, 1, 4, 4}},
			parquetColumn{"destination", []int64{1, 2, 3, 0}}),
		"nodes.parquet": smallNodes(),
	}
}

// smallNodes are the nodes of smallLayout, with some more columns.
func smallNodes(more ...parquetColumn) []byte {
	columns := []parquetColumn{
		{"id", []int64{0, 1, 2, 3, 4}},
		{"label", []any{int64(0), int64(1), int64(2), nil, int64(1)}},
		{"split", []string{"train", "0", "valid", "none", "test"}},
	}
	for c := range 4 {
		var values []float32
		for r := range 5 {
			values = append(values, smallFeatures[4*r+c])
		}
		columns = append(columns, parquetColumn{string(rune('a' + c)), values})
	}
	return parquetFile(append(columns, more...)...)
}

func smallLists() [][]float32 {
	var lists [][]float32
	for r := range 5 {
		lists = append(lists, smallFeatures[4*r:4*r+4])
	}
	return lists
}

func openParquet(disk vfs.FS, o TableOptions) (Source, error) {
	return OpenParquet(context.Background(), disk, "in", ScratchOptions{Output: "out/graph"}, o)
}

func TestTablesGiveTheGraphThatArraysGive(t *testing.T) {
	arrays := smallLayout()
	arrays["splits.npy"] = array(npy.Int8, []int8{0, 0, 1, -1, 2}, 5)
	disk, _, err := run(t, arrays, Options{})
	if err != nil {
		t.Fatal(err)
	}
	want := files(t, disk, "out/graph")
	edges := smallTables()["edges.parquet"]
	half := parquetFile(parquetColumn{"source", []int64{4, 4}}, parquetColumn{"destination", []int64{3, 0}})
	list := parquetColumn{"x", smallLists()}
	label, split := parquetColumn{"y", []float64{0, 1, 2, math.NaN(), 1}}, parquetColumn{"split",
		[]int64{0, 0, 1, -1, 2}}
	for _, c := range []struct {
		name  string
		files layout
		o     TableOptions
	}{
		{"columns", smallTables(), TableOptions{}},
		{"a list", layout{"edges.parquet": edges, "nodes.parquet": parquetFile(list, label, split)}, TableOptions{}},
		{"a list and other columns", layout{"edges.parquet": edges, "nodes.parquet": parquetFile(parquetColumn{"year",
			[]int64{9, 9, 9, 9, 9}}, list, label, split, parquetColumn{"title", make([]string,
			5)})}, TableOptions{NodeFiles: NodeFiles{Columns: Columns{ID: None}}}},
		{"columns and an index of pandas", layout{"edges.parquet": edges,
			"nodes.parquet": smallNodes(parquetColumn{"__index_level_0__", []int64{7, 7, 7, 7, 7}})}, TableOptions{}},
		{"folders", layout{
			"edges.parquet/b.parquet": half,
			"edges.parquet/a.parquet": parquetFile(parquetColumn{"weightless", []int64{7, 7}},
				parquetColumn{"destination", []int64{1, 2}}, parquetColumn{"source", []int64{0, 1}}),
			"nodes.parquet/0.parquet": parquetFile(list, label, split),
		}, TableOptions{}},
		{"tables and arrays", layout{"edges.parquet": edges, "nodes.parquet": parquetFile(label, split),
			"x.npy": arrays["node_feat.npy"]}, TableOptions{NodeFiles: NodeFiles{Features: "in/x.npy"}}},
		{"edges and arrays", layout{"edges.parquet": edges, "x.npy": arrays["node_feat.npy"],
			"y.npy": arrays["node_label.npy"], "s.npy": arrays["splits.npy"]},
			TableOptions{NodeFiles: NodeFiles{Features: "in/x.npy", Labels: "in/y.npy", Splits: "in/s.npy"}}},
	} {
		disk := c.files.put(t)
		s, err := openParquet(disk, c.o)
		if err != nil {
			t.Errorf("%s: %v", c.name, err)
			continue
		}
		if _, err := Run(context.Background(), disk, s, "out/graph", Options{Direction: Directed}); err != nil {
			t.Errorf("%s: %v", c.name, err)
		}
		s.Close()
		openGraph(t, disk, "out/graph")
		got := files(t, disk, "out/graph")
		delete(got, "out/graph/manifest.json") // which says where it comes from
		for name := range got {
			if got[name] != want[name] {
				t.Errorf("%s: %s differs", c.name, name)
			}
		}
		if len(got) != len(want)-1 || len(files(t, disk, "out")) != len(want) {
			t.Errorf("%s: %d files", c.name, len(got))
		}
	}
}

func TestIDsOfTablesAreMapped(t *testing.T) {
	edges := parquetFile(parquetColumn{"from", []string{"b", "c", "a"}}, parquetColumn{"to", []string{"c", "a", "b"}},
		parquetColumn{"weight", []float64{2, 0.5, 1}})
	nodes := func(names ...string) []byte {
		return parquetFile(parquetColumn{"node_id", names},
			parquetColumn{"labels", [][]float32{{0, 1}, {1, 0}, {1, float32(math.NaN())}, {0, 0}}}, parquetColumn{"f",
				[]int64{10, 20, 30, 40}})
	}
	for _, c := range []struct {
		name      string
		files     layout
		ids       []string
		neighbors []uint32
		features  []float32
	}{
		{"in the order of the nodes", layout{"edges.parquet": edges, "nodes.parquet": nodes("a", "b", "c", "alone")},
			[]string{"a", "b", "c", "alone"}, []uint32{2, 0, 1}, []float32{10, 20, 30, 40}},
		{"as first seen", layout{"edges.parquet": edges}, []string{"b", "c", "a"}, []uint32{2, 0, 1},
			[]float32{1, 1, 1}},
		{"that are large numbers", layout{"edges.parquet": parquetFile(parquetColumn{"src", []int64{-5, 1 << 60}},
			parquetColumn{"dst", []int64{1 << 60, -5}})},
			[]string{"-5", "1152921504606846976"}, []uint32{1, 0}, []float32{1, 1}},
	} {
		disk := c.files.put(t)
		s, err := openParquet(disk, TableOptions{MapIDs: true})
		if err != nil {
			t.Errorf("%s: %v", c.name, err)
			continue
		}
		if _, err := Run(context.Background(), disk, s, "out/graph", Options{}); err != nil {
			t.Errorf("%s: %v", c.name, err)
		}
		s.Close()
		d := openGraph(t, disk, "out/graph")
		rows, err := d.Rows(context.Background())
		if err != nil {
			t.Fatal(err)
		}
		csc, err := d.Topology(context.Background(), 1)
		if err != nil {
			t.Fatal(err)
		}
		if !slices.Equal(rows.OrigID, c.ids) || !slices.Equal(csc.Neighbors, c.neighbors) ||
			!slices.Equal(storedFeatures(t, d), c.features) {
			t.Errorf("%s: %v, %v, %v", c.name, rows.OrigID, csc.Neighbors, storedFeatures(t, d))
		}
		if strings.HasPrefix(c.name, "in") && (!slices.Equal(rows.MultiLabels, []int8{0, 1, 1, 0, 1, -1, 0, 0}) ||
			!slices.Equal(csc.Weights, []float32{0.5, 1, 2})) {
			t.Errorf("%s: %v, %v", c.name, rows.MultiLabels, csc.Weights)
		}
		csc.Close()
	}
}

func TestTablesThatAreNoGraphAreRefused(t *testing.T) {
	edges := smallTables()["edges.parquet"]
	ends := func(src, dst any) layout {
		return layout{"edges.parquet": parquetFile(parquetColumn{"source", src}, parquetColumn{"destination", dst})}
	}
	nodes := func(columns ...parquetColumn) layout {
		return layout{"edges.parquet": edges, "nodes.parquet": parquetFile(columns...)}
	}
	feature := parquetColumn{"f", []float64{1, 2, 3, 4, 5}}
	five := []int64{0, 1, 2, 3, 4}
	lists := smallLists()
	for _, c := range []struct {
		name  string
		files layout
		o     TableOptions
		say   []string
	}{
		{"no table", layout{"edges.parquet": []byte("0,1\n1,2\n2,3\n")}, TableOptions{},
			[]string{"in/edges.parquet", "no Parquet file"}},
		{"text as numbers of nodes", ends([]string{"a"}, []string{"b"}), TableOptions{},
			[]string{"in/edges.parquet", `"source"`, "--ids map"}},
		{"fractions as ids", ends([]float64{1, 1.5}, []float64{0, 0}), TableOptions{MapIDs: true},
			[]string{"in/edges.parquet: row 1", "1.5", "whole number"}},
		{"an edge without an end", ends([]int64{0, 1, 2, 3}, []any{int64(1), int64(1), int64(1), nil}), TableOptions{},
			[]string{"in/edges.parquet: row 3", "column destination", "is null"}},
		{"an end below zero", ends([]int64{0, 0, 0, -1}, []int64{1, 1, 1, 1}), TableOptions{},
			[]string{"in/edges.parquet: row 3", `"-1"`}},
		{"an end beyond the nodes", with(nodes(feature), "edges.parquet", ends([]int64{0, 5}, []int64{1,
			1})["edges.parquet"]), TableOptions{}, []string{"in/edges.parquet: row 1", "no node 5"}},
		{"an end beyond an array", with(ends([]int64{0, 5}, []int64{1, 1}), "x.npy", smallLayout()["node_feat.npy"]),
			TableOptions{NodeFiles: NodeFiles{Features: "in/x.npy"}}, []string{"in/edges.parquet: row 1",
				"node 5 has no features"}},
		{"a weight below zero", layout{"edges.parquet": parquetFile(parquetColumn{"src", five}, parquetColumn{"dst",
			five}, parquetColumn{"w", []float32{1, 1, 1, 1,
			-2}})}, TableOptions{}, []string{"in/edges.parquet: row 4", "weight -2"}},
		{"weights of text", layout{"edges.parquet": parquetFile(parquetColumn{"src", []int64{0}}, parquetColumn{"dst",
			[]int64{0}}, parquetColumn{"w", []string{"1"}})}, TableOptions{},
			[]string{"in/edges.parquet", `"w"`, "numbers"}},
		{"ids in another order", nodes(parquetColumn{"id", []int64{0, 1, 3, 2, 4}}, feature), TableOptions{},
			[]string{"in/nodes.parquet: row 2", "id 3", "--ids map"}},
		{"an id twice", nodes(parquetColumn{"id", []int64{0, 1, 2, 3, 0}}, feature), TableOptions{MapIDs: true},
			[]string{"in/nodes.parquet: row 4", `id "0" is there twice`}},
		{"a node without an id", nodes(parquetColumn{"id", []any{int64(0), nil, nil, nil, nil}}, feature),
			TableOptions{}, []string{"in/nodes.parquet: row 1", "column id", "is null"}},
		{"an edge of no id", with(nodes(parquetColumn{"id", []int64{1, 2, 3, 4, 5}}, feature), "edges.parquet",
			ends([]int64{1, 6}, []int64{2,
				2})["edges.parquet"]), TableOptions{MapIDs: true}, []string{"in/edges.parquet: row 1", `id "6"`}},
		{"lists of other lengths", nodes(parquetColumn{"x", [][]float32{lists[0], lists[1], lists[2][:3], lists[3],
			lists[4]}}), TableOptions{}, []string{"in/nodes.parquet: row 2", "column x", "4 values"}},
		{"a list that is longer", with(nodes(parquetColumn{"x", [][]float32{lists[0][:3], lists[1], lists[2][:3]}}),
			"edges.parquet", ends([]int64{0},
				[]int64{1})["edges.parquet"]), TableOptions{}, []string{"in/nodes.parquet: row 1", "3 values"}},
		{"a last list that is longer", with(nodes(parquetColumn{"x", [][]float32{lists[0][:3], lists[1][:3],
			lists[2]}}), "edges.parquet", ends([]int64{0}, []int64{1})["edges.parquet"]), TableOptions{},
			[]string{"in/nodes.parquet: row 2", "3 values"}},
		{"a last list that is shorter", with(nodes(parquetColumn{"x", [][]float32{lists[0], lists[1][:3]}}),
			"edges.parquet", ends([]int64{0},
				[]int64{1})["edges.parquet"]), TableOptions{}, []string{"in/nodes.parquet: row 1", "4 values"}},
		{"no list", nodes(parquetColumn{"x", [][]float32{lists[0], lists[1], lists[2], nil, lists[4]}}), TableOptions{},
			[]string{"in/nodes.parquet: row 3", "column x", "is null"}},
		{"no feature", nodes(parquetColumn{"id", five}, parquetColumn{"f", []any{int64(1), int64(1), int64(1), int64(1),
			nil}}), TableOptions{}, []string{"in/nodes.parquet: row 4", "column f", "is null"}},
		{"a feature beyond float32", nodes(parquetColumn{"f", []float64{1, 1, 1, 1e300, 1}}), TableOptions{},
			[]string{"in/nodes.parquet: row 3", "column f", "1e+300"}},
		{"a label of text that is to be a value", nodes(feature, parquetColumn{"label", []string{"a", "b", "c", "d",
			"e"}}), TableOptions{NodeFiles: NodeFiles{LabelsAs: LabelsAsValues}},
			[]string{"in/nodes.parquet: row 0", `label "a" is no number`}},
		{"a label below zero", nodes(feature, parquetColumn{"label", []int64{0, 0, 0, 0, -7}}), TableOptions{},
			[]string{"in/nodes.parquet: row 4", "label -7"}},
		{"labels of other lengths", nodes(feature, parquetColumn{"label", [][]float32{{0, 1}, {0, 1}, {0}, {0, 1}, {0,
			1}}}), TableOptions{}, []string{"in/nodes.parquet: row 2", "2 values"}},
		{"a last label of another length", nodes(feature, parquetColumn{"label", [][]float32{{0, 1}, {0, 1}, {0, 1}, {0,
			1}, {0}}}), TableOptions{}, []string{"in/nodes.parquet: row 4", "2 values"}},
		{"an unknown part", nodes(feature, parquetColumn{"split", []string{"train", "trial", "", "", ""}}),
			TableOptions{}, []string{"in/nodes.parquet: row 1", `split "trial"`}},
		{"splits of fractions", nodes(feature, parquetColumn{"split", []float64{0, 0, 0, 0.5, 0}}), TableOptions{},
			[]string{"in/nodes.parquet: row 3", "column split", "0.5"}},
	} {
		disk := c.files.put(t)
		s, err := openParquet(disk, c.o)
		if err == nil {
			_, err = Run(context.Background(), disk, s, "out/graph", Options{})
			s.Close()
		}
		refused(t, c.name, err, c.say...)
		if len(files(t, disk, "out")) > 0 {
			t.Errorf("%s: files are left", c.name)
		}
	}
	for name, c := range map[string]struct {
		files layout
		o     TableOptions
	}{
		"two sources of features":       {smallTables(), TableOptions{NodeFiles: NodeFiles{Features: "in/x.npy"}}},
		"two sources of labels":         {smallTables(), TableOptions{NodeFiles: NodeFiles{Labels: "in/x.npy"}}},
		"two sources of splits":         {smallTables(), TableOptions{NodeFiles: NodeFiles{Splits: "in/x.npy"}}},
		"mapped ids that are not there": {nodes(feature), TableOptions{MapIDs: true}},
		"no destinations": {layout{"edges.parquet": parquetFile(parquetColumn{"source", five})},
			TableOptions{}},
		"two sources": {layout{"edges.parquet": parquetFile(parquetColumn{"source", five},
			parquetColumn{"src", five}, parquetColumn{"dst", five})}, TableOptions{}},
		"two lists":              {nodes(parquetColumn{"x", lists}, parquetColumn{"z", lists}), TableOptions{}},
		"ids under another name": {nodes(parquetColumn{"nr", five}, feature), TableOptions{}},
	} {
		if _, err := openParquet(c.files.put(t), c.o); !errors.Is(err, ErrOptions) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, err := openParquet(layout{"nodes.parquet": smallNodes()}.put(t), TableOptions{}); !errors.Is(err,
		fs.ErrNotExist) || !strings.Contains(err.Error(), "edges.parquet") {
		t.Errorf("no edges: %v", err)
	}
}

func TestNoFaultOfTheDiskIsBlamedOnTables(t *testing.T) {
	importTables := func(fsys vfs.FS, force bool) error {
		s, err := OpenParquet(context.Background(), fsys, "in", ScratchOptions{Output: "out/graph", Force: force},
			TableOptions{})
		if err != nil {
			return err
		}
		defer s.Close()
		_, err = Run(context.Background(), fsys, s, "out/graph", Options{Threads: 1, Force: force})
		return err
	}
	disk := smallTables().put(t)
	if err := importTables(disk, false); err != nil {
		t.Fatal(err)
	}
	want := files(t, disk, "out")
	for n := int64(1); ; n++ {
		disk := smallTables().put(t)
		faulty := vfs.NewFault(disk)
		faulty.FailAt(n, syscall.EIO)
		err := importTables(faulty, false)
		if err == nil && faulty.Operations() < n {
			return
		}
		if err != nil && !errors.Is(err, syscall.EIO) || errors.Is(err, ErrInvalid) {
			t.Fatalf("operation %d failed, the import with %v", n, err)
		}
		if err := importTables(disk, true); err != nil {
			t.Fatalf("after a fault at operation %d: %v", n, err)
		}
		sameFiles(t, "after a fault", files(t, disk, "out"), want)
	}
}

func TestAnImportOfTablesCanBeCancelled(t *testing.T) {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	disk := smallTables().put(t)
	if _, err := OpenParquet(ctx, disk, "in", ScratchOptions{Output: "out/graph"}, TableOptions{}); !errors.Is(err,
		context.Canceled) || len(files(t, disk, "out")) > 0 {
		t.Error(err)
	}
	if _, err := openParquet(disk, TableOptions{}); errors.Is(err, format.ErrExists) {
		t.Error(err)
	}
}

// inputCount counts what is read of the tables, not of scratch files.
type inputCount struct {
	vfs.FS
	count *vfs.PastCache
}

func (c *inputCount) Open(path string) (vfs.File, error) {
	if strings.HasSuffix(path, ".parquet") {
		return c.count.Open(path)
	}
	return c.FS.Open(path)
}

func TestTablesAreReadOnceHoweverManyColumnsTheyHave(t *testing.T) {
	for _, columns := range []int{2, 60} {
		files, bytes := layout{"edges.parquet": smallTables()["edges.parquet"]}, int64(0)
		for part := range 3 {
			var features []parquetColumn
			for c := range columns {
				features = append(features, parquetColumn{fmt.Sprint("f", c), []float32{float32(c), float32(part), 2, 3,
					4}})
			}
			files[fmt.Sprintf("nodes.parquet/part-%d.parquet", part)] = parquetFile(features...)
		}
		for _, b := range files {
			bytes += int64(len(b))
		}
		disk := files.put(t)
		count := vfs.NewPastCache(disk)
		s, err := openParquet(&inputCount{disk, count}, TableOptions{})
		if err != nil {
			t.Fatal(err)
		}
		const opened = 4 + 2 + 3 // all for their metadata, the edges for each end, the parts of nodes for the features
		if count.Opened() != opened || count.Read().Bytes() > bytes || count.Read().Bytes() < bytes/2 {
			t.Errorf("%d columns: files were opened %d times (want %d), and %d bytes of %d read", columns,
				count.Opened(), opened, count.Read().Bytes(), bytes)
		}
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	}
}

func TestKeysOfFoldersAreNoFeatures(t *testing.T) {
	table := smallTables()
	part := func(ids []int64, rows ...float32) []byte {
		return parquetFile(parquetColumn{"id", ids}, parquetColumn{"a", rows})
	}
	unnamed := layout{"edges.parquet": table["edges.parquet"],
		"nodes.parquet/split=train/a.parquet": parquetFile(parquetColumn{"a", []float32{1, 2, 3, 4, 5}})}
	if _, err := openParquet(unnamed.put(t), TableOptions{}); !errors.Is(err, ErrOptions) ||
		!strings.Contains(err.Error(), "--id-column") {
		t.Errorf("rows of folders without ids: %v", err)
	}
	disk := layout{
		"edges.parquet": table["edges.parquet"],
		"nodes.parquet/year=2020/split=train/a.parquet": part([]int64{0, 1}, 1, 2),
		"nodes.parquet/year=2021/split=valid/a.parquet": part([]int64{2}, 3),
		"nodes.parquet/year=2022/split=test/a.parquet":  part([]int64{3, 4}, 4, 5),
	}.put(t)
	s, err := openParquet(disk, TableOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	if _, err := Run(context.Background(), disk, s, "out/graph", Options{Direction: Directed}); err != nil {
		t.Fatal(err)
	}
	d := openGraph(t, disk, "out/graph")
	rows, err := d.Rows(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	if !slices.Equal(rows.Splits, []uint8{1, 1, 2, 3, 3}) ||
		!slices.Equal(storedFeatures(t, d), []float32{1, 2, 3, 4, 5}) {
		t.Errorf("splits %v, features %v", rows.Splits, storedFeatures(t, d))
	}
	if notes := strings.Join(s.Info().Notes, "\n"); !strings.Contains(notes, "left out: year") {
		t.Errorf("nothing is said of a key: %s", notes)
	}
}

func TestABitThatFlipsInScratchFilesOfTablesIsAnError(t *testing.T) {
	everyFlip(t, 1, func(fsys vfs.FS) error {
		s, err := openParquet(fsys, TableOptions{})
		if err != nil {
			return err
		}
		defer s.Close()
		_, err = Run(context.Background(), fsys, s, "out/graph", Options{Threads: 1})
		return err
	}, func() vfs.FS { return smallTables().put(t) })
}
