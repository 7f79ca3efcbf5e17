package preprop

import (
	"fmt"
	"slices"
	"strings"
)

// Operator is a matrix B made from the adjacency matrix A of a graph, with
// A[v,u] the weight of the edge from u to v; hop r is B^r X (preprop-gnn Eq. 2).
// Self-loops of weight 1 are added to the nodes that have none, unless NoLoops.
// Operators are comparable; make them with ParseOperator.
type Operator struct {
	Name    string // Sym or RW
	NoLoops bool
}

// Names of operators. D is the diagonal of the weighted in-degrees, self-loops
// that are added included.
const (
	Sym = "sym" // D^-1/2 (A+I) D^-1/2
	RW  = "rw"  // D^-1 (A+I)
)

var (
	operatorNames = []string{Sym, RW}
	operatorFlags = []string{"noloops"}
)

// ParseOperator reads name[:flag]..., for example "sym" or "rw:noloops".
func ParseOperator(spelling string) (Operator, error) {
	fields := strings.Split(spelling, ":")
	o := Operator{Name: fields[0]}
	if !slices.Contains(operatorNames, o.Name) {
		return Operator{}, fmt.Errorf("operator %q: there is no operator %q (there are: %s)",
			spelling, o.Name, strings.Join(operatorNames, ", "))
	}
	for _, option := range fields[1:] {
		switch {
		case option == "noloops" && o.NoLoops:
			return Operator{}, fmt.Errorf("operator %q: %s is given twice", spelling, option)
		case option == "noloops":
			o.NoLoops = true
		default:
			return Operator{}, fmt.Errorf("operator %q: %s has no option %q (there are: %s)",
				spelling, o.Name, option, strings.Join(operatorFlags, ", "))
		}
	}
	return o, nil
}

// ParseOperators reads a list of operators, separated by commas, in which none
// occurs twice.
func ParseOperators(list string) ([]Operator, error) {
	var out []Operator
	for spelling := range strings.SplitSeq(list, ",") {
		o, err := ParseOperator(strings.TrimSpace(spelling))
		if err != nil {
			return nil, err
		}
		if slices.Contains(out, o) {
			return nil, fmt.Errorf("operator %q is listed twice", o)
		}
		out = append(out, o)
	}
	return out, nil
}

// String is the canonical spelling, which ParseOperator reads back and by which a
// store knows the operator. It has lower-case letters, digits, '.', ':' and
// '=' only, so that the folder format makes of it is good on every file system.
func (o Operator) String() string {
	if o.NoLoops {
		return o.Name + ":noloops"
	}
	return o.Name
}
