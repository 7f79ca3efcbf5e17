package gdstest

import (
	"context"
	"strings"

	"github.com/hopfeed/hopfeed/gds"
)

// badCall enqueues something that must poison the stream.
type badCall struct {
	name, operation string
	call            func(c *calls)
}

// calls are a stream and operands: float32 matrices x [3,4] and y [4,3], three labels of class 0, and a count.
type calls struct {
	gds.Stream
	x, y, labels, count gds.Tensor
}

// indices are three zeros.
func (c *calls) indices() gds.Tensor {
	indices := c.labels
	indices.DType = gds.Uint32
	return indices
}

var badCalls = []badCall{
	{"a tensor ends after its buffer", "Fill", func(c *calls) {
		c.Fill(gds.NewTensor(c.x.Buf, 300, 4, gds.Float32), 0)
	}},
	{"a row ends after its buffer", "Fill", func(c *calls) { c.Fill(gds.NewTensor(c.x.Buf, 1, 300, gds.Float32), 0) }},
	{"a tensor starts before its buffer", "Fill", func(c *calls) {
		c.x.Offset = -4
		c.Fill(c.x, 0)
	}},
	{"a tensor's size overflows", "Fill", func(c *calls) {
		c.x.Rows, c.x.Stride = 1<<61, 1<<31
		c.Fill(c.x, 0)
	}},
	{"a tensor has fewer than no rows", "SumRows", func(c *calls) { c.SumRows(c.x.Slice(0, 1), 0, c.x.Slice(2, 1)) }},
	{"a tensor lies across its elements", "Fill", func(c *calls) {
		c.x.Offset = 2
		c.Fill(c.x.Slice(0, 1), 0)
	}},
	{"rows overlap", "Fill", func(c *calls) {
		c.x.Stride = 3
		c.Fill(c.x, 0)
	}},
	{"there is no buffer", "Fill", func(c *calls) { c.Fill(gds.NewTensor(nil, 3, 4, gds.Float32), 0) }},
	{"the buffer is of another device", "Fill", func(c *calls) {
		c.Fill(gds.NewTensor(foreign{c.x.Buf}, 3, 4, gds.Float32), 0)
	}},
	{"the element type is wrong", "ReLU", func(c *calls) { c.ReLU(c.labels, c.labels) }},
	{"integers are filled with a number", "Fill", func(c *calls) { c.Fill(c.count, 1) }},
	{"memory to copy from is of another kind of device", "Copy", func(c *calls) {
		c.Copy(c.x, gds.NewTensor(foreign{c.x.Buf}, 3, 4, gds.Float32))
	}},
	{"shapes to copy differ", "Copy", func(c *calls) { c.Copy(c.x, c.y) }},
	{"types to copy differ", "Copy", func(c *calls) { c.Copy(c.labels, c.x.Slice(0, 1).Columns(0, 3)) }},
	{"integers are converted", "Convert", func(c *calls) { c.Convert(c.x.Slice(0, 1).Columns(0, 3), c.labels) }},
	{"shapes to convert differ", "Convert", func(c *calls) {
		c.y.DType = gds.Float16
		c.Convert(c.x, c.y)
	}},
	{"an index is out of range", "Gather", func(c *calls) {
		c.Gather(c.x, gds.NewTensor(c.y.Buf, 0, 4, gds.Float32), c.indices())
	}},
	{"an index of 64 bits is out of range", "Gather", func(c *calls) {
		c.Gather(c.x.Slice(0, 2), gds.NewTensor(c.y.Buf, 0, 4, gds.Float32), c.count)
	}},
	{"an index of 64 bits is negative", "Gather", func(c *calls) {
		// all bits are set after y
		c.Gather(c.x.Slice(0, 1), c.x, gds.NewTensor(c.y.Buf, 1, 7, gds.Int64).Columns(6, 7))
	}},
	{"an index is of another length", "Gather", func(c *calls) { c.Gather(c.y, c.y, c.indices()) }},
	{"an index is signed", "Gather", func(c *calls) { c.Gather(c.x, c.x, c.labels) }},
	{"a row to scatter to is out of range", "Scatter", func(c *calls) {
		c.Scatter(gds.NewTensor(c.y.Buf, 0, 4, gds.Float32), c.x, c.indices())
	}},
	{"the number of rows to scatter is not that of the index", "Scatter", func(c *calls) {
		c.Scatter(c.y, c.y, c.indices())
	}},
	{"an index to scatter by is signed", "Scatter", func(c *calls) { c.Scatter(c.x, c.x, c.labels) }},
	{"inner dimensions differ", "Gemm", func(c *calls) { c.Gemm(false, false, 1, c.x, c.x, 0, c.x) }},
	{"inner dimensions differ once transposed", "Gemm", func(c *calls) { c.Gemm(true, false, 1, c.x, c.y, 0, c.x) }},
	{"a product has another shape", "Gemm", func(c *calls) { c.Gemm(false, false, 1, c.x, c.y, 0, c.x) }},
	{"a transposed matrix has another shape", "Transpose", func(c *calls) { c.Transpose(1, c.x, 0, c.x) }},
	{"a row is too short", "AddRow", func(c *calls) { c.AddRow(c.x, c.y.Slice(0, 1)) }},
	{"a row is two", "AddRow", func(c *calls) { c.AddRow(c.y, c.y.Slice(0, 2)) }},
	{"a row of factors is too short", "MulRow", func(c *calls) { c.MulRow(c.x, c.y.Slice(0, 1)) }},
	{"a row of factors is two", "MulRow", func(c *calls) { c.MulRow(c.y, c.y.Slice(0, 2)) }},
	{"shapes to add differ", "Axpy", func(c *calls) { c.Axpy(1, c.x, c.y) }},
	{"sums of rows are too few", "SumRows", func(c *calls) { c.SumRows(c.y.Slice(0, 1), 0, c.x) }},
	{"gradient and output differ in shape", "ReLUGrad", func(c *calls) { c.ReLUGrad(c.x, c.x, c.y, 1) }},
	{"gradient and output of ELU differ in shape", "ELUGrad", func(c *calls) { c.ELUGrad(c.x, c.x, c.y, 1) }},
	{"the source of ELU has another shape", "ELU", func(c *calls) { c.ELU(c.x, c.y) }},
	{"everything above zero is dropped", "ReLUDropout", func(c *calls) { c.ReLUDropout(c.x, c.x, 1, 0) }},
	{"everything is dropped", "Dropout", func(c *calls) { c.Dropout(c.x, c.x, 1, 0) }},
	{"less than nothing is dropped", "Dropout", func(c *calls) { c.Dropout(c.x, c.x, -0.1, 0) }},
	{"a slope is a row", "PReLU", func(c *calls) { c.PReLU(c.x, c.x, c.x.Slice(0, 1)) }},
	{"a slope's gradient is a row", "PReLUGrad", func(c *calls) {
		c.PReLUGrad(c.x, c.y.Slice(0, 1), c.x, c.x, c.y.Slice(0, 1).Columns(0, 1))
	}},
	{"factors differ in shape", "Mul", func(c *calls) { c.Mul(c.x, c.x, c.y) }},
	{"a mean is too short", "SumSquares", func(c *calls) { c.SumSquares(c.y.Slice(0, 1), c.y, c.x.Slice(0, 1)) }},
	{"a gain is too long", "NormalizeColumns", func(c *calls) {
		row := c.y.Slice(0, 1)
		c.NormalizeColumns(c.y, c.y, row, row, c.x.Slice(0, 1), row, 1)
	}},
	{"sums of columns are too few", "NormalizeColumnsSums", func(c *calls) {
		row := c.y.Slice(0, 1)
		c.NormalizeColumnsSums(c.x.Slice(0, 1), c.y, c.y, row, row, 1)
	}},
	{"sums of columns are those of fewer", "NormalizeColumnsGrad", func(c *calls) {
		row := c.y.Slice(0, 1)
		c.NormalizeColumnsGrad(c.y, c.y, c.y, row, row, row, c.x.Slice(0, 1), 1, 1)
	}},
	{"there is one statistic of a row", "NormalizeRows", func(c *calls) {
		c.NormalizeRows(c.y, c.y.Columns(0, 1), c.y, c.y.Slice(0, 1), c.y.Slice(0, 1), 1)
	}},
	{"a gain's gradient is too short", "NormalizeRowsGrad", func(c *calls) {
		row := c.x.Slice(0, 1)
		c.NormalizeRowsGrad(c.x, c.y.Slice(0, 1), row, c.x, c.x, c.x.Columns(0, 2), row)
	}},
	{"there are no tokens", "Attention", func(c *calls) { c.Attention(c.x, c.x, c.y, 0, 1) }},
	{"heads do not divide tokens", "Attention", func(c *calls) { c.Attention(c.y.Columns(0, 1), c.y, c.y, 1, 2) }},
	{"weights are too few", "Attention", func(c *calls) {
		c.Attention(c.y.Columns(0, 1), c.y.Columns(0, 2), c.y, 1, 1)
	}},
	{"a gradient has the shape of the output", "AttentionGrad", func(c *calls) {
		c.AttentionGrad(c.y.Columns(0, 1), c.y.Columns(0, 1), c.y.Columns(0, 1), c.y, 1, 1)
	}},
	{"rows to take the softmax of differ", "SoftmaxRows", func(c *calls) { c.SoftmaxRows(c.x, c.y) }},
	{"a softmax and its gradient differ", "SoftmaxRowsGrad", func(c *calls) { c.SoftmaxRowsGrad(c.x, c.x, c.y) }},
	{"tokens have no weight", "WeighTokens", func(c *calls) {
		c.WeighTokens(c.x.Columns(0, 2), c.x.Columns(0, 1), c.x)
	}},
	{"tokens have another gradient", "WeighTokensGrad", func(c *calls) {
		c.WeighTokensGrad(c.x.Columns(0, 2), c.x.Columns(0, 2), c.x.Columns(0, 2), c.x.Columns(0, 2), c.x)
	}},
	{"a label is no class", "SoftmaxCrossEntropy", func(c *calls) {
		c.SoftmaxCrossEntropy(c.x.Slice(0, 1).Columns(0, 1), gds.Tensor{}, gds.NewTensor(c.x.Buf, 3, 0, gds.Float32),
			c.labels, gds.Tensor{}, gds.Tensor{}, 1)
	}},
	{"labels are too few", "SoftmaxCrossEntropy", func(c *calls) {
		c.SoftmaxCrossEntropy(c.x.Slice(0, 1).Columns(0, 1), gds.Tensor{}, c.y, c.labels, gds.Tensor{}, gds.Tensor{}, 1)
	}},
	{"a gradient has another shape", "SoftmaxCrossEntropy", func(c *calls) {
		c.SoftmaxCrossEntropy(c.y.Slice(0, 1).Columns(0, 1), c.y, c.x, c.labels, gds.Tensor{}, gds.Tensor{}, 1)
	}},
	{"class weights are too few", "SoftmaxCrossEntropy", func(c *calls) {
		c.SoftmaxCrossEntropy(c.y.Slice(0, 1).Columns(0, 1), gds.Tensor{}, c.x, c.labels, c.y.Slice(0, 1), gds.Tensor{},
			1)
	}},
	{"row weights are too many", "SoftmaxCrossEntropy", func(c *calls) {
		c.SoftmaxCrossEntropy(c.y.Slice(0, 1).Columns(0, 1), gds.Tensor{}, c.x, c.labels, gds.Tensor{}, c.x.Slice(0, 1),
			1)
	}},
	{"row weights are a column", "SquaredError", func(c *calls) {
		c.SquaredError(c.y.Slice(0, 1).Columns(0, 1), gds.Tensor{}, c.x, c.x, c.y.Slice(0, 1).Columns(0, c.x.Cols),
			c.x.Columns(0, 1), 1)
	}},
	{"labels are of 32 bits", "SigmoidCrossEntropy", func(c *calls) {
		c.SigmoidCrossEntropy(c.y.Slice(0, 1).Columns(0, 1), gds.Tensor{}, c.x.Slice(0, 1).Columns(0, 3), c.labels,
			gds.Tensor{}, 1)
	}},
	{"labels are of another shape", "SigmoidCrossEntropy", func(c *calls) {
		c.y.DType = gds.Int8
		c.SigmoidCrossEntropy(c.x.Slice(0, 1).Columns(0, 1), gds.Tensor{}, c.x, c.y, gds.Tensor{}, 1)
	}},
	{"values are of another shape", "SquaredError", func(c *calls) {
		c.SquaredError(c.x.Slice(0, 1).Columns(0, 1), gds.Tensor{}, c.x, c.y, c.x.Slice(0, 1), gds.Tensor{}, 1)
	}},
	{"units are too few", "AbsoluteError", func(c *calls) {
		c.AbsoluteError(c.y.Slice(0, 1).Columns(0, 1), gds.Tensor{}, c.x, c.x, c.y.Slice(0, 1), gds.Tensor{}, 1)
	}},
	{"offsets go beyond the edges", "SumEdgesGrad", func(c *calls) {
		// all bits are set after y
		c.SumEdgesGrad(c.x, c.x.Slice(0, 1), gds.NewTensor(c.y.Buf, 1, 14, gds.Uint32).Columns(11, 13), c.indices(),
			c.x.Slice(0, 1).Columns(0, 3))
	}},
	{"there are as many offsets as destinations", "SumEdges", func(c *calls) {
		c.SumEdges(c.x, c.x, c.indices(), c.indices(), c.x.Slice(0, 1).Columns(0, 3))
	}},
	{"weights of edges are too few", "SumEdges", func(c *calls) {
		c.SumEdges(c.x.Slice(0, 2), c.x, c.indices(), c.indices(), c.x.Slice(0, 1).Columns(0, 2))
	}},
	{"indices are signed", "SumEdges", func(c *calls) {
		c.SumEdges(c.x.Slice(0, 2), c.x, c.indices(), c.labels, c.x.Slice(0, 1).Columns(0, 3))
	}},
	{"a node has one score", "AttendEdges", func(c *calls) {
		c.AttendEdges(c.x.Slice(0, 2), c.x.Slice(0, 2).Columns(0, 1), c.x, c.x.Columns(0, 1), c.indices(), c.indices(),
			0)
	}},
	{"heads do not divide values", "AttendEdges", func(c *calls) {
		c.AttendEdges(c.y.Slice(0, 2), c.x.Slice(0, 2), c.y.Slice(0, 3), c.x, c.indices(), c.indices(), 0)
	}},
	{"there are more destinations than sources", "AttendEdges", func(c *calls) {
		c.AttendEdges(c.x.Slice(0, 2), c.y.Slice(0, 2).Columns(0, 2), c.x.Slice(0, 1), c.y.Slice(0, 1).Columns(0, 2),
			c.indices(), c.indices(), 0)
	}},
	{"a gradient of scores is of fewer nodes", "AttendEdgesGrad", func(c *calls) {
		two := c.y.Slice(0, 2).Columns(0, 2)
		c.AttendEdgesGrad(c.x, two, c.x.Slice(0, 2), two, c.x, c.y.Slice(0, 3).Columns(0, 2), c.indices(), c.indices(),
			0)
	}},
	{"a checksum is of rows that do not touch", "Checksum", func(c *calls) {
		c.Checksum(c.indices().Columns(0, 1), c.x.Columns(0, 3))
	}},
	{"a checksum is signed", "Checksum", func(c *calls) { c.Checksum(c.labels.Columns(0, 1), c.x) }},
	{"there are two checksums", "Checksum", func(c *calls) { c.Checksum(c.indices().Columns(0, 2), c.x) }},
	{"ends of rows are too few", "Propagate", func(c *calls) {
		c.Propagate(c.x.Slice(0, 2), c.x, gds.Product{Starts: c.count, Ends: c.count.Columns(0, 1), Nodes: c.indices()})
	}},
	{"rows of a product do not touch", "Propagate", func(c *calls) {
		c.Propagate(c.x.Slice(0, 2).Columns(0, 3), c.y, gds.Product{Starts: c.count, Ends: c.count, Nodes: c.indices()})
	}},
	{"a product is of integers", "Propagate", func(c *calls) {
		c.y.DType = gds.Int32
		c.Propagate(gds.NewTensor(c.x.Buf, 2, 3, gds.Float32), c.y,
			gds.Product{Starts: c.count, Ends: c.count, Nodes: c.indices()})
	}},
	{"factors of nodes are too few", "Propagate", func(c *calls) {
		c.Propagate(gds.NewTensor(c.x.Buf, 2, 3, gds.Float32), c.y,
			gds.Product{Starts: c.count, Ends: c.count, Nodes: c.indices(), NodeFactors: c.x.Slice(0, 1).Columns(0, 3)})
	}},
	{"what is blended has another shape", "Propagate", func(c *calls) {
		c.Propagate(gds.NewTensor(c.x.Buf, 2, 3, gds.Float32), c.y,
			gds.Product{Starts: c.count, Ends: c.count, Nodes: c.indices(), Blend: c.y})
	}},
	{"there is no graph to sample", "CountSampled", func(c *calls) {
		c.CountSampled(c.indices(), c.count.Columns(0, 1), c.count.Columns(0, 1), c.indices().Columns(0, 2), nil,
			gds.Sampling{Fanout: 1})
	}},
	{"offsets of sampled edges are as many as nodes", "CountSampled", func(c *calls) {
		c.CountSampled(c.indices(), c.count.Columns(0, 1), c.count.Columns(0, 1), c.indices(),
			&gds.Graph{Offsets: c.count}, gds.Sampling{Fanout: 1})
	}},
	{"sampled edges have fewer weights than sources", "SampleEdges", func(c *calls) {
		c.SampleEdges(c.indices(), c.x.Slice(0, 1).Columns(0, 2), c.indices(), c.indices().Columns(0, 2),
			&gds.Graph{Offsets: c.count}, gds.Sampling{Fanout: 1})
	}},
	{"a graph has offsets of 32 bits", "CountSampled", func(c *calls) {
		c.CountSampled(c.indices(), c.count.Columns(0, 1), c.count.Columns(0, 1), c.indices().Columns(0, 2),
			&gds.Graph{Offsets: c.labels}, gds.Sampling{Fanout: 1})
	}},
	{"places of cached lists lack the lists", "CountSampled", func(c *calls) {
		c.CountSampled(c.indices(), c.count.Columns(0, 1), c.count.Columns(0, 1), c.indices().Columns(0, 2),
			&gds.Graph{Offsets: c.count, Slots: c.indices().Columns(0, 1)}, gds.Sampling{Fanout: 1})
	}},
	{"bytes that are read are counted twice", "CountSampled", func(c *calls) {
		c.CountSampled(c.indices(), c.count.Columns(0, 1), c.count, c.indices().Columns(0, 2),
			&gds.Graph{Offsets: c.count}, gds.Sampling{Fanout: 1})
	}},
	{"there is no room for new nodes", "Relabel", func(c *calls) {
		i := c.indices()
		c.Relabel(i, i, i.Columns(0, 1), i, 1)
	}},
	{"a cache has other columns", "GatherCached", func(c *calls) {
		c.GatherCached(c.x.Slice(0, 2), c.y.Slice(0, 2), c.x, c.indices(), c.indices().Columns(0, 2),
			c.count.Columns(0, 1))
	}},
	{"a matrix is clipped", "ClipNorm", func(c *calls) { c.ClipNorm(c.x, 1) }},
	{"labels are floats", "CountCorrect", func(c *calls) { c.CountCorrect(c.count, c.x, c.y.Slice(0, 1)) }},
	{"a count is a float", "CountCorrect", func(c *calls) {
		c.CountCorrect(c.y.Slice(0, 1).Columns(0, 2), c.x, c.labels)
	}},
	{"a count is of 32 bits", "CountCorrect", func(c *calls) {
		c.count.DType = gds.Int32
		c.CountCorrect(c.count, c.x, c.labels)
	}},
	{"a count has no room for rows with labels", "CountCorrect", func(c *calls) {
		c.CountCorrect(c.count.Columns(0, 1), c.x, c.labels)
	}},
	{"there is a step before the first", "Adam", func(c *calls) {
		c.Adam(c.x, c.x, c.x, c.x, gds.AdamOptions{Step: 0})
	}},
	{"moments are too few", "Adam", func(c *calls) {
		c.Adam(c.x, c.x, c.x.Slice(0, 1), c.x, gds.AdamOptions{Step: 1})
	}},
}

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
			labels, count := b.array(dense, 1, 3, gds.Int32, make([]byte, 12)),
				b.array(dense, 1, 2, gds.Int64, make([]byte, 16))
			s := b.newStream()
			c.call(&calls{s, x.Tensor, y.Tensor, labels.Tensor, count.Tensor})
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
