package format

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"math"
	"path"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/hopfeed/hopfeed/internal/folder"
	"github.com/hopfeed/hopfeed/internal/offheap"
	"github.com/hopfeed/hopfeed/internal/progress"
	"github.com/hopfeed/hopfeed/internal/vfs"
)

// completeOrAbsent fails unless a directory is one of these samples, sound, or not there for readers. It tells which.
func completeOrAbsent(t *testing.T, fsys vfs.FS, dir string, any ...*sample) *sample {
	t.Helper()
	d, err := OpenAny(fsys, dir)
	if err != nil {
		if _, statErr := fsys.Stat(dir); statErr == nil && !errors.Is(err, ErrIncomplete) {
			t.Fatalf("neither complete nor absent: %v", err)
		}
		return nil
	}
	d.Close()
	for _, s := range any {
		if s.manifest.Name == d.Manifest.Name {
			s.compare(t, fsys, dir)
			if r := verify(t, fsys, dir); len(r.Bad) > 0 {
				t.Fatalf("%s: found damaged: %v", s.name, r.Bad)
			}
			return s
		}
	}
	t.Fatalf("complete, but of %q", d.Manifest.Name)
	return nil
}

func TestAWriteThatFailsAnywhereLeavesACompleteDirectoryOrNone(t *testing.T) {
	for _, s := range tiny() {
		for n := int64(1); ; n++ {
			disk := vfs.NewMem()
			fault := vfs.NewFault(disk)
			fault.FailAt(n, syscall.EIO)
			_, err := s.write(fault, "/d", CreateOptions{})
			if err == nil {
				if fault.Operations() >= n {
					t.Fatalf("%s: operation %d failed silently", s.name, n)
				}
				break
			}
			if !errors.Is(err, syscall.EIO) {
				t.Fatalf("%s: operation %d: %v", s.name, n, err)
			}
			if completeOrAbsent(t, disk, "/d", &s) == nil {
				if _, err := disk.Stat("/d"); err == nil {
					t.Fatalf("%s: after operation %d failed, %v is left", s.name, n, filesOf(t, disk, "/d"))
				}
				if _, err := s.write(disk, "/d", CreateOptions{}); err != nil {
					t.Fatalf("%s: after operation %d failed: %v", s.name, n, err)
				}
			}
			s.compare(t, disk, "/d")
		}
	}
}

func TestAFullDiskIsReportedAndLeavesNothing(t *testing.T) {
	s := tiny()[1]
	whole, dir := s.mustWrite(t)
	total := int64(0)
	for _, path := range filesOf(t, whole, dir) {
		total += sizeOf(t, whole, path)
	}
	for capacity := int64(0); capacity < total; capacity += 3000 {
		disk := vfs.NewMem()
		disk.SetCapacity(capacity)
		if _, err := s.write(disk, "/d", CreateOptions{}); !errors.Is(err, syscall.ENOSPC) {
			t.Fatalf("%d of %d bytes: %v", capacity, total, err)
		}
		if _, err := disk.Stat("/d"); err == nil {
			t.Fatalf("%d of %d bytes: something is left", capacity, total)
		}
	}
}

// TestACrashAnywhere cuts the power at each operation, with what was not synced lost or partly kept, when nothing was
// there before and when something is replaced.
func TestACrashAnywhereLeavesACompleteDirectoryOrNone(t *testing.T) {
	samples := tiny()
	graph := makeGraph("before", 7, 3, 2, Float16, false, columns{0, 2, false})
	// A larger store, some of whose files would be left over.
	store := makeStore("before", [4]int64{5, 5, 5, 5}, 3, 2, Float32, columns{1, 1, true}, Operator{Name: "sym", Hops: 2},
		Operator{Name: "rw", Hops: 1})
	for _, c := range []struct{ before, next *sample }{{nil, &samples[1]}, {&store, &samples[1]},
		{&graph, &samples[0]}} {
		before, next := c.before, c.next
		o := CreateOptions{Force: before != nil}
		old, allowed := vfs.NewMem(), []*sample{next}
		if before != nil {
			old, _ = before.mustWrite(t)
			allowed = append(allowed, before)
		}
		seen := vfs.Disks{}
		for n := int64(1); ; n++ {
			disk := old.CrashClone()
			fault := vfs.NewFault(disk)
			fault.FailFrom(n, syscall.EIO)
			_, writeErr := next.write(fault, "/d", o)
			seed := uint64(n % 3) // each operation with one way to crash, so that neighbours have all
			crashed := disk.CrashClone()
			if seed > 0 {
				crashed = disk.CrashCloneKeeping(seed)
			}
			if !seen.Add(crashed, 0) && writeErr != nil {
				continue
			}
			found := completeOrAbsent(t, crashed, "/d", allowed...)
			if writeErr == nil && found != next {
				t.Fatalf("operation %d, seed %d: published, but not there after a crash", n, seed)
			}
			if _, err := next.write(crashed, "/d", CreateOptions{Force: found != nil}); err != nil {
				t.Fatalf("operation %d, seed %d: not started over: %v", n, seed, err)
			}
			if got := completeOrAbsent(t, crashed, "/d", next); got != next {
				t.Fatalf("operation %d, seed %d: not there after all", n, seed)
			}
			if writeErr == nil {
				break
			}
		}
	}
}

func TestExistingOutputIsRefusedUnlessForced(t *testing.T) {
	s := tiny()[0]
	fsys, dir := s.mustWrite(t)
	if _, err := s.write(fsys, dir, CreateOptions{}); !errors.Is(err, ErrExists) ||
		!strings.Contains(err.Error(), dir) {
		t.Errorf("without force: %v", err)
	}
	s.compare(t, fsys, dir)
	other := makeGraph("other", 7, 3, 2, Float16, false, columns{0, 2, false})
	if _, err := other.write(fsys, dir, CreateOptions{Force: true}); err != nil {
		t.Fatal(err)
	}
	other.compare(t, fsys, dir)
	if r := verify(t, fsys, dir); len(r.Bad) > 0 {
		t.Errorf("with force, something of before is left: %v", r.Bad)
	}
}

func TestForceReplacesDirectoriesOfTheSameKindOnly(t *testing.T) {
	samples := tiny()
	for i, want := range []string{"it is a graph, and a store cannot replace it",
		"it is a store, and a graph cannot replace it"} {
		there, next := &samples[i], &samples[1-i]
		fsys, dir := there.mustWrite(t)
		before := filesOf(t, fsys, dir)
		if _, err := next.write(fsys, dir, CreateOptions{Force: true}); !errors.Is(err, ErrExists) ||
			!strings.Contains(err.Error(), want) {
			t.Errorf("%v, want one with %q", err, want)
		}
		if after := filesOf(t, fsys, dir); !slices.Equal(before, after) {
			t.Errorf("%v became %v", before, after)
		}
		there.compare(t, fsys, dir)
	}
}

func TestATypedGraphIsNotReplacedByAnotherKind(t *testing.T) {
	for i, s := range tiny()[:2] { // a graph, a store
		kind := []string{KindGraph, KindStore}[i]
		fsys, dir := s.mustWrite(t)
		if err := fsys.MkdirAll("/typed"); err != nil {
			t.Fatal(err)
		}
		put(t, fsys, "/typed/types.json", string((&Typed{Target: "a"}).encode()))
		for _, force := range []bool{false, true} {
			_, err := s.write(fsys, "/typed", CreateOptions{Force: force})
			if want := "it is a typed graph, and a " + kind + " cannot replace it"; !errors.Is(err, ErrExists) ||
				!strings.Contains(err.Error(), want) {
				t.Errorf("force %v: %v, want one with %q", force, err, want)
			}
			_, err = CreateTyped(fsys, dir, force)
			if want := "it is a " + kind + ", and a typed graph cannot replace it"; !errors.Is(err, ErrExists) ||
				!strings.Contains(err.Error(), want) {
				t.Errorf("force %v: %v, want one with %q", force, err, want)
			}
		}
		s.compare(t, fsys, dir)
	}
	fsys := vfs.NewMem()
	if err := fsys.MkdirAll("/mine"); err != nil {
		t.Fatal(err)
	}
	put(t, fsys, "/mine/types.json", `{"name": "a web app"}`)
	if _, err := CreateTyped(fsys, "/mine", true); !errors.Is(err, ErrExists) ||
		sizeOf(t, fsys, "/mine/types.json") != 21 {
		t.Errorf("a types.json of another program: %v", err)
	}
}

func TestWhatIsNotHopfeedsIsNeverRemoved(t *testing.T) {
	s := tiny()[0]
	for _, name := range []string{"notes.txt", "features/notes.txt", "features/x/notes",
		"features/x/hop-0/part-0.parquet", PartPath("features/X/hop-0", 0),
		"topology/part-0.arrow", "topology/part-000000.arrow", PartPath("topology", MaxParts),
		"topology/part-0000x.arrow", "thesis/chapter", PartPath("rows/hop-1", 0), "manifest.json.bak", ".jobs/lock",
		".job/notes.txt", ".job/lock", ".job/job.json", ".job/scratch/notes.txt"} {
		for _, complete := range []bool{false, true} {
			fsys, dir := vfs.NewMem(), "/d"
			if complete {
				fsys, dir = s.mustWrite(t)
			}
			file := dir + "/" + name
			if err := fsys.MkdirAll(path.Dir(file)); err != nil {
				t.Fatal(err)
			}
			put(t, fsys, file, "mine")
			before := filesOf(t, fsys, dir)
			for _, force := range []bool{false, true} {
				if _, err := s.write(fsys, dir, CreateOptions{Force: force}); !errors.Is(err, ErrExists) ||
					!strings.Contains(err.Error(), dir) {
					t.Errorf("%s (force %v): %v", name, force, err)
				}
			}
			if after := filesOf(t, fsys, dir); !slices.Equal(before, after) {
				t.Errorf("%s: %v became %v", name, before, after)
			}
		}
	}
	fsys := vfs.NewMem()
	if err := fsys.MkdirAll("/d"); err != nil {
		t.Fatal(err)
	}
	put(t, fsys, "/d/manifest.json", `{"name": "a web app"}`)
	if _, err := s.write(fsys, "/d", CreateOptions{Force: true}); !errors.Is(err, ErrExists) ||
		sizeOf(t, fsys, "/d/manifest.json") != 21 {
		t.Errorf("a manifest.json of another program: %v", err)
	}
	// Parts whose maker nothing shows.
	for _, name := range []string{PartPath(topologyFolder, 0), PartPath(nodesFolder, 3), indexName, manifestName +
		vfs.TempSuffix} {
		dir := "/" + strings.ReplaceAll(name, "/", "-")
		if err := fsys.MkdirAll(path.Dir(dir + "/" + name)); err != nil {
			t.Fatal(err)
		}
		put(t, fsys, dir+"/"+name, "mine")
		for _, force := range []bool{false, true} {
			if _, err := s.write(fsys, dir, CreateOptions{Force: force}); !errors.Is(err, ErrExists) ||
				sizeOf(t, fsys, dir+"/"+name) != 4 {
				t.Errorf("%s (force %v): %v", name, force, err)
			}
		}
	}
	put(t, fsys, "/file", "")
	if _, err := s.write(fsys, "/file", CreateOptions{Force: true}); err == nil {
		t.Error("a file is replaced by a directory")
	}
}

// What a user puts where a job is at work, or was killed, stays.
func TestAFilePutIntoAJobsFolderStays(t *testing.T) {
	s := tiny()[0]
	for _, name := range []string{".job/notes.txt", ".job/scratch/notes.txt", ".job/scratch/sub/edges.scratch"} {
		for _, force := range []bool{false, true} {
			fsys := vfs.NewMem()
			w, err := Create(fsys, "/d", s.layout, CreateOptions{})
			if err != nil {
				t.Fatal(err)
			}
			if _, err := w.Scratch(); err != nil {
				t.Fatal(err)
			}
			if err := fsys.MkdirAll(path.Dir("/d/" + name)); err != nil {
				t.Fatal(err)
			}
			put(t, fsys, "/d/"+name, "mine")
			killed := fsys.CrashClone()
			if err := w.Abort(); !errors.Is(err, folder.ErrForeign) || sizeOf(t, fsys, "/d/"+name) != 4 {
				t.Errorf("%s: aborted: %v", name, err)
			}
			if _, err := s.write(killed, "/d", CreateOptions{Force: force}); err == nil ||
				!strings.Contains(err.Error(), path.Base(name)) && !strings.Contains(err.Error(), "/sub") ||
				sizeOf(t, killed, "/d/"+name) != 4 {
				t.Errorf("%s: the next job (force %v): %v", name, force, err)
			}
		}
	}
}

func TestTwoJobsDoNotWriteOneDirectory(t *testing.T) {
	s := tiny()[0]
	fsys := vfs.NewMem()
	first, err := Create(fsys, "/d", s.layout, CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := Create(fsys, "/d", s.layout, CreateOptions{Force: true}); !errors.Is(err, vfs.ErrLocked) ||
		!strings.HasPrefix(err.Error(), "/d is being written") {
		t.Errorf("second job: %v", err)
	}
	if _, err := OpenGraph(fsys, "/d"); !errors.Is(err, ErrIncomplete) {
		t.Errorf("reader: %v", err)
	}
	if err := errors.Join(first.Abort(), first.Abort()); err != nil {
		t.Error(err)
	}
	if _, err := fsys.Stat("/d"); err == nil {
		t.Error("something is left")
	}
}

func TestAbortLeavesADirectoryThatWasThere(t *testing.T) {
	s := tiny()[1]
	fsys := vfs.NewMem()
	if err := fsys.MkdirAll("/d"); err != nil {
		t.Fatal(err)
	}
	w, err := Create(fsys, "/d", s.layout, CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	m, err := w.Matrix(Input)
	if err != nil {
		t.Fatal(err)
	}
	if err := m.Write(s.matrices[Input][:4]); err != nil {
		t.Fatal(err)
	}
	if err := w.Rows(s.rows); err != nil {
		t.Fatal(err)
	}
	if err := w.Abort(); err != nil {
		t.Fatal(err)
	}
	entries, err := fsys.ReadDir("/d")
	if err != nil || len(entries) > 0 {
		t.Errorf("%v is left, %v", entries, err)
	}
}

func TestWriterRefusesWrongUse(t *testing.T) {
	graph, store := tiny()[0], tiny()[1]
	hop := MatrixID{"sym", 1}
	matrix := func(w *Writer, s *sample, id MatrixID, data []byte) error {
		m, err := w.Matrix(id)
		if err != nil {
			return err
		}
		if err := m.Write(data); err != nil {
			return err
		}
		return m.Close()
	}
	complete := func(w *Writer, s *sample) error {
		return errors.Join(w.Rows(s.rows), matrix(w, s, Input, s.matrices[Input]), matrix(w, s, hop, s.matrices[hop]))
	}
	rowsWith := func(change func(t *RowTable)) func(w *Writer, s *sample) error {
		return func(w *Writer, s *sample) error {
			rows := *s.rows
			change(&rows)
			return w.Rows(&rows)
		}
	}
	publish := func(change func(m *Manifest)) func(w *Writer, s *sample) error {
		return func(w *Writer, s *sample) error {
			if err := complete(w, s); err != nil {
				return fmt.Errorf("too early: %w", err)
			}
			m := s.manifest
			change(&m)
			return w.Publish(&m)
		}
	}
	for name, use := range map[string]func(w *Writer, s *sample) error{
		"half a row":              func(w *Writer, s *sample) error { return matrix(w, s, hop, s.matrices[hop][:6]) },
		"rows are missing":        func(w *Writer, s *sample) error { return matrix(w, s, hop, s.matrices[hop][:8]) },
		"half a chunk is missing": func(w *Writer, s *sample) error { return matrix(w, s, hop, s.matrices[hop][:4]) },
		"too many rows":           func(w *Writer, s *sample) error { return matrix(w, s, hop, make([]byte, 24)) },
		"a matrix twice": func(w *Writer, s *sample) error {
			return errors.Join(complete(w, s), matrix(w, s, hop, s.matrices[hop]))
		},
		"hop 0 of an operator": func(w *Writer, s *sample) error {
			return matrix(w, s, MatrixID{"sym", 0},
				s.matrices[hop])
		},
		"hop 1 of the input": func(w *Writer, s *sample) error {
			return matrix(w, s, MatrixID{"x", 1},
				s.matrices[hop])
		},
		"an operator with a slash": func(w *Writer, s *sample) error {
			return matrix(w, s, MatrixID{"../sym", 1},
				s.matrices[hop])
		},
		"a topology in a store": func(w *Writer, s *sample) error { return w.Topology(graph.topology) },
		"rows twice": func(w *Writer, s *sample) error {
			return errors.Join(complete(w, s),
				w.Rows(s.rows))
		},
		"publishing without rows": func(w *Writer, s *sample) error { m := s.manifest; return w.Publish(&m) },
		"publishing without a hop": func(w *Writer, s *sample) error {
			m := s.manifest
			return errors.Join(w.Rows(s.rows), matrix(w, s, Input, s.matrices[Input]), w.Publish(&m))
		},
		"publishing an open matrix": func(w *Writer, s *sample) error {
			w.Rows(s.rows)
			w.Matrix(Input)
			m := s.manifest
			return w.Publish(&m)
		},
		"publishing twice": func(w *Writer, s *sample) error {
			m := s.manifest
			return errors.Join(complete(w, s), w.Publish(&m), w.Publish(&m))
		},
		"writing after Abort": func(w *Writer, s *sample) error { w.Abort(); return w.Rows(s.rows) },
		"rows without nodes":  rowsWith(func(t *RowTable) { t.NodeID = nil }),
		"too few labels":      rowsWith(func(t *RowTable) { t.Labels = t.Labels[1:] }),
		"labels of both kinds": rowsWith(func(t *RowTable) {
			t.MultiLabels, t.LabelColumns = make([]int8, 10), 2
		}),
		"many labels in one column": rowsWith(func(t *RowTable) {
			t.Labels, t.MultiLabels, t.LabelColumns = nil, make([]int8, 5), 1
		}),
		"a label below -1":          rowsWith(func(t *RowTable) { t.Labels = []int32{0, 0, 0, 0, -2} }),
		"a split that is none":      rowsWith(func(t *RowTable) { t.Splits = []uint8{0, 1, 2, 3, 4} }),
		"splits of another number":  rowsWith(func(t *RowTable) { t.NumSplits = 2 }),
		"another number of rows":    rowsWith(func(t *RowTable) { t.Rows-- }),
		"names that are no UTF-8":   rowsWith(func(t *RowTable) { t.OrigID = []string{"", "", "", "", "\xff"} }),
		"fewer classes than labels": publish(func(m *Manifest) { m.Classes = 0 }),
		"fewer nodes than ids":      publish(func(m *Manifest) { m.Nodes = 5 }),
		"an operator without files": publish(func(m *Manifest) {
			m.Operators = append(slices.Clone(m.Operators),
				Operator{Name: "rw", Hops: 1})
		}),
		"files without an operator": publish(func(m *Manifest) { m.Operators = nil }),
		"an operator twice": publish(func(m *Manifest) {
			m.Operators = []Operator{{Name: "sym", Hops: 1}, {Name: "sym", Hops: 1}}
		}),
		"an operator of no hops":     publish(func(m *Manifest) { m.Operators = []Operator{{Name: "sym", Hops: 0}} }),
		"an unknown row set":         publish(func(m *Manifest) { m.RowSet = "some" }),
		"a split that is not stored": publish(func(m *Manifest) { m.Split = 1 }),
		"a name that is no text":     publish(func(m *Manifest) { m.Name = "a\xffb" }),
		"a name that is no UTF-8":    publish(func(m *Manifest) { m.Name = "\xff" }),
		"an input that is no text":   publish(func(m *Manifest) { m.Input = map[string]string{"a": "\xff"} }),
		"negative edges":             publish(func(m *Manifest) { m.Edges = -1 }),
	} {
		fsys := vfs.NewMem()
		w, err := Create(fsys, "/d", store.layout, CreateOptions{})
		if err != nil {
			t.Fatal(err)
		}
		if err := use(w, &store); err == nil || strings.Contains(err.Error(), "too early") {
			t.Errorf("%s: %v", name, err)
		}
		if err := w.Abort(); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if name != "publishing twice" {
			if _, err := fsys.Stat("/d"); err == nil {
				t.Errorf("%s: something is left", name)
			}
		}
	}

	for name, c := range map[string]*CSC{
		"another number of nodes": {Offsets: []int64{0, 0}},
		"no offsets":              {},
		"a neighbour beyond":      {Offsets: []int64{0, 1, 1, 1, 1, 1}, Neighbors: []uint32{5}},
		"falling neighbours":      {Offsets: []int64{0, 2, 2, 2, 2, 2}, Neighbors: []uint32{1, 0}},
		"too few weights":         {Offsets: []int64{0, 1, 1, 1, 1, 1}, Neighbors: []uint32{1}, Weights: []float32{}},
		"a negative weight":       {Offsets: []int64{0, 1, 1, 1, 1, 1}, Neighbors: []uint32{1}, Weights: []float32{-1}},
		"a weight that is none": {Offsets: []int64{0, 1, 1, 1, 1, 1}, Neighbors: []uint32{1},
			Weights: []float32{float32(math.NaN())}},
		"infinite weights": {Offsets: []int64{0, 1, 1, 1, 1, 1}, Neighbors: []uint32{1},
			Weights: []float32{float32(math.Inf(1))}},
	} {
		w, err := Create(vfs.NewMem(), "/d", graph.layout, CreateOptions{})
		if err != nil {
			t.Fatal(err)
		}
		if w.Topology(c) == nil {
			t.Errorf("%s: no error", name)
		}
		w.Abort()
	}
}

func TestLayoutsThatCannotBeStoredAreRefused(t *testing.T) {
	all := func(rows int64, chunkRows int) []Region { return Regions([]RegionSize{{RegionAll, rows}}, chunkRows) }
	shifted := all(10, 3)
	shifted[0].FirstRow = 1
	for name, l := range map[string]Layout{
		"no type":    {Regions: all(10, 3), ChunkRows: 3, Features: 2},
		"integers":   {Regions: all(10, 3), ChunkRows: 3, Features: 2, DType: 4},
		"no regions": {ChunkRows: 3, Features: 2, DType: Float32},
		"an unknown region": {Regions: Regions([]RegionSize{{"some", 3}}, 3), ChunkRows: 3, Features: 2,
			DType: Float32},
		"two regions": {Regions: Regions([]RegionSize{{RegionTrain, 3}, {RegionTest, 3}}, 3), ChunkRows: 3,
			Features: 2, DType: Float32},
		"a gap":              {Regions: shifted, ChunkRows: 3, Features: 2, DType: Float32},
		"other chunks":       {Regions: all(10, 4), ChunkRows: 3, Features: 2, DType: Float32},
		"no chunks":          {Regions: all(10, 4), ChunkRows: 0, Features: 2, DType: Float32},
		"chunks above 8 MiB": {Regions: all(1e6, 1e6), ChunkRows: 1e6, Features: 20, DType: Float32},
		"negative features":  {Regions: all(10, 3), ChunkRows: 3, Features: -2, DType: Float32},
		"too many features":  {Regions: all(10, 1), ChunkRows: 1, Features: MaxFeatures + 1, DType: Float32},
		"too many rows":      {Regions: all(1<<32, 1000), ChunkRows: 1000, Features: 2, DType: Float32},
		"rows below zero":    {Regions: all(-1, 1000), ChunkRows: 1000, Features: 2, DType: Float32},
	} {
		fsys := vfs.NewMem()
		if _, err := Create(fsys, "/d", l, CreateOptions{}); err == nil {
			t.Errorf("%s: no error", name)
		}
		if _, err := fsys.Stat("/d"); err == nil {
			t.Errorf("%s: something is left", name)
		}
	}
}

func TestSameContentGivesSameBytesWhateverTheOrderOfWriting(t *testing.T) {
	for _, s := range samples() {
		first, dir := s.mustWrite(t)
		second, _ := s.mustWrite(t) // map order gives another order of matrices now and then
		for _, path := range filesOf(t, first, dir) {
			a, errA := readFile(first, path, sizeOf(t, first, path))
			b, errB := readFile(second, path, sizeOf(t, second, path))
			if errA != nil || errB != nil || string(a) != string(b) {
				t.Errorf("%s: %s differs", s.name, path)
			}
		}
	}
}

func TestPartsWrittenPastThePageCacheHaveTheSameBytesAsThroughIt(t *testing.T) {
	for _, s := range samples() {
		direct, buffered := vfs.NewMem(), vfs.NewMem()
		buffered.NoDirect = true
		before := offheap.InUse()
		for _, disk := range []*vfs.Mem{direct, buffered} {
			if _, err := s.write(disk, "/d", CreateOptions{}); err != nil {
				t.Fatal(err)
			}
		}
		if left := offheap.InUse() - before; left != 0 {
			t.Errorf("%s: %d bytes of buffers are not freed", s.name, left)
		}
		paths := filesOf(t, direct, "/d")
		if others := filesOf(t, buffered, "/d"); !slices.Equal(paths, others) {
			t.Fatalf("%s: there are %q and %q", s.name, paths, others)
		}
		for _, path := range paths {
			a, errA := readFile(direct, path, sizeOf(t, direct, path))
			b, errB := readFile(buffered, path, sizeOf(t, buffered, path))
			if errA != nil || errB != nil || string(a) != string(b) {
				t.Errorf("%s: %s differs", s.name, path)
			}
		}
	}
}

func TestPartsAndOffsetsAreAsDocumented(t *testing.T) {
	for _, s := range samples() {
		if s.parts == 0 {
			continue
		}
		fsys, dir := s.mustWrite(t)
		d, err := OpenAny(fsys, dir)
		if err != nil {
			t.Fatal(err)
		}
		for _, f := range d.Manifest.Files {
			if f.Size > s.parts && !strings.HasPrefix(f.Path, topologyFolder) {
				t.Errorf("%s: %s has %d bytes, more than %d", s.name, f.Path, f.Size, s.parts)
			}
		}
		for _, id := range d.Matrices() {
			m, _ := d.Matrix(id)
			if len(m.table.parts) < 3 {
				t.Errorf("%s: %s has %d parts", s.name, id, len(m.table.parts))
			}
			want := int64(0)
			for k := range m.Chunks() {
				e := m.Extent(k)
				if e.Chunk == 0 {
					want = 4096 + 4096
				}
				if e.Offset != want {
					t.Errorf("%s: %s: chunk %d is at %d, want %d", s.name, id, k, e.Offset, want)
				}
				want += (e.Length+4095)/4096*4096 + 4096
			}
		}
	}
}

func TestFilesOfATableSortByNameAsTheirRowsDo(t *testing.T) {
	for _, s := range samples() {
		fsys, dir := s.mustWrite(t)
		d, err := OpenAny(fsys, dir)
		if err != nil {
			t.Fatal(err)
		}
		for folder, table := range d.tables {
			next := 0
			for _, path := range filesOf(t, fsys, dir) { // sorted
				if !strings.HasPrefix(path, dir+"/"+folder+"/") {
					continue
				}
				if want := d.filePath(table.parts[next].file); path != want {
					t.Errorf("%s: file %d by name is %s, by rows %s", s.name, next, path, want)
				}
				next++
			}
			if next != len(table.parts) {
				t.Errorf("%s: %s has %d files for %d parts", s.name, folder, next, len(table.parts))
			}
			if s.name == "a graph of several parts" && folder == "features/x/hop-0" && next < 12 {
				t.Errorf("%d parts show no order", next)
			}
		}
	}
}

func TestMorePartsThanCanBeNamedAreRefusedBeforeAnythingIsMade(t *testing.T) {
	fsys := vfs.NewMem()
	rows := int64(100) * MaxParts
	layout := Layout{Regions: Regions([]RegionSize{{RegionAll, rows}}, 1), ChunkRows: 1, Features: 1 << 19,
		DType: Float32}
	before := partBytes
	defer func() { partBytes = before }()
	partBytes = 200 << 20 // hence 99 chunks of 2 MiB, and their pages
	_, err := Create(fsys, "/d", layout, CreateOptions{})
	if err == nil || !strings.Contains(err.Error(), "more than the 100000 that a table can have") {
		t.Errorf("error %v", err)
	}
	if _, err := fsys.Stat("/d"); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("something was made: %v", err)
	}
	partBytes = 210 << 20 // 104 chunks
	w, err := Create(fsys, "/d", layout, CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer w.Abort()
	partBytes = 200 << 20
	if _, err := w.Matrix(Input); err == nil || !strings.Contains(err.Error(), "more than the 100000") {
		t.Errorf("error %v", err)
	}
}

func TestShortChunksTakeNoMoreThanTheirOwnPages(t *testing.T) {
	s := makeStore("a store of small regions", [4]int64{14, 50, 100, 107}, 1433, 100, Float32, columns{1, 1, false},
		Operator{Name: "sym", Hops: 1})
	fsys, dir := s.mustWrite(t)
	d, err := OpenStore(fsys, dir)
	if err != nil {
		t.Fatal(err)
	}
	const chunks, page = 5, 4096
	rows := int64(14 + 50 + 100 + 107)
	most := rows*s.layout.rowBytes() + chunks*(page-1) + // data, and zeros after them
		chunks*(page+24) + 2*page // what Arrow says of each chunk, and of the file
	for _, id := range d.Matrices() {
		path := dir + "/" + PartPath(MatrixFolder(id), 0)
		if size := sizeOf(t, fsys, path); size > most {
			t.Errorf("%s has %d bytes, more than %d", id, size, most)
		}
	}
}

func TestTheSizeOfAMatrixIsKnownBefore(t *testing.T) {
	before := partBytes
	defer func() { partBytes = before }()
	for _, s := range samples() {
		partBytes = before
		if s.parts > 0 {
			partBytes = s.parts
		}
		fsys, dir := s.mustWrite(t)
		d, err := OpenAny(fsys, dir)
		if err != nil {
			t.Fatal(err)
		}
		for _, id := range d.Matrices() {
			size := int64(0)
			for _, f := range d.Manifest.Files {
				if strings.HasPrefix(f.Path, MatrixFolder(id)+"/") {
					size += f.Size
				}
			}
			if got, err := d.Layout().MatrixBytes(id); got != size || err != nil {
				t.Errorf("%s: %s is said to have %d bytes (%v), and has %d", s.name, id, got, err, size)
			}
		}
	}
}

func TestKindsAndProgressAreTold(t *testing.T) {
	graph, store := tiny()[0], tiny()[1]
	fsys, dir := graph.mustWrite(t)
	if _, err := OpenStore(fsys, dir); !errors.Is(err, ErrKind) ||
		err.Error() != "wrong kind of directory: /d is a graph: give a hop store, which hopfeed "+
			"propagate makes from it" {
		t.Error(err)
	}
	fsys, dir = store.mustWrite(t)
	if _, err := OpenGraph(fsys, dir); !errors.Is(err, ErrKind) ||
		err.Error() != "wrong kind of directory: /d is a hop store: give the graph that it was made from" {
		t.Error(err)
	}
	d, err := OpenStore(fsys, dir)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := d.Topology(context.Background(), 1); err == nil {
		t.Error("a store has a topology")
	}
	if _, err := d.Matrix(MatrixID{"rw", 1}); err == nil || !strings.Contains(err.Error(), "rw/hop-1") {
		t.Error(err)
	}
	if r, ok := d.Region(RegionTest); !ok || r != store.layout.Regions[2] {
		t.Error(r, ok)
	}
	if _, ok := d.Region("all"); ok {
		t.Error("a store has a region of all")
	}
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if _, err := Verify(ctx, fsys, dir, 1, progress.Silent); !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
	if r := verify(t, fsys, dir); d.Manifest.Bytes() != r.Bytes {
		t.Errorf("%d bytes, but %d were verified", d.Manifest.Bytes(), r.Bytes)
	}
	if _, err := OpenAny(fsys, "/nothing"); err == nil || errors.Is(err, ErrIncomplete) {
		t.Error(err)
	}
}
