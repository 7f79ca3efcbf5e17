package trainer

import "github.com/hopfeed/hopfeed/gds"

// normEpsilon is added to variances, as PyTorch does.
const normEpsilon = 1e-5

// affine is the gain and the shift of a normalisation, [1,cols] each.
type affine struct{ gain, shift *parameter }

// newAffine declares a gain of one and a shift of zero.
func newAffine(p *parameters, name string, cols int) (l affine) {
	l.gain = p.declare(name+".weight", 1, cols, 0)
	l.gain.centre = 1
	l.shift = p.declare(name+".bias", 1, cols, 0)
	return l
}

// normalizeRows sets y; stats, of two columns, is for the gradient.
func (l affine) normalizeRows(p *pass, y, stats, x gds.Tensor) {
	p.NormalizeRows(y, stats, x, l.gain.value, l.shift.value, normEpsilon)
}

// layerNorm adds the normalisation of each token of x, of width columns (Ba et al. 2016), and returns its output.
func (b *builder) layerNorm(name string, x *activation, width int) (*activation, affine) {
	l, tokens := newAffine(&b.params, name, width), x.cols/width
	y, stats := b.activation(x.level, x.cols), b.scratch(x.level, 2*tokens)
	b.add(func(p *pass) {
		l.normalizeRows(p, asTokens(y.value(p), tokens), asTokens(stats.value(p), tokens), asTokens(x.value(p), tokens))
	}, func(p *pass) {
		p.NormalizeRowsGrad(asTokens(x.gradient(p), tokens), l.gain.grad, l.shift.grad, asTokens(y.gradient(p), tokens),
			asTokens(x.value(p), tokens), asTokens(stats.value(p), tokens), l.gain.value)
	})
	return y, l
}

// batchNorm adds the normalisation of columns (Ioffe and Szegedy 2015), and returns its output: in training by mean and
// variance of the batch's rows on all ranks, else by running ones. A batch of one row, which has no variance, is
// normalised by the running ones too.
//
// A batch counts in the running mean and variance by its share of a tenth of an epoch, n, as
// rows / (rows + n): so the short batch at the end of an epoch, after which epochs are validated,
// hardly counts, and where an epoch is few batches, what parameters were before is soon forgotten.
func (b *builder) batchNorm(name string, x *activation) *activation {
	cols := x.cols
	y, l := b.activation(x.level, cols), newAffine(&b.params, name, cols)
	running := [2]*parameter{b.params.declare(name+".running_mean", 1, cols, 0),
		b.params.declare(name+".running_var", 1, cols, 0)}
	running[0].fixed, running[1].fixed, running[1].centre = true, true, 1
	batchMean, batchVariance, sum, sums := b.vector(cols), b.vector(cols), b.vector(cols), b.vector(2*cols)
	// statistics are the mean and the variance that a pass normalises by, and the fraction of the batch's rows that a
	// row is; 0 for running ones.
	statistics := func(p *pass) (mean, variance gds.Tensor, part float32) {
		if !p.train || p.GlobalRows <= 1 {
			return running[0].value, running[1].value, 0
		}
		return batchMean.out, batchVariance.out, 1 / float32(p.GlobalRows)
	}
	b.add(func(p *pass) {
		x, sum := x.value(p), sum.out
		mean, variance, part := statistics(p)
		if part != 0 {
			p.SumRows(sum, 0, x)
			p.meet(sum)
			p.Fill(mean, 0)
			p.Axpy(part, sum, mean)
			p.SumSquares(sum, x, mean)
			p.meet(sum)
			p.Fill(variance, 0)
			p.Axpy(part, sum, variance)
			rows := float32(p.GlobalRows)
			share := rows / (rows + float32(p.trainRows)/10)
			by := [2]float32{share, share * rows / (rows - 1)}
			for i, batch := range [2]gds.Tensor{mean, variance} {
				p.Axpy(-share, running[i].value, running[i].value)
				p.Axpy(by[i], batch, running[i].value)
			}
		}
		p.NormalizeColumns(y.value(p), x, mean, variance, l.gain.value, l.shift.value, normEpsilon)
	}, func(p *pass) {
		x, gx, gy, sums := x.value(p), x.gradient(p), y.gradient(p), sums.out
		mean, variance, part := statistics(p)
		p.NormalizeColumnsSums(sums, gy, x, mean, variance, normEpsilon)
		p.Axpy(1, sums.Columns(0, cols), l.shift.grad)
		p.Axpy(1, sums.Columns(cols, 2*cols), l.gain.grad)
		if part != 0 {
			p.meet(sums)
		}
		p.NormalizeColumnsGrad(gx, gy, x, mean, variance, l.gain.value, sums, part, normEpsilon)
	})
	return y
}
