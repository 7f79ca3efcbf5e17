package ingest

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/hopfeed/hopfeed/format"
	"github.com/hopfeed/hopfeed/internal/dtype"
	"github.com/hopfeed/hopfeed/internal/progress"
	"github.com/hopfeed/hopfeed/internal/units"
	"github.com/hopfeed/hopfeed/internal/vfs"
	"github.com/hopfeed/hopfeed/tools/npy"
)

// typedLayout has three papers, two authors of five edges, a venue without features, and citations.
func typedLayout() layout {
	return layout{
		"meta.json": []byte(`{"name": "library", "node_types": {"paper": 3, "author": 2, "venue": 1}, "target": "paper",
			"edge_types": [["paper", "author", 3], ["paper", "cites", "paper", 2]]}`),
		"nodes/paper/node_feat.npy":                array(npy.Float32, []float32{1, 2, 3, 4, 5, 6}, 3, 2),
		"nodes/paper/node_label.npy":               array(npy.Int32, []int32{0, 1, -1}, 3),
		"nodes/paper/splits.npy":                   array(npy.Int8, []int8{0, 1, 2, 1, 0, -1}, 2, 3),
		"nodes/author/node_feat.npy":               array(npy.Float32, []float32{7, 8}, 2, 1),
		"edges/paper__author/edge_index.npy":       array(npy.Int64, []int64{2, 0, 1, 1, 0, 1}, 2, 3),
		"edges/venue__paper/edge_index.npy":        array(npy.Int64, []int64{0, 0, 2, 0}, 2, 2),
		"edges/paper__cites__paper/edge_index.npy": array(npy.Int64, []int64{0, 1, 1, 1}, 2, 2),
	}
}

// importTyped imports "in" to "out".
func importTyped(disk vfs.FS, direction Direction, o Options) (*Result, error) {
	source, err := OpenTypedNPY(disk, "in", direction, NPYOptions{})
	if err != nil {
		return nil, err
	}
	r, err := Run(context.Background(), disk, source, "out", o)
	return r, errors.Join(err, source.Close())
}

func TestTypesWithoutFeaturesGetStandIns(t *testing.T) {
	for kind, want := range map[StandIn][]float32{OnesFor: {1, 1, 1}, IdentityFor: {1, 0, 0, 0, 1, 0, 0, 0, 1}} {
		l := typedLayout()
		l["meta.json"] = []byte(`{"node_types": {"paper": 3, "author": 2, "venue": 3}}`)
		disk := l.put(t)
		source, err := OpenTypedNPY(disk, "in", UnknownDirection, NPYOptions{TypedOptions: TypedOptions{Missing: kind}})
		if err != nil {
			t.Fatal(err)
		}
		// The features of other types stay where they are.
		r, err := Run(t.Context(), disk, source, "out", Options{FeaturesInPlace: true})
		if err := errors.Join(err, source.Close()); err != nil {
			t.Fatal(err)
		}
		note := fmt.Sprintf("nodes of type venue have no features, and get %s: %s", kind,
			units.Count(int64(len(want)/3), "column"))
		if !slices.Contains(r.Notes, note) {
			t.Errorf("notes %q, want %q", r.Notes, note)
		}
		checkTyped(t, disk)
		if got := featuresOf(t, disk, "venue", len(want)); !slices.Equal(got, want) {
			t.Errorf("%s: %v, want %v", kind, got, want)
		}
	}
	l := typedLayout()
	l["meta.json"] = []byte(`{"node_types": {"paper": 3, "author": 2, "venue": 4097}, "target": "paper"}`)
	disk := l.put(t)
	_, err := OpenTypedNPY(disk, "in", UnknownDirection, NPYOptions{TypedOptions: TypedOptions{Missing: IdentityFor}})
	if !errors.Is(err, ErrOptions) || !strings.Contains(err.Error(), "type venue has 4097 nodes") {
		t.Errorf("error %v", err)
	}
}

// featuresOf are the features of a type, which are this many numbers.
func featuresOf(t *testing.T, disk vfs.FS, nodeType string, numbers int) []float32 {
	t.Helper()
	d, err := format.OpenGraph(disk, format.NodesDir("out", nodeType))
	if err != nil {
		t.Fatal(err)
	}
	m, err := d.Matrix(format.Input)
	if err != nil {
		t.Fatal(err)
	}
	stored := make([]byte, 4*numbers)
	if err := errors.Join(m.ReadChunk(0, stored), m.Close(), d.Close()); err != nil {
		t.Fatal(err)
	}
	return dtype.Float32s(stored)
}

func checkTyped(t *testing.T, disk vfs.FS) *format.Typed {
	t.Helper()
	report, err := format.VerifyTyped(context.Background(), disk, "out", 1, progress.Silent)
	if err != nil || len(report.Bad) > 0 {
		t.Fatalf("%v, %v", report, err)
	}
	typed, err := format.OpenTyped(disk, "out")
	if err != nil {
		t.Fatal(err)
	}
	return typed
}

// checkRelations compares the in-neighbours of each node in each relation.
func checkRelations(t *testing.T, disk vfs.FS, typed *format.Typed, want map[string][][]uint32) {
	t.Helper()
	if len(typed.Relations) != len(want) {
		t.Errorf("relations %v", typed.Relations)
	}
	for _, relation := range typed.Relations {
		d, err := format.OpenRelation(disk, format.RelationDir("out", relation))
		if err != nil {
			t.Fatal(err)
		}
		c, err := d.Topology(context.Background(), 1)
		if err != nil {
			t.Fatal(err)
		}
		for v, list := range want[relation.String()] {
			if !slices.Equal(c.In(int64(v)), list) {
				t.Errorf("%s: in-neighbours of %d are %v, want %v", relation, v, c.In(int64(v)), list)
			}
		}
		if from, _ := typed.Type(relation.Source); c.Sources() != from.Nodes {
			t.Errorf("%s has %d sources, want %d", relation, c.Sources(), from.Nodes)
		}
		c.Close()
		d.Close()
	}
}

func TestATypedGraphHasTheRelationsAndTheirReverses(t *testing.T) {
	disk := typedLayout().put(t)
	r, err := importTyped(disk, UnknownDirection, Options{SelfLoops: DropLoops})
	if err != nil {
		t.Fatal(err)
	}
	if r.Nodes != 6 || r.Features != 2 || r.Classes != 2 || r.Train != 1 || r.Valid != 1 || r.Test != 1 ||
		r.Target != "paper" || len(r.Types) != 3 || !strings.Contains(strings.Join(r.Notes, "\n"),
		"nodes of type venue have no features") {
		t.Errorf("result %+v", r)
	}
	typed := checkTyped(t, disk)
	want := map[string][][]uint32{ // in-neighbours of each node
		"paper__author": {{0}, {1, 2}}, "author__paper": {{0}, {1}, {1}},
		"venue__paper": {{0}, {}, {0}}, "paper__venue": {{0, 2}},
		"paper__cites__paper": {{}, {0}, {}}, "paper__rev_cites__paper": {{1}, {}, {}}, // without the loop of paper 1
	}
	checkRelations(t, disk, typed, want)
	if _, err := importTyped(disk, Directed, Options{}); !errors.Is(err, format.ErrExists) {
		t.Errorf("a graph that is there: %v", err)
	}
	if _, err := importTyped(disk, Directed, Options{Force: true}); err != nil {
		t.Fatal(err)
	}
	if typed = checkTyped(t, disk); len(typed.Relations) != 3 {
		t.Errorf("as given, relations are %v", typed.Relations)
	}
	if _, err := disk.Stat("out.replacement"); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("the old graph is left: %v", err)
	}
	if _, err := format.OpenGraph(disk, "out"); !errors.Is(err, format.ErrKind) ||
		!strings.Contains(err.Error(), "out is a typed graph") {
		t.Errorf("opened as a graph of one type: %v", err)
	}
}

func TestWhatIsWrongInATypedInputIsNamed(t *testing.T) {
	for want, change := range map[string]func(l layout){
		"in: no meta.json": func(l layout) { delete(l, "meta.json") },
		"node_types":       func(l layout) { l["meta.json"] = []byte(`{}`) },
		"line 1, column 16: node_types: found number (want an object)": func(l layout) {
			l["meta.json"] = []byte(`{"node_types": 3}`)
		},
		"node_types: found number 1.5 (want a whole number)": func(l layout) {
			l["meta.json"] = []byte(`{"node_types": {"paper": 1.5}}`)
		},
		`edge_types says 3 edges of paper__author, but edge_index.npy has 1`: func(l layout) {
			l["edges/paper__author/edge_index.npy"] = array(npy.Int64, []int64{0, 0}, 2, 1)
		},
		"in/edges/paper__author/edge_index.npy: edge 1 has destination 2, but there are 2 nodes": func(l layout) {
			l["edges/paper__author/edge_index.npy"] = array(npy.Int64, []int64{0, 2, 1, 0, 2, 0}, 2, 3)
		},
		"edge 0 has source 3, but there are 3 nodes": func(l layout) {
			l["edges/paper__author/edge_index.npy"] = array(npy.Int64, []int64{3, 2, 1, 0, 1, 0}, 2, 3)
		},
		"in/nodes/author: the features have 3 rows, but meta.json says 2 nodes": func(l layout) {
			l["nodes/author/node_feat.npy"] = array(npy.Float32, []float32{1, 2, 3}, 3, 1)
		},
		`in/edges/paper__shelf: there is no type "shelf"`: func(l layout) {
			l["edges/paper__shelf/edge_index.npy"] = array(npy.Int64, []int64{0, 0}, 2, 1)
		},
		"in/nodes/shelf: meta.json has no such type": func(l layout) {
			l["nodes/shelf/node_feat.npy"] = array(npy.Float32, []float32{1}, 1, 1)
		},
		"want a name such as author__paper": func(l layout) {
			l["edges/paper/edge_index.npy"] = array(npy.Int64, []int64{0, 0}, 2, 1)
		},
		"in/edges/paper__author: no edge_index.npy": func(l layout) {
			delete(l, "edges/paper__author/edge_index.npy")
			l["edges/paper__author/x.npy"] = nil
		},
		`"Paper" cannot name a type`: func(l layout) {
			l["meta.json"] = []byte(`{"node_types": {"Paper": 3, "paper": 3, "author": 2, "venue": 1}}`)
		},
		`the target is "shelf"`: func(l layout) {
			l["meta.json"] = []byte(`{"node_types": {"paper": 3, "author": 2, "venue": 1}, "target": "shelf"}`)
		},
		"splits.npy": func(l layout) { l["nodes/paper/splits.npy"] = array(npy.Int8, []int8{0, 1}, 2) },
	} {
		l := typedLayout()
		change(l)
		disk := l.put(t)
		_, err := importTyped(disk, UnknownDirection, Options{})
		if !errors.Is(err, ErrInvalid) || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want an error with %q", err, want)
		}
		if _, err := disk.Stat("out"); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("%s: something is left: %v", want, err)
		}
	}
}

func TestATypedImportThatFailedIsMadeAnew(t *testing.T) {
	for _, force := range []bool{false, true} {
		before := typedLayout().put(t)
		if force {
			if _, err := importTyped(before, Directed, Options{}); err != nil {
				t.Fatal(err)
			}
		}
		seen := vfs.Disks{}
		for n := int64(1); ; n += 11 {
			disk := before.Clone()
			failing := vfs.NewFault(disk)
			failing.FailAt(n, syscall.EIO)
			_, err := importTyped(failing, UnknownDirection, Options{Force: force})
			if failing.Operations() < n {
				if err != nil || n < 100 {
					t.Fatalf("%d operations: %v", n-1, err)
				}
				break
			}
			if !seen.Add(disk, 0) {
				continue
			}
			if format.IsTyped(disk, "out") {
				checkTyped(t, disk)
			}
			if _, err := importTyped(disk, UnknownDirection, Options{Force: force}); err != nil &&
				!errors.Is(err, format.ErrExists) {
				t.Fatalf("force %v, after failing operation %d: %v", force, n, err)
			}
			if typed := checkTyped(t, disk); len(typed.Relations) != 6 {
				t.Fatalf("force %v, after failing operation %d: relations %v", force, n, typed.Relations)
			}
		}
	}
}

func TestDamageOfATypedGraphIsFound(t *testing.T) {
	disk := typedLayout().put(t)
	if _, err := importTyped(disk, UnknownDirection, Options{}); err != nil {
		t.Fatal(err)
	}
	bad := func() []format.CorruptError {
		report, err := format.VerifyTyped(context.Background(), disk, "out", 1, progress.Silent)
		if err != nil {
			t.Fatal(err)
		}
		return report.Bad
	}
	types := path.Join("out", "types.json")
	whole, err := vfs.ReadFile(disk, types, 1<<20)
	if err != nil {
		t.Fatal(err)
	}
	for i := range whole {
		changed := slices.Clone(whole)
		changed[i] ^= 4
		putFile(t, disk, types, changed)
		if found := bad(); len(found) != 1 || found[0].File != types {
			t.Fatalf("byte %d of types.json: %v", i, found)
		}
	}
	putFile(t, disk, types, whole)
	putFile(t, disk, "out/nodes/note", []byte("mine"))
	if found := bad(); len(found) != 1 || found[0].File != "out/nodes/note" {
		t.Errorf("a file that nobody listed: %v", found)
	}
	if err := errors.Join(disk.Remove("out/nodes/note"), disk.RemoveAll("out/nodes/author")); err != nil {
		t.Fatal(err)
	}
	if err := disk.Rename("out/nodes/venue", "out/nodes/author"); err != nil {
		t.Fatal(err)
	}
	if found := bad(); len(found) != 2 || found[0].File != "out/nodes/author" || found[1].File != "out/nodes/venue" {
		t.Errorf("a folder in the place of another: %v", found)
	}
}
