package preprop

import (
	"context"

	"github.com/hopfeed/hopfeed/format"
	"github.com/hopfeed/hopfeed/gds"
	"github.com/hopfeed/hopfeed/internal/dtype"
	"github.com/hopfeed/hopfeed/internal/offheap"
)

// deviceLists are the terms of all rows of an operator, on the device. Where self-loops are added, each
// row has a place for one, which is not used if it has one of its own.
type deviceLists struct {
	graph topology // nil: there are none yet
	loops bool

	starts, ends   gds.Tensor // int64 [1,n]
	nodes, weights gds.Tensor // [1, places]; weights may be the zero Tensor
	lengths        []uint32   // [n], in memory of the host
	buf            *offheap.Buffer
}

// newDeviceLists allocates memory for up to so many places.
func (e *deviceEngine) newDeviceLists(nodes, places int64, weighted bool) (l *deviceLists, err error) {
	l = &deviceLists{}
	vector := func(n int64, t gds.DType) (v gds.Tensor) {
		if err == nil {
			var b gds.Buffer
			b, err = e.alloc(n*int64(t.Size()), false)
			v = gds.NewTensor(b, 1, int(n), t)
		}
		return v
	}
	l.starts, l.ends, l.nodes = vector(nodes, gds.Int64), vector(nodes, gds.Int64), vector(places, gds.Uint32)
	if weighted {
		l.weights = vector(places, gds.Float32)
	}
	if err != nil {
		return nil, err
	}
	if l.buf, err = offheap.Alloc(4 * nodes); err != nil {
		return nil, err
	}
	l.lengths = dtype.Uint32s(l.buf.Bytes())
	return l, nil
}

// terms is how many terms rows [lo, hi) have.
func (l *deviceLists) terms(lo, hi int64) (n int64) {
	for _, length := range l.lengths[lo:hi] {
		n += int64(length)
	}
	return n
}

// sendLists brings the terms of an operator to the device, if they are to stay there; else there are none.
func (e *deviceEngine) sendLists(ctx context.Context, p *propagator) (*deviceLists, error) {
	l := e.lists
	if l == nil || l.graph == p.graph && l.loops == p.loops {
		return l, nil
	}
	l.graph = nil
	err := e.each(ctx, p.graph, 0, func(b *format.Block) error {
		s := <-e.slots
		defer func() { e.slots <- s }()
		if err := l.sendRows(e, s, p, b); err != nil {
			return e.fail(err)
		}
		err := sendTerms(e, s, p, b, l.nodes, func(t *terms) ([]uint32, uint32) { return t.neighbors, t.node })
		if err == nil && b.Weights != nil {
			err = sendTerms(e, s, p, b, l.weights, func(t *terms) ([]float32, float32) { return t.weights, 1 })
		}
		return e.fail(err)
	})
	if err != nil {
		return nil, err
	}
	l.graph, l.loops = p.graph, p.loops
	return l, nil
}

// placeOf is the first place of the terms of a row of a block.
func (p *propagator) placeOf(b *format.Block, v int64) int64 {
	place := b.Offsets[v-b.First]
	if p.loops {
		place += v
	}
	return place
}

// sendRows sends where the terms of a block's rows are.
func (l *deviceLists) sendRows(e *deviceEngine, s *slot, p *propagator, b *format.Block) error {
	room := e.inBytes / headBytes * headBytes / 16
	for lo, end := b.First, b.First+b.Rows(); lo < end; lo += room {
		hi := min(lo+room, end)
		starts, ends := dtype.Int64s(s.hostIn.Bytes()[:8*room]), dtype.Int64s(s.hostIn.Bytes()[8*room:16*room])
		for v := lo; v < hi; v++ {
			t, place := p.terms(b, v), p.placeOf(b, v)
			l.lengths[v] = uint32(t.len())
			starts[v-lo], ends[v-lo] = place, place+int64(t.len())
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

// sendTerms sends one number of each term of a block: those of a list, with one for an added loop.
func sendTerms[T uint32 | float32](e *deviceEngine, s *slot, p *propagator, b *format.Block, to gds.Tensor, of func(t *terms) (list []T, loop T)) error {
	room := dtype.As[T](s.hostIn.Bytes()[:e.inBytes/4*4])
	first, n := p.placeOf(b, b.First), 0
	send := func() error {
		at, bytes := 4*first, 4*int64(n)
		first, n = first+int64(n), 0
		return e.sendBytes(s.hostIn, 0, to.Buf, at, bytes)
	}
	for v := b.First; v < b.First+b.Rows(); v++ {
		t := p.terms(b, v)
		list, loop := of(&t)
		places := t.len()
		if p.loops && t.loop < 0 {
			places++
		}
		for at := 0; at < places; {
			if n == len(room) {
				if err := send(); err != nil {
					return err
				}
			}
			k := min(len(room)-n, places-at)
			if part := min(k, t.len()-at); part > 0 {
				splice(room[n:n+part], list, loop, t.loop, at)
			}
			n, at = n+k, at+k
		}
	}
	if n == 0 {
		return nil
	}
	return send()
}
