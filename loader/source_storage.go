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

	"golang.org/x/sync/errgroup"

	"github.com/hopfeed/hopfeed/chunk"
	"github.com/hopfeed/hopfeed/format"
	"github.com/hopfeed/hopfeed/gds"
	"github.com/hopfeed/hopfeed/internal/arrowfile"
	"github.com/hopfeed/hopfeed/internal/dtype"
	"github.com/hopfeed/hopfeed/internal/parallel"
)

// minReaders is how many reads are on their way at least: they wait for the
// disk rather than for a processor.
const minReaders = 8

// maxRead is how long a read may become by neighbours that are read with it.
const maxRead = 8 << 20

// storageSource reads chunks from the store's files while earlier batches are
// computed on (preprop-gnn section 4.3). The chunks with one number, of all
// matrices, are read in parallel into a slot; the batches that use their rows
// check them and copy the rows from there. An epoch meets each chunk once.
//
// prefetch takes slots for the chunks in the order of the plan and starts their
// reads; a slot is free again when prefetch has gone on to the next chunk and all
// batches with rows of it are assembled. Batches come in order, so prefetch can
// always go on if the slots hold the chunks of one batch, and slots become free in
// the order in which they were taken: they are a ring, and lie as far apart as
// chunks do in a file, so that neighbours in both are one read.
type storageSource struct {
	l        *Loader
	matrices []*format.Matrix
	files    map[string]*storedFile // by path in the store
	// memory has the slots, one after another, of each matrix: of the device if the
	// host can touch that, else pinned.
	memory  []gds.Buffer
	stride  int64 // from slot to slot
	slots   []*slot
	free    chan *slot
	last    *slot         // that prefetch used
	begun   *run          // that prefetch may still add to, or nil
	readers chan struct{} // holds one for each read on its way
	reading sync.WaitGroup
}

type storedFile struct {
	gds.File
	reads, bytes atomic.Int64
}

// slot holds one chunk of every matrix.
type slot struct {
	index   int
	chunk   int
	users   atomic.Int32 // pieces of batches not yet assembled, and prefetch
	run     *run         // by which it is read
	checked bool         // its bytes have the checksums of the index
	copied  gds.Event    // after which the memory is not used any more, or nil
}

// run is neighbouring chunks in neighbouring slots, which are read as one.
type run struct {
	slots []*slot
	done  chan struct{} // closed when the reads are over
	err   error         // of the reads
}

// piece is the part of a batch that lies in one chunk.
type piece struct {
	slot        *slot
	first, rows int // within the chunk
	at          int // first row within the batch
}

func openStorage(l *Loader) (source, error) {
	s := &storageSource{
		l:       l,
		files:   make(map[string]*storedFile),
		stride:  l.slotStride(),
		readers: make(chan struct{}, max(l.o.Threads, minReaders)),
	}
	err := s.openFiles()
	if err == nil {
		err = s.allocate()
	}
	if err != nil {
		return nil, errors.Join(err, s.close())
	}
	return s, nil
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

// slotStride is the memory of one matrix in a slot: the bytes of a chunk, in whole
// pages, and the page of Arrow's metadata that lies between two in a file.
func (l *Loader) slotStride() int64 {
	return (int64(l.layout.ChunkRows)*l.rowBytes()+gds.Align-1)/gds.Align*gds.Align + arrowfile.Align
}

// slots is how many there are: those that a batch can need, and those that the
// next one adds, but no more than there are chunks in a region.
func (l *Loader) slots() (int, error) {
	chunks := 1
	for _, r := range l.regions {
		chunks = max(chunks, r.Chunks)
	}
	// Rows of a batch lie in whole chunks, two that are cut, and a short one.
	whole := (l.o.BatchRows - 1) / l.layout.ChunkRows
	need, slots := min(whole+3, chunks), whole+3+whole+1
	if want := l.o.ChunkSlots; want > 0 {
		if want < need {
			return 0, fmt.Errorf("%d chunk slots: batches of %d rows need %d", want, l.o.BatchRows, need)
		}
		slots = want
	}
	return min(slots, chunks), nil
}

func (s *storageSource) allocate() error {
	slots, err := s.l.slots()
	if err != nil {
		return err
	}
	alloc := s.l.memory.pin
	if s.l.unified() {
		alloc = s.l.memory.alloc
	}
	for range s.matrices {
		b, err := alloc(s.stride * int64(slots))
		if err != nil {
			return fmt.Errorf("%d slots for chunks of %d matrices: %w", slots, len(s.matrices), err)
		}
		s.memory = append(s.memory, b)
	}
	for i := range slots {
		s.slots = append(s.slots, &slot{index: i})
	}
	s.free = make(chan *slot, slots)
	s.reset()
	return nil
}

func (s *storageSource) fill(context.Context) error { return nil }

func (s *storageSource) check(set *Set) error {
	if set.list != nil {
		return errors.New("from storage only the split that the store follows can be trained on: propagate again with --split, or place the store in host or device memory")
	}
	rows := s.l.layout.ChunkRows
	if set.plan.Order == chunk.Shuffled && max(set.plan.ChunkRows, 1)%rows != 0 {
		return fmt.Errorf("from storage whole chunks are reshuffled: plan with chunks of %d rows or a multiple, not of %d", rows, set.plan.ChunkRows)
	}
	return nil
}

// ahead lets prefetch work as many batches ahead as there are chunks for.
func (s *storageSource) ahead(set *Set) int {
	return len(s.slots)*s.l.layout.ChunkRows/max(1, set.plan.MaxBatchRows()) + 1
}

func (s *storageSource) prefetch(ctx context.Context, j *job) error {
	at := 0
	for _, span := range j.spans {
		for row, end := span.First, span.First+int64(span.Rows); row < end; {
			in := slices.IndexFunc(s.l.regions, func(r region) bool { return row < r.at+r.Rows })
			r, size := s.l.regions[in], int64(s.l.layout.ChunkRows)
			slot, err := s.slot(ctx, r.FirstChunk+int((row-r.at)/size))
			if err != nil {
				return err
			}
			first := (row - r.at) % size
			n := min(end-row, size-first)
			slot.users.Add(1)
			j.pieces = append(j.pieces, piece{slot, int(first), int(n), at})
			row, at = row+n, at+int(n)
		}
	}
	s.read(ctx)
	return nil
}

// slot is the one that holds chunk k, or will when it has been read.
func (s *storageSource) slot(ctx context.Context, k int) (*slot, error) {
	if s.last != nil {
		if s.last.chunk == k {
			return s.last, nil
		}
		s.drop(s.last)
		s.last = nil
	}
	var t *slot
	select {
	case t = <-s.free:
	default:
		s.read(ctx) // what is taken, before anything is waited for
		select {
		case t = <-s.free:
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
	}
	if t.copied != nil {
		if err := t.copied.Wait(ctx); err != nil {
			return nil, err
		}
	}
	t.chunk, t.checked, t.copied = k, false, nil
	t.users.Store(1)
	s.last = t
	if s.begun != nil && !s.follows(s.begun, t) {
		s.read(ctx)
	}
	if s.begun == nil {
		s.begun = &run{done: make(chan struct{})}
	}
	t.run = s.begun
	t.run.slots = append(t.run.slots, t)
	return t, nil
}

// follows tells whether slot t can be read as the end of a run.
func (s *storageSource) follows(r *run, t *slot) bool {
	last := r.slots[len(r.slots)-1]
	if t.index != last.index+1 || t.chunk != last.chunk+1 || int64(len(r.slots)+1)*s.stride > maxRead {
		return false
	}
	return !slices.ContainsFunc(s.matrices, func(m *format.Matrix) bool {
		a, b := m.Extent(last.chunk), m.Extent(t.chunk)
		return a.File != b.File || b.Offset-a.Offset != s.stride
	})
}

// drop ends one use of a slot.
func (s *storageSource) drop(t *slot) {
	if t.users.Add(-1) == 0 {
		s.free <- t
	}
}

// read begins to read the run that has been taken.
func (s *storageSource) read(ctx context.Context) {
	r := s.begun
	if r == nil {
		return
	}
	s.begun = nil
	s.reading.Go(func() {
		defer close(r.done)
		var g errgroup.Group
		for m := range s.matrices {
			g.Go(func() error {
				select {
				case s.readers <- struct{}{}:
					defer func() { <-s.readers }()
				case <-ctx.Done():
					return context.Cause(ctx)
				}
				return s.readRun(r, m)
			})
		}
		r.err = g.Wait()
	})
}

// readRun reads the chunks of a run, of one matrix.
func (s *storageSource) readRun(r *run, matrix int) error {
	m, slots := s.matrices[matrix], r.slots
	first, last := m.Extent(slots[0].chunk), m.Extent(slots[len(slots)-1].chunk)
	f := s.files[first.File]
	length := last.Offset + last.Length - first.Offset
	if err := f.ReadInto(s.memory[matrix], int64(slots[0].index)*s.stride, length, first.Offset); err != nil {
		if errors.Is(err, io.ErrUnexpectedEOF) {
			return &format.CorruptError{File: s.path(first.File), Chunk: first.Chunk, Reason: "the file ends early, in this chunk or one of the next"}
		}
		return err
	}
	f.reads.Add(1)
	for _, t := range slots {
		f.bytes.Add(m.Extent(t.chunk).Length)
	}
	return nil
}

func (s *storageSource) fetch(ctx context.Context, j *job) error {
	for _, p := range j.pieces {
		select {
		case <-p.slot.run.done:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
		if p.slot.run.err != nil {
			return p.slot.run.err
		}
	}
	return nil
}

// stored is the bytes of a matrix in a slot, from some row of the chunk on.
func (s *storageSource) stored(t *slot, matrix, row, rows int) []byte {
	at, size := int64(t.index)*s.stride, s.l.rowBytes()
	return s.memory[matrix].Bytes()[at+int64(row)*size:][:int64(rows)*size]
}

// assemble checks each chunk when a batch uses it first, just before its rows are
// copied, so that the copy finds them in the processor's cache.
func (s *storageSource) assemble(ctx context.Context, j *job, stream gds.Stream) error {
	f, pieces, unified := j.frame, int64(len(j.pieces)), s.l.unified()
	var features []byte
	if unified {
		features = f.features.Bytes()
	}
	err := parallel.For(ctx, s.l.o.Threads, pieces*int64(len(s.matrices)), 1, func(i, _ int64) error {
		p, m := j.pieces[i%pieces], int(i/pieces)
		if !p.slot.checked && !s.l.o.Unchecked {
			matrix := s.matrices[m]
			_, rows := matrix.ChunkRowRange(p.slot.chunk)
			if err := matrix.CheckChunk(p.slot.chunk, s.stored(p.slot, m, 0, rows)); err != nil {
				return err
			}
		}
		if unified {
			dst, cols := dtype.Float32s(features), s.l.layout.Features
			from := (m*j.plan.Rows + p.at) * cols
			stored := s.stored(p.slot, m, p.first, p.rows)
			s.l.assembled.Add(int64(len(stored)))
			dtype.Decode(dst[from:from+p.rows*cols], stored, s.l.layout.DType)
		}
		return nil
	})
	if err != nil {
		return err
	}
	if !unified {
		for m := range s.matrices {
			for _, p := range j.pieces {
				at := m*j.plan.Rows + p.at
				stream.CopyIn(f.raw.Slice(at, at+p.rows), s.stored(p.slot, m, p.first, p.rows))
			}
		}
	}
	copied := stream.Record()
	if !unified {
		f.convert(stream)
	}
	for _, p := range j.pieces {
		p.slot.checked, p.slot.copied = true, copied
		s.drop(p.slot)
	}
	return nil
}

func (s *storageSource) release(*job) {}

func (s *storageSource) reset() {
	s.reading.Wait()
	for len(s.free) > 0 {
		<-s.free
	}
	for _, t := range s.slots {
		t.copied = nil
		s.free <- t
	}
	s.last, s.begun = nil, nil
}

func (s *storageSource) reads() []ReadStats {
	var out []ReadStats
	for _, f := range s.files {
		receipt := f.Receipt()
		i := slices.IndexFunc(out, func(r ReadStats) bool { return r.Path == receipt.Path && r.Reason == receipt.Reason })
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
	s.reading.Wait()
	var err error
	for _, f := range s.files {
		err = errors.Join(err, f.Close())
	}
	for _, m := range s.matrices {
		err = errors.Join(err, m.Close())
	}
	return err
}
