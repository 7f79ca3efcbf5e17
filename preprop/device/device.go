// Package device computes the products of package product on a device. The bits are the same.
package device

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"

	"github.com/hopfeed/hopfeed/format"
	"github.com/hopfeed/hopfeed/gds"
	"github.com/hopfeed/hopfeed/internal/dtype"
	"github.com/hopfeed/hopfeed/internal/parallel"
	"github.com/hopfeed/hopfeed/preprop/plan"
	"github.com/hopfeed/hopfeed/preprop/product"
)

// ErrDevice is returned when the device that a job computes on fails. What was computed is kept, and the job can go
// on on the processor.
var ErrDevice = errors.New("the device fails")

// Engine computes products on a device. Matrices stay in memory of the host as well, so that all else of a job knows
// nothing of the device: a product reads src there, if the device does not have it from the product before, and
// leaves dst there, transfer by transfer.
type Engine struct {
	*plan.DevicePlan
	device  gds.Device
	threads int
	free    chan *transfer
	memory  gds.Memory

	mu             sync.Mutex // of the streams
	up, work, down gds.Stream

	factors   gds.Tensor          // [1,sources]
	factorsOf *product.Propagator // that they are of; nil: of none
	source    gds.Buffer          // some columns of src, if matrices do not stay on the device
	copies    map[*product.Matrix]*copyOnDevice
	lists     *lists

	Moved atomic.Int64 // bytes, both ways
	Took  atomic.Int64 // nanoseconds, as the device measured it
}

// copyOnDevice is a matrix on the device.
type copyOnDevice struct {
	buf   gds.Buffer
	valid bool // it has the rows that the next product needs
}

// transfer is memory for rows on their way to the device and back. The host's is pinned.
type transfer struct {
	hostIn, hostOut, in, out gds.Buffer
	blend                    gds.Buffer // rows that are gathered on the device; or nil
	rows                     []uint32   // that are computed
	starts                   []int64    // of the terms of each
}

// Open opens the device of the plan, and allocates all of its memory but that of copies.
func Open(d *plan.Device, p *plan.DevicePlan, w *plan.Work, threads int) (*Engine, error) {
	device, err := d.Open()
	if err != nil {
		return nil, fmt.Errorf("%s: %w: %w", d.Name, ErrDevice, err)
	}
	e := &Engine{DevicePlan: p, device: device, threads: threads, free: make(chan *transfer, p.Transfers),
		memory: gds.Memory{Device: device}, copies: map[*product.Matrix]*copyOnDevice{}}
	for _, s := range []*gds.Stream{&e.up, &e.work, &e.down} {
		if err == nil {
			*s, err = device.NewStream()
		}
	}
	const in, out = "rows that are sent", "rows that come back"
	e.factors = e.memory.Matrix("factors", 1, int(w.Sources), gds.Float32)
	if !p.MatricesOnDevice {
		e.source = e.memory.Alloc("columns of a matrix", p.SourceBytes)
	}
	for range p.Transfers {
		s := &transfer{hostIn: e.memory.Pin(in, p.InBytes), hostOut: e.memory.Pin(out, p.OutBytes),
			in: e.memory.Alloc(in, p.InBytes), out: e.memory.Alloc(out, p.OutBytes)}
		if p.BlendBytes > 0 {
			s.blend = e.memory.Alloc("rows that are blended", p.BlendBytes)
		}
		e.free <- s
	}
	if p.TopologyOnDevice {
		edges := int64(0)
		for _, c := range w.Sequences {
			edges = max(edges, w.EdgesOf(c.Operator.Graph))
		}
		err = errors.Join(err, e.allocateLists(w.Destinations, edges+w.Destinations, w.Weighted))
	}
	if err = errors.Join(err, e.memory.Err); err != nil {
		return nil, errors.Join(e.fail(err), e.Close())
	}
	return e, nil
}

// fail is the error of a device that fails with err.
func (e *Engine) fail(err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("%s: %w: %w (--device cpu goes on on the processor)", e.Name, ErrDevice, err)
}

func (e *Engine) Close() error {
	var errs []error
	for _, s := range []gds.Stream{e.up, e.work, e.down} {
		if s != nil {
			errs = append(errs, s.Close())
		}
	}
	errs = append(errs, e.memory.Free())
	if e.lists != nil {
		errs = append(errs, e.lists.buf.Free())
	}
	return errors.Join(append(errs, e.device.Close())...)
}

// Forget makes the next products read their matrices from memory of the host, which has changed.
func (e *Engine) Forget() {
	for _, c := range e.copies {
		c.valid = false
	}
}

// call is one call of Engine.Product.
type call struct {
	*Engine
	p        *product.Propagator
	dst, src *product.Matrix
	with     *product.Blend
	want     product.NodeSet
	done     func(cost int64) bool

	columns product.ColumnRange // of the matrices, that this call computes
	last    bool                // of the ranges of columns
	source  gds.Tensor          // [n, columns] of src
	to      *copyOnDevice       // of dst, or nil
	blended gds.Tensor          // with, if it is on the device
	lists   *lists
	product.Walk
	batches product.Batches
}

// Product is Propagator.HopFrom on the device. If columns are computed in several ranges, a pause before the last range
// leaves no row with all columns. So such a product pauses to end the job, never to save a checkpoint (canSave).
func (e *Engine) Product(ctx context.Context, p *product.Propagator, dst, src *product.Matrix, with *product.Blend,
	want product.NodeSet, from int64, done func(cost int64, canSave bool) bool) (added, reached int64, err error) {
	n := p.Graph.Nodes()
	var to *copyOnDevice
	if e.MatricesOnDevice {
		if to, err = e.copyOf(dst, n); err != nil {
			return 0, from, e.fail(err)
		}
		to.valid = false
	}
	if err := e.sendFactors(ctx, p); err != nil {
		return 0, from, e.fail(err)
	}
	lists, err := e.sendLists(ctx, p)
	if err != nil {
		return 0, from, err
	}
	ranges := int64((src.Features + e.Columns - 1) / e.Columns)
	reached = n
	for first := 0; first < src.Features; first += e.Columns {
		s := &call{Engine: e, p: p, dst: dst, src: src, with: with, want: want, to: to, lists: lists}
		s.done = func(cost int64) bool { return done(cost/ranges, ranges == 1) }
		s.columns = product.ColumnRange{First: first, End: min(first+e.Columns, src.Features)}
		s.last = s.columns.End == src.Features
		s.batches.Make = func() *product.Batch { return product.NewBatch(p, dst, src, with) }
		if err := s.bring(ctx); err != nil {
			return 0, from, e.fail(err)
		}
		added, reached, err = s.End(from, n, s.run(ctx, from))
		if err != nil || reached < n && !s.last {
			return 0, from, err
		}
		if s.last && to != nil {
			to.valid = from == 0 && reached == n
		}
	}
	return added, reached, nil
}

// copyOf is the memory for a matrix of so many rows on the device. The host's may be larger.
func (e *Engine) copyOf(m *product.Matrix, rows int64) (*copyOnDevice, error) {
	c := e.copies[m]
	if c == nil {
		c = &copyOnDevice{buf: e.memory.Alloc("a matrix", gds.Bytes(int(rows), max(e.Columns, m.Features), m.DType))}
		e.copies[m] = c
	}
	return c, e.memory.Err
}

// bring sees to it that the device has the columns of src, and all of the blended matrix.
func (s *call) bring(ctx context.Context) error {
	if !s.MatricesOnDevice {
		s.source = gds.NewTensor(s.Engine.source, int(s.p.Graph.Sources()), s.columns.Width(), s.src.DType)
		return s.send(ctx, s.src, s.columns, s.source)
	}
	whole := func(m *product.Matrix, rows int64) (tensor gds.Tensor, err error) {
		c, err := s.copyOf(m, rows)
		if err == nil {
			tensor = c.tensor(m, rows)
		}
		if err == nil && !c.valid {
			err = s.send(ctx, m, s.columns, tensor)
			c.valid = err == nil
		}
		return tensor, err
	}
	var err error
	if s.source, err = whole(s.src, s.p.Graph.Sources()); err == nil && s.with != nil {
		s.blended, err = whole(s.with.X, s.p.Graph.Nodes())
	}
	return err
}

// tensor is a matrix of n rows in its copy.
func (c *copyOnDevice) tensor(m *product.Matrix, n int64) gds.Tensor {
	return gds.NewTensor(c.buf, int(n), m.Features, m.DType)
}

// send copies columns of a matrix to the device.
func (e *Engine) send(ctx context.Context, m *product.Matrix, columns product.ColumnRange, to gds.Tensor) error {
	return e.sendRows(ctx, to, func(dst []byte, lo, hi int64) { m.CopyColumns(dst, columns, lo, hi) })
}

// sendRows copies rows, which copyRows writes, to a matrix on the device, through transfers.
func (e *Engine) sendRows(ctx context.Context, to gds.Tensor, copyRows func(dst []byte, lo, hi int64)) error {
	row := gds.Bytes(1, to.Cols, to.DType)
	return parallel.For(ctx, e.Transfers, int64(to.Rows), max(1, e.InBytes/row), func(lo, hi int64) error {
		s := <-e.free
		defer func() { e.free <- s }()
		copyRows(s.hostIn.Bytes(), lo, hi)
		part := to.Slice(int(lo), int(hi))
		return e.sendBytes(s.hostIn, 0, part.Buf, part.Offset, (hi-lo)*row)
	})
}

// sendBytes copies bytes of pinned memory, from start on, to a place on the device, and waits for that.
func (e *Engine) sendBytes(from gds.Buffer, start int64, to gds.Buffer, at, bytes int64) error {
	e.mu.Lock()
	begun := e.up.Record()
	e.up.Copy(bytesOf(to, at, bytes), bytesOf(from, start, bytes))
	sent := e.up.Record()
	e.mu.Unlock()
	return e.count(begun, sent, bytes)
}

// count waits for a copy between two events, and counts its time.
func (e *Engine) count(begun, copied gds.Event, bytes int64) error {
	if err := copied.Wait(context.Background()); err != nil {
		return err
	}
	took, err := copied.Elapsed(begun)
	e.Took.Add(int64(took))
	e.Moved.Add(bytes)
	return err
}

func bytesOf(b gds.Buffer, at, bytes int64) gds.Tensor {
	return gds.Tensor{Buf: b, Offset: at, Rows: 1, Cols: int(bytes), Stride: int(bytes), DType: gds.Uint8}
}

// sendFactors brings the factors t of a propagator.
func (e *Engine) sendFactors(ctx context.Context, p *product.Propagator) error {
	if e.factorsOf == p || p.T == nil {
		return nil
	}
	e.factorsOf = nil
	err := e.sendRows(ctx, column(e.factors).Slice(0, len(p.T)), func(dst []byte, lo, hi int64) {
		copy(dst, dtype.BytesOf(p.T[lo:hi]))
	})
	if err == nil {
		e.factorsOf = p
	}
	return err
}

// run computes the columns of a range, from row from on.
func (s *call) run(ctx context.Context, from int64) error {
	if s.lists != nil {
		n := s.p.Graph.Nodes()
		return parallel.For(ctx, s.Transfers, n-from, int64(s.TransferRows), func(lo, hi int64) error {
			return s.nodeRange(from+lo, from+hi, s.lists.terms(from+lo, from+hi), nil)
		})
	}
	return s.Each(ctx, s.p.Graph, from, func(b *format.NodeRange) error {
		return s.nodeRange(b.First, b.First+b.Rows(), b.Edges(), b)
	})
}

// Each calls body with node ranges of a graph that cover the nodes from a first one on, from several goroutines, as
// Topology.Each does.
func (e *Engine) Each(ctx context.Context, graph product.Topology, from int64,
	body func(b *format.NodeRange) error) error {
	nodes := func(b *product.Range) error { return body(&b.NodeRange) }
	if g, ok := graph.(*product.MemoryTopology); ok {
		return g.EachTask(ctx, from, e.Transfers, int64(e.TransferTerms), nil, nodes)
	}
	return graph.Each(ctx, from, e.threads, nil, nodes)
}

// nodeRange computes the rows [lo, hi). Their terms are in b; if b is nil, the device has them.
func (s *call) nodeRange(lo, hi, edges int64, b *format.NodeRange) error {
	return s.Range(lo, hi, s.computeRows(lo, hi, b), func() bool { return s.done(edges + hi - lo) })
}

func (s *call) computeRows(lo, hi int64, b *format.NodeRange) error {
	one := <-s.free
	defer func() { s.free <- one }()
	one.clear()
	places := int64(0) // for terms; each row has a place for a self-loop, used or not
	for v := lo; v < hi; v++ {
		if !s.want.Has(v) {
			continue
		}
		need := int64(0)
		if b != nil {
			need = b.Offsets[v+1-b.First] - b.Offsets[v-b.First] + 1
		}
		if len(one.rows) == s.TransferRows || places+need > int64(s.TransferTerms) {
			if err := s.compute(one, b); err != nil {
				return err
			}
			places = 0
		}
		if need > int64(s.TransferTerms) { // a list that the device has no room for
			if err := s.onHost(v, b); err != nil {
				return err
			}
			continue
		}
		one.rows = append(one.rows, uint32(v))
		one.starts = append(one.starts, places)
		places += need
	}
	return s.compute(one, b)
}

func (one *transfer) clear() {
	one.rows, one.starts = one.rows[:0], one.starts[:0]
}

// addRow computes a row on the processor.
func (s *call) addRow(rows *product.Batch, nodes *product.Range, v int64) error {
	rows.Begin(nodes)
	if err := rows.Add(context.Background(), nodes, v, &s.batches, s.threads); err != nil {
		return err
	}
	return rows.Flush()
}

// onHost computes a row on the processor, and gives it to the device.
func (s *call) onHost(v int64, b *format.NodeRange) error {
	rows := s.batches.Get()
	rows.Added = 0
	if err := s.addRow(rows, &product.Range{NodeRange: *b}, v); err != nil {
		return err
	}
	s.batches.Put(rows)
	if s.last {
		s.Added.Add(rows.Added)
	}
	if s.to == nil {
		return nil
	}
	row := s.dst.Rows(v, v+1)
	buf, err := s.device.AllocPinned(int64(len(row)))
	if err != nil {
		return s.fail(err)
	}
	copy(buf.Bytes(), row)
	return s.fail(errors.Join(s.sendBytes(buf, 0, s.to.buf, v*int64(len(row)), int64(len(row))), buf.Free()))
}
