package product

import (
	"context"
	"fmt"
	"slices"

	"github.com/hopfeed/hopfeed/format"
	"github.com/hopfeed/hopfeed/internal/dtype"
	"github.com/hopfeed/hopfeed/internal/parallel"
	"github.com/hopfeed/hopfeed/internal/units"
	"github.com/hopfeed/hopfeed/preprop/plan"
)

// Labels are the labels of the training nodes of a split as zeros and ones, Y [n, Columns], which hops have as their
// last columns, from First on. Hops up to Hops have (B^r - diag(B^r)) Y there: no row depends on the node's own label.
// Other hops have zeros.
type Labels struct {
	First, Columns, Hops int
	Several              bool // a node may have several labels

	classes []int32  // of each node; -1: it has none, or is no training node
	several []uint64 // of labels of several columns, in their place: bit v*Columns + column
}

// Load reads the labels of a split of a graph.
func (l *Labels) Load(ctx context.Context, graph *format.Dir, split int) error {
	m := &graph.Manifest
	l.classes, l.several = nil, nil
	if m.Labels > 1 {
		l.several = make([]uint64, (m.Nodes*int64(l.Columns)+63)/64)
	} else {
		l.classes = slices.Repeat([]int32{-1}, int(m.Nodes))
	}
	return graph.VisitRows(ctx, func(t *format.RowTable, first int64) {
		for i := range t.Rows {
			if t.Splits[i*int64(t.NumSplits)+int64(split)] != format.SplitTrain {
				continue
			}
			if l.classes != nil {
				l.classes[first+i] = t.Labels[i]
				continue
			}
			for c, one := range t.MultiLabels[i*int64(t.LabelColumns):][:l.Columns] {
				if bit := (first+i)*int64(l.Columns) + int64(c); one > 0 {
					l.several[bit/64] |= 1 << (bit % 64)
				}
			}
		}
	})
}

// Bytes bounds the memory of the labels of a graph's nodes and of the work of Own and Compute, for a store with this
// many training rows and matrices of hops.
func (l *Labels) Bytes(nodes, rows int64, matrices, threads int) int64 {
	own := rows
	if l.Several {
		own = rows * int64(l.Columns)
	}
	const element = 16 + 4 // its row and column, in a list that grows
	memo := int64(0)
	if l.Hops > 2 { // elements of hops but the last two
		memo = 8 * nodes * int64(l.Hops-2) * int64(threads)
	}
	return l.LoadedBytes(nodes) + own*int64(element+4*matrices) + 16*nodes + memo
}

// LoadedBytes bounds the memory of the labels of a graph's nodes.
func (l *Labels) LoadedBytes(nodes int64) int64 {
	if l.Several {
		return nodes * int64(l.Columns) / 8
	}
	return 4 * nodes
}

// Has tells whether Y[v, column] is 1.
func (l *Labels) Has(v uint32, column int) bool {
	if l.classes != nil {
		return l.classes[v] == int32(column)
	}
	bit := int64(v)*int64(l.Columns) + int64(column)
	return l.several[bit/64]>>(bit%64)&1 != 0
}

// IsTraining tells whether v is a training node with a class.
func (l *Labels) IsTraining(v int64) bool { return l.classes[v] >= 0 }

// Ones calls do with the columns in which row v of Y has a 1.
func (l *Labels) Ones(v int64, do func(column int)) {
	if l.classes != nil {
		if class := l.classes[v]; class >= 0 {
			do(int(class))
		}
		return
	}
	for c := range l.Columns {
		if l.Has(uint32(v), c) {
			do(c)
		}
	}
}

// Put writes columns [first, first + len(dst)) of row v of Y.
func (l *Labels) Put(dst []float32, v int64, first int) {
	clear(dst)
	l.Ones(v, func(column int) {
		if c := column - first; c >= 0 && c < len(dst) {
			dst[c] = 1
		}
	})
}

// OwnLabels are the elements of the rows of a store at which Y has a 1: those that a node's own label would change.
type OwnLabels struct {
	Rows    []int64 // ascending
	columns []int32
	values  map[format.MatrixID][]byte // what a matrix has there without that label, in its type
	size    int
}

// Own lists the elements of rows of these nodes.
func (l *Labels) Own(nodes []uint32, t format.DType) *OwnLabels {
	o := &OwnLabels{values: map[format.MatrixID][]byte{}, size: t.Size()}
	for row, v := range nodes {
		l.Ones(int64(v), func(c int) {
			o.Rows, o.columns = append(o.Rows, int64(row)), append(o.columns, int32(c))
		})
	}
	return o
}

// Clean changes rows, which has columns s of rows [first, end) of a store, to what they are without the nodes' own
// labels.
func (l *Labels) Clean(o *OwnLabels, id format.MatrixID, rows []byte, s ColumnRange, first, end int64) {
	if s.End <= l.First {
		return
	}
	width, labels := s.Width()*o.size, max(l.First-s.First, 0)*o.size
	values := o.values[id]
	if values == nil { // hop 0, or one beyond the last
		for ; len(rows) > 0; rows = rows[width:] {
			clear(rows[labels:width])
		}
		return
	}
	at, _ := slices.BinarySearch(o.Rows, first)
	for ; at < len(o.Rows) && o.Rows[at] < end; at++ {
		if column := l.First + int(o.columns[at]); s.First <= column && column < s.End {
			place := int(o.Rows[at]-first)*width + (column-s.First)*o.size
			copy(rows[place:place+o.size], values[at*o.size:])
		}
	}
}

// mostOwnTerms is how many terms Compute may add up: some minutes on two cores.
const mostOwnTerms = 1 << 37

// Level is a product of a sequence, with the topology of its operator.
type Level struct {
	*Propagator
	CSC *format.CSC
}

// Compute computes the elements of o in the hops that products make one after another. Hop r is matrix ids[r-1] of a
// type, and is not kept if that has no name. An element is in row v of B_r ... B_1 Y, with 0 in the place of
// Y[v, column], by the arithmetic of Hop. So diag(B_r ... B_1) is never added; to subtract it would leave a rounding
// error that tells the label. That takes the sums of all nodes from which v can be reached in r-1 steps.
// ErrTooManyTerms is returned if these would be too many.
func (l *Labels) Compute(ctx context.Context, o *OwnLabels, products []Level, nodes []uint32, t format.DType,
	ids []format.MatrixID, threads int) error {
	if err := checkOwnTerms(ctx, products, nodes, o.Rows, ids, threads); err != nil {
		return err
	}
	for _, id := range ids {
		if id != (format.MatrixID{}) {
			o.values[id] = make([]byte, len(o.Rows)*o.size)
		}
	}
	walks := make(chan *ownWalk, threads) // those that no goroutine uses
	for range threads {
		w := &ownWalk{labels: l, t: t, known: make([][]ownSum, max(0, len(products)-2))}
		for i, p := range products {
			w.levels = append(w.levels, walkLevel{p.Propagator, p.CSC.Range(0, p.CSC.Nodes())})
			if i < len(w.known) {
				w.known[i] = make([]ownSum, p.CSC.Nodes())
			}
		}
		walks <- w
	}
	return parallel.For(ctx, threads, int64(len(o.Rows)), 64, func(lo, hi int64) error {
		w := <-walks
		defer func() { walks <- w }()
		for i := lo; i < hi; i++ {
			w.v, w.column, w.element = nodes[o.Rows[i]], int(o.columns[i]), uint32(i)+1
			for hop, id := range ids {
				if values := o.values[id]; values != nil {
					dtype.Encode(values[int(i)*o.size:][:o.size], []float32{w.value(w.v, hop+1)}, t)
				}
			}
		}
		return nil
	})
}

// ownWalk computes elements of one column of hops without the label of node v.
type ownWalk struct {
	levels  []walkLevel // by hop, from 1
	labels  *Labels
	t       format.DType
	v       uint32
	column  int
	element uint32     // number of v and column, from 1
	known   [][]ownSum // of hops from 1 on, by node
}

// walkLevel is a product, and the edges that it adds up along.
type walkLevel struct {
	p *Propagator
	b format.NodeRange
}

// ownSum is an element of a hop, as it is for the walk of this number.
type ownSum struct {
	walk uint32
	x    float32
}

// value is the element of node u in a hop from 1 on.
func (w *ownWalk) value(u uint32, hop int) float32 {
	if hop <= len(w.known) {
		if of := &w.known[hop-1][u]; of.walk != w.element {
			of.walk, of.x = w.element, w.add(u, hop)
		}
		return w.known[hop-1][u].x
	}
	return w.add(u, hop)
}

// add adds up the element of node u, run after run, each with a self-loop in its place.
func (w *ownWalk) add(u uint32, hop int) (total float32) {
	level := &w.levels[hop-1]
	t := level.p.Terms(&level.b, int64(u))
	for first, n := 0, t.Len(); first < n; first += plan.RunTerms {
		sum := float32(0)
		end := min(first+plan.RunTerms, n)
		switch {
		case t.Loop < 0 || t.Loop >= end:
			sum = w.addTerms(sum, &t, first, end, hop)
		case t.Loop < first: // the neighbours after it are one place on
			sum = w.addTerms(sum, &t, first-1, end-1, hop)
		default:
			sum = w.addTerms(sum, &t, first, t.Loop, hop)
			sum = w.addTerm(sum, u, 1, hop)
			sum = w.addTerms(sum, &t, t.Loop, end-1, hop)
		}
		total += sum
	}
	if level.p.S != nil {
		total = float32(total * level.p.S[u])
	}
	return rounded(total, w.t)
}

// addTerms adds the terms of neighbours [first, end) of a node to sum.
func (w *ownWalk) addTerms(sum float32, t *Terms, first, end, hop int) float32 {
	classes, class := w.labels.classes, int32(w.column)
	for i, u := range t.Neighbors[first:end] {
		if hop == 1 && classes != nil && classes[u] != class {
			continue
		}
		by := float32(1)
		if t.Weights != nil {
			by = t.Weights[first+i]
		}
		sum = w.addTerm(sum, u, by, hop)
	}
	return sum
}

// addTerm adds a term to sum: node u with a weight.
func (w *ownWalk) addTerm(sum float32, u uint32, by float32, hop int) float32 {
	x := float32(0)
	switch {
	case hop > 1:
		x = w.value(u, hop-1)
	case u != w.v && w.labels.Has(u, w.column):
		x = 1
	}
	if x == 0 { // it would add 0
		return sum
	}
	if factors := w.levels[hop-1].p.T; factors != nil {
		by = float32(by * factors[u])
	}
	return sum + float32(by*x)
}

// rounded is x as a type stores it.
func rounded(x float32, t format.DType) float32 {
	if t == format.Float32 {
		return x
	}
	var stored [4]byte
	values := []float32{x}
	dtype.Encode(stored[:t.Size()], values, t)
	dtype.Decode(values, stored[:t.Size()], t)
	return values[0]
}

// ErrTooManyTerms is returned where leaving out own labels would take too long.
type ErrTooManyTerms struct {
	Hops  int
	Terms float64
}

func (e *ErrTooManyTerms) Error() string {
	return fmt.Sprintf("to leave the own label of each training node out of %s takes about %.2g additions, and at "+
		"most %.2g are done (propagate labels over fewer hops: a lower --label-hops)", units.Count(int64(e.Hops), "hop"),
		e.Terms, float64(mostOwnTerms))
}

// checkOwnTerms bounds the terms that Compute adds for rows of nodes. A hop r that is kept adds a term for each walk of
// r steps that ends in the node, but at most r times the terms of a hop of all nodes.
func checkOwnTerms(ctx context.Context, products []Level, nodes []uint32, rows []int64, ids []format.MatrixID,
	threads int) error {
	var walks []float64 // of the hop before, by node
	total, most := 0.0, 0.0
	for hop, p := range products {
		next := make([]float64, p.CSC.Nodes())
		err := parallel.For(ctx, threads, p.CSC.Nodes(), 4096, func(lo, hi int64) error {
			for v := lo; v < hi; v++ {
				in := p.CSC.In(v)
				next[v] = float64(len(in))
				if p.Loops {
					next[v]++
				}
				if walks == nil {
					continue
				}
				if p.Loops {
					next[v] += walks[v]
				}
				for _, u := range in {
					next[v] += walks[u]
				}
			}
			return nil
		})
		if err != nil {
			return err
		}
		walks = next
		most = max(most, float64(p.CSC.Edges()+p.CSC.Nodes()))
		if ids[hop] == (format.MatrixID{}) {
			continue
		}
		for _, row := range rows {
			total += min(walks[nodes[row]], float64(hop+1)*most)
		}
	}
	if total > mostOwnTerms {
		return &ErrTooManyTerms{len(products), total}
	}
	return nil
}
