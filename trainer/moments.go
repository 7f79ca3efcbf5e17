package trainer

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"math"
	"slices"

	"github.com/hopfeed/hopfeed/gds"
	"github.com/hopfeed/hopfeed/internal/dtype"
	"github.com/hopfeed/hopfeed/loader"
)

// firstBatch calls do with the ranks' shares of the first batch of an epoch that has rows.
func (g *group) firstBatch(ctx context.Context, sets []Epocher, do func(shares []*loader.Batch) error) error {
	shares := make([]*loader.Batch, len(g.ranks))
	for rank, n := range g.ranks {
		next, stop := iter.Pull2(sets[rank].EpochFrom(ctx, n.stream, 0, 0))
		defer stop()
		b, err, more := next()
		for err == nil && more && b.GlobalRows == 0 { // of a sampler that chooses rows
			b, err, more = next()
		}
		switch {
		case err == nil && !more:
			err = errors.New("there is none")
		case err == nil:
			err = n.admit(ctx, b)
		}
		if err != nil {
			return fmt.Errorf("first batch: %w", g.rankError(rank, err))
		}
		shares[rank] = b
	}
	return do(shares)
}

// measureInputs measures the input matrices in the ranks' shares of the first batch of training: the mean of each
// column, factors for columns whose unit is far from the units of others, and the scale that brings each matrix to the
// size that the model wants (kind.size). Features come in any unit (rows divided by their sum have the size 1/F) and
// around any mean (which propagation keeps, while it averages out differences). So learning rates and weight decay mean
// the same for all of them.
func (g *group) measureInputs(ctx context.Context, shares []*loader.Batch, factors standardization) ([]InputScale,
	error) {
	spec := g.ranks[0].spec
	inputs := make([]InputScale, len(spec.Matrices))
	for i := range inputs {
		in := InputScale{Scale: 1, Factor: slices.Repeat([]float32{1}, spec.Width(i)),
			Mean: make([]float32, spec.Width(i))}
		if factors != nil && spec.given(i) > 0 {
			m, err := g.moments(ctx, shares, i)
			if err != nil {
				return nil, err
			}
			in.Factor = factors(m)
			if i > 0 && g.ranks[0].sharesBlocks() {
				in.Factor = inputs[0].Factor // what is multiplied by the same weights has the same factors
			}
			if deviation := m.deviation(in.Factor); deviation != 0 && m.rows > 0 { // a batch may have no nodes of a type
				in.Scale = float32(g.ranks[0].size(spec.Width(i)) / deviation)
			}
			if !(in.Scale > 0 && in.Scale <= math.MaxFloat32) {
				return nil, fmt.Errorf("%w before it began: "+
					"%s holds values that are not finite or far too large or small", ErrDiverged, spec.Matrices[i])
			}
			for j, v := range m.mean {
				in.Mean[j] = float32(v)
			}
		}
		inputs[i] = in
	}
	return inputs, nil
}

// standardizations are the ways to scale the input, by name: they give the factors of columns, beside centring columns
// and scaling each matrix to one size. nil takes features as they are.
var standardizations = map[string]standardization{"matrix": moments.factors, "column": moments.columnFactors,
	"none": nil}

const defaultStandardization = "matrix"

type standardization func(m moments) []float32

// moments are sums over the rows of a matrix, by column; around zero, if it is not to be centred.
type moments struct {
	rows    float64
	mean    []float64
	raw     []float64 // sum of x^2
	squares []float64 // sum of (x - mean)^2
	fourths []float64 // sum of (x - mean)^4
	filled  []float64 // rows where x is not 0
}

// moments measures matrix i of a batch.
func (g *group) moments(ctx context.Context, shares []*loader.Batch, i int) (moments, error) {
	cols := g.ranks[0].spec.Width(i)
	m := moments{mean: make([]float64, cols), raw: make([]float64, cols), squares: make([]float64, cols),
		fourths: make([]float64, cols), filled: make([]float64, cols)}
	for _, b := range shares {
		m.rows += float64(b.X[i].Rows)
	}
	// Sparse rows are never centred, so their zeros add nothing.
	each := func(do func(columns []uint32, values []float32)) error {
		for rank, n := range g.ranks {
			read := n.eachRow
			if shares[rank].Sparse != nil {
				read = n.eachElement
			}
			if err := read(ctx, shares[rank], i, do); err != nil {
				return g.rankError(rank, err)
			}
		}
		return nil
	}
	err := each(func(columns []uint32, values []float32) {
		for k, v := range values {
			j := columns[k]
			m.mean[j] += float64(v)
			if v != 0 {
				m.filled[j]++
			}
			m.raw[j] += float64(float64(v) * float64(v))
		}
	})
	if err != nil {
		return m, err
	}
	for j := range m.mean {
		m.mean[j] /= m.rows
	}
	if g.ranks[0].uncentred {
		clear(m.mean)
	}
	return m, each(func(columns []uint32, values []float32) {
		for k, v := range values {
			j := columns[k]
			d := float64(v) - m.mean[j]
			square := float64(d * d)
			m.squares[j] += square
			m.fourths[j] += float64(square * square)
		}
	})
}

// leastDeviation is the least standard deviation that is assumed of columns, as a fraction of
// the root mean square of their elements: smaller deviations are rounding errors of float32.
const leastDeviation = 1e-4

// deviation is the root mean square of the columns around their means, times their factors.
func (m moments) deviation(factors []float32) float64 {
	squares, raw := 0.0, 0.0
	for j, f := range factors {
		f := float64(f) * float64(f)
		squares += float64(f * m.squares[j])
		raw += float64(f * m.raw[j])
	}
	return max(math.Sqrt(squares), leastDeviation*math.Sqrt(raw)) / math.Sqrt(m.rows*float64(len(factors)))
}

// unitSpan decides whether the columns of a matrix are in units of their own: they are if the unit of some column is
// unitSpan times larger or smaller than the median. Columns of words differ by more with each hop: on Cora by 31 times
// after 3 hops, by 36 after 4, when most are no longer zero, and by 65 after 10. None of these may be changed, as a
// rare word that is scaled like a frequent one costs accuracy.
const unitSpan = 128

// maxExponent keeps factors, and one by them, far from the ends of float32.
const maxExponent = 60

// powerOfTwo is two to the exponent, rounded and within these limits.
func powerOfTwo(exponent float64) float32 {
	return float32(math.Ldexp(1, int(max(-maxExponent, min(maxExponent, math.Round(exponent))))))
}

// factors are the powers of two that columns are multiplied by. They are one unless the columns are in units of their
// own. Then columns that are mostly not zero get the median unit; other columns only if theirs is far larger, since the
// first batch does not show how large a column that is mostly zero, or constant, can be.
//
// The unit of a column is the root mean square of its deviation, each value weighted by its square: about 1 for a
// column of ones and zeros, however many ones it has.
func (m moments) factors() []float32 {
	const least = leastDeviation * leastDeviation
	units, known := make([]float64, len(m.mean)), make([]float64, 0, len(m.mean))
	for j := range units {
		if m.squares[j] > least*m.raw[j] {
			units[j] = math.Sqrt(m.fourths[j] / m.squares[j])
			known = append(known, units[j])
		} else {
			units[j] = math.Sqrt(least * m.raw[j] / m.rows)
		}
	}
	factors := slices.Repeat([]float32{1}, len(units))
	if len(known) == 0 {
		return factors
	}
	slices.Sort(known)
	median := known[len(known)/2]
	larger := func(j int) bool { return units[j] > unitSpan*median }
	shown := func(j int) bool { return m.filled[j] > m.rows/2 && m.squares[j] > least*m.raw[j] }
	scaled := false
	for j, unit := range units {
		scaled = scaled || larger(j) || shown(j) && unit < median/unitSpan
	}
	if !scaled {
		return factors
	}
	for j, unit := range units {
		if larger(j) || shown(j) {
			factors[j] = powerOfTwo(math.Log2(median / unit))
		}
	}
	return factors
}

// columnFactors are the powers of two that bring every column that is not constant to a standard deviation of about
// one.
func (m moments) columnFactors() []float32 {
	const least = leastDeviation * leastDeviation
	factors := slices.Repeat([]float32{1}, len(m.mean))
	for j := range factors {
		if m.squares[j] > least*m.raw[j] {
			factors[j] = powerOfTwo(-math.Log2(math.Sqrt(m.squares[j] / m.rows)))
		}
	}
	return factors
}

// momentRows is how many rows eachRow brings to the host at once.
const momentRows = 64

// eachRow calls do for the rows of matrix i of a batch, with the numbers of all columns.
func (n *network) eachRow(ctx context.Context, b *loader.Batch, i int,
	do func(columns []uint32, values []float32)) error {
	x, columns := b.X[i], make([]uint32, b.X[i].Cols)
	for j := range columns {
		columns[j] = uint32(j)
	}
	rows := dtype.Float32s(n.momentBlock.Bytes())
	for lo := 0; lo < x.Rows; lo += momentRows {
		part := x.Slice(lo, min(lo+momentRows, x.Rows))
		n.stream.Copy(gds.NewTensor(n.momentBlock, part.Rows, part.Cols, gds.Float32), part)
		if err := n.stream.Synchronize(ctx); err != nil {
			return err
		}
		for r := range part.Rows {
			do(columns, rows[r*x.Cols:(r+1)*x.Cols])
		}
	}
	return nil
}

// eachElement calls do for elements of sparse rows, in order.
func (n *network) eachElement(ctx context.Context, b *loader.Batch, _ int,
	do func(columns []uint32, values []float32)) error {
	s, most := b.Sparse, momentRows*n.spec.Features/2
	columns := gds.NewTensor(n.momentBlock, 1, most, gds.Uint32)
	values := gds.NewTensor(n.momentBlock, 1, 2*most, gds.Float32).Columns(most, 2*most)
	memory := n.momentBlock.Bytes()
	for lo := 0; lo < s.Values.Cols; lo += most {
		hi := min(lo+most, s.Values.Cols)
		n.stream.Copy(columns.Columns(0, hi-lo), s.Columns.Columns(lo, hi))
		n.stream.Copy(values.Columns(0, hi-lo), s.Values.Columns(lo, hi))
		if err := n.stream.Synchronize(ctx); err != nil {
			return err
		}
		do(dtype.Uint32s(memory[:4*(hi-lo)]), dtype.Float32s(memory[4*most:][:4*(hi-lo)]))
	}
	return nil
}
