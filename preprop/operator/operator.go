// Package operator has the matrices that features are multiplied by: their spellings, and the coefficients of series.
// It is pure.
package operator

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// Operator is a matrix B made from the adjacency matrix A of a graph, with A[v,u] the weight of the edge from u to v;
// hop r is B^r X (preprop-gnn Eq. 2). Self-loops of weight 1 are added to the nodes that have none, unless NoLoops.
// Operators are comparable; make them with Parse or ParseList.
type Operator struct {
	Name      string
	Graph     string // whose A: AsGiven, Reverse or Undirected
	NoLoops   bool
	Parameter float64 // alpha of PPR, t of Heat
	Tolerance float64 // of PPR and Heat: bounds the error of cutting off the series
	// Metapath is, in a typed graph, the relations that features travel along, as paper<author<paper; A is then that of
	// the first relation, without loops, D of Sym has the degrees of each side, and hop 1 is made of the rest's.
	Metapath string
	Labels   bool // what travels along the metapath is labels of training nodes, without a node's own
}

// Names of operators. D is the diagonal of the weighted in-degrees, with Col of the weighted out-degrees, self-loops
// that are added included.
const (
	Sym  = "sym"  // D^-1/2 (A+I) D^-1/2
	RW   = "rw"   // D^-1 (A+I)
	Col  = "col"  // (A+I) D^-1
	PPR  = "ppr"  // personalized PageRank, a series of Sym
	Heat = "heat" // the heat kernel, a series of Sym
)

// DefaultTolerance is the tolerance of PPR and Heat without tolerance=.
const DefaultTolerance = 1e-4

// The graphs that an operator can be made from.
const (
	AsGiven = ""
	// Reverse has every edge turned round.
	Reverse = "reverse"
	// Undirected has every edge in both directions. Between two nodes, the i-th stored edge of one direction and the
	// i-th of the other become one edge with the larger weight. So an undirected graph stays as it is, and without
	// parallel edges A becomes max(A, A^T).
	Undirected = "undirected"
)

var (
	operatorNames = []string{Sym, RW, Col, PPR, Heat}
	GraphFlags    = []string{Reverse, Undirected}
	parameters    = map[string]setting{
		PPR:  {"alpha", 0.15, 0.001, 0.999},
		Heat: {"t", 3, 0.001, 100},
	}
	tolerance = setting{"tolerance", DefaultTolerance, 1e-7, 0.1}
)

const (
	noLoops = "noloops"
	labels  = "labels"
)

// setting is a number that an operator takes.
type setting struct {
	key               string
	standard, low, up float64
}

// spell writes a number in the shortest way that reads back, without exponent.
func (s setting) spell(x float64) string {
	return fmt.Sprintf(":%s=%s", s.key, strconv.FormatFloat(x, 'f', -1, 64))
}

func (s setting) parse(value string) (float64, error) {
	x, err := strconv.ParseFloat(value, 64)
	if err != nil {
		return 0, fmt.Errorf("%s is %q, which is not a number", s.key, value)
	}
	return x, s.check(x)
}

func (s setting) check(x float64) error {
	if !(x >= s.low && x <= s.up) {
		return fmt.Errorf("%s is %v: it must be from %v to %v", s.key, x, s.low, s.up)
	}
	return nil
}

// Parse reads name[:flag|:key=value]... with options in any order, for example "sym", "rw:noloops:reverse" or
// "ppr:alpha=0.1:undirected". PPR takes alpha (default 0.15) and Heat t (default 3), and both a tolerance
// (DefaultTolerance).
func Parse(spelling string) (Operator, error) {
	return parse(spelling, DefaultTolerance)
}

func parse(spelling string, standardTolerance float64) (Operator, error) {
	fields := strings.Split(spelling, ":")
	o := Operator{Name: fields[0]}
	fail := func(format string, args ...any) (Operator, error) {
		return Operator{}, fmt.Errorf("operator %q: %w", spelling, fmt.Errorf(format, args...))
	}
	if !slices.Contains(operatorNames, o.Name) {
		return Operator{}, fmt.Errorf("there is no operator %q (there are: %s)", o.Name,
			strings.Join(operatorNames, ", "))
	}
	options := append(slices.Clone(GraphFlags), noLoops)
	if len(fields) > 1 && strings.Contains(fields[1], "<") {
		options = []string{labels}
	}
	parameter, isSeries := parameters[o.Name]
	if isSeries {
		options = append(options, parameter.key+"=", tolerance.key+"=")
		o.Parameter, o.Tolerance = parameter.standard, standardTolerance
	}
	given := map[string]bool{}
	for _, option := range fields[1:] {
		key, value, hasValue := strings.Cut(option, "=")
		name := key
		if hasValue {
			name += "="
		}
		var err error
		switch {
		case strings.Contains(option, "<") && (option != fields[1] || o.Name != Sym && o.Name != RW):
			return fail("a metapath goes with sym or rw, after it, and with no option but %s", labels)
		case !slices.Contains(options, name) && !strings.Contains(option, "<"):
			return fail("%s has no option %q (there are: %s)", o.Name, option, strings.Join(options, ", "))
		case given[key]:
			return fail("%s is given twice", key)
		case strings.Contains(option, "<"):
			o.Metapath, o.NoLoops = option, true
		case key == noLoops:
			o.NoLoops = true
		case key == labels:
			o.Labels = true
		case key == parameter.key:
			o.Parameter, err = parameter.parse(value)
		case key == tolerance.key:
			o.Tolerance, err = tolerance.parse(value)
		case o.Graph != AsGiven:
			return fail("%s and %s exclude each other", o.Graph, key)
		default:
			o.Graph = key
		}
		if err != nil {
			return fail("%w", err)
		}
		given[key] = true
	}
	return o, nil
}

// Base is the operator whose products make o: Sym with the same flags for a series, else o itself.
func (o Operator) Base() Operator {
	if _, isSeries := parameters[o.Name]; isSeries {
		return Operator{Name: Sym, Graph: o.Graph, NoLoops: o.NoLoops}
	}
	return o
}

// ScalesSources tells whether the operator multiplies each source by a factor of its own.
func (o Operator) ScalesSources() bool { return o.Base().Name != RW }

// Compare gives operators the order in which a manifest lists them: that of operatorNames, and of their spellings
// where the names are the same. So it does not depend on the order in which operators were asked for, or added.
func Compare(a, b Operator) int {
	return cmp.Or(slices.Index(operatorNames, a.Name)-slices.Index(operatorNames, b.Name),
		strings.Compare(a.String(), b.String()))
}

// ParseList reads a list of operators, separated by commas, in which none occurs twice. standardTolerance is the
// tolerance of series without tolerance=.
func ParseList(list string, standardTolerance float64) ([]Operator, error) {
	if err := tolerance.check(standardTolerance); err != nil {
		return nil, err
	}
	var out []Operator
	for spelling := range strings.SplitSeq(list, ",") {
		o, err := parse(strings.TrimSpace(spelling), standardTolerance)
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

// String is the canonical spelling, which Parse reads back and by which a store knows the operator: name,
// graph, noloops, parameter, and the tolerance where it is not DefaultTolerance. It has lower-case letters, digits,
// '.', ':' and '=' only, so package format can name a folder by it on every file system.
func (o Operator) String() string {
	s := o.Name
	if o.Graph != AsGiven {
		s += ":" + o.Graph
	}
	switch {
	case o.Metapath != "":
		s += ":" + o.Metapath
		if o.Labels {
			s += ":" + labels
		}
	case o.NoLoops:
		s += ":" + noLoops
	}
	if parameter, ok := parameters[o.Name]; ok {
		s += parameter.spell(o.Parameter)
		if o.Tolerance != DefaultTolerance {
			s += tolerance.spell(o.Tolerance)
		}
	}
	return s
}
