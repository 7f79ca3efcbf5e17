package session

import (
	"errors"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/hopfeed/hopfeed/chunk"
	"github.com/hopfeed/hopfeed/format"
	"github.com/hopfeed/hopfeed/internal/dtype"
	"github.com/hopfeed/hopfeed/internal/machine"
	"github.com/hopfeed/hopfeed/internal/vfs"
	"github.com/hopfeed/hopfeed/loader"
	"github.com/hopfeed/hopfeed/tools/npy"
)

// fileSplit is the split that writeSplits gives a node: 0 train, 1 valid, 2 test, -1 none.
func fileSplit(split, node int) int8 { return int8((node+split)%4) - 1 }

// writeSplits writes two splits of 240 nodes.
func writeSplits(t *testing.T, fsys vfs.FS, path string, change func([]int8)) {
	t.Helper()
	splits := make([]int8, 2*240)
	for i := range splits {
		splits[i] = fileSplit(i/240, i%240)
	}
	if change != nil {
		change(splits)
	}
	f, err := fsys.Create(path)
	if err == nil {
		_, err = f.Write(append(npy.AppendHeader(nil, npy.Int8, 1, 2, 240), dtype.BytesOf(splits)...))
	}
	if err == nil {
		err = f.Commit()
	}
	if err != nil {
		t.Fatal(err)
	}
}

// nodesOf lists the nodes of the rows of a part, in their order.
func nodesOf(t *testing.T, store *format.Dir, part Part) (nodes []uint32) {
	t.Helper()
	table, err := store.Rows(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	part.Each(store, func(row int64) { nodes = append(nodes, table.NodeID[row]) })
	if int64(len(nodes)) != CountRows(store.Layout(), part.Rows) {
		t.Errorf("%d rows, and %d are counted", len(nodes), CountRows(store.Layout(), part.Rows))
	}
	return nodes
}

func TestASplitOfAFileDividesTheRowsByNode(t *testing.T) {
	files := makeFiles(t)
	writeSplits(t, files, "splits.npy", nil)
	store := openStore(t, files)
	table, err := store.Rows(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct{ asked, split int }{{-1, 0}, {0, 0}, {1, 1}} {
		p, err := OpenPartition(t.Context(), store, c.asked, "splits.npy", machine.Limit{})
		if err != nil || !p.Scattered() {
			t.Fatal(p, err)
		}
		for i, part := range p.Parts() {
			var want []uint32
			for _, node := range table.NodeID {
				if fileSplit(c.split, int(node)) == []int8{0, 1, 2, -1}[i] {
					want = append(want, node)
				}
			}
			if got := nodesOf(t, store, part); !slices.Equal(got, want) {
				t.Errorf("split %d, %s: nodes %v, want %v", c.asked, part.Name, got, want)
			}
		}
	}
}

func TestRowsThatAreScatteredAreLoaded(t *testing.T) {
	files := makeFiles(t)
	writeSplits(t, files, "splits.npy", nil)
	store := openStore(t, files)
	p, err := OpenPartition(t.Context(), store, 1, "splits.npy", machine.Limit{})
	if err != nil {
		t.Fatal(err)
	}
	o := training(thisMachine(t, enough, ""), store)
	o.Rows = []loader.Rows{p.Train, p.Valid}
	s, err := Open(t.Context(), store, o)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	if n := s.Plan.Needs; !n.ScatteredRows || n.TrainRows != int64(len(p.Train.List)) ||
		int64(n.Input) != store.Manifest.Rows*n.RowBytes {
		t.Errorf("%+v", n)
	}
	sets, err := s.Sets(p.Train, chunk.Shuffled, 1)
	if err != nil {
		t.Fatal(err)
	}
	want := storedRows(t, store, func(row int64) bool { return slices.Contains(p.Train.List, uint32(row)) })
	if got := loadedRows(t, s, sets); !maps.Equal(got, want) {
		t.Errorf("%d different rows, want %d", len(got), len(want))
	}
}

func TestThePartitionOfTheRegionsIsKnownAgain(t *testing.T) {
	store := openStore(t, makeFiles(t))
	table, err := store.Rows(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	parts := slices.Clone(table.Splits) // of one split
	if p := PartitionOf(store, parts); p.Scattered() {
		t.Errorf("%+v", p)
	}
	for _, asked := range []int{-1, 0} {
		if p, err := OpenPartition(t.Context(), store, asked, "", machine.Limit{}); err != nil || p.Scattered() {
			t.Errorf("split %d: %+v, %v", asked, p, err)
		}
	}
	train, _ := store.Region(format.RegionTrain)
	parts[train.FirstRow] = format.SplitTest
	p := PartitionOf(store, parts)
	if !p.Scattered() || int64(len(p.Train.List)) != train.Rows-1 || p.Test.List[0] != uint32(train.FirstRow) {
		t.Errorf("%+v", p)
	}
}

func TestSplitsThatCannotBeAreRefused(t *testing.T) {
	files := makeFiles(t)
	writeSplits(t, files, "splits.npy", nil)
	writeSplits(t, files, "wrong.npy", func(s []int8) { s[240+7] = 3 })
	store := openStore(t, files)
	small := machine.Limit{Bytes: machine.ProgramBytes, By: "the test"}
	for _, c := range []struct {
		name   string
		split  int
		file   string
		budget machine.Limit
		is     error
		says   string
	}{
		{"a split that the store has not", 1, "", machine.Limit{}, ErrOptions, "split 1: the store has 1 split"},
		{"a split that the file has not", 2, "splits.npy", machine.Limit{}, ErrOptions,
			"split 2: splits.npy has 2 splits"},
		{"a part that is none", 1, "wrong.npy", machine.Limit{}, npy.ErrInvalid, "node 7: 3 is none of"},
		{"a file that memory does not allow", 0, "splits.npy", small, machine.ErrDoesNotFit, "240 nodes"},
	} {
		if _, err := OpenPartition(t.Context(), store, c.split, c.file, c.budget); !errors.Is(err,
			c.is) || !strings.Contains(err.Error(), c.says) {
			t.Errorf("%s: %v", c.name, err)
		}
	}
}
