package placement

import (
	"context"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"slices"
	"sync/atomic"
	"time"

	"github.com/hopfeed/hopfeed/format"
	"github.com/hopfeed/hopfeed/gds"
	"github.com/hopfeed/hopfeed/internal/gather"
	"github.com/hopfeed/hopfeed/internal/parallel"
	"github.com/hopfeed/hopfeed/internal/rng"
	"github.com/hopfeed/hopfeed/internal/units"
	"github.com/hopfeed/hopfeed/internal/vfs"
)

// How much is moved, and how long, to measure a rate. A rate is the median of several rounds, not
// the fastest: other programs also run while a model is trained.
const (
	sampleBytes      = 256 << 20 // of memory: more than most caches hold
	measuredTime     = 5 * time.Millisecond
	measuredLinkTime = 40 * time.Millisecond // long enough that bursts do not count
	measuredRounds   = 5
)

// Sample describes the rows that training moves.
type Sample struct {
	Store     *format.Dir
	Matrices  []format.MatrixID
	Region    format.Region // whose chunks are read
	Rows      int64         // that are held where the input is in memory
	BatchRows int
	ChunkRows int // that move together where chunks are reshuffled
	Threads   int
	HostBytes int64 // of host memory that may be used beside the device's; 0: no limit
}

// Measure measures the rates at which rows of a store move on this machine, by the operations and reads that loaders
// use. It takes less than a second. Rates that there is no memory to measure stay 0.
func Measure(ctx context.Context, device gds.Device, s Sample) (r Rates, err error) {
	layout := s.Store.Layout()
	p := &probe{
		Sample: s, ctx: ctx, device: device, unified: device.Info().Unified, now: time.Now,
		columns: layout.Columns(s.Matrices), dtype: layout.DType,
		batch: int(max(1, min(int64(s.BatchRows), s.Rows))),
	}
	p.rowBytes = int64(p.columns) * int64(layout.DType.Size())
	if p.stream, err = device.NewStream(); err != nil {
		return r, err
	}
	for _, measure := range []func(*Rates) error{p.measureDevice, p.measureHost, p.measureStorage} {
		p.memory = gds.Memory{Device: device}
		if err = measure(&r); errors.Is(err, gds.ErrOutOfMemory) {
			err = nil
		}
		// An interruption does not end the work on memory that is freed here.
		if err = errors.Join(err, p.stream.Synchronize(context.WithoutCancel(ctx)), p.close()); err != nil {
			break
		}
	}
	return r, errors.Join(err, p.stream.Close())
}

// probe is the state of Measure.
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
	memory   gds.Memory
	open     []io.Closer      // matrices and files
	now      func() time.Time // by which storage is timed
}

func (p *probe) close() error {
	err := p.memory.Free()
	for _, c := range p.open {
		err = errors.Join(err, c.Close())
	}
	p.open = nil
	return err
}

// rows is a matrix of rows on the device.
func (p *probe) rows(rows int, t gds.DType) gds.Tensor {
	return p.memory.Matrix(fmt.Sprintf("%d rows", rows), rows, p.columns, t)
}

func (p *probe) measureRate(atLeast time.Duration, bytes int64, move func()) (units.Rate, error) {
	var rates []units.Rate
	for round := range 1 + measuredRounds {
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

// affordableBytes is how many of the wanted bytes to allocate: at most half of the free memory of
// the device, if they are there, else of the host's budget.
func (p *probe) affordableBytes(bytes int64, onDevice bool) int64 {
	if info := p.device.Info(); onDevice && info.MemoryBytes > 0 {
		bytes = min(bytes, (info.MemoryBytes-p.device.Usage().InUse)/2)
	}
	if p.HostBytes > 0 && (p.unified || !onDevice) {
		bytes = min(bytes, p.HostBytes/2)
	}
	return bytes
}

// placeBytes is what the numbers by which a row is drawn take, two here and one on the device.
const placeBytes = 3 * 4

func (p *probe) sampleRows(onDevice bool) int {
	bytes := p.affordableBytes(min(sampleBytes, p.Rows*p.rowBytes), onDevice)
	return int(max(int64(p.batch), bytes/(p.rowBytes+placeBytes)))
}

func randomNumbers(count, n int) []uint32 {
	out := make([]uint32, count)
	for i := range out {
		out[i] = uint32(rng.Hash(1, uint64(i)) % uint64(n))
	}
	return out
}

// cycle returns where the next run of rows begins, from the first on again after the last.
func cycle(rows, run int) func() int {
	at := 0
	return func() int {
		if at += run; at+run > rows {
			at = 0
		}
		return at
	}
}

func (p *probe) measureDevice(r *Rates) (err error) {
	input, batch := p.rows(p.sampleRows(true), p.dtype), p.rows(p.batch, p.dtype)
	if p.memory.Err != nil {
		return p.memory.Err
	}
	p.stream.Fill(input, 0)
	if r.DeviceGather, err = p.measureGather(measuredTime, batch, input); err != nil {
		return err
	}
	run := min(max(p.ChunkRows, 1), p.batch)
	bytes, next := int64(run)*p.rowBytes, cycle(input.Rows, run)
	if r.DeviceCopy, err = p.measureRate(measuredTime, bytes, func() {
		first := next()
		p.stream.Copy(batch.Slice(0, run), input.Slice(first, first+run))
	}); err != nil {
		return err
	}
	if p.dtype != gds.Float32 {
		floats := p.rows(p.batch, gds.Float32)
		if p.memory.Err != nil {
			return p.memory.Err
		}
		if r.Convert, err = p.measureRate(measuredTime, int64(p.batch)*p.rowBytes,
			func() { p.stream.Convert(floats, batch) }); err != nil {
			return err
		}
	}
	if p.unified {
		return p.measureCopies(r, batch.Buf.Bytes(), input.Buf.Bytes())
	}
	pinned := p.memory.Pin("rows that are copied", bytes)
	if p.memory.Err != nil {
		return p.memory.Err
	}
	r.Link, err = p.measureRate(measuredLinkTime, bytes, func() {
		p.stream.Copy(batch.Slice(0, run), gds.NewTensor(pinned, run, p.columns, p.dtype))
	})
	r.Peer = r.Link // over which devices copy from each other
	return err
}

// measureGather measures gathering batches of random rows by the device.
func (p *probe) measureGather(atLeast time.Duration, batch, input gds.Tensor) (units.Rate, error) {
	index := p.memory.Matrix("row numbers", 1, input.Rows, gds.Uint32)
	if p.memory.Err != nil {
		return 0, p.memory.Err
	}
	if err := gds.Upload(p.device, p.stream, index, randomNumbers(input.Rows, input.Rows)); err != nil {
		return 0, err
	}
	next := cycle(input.Rows, p.batch)
	return p.measureRate(atLeast, int64(p.batch)*p.rowBytes, func() {
		first := next()
		p.stream.Gather(batch, input, index.Columns(first, first+p.batch))
	})
}

// measureHost measures assembling a batch in host memory, unless the device is unified, and by the device itself.
func (p *probe) measureHost(r *Rates) (err error) {
	if p.unified {
		return nil
	}
	rows := p.sampleRows(false)
	if bytes := int64(rows+p.batch) * (p.rowBytes + placeBytes); p.HostBytes > 0 && bytes > p.HostBytes {
		return nil // not even a batch and what it is drawn from
	}
	input := p.memory.Pin("rows", int64(rows)*p.rowBytes)
	batch := p.memory.Pin("a batch", int64(p.batch)*p.rowBytes)
	if p.memory.Err != nil {
		return p.memory.Err
	}
	clear(input.Bytes())
	if err := p.measureCopies(r, batch.Bytes(), input.Bytes()); err != nil || !p.device.Info().MapsPinned {
		return err
	}
	onDevice := p.rows(p.batch, p.dtype)
	if p.memory.Err != nil {
		return p.memory.Err
	}
	r.MappedGather, err = p.measureGather(measuredLinkTime, onDevice, gds.NewTensor(input, rows, p.columns, p.dtype))
	return err
}

func (p *probe) measureCopies(r *Rates, batch, input []byte) error {
	rows, bytes := len(input)/int(p.rowBytes), int64(p.batch)*p.rowBytes
	pool := gather.NewPool(p.Threads)
	defer pool.Close()
	move := func(numbers []uint32) func() {
		next := cycle(rows, p.batch)
		return func() {
			at := next()
			pool.Start(batch, input, int(p.rowBytes), numbers[at:at+p.batch]).Wait()
		}
	}
	var err error
	if r.HostGather, err = p.measureRate(measuredTime, bytes, move(randomNumbers(rows, rows))); err != nil {
		return err
	}
	inOrder := make([]uint32, rows)
	for i := range inOrder {
		inOrder[i] = uint32(i)
	}
	r.HostCopy, err = p.measureRate(measuredTime, bytes, move(inOrder))
	return err
}

// Storage is read in rounds, and the median round counts: a disk can be faster for a moment (from
// its cache, or by burst credit) and slower for another. The round in which the time ends is cut
// short, but reads at least as many chunks as there are readers.
const (
	storageRounds  = 7
	storageBytes   = 64 << 20 // a round
	storageTime    = 500 * time.Millisecond
	storageReaders = 8 // reads on their way, as in a loader
)

type chunkRead struct {
	matrix *format.Matrix
	file   gds.File
	chunk  int
}

func (c chunkRead) extent() format.Extent { return c.matrix.Extent(c.chunk) }

// bucketReaders are the reads on their way from a bucket, as in a loader.
const bucketReaders = 64

// measureStorage measures how fast chunks are read and checked. For a store in a bucket it measures the network and, if
// there is one, the cache.
func (p *probe) measureStorage(r *Rates) (err error) {
	if !vfs.IsURL(p.Store.Path()) {
		r.Storage, r.Check, err = p.measureReads(p.Store.FS(), storageReaders, false)
		return err
	}
	uncached, ok := p.Store.FS().(interface{ Uncached() vfs.FS })
	if !ok {
		return nil
	}
	if r.Bucket, r.Check, err = p.measureReads(uncached.Uncached(), bucketReaders, false); err == nil {
		r.Storage, _, err = p.measureReads(p.Store.FS(), storageReaders, true)
	}
	return err
}

// measureReads reads chunks of all matrices in random order with several readers, by direct I/O if possible, and checks
// them. same: each round reads the same chunks, and the first does not count.
func (p *probe) measureReads(fsys vfs.FS, readers int, same bool) (read, check units.Rate, err error) {
	layout, widest := p.Store.Layout(), 0
	for _, id := range p.Matrices {
		widest = max(widest, layout.Of(id).Features)
	}
	stride := gds.Aligned(int64(layout.ChunkRows) * int64(widest) * int64(layout.DType.Size()))
	count := min(int64(p.Region.Chunks)*int64(len(p.Matrices)),
		max(1, p.affordableBytes(storageBytes, p.unified)/stride))
	if count == 0 {
		return 0, 0, nil
	}
	alloc := p.memory.Pin
	if p.unified {
		alloc = p.memory.Alloc
	}
	memory := alloc("chunks", count*stride)
	if p.memory.Err != nil {
		return 0, 0, p.memory.Err
	}
	clear(memory.Bytes()) // so that it is there
	rounds := storageRounds
	if same {
		rounds = 1
	}
	reads, err := p.chunkReads(fsys, int(count)*rounds)
	if err != nil {
		return 0, 0, err
	}
	for same && len(reads) < int(count)*storageRounds {
		reads = append(reads, reads[:count]...)
	}
	var reading, checking []units.Rate
	end := p.now().Add(storageTime)
	for round := range slices.Chunk(reads, int(count)) {
		if len(reading) > 0 && !p.now().Before(end) {
			break
		}
		read := make([]bool, count)
		var taken atomic.Int64
		rate, err := p.timeChunks(readers, round, func(i int64) (int64, error) {
			if taken.Add(1) > int64(readers) && !p.now().Before(end) {
				return 0, nil
			}
			e := round[i].extent()
			read[i] = true
			return e.Length, round[i].file.ReadInto(memory, i*stride, e.Length, e.Offset)
		})
		if err != nil {
			return 0, 0, err
		}
		reading = append(reading, rate)
		if rate, err = p.timeChunks(p.Threads, round, func(i int64) (int64, error) {
			if !read[i] {
				return 0, nil
			}
			length := round[i].extent().Length
			return length, round[i].matrix.CheckChunk(round[i].chunk, memory.Bytes()[i*stride:i*stride+length])
		}); err != nil {
			return 0, 0, err
		}
		checking = append(checking, rate)
	}
	if same && len(reading) > 1 {
		reading = reading[1:]
	}
	return median(reading), median(checking), nil
}

// timeChunks measures the rate at which threads work on the chunks of a round; each returns the
// number of bytes that it worked on.
func (p *probe) timeChunks(threads int, round []chunkRead, each func(i int64) (bytes int64, err error)) (units.Rate,
	error) {
	var bytes atomic.Int64
	start := p.now()
	err := parallel.For(p.ctx, threads, int64(len(round)), 1, func(i, _ int64) error {
		n, err := each(i)
		bytes.Add(n)
		return err
	})
	// Clocks are not as fine as memory is fast.
	return units.Rate(float64(bytes.Load()) / max(p.now().Sub(start), time.Microsecond).Seconds()), err
}

func median(rates []units.Rate) units.Rate {
	slices.Sort(rates)
	return rates[len(rates)/2]
}

// chunkReads draws chunks of the region to read, and opens their files.
func (p *probe) chunkReads(fsys vfs.FS, count int) (reads []chunkRead, err error) {
	matrices := make([]*format.Matrix, len(p.Matrices))
	for i, id := range p.Matrices {
		if matrices[i], err = p.Store.Matrix(id); err != nil {
			return nil, err
		}
		p.open = append(p.open, matrices[i])
	}
	files := map[string]gds.File{}
	for _, place := range randomNumbers(count, p.Region.Chunks*len(matrices)) {
		c := chunkRead{matrix: matrices[int(place)%len(matrices)],
			chunk: p.Region.FirstChunk + int(place)/len(matrices)}
		path := c.extent().File
		if files[path] == nil {
			f, err := p.device.OpenFile(fsys, filepath.Join(p.Store.Path(), filepath.FromSlash(path)))
			if err != nil {
				return nil, err
			}
			files[path] = f
			p.open = append(p.open, f)
		}
		c.file = files[path]
		reads = append(reads, c)
	}
	return reads, nil
}
