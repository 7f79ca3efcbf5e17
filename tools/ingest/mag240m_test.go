package ingest

import (
	"math"
	"testing"

	"github.com/hopfeed/hopfeed/format"
	"github.com/hopfeed/hopfeed/tools/npy"
)

// smallMAG240M is laid out as MAG240M: three papers of two float16 features, two authors, an institution.
func smallMAG240M() layout {
	nan, features := float32(math.NaN()), []uint16{0x3c00, 0x4000, 0x3800, 0, 0xbc00, 0x4200}
	return layout{
		"processed/paper/node_feat.npy":                                   array(npy.Float16, features, 3, 2),
		"processed/paper/node_label.npy":                                  array(npy.Float32, []float32{1, nan, 0}, 3),
		"processed/paper/node_year.npy":                                   array(npy.Int64, []int64{2015, 2019, 2018}, 3),
		"processed/paper/train_idx.npy":                                   array(npy.Int64, []int64{0}, 1),
		"processed/paper/valid_idx.npy":                                   array(npy.Int64, []int64{2}, 1),
		"processed/paper/test_idx.npy":                                    array(npy.Int64, []int64{1}, 1),
		"processed/author___writes___paper/edge_index.npy":                array(npy.Int64, []int64{0, 1, 1, 0, 2, 1}, 2, 3),
		"processed/author___affiliated_with___institution/edge_index.npy": array(npy.Int64, []int64{0, 1, 0, 0}, 2, 2),
		"processed/paper___cites___paper/edge_index.npy":                  array(npy.Int64, []int64{0, 1, 1, 1}, 2, 2),
		"meta.pt":         []byte("PK\x03\x04pickled"),
		"split_dict.pt":   []byte("PK\x03\x04pickled"),
		"RELEASE_v1.txt":  {},
		"mapping/x.csv":   {},
		"unused/y.npy":    {},
		"processed/z.txt": {},
	}
}

func TestMAG240MEqualsTypedArrays(t *testing.T) {
	from := smallMAG240M()
	arrays := layout{"meta.json": []byte(`{"node_types": {"author": 2, "institution": 1, "paper": 3}}`)}
	for to, name := range map[string]string{
		"nodes/paper/node_feat.npy":                                 "paper/node_feat.npy",
		"nodes/paper/node_label.npy":                                "paper/node_label.npy",
		"nodes/paper/node_year.npy":                                 "paper/node_year.npy",
		"nodes/paper/train_idx.npy":                                 "paper/train_idx.npy",
		"nodes/paper/valid_idx.npy":                                 "paper/valid_idx.npy",
		"nodes/paper/test_idx.npy":                                  "paper/test_idx.npy",
		"edges/author__writes__paper/edge_index.npy":                "author___writes___paper/edge_index.npy",
		"edges/author__affiliated_with__institution/edge_index.npy": "author___affiliated_with___institution/edge_index.npy",
		"edges/paper__cites__paper/edge_index.npy":                  "paper___cites___paper/edge_index.npy",
	} {
		arrays[to] = from["processed/"+name]
	}
	for _, dtype := range []format.DType{format.Float16, format.Float32} {
		twin, disk := arrays.put(t), from.put(t)
		if _, err := importTyped(twin, UnknownDirection, Options{DType: dtype}); err != nil {
			t.Fatal(err)
		}
		r, err := importTypedOGB(disk, OGBOptions{}, Options{DType: dtype})
		if err != nil {
			t.Fatal(err)
		}
		if typed := checkTyped(t, disk); typed.Name != "mag240m" || r.Target != "paper" || r.Classes != 2 || r.Nodes != 6 ||
			r.Train != 1 || r.Valid != 1 || r.Test != 1 {
			t.Errorf("%s: %+v", typed.Name, r)
		}
		want := contents(t, twin)
		if len(want) < 10 {
			t.Fatalf("only %d files are compared", len(want))
		}
		sameFiles(t, "MAG240M", contents(t, disk), want)
	}
}

func TestMAG240MThatIsNoneIsRefusedNamingTheFile(t *testing.T) {
	pickled := smallMAG240M()
	for _, part := range []string{"train", "valid", "test"} {
		delete(pickled, "processed/paper/"+part+"_idx.npy")
	}
	const writes = "processed/author___writes___paper"
	for want, l := range map[string]layout{
		"in/split_dict.pt: pickles are not read": pickled,
		"in/" + writes + "/edge_index.npy: edge 1 has destination 3, but there are 3 nodes": with(smallMAG240M(),
			writes+"/edge_index.npy", array(npy.Int64, []int64{0, 1, 1, 0, 3, 1}, 2, 3)),
		"in/" + writes + "/edge_index.npy: edge 0 has source -1": with(smallMAG240M(),
			writes+"/edge_index.npy", array(npy.Int64, []int64{-1, 1, 1, 0, 2, 1}, 2, 3)),
		"in/processed/author: 4294967297 nodes": with(smallMAG240M(), writes+"/edge_index.npy",
			array(npy.Int64, []int64{1 << 32, 1, 1, 0, 2, 1}, 2, 3)),
		"in/processed/paper/node_feat.npy": with(smallMAG240M(), "processed/paper/node_feat.npy",
			array(npy.Float16, []uint16{0, 0, 0}, 3)),
		"in/processed/paper/node_label.npy": with(smallMAG240M(), "processed/paper/node_label.npy",
			array(npy.Float32, []float32{0, 1}, 2)),
		"in/processed/x: 0 nodes": with(smallMAG240M(), "processed/paper___x/edge_index.npy",
			array(npy.Int64, []int64{}, 2, 0)),
	} {
		disk := l.put(t)
		_, err := importTypedOGB(disk, OGBOptions{}, Options{})
		refused(t, want, err, want)
		if left := files(t, disk, "out"); len(left) > 0 {
			t.Errorf("%s: %d files are left", want, len(left))
		}
	}
}
