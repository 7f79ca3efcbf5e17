// Package ops has what the operations of gds.Ops have in common on all devices: an operation with its
// arguments as a value, and the checks of shapes and element types. A device embeds Front, which makes a Call of
// each operation, and computes what Call.Check accepts.
package ops

import (
	"fmt"
	"strings"

	"github.com/hopfeed/hopfeed/gds"
)

// MaxTensors is how many tensors an operation has at most.
const MaxTensors = 14

// Call is an operation with its arguments. It is a value, so that enqueueing allocates nothing.
type Call struct {
	*Op
	Tensors        [MaxTensors]gds.Tensor // in the order of the signature
	Alpha, Beta    float32                // factors, in the order of the arguments; scale, value, epsilon, ...
	Tokens, Heads  int
	Known          int
	TransA, TransB bool
	Mean, AddLoops bool // of the graph
	Seed           uint64
	Adam           gds.AdamOptions
	Sampling       gds.Sampling
}

// Wrap is the error of the call, with its name and tensors.
func (c *Call) Wrap(err error) error {
	views := make([]string, c.Count())
	for i := range views {
		views[i] = c.Tensors[i].String()
	}
	return fmt.Errorf("%v(%s): %w", c.Op, strings.Join(views, ", "), err)
}

type tensors = [MaxTensors]gds.Tensor

// Front implements gds.Ops: it makes a Call of each operation.
type Front struct{ Enqueue func(Call) }

var _ gds.Ops = Front{}

// enqueue enqueues an operation that has tensors and one factor, if any.
func (f Front) enqueue(o *Op, alpha float32, t ...gds.Tensor) {
	c := Call{Op: o, Alpha: alpha}
	copy(c.Tensors[:], t)
	f.Enqueue(c)
}

func (f Front) Copy(dst, src gds.Tensor)           { f.enqueue(Copy, 0, dst, src) }
func (f Front) Convert(dst, src gds.Tensor)        { f.enqueue(Convert, 0, dst, src) }
func (f Front) Gather(dst, src, index gds.Tensor)  { f.enqueue(Gather, 0, dst, src, index) }
func (f Front) Scatter(dst, src, index gds.Tensor) { f.enqueue(Scatter, 0, dst, src, index) }
func (f Front) Fill(dst gds.Tensor, value float32) { f.enqueue(Fill, value, dst) }

func (f Front) Gemm(transA, transB bool, alpha float32, a, b gds.Tensor, beta float32, c gds.Tensor) {
	f.Enqueue(Call{Op: Gemm, Tensors: tensors{a, b, c}, TransA: transA, TransB: transB, Alpha: alpha, Beta: beta})
}

func (f Front) Transpose(alpha float32, src gds.Tensor, beta float32, dst gds.Tensor) {
	f.Enqueue(Call{Op: Transpose, Tensors: tensors{src, dst}, Alpha: alpha, Beta: beta})
}

func (f Front) AddRow(dst, row gds.Tensor) { f.enqueue(AddRow, 0, dst, row) }
func (f Front) MulRow(dst, row gds.Tensor) { f.enqueue(MulRow, 0, dst, row) }

func (f Front) SumRows(dst gds.Tensor, beta float32, src gds.Tensor) {
	f.Enqueue(Call{Op: SumRows, Tensors: tensors{dst, src}, Beta: beta})
}

func (f Front) Axpy(alpha float32, x, y gds.Tensor) { f.enqueue(Axpy, alpha, x, y) }
func (f Front) ReLU(dst, src gds.Tensor)            { f.enqueue(ReLU, 0, dst, src) }

func (f Front) ReLUGrad(dst, grad, out gds.Tensor, scale float32) {
	f.enqueue(ReLUGrad, scale, dst, grad, out)
}

func (f Front) ELU(dst, src gds.Tensor) { f.enqueue(ELU, 0, dst, src) }

func (f Front) ELUGrad(dst, grad, out gds.Tensor, keep float32) {
	f.enqueue(ELUGrad, keep, dst, grad, out)
}

func (f Front) PReLU(dst, src, slope gds.Tensor) { f.enqueue(PReLU, 0, dst, src, slope) }

func (f Front) PReLUGrad(dst, gradSlope, grad, src, slope gds.Tensor) {
	f.enqueue(PReLUGrad, 0, dst, gradSlope, grad, src, slope)
}

func (f Front) Mul(dst, a, b gds.Tensor) { f.enqueue(Mul, 0, dst, a, b) }

func (f Front) Dropout(dst, src gds.Tensor, p float32, seed uint64) {
	f.Enqueue(Call{Op: Dropout, Tensors: tensors{dst, src}, Alpha: p, Seed: seed})
}

func (f Front) ReLUDropout(dst, src gds.Tensor, p float32, seed uint64) {
	f.Enqueue(Call{Op: ReLUDropout, Tensors: tensors{dst, src}, Alpha: p, Seed: seed})
}

func (f Front) SumSquares(dst, src, mean gds.Tensor) { f.enqueue(SumSquares, 0, dst, src, mean) }

func (f Front) NormalizeColumns(dst, src, mean, variance, gain, shift gds.Tensor, epsilon float32) {
	f.enqueue(NormalizeColumns, epsilon, dst, src, mean, variance, gain, shift)
}

func (f Front) NormalizeColumnsSums(sums, grad, src, mean, variance gds.Tensor, epsilon float32) {
	f.enqueue(NormalizeColumnsSums, epsilon, sums, grad, src, mean, variance)
}

func (f Front) NormalizeColumnsGrad(dst, grad, src, mean, variance, gain, sums gds.Tensor, part, epsilon float32) {
	f.Enqueue(Call{Op: NormalizeColumnsGrad, Tensors: tensors{dst, grad, src, mean, variance, gain, sums},
		Alpha: epsilon, Beta: part})
}

func (f Front) NormalizeRows(dst, stats, src, gain, shift gds.Tensor, epsilon float32) {
	f.enqueue(NormalizeRows, epsilon, dst, stats, src, gain, shift)
}

func (f Front) NormalizeRowsGrad(dst, gradGain, gradShift, grad, src, stats, gain gds.Tensor) {
	f.enqueue(NormalizeRowsGrad, 0, dst, gradGain, gradShift, grad, src, stats, gain)
}

func (f Front) Attention(dst, weights, qkv gds.Tensor, tokens, heads int) {
	f.Enqueue(Call{Op: Attention, Tensors: tensors{dst, weights, qkv}, Tokens: tokens, Heads: heads})
}

func (f Front) AttentionGrad(dst, grad, weights, qkv gds.Tensor, tokens, heads int) {
	f.Enqueue(Call{Op: AttentionGrad, Tensors: tensors{dst, grad, weights, qkv}, Tokens: tokens, Heads: heads})
}

func (f Front) SoftmaxRows(dst, src gds.Tensor) { f.enqueue(SoftmaxRows, 0, dst, src) }

func (f Front) SoftmaxRowsGrad(dst, grad, out gds.Tensor) {
	f.enqueue(SoftmaxRowsGrad, 0, dst, grad, out)
}

func (f Front) WeighTokens(dst, weights, tokensOf gds.Tensor) {
	f.enqueue(WeighTokens, 0, dst, weights, tokensOf)
}

func (f Front) WeighTokensGrad(gradWeights, gradTokens, grad, weights, tokensOf gds.Tensor) {
	f.enqueue(WeighTokensGrad, 0, gradWeights, gradTokens, grad, weights, tokensOf)
}

func (f Front) SumEdges(dst, src, offsets, indices, weights gds.Tensor) {
	f.enqueue(SumEdges, 0, dst, src, offsets, indices, weights)
}

func (f Front) SumEdgesGrad(dst, grad, offsets, indices, weights gds.Tensor) {
	f.enqueue(SumEdgesGrad, 0, dst, grad, offsets, indices, weights)
}

func (f Front) AttendEdges(dst, stats, values, scores, offsets, indices gds.Tensor, slope float32) {
	f.enqueue(AttendEdges, slope, dst, stats, values, scores, offsets, indices)
}

func (f Front) AttendEdgesGrad(gradValues, gradScores, grad, stats, values, scores, offsets, indices gds.Tensor,
	slope float32) {
	f.enqueue(AttendEdgesGrad, slope, gradValues, gradScores, grad, stats, values, scores, offsets, indices)
}

func (f Front) Propagate(dst, src gds.Tensor, p gds.Product) {
	f.Enqueue(Call{Op: Propagate, Tensors: tensors{dst, src, p.Starts, p.Ends, p.Nodes, p.Weights, p.NodeFactors,
		p.RowFactors, p.Blend, p.NotFinite}, Alpha: p.Factor, Beta: p.Theta})
}

func (f Front) Checksum(dst, src gds.Tensor) { f.enqueue(Checksum, 0, dst, src) }

func (f Front) CountSampled(offsets, total, read, nodes gds.Tensor, g *gds.Graph, s gds.Sampling) {
	f.Enqueue(sampled(CountSampled, g, s, offsets, nodes, total, read))
}

func (f Front) SampleEdges(sources, weights, offsets, nodes gds.Tensor, g *gds.Graph, s gds.Sampling) {
	f.Enqueue(sampled(SampleEdges, g, s, offsets, nodes, sources, weights))
}

// Places of the tensors of both operations that sample. No graph is one without tensors, which Check refuses.
const (
	Offsets = iota
	Nodes
	GraphOffsets
	GraphSources
	GraphWeights
	GraphRowFactors
	GraphColumnFactors
	GraphLoops
	GraphSlots
	CachedOffsets
	CachedSources
	CachedWeights
	Sampled // the total, or sources; behind it the bytes read, or weights
)

func sampled(op *Op, g *gds.Graph, s gds.Sampling, offsets, nodes, first, second gds.Tensor) Call {
	if g == nil {
		g = &gds.Graph{}
	}
	return Call{Op: op, Tensors: tensors{offsets, nodes, g.Offsets, g.Sources, g.Weights, g.RowFactors,
		g.ColumnFactors, g.Loops, g.Slots, g.CachedOffsets, g.CachedSources, g.CachedWeights, first, second},
		Mean: g.Mean, AddLoops: g.AddLoops, Sampling: s}
}

func (f Front) Relabel(ids, nodes, count, items gds.Tensor, known int) {
	f.Enqueue(Call{Op: Relabel, Tensors: tensors{ids, nodes, count, items}, Known: known})
}

func (f Front) GatherCached(dst, cached, src, slots, index, hits gds.Tensor) {
	f.enqueue(GatherCached, 0, dst, src, index, cached, slots, hits)
}

func (f Front) SoftmaxCrossEntropy(loss, grad, logits, labels, weights, rows gds.Tensor, scale float32) {
	f.enqueue(SoftmaxCrossEntropy, scale, loss, grad, logits, rows, labels, weights)
}

func (f Front) SigmoidCrossEntropy(loss, grad, logits, labels, rows gds.Tensor, scale float32) {
	f.enqueue(SigmoidCrossEntropy, scale, loss, grad, logits, rows, labels)
}

func (f Front) SquaredError(loss, grad, out, labels, units, rows gds.Tensor, scale float32) {
	f.enqueue(SquaredError, scale, loss, grad, out, rows, labels, units)
}

func (f Front) AbsoluteError(loss, grad, out, labels, units, rows gds.Tensor, scale float32) {
	f.enqueue(AbsoluteError, scale, loss, grad, out, rows, labels, units)
}

func (f Front) CountCorrect(count, logits, labels gds.Tensor) {
	f.enqueue(CountCorrect, 0, count, logits, labels)
}

func (f Front) Adam(param, grad, m, v gds.Tensor, o gds.AdamOptions) {
	f.Enqueue(Call{Op: Adam, Tensors: tensors{param, grad, m, v}, Adam: o})
}

func (f Front) ClipNorm(x gds.Tensor, most float32) { f.enqueue(ClipNorm, most, x) }
