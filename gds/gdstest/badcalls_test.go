package gdstest

import (
	"context"
	"strings"

	"github.com/hopfeed/hopfeed/gds"
)

// badCall enqueues something that must poison the stream. The tensors are
// 3x4 and 4x3 float32 matrices, three labels of class 0, and a count.
type badCall struct {
	name, operation string
	call            func(s gds.Stream, x, y, labels, count gds.Tensor)
}

var badCalls = []badCall{
	{"a tensor ends after its buffer", "Fill", func(s gds.Stream, x, y, labels, count gds.Tensor) {
		s.Fill(gds.NewTensor(x.Buf, 300, 4, gds.Float32), 0)
	}},
	{"a row ends after its buffer", "Fill", func(s gds.Stream, x, y, labels, count gds.Tensor) {
		s.Fill(gds.NewTensor(x.Buf, 1, 300, gds.Float32), 0)
	}},
	{"a tensor starts before its buffer", "Fill", func(s gds.Stream, x, y, labels, count gds.Tensor) {
		x.Offset = -4
		s.Fill(x, 0)
	}},
	{"a tensor's size overflows", "Fill", func(s gds.Stream, x, y, labels, count gds.Tensor) {
		x.Rows, x.Stride = 1<<61, 1<<31
		s.Fill(x, 0)
	}},
	{"a tensor has fewer than no rows", "SumRows", func(s gds.Stream, x, y, labels, count gds.Tensor) {
		s.SumRows(x.Slice(0, 1), 0, x.Slice(2, 1))
	}},
	{"a tensor lies across its elements", "Fill", func(s gds.Stream, x, y, labels, count gds.Tensor) {
		x.Offset = 2
		s.Fill(x.Slice(0, 1), 0)
	}},
	{"rows overlap", "Fill", func(s gds.Stream, x, y, labels, count gds.Tensor) {
		x.Stride = 3
		s.Fill(x, 0)
	}},
	{"there is no buffer", "Fill", func(s gds.Stream, x, y, labels, count gds.Tensor) {
		s.Fill(gds.NewTensor(nil, 3, 4, gds.Float32), 0)
	}},
	{"the buffer is of another device", "Fill", func(s gds.Stream, x, y, labels, count gds.Tensor) {
		s.Fill(gds.NewTensor(foreign{x.Buf}, 3, 4, gds.Float32), 0)
	}},
	{"the element type is wrong", "ReLU", func(s gds.Stream, x, y, labels, count gds.Tensor) { s.ReLU(labels, labels) }},
	{"integers are filled with a number", "Fill", func(s gds.Stream, x, y, labels, count gds.Tensor) { s.Fill(count, 1) }},
	{"memory to copy from is of another kind of device", "Copy", func(s gds.Stream, x, y, labels, count gds.Tensor) {
		s.Copy(x, gds.NewTensor(foreign{x.Buf}, 3, 4, gds.Float32))
	}},
	{"shapes to copy differ", "Copy", func(s gds.Stream, x, y, labels, count gds.Tensor) { s.Copy(x, y) }},
	{"types to copy differ", "Copy", func(s gds.Stream, x, y, labels, count gds.Tensor) { s.Copy(labels, x.Slice(0, 1).Columns(0, 3)) }},
	{"integers are converted", "Convert", func(s gds.Stream, x, y, labels, count gds.Tensor) { s.Convert(x.Slice(0, 1).Columns(0, 3), labels) }},
	{"shapes to convert differ", "Convert", func(s gds.Stream, x, y, labels, count gds.Tensor) {
		y.DType = gds.Float16
		s.Convert(x, y)
	}},
	{"an index is out of range", "Gather", func(s gds.Stream, x, y, labels, count gds.Tensor) {
		labels.DType = gds.Uint32
		s.Gather(x, gds.NewTensor(y.Buf, 0, 4, gds.Float32), labels)
	}},
	{"an index of 64 bits is out of range", "Gather", func(s gds.Stream, x, y, labels, count gds.Tensor) {
		s.Gather(x.Slice(0, 2), gds.NewTensor(y.Buf, 0, 4, gds.Float32), count)
	}},
	{"an index of 64 bits is negative", "Gather", func(s gds.Stream, x, y, labels, count gds.Tensor) {
		s.Gather(x.Slice(0, 1), x, gds.NewTensor(y.Buf, 1, 7, gds.Int64).Columns(6, 7)) // all bits are set after y
	}},
	{"an index is of another length", "Gather", func(s gds.Stream, x, y, labels, count gds.Tensor) {
		labels.DType = gds.Uint32
		s.Gather(y, y, labels)
	}},
	{"an index is signed", "Gather", func(s gds.Stream, x, y, labels, count gds.Tensor) { s.Gather(x, x, labels) }},
	{"a row to scatter to is out of range", "Scatter", func(s gds.Stream, x, y, labels, count gds.Tensor) {
		labels.DType = gds.Uint32
		s.Scatter(gds.NewTensor(y.Buf, 0, 4, gds.Float32), x, labels)
	}},
	{"rows to scatter are others than those of the index", "Scatter", func(s gds.Stream, x, y, labels, count gds.Tensor) {
		labels.DType = gds.Uint32
		s.Scatter(y, y, labels)
	}},
	{"an index to scatter by is signed", "Scatter", func(s gds.Stream, x, y, labels, count gds.Tensor) { s.Scatter(x, x, labels) }},
	{"inner dimensions differ", "Gemm", func(s gds.Stream, x, y, labels, count gds.Tensor) { s.Gemm(false, false, 1, x, x, 0, x) }},
	{"inner dimensions differ once transposed", "Gemm", func(s gds.Stream, x, y, labels, count gds.Tensor) { s.Gemm(true, false, 1, x, y, 0, x) }},
	{"a product has another shape", "Gemm", func(s gds.Stream, x, y, labels, count gds.Tensor) { s.Gemm(false, false, 1, x, y, 0, x) }},
	{"a transposed matrix has another shape", "Transpose", func(s gds.Stream, x, y, labels, count gds.Tensor) { s.Transpose(1, x, 0, x) }},
	{"a row is too short", "AddRow", func(s gds.Stream, x, y, labels, count gds.Tensor) { s.AddRow(x, y.Slice(0, 1)) }},
	{"a row is two", "AddRow", func(s gds.Stream, x, y, labels, count gds.Tensor) { s.AddRow(y, y.Slice(0, 2)) }},
	{"a row of factors is too short", "MulRow", func(s gds.Stream, x, y, labels, count gds.Tensor) { s.MulRow(x, y.Slice(0, 1)) }},
	{"a row of factors is two", "MulRow", func(s gds.Stream, x, y, labels, count gds.Tensor) { s.MulRow(y, y.Slice(0, 2)) }},
	{"shapes to add differ", "Axpy", func(s gds.Stream, x, y, labels, count gds.Tensor) { s.Axpy(1, x, y) }},
	{"sums of rows are too few", "SumRows", func(s gds.Stream, x, y, labels, count gds.Tensor) { s.SumRows(y.Slice(0, 1), 0, x) }},
	{"gradient and output differ in shape", "ReLUGrad", func(s gds.Stream, x, y, labels, count gds.Tensor) { s.ReLUGrad(x, x, y, 1) }},
	{"everything above zero is dropped", "ReLUDropout", func(s gds.Stream, x, y, labels, count gds.Tensor) { s.ReLUDropout(x, x, 1, 0) }},
	{"everything is dropped", "Dropout", func(s gds.Stream, x, y, labels, count gds.Tensor) { s.Dropout(x, x, 1, 0) }},
	{"less than nothing is dropped", "Dropout", func(s gds.Stream, x, y, labels, count gds.Tensor) { s.Dropout(x, x, -0.1, 0) }},
	{"a slope is a row", "PReLU", func(s gds.Stream, x, y, labels, count gds.Tensor) { s.PReLU(x, x, x.Slice(0, 1)) }},
	{"a slope's gradient is a row", "PReLUGrad", func(s gds.Stream, x, y, labels, count gds.Tensor) {
		s.PReLUGrad(x, y.Slice(0, 1), x, x, y.Slice(0, 1).Columns(0, 1))
	}},
	{"factors differ in shape", "Mul", func(s gds.Stream, x, y, labels, count gds.Tensor) { s.Mul(x, x, y) }},
	{"a mean is too short", "SumSquares", func(s gds.Stream, x, y, labels, count gds.Tensor) { s.SumSquares(y.Slice(0, 1), y, x.Slice(0, 1)) }},
	{"a gain is too long", "NormalizeColumns", func(s gds.Stream, x, y, labels, count gds.Tensor) {
		row := y.Slice(0, 1)
		s.NormalizeColumns(y, y, row, row, x.Slice(0, 1), row, 1)
	}},
	{"sums of columns are too few", "NormalizeColumnsSums", func(s gds.Stream, x, y, labels, count gds.Tensor) {
		row := y.Slice(0, 1)
		s.NormalizeColumnsSums(x.Slice(0, 1), y, y, row, row, 1)
	}},
	{"sums of columns are those of fewer", "NormalizeColumnsGrad", func(s gds.Stream, x, y, labels, count gds.Tensor) {
		row := y.Slice(0, 1)
		s.NormalizeColumnsGrad(y, y, y, row, row, row, x.Slice(0, 1), 1, 1)
	}},
	{"there is one statistic of a row", "NormalizeRows", func(s gds.Stream, x, y, labels, count gds.Tensor) {
		s.NormalizeRows(y, y.Columns(0, 1), y, y.Slice(0, 1), y.Slice(0, 1), 1)
	}},
	{"a gain's gradient is too short", "NormalizeRowsGrad", func(s gds.Stream, x, y, labels, count gds.Tensor) {
		row := x.Slice(0, 1)
		s.NormalizeRowsGrad(x, y.Slice(0, 1), row, x, x, x.Columns(0, 2), row)
	}},
	{"there are no tokens", "Attention", func(s gds.Stream, x, y, labels, count gds.Tensor) { s.Attention(x, x, y, 0, 1) }},
	{"heads do not divide tokens", "Attention", func(s gds.Stream, x, y, labels, count gds.Tensor) {
		s.Attention(y.Columns(0, 1), y, y, 1, 2)
	}},
	{"weights are too few", "Attention", func(s gds.Stream, x, y, labels, count gds.Tensor) {
		s.Attention(y.Columns(0, 1), y.Columns(0, 2), y, 1, 1)
	}},
	{"a gradient has the shape of the output", "AttentionGrad", func(s gds.Stream, x, y, labels, count gds.Tensor) {
		s.AttentionGrad(y.Columns(0, 1), y.Columns(0, 1), y.Columns(0, 1), y, 1, 1)
	}},
	{"rows to take the softmax of differ", "SoftmaxRows", func(s gds.Stream, x, y, labels, count gds.Tensor) { s.SoftmaxRows(x, y) }},
	{"a softmax and its gradient differ", "SoftmaxRowsGrad", func(s gds.Stream, x, y, labels, count gds.Tensor) { s.SoftmaxRowsGrad(x, x, y) }},
	{"tokens have no weight", "WeighTokens", func(s gds.Stream, x, y, labels, count gds.Tensor) {
		s.WeighTokens(x.Columns(0, 2), x.Columns(0, 1), x)
	}},
	{"tokens have another gradient", "WeighTokensGrad", func(s gds.Stream, x, y, labels, count gds.Tensor) {
		s.WeighTokensGrad(x.Columns(0, 2), x.Columns(0, 2), x.Columns(0, 2), x.Columns(0, 2), x)
	}},
	{"a label is no class", "SoftmaxCrossEntropy", func(s gds.Stream, x, y, labels, count gds.Tensor) {
		s.SoftmaxCrossEntropy(x.Slice(0, 1).Columns(0, 1), gds.Tensor{}, gds.NewTensor(x.Buf, 3, 0, gds.Float32), labels, gds.Tensor{}, gds.Tensor{}, 1)
	}},
	{"labels are too few", "SoftmaxCrossEntropy", func(s gds.Stream, x, y, labels, count gds.Tensor) {
		s.SoftmaxCrossEntropy(x.Slice(0, 1).Columns(0, 1), gds.Tensor{}, y, labels, gds.Tensor{}, gds.Tensor{}, 1)
	}},
	{"a gradient has another shape", "SoftmaxCrossEntropy", func(s gds.Stream, x, y, labels, count gds.Tensor) {
		s.SoftmaxCrossEntropy(y.Slice(0, 1).Columns(0, 1), y, x, labels, gds.Tensor{}, gds.Tensor{}, 1)
	}},
	{"class weights are too few", "SoftmaxCrossEntropy", func(s gds.Stream, x, y, labels, count gds.Tensor) {
		s.SoftmaxCrossEntropy(y.Slice(0, 1).Columns(0, 1), gds.Tensor{}, x, labels, y.Slice(0, 1), gds.Tensor{}, 1)
	}},
	{"row weights are too many", "SoftmaxCrossEntropy", func(s gds.Stream, x, y, labels, count gds.Tensor) {
		s.SoftmaxCrossEntropy(y.Slice(0, 1).Columns(0, 1), gds.Tensor{}, x, labels, gds.Tensor{}, x.Slice(0, 1), 1)
	}},
	{"row weights are a column", "SquaredError", func(s gds.Stream, x, y, labels, count gds.Tensor) {
		s.SquaredError(y.Slice(0, 1).Columns(0, 1), gds.Tensor{}, x, x, y.Slice(0, 1).Columns(0, x.Cols), x.Columns(0, 1), 1)
	}},
	{"labels are of 32 bits", "SigmoidCrossEntropy", func(s gds.Stream, x, y, labels, count gds.Tensor) {
		s.SigmoidCrossEntropy(y.Slice(0, 1).Columns(0, 1), gds.Tensor{}, x.Slice(0, 1).Columns(0, 3), labels, gds.Tensor{}, 1)
	}},
	{"labels are of another shape", "SigmoidCrossEntropy", func(s gds.Stream, x, y, labels, count gds.Tensor) {
		y.DType = gds.Int8
		s.SigmoidCrossEntropy(x.Slice(0, 1).Columns(0, 1), gds.Tensor{}, x, y, gds.Tensor{}, 1)
	}},
	{"values are of another shape", "SquaredError", func(s gds.Stream, x, y, labels, count gds.Tensor) {
		s.SquaredError(x.Slice(0, 1).Columns(0, 1), gds.Tensor{}, x, y, x.Slice(0, 1), gds.Tensor{}, 1)
	}},
	{"units are too few", "AbsoluteError", func(s gds.Stream, x, y, labels, count gds.Tensor) {
		s.AbsoluteError(y.Slice(0, 1).Columns(0, 1), gds.Tensor{}, x, x, y.Slice(0, 1), gds.Tensor{}, 1)
	}},
	{"offsets go beyond the edges", "SumEdgesGrad", func(s gds.Stream, x, y, labels, count gds.Tensor) {
		s.SumEdgesGrad(x, x.Slice(0, 1), gds.NewTensor(y.Buf, 1, 14, gds.Uint32).Columns(11, 13), labelIndices(labels), x.Slice(0, 1).Columns(0, 3)) // all bits are set after y
	}},
	{"there are as many offsets as destinations", "SumEdges", func(s gds.Stream, x, y, labels, count gds.Tensor) {
		s.SumEdges(x, x, labelIndices(labels), labelIndices(labels), x.Slice(0, 1).Columns(0, 3))
	}},
	{"weights of edges are too few", "SumEdges", func(s gds.Stream, x, y, labels, count gds.Tensor) {
		s.SumEdges(x.Slice(0, 2), x, labelIndices(labels), labelIndices(labels), x.Slice(0, 1).Columns(0, 2))
	}},
	{"indices are signed", "SumEdges", func(s gds.Stream, x, y, labels, count gds.Tensor) {
		s.SumEdges(x.Slice(0, 2), x, labelIndices(labels), labels, x.Slice(0, 1).Columns(0, 3))
	}},
	{"a node has one score", "AttendEdges", func(s gds.Stream, x, y, labels, count gds.Tensor) {
		s.AttendEdges(x.Slice(0, 2), x.Slice(0, 2).Columns(0, 1), x, x.Columns(0, 1), labelIndices(labels), labelIndices(labels), 0)
	}},
	{"heads do not divide values", "AttendEdges", func(s gds.Stream, x, y, labels, count gds.Tensor) {
		s.AttendEdges(y.Slice(0, 2), x.Slice(0, 2), y.Slice(0, 3), x, labelIndices(labels), labelIndices(labels), 0)
	}},
	{"there are more destinations than sources", "AttendEdges", func(s gds.Stream, x, y, labels, count gds.Tensor) {
		s.AttendEdges(x.Slice(0, 2), y.Slice(0, 2).Columns(0, 2), x.Slice(0, 1), y.Slice(0, 1).Columns(0, 2), labelIndices(labels), labelIndices(labels), 0)
	}},
	{"a gradient of scores is of fewer nodes", "AttendEdgesGrad", func(s gds.Stream, x, y, labels, count gds.Tensor) {
		two := y.Slice(0, 2).Columns(0, 2)
		s.AttendEdgesGrad(x, two, x.Slice(0, 2), two, x, y.Slice(0, 3).Columns(0, 2), labelIndices(labels), labelIndices(labels), 0)
	}},
	{"a checksum is of rows that do not touch", "Checksum", func(s gds.Stream, x, y, labels, count gds.Tensor) {
		s.Checksum(labelIndices(labels).Columns(0, 1), x.Columns(0, 3))
	}},
	{"a checksum is signed", "Checksum", func(s gds.Stream, x, y, labels, count gds.Tensor) { s.Checksum(labels.Columns(0, 1), x) }},
	{"there are two checksums", "Checksum", func(s gds.Stream, x, y, labels, count gds.Tensor) {
		s.Checksum(labelIndices(labels).Columns(0, 2), x)
	}},
	{"ends of rows are too few", "Propagate", func(s gds.Stream, x, y, labels, count gds.Tensor) {
		s.Propagate(x.Slice(0, 2), x, gds.Product{Starts: count, Ends: count.Columns(0, 1), Nodes: labelIndices(labels)})
	}},
	{"rows of a product do not touch", "Propagate", func(s gds.Stream, x, y, labels, count gds.Tensor) {
		s.Propagate(x.Slice(0, 2).Columns(0, 3), y, gds.Product{Starts: count, Ends: count, Nodes: labelIndices(labels)})
	}},
	{"a product is of integers", "Propagate", func(s gds.Stream, x, y, labels, count gds.Tensor) {
		y.DType = gds.Int32
		s.Propagate(gds.NewTensor(x.Buf, 2, 3, gds.Float32), y, gds.Product{Starts: count, Ends: count, Nodes: labelIndices(labels)})
	}},
	{"factors of nodes are too few", "Propagate", func(s gds.Stream, x, y, labels, count gds.Tensor) {
		s.Propagate(gds.NewTensor(x.Buf, 2, 3, gds.Float32), y, gds.Product{Starts: count, Ends: count, Nodes: labelIndices(labels), NodeFactors: x.Slice(0, 1).Columns(0, 3)})
	}},
	{"what is blended has another shape", "Propagate", func(s gds.Stream, x, y, labels, count gds.Tensor) {
		s.Propagate(gds.NewTensor(x.Buf, 2, 3, gds.Float32), y, gds.Product{Starts: count, Ends: count, Nodes: labelIndices(labels), Blend: y})
	}},
	{"there is no graph to sample", "CountSampled", func(s gds.Stream, x, y, labels, count gds.Tensor) {
		s.CountSampled(labelIndices(labels), count.Columns(0, 1), labelIndices(labels).Columns(0, 2), nil, gds.Sampling{Fanout: 1})
	}},
	{"offsets of sampled edges are as many as nodes", "CountSampled", func(s gds.Stream, x, y, labels, count gds.Tensor) {
		s.CountSampled(labelIndices(labels), count.Columns(0, 1), labelIndices(labels), &gds.Graph{Offsets: count}, gds.Sampling{Fanout: 1})
	}},
	{"sampled edges have fewer weights than sources", "SampleEdges", func(s gds.Stream, x, y, labels, count gds.Tensor) {
		s.SampleEdges(labelIndices(labels), x.Slice(0, 1).Columns(0, 2), labelIndices(labels), labelIndices(labels).Columns(0, 2), &gds.Graph{Offsets: count}, gds.Sampling{Fanout: 1})
	}},
	{"a graph has offsets of 32 bits", "CountSampled", func(s gds.Stream, x, y, labels, count gds.Tensor) {
		s.CountSampled(labelIndices(labels), count.Columns(0, 1), labelIndices(labels).Columns(0, 2), &gds.Graph{Offsets: labels}, gds.Sampling{Fanout: 1})
	}},
	{"there is no room for new nodes", "Relabel", func(s gds.Stream, x, y, labels, count gds.Tensor) {
		i := labelIndices(labels)
		s.Relabel(i, i, i.Columns(0, 1), i, 1)
	}},
	{"a cache has other columns", "GatherCached", func(s gds.Stream, x, y, labels, count gds.Tensor) {
		s.GatherCached(x.Slice(0, 2), y.Slice(0, 2), x, labelIndices(labels), labelIndices(labels).Columns(0, 2), count.Columns(0, 1))
	}},
	{"a matrix is clipped", "ClipNorm", func(s gds.Stream, x, y, labels, count gds.Tensor) { s.ClipNorm(x, 1) }},
	{"labels are floats", "CountCorrect", func(s gds.Stream, x, y, labels, count gds.Tensor) { s.CountCorrect(count, x, y.Slice(0, 1)) }},
	{"a count is a float", "CountCorrect", func(s gds.Stream, x, y, labels, count gds.Tensor) {
		s.CountCorrect(y.Slice(0, 1).Columns(0, 2), x, labels)
	}},
	{"a count is of 32 bits", "CountCorrect", func(s gds.Stream, x, y, labels, count gds.Tensor) {
		count.DType = gds.Int32
		s.CountCorrect(count, x, labels)
	}},
	{"a count has no room for rows with labels", "CountCorrect", func(s gds.Stream, x, y, labels, count gds.Tensor) {
		s.CountCorrect(count.Columns(0, 1), x, labels)
	}},
	{"there is a step before the first", "Adam", func(s gds.Stream, x, y, labels, count gds.Tensor) {
		s.Adam(x, x, x, x, gds.AdamOptions{Step: 0})
	}},
	{"moments are too few", "Adam", func(s gds.Stream, x, y, labels, count gds.Tensor) {
		s.Adam(x, x, x.Slice(0, 1), x, gds.AdamOptions{Step: 1})
	}},
}

// labelIndices are three zeros, as indices.
func labelIndices(labels gds.Tensor) gds.Tensor { labels.DType = gds.Uint32; return labels }

// foreign is a buffer that the device knows nothing of.
type foreign struct{ gds.Buffer }

var badCallTests = append([]test{
	{"memory that was freed poisons the stream", func(b *fixture) {
		s := b.newStream()
		buffer, err := b.device.Alloc(64)
		if err != nil {
			b.Fatal(err)
		}
		if err := buffer.Free(); err != nil {
			b.Fatal(err)
		}
		s.Fill(gds.NewTensor(buffer, 4, 4, gds.Float32), 0)
		if err := s.Close(); err == nil || !strings.Contains(err.Error(), "Fill") {
			b.Errorf("filling freed memory: %v", err)
		}
	}},
	{"pinned memory is for Copy alone", func(b *fixture) {
		s := b.newStream()
		s.Fill(wholeOf(b.pin(64)), 0)
		if err := s.Close(); err == nil || !strings.Contains(err.Error(), "Fill") {
			b.Errorf("filling pinned memory: %v", err)
		}
	}},
	{"an event of nobody's poisons the stream", func(b *fixture) {
		s := b.newStream()
		s.WaitEvent(nil)
		if err := s.Close(); err == nil {
			b.Error("the stream waited for nil")
		}
	}},
	{"tensors without elements need no memory", func(b *fixture) {
		var none gds.Tensor
		x := b.floats(shifted, 1, 3, []float32{1, 2, 3})
		b.stream.Fill(none, 1)
		b.stream.Copy(none, none)
		b.stream.Gather(none, none, none)
		b.stream.Scatter(none, none, none)
		b.stream.ReLU(none, none)
		b.stream.AddRow(gds.Tensor{Cols: 3}, x.Tensor)
		b.stream.MulRow(gds.Tensor{Cols: 3}, x.Tensor)
		b.stream.SumRows(x.Tensor, 1, gds.Tensor{Cols: 3})
		if got := b.read(x); got[0] != 1 || got[1] != 2 || got[2] != 3 {
			b.Errorf("got %v", got)
		}
	}},
}, badCallsAsTests()...)

func badCallsAsTests() []test {
	var tests []test
	for _, c := range badCalls {
		tests = append(tests, test{c.name, func(b *fixture) {
			x, y := b.floats(dense, 3, 4, make([]float32, 12)), b.floats(dense, 4, 3, make([]float32, 12))
			labels, count := b.array(dense, 1, 3, gds.Int32, make([]byte, 12)), b.array(dense, 1, 2, gds.Int64, make([]byte, 16))
			s := b.newStream()
			c.call(s, x.Tensor, y.Tensor, labels.Tensor, count.Tensor)
			err := s.Synchronize(context.Background())
			if err == nil || !strings.Contains(err.Error(), c.operation) {
				b.Errorf("want an error that names %s, got %v", c.operation, err)
			}
			if closed := s.Close(); (closed == nil) != (err == nil) {
				b.Errorf("closed with %v", closed)
			}
			for _, a := range []*array{x, y, labels, count} {
				b.bytes(a) // nothing around them was written
			}
		}})
	}
	return tests
}
