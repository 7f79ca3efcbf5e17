package device

import (
	"cmp"
	"context"
	"errors"

	"github.com/hopfeed/hopfeed/format"
	"github.com/hopfeed/hopfeed/gds"
	"github.com/hopfeed/hopfeed/internal/dtype"
	"github.com/hopfeed/hopfeed/preprop/plan"
	"github.com/hopfeed/hopfeed/preprop/product"
)

// packed are the parts of a transfer in the memory that is copied to the device at once.
type packed struct {
	host  []byte
	in    gds.Buffer
	bytes int64
}

// vector adds a vector of n elements: it returns its memory, and the tensor that it becomes.
func vector[T dtype.Number](p *packed, n int, t gds.DType) ([]T, gds.Tensor) {
	at := p.bytes
	p.bytes = plan.Aligned(at + int64(n*t.Size()))
	return dtype.As[T](p.host[at:][:n*t.Size()]), gds.Tensor{Buf: p.in, Offset: at, Rows: 1, Cols: n, Stride: n,
		DType: t}
}

// column is a vector as a matrix of one column.
func column(t gds.Tensor) gds.Tensor {
	t.Rows, t.Cols, t.Stride = t.Cols, 1, 1
	return t
}

// compute computes the rows of a transfer, whose terms are in b or, if that is nil, on the device, and stores them in
// dst. The transfer is empty then.
func (s *call) compute(one *transfer, b *format.NodeRange) error {
	defer one.clear()
	k, f := len(one.rows), s.columns.Width()
	if k == 0 || f == 0 {
		return nil
	}
	lo := int64(one.rows[0])
	hi := lo + int64(k)
	consecutive := int64(one.rows[k-1])+1 == hi
	p, in := &packed{host: one.hostIn.Bytes(), in: one.in}, gds.Product{}
	if s.p.T != nil {
		in.NodeFactors = s.factors.Columns(0, len(s.p.T))
	}
	if s.p.S != nil {
		var factors []float32
		factors, in.RowFactors = vector[float32](p, k, gds.Float32)
		for i, v := range one.rows {
			factors[i] = s.p.S[v]
		}
	}
	var byRow gds.Tensor
	if !consecutive && (s.to != nil || s.lists != nil) {
		var rows []uint32
		rows, byRow = vector[uint32](p, k, gds.Uint32)
		copy(rows, one.rows)
	}
	added := int64(0)
	if b != nil {
		added = s.pack(p, &in, one, b)
	} else {
		for _, v := range one.rows {
			added += int64(s.lists.lengths[v])
		}
	}
	if s.with != nil {
		in.Factor, in.Theta = s.with.Factor, s.with.Theta
		if s.blended.Buf == nil {
			x := s.with.X
			rows, blend := vector[byte](p, k*f*x.DType.Size(), gds.Uint8)
			for i, v := range one.rows {
				x.CopyColumns(rows[i*f*x.DType.Size():], s.columns, int64(v), int64(v)+1)
			}
			in.Blend = gds.Tensor{Buf: p.in, Offset: blend.Offset, Rows: k, Cols: f, Stride: f, DType: x.DType}
		}
	}
	sent := p.bytes
	dst := gds.Tensor{Buf: one.out, Offset: plan.HeadBytes, Rows: k, Cols: f, Stride: f, DType: s.dst.DType}
	in.NotFinite = gds.NewTensor(one.out, 1, 1, gds.Int64)
	back := plan.HeadBytes + gds.Bytes(k, f, s.dst.DType)

	s.mu.Lock()
	begun := s.up.Record()
	if sent > 0 {
		s.up.Copy(bytesOf(one.in, 0, sent), bytesOf(one.hostIn, 0, sent))
	}
	arrived := s.up.Record()
	s.work.WaitEvent(arrived)
	switch {
	case s.lists == nil:
	case consecutive:
		in.Starts, in.Ends = s.lists.starts.Columns(int(lo), int(hi)), s.lists.ends.Columns(int(lo), int(hi))
	default:
		_, in.Starts = vector[int64](p, k, gds.Int64)
		_, in.Ends = vector[int64](p, k, gds.Int64)
		s.work.Gather(column(in.Starts), column(s.lists.starts), byRow)
		s.work.Gather(column(in.Ends), column(s.lists.ends), byRow)
	}
	if s.lists != nil {
		in.Nodes, in.Weights = s.lists.nodes, s.lists.weights
	}
	if s.blended.Buf != nil {
		if in.Blend = s.blended.Slice(int(lo), int(hi)); !consecutive {
			in.Blend = gds.NewTensor(one.blend, k, f, s.blended.DType)
			s.work.Gather(in.Blend, s.blended, byRow)
		}
	}
	s.work.Fill(in.NotFinite, 0)
	s.work.Propagate(dst, s.source, in)
	if s.to != nil {
		if to := s.to.tensor(s.dst, s.p.Graph.Nodes()); consecutive {
			s.work.Copy(to.Slice(int(lo), int(hi)), dst)
		} else {
			s.work.Scatter(to, dst, byRow)
		}
	}
	s.down.WaitEvent(s.work.Record())
	computed := s.down.Record()
	s.down.Copy(bytesOf(one.hostOut, 0, back), bytesOf(one.out, 0, back))
	returned := s.down.Record()
	s.mu.Unlock()

	if err := cmp.Or(s.count(begun, arrived, sent), s.count(computed, returned, back)); err != nil {
		return s.fail(err)
	}
	rows := one.hostOut.Bytes()[plan.HeadBytes:back]
	if dtype.Int64s(one.hostOut.Bytes()[:8])[0] > 0 {
		return s.notFinite(one, rows)
	}
	s.keep(one, rows, consecutive)
	if s.last {
		s.Added.Add(added)
	}
	return nil
}

// pack adds the terms of the rows of a transfer, in the places that it has for them, and returns how many there are.
func (s *call) pack(p *packed, in *gds.Product, one *transfer, b *format.NodeRange) (added int64) {
	k := len(one.rows)
	last := int64(one.rows[k-1]) - b.First
	places := int(one.starts[k-1] + b.Offsets[last+1] - b.Offsets[last] + 1)
	starts, ofStarts := vector[int64](p, k, gds.Int64)
	ends, ofEnds := vector[int64](p, k, gds.Int64)
	nodes, ofNodes := vector[uint32](p, places, gds.Uint32)
	in.Starts, in.Ends, in.Nodes = ofStarts, ofEnds, ofNodes
	var weights []float32
	if b.Weights != nil {
		weights, in.Weights = vector[float32](p, places, gds.Float32)
	}
	for i, v := range one.rows {
		t, start := s.p.Terms(b, int64(v)), one.starts[i]
		end := start + int64(t.Len())
		starts[i], ends[i] = start, end
		product.Splice(nodes[start:end], t.Neighbors, t.Node, t.Loop, 0)
		if weights != nil {
			product.Splice(weights[start:end], t.Weights, 1, t.Loop, 0)
		}
		added += end - start
	}
	return added
}

// keep stores computed rows in dst.
func (s *call) keep(one *transfer, rows []byte, consecutive bool) {
	if consecutive && s.columns.Width() == s.dst.Features {
		copy(s.dst.Rows(int64(one.rows[0]), int64(one.rows[0])+int64(len(one.rows))), rows)
		return
	}
	size := s.dst.DType.Size()
	row := s.columns.Width() * size
	for i, v := range one.rows {
		copy(s.dst.Rows(int64(v), int64(v)+1)[s.columns.First*size:], rows[i*row:][:row])
	}
}

// errOtherBits is the error of a device that finds numbers not finite where the processor does not.
var errOtherBits = errors.New("it computed infinity or NaN where the processor computes another number")

// notFinite reports the first computed row that has an element that is not finite. The processor computes it again,
// and says which element it is.
func (s *call) notFinite(one *transfer, rows []byte) error {
	row := len(rows) / len(one.rows)
	values := make([]float32, row/s.dst.DType.Size())
	for i, v := range one.rows {
		dtype.Decode(values, rows[i*row:][:row], s.dst.DType)
		if product.FirstNotFinite(values) < 0 {
			continue
		}
		err := s.p.Graph.InOrder(context.Background(), int64(v), int64(v)+1, func(b *format.NodeRange) error {
			return s.addRow(s.batches.Make(), &product.Range{NodeRange: *b}, int64(v))
		})
		if err != nil {
			return err
		}
	}
	return s.fail(errOtherBits)
}
