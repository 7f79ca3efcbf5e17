package export

import (
	"context"
	"errors"
	"path"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/hopfeed/hopfeed/format"
	"github.com/hopfeed/hopfeed/internal/vfs"
	"github.com/hopfeed/hopfeed/tools/ingest"
	"github.com/hopfeed/hopfeed/tools/npy"
	"github.com/spf13/pflag"
)

// tables are papers with everything that nodes can have, authors with features alone, and venues with nothing but ids;
// the reverse of written is there already.
var tables = map[string]string{
	"nodes/paper.csv": "paper,label,split,split_2,x,z,year\np0,whale,train,,1,2,1999\np1,,valid,test,3,4,2001\n" +
		"p2,cat,,train,5,6,2003\n",
	"nodes/author.csv":                 "author_id,age\nA,7\nB,8\n",
	"edges/author__writes__paper.csv":  "author,paper,weight,time\nA,p0,1,5\nA,p0,2,6\nB,p2,0.5,7\n",
	"edges/paper__written__author.csv": "paper,author\np2,A\n",
	"edges/paper__cites__paper.csv":    "source,destination\np0,p1\np1,p1\n",
	"edges/venue__paper.csv":           "venue,paper\nkdd,p2\n",
}

// importTo imports a folder by the importer of a layout.
func importTo(t *testing.T, disk vfs.FS, layout, from, dir string, direction ingest.Direction, o ingest.Options,
	flags ...string) {
	t.Helper()
	all := ingest.Formats()
	set := pflag.NewFlagSet("", pflag.ContinueOnError)
	open := all[slices.IndexFunc(all, func(f ingest.Format) bool { return f.Name == layout })].Declare(set)
	err := set.Parse(flags)
	var source ingest.Source
	if err == nil {
		source, err = open(context.Background(), ingest.Input{FS: disk, Path: from, Direction: direction,
			Scratch: ingest.ScratchOptions{Output: dir}})
	}
	if err == nil {
		_, err = ingest.Run(context.Background(), disk, source, dir, o)
		err = errors.Join(err, source.Close())
	}
	if err != nil {
		t.Fatalf("import %s %s: %v", layout, from, err)
	}
}

func typedDisk(t *testing.T, o ingest.Options, direction ingest.Direction, flags ...string) *vfs.Mem {
	t.Helper()
	disk := vfs.NewMem()
	for name, text := range tables {
		if err := errors.Join(disk.MkdirAll(path.Dir("in/"+name)), vfs.WriteFile(disk, "in/"+name,
			[]byte(text))); err != nil {
			t.Fatal(err)
		}
	}
	importTo(t, disk, "csv", "in", "graph", direction, o, append(flags, "--target", "paper", "--split-column", "split*",
		"--edge-columns", "time:int64", "--node-columns", "year:int16")...)
	return disk
}

func TestAnExportedTypedGraphIsImportedAsTheSameBytes(t *testing.T) {
	ctx := context.Background()
	for _, c := range []struct {
		o         ingest.Options
		direction ingest.Direction
		flags     []string
	}{
		{ingest.Options{}, ingest.UnknownDirection, nil},
		{ingest.Options{DType: format.BFloat16, Duplicates: ingest.KeepDuplicates}, ingest.Directed, nil},
		{ingest.Options{NormalizeFeatures: true}, ingest.UnknownDirection, []string{"--missing-features", "degree"}},
	} {
		disk := typedDisk(t, c.o, c.direction, c.flags...)
		r, err := NPY(ctx, disk, "graph", "out", Options{})
		if err != nil {
			t.Fatal(err)
		}
		total := int64(0)
		for _, name := range r.Files {
			total += int64(len(content(t, disk, "out/"+name)))
		}
		if got := tree(t, disk, "out"); len(got) != len(r.Files) || total != r.Bytes {
			t.Errorf("%v of %d bytes; the result says %+v", got, total, r)
		}
		again := c.o
		again.NormalizeFeatures = false // the meta.json of each type says that they are
		importTo(t, disk, "npy", "out", "again", ingest.UnknownDirection, again)
		// types.json names the content of each part by its fingerprint.
		if a, b := content(t, disk, "graph/types.json"), content(t, disk, "again/types.json"); string(a) != string(b) {
			t.Errorf("%+v: %s\nthen %s", c, a, b)
		}
		if _, err := NPY(ctx, disk, "again", "out2", Options{}); err != nil {
			t.Fatal(err)
		}
		importTo(t, disk, "npy", "out2", "third", ingest.UnknownDirection, again)
		for _, pair := range [][2]string{{"again", "third"}, {"out", "out2"}} {
			names := tree(t, disk, pair[0])
			if got := tree(t, disk, pair[1]); !slices.Equal(got, names) {
				t.Fatalf("%s has %v, and %s %v", pair[0], names, pair[1], got)
			}
			for _, name := range names {
				if string(content(t, disk, pair[0]+"/"+name)) != string(content(t, disk, pair[1]+"/"+name)) {
					t.Errorf("%+v: %s/%s is another than in %s", c, pair[1], name, pair[0])
				}
			}
		}
	}
}

func TestOnlyATypedExportIsReplacedWhole(t *testing.T) {
	ctx := context.Background()
	disk := typedDisk(t, ingest.Options{}, ingest.UnknownDirection)
	graph(t, disk, "plain", format.Float32, false, false)
	for _, from := range []string{"graph", "plain", "graph"} { // one replaces the other
		if _, err := NPY(ctx, disk, from, "out", Options{Force: true}); err != nil {
			t.Fatal(err)
		}
		if _, err := NPY(ctx, disk, from, "out-"+from, Options{Force: true}); err != nil {
			t.Fatal(err)
		}
		if got, want := tree(t, disk, "out"), tree(t, disk, "out-"+from); !slices.Equal(got, want) {
			t.Errorf("%v, want %v", got, want)
		}
	}
	if _, err := NPY(ctx, disk, "graph", "out", Options{}); !errors.Is(err, format.ErrExists) {
		t.Errorf("without force: %v", err)
	}
	whole := tree(t, disk, "out")
	for _, name := range []string{"nodes/paper/thesis.txt", "nodes/thesis.txt", "thesis/node_feat.npy"} {
		if err := disk.MkdirAll(path.Dir("out/" + name)); err != nil {
			t.Fatal(err)
		}
		put(t, disk, "out/"+name)
		if _, err := NPY(ctx, disk, "graph", "out", Options{Force: true}); !errors.Is(err, format.ErrExists) ||
			!strings.Contains(err.Error(), "thesis") {
			t.Errorf("over %s: %v", name, err)
		}
		if got := tree(t, disk, "out"); len(got) != len(whole)+1 {
			t.Errorf("the refusal has left %v", got)
		}
		if err := disk.Remove("out/" + name); err != nil {
			t.Fatal(err)
		}
		_ = disk.Remove("out/thesis")
	}
	damaged := content(t, disk, "graph/nodes/author/manifest.json")
	damaged[len(damaged)/2] ^= 1
	if err := vfs.WriteFile(disk, "graph/nodes/author/manifest.json", damaged); err != nil {
		t.Fatal(err)
	}
	if _, err := NPY(ctx, disk, "graph", "other", Options{}); !errors.Is(err, format.ErrCorrupt) {
		t.Errorf("a damaged part: %v", err)
	}
	if got := tree(t, disk, "other"); len(got) > 0 {
		t.Errorf("%v is left of a damaged graph", got)
	}
}

func TestAKilledTypedExportIsNoneAndTheNextIsWhole(t *testing.T) {
	ctx := context.Background()
	disk := typedDisk(t, ingest.Options{}, ingest.UnknownDirection)
	if _, err := NPY(ctx, disk, "graph", "whole", Options{}); err != nil {
		t.Fatal(err)
	}
	whole := tree(t, disk, "whole")
	if _, err := NPY(ctx, disk, "graph", "old", Options{}); err != nil {
		t.Fatal(err)
	}
	for i, out := range []string{"out", "old"} {
		seen := vfs.Disks{}
		for n := int64(1 + i); ; n += 2 { // each operation in one of both, which write the same files
			mem := disk.CrashClone()
			fault := vfs.NewFault(mem)
			fault.FailFrom(n, syscall.EIO)
			_, err := NPY(ctx, fault, "graph", out, Options{Force: out == "old"})
			ended := fault.Operations() < n
			if mem = mem.CrashClone(); !ended && !seen.Add(mem, 0) {
				continue
			}
			left := tree(t, mem, out)
			isWhole := slices.Contains(left, "meta.json")
			if left = slices.DeleteFunc(left, func(name string) bool { return name == npy.LockName }); isWhole &&
				!slices.Equal(left, whole) || !isWhole && len(left) > 0 {
				t.Fatalf("%s, killed at operation %d: %v", out, n, left)
			}
			if _, err := NPY(ctx, mem, "graph", out, Options{Force: isWhole}); err != nil ||
				!slices.Equal(tree(t, mem, out), whole) {
				t.Fatalf("%s, killed at operation %d: then %v, %v", out, n, err, tree(t, mem, out))
			}
			if ended {
				if err != nil || n < 100 {
					t.Fatalf("%s: %d operations: %v", out, n, err)
				}
				break
			}
		}
	}
}
