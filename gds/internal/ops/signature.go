package ops

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/hopfeed/hopfeed/gds"
)

// graph is the tensors of a gds.Graph of n nodes and m edges.
const graph = " graph.Offsets[n+1]:int64@mapped graph.Sources[m]:uint32@mapped graph.Weights[m]@mapped? " +
	"graph.RowFactors[n]@mapped? graph.ColumnFactors[n]@mapped? graph.Loops[n]:uint32@mapped? graph.Slots[n]:uint32? " +
	"graph.CachedOffsets[k+1]:int64? graph.CachedSources[c]:uint32? graph.CachedWeights[c]?"

// The signature of an operation is its name, and name, shape, type and memory of each tensor.
//
//   - Shapes: [r,c] is a matrix, [n] a vector. A letter is the same number everywhere in a signature; [2c] and [n+1]
//     are computed from it.
//   - Types: float32 if none is given; "number" is any float type, "index" uint32 or int64, "any" any, and all
//     tensors that are "same" have one type, whichever.
//   - Memory: the device's if none is given. @mapped may also be pinned memory, on a device that reads it by itself;
//     @all may be of any device of the kind, or pinned.
//   - A tensor with ? may be the zero Tensor.
//
// Type and memory of a tensor without elements do not matter. Check tests what else must hold by rule.
var (
	Copy                 = newOp("Copy dst[r,c]:same@all src[r,c]:same@all")
	Convert              = newOp("Convert dst[r,c]:number src[r,c]:number")
	Gather               = newOp("Gather dst[r,c]:same src[s,c]:same@mapped index[r]:index")
	Scatter              = newOp("Scatter dst[r,c]:same src[s,c]:same index[s]:uint32")
	Fill                 = newOp("Fill dst[r,c]:any")
	Gemm                 = newOp("Gemm a[i,j] b[k,l] c[m,n]")
	Transpose            = newOp("Transpose src[r,c] dst[c,r]")
	AddRow               = newOp("AddRow dst[r,c] row[c]")
	MulRow               = newOp("MulRow dst[r,c] row[c]")
	SumRows              = newOp("SumRows dst[c] src[r,c]")
	Axpy                 = newOp("Axpy x[r,c] y[r,c]")
	ReLU                 = newOp("ReLU dst[r,c] src[r,c]")
	ReLUGrad             = newOp("ReLUGrad dst[r,c] grad[r,c] out[r,c]")
	PReLU                = newOp("PReLU dst[r,c] src[r,c] slope[1]")
	PReLUGrad            = newOp("PReLUGrad dst[r,c] gradSlope[1] grad[r,c] src[r,c] slope[1]")
	ELU                  = newOp("ELU dst[r,c] src[r,c]")
	ELUGrad              = newOp("ELUGrad dst[r,c] grad[r,c] out[r,c]")
	Mul                  = newOp("Mul dst[r,c] a[r,c] b[r,c]")
	Dropout              = newOp("Dropout dst[r,c] src[r,c]")
	ReLUDropout          = newOp("ReLUDropout dst[r,c] src[r,c]")
	SumSquares           = newOp("SumSquares dst[c] src[r,c] mean[c]")
	NormalizeColumns     = newOp("NormalizeColumns dst[r,c] src[r,c] mean[c] variance[c] gain[c] shift[c]")
	NormalizeColumnsSums = newOp("NormalizeColumnsSums sums[2c] grad[r,c] src[r,c] mean[c] variance[c]")
	NormalizeColumnsGrad = newOp("NormalizeColumnsGrad dst[r,c] grad[r,c] src[r,c] mean[c] variance[c] " +
		"gain[c] sums[2c]")
	NormalizeRows     = newOp("NormalizeRows dst[r,c] stats[r,2] src[r,c] gain[c] shift[c]")
	NormalizeRowsGrad = newOp("NormalizeRowsGrad dst[r,c] gradGain[c] gradShift[c] grad[r,c] src[r,c] " +
		"stats[r,2] gain[c]")
	Attention       = newOp("Attention dst[n,c] weights[n,w] qkv[n,3c]")
	AttentionGrad   = newOp("AttentionGrad dst[n,3c] grad[n,c] weights[n,w] qkv[n,3c]")
	SoftmaxRows     = newOp("SoftmaxRows dst[r,c] src[r,c]")
	SoftmaxRowsGrad = newOp("SoftmaxRowsGrad dst[r,c] grad[r,c] out[r,c]")
	WeighTokens     = newOp("WeighTokens dst[n,w] weights[n,t] tokens[n,c]")
	WeighTokensGrad = newOp("WeighTokensGrad gradWeights[n,t] gradTokens[n,c] grad[n,w] weights[n,t] tokens[n,c]")
	SumEdges        = newOp("SumEdges dst[d,w] src[s,w] offsets[d+1]:uint32 indices[e]:uint32 weights[e]")
	SumEdgesGrad    = newOp("SumEdgesGrad dst[s,w] grad[d,w] offsets[d+1]:uint32 indices[e]:uint32 weights[e]")
	AttendEdges     = newOp("AttendEdges dst[d,w] stats[d,2h] values[s,w] scores[s,2h] " +
		"offsets[d+1]:uint32 indices[e]:uint32")
	AttendEdgesGrad = newOp("AttendEdgesGrad gradValues[s,w] gradScores[s,2h] grad[d,w] stats[d,2h] " +
		"values[s,w] scores[s,2h] offsets[d+1]:uint32 indices[e]:uint32")
	Propagate = newOp("Propagate dst[k,f]:number src[n,f]:number starts[k]:int64 ends[k]:int64 nodes[e]:uint32 " +
		"weights[e]? nodeFactors[n]? rowFactors[k]? blend[k,f]:number? notFinite[1]:int64?")
	Checksum     = newOp("Checksum dst[1]:uint32 src[r,c]:any")
	CountSampled = newOp("CountSampled offsets[d+1]:uint32 nodes[d]:uint32" + graph + " total[1]:int64 read[1]:int64")
	SampleEdges  = newOp("SampleEdges offsets[d+1]:uint32 nodes[d]:uint32" + graph + " sources[e]:uint32 weights[e]")
	Relabel      = newOp("Relabel ids[e]:uint32 nodes[n]:uint32 count[1]:uint32 items[e]:uint32")
	GatherCached = newOp("GatherCached dst[r,c]:same src[s,c]:same@mapped index[r]:uint32 cached[k,c]:same? " +
		"slots[s]:uint32 hits[1]:int64")
	SoftmaxCrossEntropy = newOp("SoftmaxCrossEntropy loss[1] grad[n,c]? logits[n,c] rows[n]? " +
		"labels[n]:int32 weights[c]?")
	SigmoidCrossEntropy = newOp("SigmoidCrossEntropy loss[1] grad[n,c]? logits[n,c] rows[n]? labels[n,c]:int8")
	SquaredError        = newOp("SquaredError loss[1] grad[n,c]? out[n,c] rows[n]? labels[n,c] units[c]")
	AbsoluteError       = newOp("AbsoluteError loss[1] grad[n,c]? out[n,c] rows[n]? labels[n,c] units[c]")
	CountCorrect        = newOp("CountCorrect count[2]:int64 logits[n,c] labels[n]:int32")
	Adam                = newOp("Adam param[r,c] grad[r,c] m[r,c] v[r,c]")
	ClipNorm            = newOp("ClipNorm x[n]")
)

// rule returns an error where arguments break a rule that the signature does not say.
func (c *Call) rule() error {
	t := c.Tensors[:c.Count()]
	switch c.Op {
	case Fill:
		if math.Float32bits(c.Alpha) != 0 && t[0].Rows*t[0].Cols > 0 && t[0].DType != gds.Float32 {
			return fmt.Errorf("%v is written as float32 alone, not as %v", c.Alpha, t[0].DType)
		}
	case Gemm:
		if m, inner, innerB, n := c.Product(); inner != innerB || m != t[2].Rows || n != t[2].Cols {
			return fmt.Errorf("op(a) is [%d,%d] and op(b) [%d,%d]: want c [%d,%d]", m, inner, innerB, n, m, n)
		}
	case Dropout, ReLUDropout:
		if p := c.Alpha; !(p >= 0 && p < 1) {
			return fmt.Errorf("dropout probability %v: want 0 <= p < 1", p)
		}
	case Attention, AttentionGrad:
		cols, weights := t[len(t)-3].Cols, t[len(t)-2].Cols
		if c.Tokens < 1 || c.Heads < 1 || cols%c.Tokens != 0 || cols/c.Tokens%c.Heads != 0 {
			return fmt.Errorf("%d columns are not %d tokens for %d heads", cols, c.Tokens, c.Heads)
		}
		if want := c.Heads * c.Tokens * c.Tokens; weights != want {
			return fmt.Errorf("weights have %d columns: want %d", weights, want)
		}
	case WeighTokens, WeighTokensGrad:
		row, weights, tokens := t[len(t)-3].Cols, t[len(t)-2].Cols, t[len(t)-1].Cols
		if weights*row != tokens {
			return fmt.Errorf("tokens have %d columns: want %d tokens of %d", tokens, weights, row)
		}
	case AttendEdges, AttendEdgesGrad:
		destinations, values, heads := t[len(t)-6].Rows, t[len(t)-4], t[len(t)-3].Cols/2
		if heads < 1 || values.Cols%heads != 0 {
			return fmt.Errorf("%d columns of values for %d heads", values.Cols, heads)
		}
		if destinations > values.Rows {
			return fmt.Errorf("%d destinations are more than the %d sources", destinations, values.Rows)
		}
	case Propagate:
		return errors.Join(checkDense(t[0]), checkDense(t[1]), checkDense(t[8]))
	case Checksum:
		return checkDense(t[1])
	case CountSampled, SampleEdges:
		if t[GraphSlots].Cols > 0 && (t[CachedOffsets].Cols == 0 || t[CachedSources].Cols > 0 &&
			(t[CachedWeights].Cols > 0) != (t[GraphWeights].Cols > 0)) {
			return errors.New("graph.Slots need CachedOffsets, and CachedWeights where the graph has weights")
		}
		if c.Op == SampleEdges && t[Nodes].Cols == 0 && t[Sampled].Cols > 0 {
			return fmt.Errorf("%d edges of no nodes", t[Sampled].Cols)
		}
	case Relabel:
		room, items := t[1].Cols, t[3].Cols
		if c.Known < 0 || c.Known > math.MaxUint32-items || room < c.Known+items {
			return fmt.Errorf("there is room for %d nodes: want %d known and %d items", room, c.Known, items)
		}
	case Adam:
		if c.Adam.Step < 1 {
			return fmt.Errorf("step %d: the first is 1", c.Adam.Step)
		}
	}
	return nil
}

func checkDense(t gds.Tensor) error {
	if !t.Dense() {
		return fmt.Errorf("the rows of %v do not touch", t)
	}
	return nil
}

// Product is the shapes of op(a), [m,inner], and op(b), [innerB,n], of Gemm.
func (c *Call) Product() (m, inner, innerB, n int) {
	a, b := c.Tensors[0], c.Tensors[1]
	m, inner, innerB, n = a.Rows, a.Cols, b.Rows, b.Cols
	if c.TransA {
		m, inner = inner, m
	}
	if c.TransB {
		innerB, n = n, innerB
	}
	return m, inner, innerB, n
}

// Op is an operation as its signature declares it.
type Op struct {
	name string
	args []argument
}

type argument struct {
	text, name string
	shape      [2]size // of a vector the second alone
	vector     bool
	types      []gds.DType // nil: any
	same       bool        // as others
	memory     Memory
	optional   bool
}

var typeNames = map[string][]gds.DType{
	"": {gds.Float32}, "int32": {gds.Int32}, "uint32": {gds.Uint32}, "int64": {gds.Int64}, "int8": {gds.Int8},
	"number": {gds.Float32, gds.Float16, gds.BFloat16}, "index": {gds.Uint32, gds.Int64}, "any": nil, "same": nil,
}

// size is times * letter + plus; times 0: a number.
type size struct {
	letter      byte
	times, plus int
}

// Memory is where the elements of a tensor may be.
type Memory int

const (
	OwnMemory    Memory = iota // of the device
	MappedMemory               // or pinned, if the device reads that by itself
	AnyMemory                  // of any device of the kind, or pinned
)

func newOp(signature string) *Op {
	words := strings.Fields(signature)
	o := &Op{name: words[0]}
	for _, w := range words[1:] {
		o.args = append(o.args, parseArgument(w))
	}
	return o
}

func parseArgument(text string) argument {
	a := argument{text: text}
	text, a.optional = strings.CutSuffix(text, "?")
	text, memory, _ := strings.Cut(text, "@")
	a.memory = map[string]Memory{"mapped": MappedMemory, "all": AnyMemory}[memory]
	text, kind, _ := strings.Cut(text, ":")
	types, ok := typeNames[kind]
	if !ok {
		panic("ops: the signature " + a.text + " names no type")
	}
	a.types, a.same = types, kind == "same"
	var shape string
	a.name, shape, _ = strings.Cut(strings.TrimSuffix(text, "]"), "[")
	rows, cols, matrix := strings.Cut(shape, ",")
	if !matrix {
		rows, cols = "1", rows
	}
	a.vector, a.shape = !matrix, [2]size{parseSize(rows), parseSize(cols)}
	return a
}

func parseSize(text string) (s size) {
	at := strings.IndexFunc(text, func(r rune) bool { return r >= 'a' && r <= 'z' })
	if at < 0 {
		s.plus, _ = strconv.Atoi(text)
		return s
	}
	s.letter, s.times = text[at]-'a', 1
	if at > 0 {
		s.times, _ = strconv.Atoi(text[:at])
	}
	s.plus, _ = strconv.Atoi(strings.TrimPrefix(text[at+1:], "+"))
	return s
}

// sizes are 1 + the numbers that letters mean; 0: not yet known.
type sizes [26]int

// is tells whether n is the size. The first that has a letter says what it means.
func (s size) is(n int, known *sizes) bool {
	if s.times == 0 {
		return n == s.plus
	}
	if known[s.letter] == 0 {
		n -= s.plus
		known[s.letter] = 1 + n/s.times
		return n >= 0 && n%s.times == 0
	}
	return n == (known[s.letter]-1)*s.times+s.plus
}

// want is the argument with the numbers that its letters mean.
func (a *argument) want(known *sizes) string {
	text := a.text
	for _, s := range a.shape {
		if s.times > 0 && known[s.letter] > 0 {
			text += fmt.Sprintf(", %c = %d", 'a'+s.letter, known[s.letter]-1)
		}
	}
	return text
}

func (o *Op) String() string { return o.name }

// Count is how many tensors the operation has.
func (o *Op) Count() int { return len(o.args) }

// Memory is where tensor i may be.
func (o *Op) Memory(i int) Memory { return o.args[i].memory }

// Check compares the arguments with the signature of the operation, and returns an error where a shape or an element
// type differs, a view does not lie inside its buffer, or a number is out of range. It does not look at memory.
func (c *Call) Check() error {
	var known sizes
	var same gds.DType
	for i := range c.args {
		a, t := &c.args[i], &c.Tensors[i]
		if a.optional && *t == (gds.Tensor{}) {
			continue
		}
		if err := t.Check(); err != nil {
			return err
		}
		// A vector without elements may have any number of rows.
		if !a.shape[1].is(t.Cols, &known) || !(a.vector && t.Cols == 0) && !a.shape[0].is(t.Rows, &known) {
			return fmt.Errorf("%s is %v: want %s", a.name, t, a.want(&known))
		}
		if t.Rows == 0 || t.Cols == 0 {
			continue
		}
		if a.same && same == 0 {
			same = t.DType
		}
		if a.same && t.DType != same || a.types != nil && !slices.Contains(a.types, t.DType) {
			return fmt.Errorf("%s is %v: want %s", a.name, t, a.want(&known))
		}
	}
	return c.rule()
}
