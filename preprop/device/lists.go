package device

import (
	"context"

	"github.com/hopfeed/hopfeed/format"
	"github.com/hopfeed/hopfeed/gds"
	"github.com/hopfeed/hopfeed/internal/dtype"
	"github.com/hopfeed/hopfeed/internal/offheap"
	"github.com/hopfeed/hopfeed/preprop/plan"
	"github.com/hopfeed/hopfeed/preprop/product"
)

// lists are the terms of all rows of an operator, on the device. Where self-loops are added, each row has a place for
// one, which is not used if it has one of its own.
type lists struct {
	graph product.Topology // nil: there are none yet
	loops bool

	starts, ends   gds.Tensor // int64 [1,n]
	nodes, weights gds.Tensor // [1, places]; weights may be the zero Tensor
	lengths        []uint32   // [n], in memory of the host
	buf            *offheap.Buffer
}

// allocateLists allocates memory for up to places edges.
func (e *Engine) allocateLists(nodes, places int64, weighted bool) error {
	vector := func(n int64, t gds.DType) gds.Tensor { return e.memory.Matrix("the topology", 1, int(n), t) }
	l := &lists{starts: vector(nodes, gds.Int64), ends: vector(nodes, gds.Int64), nodes: vector(places, gds.Uint32)}
	if weighted {
		l.weights = vector(places, gds.Float32)
	}
	var err error
	if l.buf, err = offheap.Alloc(4 * nodes); err != nil {
		return err
	}
	l.lengths, e.lists = dtype.Uint32s(l.buf.Bytes()), l
	return nil
}

// terms is how many terms rows [lo, hi) have.
func (l *lists) terms(lo, hi int64) (n int64) {
	for _, length := range l.lengths[lo:hi] {
		n += int64(length)
	}
	return n
}

// sendLists brings the terms of an operator to the device, if they are to stay there; else there are none.
func (e *Engine) sendLists(ctx context.Context, p *product.Propagator) (*lists, error) {
	l := e.lists
	if l == nil || l.graph == p.Graph && l.loops == p.Loops {
		return l, nil
	}
	l.graph = nil
	err := e.Each(ctx, p.Graph, 0, func(b *format.NodeRange) error {
		s := <-e.free
		defer func() { e.free <- s }()
		if err := l.sendRows(e, s, p, b); err != nil {
			return e.fail(err)
		}
		err := sendTerms(e, s, p, b, l.nodes, func(t *product.Terms) ([]uint32, uint32) { return t.Neighbors, t.Node })
		if err == nil && b.Weights != nil {
			err = sendTerms(e, s, p, b, l.weights, func(t *product.Terms) ([]float32, float32) { return t.Weights, 1 })
		}
		return e.fail(err)
	})
	if err != nil {
		return nil, err
	}
	l.graph, l.loops = p.Graph, p.Loops
	return l, nil
}

// sendRows sends where the terms of the rows of a node range are.
func (l *lists) sendRows(e *Engine, s *transfer, p *product.Propagator, b *format.NodeRange) error {
	room := e.InBytes / plan.HeadBytes * plan.HeadBytes / 16
	for lo, end := b.First, b.First+b.Rows(); lo < end; lo += room {
		hi := min(lo+room, end)
		starts, ends := dtype.Int64s(s.hostIn.Bytes()[:8*room]), dtype.Int64s(s.hostIn.Bytes()[8*room:16*room])
		for v := lo; v < hi; v++ {
			t, place := p.Terms(b, v), p.PlaceOf(b, v)
			l.lengths[v] = uint32(t.Len())
			starts[v-lo], ends[v-lo] = place, place+int64(t.Len())
		}
		if err := e.sendBytes(s.hostIn, 0, l.starts.Buf, 8*lo, 8*(hi-lo)); err != nil {
			return err
		}
		if err := e.sendBytes(s.hostIn, 8*room, l.ends.Buf, 8*lo, 8*(hi-lo)); err != nil {
			return err
		}
	}
	return nil
}

// sendTerms sends one number for each term of a node range: the elements of a list, and loop where a self-loop is
// added.
func sendTerms[T uint32 | float32](e *Engine, s *transfer, p *product.Propagator, b *format.NodeRange, to gds.Tensor,
	of func(t *product.Terms) (list []T, loop T)) error {
	room := dtype.As[T](s.hostIn.Bytes()[:e.InBytes/4*4])
	first, n := p.PlaceOf(b, b.First), 0
	send := func() error {
		at, bytes := 4*first, 4*int64(n)
		first, n = first+int64(n), 0
		return e.sendBytes(s.hostIn, 0, to.Buf, at, bytes)
	}
	for v := b.First; v < b.First+b.Rows(); v++ {
		t := p.Terms(b, v)
		list, loop := of(&t)
		places := t.Len()
		if p.Loops && t.Loop < 0 {
			places++
		}
		for at := 0; at < places; {
			if n == len(room) {
				if err := send(); err != nil {
					return err
				}
			}
			k := min(len(room)-n, places-at)
			if part := min(k, t.Len()-at); part > 0 {
				product.Splice(room[n:n+part], list, loop, t.Loop, at)
			}
			n, at = n+k, at+k
		}
	}
	if n == 0 {
		return nil
	}
	return send()
}
