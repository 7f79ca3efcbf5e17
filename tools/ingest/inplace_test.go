package ingest

import (
	"context"
	"errors"
	"math"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/hopfeed/hopfeed/format"
	"github.com/hopfeed/hopfeed/internal/dtype"
	"github.com/hopfeed/hopfeed/internal/vfs"
	"github.com/hopfeed/hopfeed/tools/npy"
)

// halves are small numbers in a 16-bit type.
func halves(t format.DType, values []float32) []uint16 {
	out := make([]byte, 2*len(values))
	dtype.Encode(out, values, t)
	return dtype.Uint16s(out)
}

// inShards are features of 2500 nodes in three files, of whole chunks of 1000 rows
// but for the last.
func inShards() layout {
	values := make([]float32, 2500*3)
	for i := range values {
		values[i] = float32(i % 4093)
	}
	return layout{
		"edge_index.npy":  array(npy.Int64, []int64{0, 2499, 1, 2, 3, 4}, 2, 3),
		"node_feat_0.npy": array(npy.Float32, values[:3000], 1000, 3),
		"node_feat_1.npy": array(npy.Float32, values[:0], 0, 3),
		"node_feat_2.npy": array(npy.Float32, values[3000:], 1500, 3),
	}
}

func without(l layout, names ...string) layout {
	for _, name := range names {
		delete(l, name)
	}
	return l
}

func TestFeaturesInPlaceAreThoseThatACopyHas(t *testing.T) {
	small := func(name string, data []byte) layout { return with(smallLayout(), name, data) }
	fortranRow := without(small("node_feat.npy", fortran(array(npy.Float32, smallFeatures[:5], 5, 1))), "meta.json")
	for _, c := range []struct {
		name  string
		files layout
		o     NPYOptions
		dtype format.DType
	}{
		{"float32", smallLayout(), NPYOptions{}, format.Float32},
		{"float16", small("node_feat.npy", array(npy.Float16, halves(format.Float16, smallFeatures), 5, 4)),
			NPYOptions{}, format.Float16},
		{"bfloat16", small("node_feat.npy", array(npy.Uint16, halves(format.BFloat16, smallFeatures), 5, 4)),
			NPYOptions{FeatureType: npy.BFloat16}, format.BFloat16},
		{"raw", small("node_feat.npy", raw(smallFeatures)), NPYOptions{FeatureShape: []int64{5, 4}}, format.Float32},
		{"one column in Fortran order", fortranRow, NPYOptions{}, format.Float32},
		{"shards", inShards(), NPYOptions{}, format.Float32},
	} {
		disk := c.files.put(t)
		before := files(t, disk, "in")
		results := map[bool][]float32{}
		for _, place := range []bool{true, false} {
			s, err := OpenNPY(disk, "in", c.o)
			if err != nil {
				t.Fatal(err)
			}
			dir := map[bool]string{true: "out/there", false: "out/copied"}[place]
			if _, err := Run(context.Background(), disk, s, dir,
				Options{DType: c.dtype, FeaturesInPlace: place}); err != nil {
				t.Fatalf("%s: %v", c.name, err)
			}
			s.Close()
			results[place] = storedFeatures(t, openGraph(t, disk, dir))
		}
		if !slices.Equal(results[true], results[false]) {
			t.Errorf("%s: %v, and copied %v", c.name, results[true], results[false])
		}
		there, copied := files(t, disk, "out/there"), files(t, disk, "out/copied")
		for name := range there {
			if there[name] != copied["out/copied"+name[len("out/there"):]] && name != "out/there/manifest.json" &&
				name != "out/there/index.arrow" {
				t.Errorf("%s: %s differs", c.name, name)
			}
		}
		if len(there) >= len(copied) {
			t.Errorf("%s: %d files, and copied %d", c.name, len(there), len(copied))
		}
		sameFiles(t, c.name, files(t, disk, "in"), before)
	}
}

func TestFeaturesOfOtherFormatsAreLeftInPlace(t *testing.T) {
	headerless := smallIGB()
	headerless[igbPaper+"node_feat.npy"] = raw(igbFloats())
	disk := headerless.put(t)
	s, err := OpenIGB(disk, "in", IGBOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	if _, err := Run(context.Background(), disk, s, "graph", Options{FeaturesInPlace: true}); err != nil {
		t.Fatal(err)
	}
	if got := storedFeatures(t, openGraph(t, disk, "graph")); !slices.Equal(got, igbFloats()) {
		t.Error("igb: other features")
	}
	putFile(t, disk, "edges.csv", []byte("0,1\n3,4\n"))
	putFile(t, disk, "x.npy", array(npy.Float32, smallFeatures, 5, 4))
	c, err := OpenCSV(context.Background(), disk, "edges.csv", ScratchOptions{Output: "csv"},
		TableOptions{NodeFiles: NodeFiles{Features: "x.npy"}})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if _, err := Run(context.Background(), disk, c, "csv", Options{FeaturesInPlace: true}); err != nil {
		t.Fatal(err)
	}
	if got := storedFeatures(t, openGraph(t, disk, "csv")); !slices.Equal(got, smallFeatures) {
		t.Error("csv: other features")
	}
	putFile(t, disk, "x.csv", []byte("0,1\n1,1\n2,1\n3,1\n4,1\n"))
	text, err := OpenCSV(context.Background(), disk, "edges.csv", ScratchOptions{Output: "text"},
		TableOptions{NodeFiles: NodeFiles{Features: "x.csv"}})
	if err != nil {
		t.Fatal(err)
	}
	defer text.Close()
	if _, err := Run(context.Background(), disk, text, "text", Options{FeaturesInPlace: true}); !errors.Is(err,
		ErrOptions) {
		t.Errorf("features that are text, in a scratch file: %v", err)
	}
}

func TestFeaturesThatCannotStayInPlaceAreRefused(t *testing.T) {
	swapped := array(npy.Float32, smallFeatures, 5, 4)
	swapped = slices.Concat([]byte("\x93NUMPY\x01\x00"), swapped[8:])
	copy(swapped[slices.Index(swapped, '<'):], ">")
	short := inShards()
	short["node_feat_0.npy"], short["node_feat_1.npy"] = array(npy.Float32, make([]float32, 999*3), 999,
		3), array(npy.Float32, make([]float32, 3), 1, 3)
	nan := slices.Clone(smallFeatures)
	nan[13] = float32(math.NaN())
	for _, c := range []struct {
		name  string
		files layout
		o     Options
		class error
		say   []string
	}{
		{"--normalize-features", smallLayout(), Options{NormalizeFeatures: true}, ErrOptions,
			[]string{"--normalize-features"}},
		{"of another type than asked for", smallLayout(), Options{DType: format.Float16}, ErrOptions,
			[]string{"in/node_feat.npy", "float32", "float16", "--dtype"}},
		{"float64", with(smallLayout(), "node_feat.npy", array(npy.Float64, make([]float64, 20), 5, 4)), Options{},
			ErrOptions, []string{"in/node_feat.npy", "float64"}},
		{"in Fortran order", with(smallLayout(), "node_feat.npy", fortran(array(npy.Float32, smallFeatures, 5, 4))),
			Options{}, ErrOptions, []string{"in/node_feat.npy", "columns"}},
		{"big endian", with(smallLayout(), "node_feat.npy", swapped), Options{}, ErrOptions,
			[]string{"in/node_feat.npy", "big endian"}},
		{"chunks over two shards", short, Options{}, ErrOptions,
			[]string{"in/node_feat_0.npy", "999 rows", "multiple of 1000"}},
		{"sparse", without(with(smallLayout(), "node_feat.npz", fixture(t, "stored")), "node_feat.npy", "meta.json",
			"node_label.npy", "splits.npy"), Options{}, ErrOptions, []string{".npy"}},
		{"not finite", with(smallLayout(), "node_feat.npy", array(npy.Float32, nan, 5, 4)), Options{}, ErrInvalid,
			[]string{"in/node_feat.npy: row 3, column 1: NaN"}},
	} {
		c.o.FeaturesInPlace = true
		disk, _, err := run(t, c.files, c.o)
		if !errors.Is(err, c.class) {
			t.Errorf("%s: %v", c.name, err)
			continue
		}
		for _, say := range c.say {
			if !strings.Contains(err.Error(), say) || strings.Contains(err.Error(), "\n") {
				t.Errorf("%s: %q does not say %q", c.name, err, say)
			}
		}
		if left := files(t, disk, "out"); len(left) > 0 {
			t.Errorf("%s: %d files are left", c.name, len(left))
		}
	}
}

func TestNoFaultOfTheDiskIsBlamedOnFeaturesInPlace(t *testing.T) {
	importInPlace := func(fsys vfs.FS) error {
		s, err := OpenNPY(fsys, "in", NPYOptions{})
		if err != nil {
			return err
		}
		defer s.Close()
		_, err = Run(context.Background(), fsys, s, "out/graph", Options{FeaturesInPlace: true, Threads: 1})
		return err
	}
	for n := int64(1); ; n++ {
		disk := inShards().put(t)
		before := files(t, disk, "in")
		faulty := vfs.NewFault(disk)
		faulty.FailAt(n, syscall.EIO)
		err := importInPlace(faulty)
		if err == nil && faulty.Operations() < n {
			openGraph(t, disk, "out/graph")
			return
		}
		if err != nil && !errors.Is(err, syscall.EIO) || errors.Is(err, ErrInvalid) ||
			errors.Is(err, format.ErrCorrupt) {
			t.Fatalf("operation %d failed, the import with %v", n, err)
		}
		sameFiles(t, "after a fault", files(t, disk, "in"), before)
	}
}
