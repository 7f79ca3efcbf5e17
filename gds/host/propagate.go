package host

import (
	"errors"

	"github.com/hopfeed/hopfeed/gds"
	"github.com/hopfeed/hopfeed/internal/dtype"
	"github.com/hopfeed/hopfeed/internal/kernel"
)

// Terms of a row are added up in groups of groupTerms, which are part of docs/format.md. Up to batchGroups groups are
// handed to the kernel at a time, which changes no result.
const (
	groupTerms  = 1024
	batchGroups = 64
)

// productViews are the tensors of Propagate.
type productViews struct {
	src, dst, blend             []byte
	srcType, dstType, blendType gds.DType
	starts, ends                []int64
	nodes                       []uint32
	weights, ofNodes, ofRows    []float32 // nil: all 1
	cols                        int
	factor, theta               float32

	productScratch
}

// productScratch is memory of each thread.
type productScratch struct {
	notFinite       []int64
	sums, blendRows []float32
	groups          []kernel.List
	terms           []kernel.Terms
}

var (
	errTerms    = errors.New("a row's terms end before they start, or after the last")
	errTermNode = errors.New("a term is of a row that does not exist")
)

func (s *stream) propagate() error {
	v, t := &s.scratch.product, &s.call.Tensors
	defer func() { *v = productViews{productScratch: v.productScratch} }()
	dst, src := t[0], t[1]
	v.dst, v.src, v.blend = s.views.bytes[0].data, s.views.bytes[1].data, s.views.bytes[8].data
	v.dstType, v.srcType, v.blendType = dst.DType, src.DType, t[8].DType
	v.starts, v.ends, v.nodes = vector[int64](s, 2), vector[int64](s, 3), vector[uint32](s, 4)
	v.weights, v.ofNodes, v.ofRows = s.views.floats[5].data, s.views.floats[6].data, s.views.floats[7].data
	v.cols, v.factor, v.theta = dst.Cols, s.call.Alpha, s.call.Beta
	for i, start := range v.starts {
		if start < 0 || v.ends[i] < start || v.ends[i] > int64(len(v.nodes)) {
			return errTerms
		}
	}
	if v.dst == nil {
		return nil
	}
	threads, f := s.device.options.Threads, v.cols
	room(&v.sums, threads*(batchGroups+1)*f)
	room(&v.blendRows, threads*f)
	room(&v.groups, threads*batchGroups)
	terms := room(&v.terms, threads)
	for i := range terms {
		terms[i] = kernel.Terms{Nodes: v.nodes, Edges: v.weights, Factors: v.ofNodes}
	}
	defer func() { clear(terms) }()
	clear(room(&v.notFinite, threads))
	perRow := (len(v.nodes)/dst.Rows + 1) * src.Cols
	err := s.loop(dst.Rows, max(1, min(1024, 2*grainWork/perRow)), func(s *stream, p part) error {
		return s.scratch.product.rows(p)
	})
	if count := vector[int64](s, 9); count != nil {
		for _, n := range v.notFinite[:threads] {
			count[0] += n
		}
	}
	return err
}

// rows computes the rows of a part. Rows of one group that follow one another are summed by one call.
func (v *productViews) rows(p part) error {
	f := v.cols
	sums := v.sums[p.thread*(batchGroups+1)*f:][:(batchGroups+1)*f]
	groups := v.groups[p.thread*batchGroups:][:batchGroups]
	for i := p.lo; i < p.hi; {
		first := i
		for ; i < p.hi && i-first < batchGroups && v.ends[i]-v.starts[i] <= groupTerms; i++ {
			groups[i-first] = kernel.List{Start: v.starts[i], End: v.ends[i], Self: -1}
		}
		if i > first {
			if err := v.sum(p.thread, sums, groups[:i-first]); err != nil {
				return err
			}
			v.store(p.thread, first, i, sums)
			continue
		}
		total := sums[batchGroups*f:]
		clear(total)
		for at, end := v.starts[i], v.ends[i]; at < end; {
			n := 0
			for ; n < batchGroups && at < end; n++ {
				groups[n] = kernel.List{Start: at, End: min(at+groupTerms, end), Self: -1}
				at = groups[n].End
			}
			if err := v.sum(p.thread, sums, groups[:n]); err != nil {
				return err
			}
			for g := range n {
				for j, x := range sums[g*f:][:f] {
					total[j] += x
				}
			}
		}
		v.store(p.thread, i, i+1, total)
		i++
	}
	return nil
}

// sum adds up the terms of each group.
func (v *productViews) sum(thread int, sums []float32, groups []kernel.List) error {
	rows := len(v.src) / (v.cols * v.srcType.Size())
	for _, g := range groups {
		for _, u := range v.nodes[g.Start:g.End] {
			if int(u) >= rows {
				return errTermNode
			}
		}
	}
	terms := &v.terms[thread]
	terms.Lists = groups
	dtype.SumLists(sums, v.src, v.srcType, v.cols, v.cols, terms)
	return nil
}

// store stores rows [lo, hi), whose totals are given, and counts what is not finite.
func (v *productViews) store(thread, lo, hi int, totals []float32) {
	f, size := v.cols, v.dstType.Size()
	for i := lo; i < hi; i++ {
		row, factor := totals[(i-lo)*f:][:f], dtype.Unscaled
		if v.ofRows != nil {
			factor = v.ofRows[i : i+1]
		}
		if v.blend != nil {
			x := v.blendRows[thread*f:][:f]
			bytes := f * v.blendType.Size()
			dtype.Decode(x, v.blend[i*bytes:][:bytes], v.blendType)
			for j := range row {
				row[j] = float32(v.factor*float32(factor[0]*row[j])) + float32(v.theta*x[j])
			}
			factor = dtype.Unscaled
		}
		dst := v.dst[i*f*size:][:f*size]
		if dtype.Scale(dst, v.dstType, row, factor, false) {
			continue
		}
		dtype.Decode(row, dst, v.dstType)
		for _, x := range row {
			if x-x != 0 { // an infinity or NaN
				v.notFinite[thread]++
			}
		}
	}
}
