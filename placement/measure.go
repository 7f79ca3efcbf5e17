package placement

import (
	"context"
	"errors"
	"time"

	"github.com/hopfeed/hopfeed/format"
	"github.com/hopfeed/hopfeed/gds"
	"github.com/hopfeed/hopfeed/internal/dtype"
	"github.com/hopfeed/hopfeed/internal/kernel"
	"github.com/hopfeed/hopfeed/internal/parallel"
	"github.com/hopfeed/hopfeed/internal/rng"
	"github.com/hopfeed/hopfeed/internal/units"
)

// How much is moved to find how fast, and for how long at least. A rate is the
// median of some: what else runs will go on while training does.
const (
	sampleBytes = 256 << 20 // of memory: more than most caches hold
	probeTime   = 5 * time.Millisecond
	linkTime    = 40 * time.Millisecond // so long that bursts do not count
	movedBytes  = 1 << 20               // by a thread at a time
	probeRounds = 5
)

// Sample says what moves while training.
type Sample struct {
	Store     *format.Dir
	Matrices  []format.MatrixID
	Region    format.Region // whose chunks are read
	Rows      int64         // that are held where the input is in memory
	BatchRows int
	ChunkRows int // that move together where chunks are reshuffled
	Threads   int
}

// Measure finds the rates at which rows of a store move on this machine, in a
// fraction of a second, by the operations and reads that loaders use. What there
// is no memory for is left out.
func Measure(ctx context.Context, device gds.Device, s Sample) (r Rates, err error) {
	layout := s.Store.Layout()
	p := &probe{
		Sample: s, ctx: ctx, device: device, unified: device.Info().Unified, now: time.Now,
		columns: len(s.Matrices) * layout.Features, dtype: layout.DType,
		batch: int(max(1, min(int64(s.BatchRows), s.Rows))),
	}
	p.rowBytes = int64(p.columns) * int64(layout.DType.Size())
	if p.stream, err = device.NewStream(); err != nil {
		return r, err
	}
	for _, measure := range []func(*Rates) error{p.deviceMemory, p.hostMemory, p.storage} {
		if err = measure(&r); err != nil && !errors.Is(err, gds.ErrOutOfMemory) {
			break
		}
		err = errors.Join(p.stream.Synchronize(ctx), p.free())
		if err != nil {
			break
		}
	}
	return r, errors.Join(err, p.stream.Close(), p.free())
}

// probe is a measurement under way.
type probe struct {
	Sample
	ctx      context.Context
	device   gds.Device
	unified  bool
	columns  int   // of all matrices, which lie side by side where they are in memory
	rowBytes int64 // of as many
	dtype    gds.DType
	batch    int // rows
	stream   gds.Stream
	buffers  []gds.Buffer
	now      func() time.Time // by which storage is timed
}

func (p *probe) keep(b gds.Buffer, err error) (gds.Buffer, error) {
	if err == nil {
		p.buffers = append(p.buffers, b)
	}
	return b, err
}

func (p *probe) free() error {
	var err error
	for _, b := range p.buffers {
		err = errors.Join(err, b.Free())
	}
	p.buffers = nil
	return err
}

// tensor allocates rows of all matrices on the device.
func (p *probe) tensor(rows int, t gds.DType) (gds.Tensor, error) {
	b, err := p.keep(p.device.Alloc(gds.Bytes(rows, p.columns, t)))
	return gds.NewTensor(b, rows, p.columns, t), err
}

// rate repeats what moves so many bytes at a time.
func (p *probe) rate(atLeast time.Duration, bytes int64, move func()) (units.Rate, error) {
	var rates []units.Rate
	for round := range 1 + probeRounds {
		if err := p.stream.Synchronize(p.ctx); err != nil {
			return 0, err
		}
		start, moved := time.Now(), int64(0)
		for count := 1; time.Since(start) < atLeast; count *= 2 {
			for range count {
				move()
			}
			moved += int64(count) * bytes
			if err := p.stream.Synchronize(p.ctx); err != nil {
				return 0, err
			}
		}
		if round > 0 { // the first touched the memory
			rates = append(rates, units.Rate(float64(moved)/time.Since(start).Seconds()))
		}
	}
	return median(rates), nil
}

// some is as many bytes as shall be allocated of those wanted: half of what is free.
func (p *probe) some(bytes int64) int64 {
	if info := p.device.Info(); info.MemoryBytes > 0 {
		bytes = min(bytes, (info.MemoryBytes-p.device.Usage().InUse)/2)
	}
	return bytes
}

// rows is how many there are in a sample of the input.
func (p *probe) rows() int {
	bytes := p.some(min(sampleBytes, p.Rows*p.rowBytes))
	return int(max(int64(p.batch), bytes/p.rowBytes))
}

// places is count numbers below n, at random.
func places(count, n int) []uint32 {
	out := make([]uint32, count)
	for i := range out {
		out[i] = uint32(rng.Hash(1, uint64(i)) % uint64(n))
	}
	return out
}

// deviceMemory measures what becomes of a batch on the device.
func (p *probe) deviceMemory(r *Rates) error {
	rows := p.rows()
	input, err := p.tensor(rows, p.dtype)
	if err != nil {
		return err
	}
	batch, err := p.tensor(p.batch, p.dtype)
	if err != nil {
		return err
	}
	index, err := p.keep(p.device.Alloc(int64(rows) * 4))
	if err != nil {
		return err
	}
	p.stream.Fill(input, 0)
	numbers := places(rows, rows)
	all := gds.NewTensor(index, 1, rows, gds.Uint32)
	p.stream.CopyIn(all, dtype.BytesOf(numbers))

	at, bytes := 0, int64(p.batch)*p.rowBytes
	next := func(run int) int {
		if at += run; at+run > rows {
			at = 0
		}
		return at
	}
	if r.DeviceGather, err = p.rate(probeTime, bytes, func() {
		first := next(p.batch)
		p.stream.Gather(batch, input, all.Columns(first, first+p.batch))
	}); err != nil {
		return err
	}
	run := min(max(p.ChunkRows, 1), p.batch)
	if r.DeviceCopy, err = p.rate(probeTime, int64(run)*p.rowBytes, func() {
		first := next(run)
		p.stream.Copy(batch.Slice(0, run), input.Slice(first, first+run))
	}); err != nil {
		return err
	}
	if p.dtype != gds.Float32 {
		floats, err := p.tensor(p.batch, gds.Float32)
		if err != nil {
			return err
		}
		if r.Convert, err = p.rate(probeTime, bytes, func() { p.stream.Convert(floats, batch) }); err != nil {
			return err
		}
	}
	if p.unified {
		return p.copyRows(r, batch.Buf.Bytes(), input.Buf.Bytes())
	}
	pinned, err := p.keep(p.device.AllocPinned(int64(run) * p.rowBytes))
	if err != nil {
		return err
	}
	r.Link, err = p.rate(linkTime, int64(run)*p.rowBytes, func() { p.stream.CopyIn(batch.Slice(0, run), pinned.Bytes()) })
	r.Peer = r.Link / 2 // from one device to host memory, then to the other
	return err
}

// hostMemory measures the assembly of a batch in memory that is not the device's.
func (p *probe) hostMemory(r *Rates) error {
	if p.unified {
		return nil
	}
	rows := p.rows()
	input, err := p.keep(p.device.AllocPinned(int64(rows) * p.rowBytes))
	if err != nil {
		return err
	}
	batch, err := p.keep(p.device.AllocPinned(int64(p.batch) * p.rowBytes))
	if err != nil {
		return err
	}
	clear(input.Bytes())
	return p.copyRows(r, batch.Bytes(), input.Bytes())
}

// copyRows measures the copying of rows of the input to a batch, from anywhere and
// in order.
func (p *probe) copyRows(r *Rates, batch, input []byte) error {
	rows, bytes := len(input)/int(p.rowBytes), int64(p.batch)*p.rowBytes
	move := func(numbers []uint32) func() {
		at := 0
		return func() {
			if at += p.batch; at+p.batch > rows {
				at = 0
			}
			// Without an error: there is none to come.
			_ = parallel.For(p.ctx, p.Threads, int64(p.batch), max(1, movedBytes/p.rowBytes), func(lo, hi int64) error {
				kernel.GatherRows(batch[lo*p.rowBytes:], int(p.rowBytes), input, int(p.rowBytes), int(p.rowBytes),
					numbers[at+int(lo):at+int(hi)], bytes >= kernel.StreamBytes)
				return nil
			})
		}
	}
	var err error
	if r.HostGather, err = p.rate(probeTime, bytes, move(places(rows, rows))); err != nil {
		return err
	}
	inOrder := make([]uint32, rows)
	for i := range inOrder {
		inOrder[i] = uint32(i)
	}
	r.HostCopy, err = p.rate(probeTime, bytes, move(inOrder))
	return err
}
