package trainer

import "github.com/hopfeed/hopfeed/gds"

// normEpsilon is added to variances, as PyTorch does.
const normEpsilon = 1e-5

// layerNorm normalises each token of a row (Ba et al. 2016).
type layerNorm struct {
	tokens      int
	gain, shift *parameter
	stats       *activation
}

// newLayerNorm is for matrices [n, tokens*width].
func newLayerNorm(b *builder, name string, tokens, width int) *layerNorm {
	l := &layerNorm{tokens: tokens, stats: b.scratch(2 * tokens)}
	l.gain, l.shift = affine(&b.params, name, width)
	return l
}

// affine declares a gain of one and a shift of zero.
func affine(p *parameters, name string, cols int) (gain, shift *parameter) {
	gain = p.declare(name+".weight", 1, cols, 0)
	gain.centre = 1
	return gain, p.declare(name+".bias", 1, cols, 0)
}

func (l *layerNorm) forward(p *pass, y, x gds.Tensor) {
	stats, _ := l.stats.of(p)
	p.NormalizeRows(asTokens(y, l.tokens), asTokens(stats, l.tokens), asTokens(x, l.tokens), l.gain.value,
		l.shift.value, normEpsilon)
}

// backward sets gx, which may be gy.
func (l *layerNorm) backward(p *pass, gx, gy, x gds.Tensor) {
	stats, _ := l.stats.of(p)
	p.NormalizeRowsGrad(asTokens(gx, l.tokens), l.gain.grad, l.shift.grad, asTokens(gy, l.tokens),
		asTokens(x, l.tokens), asTokens(stats, l.tokens), l.gain.value)
}

// batchNorm normalises columns (Ioffe and Szegedy 2015): in training by mean and variance of the
// batch's rows on all ranks, else by running ones. A batch of one row, which has no variance, is
// normalised by the running ones too.
//
// A batch counts in the running mean and variance by its share of a tenth of an epoch, n, as
// rows / (rows + n): so the short batch at the end of an epoch, after which epochs are validated,
// hardly counts, and where an epoch is few batches, what parameters were before is soon forgotten.
type batchNorm struct {
	gain, shift    *parameter
	mean, variance *parameter // running, fixed
	// Mean and variance of the last batch; sums over its rows, forward and backward.
	batchMean, batchVariance, sum, sums *activation
}

func newBatchNorm(b *builder, name string, cols int) *batchNorm {
	l := &batchNorm{batchMean: b.vector(cols), batchVariance: b.vector(cols), sum: b.vector(cols),
		sums: b.vector(2 * cols)}
	l.gain, l.shift = affine(&b.params, name, cols)
	l.mean, l.variance = b.params.declare(name+".running_mean", 1, cols, 0),
		b.params.declare(name+".running_var", 1, cols, 0)
	l.mean.fixed, l.variance.fixed, l.variance.centre = true, true, 1
	return l
}

// statistics are the mean and the variance that a pass normalises by, and the fraction that a row is
// of the rows that they are of; if they are not the batch's, it is 0.
func (l *batchNorm) statistics(p *pass) (mean, variance gds.Tensor, part float32) {
	if !p.train || p.globalRows <= 1 {
		return l.mean.value, l.variance.value, 0
	}
	return l.batchMean.out, l.batchVariance.out, 1 / float32(p.globalRows)
}

// forward must not be in place.
func (l *batchNorm) forward(p *pass, y, x gds.Tensor) {
	mean, variance, part := l.statistics(p)
	if part != 0 {
		sum := l.sum.out
		p.SumRows(sum, 0, x)
		p.sum(sum)
		p.Fill(mean, 0)
		p.Axpy(part, sum, mean)
		p.SumSquares(sum, x, mean)
		p.sum(sum)
		p.Fill(variance, 0)
		p.Axpy(part, sum, variance)
		rows := float32(p.globalRows)
		share := rows / (rows + float32(p.trainRows)/10)
		for _, v := range []struct {
			running, batch gds.Tensor
			by             float32
		}{{l.mean.value, mean, share}, {l.variance.value, variance, share * rows / (rows - 1)}} {
			p.Axpy(-share, v.running, v.running)
			p.Axpy(v.by, v.batch, v.running)
		}
	}
	p.NormalizeColumns(y, x, mean, variance, l.gain.value, l.shift.value, normEpsilon)
}

// backward sets gx, which may be gy.
func (l *batchNorm) backward(p *pass, gx, gy, x gds.Tensor) {
	mean, variance, part := l.statistics(p)
	sums, cols := l.sums.out, l.gain.cols
	p.NormalizeColumnsSums(sums, gy, x, mean, variance, normEpsilon)
	p.Axpy(1, sums.Columns(0, cols), l.shift.grad)
	p.Axpy(1, sums.Columns(cols, 2*cols), l.gain.grad)
	if part != 0 {
		p.sum(sums)
	}
	p.NormalizeColumnsGrad(gx, gy, x, mean, variance, l.gain.value, sums, part, normEpsilon)
}
