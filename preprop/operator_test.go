package preprop

import (
	"strings"
	"testing"

	"github.com/hopfeed/hopfeed/format"
)

func TestParseOperators(t *testing.T) {
	for _, c := range []struct {
		name, list string
		want       []string // canonical spellings
		err        string   // a part of the error
	}{
		{name: "one operator", list: "sym", want: []string{"sym"}},
		{name: "a flag", list: "rw:noloops", want: []string{"rw:noloops"}},
		{name: "several, with space", list: "sym, rw,sym:noloops", want: []string{"sym", "rw", "sym:noloops"}},
		{name: "flags in any order", list: "col:noloops:reverse,sym:undirected,rw:undirected:noloops", want: []string{"col:reverse:noloops", "sym:undirected", "rw:undirected:noloops"}},
		{name: "an unknown operator lists those that exist", list: "sym,gcn", err: `no operator "gcn" (there are: sym, rw, col)`},
		{name: "an unknown flag lists those that exist", list: "sym:loops", err: `no option "loops" (there are: reverse, undirected, noloops)`},
		{name: "two graphs", list: "sym:reverse:noloops:undirected", err: "reverse and undirected exclude each other"},
		{name: "one graph twice", list: "sym:reverse:noloops:reverse", err: "reverse is given twice"},
		{name: "an operator listed twice in two spellings", list: "rw:noloops:reverse,rw:reverse:noloops", err: `"rw:reverse:noloops" is listed twice`},
		{name: "an unknown parameter too", list: "rw:alpha=0.1", err: `no option "alpha=0.1"`},
		{name: "a flag takes no value", list: "rw:noloops=1", err: `no option "noloops=1"`},
		{name: "a flag given twice", list: "rw:noloops:noloops", err: "noloops is given twice"},
		{name: "a trailing colon", list: "rw:", err: `no option ""`},
		{name: "capitals are other names", list: "Sym", err: `no operator "Sym"`},
		{name: "an empty list", list: "", err: `no operator ""`},
		{name: "a trailing comma", list: "sym,", err: `no operator ""`},
		{name: "the features are no operator", list: "x", err: `no operator "x"`},
		{name: "an operator listed twice", list: "rw,sym,rw", err: `"rw" is listed twice`},
	} {
		t.Run(c.name, func(t *testing.T) {
			got, err := ParseOperators(c.list)
			if c.err != "" {
				if err == nil || !strings.Contains(err.Error(), c.err) {
					t.Fatalf("error %v, want one with %q", err, c.err)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			if len(got) != len(c.want) {
				t.Fatalf("got %v, want %v", got, c.want)
			}
			for i, o := range got {
				if o.String() != c.want[i] {
					t.Errorf("operator %d is %v, want %s", i, o, c.want[i])
				}
			}
		})
	}
}

func TestCanonicalSpellingsReadBackAndDiffer(t *testing.T) {
	seen := map[string]bool{format.FeaturesOperator: true}
	for _, o := range allOperators {
		spelling := o.String()
		if back, err := ParseOperator(spelling); err != nil || back != o {
			t.Errorf("%s reads back as %v, %v", spelling, back, err)
		}
		if strings.Trim(spelling, "abcdefghijklmnopqrstuvwxyz0123456789.:=") != "" {
			t.Errorf("%s has characters that are not safe in a folder's name", spelling)
		}
		if seen[spelling] {
			t.Errorf("%s names two operators", spelling)
		}
		seen[spelling] = true
	}
}
