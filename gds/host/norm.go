package host

import (
	"math"

	"github.com/hopfeed/hopfeed/gds"
)

// areVectors tells whether the tensors of the operation from first on are [1,n].
func (s *stream) areVectors(first, n int) bool {
	for _, t := range s.op.tensors[first:s.op.kind.tensors] {
		if !isVector(t, n) {
			return false
		}
	}
	return true
}

// sumsOfColumns runs body, which adds to sum for rows [lo, hi), and puts the sums over all rows in
// the first tensor.
func (s *stream) sumsOfColumns(body func(s *stream, sum []float32, lo, hi int)) error {
	v, err := s.viewFloats()
	if err != nil {
		return err
	}
	total := v[0].row(0, 0, v[0].cols)
	clear(total)
	s.addUp(total, v[1].rows, body)
	return nil
}

var sumSquaresOp = kind{name: "SumSquares", tensors: 3, run: func(s *stream) error {
	if cols := s.op.tensors[1].Cols; !isVector(s.op.tensors[0], cols) || !s.areVectors(2, cols) {
		return errShape
	}
	return s.sumsOfColumns(func(s *stream, sum []float32, lo, hi int) {
		mean := s.views.floats[2].row(0, 0, len(sum))
		for i := lo; i < hi; i++ {
			for j, value := range s.views.floats[1].row(i, 0, len(sum)) {
				d := value - mean[j]
				sum[j] += float32(d * d)
			}
		}
	})
}}

func (s *stream) SumSquares(dst, src, mean gds.Tensor) {
	s.push(op{kind: &sumSquaresOp, tensors: [maxTensors]gds.Tensor{dst, src, mean}})
}

// inverses puts 1 / sqrt(variance + epsilon) of each column, where tensor i is the variance, in
// scratch memory.
func (s *stream) inverses(i int) {
	variance := s.views.floats[i]
	inverse := room(&s.scratch.columns, variance.cols)
	for j, v := range variance.row(0, 0, variance.cols) {
		inverse[j] = inverseDeviation(v, s.op.alpha)
	}
}

func inverseDeviation(variance, epsilon float32) float32 {
	return float32(1 / math.Sqrt(float64(variance)+float64(epsilon)))
}

var normalizeColumnsOp = kind{name: "NormalizeColumns", tensors: 6, run: func(s *stream) error {
	dst, src := s.op.tensors[0], s.op.tensors[1]
	if sameShape(dst, src) != nil || !s.areVectors(2, src.Cols) {
		return errShape
	}
	if _, err := s.viewFloats(); err != nil {
		return err
	}
	s.inverses(3)
	return s.eachRow(src.Rows, src.Cols, func(s *stream, p part) error {
		v := &s.views.floats
		n := v[1].cols
		mean, inverse := v[2].row(0, 0, n), s.scratch.columns[:n]
		gain, shift := v[4].row(0, 0, n), v[5].row(0, 0, n)
		for i := p.lo; i < p.hi; i++ {
			out := v[0].row(i, 0, n)
			for j, value := range v[1].row(i, 0, n) {
				out[j] = float32(float32((value-mean[j])*inverse[j])*gain[j]) + shift[j]
			}
		}
		return nil
	})
}}

func (s *stream) NormalizeColumns(dst, src, mean, variance, gain, shift gds.Tensor, epsilon float32) {
	s.push(op{kind: &normalizeColumnsOp, tensors: [maxTensors]gds.Tensor{dst, src, mean, variance, gain, shift},
		alpha: epsilon})
}

var normalizeColumnsSumsOp = kind{name: "NormalizeColumnsSums", tensors: 5, run: func(s *stream) error {
	sums, grad, src := s.op.tensors[0], s.op.tensors[1], s.op.tensors[2]
	if !isVector(sums, 2*src.Cols) || sameShape(grad, src) != nil || !s.areVectors(3, src.Cols) {
		return errShape
	}
	if _, err := s.viewFloats(); err != nil {
		return err
	}
	s.inverses(4)
	return s.sumsOfColumns(func(s *stream, sum []float32, lo, hi int) {
		v := &s.views.floats
		n := len(sum) / 2
		mean, inverse, ofNormal := v[3].row(0, 0, n), s.scratch.columns[:n], sum[n:]
		for i := lo; i < hi; i++ {
			x := v[2].row(i, 0, n)
			for j, g := range v[1].row(i, 0, n) {
				sum[j] += g
				ofNormal[j] += float32(g * float32((x[j]-mean[j])*inverse[j]))
			}
		}
	})
}}

func (s *stream) NormalizeColumnsSums(sums, grad, src, mean, variance gds.Tensor, epsilon float32) {
	s.push(op{kind: &normalizeColumnsSumsOp, tensors: [maxTensors]gds.Tensor{sums, grad, src, mean, variance},
		alpha: epsilon})
}

var normalizeColumnsGradOp = kind{name: "NormalizeColumnsGrad", tensors: 7, run: func(s *stream) error {
	dst, grad, src, sums := s.op.tensors[0], s.op.tensors[1], s.op.tensors[2], s.op.tensors[6]
	vectors := s.op.tensors[3:6]
	for _, t := range vectors {
		if !isVector(t, src.Cols) {
			return errShape
		}
	}
	if sameShape(dst, grad, src) != nil || !isVector(sums, 2*src.Cols) {
		return errShape
	}
	if _, err := s.viewFloats(); err != nil {
		return err
	}
	s.inverses(4)
	return s.eachRow(src.Rows, src.Cols, func(s *stream, p part) error {
		v := &s.views.floats
		n := v[2].cols
		mean, inverse, gain := v[3].row(0, 0, n), s.scratch.columns[:n], v[5].row(0, 0, n)
		sum, ofNormal, portion := v[6].row(0, 0, n), v[6].row(0, n, 2*n), s.op.beta
		for i := p.lo; i < p.hi; i++ {
			out, x := v[0].row(i, 0, n), v[2].row(i, 0, n)
			for j, g := range v[1].row(i, 0, n) {
				normal := float32((x[j] - mean[j]) * inverse[j])
				rest := g - float32(portion*sum[j]) - float32(normal*float32(portion*ofNormal[j]))
				out[j] = float32(gain[j]*inverse[j]) * rest
			}
		}
		return nil
	})
}}

func (s *stream) NormalizeColumnsGrad(dst, grad, src, mean, variance, gain, sums gds.Tensor, part, epsilon float32) {
	s.push(op{kind: &normalizeColumnsGradOp,
		tensors: [maxTensors]gds.Tensor{dst, grad, src, mean, variance, gain, sums}, alpha: epsilon, beta: part})
}

var normalizeRowsOp = kind{name: "NormalizeRows", tensors: 5, run: func(s *stream) error {
	dst, stats, src := s.op.tensors[0], s.op.tensors[1], s.op.tensors[2]
	if sameShape(dst, src) != nil || stats.Rows != src.Rows || stats.Cols != 2 || !s.areVectors(3, src.Cols) {
		return errShape
	}
	if _, err := s.viewFloats(); err != nil {
		return err
	}
	return s.eachRow(src.Rows, src.Cols, func(s *stream, p part) error {
		v := &s.views.floats
		n := v[2].cols
		gain, shift := v[3].row(0, 0, n), v[4].row(0, 0, n)
		for i := p.lo; i < p.hi; i++ {
			x, stats := v[2].row(i, 0, n), v[1].row(i, 0, 2)
			mean, variance := moments(x)
			stats[0], stats[1] = mean, inverseDeviation(variance, s.op.alpha)
			normalize(v[0].row(i, 0, n), x, gain, shift, mean, stats[1])
		}
		return nil
	})
}}

func (s *stream) NormalizeRows(dst, stats, src, gain, shift gds.Tensor, epsilon float32) {
	s.push(op{kind: &normalizeRowsOp, tensors: [maxTensors]gds.Tensor{dst, stats, src, gain, shift}, alpha: epsilon})
}

var normalizeRowsGradOp = kind{name: "NormalizeRowsGrad", tensors: 7, run: func(s *stream) error {
	dst, grad, src, stats := s.op.tensors[0], s.op.tensors[3], s.op.tensors[4], s.op.tensors[5]
	for _, i := range []int{1, 2, 6} {
		if !isVector(s.op.tensors[i], src.Cols) {
			return errShape
		}
	}
	if sameShape(dst, grad, src) != nil || stats.Rows != src.Rows || stats.Cols != 2 {
		return errShape
	}
	v, err := s.viewFloats()
	if err != nil {
		return err
	}
	n := src.Cols
	sums := room(&s.scratch.columns, 2*n)
	clear(sums)
	s.addUp(sums, src.Rows, func(s *stream, sum []float32, lo, hi int) {
		v := &s.views.floats
		n := v[4].cols
		gain := v[6].row(0, 0, n)
		for i := lo; i < hi; i++ {
			stats := v[5].row(i, 0, 2)
			normalizeGrad(v[0].row(i, 0, n), v[3].row(i, 0, n), v[4].row(i, 0, n), gain, stats[0], stats[1], sum[:n],
				sum[n:])
		}
	})
	gradGain, gradShift := v[1].row(0, 0, n), v[2].row(0, 0, n)
	for j := range n {
		gradGain[j] += sums[j]
		gradShift[j] += sums[n+j]
	}
	return nil
}}

func (s *stream) NormalizeRowsGrad(dst, gradGain, gradShift, grad, src, stats, gain gds.Tensor) {
	s.push(op{kind: &normalizeRowsGradOp, tensors: [maxTensors]gds.Tensor{dst, gradGain, gradShift, grad, src, stats,
		gain}})
}
