package host

import (
	"errors"

	"github.com/hopfeed/hopfeed/internal/dtype"
	"github.com/hopfeed/hopfeed/internal/kernel"
)

// Terms of a row are added up in groups of groupTerms, which are part of docs/format.md. Up to batchRows rows that have
// one group are handed to the kernel at a time, which changes no result.
const (
	groupTerms = 1024
	batchRows  = 64
)

// productScratch is memory of Propagate, for each thread.
type productScratch struct {
	sums, blend []float32
	notFinite   []int64
}

var (
	errTerms    = errors.New("a row's terms end before they start, or after the last")
	errTermNode = errors.New("a term is of a row that does not exist")
)

func (s *stream) propagate() error {
	rows, f := s.views.floats[0].rows, s.views.floats[0].cols
	starts, ends, nodes := vector[int64](s, 2), vector[int64](s, 3), vector[uint32](s, 4)
	for i, start := range starts {
		if start < 0 || ends[i] < start || ends[i] > int64(len(nodes)) {
			return errTerms
		}
	}
	if s.views.bytes[0].data == nil {
		return nil
	}
	v, threads := &s.scratch.product, s.device.options.Threads
	room(&v.sums, threads*(batchRows+1)*f)
	room(&v.blend, threads*f)
	clear(room(&v.notFinite, threads))
	terms := room(&s.scratch.edges.terms, threads)
	for i := range terms {
		t := &terms[i]
		t.Nodes, t.Edges, t.Factors = nodes, s.views.floats[5].data, s.views.floats[6].data
	}
	perRow := (len(nodes)/rows + 1) * f
	err := s.loop(rows, max(1, min(1024, 2*grainWork/perRow)), (*stream).productRows)
	for i := range terms { // operations along edges have none
		terms[i].Factors = nil
	}
	if count := vector[int64](s, 9); count != nil {
		for _, n := range v.notFinite[:threads] {
			count[0] += n
		}
	}
	return err
}

// productRows computes the rows of a part.
func (s *stream) productRows(p part) error {
	starts, ends, f := vector[int64](s, 2), vector[int64](s, 3), s.views.floats[0].cols
	sums := s.scratch.product.sums[p.thread*(batchRows+1)*f:][:(batchRows+1)*f]
	t, total := &s.scratch.edges.terms[p.thread].Terms, sums[batchRows*f:]
	for i := p.lo; i < p.hi; {
		first := i
		t.Lists = t.Lists[:0]
		for ; i < p.hi && i-first < batchRows && ends[i]-starts[i] <= groupTerms; i++ {
			t.Lists = append(t.Lists, kernel.List{Start: starts[i], End: ends[i], Self: -1})
		}
		if i > first {
			if err := s.sumTerms(t, sums); err != nil {
				return err
			}
			for k := range i - first {
				s.storeProduct(p.thread, first+k, sums[k*f:][:f])
			}
			continue
		}
		clear(total)
		for at := starts[i]; at < ends[i]; at += groupTerms {
			t.Lists = append(t.Lists[:0], kernel.List{Start: at, End: min(at+groupTerms, ends[i]), Self: -1})
			if err := s.sumTerms(t, sums); err != nil {
				return err
			}
			for j, x := range sums[:f] {
				total[j] += x
			}
		}
		s.storeProduct(p.thread, i, total)
		i++
	}
	return nil
}

// sumTerms adds up the terms of each list.
func (s *stream) sumTerms(t *kernel.Terms, sums []float32) error {
	src := s.views.bytes[1]
	for _, l := range t.Lists {
		for _, u := range t.Nodes[l.Start:l.End] {
			if int(u) >= src.rows {
				return errTermNode
			}
		}
	}
	f := s.views.floats[1].cols
	dtype.SumLists(sums, src.data, s.call.Tensors[1].DType, f, f, t)
	return nil
}

// storeProduct stores row i, whose terms add up to total, and counts what is not finite.
func (s *stream) storeProduct(thread, i int, total []float32) {
	c, v, factor := s.call, &s.scratch.product, dtype.Unscaled
	if factors := s.views.floats[7].data; factors != nil {
		factor = factors[i : i+1]
	}
	if blend := s.views.bytes[8]; blend.data != nil {
		x := v.blend[thread*len(total):][:len(total)]
		dtype.Decode(x, blend.all(i), c.Tensors[8].DType)
		for j := range total {
			total[j] = float32(c.Alpha*float32(factor[0]*total[j])) + float32(c.Beta*x[j])
		}
		factor = dtype.Unscaled
	}
	dst, t := s.views.bytes[0].all(i), c.Tensors[0].DType
	if dtype.Scale(dst, t, total, factor, false) {
		return
	}
	dtype.Decode(total, dst, t)
	for _, x := range total {
		if x-x != 0 { // an infinity or NaN
			v.notFinite[thread]++
		}
	}
}
