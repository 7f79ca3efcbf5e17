package host

import "math"

// sumsOfColumns runs body, which adds to sum for rows [lo, hi), and puts the sums over all rows in the first tensor.
func (s *stream) sumsOfColumns(body func(s *stream, sum []float32, lo, hi int)) error {
	v := &s.views.floats
	total := v[0].all(0)
	clear(total)
	s.addUp(total, v[1].rows, body)
	return nil
}

func (s *stream) sumSquares() error {
	return s.sumsOfColumns(func(s *stream, sum []float32, lo, hi int) {
		mean := s.views.floats[2].row(0, 0, len(sum))
		for i := lo; i < hi; i++ {
			for j, value := range s.views.floats[1].row(i, 0, len(sum)) {
				d := value - mean[j]
				sum[j] += float32(d * d)
			}
		}
	})
}

// inverses puts 1 / sqrt(variance + epsilon) of each column, where tensor i is the variance, in scratch memory.
func (s *stream) inverses(i int) {
	variance := s.views.floats[i]
	inverse := room(&s.scratch.columns, variance.cols)
	for j, v := range variance.all(0) {
		inverse[j] = inverseDeviation(v, s.call.Alpha)
	}
}

func inverseDeviation(variance, epsilon float32) float32 {
	return float32(1 / math.Sqrt(float64(variance)+float64(epsilon)))
}

func (s *stream) normalizeColumns() error {
	s.inverses(3)
	return s.rowsOf(1, 1, func(s *stream, p part) error {
		v := &s.views.floats
		n := v[1].cols
		mean, inverse := v[2].all(0), s.scratch.columns[:n]
		gain, shift := v[4].all(0), v[5].all(0)
		for i := p.lo; i < p.hi; i++ {
			out := v[0].all(i)
			for j, value := range v[1].all(i) {
				out[j] = float32(float32((value-mean[j])*inverse[j])*gain[j]) + shift[j]
			}
		}
		return nil
	})
}

func (s *stream) normalizeColumnsSums() error {
	s.inverses(4)
	return s.sumsOfColumns(func(s *stream, sum []float32, lo, hi int) {
		v := &s.views.floats
		n := len(sum) / 2
		mean, inverse, ofNormal := v[3].all(0), s.scratch.columns[:n], sum[n:]
		for i := lo; i < hi; i++ {
			x := v[2].all(i)
			for j, g := range v[1].all(i) {
				sum[j] += g
				ofNormal[j] += float32(g * float32((x[j]-mean[j])*inverse[j]))
			}
		}
	})
}

func (s *stream) normalizeColumnsGrad() error {
	s.inverses(4)
	return s.rowsOf(2, 1, func(s *stream, p part) error {
		v := &s.views.floats
		n := v[2].cols
		mean, inverse, gain := v[3].all(0), s.scratch.columns[:n], v[5].all(0)
		sum, ofNormal, portion := v[6].row(0, 0, n), v[6].row(0, n, 2*n), s.call.Beta
		for i := p.lo; i < p.hi; i++ {
			out, x := v[0].all(i), v[2].all(i)
			for j, g := range v[1].all(i) {
				normal := float32((x[j] - mean[j]) * inverse[j])
				rest := g - float32(portion*sum[j]) - float32(normal*float32(portion*ofNormal[j]))
				out[j] = float32(gain[j]*inverse[j]) * rest
			}
		}
		return nil
	})
}

func (s *stream) normalizeRows() error {
	return s.rowsOf(2, 1, func(s *stream, p part) error {
		v := &s.views.floats
		gain, shift := v[3].all(0), v[4].all(0)
		for i := p.lo; i < p.hi; i++ {
			x, stats := v[2].all(i), v[1].all(i)
			mean, variance := moments(x)
			stats[0], stats[1] = mean, inverseDeviation(variance, s.call.Alpha)
			normalize(v[0].all(i), x, gain, shift, mean, stats[1])
		}
		return nil
	})
}

func (s *stream) normalizeRowsGrad() error {
	v := &s.views.floats
	n := v[4].cols
	sums := room(&s.scratch.columns, 2*n)
	clear(sums)
	s.addUp(sums, v[4].rows, func(s *stream, sum []float32, lo, hi int) {
		v := &s.views.floats
		n := v[4].cols
		gain := v[6].all(0)
		for i := lo; i < hi; i++ {
			stats := v[5].all(i)
			normalizeGrad(v[0].all(i), v[3].all(i), v[4].all(i), gain, stats[0], stats[1], sum[:n], sum[n:])
		}
	})
	gradGain, gradShift := v[1].all(0), v[2].all(0)
	for j := range n {
		gradGain[j] += sums[j]
		gradShift[j] += sums[n+j]
	}
	return nil
}
