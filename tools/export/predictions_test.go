package export

import (
	"testing"

	"github.com/apache/arrow/go/v17/arrow"
)

func TestNamesOfClassesStayDifferentInText(t *testing.T) {
	for _, c := range []struct{ names, want []string }{
		{[]string{"plain", `back\slash`}, []string{"plain", `back\slash`}},
		{[]string{"x\n", `x\n`, `x\\n`}, []string{`x\n`, `x\\n`, `x\\\\n`}},
	} {
		p := &Predictions{names: c.names}
		for _, name := range c.names {
			p.fields = append(p.fields, arrow.Field{Name: "p_" + name})
		}
		p.escapeNames()
		for i, want := range c.want {
			if p.names[i] != want || p.fields[i].Name != "p_"+want {
				t.Errorf("%q is written as %q in column %q, want %q", c.names[i], p.names[i], p.fields[i].Name, want)
			}
		}
	}
}
