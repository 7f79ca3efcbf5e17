package trainer

import "testing"

func TestTheNameOfAMatrixSaysWhoseFeaturesCameHowFar(t *testing.T) {
	for name, want := range map[string]origin{
		"sym":                              {3, "", 7},
		"ppr:alpha=0.15:undirected":        {3, "", 7},
		"rw:paper<author":                  {1, "author", 7},
		"sym:paper<cites.paper<writes.me":  {2, "me", 7},
		"rw:paper<author<paper:labels":     {2, "paper:labels", 7},
		"rw:paper<author-paper<x=3<author": {3, "author", 7},
		"rw:paper<cites.paper=2<paper":     {2, "paper", 7},
		"rw:a<b=many<b":                    {0, "b", 7}, // which no store has
		"<=<":                              {0, "", 7},
	} {
		s := Spec{Matrices: []MatrixID{{Operator: name, Hop: 3}}, Features: 7}
		if got := s.origin(0); got != want {
			t.Errorf("%s: %+v, want %+v", name, got, want)
		}
	}
}
