package preprop

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
)

// ErrDevice is returned when the device that a job computes on fails. What was computed is kept, and the
// job can go on on the processor.
var ErrDevice = errors.New("the device fails")

// Device is what computes the products of a job instead of the processor. The bytes of the store are the
// same.
type Device struct {
	Name      string // "cuda:0"
	Reason    string // why it was chosen, in words
	FreeBytes int64  // of its memory; 0: no limit
	Optional  bool   // the processor takes the job if it does not fit on the device, or by the rates below takes longer there
	// How fast bytes come to the device and back, and how fast it adds rows, to predict times; 0: not
	// known, and then nothing is added for the first, and the second is that of the processor.
	LinkBytesPerSecond, GatherBytesPerSecond float64
	// Open opens the device. The job closes it. nil: it is the processor.
	Open func() (gds.Device, error)
}

// deviceEngine computes products on a device. Matrices stay in memory of the host as well, so that all
// else of a job knows nothing of the device: a product reads src there, if the device does not have it
// from the product before, and leaves dst there, block of rows by block of rows.
type deviceEngine struct {
	*DevicePlan
	device  gds.Device
	threads int
	slots   chan *slot
	buffers []gds.Buffer // all, to be freed

	mu             sync.Mutex // of the streams
	up, work, down gds.Stream

	factors   gds.Tensor  // [1,n]
	factorsOf *propagator // that they are of; nil: of none
	source    gds.Buffer  // some columns of src, if matrices do not stay on the device
	copies    map[*matrix]*deviceCopy
	lists     *deviceLists

	moved atomic.Int64 // bytes, both ways
	took  atomic.Int64 // nanoseconds, as the device measured it
}

// deviceCopy is a matrix on the device.
type deviceCopy struct {
	buf   gds.Buffer
	valid bool // it has the rows that the next product needs
}

// slot is memory for one block of rows on its way. The host's is pinned.
type slot struct {
	hostIn, hostOut, in, out gds.Buffer
	blend                    gds.Buffer // rows that are gathered on the device; or nil
	rows                     []uint32   // of the block
	starts, ends             []int64    // of the terms of each
}

// headBytes of what comes back from the device are the number of elements that are not finite.
const headBytes = 64

// openDevice opens the device of the plan, and allocates all of its memory but that of copies.
func openDevice(d *Device, p *DevicePlan, w *work, threads int) (*deviceEngine, error) {
	device, err := d.Open()
	if err != nil {
		return nil, fmt.Errorf("%s: %w: %w", d.Name, ErrDevice, err)
	}
	e := &deviceEngine{DevicePlan: p, device: device, threads: threads, slots: make(chan *slot, p.slots), copies: map[*matrix]*deviceCopy{}}
	for _, s := range []*gds.Stream{&e.up, &e.work, &e.down} {
		if err == nil {
			*s, err = device.NewStream()
		}
	}
	alloc := func(bytes int64, pinned bool) (b gds.Buffer) {
		if err == nil {
			b, err = e.alloc(bytes, pinned)
		}
		return b
	}
	e.factors = gds.NewTensor(alloc(4*w.nodes, false), 1, int(w.nodes), gds.Float32)
	if !p.MatricesOnDevice {
		e.source = alloc(p.sourceBytes, false)
	}
	for range p.slots {
		s := &slot{
			hostIn: alloc(p.inBytes, true), hostOut: alloc(p.outBytes, true),
			in: alloc(p.inBytes, false), out: alloc(p.outBytes, false),
		}
		if p.blendBytes > 0 {
			s.blend = alloc(p.blendBytes, false)
		}
		e.slots <- s
	}
	if p.TopologyOnDevice && err == nil {
		edges := int64(0)
		for _, c := range w.sequences {
			edges = max(edges, w.edgesOf(c.operator.Graph))
		}
		e.lists, err = e.newDeviceLists(w.nodes, edges+w.nodes, w.weighted)
	}
	if err != nil {
		return nil, errors.Join(e.fail(err), e.close())
	}
	return e, nil
}

func (e *deviceEngine) alloc(bytes int64, pinned bool) (gds.Buffer, error) {
	allocate := e.device.Alloc
	if pinned {
		allocate = e.device.AllocPinned
	}
	b, err := allocate(bytes)
	if err == nil {
		e.buffers = append(e.buffers, b)
	}
	return b, err
}

// fail is the error of a device that fails with err.
func (e *deviceEngine) fail(err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("%s: %w: %w (--device cpu goes on on the processor)", e.Name, ErrDevice, err)
}

func (e *deviceEngine) close() error {
	var errs []error
	for _, s := range []gds.Stream{e.up, e.work, e.down} {
		if s != nil {
			errs = append(errs, s.Close())
		}
	}
	for _, b := range e.buffers {
		errs = append(errs, b.Free())
	}
	if e.lists != nil {
		errs = append(errs, e.lists.buf.Free())
	}
	return errors.Join(append(errs, e.device.Close())...)
}

// forget makes the next products read their matrices from memory of the host, which has changed.
func (e *deviceEngine) forget() {
	for _, c := range e.copies {
		c.valid = false
	}
}

// product is one call of deviceEngine.product: see propagator.hopFrom.
type product struct {
	*deviceEngine
	p        *propagator
	dst, src *matrix
	with     *blend
	want     nodeSet
	done     func(cost int64) bool

	columns columnRange // that are computed, of those of the matrices
	last    bool        // of the ranges of columns
	source  gds.Tensor  // [n, columns] of src
	to      *deviceCopy // of dst, or nil
	blended *deviceCopy // of with, or nil
	lists   *deviceLists
	added   atomic.Int64
	reach   atomic.Int64
	failure lowestError
	batches batches
}

// product is propagator.hopFrom on the device. Where it computes some of the columns at a time, and
// pauses before the last of them, no rows are reached; so it does not pause to save them (canSave).
func (e *deviceEngine) product(ctx context.Context, p *propagator, dst, src *matrix, with *blend, want nodeSet, from int64, done func(cost int64, canSave bool) bool) (added, reached int64, err error) {
	n := p.graph.Nodes()
	var to *deviceCopy
	if e.MatricesOnDevice {
		if to, err = e.copyOf(dst); err != nil {
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
	ranges := int64((src.features + e.Columns - 1) / e.Columns)
	for first := 0; first < src.features; first += e.Columns {
		s := &product{deviceEngine: e, p: p, dst: dst, src: src, with: with, want: want, to: to, lists: lists}
		s.done = func(cost int64) bool { return done(cost/ranges, ranges == 1) }
		s.columns = columnRange{first, min(first+e.Columns, src.features)}
		s.last = s.columns.end == src.features
		s.reach.Store(from)
		s.batches.make = func() *batch { return newBatch(p, dst, src, with) }
		if err := s.bring(ctx); err != nil {
			return 0, from, e.fail(err)
		}
		err := s.run(ctx, from)
		switch {
		case s.failure.err != nil:
			return 0, from, s.failure.err
		case err == nil && s.last:
			if to != nil {
				to.valid = from == 0
			}
			return s.added.Load(), n, nil
		case errors.Is(err, errPause) && s.last:
			return s.added.Load(), s.reach.Load(), nil
		case errors.Is(err, errPause):
			return 0, from, nil
		case err != nil:
			return 0, from, err
		}
	}
	return 0, n, nil // of no columns
}

// copyOf is the memory for a matrix on the device.
func (e *deviceEngine) copyOf(m *matrix) (*deviceCopy, error) {
	c := e.copies[m]
	if c == nil {
		buf, err := e.alloc(int64(len(m.buf.Bytes())), false)
		if err != nil {
			return nil, err
		}
		c = &deviceCopy{buf: buf}
		e.copies[m] = c
	}
	return c, nil
}

// bring sees to it that the device has the columns of src, and all of what is blended.
func (s *product) bring(ctx context.Context) error {
	if !s.MatricesOnDevice {
		s.source = gds.NewTensor(s.deviceEngine.source, int(s.p.graph.Nodes()), s.columns.width(), s.src.dtype)
		return s.send(ctx, s.src, s.columns, s.source)
	}
	whole := func(m *matrix) (*deviceCopy, error) {
		c, err := s.copyOf(m)
		if err == nil && !c.valid {
			err = s.send(ctx, m, s.columns, c.tensor(m, s.p.graph.Nodes()))
			c.valid = err == nil
		}
		return c, err
	}
	c, err := whole(s.src)
	if err != nil {
		return err
	}
	s.source = c.tensor(s.src, s.p.graph.Nodes())
	if s.with != nil {
		s.blended, err = whole(s.with.x)
	}
	return err
}

// tensor is a matrix of n rows in its copy.
func (c *deviceCopy) tensor(m *matrix, n int64) gds.Tensor {
	return gds.NewTensor(c.buf, int(n), m.features, m.dtype)
}

// send copies columns of a matrix to the device, through the slots.
func (e *deviceEngine) send(ctx context.Context, m *matrix, columns columnRange, to gds.Tensor) error {
	row := int64(columns.width() * m.dtype.Size())
	n := int64(to.Rows)
	return parallel.For(ctx, e.slotCount(), n, max(1, e.inBytes/row), func(lo, hi int64) error {
		s := <-e.slots
		defer func() { e.slots <- s }()
		m.copyColumns(s.hostIn.Bytes(), columns, lo, hi)
		part := to.Slice(int(lo), int(hi))
		return e.sendBytes(s.hostIn, 0, part.Buf, part.Offset, (hi-lo)*row)
	})
}

// copyColumns copies columns of rows [lo, hi), one row after another.
func (m *matrix) copyColumns(dst []byte, columns columnRange, lo, hi int64) {
	if columns.width() == m.features {
		copy(dst, m.rows(lo, hi))
		return
	}
	size := m.dtype.Size()
	for v := lo; v < hi; v++ {
		dst = dst[copy(dst, m.rows(v, v+1)[columns.first*size:columns.end*size]):]
	}
}

// sendBytes copies bytes of pinned memory, from start on, to a place on the device, and waits for that.
func (e *deviceEngine) sendBytes(from gds.Buffer, start int64, to gds.Buffer, at, bytes int64) error {
	e.mu.Lock()
	begun := e.up.Record()
	e.up.Copy(bytesOf(to, at, bytes), bytesOf(from, start, bytes))
	sent := e.up.Record()
	e.mu.Unlock()
	return e.count(begun, sent, bytes)
}

// count waits for a copy between two events, and counts what it took.
func (e *deviceEngine) count(begun, copied gds.Event, bytes int64) error {
	if err := copied.Wait(context.Background()); err != nil {
		return err
	}
	took, err := copied.Elapsed(begun)
	e.took.Add(int64(took))
	e.moved.Add(bytes)
	return err
}

func bytesOf(b gds.Buffer, at, bytes int64) gds.Tensor {
	return gds.Tensor{Buf: b, Offset: at, Rows: 1, Cols: int(bytes), Stride: int(bytes), DType: gds.Uint8}
}

// slotCount is how many blocks are on their way at once.
func (e *deviceEngine) slotCount() int { return cap(e.slots) }

// sendFactors brings the factors t of a propagator.
func (e *deviceEngine) sendFactors(ctx context.Context, p *propagator) error {
	if e.factorsOf == p || p.t == nil {
		return nil
	}
	e.factorsOf = nil
	err := parallel.For(ctx, e.slotCount(), int64(len(p.t)), e.inBytes/4, func(lo, hi int64) error {
		s := <-e.slots
		defer func() { e.slots <- s }()
		return e.sendBytes(s.hostIn, 0, e.factors.Buf, 4*lo, int64(copy(s.hostIn.Bytes(), dtype.BytesOf(p.t[lo:hi]))))
	})
	if err == nil {
		e.factorsOf = p
	}
	return err
}

// run computes the columns of a range, from row from on.
func (s *product) run(ctx context.Context, from int64) error {
	if s.lists != nil {
		n := s.p.graph.Nodes()
		return parallel.For(ctx, s.slotCount(), n-from, int64(s.blockRows), func(lo, hi int64) error {
			return s.block(from+lo, from+hi, s.lists.terms(from+lo, from+hi), nil)
		})
	}
	return s.each(ctx, s.p.graph, from, func(b *format.Block) error {
		return s.block(b.First, b.First+b.Rows(), b.Edges(), b)
	})
}

// each calls body with blocks of a graph that cover the nodes from a first one on, from several
// goroutines, as topology.each does.
func (e *deviceEngine) each(ctx context.Context, graph topology, from int64, body func(b *format.Block) error) error {
	if g, ok := graph.(*memoryTopology); ok {
		return g.eachTask(ctx, from, e.slotCount(), int64(e.blockTerms), body)
	}
	return graph.each(ctx, from, e.threads, body)
}

// block computes the rows [lo, hi), whose terms are those of b or, if that is nil, on the device.
func (s *product) block(lo, hi, edges int64, b *format.Block) error {
	if err := s.computeRows(lo, hi, b); err != nil {
		return s.failure.report(lo, err) // which counts, even if another block has paused the product
	}
	for most := s.reach.Load(); hi > most && !s.reach.CompareAndSwap(most, hi); {
		most = s.reach.Load()
	}
	if s.done(edges + hi - lo) {
		return errPause
	}
	return nil
}

func (s *product) computeRows(lo, hi int64, b *format.Block) error {
	one := <-s.slots
	defer func() { s.slots <- one }()
	one.clear()
	places := int64(0) // for terms, of which a loop takes one even where none is added
	for v := lo; v < hi; v++ {
		if !s.want.has(v) {
			continue
		}
		need := int64(0)
		if b != nil {
			need = b.Offsets[v+1-b.First] - b.Offsets[v-b.First] + 1
			if need > int64(s.blockTerms) { // a list that the device has no room for
				if err := s.compute(one, b); err != nil {
					return err
				}
				if err := s.onHost(v, b); err != nil {
					return err
				}
				places = 0
				continue
			}
		}
		if len(one.rows) == s.blockRows || places+need > int64(s.blockTerms) {
			if err := s.compute(one, b); err != nil {
				return err
			}
			places = 0
		}
		one.rows = append(one.rows, uint32(v))
		one.starts = append(one.starts, places)
		places += need
	}
	return s.compute(one, b)
}

func (one *slot) clear() { one.rows, one.starts, one.ends = one.rows[:0], one.starts[:0], one.ends[:0] }

// onHost computes a row on the processor, and gives it to the device.
func (s *product) onHost(v int64, b *format.Block) error {
	rows := s.batches.get()
	t := s.p.terms(b, v)
	if err := rows.addHub(context.Background(), t, &s.batches, s.threads); err != nil {
		return err
	}
	s.batches.put(rows)
	if s.last {
		s.added.Add(int64(t.len()))
	}
	if s.to == nil {
		return nil
	}
	row := s.dst.rows(v, v+1)
	buf, err := s.device.AllocPinned(int64(len(row)))
	if err != nil {
		return s.fail(err)
	}
	copy(buf.Bytes(), row)
	return s.fail(errors.Join(s.sendBytes(buf, 0, s.to.buf, v*int64(len(row)), int64(len(row))), buf.Free()))
}
