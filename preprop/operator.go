package preprop

import (
	"fmt"
	"slices"
	"strings"
)

// Operator is a matrix B made from the adjacency matrix A of a graph, with
// A[v,u] the weight of the edge from u to v; hop r is B^r X (preprop-gnn Eq. 2).
// Self-loops of weight 1 are added to the nodes that have none, unless NoLoops.
// Operators are comparable; make them with ParseOperators.
type Operator struct {
	Name    string // Sym, RW or Col
	Graph   string // whose A: AsGiven, Reverse or Undirected
	NoLoops bool
}

// Names of operators. D is the diagonal of the weighted in-degrees, with Col of
// the weighted out-degrees, self-loops that are added included.
const (
	Sym = "sym" // D^-1/2 (A+I) D^-1/2
	RW  = "rw"  // D^-1 (A+I)
	Col = "col" // (A+I) D^-1
)

// The graphs that an operator can be made from.
const (
	AsGiven = ""
	// Reverse has every edge turned round.
	Reverse = "reverse"
	// Undirected has every edge in both directions. Of several edges between
	// two nodes, the i-th in one direction and the i-th in the other, as stored,
	// become one, with the larger of their weights; so what is undirected stays
	// as it is, and without parallel edges A becomes max(A, A^T).
	Undirected = "undirected"
)

var (
	operatorNames = []string{Sym, RW, Col}
	graphFlags    = []string{Reverse, Undirected}
)

const noLoops = "noloops"

// ParseOperator reads name[:flag]... with flags in any order, for example "sym"
// or "rw:noloops:reverse".
func ParseOperator(spelling string) (Operator, error) {
	fields := strings.Split(spelling, ":")
	o := Operator{Name: fields[0]}
	fail := func(format string, args ...any) (Operator, error) {
		return Operator{}, fmt.Errorf("operator %q: %s", spelling, fmt.Sprintf(format, args...))
	}
	if !slices.Contains(operatorNames, o.Name) {
		return fail("there is no operator %q (there are: %s)", o.Name, strings.Join(operatorNames, ", "))
	}
	for i, option := range fields[1:] {
		switch {
		case slices.Contains(fields[1:1+i], option):
			return fail("%s is given twice", option)
		case option == noLoops:
			o.NoLoops = true
		case slices.Contains(graphFlags, option) && o.Graph != AsGiven:
			return fail("%s and %s exclude each other", o.Graph, option)
		case slices.Contains(graphFlags, option):
			o.Graph = option
		default:
			return fail("%s has no option %q (there are: %s)", o.Name, option, strings.Join(append(graphFlags, noLoops), ", "))
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
	s := o.Name
	if o.Graph != AsGiven {
		s += ":" + o.Graph
	}
	if o.NoLoops {
		s += ":" + noLoops
	}
	return s
}
