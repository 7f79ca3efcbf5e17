package command

import (
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/hopfeed/hopfeed/internal/folder"
)

// Neither the topology of a graph nor what layers put out for all nodes must fit into memory; results are the same.
func TestGraphsPastMemoryGiveTheSameResults(t *testing.T) {
	d := disk(t, "generate sbm -o graph --nodes 60000 --edges 200000 --features 8 --classes 4 --labeled 0.02 --seed 5")
	if err := d.MkdirAll("layers"); err != nil {
		t.Fatal(err)
	}
	write(t, d, "layers/mine", "mine")
	other, err := folder.OpenScratch(d, "layers/hopfeed-layers-0") // of another training
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct{ line, suffix string }{
		{"train graph --model sage --hidden 64 --layers 2 --epochs 1 --batch 64 --fanout 3,3 --threads 2 " +
			"--placement storage --cache optimal:2000rows --run ", ""},
		{"predict --checkpoint all graph --placement host --threads 2 -o ", ".csv"},
	} {
		line := func(output, flags string) string { return c.line + output + c.suffix + flags }
		must(t, d, line("all", ""))
		says := hopfeed(t, d, line("none", " --memory 64MiB")).stderr
		least := regexp.MustCompile(`needs (\d+) MiB`).FindStringSubmatch(says)
		if least == nil {
			t.Fatal(says)
		}
		mib, _ := strconv.Atoi(least[1])
		small := fmt.Sprintf(" --memory %dMiB", mib-25) // layers of all nodes take 29 MiB, and their checksums 0.5
		if o := hopfeed(t, d, line("none", small)); o.code != exitDoesNotFit || !strings.Contains(o.stderr, "--scratch") {
			t.Errorf("%s: exit status %d: %s", c.line, o.code, o.stderr)
		}
		o := must(t, d, line("some", small+" --verbose --map --scratch layers"))
		if !strings.Contains(o.stderr, "kept in layers") {
			t.Error(o.stderr)
		}
		o = hopfeed(t, d, line("none", " --scratch graph/layers"))
		if o.code != exitUsage || !strings.Contains(o.stderr, "cannot be in the graph") {
			t.Errorf("%s: exit status %d: %s", c.line, o.code, o.stderr)
		}
	}
	if all, some := parametersOf(t, tree(t, d, "all")), parametersOf(t, tree(t, d, "some")); all != some {
		t.Error("other parameters")
	}
	if content(t, d, "all.csv") != content(t, d, "some.csv") {
		t.Error("other predictions")
	}
	if err := other.Close(); err != nil {
		t.Fatal(err)
	}
	if left, err := d.ReadDir("layers"); err != nil || len(left) != 1 || left[0].Name() != "mine" {
		t.Errorf("%v are left, %v", left, err)
	}
}
