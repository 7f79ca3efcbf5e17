package ingest

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"

	"github.com/hopfeed/hopfeed/format"
	"github.com/spf13/pflag"
)

// LabelsAs says what labels are taken for.
type LabelsAs string

const (
	LabelsByContent LabelsAs = "auto"    // the zero value is the same
	LabelsAsClasses LabelsAs = "classes" // one a node: whole numbers, or names
	LabelsAsMulti   LabelsAs = "multi"   // several a node, each 0 or 1
	LabelsAsValues  LabelsAs = "values"  // numbers to predict (regression)
)

func (as LabelsAs) check() error {
	if !slices.Contains([]LabelsAs{"", LabelsByContent, LabelsAsClasses, LabelsAsMulti, LabelsAsValues}, as) {
		return badOptions("--labels-as %s: want auto, classes, multi or values", as)
	}
	return nil
}

func (as LabelsAs) auto() bool { return as == "" || as == LabelsByContent }

func (as *LabelsAs) declare(flags *pflag.FlagSet) {
	flags.StringVar((*string)(as), "labels-as", string(LabelsByContent),
		"what labels are: classes, multi (several a node, each 0 or 1), values (numbers to predict), or auto (by "+
			"their content)")
}

type labelKind uint8

const (
	classLabels labelKind = iota // int32
	nameLabels                   // int32, the numbers of names
	multiLabels                  // int8, several a node
	valueLabels                  // float32
)

// labelSink takes the labels of nodes, in any order, into a row table.
type labelSink struct {
	kind      labelKind
	as        LabelsAs
	columns   int64
	rows      *format.RowTable
	names     map[string]int32 // in the order in which they are first seen
	ordered   bool             // names keep this order
	fractions bool             // of values: some is no whole number
	numbers   bool             // of names: some is a number
}

// labelError is the error of a label that would be good as one of another kind.
type labelError struct {
	text string
	word bool // it is no number
}

func (e *labelError) Error() string { return e.text }

type labelResult struct {
	note  string
	names []string // of classes
}

// readLabels reads columns of labels. Their kind is known only when all are read, so pass, which hands all of them
// over, is called once or twice.
func readLabels(as LabelsAs, path string, columns int64, rows *format.RowTable,
	pass func(*labelSink) error) (labelResult, error) {
	read := func(kind labelKind) (*labelSink, error) {
		s := &labelSink{kind: kind, as: as, columns: columns, rows: rows}
		s.makeRoom()
		return s, pass(s)
	}
	kind := classLabels
	switch {
	case as == LabelsAsValues:
		kind = valueLabels
	case columns > 1 && as == LabelsAsClasses:
		return labelResult{}, badOptions("--labels-as classes: %s has %d labels a node (want one)", path, columns)
	case columns > 1:
		kind = multiLabels
	case as == LabelsAsMulti:
		return labelResult{}, badOptions("--labels-as multi: %s has one label a node (want several)", path)
	}
	s, err := read(kind)
	var other *labelError
	switch {
	case !errors.As(err, &other):
	case other.word && columns == 1 && as != LabelsAsValues:
		first := err
		if s, err = read(nameLabels); err == nil && s.numbers && as.auto() {
			return labelResult{}, fmt.Errorf("%w, but other labels are: --labels-as classes reads all of them as "+
				"names of classes", first)
		}
	case !other.word && as.auto():
		first := err
		if s, err = read(valueLabels); err == nil && !s.fractions {
			err = first
		}
	}
	if err != nil {
		return labelResult{}, err
	}
	return s.result(path), nil
}

func (s *labelSink) makeRoom() {
	t, n := s.rows, s.rows.Rows*s.columns
	t.Labels, t.MultiLabels, t.LabelValues, t.LabelColumns = nil, nil, nil, 0
	switch s.kind {
	case classLabels, nameLabels:
		t.Labels = slices.Repeat([]int32{-1}, int(n))
		s.names = map[string]int32{}
	case multiLabels:
		t.MultiLabels, t.LabelColumns = slices.Repeat([]int8{-1}, int(n)), int(s.columns)
	case valueLabels:
		t.LabelValues, t.LabelColumns = slices.Repeat([]float32{float32(math.NaN())}, int(n)), int(s.columns)
	}
}

// number takes a label of a node. NaN is none, and -1 neither, but for values. The error names no file.
func (s *labelSink) number(node, column int64, v float64) error {
	at := node*s.columns + column
	most := 1.0
	switch {
	case v != v:
		return nil
	case s.kind == valueLabels:
		if math.Abs(v) > math.MaxFloat32 {
			return fmt.Errorf("label %v of node %d is not a finite float32", v, node)
		}
		s.fractions = s.fractions || v != math.Trunc(v)
		s.rows.LabelValues[at] = float32(v)
		return nil
	case s.kind == classLabels:
		most = MaxClasses - 1
	}
	if v < -1 || v > most || v != math.Trunc(v) {
		notation := byte('f')
		if math.Abs(v) >= 1<<63 {
			notation = 'g'
		}
		hint := ""
		if s.as.auto() {
			hint = "; --labels-as values takes any numbers"
		}
		return &labelError{text: fmt.Sprintf("label %s of node %d (want -1 to %d%s)",
			strconv.FormatFloat(v, notation, -1, 64), node, int64(most), hint)}
	}
	if s.kind == classLabels {
		s.rows.Labels[at] = int32(v)
	} else {
		s.rows.MultiLabels[at] = int8(v)
	}
	return nil
}

// text takes a label that is text; an empty one is none.
func (s *labelSink) text(node, column int64, b []byte) error {
	if len(b) == 0 {
		return nil
	}
	v, err := strconv.ParseFloat(string(b), 64)
	isNumber := err == nil || errors.Is(err, strconv.ErrRange)
	switch {
	case isNumber && s.kind != nameLabels:
		return s.number(node, column, v)
	case isNumber && v != v:
		return nil
	case s.kind != nameLabels:
		return &labelError{fmt.Sprintf("label %.100q is no number", b), true}
	}
	s.numbers = s.numbers || isNumber
	class, ok := s.names[string(b)]
	if !ok {
		if err := format.CheckClassName(string(b)); err != nil {
			return err
		}
		if class = int32(len(s.names)); class == format.MaxClassNames {
			return fmt.Errorf("label %.100q: more than %d different names of classes: if this is not the label, "+
				"name its column with --label-column", b, format.MaxClassNames)
		}
		s.names[string(b)] = class
	}
	s.rows.Labels[node] = class
	return nil
}

// result says what the labels are, and numbers names in the order of their bytes.
func (s *labelSink) result(path string) labelResult {
	switch s.kind {
	case classLabels, multiLabels: // which the summary says
		return labelResult{}
	case valueLabels:
		return labelResult{note: fmt.Sprintf("%s: the labels are values to predict (regression), %d a node "+
			"(--labels-as says otherwise)", path, s.columns)}
	}
	names := slices.Sorted(maps.Keys(s.names))
	if s.ordered {
		slices.SortFunc(names, func(a, b string) int { return cmp.Compare(s.names[a], s.names[b]) })
		return labelResult{names: names[:slices.Max(append([]int32{-1}, s.rows.Labels...))+1]}
	}
	number := make([]int32, len(names))
	for i, name := range names {
		number[s.names[name]] = int32(i)
	}
	for v, class := range s.rows.Labels {
		if class >= 0 {
			s.rows.Labels[v] = number[class]
		}
	}
	return labelResult{fmt.Sprintf("%s: the labels are %d classes by name, numbered in the order of the names: %s",
		path, len(names), listed(names)), names}
}
