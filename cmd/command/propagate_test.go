package command

import (
	"reflect"
	"strings"
	"testing"
)

func TestPropagateAddsWhatIsMissingAndNoMore(t *testing.T) {
	d := disk(t, generateLine, propagateLine)
	before := tree(t, d, "store")
	for _, line := range []string{propagateLine, "propagate graph -o store",
		"propagate graph -o store --hops 1 --operator rw --seed 7"} {
		if out := must(t, d, line).stdout; !strings.Contains(out, "nothing was done") ||
			strings.Contains(out, "not asked for: sym hops 1 to 2, rw hop 2") != strings.Contains(line, "--hops 1") {
			t.Errorf("%s: %s", line, out)
		}
	}
	if !reflect.DeepEqual(tree(t, d, "store"), before) {
		t.Error("the store has changed")
	}
	out := must(t, d, "propagate graph -o store --hops 3").stdout
	if !strings.Contains(out, "3 hops of sym, rw") {
		t.Errorf("to three hops: %s", out)
	}
	fresh := disk(t, generateLine, strings.Replace(propagateLine, "--hops 2 --operator sym,rw",
		"--hops 3 --operator rw,sym", 1))
	if !reflect.DeepEqual(tree(t, d, "store"), tree(t, fresh, "store")) {
		t.Error("the grown store is another than a fresh one")
	}
	if o := hopfeed(t, d, "propagate graph -o store --chunk-rows 7"); o.code != exitUsage ||
		!strings.Contains(o.stderr, "--chunk-rows: 16 there, 7 asked for") {
		t.Errorf("other chunks: %+v", o)
	}
}
