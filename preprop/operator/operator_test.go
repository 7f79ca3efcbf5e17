package operator

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
		{name: "flags in any order", list: "col:noloops:reverse,sym:undirected,rw:undirected:noloops",
			want: []string{"col:reverse:noloops", "sym:undirected", "rw:undirected:noloops"}},
		{name: "an unknown operator lists those that exist", list: "sym,gcn",
			err: `no operator "gcn" (there are: sym, rw, col, ppr, heat)`},
		{name: "an unknown flag lists those that exist", list: "sym:loops",
			err: `no option "loops" (there are: reverse, undirected, noloops)`},
		{name: "series by default", list: "ppr,heat", want: []string{"ppr:alpha=0.15", "heat:t=3"}},
		{name: "metapaths, of features and of labels", list: "rw:paper<author,sym:paper<cites.paper<paper:labels",
			want: []string{"rw:paper<author", "sym:paper<cites.paper<paper:labels"}},
		{name: "a metapath after its labels", list: "rw:labels:paper<author", err: `rw has no option "labels"`},
		{name: "a metapath with a flag", list: "rw:paper<author:reverse", err: `no option "reverse" (there are: labels)`},
		{name: "a metapath of another operator", list: "col:paper<author", err: "a metapath goes with sym or rw"},
		{name: "numbers in other spellings", list: "ppr:alpha=1e-1,heat:t=05.50:tolerance=1e-5",
			want: []string{"ppr:alpha=0.1", "heat:t=5.5:tolerance=0.00001"}},
		{name: "settings and flags in any order", list: "ppr:tolerance=.01:noloops:alpha=.2:reverse",
			want: []string{"ppr:reverse:noloops:alpha=0.2:tolerance=0.01"}},
		{name: "the default tolerance is not said", list: "ppr:tolerance=0.0001", want: []string{"ppr:alpha=0.15"}},
		{name: "a setting of another operator", list: "ppr:t=3",
			err: `ppr has no option "t=3" (there are: reverse, undirected, noloops, alpha=, tolerance=)`},
		{name: "a setting without a number", list: "heat:t", err: `heat has no option "t"`},
		{name: "an empty number", list: "heat:t=", err: `t is "", which is not a number`},
		{name: "words for numbers", list: "heat:t=three", err: `t is "three", which is not a number`},
		{name: "not a number", list: "heat:t=nan", err: "t is NaN: it must be from 0.001 to 100"},
		{name: "infinity", list: "heat:t=inf", err: "t is +Inf: it must be from 0.001 to 100"},
		{name: "alpha out of range", list: "ppr:alpha=1", err: "alpha is 1: it must be from 0.001 to 0.999"},
		{name: "a tolerance below what float32 has", list: "ppr:tolerance=1e-9",
			err: "tolerance is 1e-09: it must be from 1e-07 to 0.1"},
		{name: "a setting given twice", list: "ppr:alpha=0.1:alpha=0.1", err: "alpha is given twice"},
		{name: "a tolerance for what has none", list: "sym:tolerance=0.1", err: `sym has no option "tolerance=0.1"`},
		{name: "a series listed twice in two spellings", list: "ppr,ppr:alpha=0.15",
			err: `"ppr:alpha=0.15" is listed twice`},
		{name: "two graphs", list: "sym:reverse:noloops:undirected", err: "reverse and undirected exclude each other"},
		{name: "one graph twice", list: "sym:reverse:noloops:reverse", err: "reverse is given twice"},
		{name: "an operator listed twice in two spellings", list: "rw:noloops:reverse,rw:reverse:noloops",
			err: `"rw:reverse:noloops" is listed twice`},
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
			got, err := ParseList(c.list, DefaultTolerance)
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

func TestTheToleranceThatIsGivenCountsWhereNoneIsSaid(t *testing.T) {
	operators, err := ParseList("sym,ppr,heat:t=1:tolerance=0.01,heat:tolerance=0.0001", 1e-3)
	if err != nil {
		t.Fatal(err)
	}
	want := []string{"sym", "ppr:alpha=0.15:tolerance=0.001", "heat:t=1:tolerance=0.01", "heat:t=3"}
	for i, o := range operators {
		if o.String() != want[i] {
			t.Errorf("operator %d is %v, want %s", i, o, want[i])
		}
	}
	if _, err := ParseList("sym", 0); err == nil || err.Error() != "tolerance is 0: it must be from 1e-07 to 0.1" {
		t.Errorf("no tolerance: %v", err)
	}
}

func TestTheLongestSpellingCanNameAFolder(t *testing.T) {
	o, err := Parse("ppr:undirected:noloops:alpha=0.0012345678901234567:tolerance=1.2345678901234567e-7")
	if err != nil {
		t.Fatal(err)
	}
	s := o.String()
	if back, err := Parse(s); err != nil || back != o {
		t.Errorf("%s reads back as %v, %v", s, back, err)
	}
	if len(s) > 100 { // as many as format allows
		t.Errorf("%s has %d characters", s, len(s))
	}
}

func TestCanonicalSpellingsReadBackAndDiffer(t *testing.T) {
	seen := map[string]bool{format.FeaturesOperator: true}
	for _, o := range []Operator{
		{Name: Sym}, {Name: RW}, {Name: Col}, {Name: Sym, NoLoops: true}, {Name: RW, Graph: Reverse},
		{Name: Col, Graph: Undirected},
		{Name: PPR, Parameter: 0.15, Tolerance: DefaultTolerance},
		{Name: PPR, Parameter: 0.5, Tolerance: 1e-3, Graph: Undirected},
		{Name: Heat, Parameter: 3, Tolerance: DefaultTolerance, NoLoops: true},
		{Name: Heat, Parameter: 0.5, Tolerance: 1e-6},
	} {
		spelling := o.String()
		if back, err := Parse(spelling); err != nil || back != o {
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
