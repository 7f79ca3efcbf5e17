package host

import (
	"errors"

	"github.com/hopfeed/hopfeed/gds"
	"github.com/hopfeed/hopfeed/internal/dtype"
	"github.com/hopfeed/hopfeed/internal/kernel"
)

// A term of a product is added up in a block of blockTerms, which is part of docs/format.md. Terms and
// blocks are handed to the kernel up to productTerms and productBlocks at a time, which changes no result.
const (
	blockTerms    = 1024
	productTerms  = 4 * blockTerms
	productBlocks = 64
)

// productViews are the tensors of Propagate.
type productViews struct {
	src, dst, blend             []byte
	srcType, dstType, blendType gds.DType
	starts, ends                []int64
	nodes                       []uint32
	weights, ofNodes, ofRows    []float32 // nil: all 1
	count                       []int64   // or nil
	cols                        int
	factor, theta               float32

	productScratch
}

// productScratch is memory of each thread.
type productScratch struct {
	notFinite                     []int64
	sums, coefficients, blendRows []float32
	lengths                       []int
}

var (
	errTerms    = errors.New("a row's terms end before they start, or after the last")
	errTermNode = errors.New("a term is of a row that does not exist")
	errDense    = errors.New("the rows of a matrix do not touch")
)

var propagateOp = kind{name: "Propagate", tensors: 10, run: func(s *stream) error {
	v := &s.scratch.product
	defer func() { *v = productViews{productScratch: v.productScratch} }()
	dst, src := s.op.tensors[0], s.op.tensors[1]
	if err := s.viewProduct(); err != nil || dst.Rows == 0 || dst.Cols == 0 {
		return err
	}
	threads := s.device.options.Threads
	f := v.cols
	room(&v.sums, threads*(productBlocks+1)*f)
	room(&v.blendRows, threads*f)
	room(&v.coefficients, threads*productTerms)
	room(&v.lengths, threads*productBlocks)
	clear(room(&v.notFinite, threads))
	perRow := (len(v.nodes)/dst.Rows + 1) * src.Cols
	err := s.loop(dst.Rows, max(1, min(1024, 2*grainWork/perRow)), func(s *stream, p part) error {
		return s.scratch.product.rows(p)
	})
	for _, n := range v.notFinite[:threads] {
		if v.count != nil {
			v.count[0] += n
		}
	}
	return err
}}

func (s *stream) Propagate(dst, src gds.Tensor, p gds.Product) {
	o := op{kind: &propagateOp, tensors: [maxTensors]gds.Tensor{dst, src, p.Starts, p.Ends, p.Nodes, p.Weights,
		p.NodeFactors, p.RowFactors, p.Blend, p.NotFinite}}
	o.alpha, o.beta = p.Factor, p.Theta
	s.push(o)
}

// viewProduct views the tensors, and checks them. Without terms, or elements, there are no views.
func (s *stream) viewProduct() error {
	t, v := s.op.tensors, &s.scratch.product
	dst, src, blend := t[0], t[1], t[8]
	if src.Cols != dst.Cols || !isVector(t[2], dst.Rows) || !isVector(t[3], dst.Rows) || !isVector(t[4], t[4].Cols) {
		return errShape
	}
	if !dst.Dense() || !src.Dense() || !blend.Dense() {
		return errDense
	}
	v.factor, v.theta = s.op.alpha, s.op.beta
	v.cols, v.srcType, v.dstType, v.blendType = dst.Cols, src.DType, dst.DType, blend.DType
	for i, to := range []*[]byte{&v.dst, &v.src, &v.blend} {
		m := [...]gds.Tensor{dst, src, blend}[i]
		bytes, err := s.device.memory(m)
		if err != nil {
			return err
		}
		if bytes != nil && !m.DType.IsFloat() {
			return errors.New("want matrices of floats")
		}
		*to = bytes
	}
	if blend == (gds.Tensor{}) {
		v.blend = nil
	} else if err := sameShape(dst, blend); err != nil {
		return err
	}
	starts, err1 := view[int64](s.device, t[2], gds.Int64)
	ends, err2 := view[int64](s.device, t[3], gds.Int64)
	nodes, err3 := view[uint32](s.device, t[4], gds.Uint32)
	if err := errors.Join(err1, err2, err3); err != nil {
		return err
	}
	v.starts, v.ends, v.nodes, v.count = starts.data, ends.data, nodes.data, nil
	for i, to := range []*[]float32{&v.weights, &v.ofNodes, &v.ofRows} {
		m, want := t[5+i], [...]int{t[4].Cols, src.Rows, dst.Rows}[i]
		*to = nil
		if m == (gds.Tensor{}) {
			continue
		}
		if !isVector(m, want) {
			return errShape
		}
		x, err := view[float32](s.device, m, gds.Float32)
		if err != nil {
			return err
		}
		*to = x.data
	}
	if t[9] != (gds.Tensor{}) {
		if !isVector(t[9], 1) {
			return errShape
		}
		count, err := view[int64](s.device, t[9], gds.Int64)
		if err != nil {
			return err
		}
		v.count = count.data
	}
	for i, start := range v.starts {
		if start < 0 || v.ends[i] < start || v.ends[i] > int64(len(v.nodes)) {
			return errTerms
		}
	}
	return nil
}

// rows computes the rows of a part. Rows of one block, whose terms follow one another, are summed by
// one call.
func (v *productViews) rows(p part) error {
	f := v.cols
	sums := v.sums[p.thread*(productBlocks+1)*f:][:(productBlocks+1)*f]
	lengths := v.lengths[p.thread*productBlocks:][:productBlocks]
	for i := p.lo; i < p.hi; {
		first, n := i, 0 // rows, and their terms
		for ; i < p.hi && i-first < productBlocks; i++ {
			k := int(v.ends[i] - v.starts[i])
			if k > blockTerms || n+k > productTerms || i > first && v.starts[i] != v.ends[i-1] {
				break
			}
			lengths[i-first], n = k, n+k
		}
		if i > first {
			if err := v.sum(p.thread, sums, v.starts[first], n, lengths[:i-first]); err != nil {
				return err
			}
			v.store(p.thread, first, i, sums)
			continue
		}
		total := sums[productBlocks*f:]
		clear(total)
		for at, end := v.starts[i], v.ends[i]; at < end; {
			blocks := 0
			for n = 0; blocks < productTerms/blockTerms && at+int64(n) < end; blocks++ {
				lengths[blocks] = int(min(blockTerms, end-at-int64(n)))
				n += lengths[blocks]
			}
			if err := v.sum(p.thread, sums, at, n, lengths[:blocks]); err != nil {
				return err
			}
			for b := range blocks {
				for j, x := range sums[b*f:][:f] {
					total[j] += x
				}
			}
			at += int64(n)
		}
		v.store(p.thread, i, i+1, total)
		i++
	}
	return nil
}

// sum adds up n terms from term start on, in lists of these lengths.
func (v *productViews) sum(thread int, sums []float32, start int64, n int, lengths []int) error {
	nodes := v.nodes[start:][:n]
	rows := len(v.src) / (v.cols * v.srcType.Size())
	for _, u := range nodes {
		if int(u) >= rows {
			return errTermNode
		}
	}
	c, byNode := v.ofNodes, true
	if v.weights != nil {
		weights := v.weights[start:][:n]
		c, byNode = weights, false
		if v.ofNodes != nil {
			c = v.coefficients[thread*productTerms:][:n]
			for e, u := range nodes {
				c[e] = weights[e] * v.ofNodes[u]
			}
		}
	}
	switch v.srcType {
	case dtype.Float32:
		kernel.SumFloat32(sums, dtype.Float32s(v.src), v.cols, nodes, lengths, c, byNode)
	case dtype.Float16:
		kernel.SumFloat16(sums, dtype.Uint16s(v.src), v.cols, nodes, lengths, c, byNode)
	default:
		kernel.SumBFloat16(sums, dtype.Uint16s(v.src), v.cols, nodes, lengths, c, byNode)
	}
	return nil
}

// unscaled is the factor of a row that is only rounded.
var unscaled = []float32{1}

// store stores rows [lo, hi), whose totals are given, and counts what is not finite.
func (v *productViews) store(thread, lo, hi int, totals []float32) {
	f, size := v.cols, v.dstType.Size()
	for i := lo; i < hi; i++ {
		row, factor := totals[(i-lo)*f:][:f], unscaled
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
			factor = unscaled
		}
		dst, finite := v.dst[i*f*size:][:f*size], false
		switch v.dstType {
		case dtype.Float32:
			finite = kernel.ScaleFloat32(dtype.Float32s(dst), row, factor, false)
		case dtype.Float16:
			finite = kernel.ScaleFloat16(dtype.Uint16s(dst), row, factor, false)
		default:
			finite = kernel.ScaleBFloat16(dtype.Uint16s(dst), row, factor, false)
		}
		if finite {
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
