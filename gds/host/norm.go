package host

import "math"

// sumsOfColumns puts what body adds to sum for each row in the first tensor.
func (s *stream) sumsOfColumns(body func(s *stream, sum []float32, row int)) error {
	v := &s.views.floats
	total := v[0].all(0)
	clear(total)
	s.addUp(total, v[1].rows, body)
	return nil
}

func (s *stream) sumSquares() error {
	return s.sumsOfColumns(func(s *stream, sum []float32, i int) {
		mean := s.views.floats[2].row(0, 0, len(sum))
		for j, value := range s.views.floats[1].row(i, 0, len(sum)) {
			d := value - mean[j]
			sum[j] += float32(d * d)
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
	return s.byRow(1, 1, func(s *stream, i int) {
		v := &s.views.floats
		mean, inverse := v[2].all(0), s.scratch.columns[:v[1].cols]
		gain, shift, out := v[4].all(0), v[5].all(0), v[0].all(i)
		for j, value := range v[1].all(i) {
			out[j] = float32(float32((value-mean[j])*inverse[j])*gain[j]) + shift[j]
		}
	})
}

func (s *stream) normalizeColumnsSums() error {
	s.inverses(4)
	return s.sumsOfColumns(func(s *stream, sum []float32, i int) {
		v := &s.views.floats
		n := len(sum) / 2
		mean, inverse, ofNormal, x := v[3].all(0), s.scratch.columns[:n], sum[n:], v[2].all(i)
		for j, g := range v[1].all(i) {
			sum[j] += g
			ofNormal[j] += float32(g * float32((x[j]-mean[j])*inverse[j]))
		}
	})
}

func (s *stream) normalizeColumnsGrad() error {
	s.inverses(4)
	return s.byRow(2, 1, func(s *stream, i int) {
		v := &s.views.floats
		n := v[2].cols
		mean, inverse, gain := v[3].all(0), s.scratch.columns[:n], v[5].all(0)
		sum, ofNormal, portion := v[6].row(0, 0, n), v[6].row(0, n, 2*n), s.call.Beta
		out, x := v[0].all(i), v[2].all(i)
		for j, g := range v[1].all(i) {
			normal := float32((x[j] - mean[j]) * inverse[j])
			rest := g - float32(portion*sum[j]) - float32(normal*float32(portion*ofNormal[j]))
			out[j] = float32(gain[j]*inverse[j]) * rest
		}
	})
}

func (s *stream) normalizeRows() error {
	return s.byRow(2, 1, func(s *stream, i int) {
		v := &s.views.floats
		x, stats := v[2].all(i), v[1].all(i)
		mean, variance := moments(x)
		stats[0], stats[1] = mean, inverseDeviation(variance, s.call.Alpha)
		normalize(v[0].all(i), x, v[3].all(0), v[4].all(0), mean, stats[1])
	})
}

func (s *stream) normalizeRowsGrad() error {
	v := &s.views.floats
	n := v[4].cols
	sums := room(&s.scratch.columns, 2*n)
	clear(sums)
	s.addUp(sums, v[4].rows, func(s *stream, sum []float32, i int) {
		v := &s.views.floats
		n, stats := v[4].cols, v[5].all(i)
		normalizeGrad(v[0].all(i), v[3].all(i), v[4].all(i), v[6].all(0), stats[0], stats[1], sum[:n], sum[n:])
	})
	gradGain, gradShift := v[1].all(0), v[2].all(0)
	for j := range n {
		gradGain[j] += sums[j]
		gradShift[j] += sums[n+j]
	}
	return nil
}
