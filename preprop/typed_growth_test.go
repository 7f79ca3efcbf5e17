package preprop

import (
	"bytes"
	"context"
	"errors"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/hopfeed/hopfeed/format"
	"github.com/hopfeed/hopfeed/internal/vfs"
	"github.com/hopfeed/hopfeed/preprop/operator"
)

func TestAStoreOfATypedGraphGrowsToTheBytesOfOneRun(t *testing.T) {
	fsys := vfs.NewMem()
	randomTyped(t, fsys, "graph", 30)
	sym := []operator.Operator{{Name: operator.Sym}}
	whole := Options{Hops: 2, LabelHops: 2, Split: 1, Seed: 3, Operators: sym, DType: format.BFloat16, Threads: 1}
	want := propagated(t, fsys, "whole", whole)
	first := whole
	first.Hops, first.Metapaths = 0, []string{"paper<venue<paper"}
	propagated(t, fsys, "store", first)
	left := Defaulted{Hops: true, Operators: true, Split: true, Seed: true, LabelHops: true}
	r, err := Propagate(context.Background(), fsys, "graph", "store", Options{Hops: 2, Threads: 2, Defaulted: left})
	if err != nil || !r.AlreadyComplete {
		t.Fatalf("nothing is asked for: %+v, %v", r, err)
	}
	more := Options{Metapaths: []string{"paper<author"}, Threads: 2, Defaulted: left}
	r, err = Propagate(context.Background(), fsys, "graph", "store", more)
	if err != nil || r.AlreadyComplete || !slices.Equal(r.Beyond, []string{"sym:paper<venue<paper"}) {
		t.Fatalf("one more metapath: %+v, %v", r, err)
	}
	left.Hops = false
	r, err = Propagate(context.Background(), fsys, "graph", "store", Options{Hops: 2, Threads: 2, Defaulted: left})
	if err != nil || len(r.Beyond) > 0 || !sameFiles(files(t, fsys, "store"), want) {
		t.Errorf("a store that grew is another: %+v, %v", r, err)
	}
	for what, change := range map[string]func(*Options){
		"--split: 1 there, 0 asked for":      func(o *Options) { o.Defaulted.Split = false },
		"--label-hops: 2 there, 4 asked for": func(o *Options) { o.LabelHops, o.Defaulted.LabelHops = 4, false },
		"--dtype: bfloat16 there, float32":   func(o *Options) { o.DType = format.Float32 },
	} {
		o := Options{Hops: 2, Threads: 2, Defaulted: left}
		change(&o)
		if _, err := Propagate(context.Background(), fsys, "graph", "store", o); !errors.Is(err,
			format.ErrExists) || !strings.Contains(err.Error(), what) {
			t.Errorf("%s: %v", what, err)
		}
	}
	o := Options{Hops: 1, Operators: []operator.Operator{{Name: operator.RW}}, Threads: 2}
	if _, err := Propagate(context.Background(), fsys, "graph", "store", o); !errors.Is(err, ErrOptions) ||
		!strings.Contains(err.Error(), "give --operator sym") {
		t.Errorf("another operator: %v", err)
	}
}

func TestAStoreOfSubsetsGrowsToTheBytesOfOneRun(t *testing.T) {
	fsys := vfs.NewMem()
	randomTyped(t, fsys, "graph", 30)
	o := Options{Hops: 2, Split: 1, Seed: 5, Threads: 1, RelationsSubsets: 4}
	want := propagated(t, fsys, "whole", o)
	first := o
	first.RelationsSubsets = 2
	propagated(t, fsys, "store", first)
	r, err := Propagate(context.Background(), fsys, "graph", "store", o)
	if err != nil || r.AlreadyComplete || r.RelationsSubsets != 4 || len(r.Beyond) > 0 ||
		!sameFiles(files(t, fsys, "store"), want) {
		t.Errorf("a store that grew is another: %+v, %v", r, err)
	}
	var names []string
	for _, m := range r.Metapaths {
		names = append(names, m.Name)
	}
	o.Hops, o.RelationsSubsets, o.Metapaths = 0, 0, names
	if !sameFiles(propagated(t, fsys, "named", o), want) {
		t.Error("a store of named hops is another")
	}
	o.Metapaths = append([]string{"paper<author", "paper<author<paper", "paper<cites.paper"}, names...)
	both := propagated(t, fsys, "both", o)
	slices.Reverse(o.Metapaths)
	paths, subsets := o, first
	paths.Metapaths = o.Metapaths[len(names):]
	subsets.RelationsSubsets = 4
	propagated(t, fsys, "paths", paths)
	if grown := propagated(t, fsys, "paths", subsets); !sameFiles(grown, both) ||
		!sameFiles(propagated(t, fsys, "reversed", o), both) {
		t.Error("a store of metapaths and hops is another")
	}
	sym := o
	sym.Operators = []operator.Operator{{Name: operator.Sym}}
	if _, err := Propagate(context.Background(), fsys, "graph", "sym", sym); !errors.Is(err, ErrOptions) ||
		!strings.Contains(err.Error(), "--operator is rw") {
		t.Errorf("sym: %v", err)
	}
	for text, want := range map[string]string{
		"paper<author=0<author":              "a hop from 1 to",
		"paper<author=x<author":              "a hop from 1 to",
		"paper<author=1":                     `no features of type ""`,
		"paper<author=1<venue":               `no features of type "venue"`,
		"paper<author=1<paper":               "no features of paper come to paper",
		"paper<cat=1<author":                 "want relations of ",
		"paper<author-paper<author=1<author": "in this order, each once",
		"=1<author":                          "no features of author come to paper",
	} {
		o.Metapaths = []string{text}
		if _, err := Propagate(context.Background(), fsys, "graph", "other", o); !errors.Is(err, ErrOptions) ||
			!strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %s", text, err, want)
		}
	}
}

func TestEveryFailureOfTheDiskWhileATypedStoreGrowsIsAnErrorAndItGoesOn(t *testing.T) {
	mem := vfs.NewMem()
	randomTyped(t, mem, "graph", 20)
	first := Options{Metapaths: []string{"paper<author"}, Threads: 1}
	both := Options{Metapaths: []string{"paper<author", "paper<author<paper"}, Threads: 1}
	want := propagated(t, mem, "whole", both)
	before := propagated(t, mem, "store", first)
	base, seen := mem, vfs.Disks{}
	for n := int64(1); ; n += 5 * failureStep() {
		mem := base.Clone()
		disk := vfs.NewFault(mem)
		disk.FailAt(n, syscall.EIO)
		_, err := Propagate(context.Background(), disk, "graph", "store", both)
		if disk.Operations() < n { // nothing failed
			if err != nil || n < 50 {
				t.Fatalf("%d operations: %v", n-1, err)
			}
			return
		}
		const manifest = "/manifest.json"
		if now := files(t, mem, "store")["store"+manifest]; err != nil && !bytes.Equal(now, before["store"+manifest]) &&
			!bytes.Equal(now, want["whole"+manifest]) {
			t.Fatalf("failing operation %d left a third manifest", n)
		}
		if !seen.Add(mem, 0) {
			continue
		}
		if _, err := Propagate(context.Background(), mem, "graph", "store", both); err != nil {
			t.Fatalf("after failing operation %d: %v", n, err)
		}
		if !sameFiles(files(t, mem, "store"), want) {
			t.Fatalf("after failing operation %d the store is another", n)
		}
	}
}
