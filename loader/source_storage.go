package loader

import (
	"context"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/hopfeed/hopfeed/format"
	"github.com/hopfeed/hopfeed/gds"
	"github.com/hopfeed/hopfeed/internal/arrowfile"
	"github.com/hopfeed/hopfeed/internal/dtype"
	"github.com/hopfeed/hopfeed/internal/parallel"
	"github.com/hopfeed/hopfeed/internal/pipeline"
	"github.com/hopfeed/hopfeed/internal/vfs"
)

// minReaders is the least number of concurrent reads, with fewer threads too: reads wait for the disk, not for a
// processor. A bucket gets more, since its first byte takes 10 to 100 ms; the slots then hold at least bucketBytes, so
// that as many reads can be on their way.
const (
	minReaders    = 16
	bucketReaders = 64
	bucketBytes   = 64 << 20
)

// maxRead is the largest read of neighbouring chunks, in bytes.
const maxRead = 8 << 20

// storageSource reads chunks from the store's files while earlier batches are computed on (preprop-gnn section 4.3).
// Chunk k of all matrices is read in parallel into one slot. The first batch that uses the chunk checks it; all batches
// copy their rows from the slot. An epoch reads each chunk once.
//
// begin takes slots for the chunks in the order of the plan, and starts the reads. A slot becomes free when begin has
// gone on to the next chunk and all batches with rows of it are assembled. Since batches are assembled in order, slots
// become free in the order in which they were taken: they are a ring, and begin can always go on if there are slots for
// the chunks of one batch. Slots are as far apart in memory as chunks are in a file, so that neighbouring chunks in
// neighbouring slots are one read.
type storageSource struct {
	l        *Loader
	matrices []*format.Matrix
	files    map[string]*storedFile // by path in the store
	// memory holds the slots of each matrix, one after another: device memory if the device is
	// unified, or reads files into its own, else pinned.
	memory   []gds.Buffer
	onDevice gds.Memory // the same, where slots are device memory of their own
	sums     *chunkSums // nil: chunks are checked by the host
	slots    []*slot
	free     chan *slot
	last     *slot          // that begin used
	pending  *chunkRead     // that begin may still add to, or nil
	readers  *parallel.Pool // while an epoch runs
}

type storedFile struct {
	gds.File
	reads, bytes atomic.Int64
}

// slot holds one chunk of every matrix.
type slot struct {
	index   int
	chunk   int
	users   atomic.Int32 // batches with rows of it that are not yet assembled, and begin
	read    *chunkRead   // by which it is read
	checked bool         // its bytes have the checksums of the index
	copied  gds.Event    // after which the memory is not used any more, or nil
}

// chunkRead is neighbouring chunks in neighbouring slots, which are read as one.
type chunkRead struct {
	slots []*slot
	done  *sync.WaitGroup // of the reads
	errs  []error         // of each matrix
}

// chunkSlice is the part of a batch that lies in one chunk.
type chunkSlice struct {
	slot        *slot
	first, rows int // within the chunk
	at          int // first row within the batch
}

// chunkSlices are all slices of a batch.
type chunkSlices []chunkSlice

// Wait waits until all of their chunks are read. When an epoch ends, no more reads begin, so ctx does not matter.
func (c *chunkSlices) Wait(context.Context) error {
	for _, p := range *c {
		p.slot.read.done.Wait()
		for _, err := range p.slot.read.errs {
			if err != nil {
				return err
			}
		}
	}
	return nil
}

func init() { backends[Storage] = openStorage }

func openStorage(_ context.Context, ranks Ranks) error {
	for _, l := range ranks {
		s := &storageSource{
			l:     l,
			files: make(map[string]*storedFile),
		}
		l.source = source{wholeChunks: true, begin: s.begin, finish: s.finish, reset: s.reset, reads: s.reads,
			close: s.close}
		if err := s.openFiles(); err != nil {
			return err
		}
		if err := s.allocate(); err != nil {
			return err
		}
		l.source.aheadRows = len(s.slots) * l.layout.ChunkRows
	}
	return nil
}

func (s *storageSource) openFiles() error {
	store := s.l.o.Store
	for _, id := range s.l.o.Matrices {
		m, err := store.Matrix(id)
		if err != nil {
			return err
		}
		s.matrices = append(s.matrices, m)
		for _, r := range s.l.regions {
			for k := r.FirstChunk; k < r.FirstChunk+r.Chunks; k++ {
				path := m.Extent(k).File
				if s.files[path] != nil {
					continue
				}
				f, err := s.l.o.Device.OpenFile(store.FS(), s.path(path))
				if err != nil {
					return err
				}
				s.files[path] = &storedFile{File: f}
			}
		}
	}
	return nil
}

func (s *storageSource) path(file string) string {
	return filepath.Join(s.l.o.Store.Path(), filepath.FromSlash(file))
}

// slotStride is the memory of a matrix in a slot: the bytes of a chunk, rounded up to pages, and
// one page, as Arrow's metadata takes between two chunks in a file.
func (l *Loader) slotStride(matrix int) int64 {
	return gds.Aligned(l.chunkBytes(matrix)) + arrowfile.Align
}

// slotSize is the memory of all matrices in a slot.
func (l *Loader) slotSize() (bytes int64) {
	for m := range l.o.Matrices {
		bytes += l.slotStride(m)
	}
	return bytes
}

// slots is the number of slots: for the chunks of one batch and the chunks that the next one adds, but at most the
// chunks of a region.
func (l *Loader) slots() int {
	chunks := 1
	for _, r := range l.regions {
		chunks = max(chunks, r.Chunks)
	}
	// Rows of a batch lie in whole chunks, two that are cut, and a short one.
	whole := (l.o.BatchRows - 1) / l.layout.ChunkRows
	slots := whole + 3 + whole + 1
	if l.fromBucket() {
		slots = max(slots, int(bucketBytes/l.slotSize()))
	}
	return min(slots, chunks)
}

// fromBucket tells whether the store is in an object store.
func (l *Loader) fromBucket() bool { return l.o.Store != nil && vfs.IsURL(l.o.Store.Path()) }

func (s *storageSource) allocate() (err error) {
	slots := s.l.slots()
	if s.readsIntoDevice() {
		err = s.allocateOnDevice(slots)
	}
	if s.memory == nil && err == nil {
		alloc := s.l.memory.Pin
		if s.l.unified() {
			alloc = s.l.memory.Alloc
		}
		s.memory = s.allocateSlots(slots, alloc)
		err = s.l.memory.Err
	}
	if err != nil {
		return err
	}
	for i := range slots {
		s.slots = append(s.slots, &slot{index: i})
	}
	s.free = make(chan *slot, slots)
	s.reset()
	return nil
}

// allocateSlots allocates the slots of each matrix.
func (s *storageSource) allocateSlots(slots int, alloc func(what string, bytes int64) gds.Buffer) (all []gds.Buffer) {
	for m := range s.matrices {
		all = append(all, alloc(fmt.Sprintf("chunks in %d slots", slots), s.l.slotStride(m)*int64(slots)))
	}
	return all
}

// begin takes the slots of the chunks that the batch has rows of, and starts to read them.
func (s *storageSource) begin(w *pipeline.Worker, j *job) error {
	at, parts := 0, new(chunkSlices)
	for _, span := range j.spans {
		for row, end := span.First, span.First+int64(span.Rows); row < end; {
			r, size := s.l.regionOf(row), int64(s.l.layout.ChunkRows)
			slot, err := s.slotFor(w, r.FirstChunk+int((row-r.firstRow)/size))
			if err != nil {
				return err
			}
			first := (row - r.firstRow) % size
			n := min(end-row, size-first)
			slot.users.Add(1)
			*parts = append(*parts, chunkSlice{slot, int(first), int(n), at})
			row, at = row+n, at+int(n)
		}
	}
	s.startRead(w.Context())
	j.state = parts
	return nil
}

// slotFor returns the slot of chunk k, which may still have to be read.
func (s *storageSource) slotFor(w *pipeline.Worker, k int) (*slot, error) {
	if s.last != nil {
		if s.last.chunk == k {
			return s.last, nil
		}
		s.releaseSlot(s.last)
		s.last = nil
	}
	if len(s.free) == 0 {
		s.startRead(w.Context()) // what is taken, before anything is waited for
	}
	t, err := pipeline.Take(w, s.free)
	if err != nil {
		return nil, err
	}
	if t.copied != nil {
		if err := w.WaitForRoom(t.copied); err != nil {
			return nil, err
		}
	}
	t.chunk, t.checked, t.copied = k, false, nil
	t.users.Store(1)
	s.last = t
	if s.pending != nil && !s.canExtend(s.pending, t) {
		s.startRead(w.Context())
	}
	if s.pending == nil {
		s.pending = &chunkRead{errs: make([]error, len(s.matrices))}
	}
	t.read = s.pending
	t.read.slots = append(t.read.slots, t)
	return t, nil
}

// canExtend tells whether a read can go on with the chunk of slot t.
func (s *storageSource) canExtend(r *chunkRead, t *slot) bool {
	last := r.slots[len(r.slots)-1]
	if t.index != last.index+1 || t.chunk != last.chunk+1 {
		return false
	}
	for i, m := range s.matrices {
		a, b, stride := m.Extent(last.chunk), m.Extent(t.chunk), s.l.slotStride(i)
		if a.File != b.File || b.Offset-a.Offset != stride || int64(len(r.slots)+1)*stride > maxRead {
			return false
		}
	}
	return true
}

// releaseSlot ends one use of a slot.
func (s *storageSource) releaseSlot(t *slot) {
	if t.users.Add(-1) == 0 {
		s.free <- t
	}
}

// startRead starts the pending read.
func (s *storageSource) startRead(ctx context.Context) {
	r := s.pending
	if r == nil {
		return
	}
	s.pending = nil
	if s.readers == nil {
		readers := minReaders
		if s.l.fromBucket() {
			readers = bucketReaders
		}
		s.readers = parallel.NewPool(max(s.l.o.Threads, readers))
	}
	r.done = s.readers.For(int64(len(s.matrices)), 1, func(m, _ int64) {
		if r.errs[m] = context.Cause(ctx); ctx.Err() == nil {
			r.errs[m] = s.readMatrix(r, int(m))
		}
	})
}

// readMatrix reads the chunks of one matrix.
func (s *storageSource) readMatrix(r *chunkRead, matrix int) error {
	m, slots := s.matrices[matrix], r.slots
	first, last := m.Extent(slots[0].chunk), m.Extent(slots[len(slots)-1].chunk)
	f := s.files[first.File]
	at, length := int64(slots[0].index)*s.l.slotStride(matrix), last.Offset+last.Length-first.Offset
	if err := f.ReadInto(s.memory[matrix], at, length, first.Offset); err != nil {
		if errors.Is(err, io.ErrUnexpectedEOF) {
			return &format.CorruptError{File: s.path(first.File), Chunk: first.Chunk,
				Reason: "the file ends early, in this chunk or one of the next"}
		}
		return err
	}
	f.reads.Add(1)
	for _, t := range slots {
		f.bytes.Add(m.Extent(t.chunk).Length)
	}
	return nil
}

// doubt tells whether reading a chunk again may give other bytes.
func (s *storageSource) doubt(t *slot, matrix int) bool {
	e := s.matrices[matrix].Extent(t.chunk)
	f, ok := s.files[e.File].File.(vfs.Doubter)
	return ok && f.Doubt(e.Offset, e.Length)
}

// slotBytes are the bytes of rows of a matrix in a slot; row counts from the start of the chunk.
func (s *storageSource) slotBytes(t *slot, matrix, row, rows int) []byte {
	at, size := int64(t.index)*s.l.slotStride(matrix), s.l.rowBytes(matrix)
	return s.memory[matrix].Bytes()[at+int64(row)*size:][:int64(rows)*size]
}

// slotRows is the memory of a matrix in a slot, as the rows of a chunk.
func (s *storageSource) slotRows(t *slot, matrix int) gds.Tensor {
	rows := gds.NewTensor(s.memory[matrix], s.l.layout.ChunkRows, s.l.width(matrix), s.l.layout.DType)
	rows.Offset = int64(t.index) * s.l.slotStride(matrix)
	return rows
}

// finish waits for the chunks of the batch, and copies their rows. It checks each chunk when a batch uses it first,
// just before its rows are copied, so that the copy finds them in the processor's cache.
func (s *storageSource) finish(w *pipeline.Worker, j *job, stream gds.Stream) error {
	parts := j.state.(*chunkSlices)
	if err := w.Wait(parts); err != nil {
		return err
	}
	if s.l.unified() {
		if err := s.l.buffers.AwaitRelease(w, j.buffer); err != nil {
			return err
		}
	}
	if s.sums != nil && !s.l.o.Unchecked {
		if err := s.checkOnDevice(w, *parts, stream); err != nil {
			return err
		}
	}
	return s.assemble(w.Context(), j, *parts, stream)
}

func (s *storageSource) assemble(ctx context.Context, j *job, parts chunkSlices, stream gds.Stream) error {
	f, chunks, unified := j.buffer, int64(len(parts)), s.l.unified()
	err := parallel.For(ctx, s.l.o.Threads, chunks*int64(len(s.matrices)), 1, func(i, _ int64) error {
		p, m := parts[i%chunks], int(i/chunks)
		if !p.slot.checked && !s.l.o.Unchecked && s.sums == nil {
			matrix := s.matrices[m]
			_, rows := matrix.ChunkRowRange(p.slot.chunk)
			err := matrix.CheckChunk(p.slot.chunk, s.slotBytes(p.slot, m, 0, rows))
			if err != nil && s.doubt(p.slot, m) {
				if err = s.readMatrix(&chunkRead{slots: []*slot{p.slot}}, m); err == nil {
					err = matrix.CheckChunk(p.slot.chunk, s.slotBytes(p.slot, m, 0, rows))
				}
			}
			if err != nil {
				return err
			}
		}
		if unified {
			stored := s.slotBytes(p.slot, m, p.first, p.rows)
			s.l.assembled.Add(int64(len(stored)))
			f.writeRows(s.l.matrix(f.x, m), p.at, stored)
		}
		return nil
	})
	if err != nil {
		return err
	}
	if !unified {
		for m := range s.matrices {
			raw := s.l.matrix(f.raw, m)
			for _, p := range parts {
				stream.Copy(raw.Slice(p.at, p.at+p.rows), s.slotRows(p.slot, m).Slice(p.first, p.first+p.rows))
			}
		}
	}
	copied := stream.Record()
	if !unified {
		f.convert(stream)
	}
	for _, p := range parts {
		p.slot.checked, p.slot.copied = true, copied
		s.releaseSlot(p.slot)
	}
	return nil
}

func (s *storageSource) reset() {
	if s.readers != nil {
		s.readers.Close()
		s.readers = nil
	}
	refill(s.free, s.slots, func(t *slot) { t.copied = nil })
	s.last, s.pending = nil, nil
}

func (s *storageSource) reads() []ReadStats {
	var out []ReadStats
	for _, f := range s.files {
		receipt := f.Receipt()
		i := slices.IndexFunc(out, func(r ReadStats) bool {
			return r.Path == receipt.Path && r.Reason == receipt.Reason
		})
		if i < 0 {
			i = len(out)
			out = append(out, ReadStats{Path: receipt.Path, Reason: receipt.Reason})
		}
		out[i].Files++
		out[i].Reads += f.reads.Load()
		out[i].Bytes += f.bytes.Load()
	}
	slices.SortFunc(out, func(a, b ReadStats) int { return int(b.Bytes - a.Bytes) })
	return out
}

func (s *storageSource) close() error {
	var err error
	for _, f := range s.files {
		err = errors.Join(err, f.Close())
	}
	for _, m := range s.matrices {
		err = errors.Join(err, m.Close())
	}
	return errors.Join(err, s.onDevice.Free())
}

// chunkSums are the checksums of chunks that were read into memory of the device.
type chunkSums struct {
	device, pinned gds.Tensor // uint32 [slots, matrices]
}

// readsIntoDevice tells whether the device reads all files into its memory by itself.
func (s *storageSource) readsIntoDevice() bool {
	if !s.l.o.ChunksOnDevice || s.l.unified() {
		return false
	}
	for _, f := range s.files {
		if path := f.Receipt().Path; path != "gds" && path != "gds-compat" {
			return false
		}
	}
	return len(s.files) > 0
}

// allocateOnDevice allocates slots of each matrix in memory of the device. If there is too little, it allocates none.
func (s *storageSource) allocateOnDevice(slots int) error {
	m := &s.onDevice
	m.Device = s.l.o.Device
	memory, sums := s.allocateSlots(slots, m.Alloc), m.Matrix("checksums", slots, len(s.matrices), gds.Uint32)
	pinned := sums
	pinned.Buf = m.Pin("checksums", int64(4*slots*len(s.matrices)))
	switch {
	case errors.Is(m.Err, gds.ErrOutOfMemory):
		return m.Free()
	case m.Err != nil:
		return m.Err
	}
	s.memory, s.sums = memory, &chunkSums{sums, pinned}
	return nil
}

// checkOnDevice checks the chunks of a batch that no batch before has used: the device computes their
// checksums, and the host compares them before anything of the batch is copied.
func (s *storageSource) checkOnDevice(w *pipeline.Worker, parts chunkSlices, stream gds.Stream) error {
	checking := false
	for _, p := range parts {
		if p.slot.checked {
			continue
		}
		checking = true
		i := p.slot.index
		for m, matrix := range s.matrices {
			length := int(matrix.Extent(p.slot.chunk).Length)
			stream.Checksum(s.sums.device.Slice(i, i+1).Columns(m, m+1), gds.Tensor{
				Buf: s.memory[m], Offset: int64(i) * s.l.slotStride(m), Rows: 1, Cols: length, Stride: length, DType: gds.Uint8,
			})
		}
		stream.Copy(s.sums.pinned.Slice(i, i+1), s.sums.device.Slice(i, i+1))
	}
	if !checking {
		return nil
	}
	if err := w.Wait(stream.Record()); err != nil {
		return err
	}
	sums := dtype.Uint32s(s.sums.pinned.Buf.Bytes()[:4*s.sums.pinned.Rows*s.sums.pinned.Cols])
	for m, matrix := range s.matrices { // in the order in which the host checks
		for _, p := range parts {
			if p.slot.checked {
				continue
			}
			if err := matrix.CheckChecksum(p.slot.chunk, sums[p.slot.index*len(s.matrices)+m]); err != nil {
				return err
			}
		}
	}
	return nil
}
