package command

import (
	"errors"
	"maps"
	"path"
	"slices"
	"strings"
	"testing"

	"github.com/hopfeed/hopfeed/internal/vfs"
)

// What a user has in a folder that has the name of one of ours stays, whatever is
// asked for, and the error names it.
func TestAUsersFilesAreNeverRemoved(t *testing.T) {
	for _, c := range []struct {
		line  string
		files map[string]string // a user's
		named string
	}{
		{"import csv edges.csv -o g --ids map", map[string]string{"g.scratch/edges.csv": "the input"}, "g.scratch"},
		{"import csv edges.csv -o g --ids map --force", map[string]string{"g.scratch/sub/thesis.tex": "mine"},
			"g.scratch"},
		{"import csv edges.csv -o g --ids map", map[string]string{"g.scratch/lock": "mine", "g.scratch/edges": "mine"},
			"g.scratch"},
		{"import csv g.scratch/edges.csv -o g --ids map", map[string]string{"g.scratch/edges.csv": csvEdges},
			"g.scratch"},
		{"import mtx edges.mtx -o g --features ones", map[string]string{"g.scratch/edges.csv": "mine"}, "g.scratch"},
		{"import csv edges.csv -o g --ids map", map[string]string{"g/.job/notes.txt": "mine"}, ".job"},
		{"import csv edges.csv -o g --ids map --force", map[string]string{"g/.job/notes.txt": "mine"}, ".job"},
		{"generate sbm -o g --force", map[string]string{"g/.job/lock": "mine"}, ".job"},
		{"generate sbm -o g --force", map[string]string{"g/.job/lock": "", "g/.job/job.json": "mine"}, ".job"},
		{"generate sbm -o g --force", map[string]string{"g/index.arrow": "mine"}, "index.arrow"},
		{"import npy arrays -o g --force", map[string]string{"g/nodes/part-00000.arrow": "mine"}, "nodes"},
		{"propagate graph -o s --force", map[string]string{"s/.job/scratch/result-0-0-8.scratch": "mine"}, ".job"},
		{"propagate graph -o s", map[string]string{"s/.job/scratch/whole.lock": "mine"}, ".job"},
		{"export npy graph -o out --force", map[string]string{"out/.exporting": "mine", "out/edge_index.npy": "mine"},
			"out"},
		{"export npy graph -o out --force", map[string]string{"out/.exporting": "", "out/edge_index.npy": "mine"},
			"out"},
		{"export npy graph -o out --force", map[string]string{"out/meta.json": "mine", "out/edge_index.npy": "mine"},
			"out"},
		{"demo", map[string]string{"hopfeed-demo/thesis.tex": "mine"}, "hopfeed-demo"},
		{"demo", map[string]string{"hopfeed-demo/made-by-hopfeed-demo": "mine", "hopfeed-demo/thesis.tex": "mine"},
			"hopfeed-demo"},
		{"bench ablation store -o charts", map[string]string{"charts/figure-5.svg.tmp": "mine"}, "figure-5.svg.tmp"},
	} {
		t.Run(c.line+" "+slices.Sorted(maps.Keys(c.files))[0], func(t *testing.T) {
			d := disk(t, generateLine, exportLine, propagateLine)
			write(t, d, "edges.csv", csvEdges)
			write(t, d, "edges.mtx", "%%MatrixMarket matrix coordinate pattern general\n2 2 1\n1 2\n")
			for name, data := range c.files {
				if err := d.MkdirAll(path.Dir(name)); err != nil {
					t.Fatal(err)
				}
				write(t, d, name, data)
			}
			before := tree(t, d, ".")
			o := hopfeed(t, d, c.line)
			if o.code != exitUsage || !strings.Contains(o.stderr, c.named) {
				t.Errorf("exit status %d: %s", o.code, o.stderr)
			}
			if after := tree(t, d, "."); !maps.Equal(before, after) {
				t.Errorf("the files were %q and are %q", slices.Sorted(maps.Keys(before)),
					slices.Sorted(maps.Keys(after)))
			}
		})
	}
}

// --scratch names the folder in which ours is made, and that is refused too where a
// user has made it. What a killed process has left there is cleared.
func TestScratchFoldersOfAUserAreNotTaken(t *testing.T) {
	for _, c := range []struct{ line, output string }{
		{"import csv edges.csv -o g --ids map --scratch big", "g"},
		{"propagate graph -o s --rows all --scratch big", "s"},
	} {
		t.Run(c.line, func(t *testing.T) {
			d := disk(t, generateLine)
			write(t, d, "edges.csv", csvEdges)
			if err := d.MkdirAll("big"); err != nil {
				t.Fatal(err)
			}
			write(t, d, "big/mine", "mine")
			list := func(fsys vfs.FS) (names []string) {
				entries, err := fsys.ReadDir("big")
				if err != nil {
					t.Fatal(err)
				}
				for _, e := range entries {
					names = append(names, e.Name())
				}
				return names
			}
			made := ""
			for n := int64(1); ; n += 4 {
				left := d.CrashClone()
				fault := vfs.NewFault(left)
				fault.FailFrom(n, errors.New("killed"))
				if o := hopfeed(t, fault, c.line); o.code == exitDone {
					break
				}
				left = left.CrashClone()
				if _, err := left.Stat(c.output + "/manifest.json"); err == nil || len(list(left)) == 1 {
					continue
				}
				made = list(left)[0]
				must(t, left, c.line)
				if names := list(left); len(names) != 1 || content(t, left, "big/mine") != "mine" {
					t.Fatalf("after operation %d, again: %q", n, names)
				}
			}
			if made == "" {
				t.Fatal("no scratch folder was seen")
			}
			if err := d.MkdirAll("big/" + made); err != nil {
				t.Fatal(err)
			}
			write(t, d, "big/"+made+"/thesis.tex", "mine")
			before := tree(t, d, ".")
			o := hopfeed(t, d, c.line)
			if strings.HasPrefix(c.line, "propagate") { // a new job draws another name for its folder
				if o.code != exitDone || content(t, d, "big/"+made+"/thesis.tex") != "mine" ||
					content(t, d, "big/mine") != "mine" {
					t.Errorf("exit status %d, %q: %s", o.code, list(d), o.stderr)
				}
				return
			}
			if o.code != exitUsage || !strings.Contains(o.stderr, made) {
				t.Errorf("exit status %d: %s", o.code, o.stderr)
			}
			if after := tree(t, d, "."); !maps.Equal(before, after) {
				t.Errorf("the files were %q and are %q", slices.Sorted(maps.Keys(before)),
					slices.Sorted(maps.Keys(after)))
			}
		})
	}
}
