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
)

// minReaders is how many reads are on their way at least: they wait for the
// disk rather than for a processor.
const minReaders = 8

// storageSource reads chunks from the store's files while earlier batches are
// computed on (preprop-gnn section 4.3). The chunks with one number, of all
// matrices, are read in parallel into a slot, and checked; the batches that use
// their rows copy them from there. An epoch meets each chunk once.
//
// prefetch takes a slot for each chunk in the order of the plan and starts its
// reads; a slot is free again when prefetch has gone on to the next chunk and all
// batches with rows of it are assembled. Batches come in order, so prefetch can
// always go on if the slots hold the chunks of one batch.
type storageSource struct {
	l        *Loader
	matrices []*format.Matrix
	files    map[string]*storedFile // by path in the store
	stride   int64                  // bytes of one matrix in a slot
	slots    []*slot
	free     chan *slot
	last     *slot         // that prefetch used
	readers  chan struct{} // holds one for each read on its way
	reading  sync.WaitGroup
}

type storedFile struct {
	gds.File
	bytes atomic.Int64 // read
}

// slot holds one chunk of every matrix: in device memory if the host can check
// it there, else in pinned memory.
type slot struct {
	memory gds.Buffer
	chunk  int
	users  atomic.Int32  // pieces of batches not yet assembled, and prefetch
	read   chan struct{} // closed when the reads are over
	err    error         // of the reads
	copied gds.Event     // after which the memory is not used any more, or nil
}

// piece is the part of a batch that lies in one chunk.
type piece struct {
	slot        *slot
	first, rows int // within the chunk
}

func openStorage(_ context.Context, l *Loader) (source, error) {
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

// slotStride is the memory of one matrix in a slot.
func (l *Loader) slotStride() int64 {
	return (int64(l.layout.ChunkRows)*l.rowBytes() + gds.Align - 1) / gds.Align * gds.Align
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
	for range slots {
		b, err := alloc(s.stride * int64(len(s.matrices)))
		if err != nil {
			return fmt.Errorf("%d slots for chunks of %d matrices: %w", slots, len(s.matrices), err)
		}
		s.slots = append(s.slots, &slot{memory: b})
	}
	s.free = make(chan *slot, slots)
	s.reset()
	return nil
}

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
	for _, span := range j.plan.Spans {
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
			j.pieces = append(j.pieces, piece{slot, int(first), int(n)})
			row += n
		}
	}
	return nil
}

// slot is the one that holds chunk k, or begins to read it.
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
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
	if t.copied != nil {
		if err := t.copied.Wait(ctx); err != nil {
			return nil, err
		}
	}
	t.chunk, t.err, t.copied, t.read = k, nil, nil, make(chan struct{})
	t.users.Store(1)
	s.last = t
	s.reading.Go(func() {
		defer close(t.read)
		t.err = s.readSlot(ctx, t)
	})
	return t, nil
}

// drop ends one use of a slot.
func (s *storageSource) drop(t *slot) {
	if t.users.Add(-1) == 0 {
		s.free <- t
	}
}

// readSlot reads the slot's chunk of every matrix.
func (s *storageSource) readSlot(ctx context.Context, t *slot) error {
	var g errgroup.Group
	for i := range s.matrices {
		g.Go(func() error {
			select {
			case s.readers <- struct{}{}:
				defer func() { <-s.readers }()
			case <-ctx.Done():
				return context.Cause(ctx)
			}
			return s.readChunk(t, i)
		})
	}
	return g.Wait()
}

func (s *storageSource) readChunk(t *slot, matrix int) error {
	m := s.matrices[matrix]
	e, at := m.Extent(t.chunk), int64(matrix)*s.stride
	f := s.files[e.File]
	if err := f.ReadInto(t.memory, at, e.Length, e.Offset); err != nil {
		if errors.Is(err, io.ErrUnexpectedEOF) {
			return &format.CorruptError{File: s.path(e.File), Chunk: e.Chunk, Reason: "the file ends early"}
		}
		return err
	}
	f.bytes.Add(e.Length)
	if s.l.o.Unchecked {
		return nil
	}
	return m.CheckChunk(t.chunk, t.memory.Bytes()[at:at+e.Length])
}

func (s *storageSource) fetch(ctx context.Context, j *job) error {
	for _, p := range j.pieces {
		select {
		case <-p.slot.read:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
		if p.slot.err != nil {
			return p.slot.err
		}
	}
	return nil
}

func (s *storageSource) assemble(_ context.Context, j *job, stream gds.Stream) error {
	f, size, at := j.frame, s.l.rowBytes(), 0
	for _, p := range j.pieces {
		for m := range s.matrices {
			offset := int64(m)*s.stride + int64(p.first)*size
			if s.l.unified() {
				rows := gds.NewTensor(p.slot.memory, p.rows, s.l.layout.Features, s.l.layout.DType)
				rows.Offset = offset
				f.put(m, at, rows, stream)
			} else {
				stream.CopyIn(f.raw[m].Slice(at, at+p.rows), p.slot.memory.Bytes()[offset:offset+int64(p.rows)*size])
			}
		}
		at += p.rows
	}
	copied := stream.Record()
	if !s.l.unified() {
		f.convert(stream)
	}
	for _, p := range j.pieces {
		p.slot.copied = copied
		s.drop(p.slot)
	}
	return nil
}

func (s *storageSource) reset() {
	s.reading.Wait()
	for len(s.free) > 0 {
		<-s.free
	}
	for _, t := range s.slots {
		t.copied = nil
		s.free <- t
	}
	s.last = nil
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
