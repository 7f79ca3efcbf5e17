package placement

import (
	"context"
	"errors"
	"time"

	"github.com/hopfeed/hopfeed/format"
	"github.com/hopfeed/hopfeed/gds"
	"github.com/hopfeed/hopfeed/internal/dtype"
	"github.com/hopfeed/hopfeed/internal/parallel"
	"github.com/hopfeed/hopfeed/internal/rng"
	"github.com/hopfeed/hopfeed/internal/units"
)

// How much is moved to find how fast, and for how long at least. A rate is the
// best of four: others are slowed by what else runs.
const (
	sampleBytes = 256 << 20 // of memory: more than most caches hold
	probeTime   = 5 * time.Millisecond
	linkTime    = 40 * time.Millisecond // so long that bursts do not count
	probeRounds = 4
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
		features: layout.Features, dtype: layout.DType, rowBytes: int64(layout.Features) * int64(layout.DType.Size()),
		batch: int(max(1, min(int64(s.BatchRows), s.Rows))),
	}
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
	features int
	dtype    gds.DType
	rowBytes int64 // of one matrix
	batch    int   // rows
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

// tensor allocates rows of the stored width on the device.
func (p *probe) tensor(rows int, t gds.DType) (gds.Tensor, error) {
	b, err := p.keep(p.device.Alloc(gds.Bytes(rows, p.features, t)))
	return gds.NewTensor(b, rows, p.features, t), err
}

// rate repeats what moves so many bytes at a time.
func (p *probe) rate(atLeast time.Duration, bytes int64, move func()) (units.Rate, error) {
	best := 0.0
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
			best = max(best, float64(moved)/time.Since(start).Seconds())
		}
	}
	return units.Rate(best), nil
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
	bytes := p.some(min(sampleBytes, p.Rows*int64(len(p.Matrices))*p.rowBytes))
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
		r.HostGather, r.HostCopy = r.DeviceGather, r.DeviceCopy
		return nil
	}
	pinned, err := p.keep(p.device.AllocPinned(int64(run) * p.rowBytes))
	if err != nil {
		return err
	}
	r.Link, err = p.rate(linkTime, int64(run)*p.rowBytes, func() { p.stream.CopyIn(batch.Slice(0, run), pinned.Bytes()) })
	r.Peer = r.Link
	return err
}

// hostMemory measures the gathering of a batch in memory that is not the device's.
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
	numbers, at := places(rows, rows), 0
	move := func(row func(i int) int64) func() {
		return func() {
			if at += p.batch; at+p.batch > rows {
				at = 0
			}
			// Without an error: there is none to come.
			_ = parallel.For(p.ctx, p.Threads, int64(p.batch), 256, func(lo, hi int64) error {
				for i := lo; i < hi; i++ {
					from := row(at+int(i)) * p.rowBytes
					copy(batch.Bytes()[i*p.rowBytes:(i+1)*p.rowBytes], input.Bytes()[from:from+p.rowBytes])
				}
				return nil
			})
		}
	}
	bytes := int64(p.batch) * p.rowBytes
	if r.HostGather, err = p.rate(probeTime, bytes, move(func(i int) int64 { return int64(numbers[i]) })); err != nil {
		return err
	}
	r.HostCopy, err = p.rate(probeTime, bytes, move(func(i int) int64 { return int64(i) }))
	return err
}
