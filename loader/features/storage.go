package features

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
	"github.com/hopfeed/hopfeed/internal/dtype"
	"github.com/hopfeed/hopfeed/internal/kernel"
	"github.com/hopfeed/hopfeed/internal/need"
	"github.com/hopfeed/hopfeed/internal/parallel"
	"github.com/hopfeed/hopfeed/internal/vfs"
)

const (
	// blockBytes is the unit of reading and checking: a page, which direct reads come in.
	blockBytes = gds.Align
	// maxReadBytes is the longest read: from there on a disk gives its full rate.
	maxReadBytes = 128 << 10
	// readers is how many reads are on their way: they wait for the disk, not for a processor.
	readers = 64
)

// Storage reads rows from the files of a graph when they are wanted. The rows of one call are sorted; rows in the same
// or close pages are one read.
//
// A row is shorter than the chunk that the graph's index has a checksum of. So opening reads every
// chunk once, compares its checksum, and keeps one for each block of 4 KiB of it, a thousandth of the
// features; every block that is read later is compared with that.
type Storage struct {
	shape
	matrix *format.Matrix
	files  map[string]gds.File
	blocks int64    // of a whole chunk
	sums   []uint32 // CRC-32C of block b of chunk k at k*blocks+b
	memory gds.Buffer
	free   chan int64 // places in memory, each of readBufferBytes

	mu           sync.Mutex // of a call
	keys, sorted []uint64   // rows of a call: node, then place in the batch
	runs         []run

	gathered, reads, readBytes atomic.Int64
}

// run is one read of blocks [firstBlock, endBlock) of a chunk, for the rows sorted[first:end]. wanted counts the blocks
// that hold these rows.
type run struct {
	chunk, firstBlock, endBlock, wanted int64
	first, end                          int
}

// readBufferBytes has room for the longest read, which may begin and end within pages.
const readBufferBytes = maxReadBytes + 2*blockBytes

// StorageNeed is the memory of OpenStorage for a graph of n rows.
func StorageNeed(n, rowBytes int64) need.Terms {
	return need.Terms{
		{Name: "blocks being read", Place: need.Pinned, Bytes: readers * readBufferBytes},
		{Name: "checksums of blocks", Place: need.Heap, Bytes: n * rowBytes / blockBytes * 4},
	}
}

// OpenStorage opens the features of a graph, and reads and checks them once. The graph must stay open as long. threads
// 0 is parallel.Threads.
func OpenStorage(ctx context.Context, graph *format.Dir, device gds.Device, threads int) (_ *Storage, err error) {
	s := &Storage{files: make(map[string]gds.File), free: make(chan int64, readers)}
	if s.shape, err = newShape(graph); err != nil {
		return nil, err
	}
	if s.rowBytes() > maxReadBytes-blockBytes {
		return nil, fmt.Errorf("rows of %d bytes are too long to be read one by one (at most %d): load the features "+
			"into memory", s.rowBytes(), maxReadBytes-blockBytes)
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, s.Close())
		}
	}()
	if s.matrix, err = graph.Matrix(format.Input); err != nil {
		return nil, err
	}
	for k := range s.matrix.Chunks() {
		e := s.matrix.Extent(k)
		if s.files[e.File] == nil {
			path := filepath.FromSlash(e.File)
			if !filepath.IsAbs(path) && !vfs.IsURL(path) {
				path = filepath.Join(graph.Path(), path)
			}
			if s.files[e.File], err = device.OpenFile(graph.FS(), path); err != nil {
				delete(s.files, e.File)
				return nil, err
			}
		}
	}
	if s.memory, err = device.AllocPinned(readers * readBufferBytes); err != nil {
		return nil, fmt.Errorf("pinned memory for reads: %w", err)
	}
	for i := range int64(readers) {
		s.free <- i * readBufferBytes
	}
	s.blocks = (s.chunkRows*s.rowBytes() + blockBytes - 1) / blockBytes
	return s, s.sum(ctx, threads)
}

// sum checks all chunks, and keeps the checksums of their blocks.
func (s *Storage) sum(ctx context.Context, threads int) error {
	chunks := int64(s.matrix.Chunks())
	s.sums = make([]uint32, chunks*s.blocks)
	// A thread has a chunk in memory at a time.
	const grain = 16
	return parallel.For(ctx, threads, chunks, grain, func(lo, hi int64) error {
		buf := make([]byte, s.chunkRows*s.rowBytes())
		for k := lo; k < hi; k++ {
			data := buf[:s.matrix.Extent(int(k)).Length]
			if err := s.matrix.ReadChunk(int(k), data); err != nil {
				return err
			}
			for b := range (int64(len(data)) + blockBytes - 1) / blockBytes {
				s.sums[k*s.blocks+b] = kernel.CRC32C(0, data[b*blockBytes:min((b+1)*blockBytes, int64(len(data)))])
			}
		}
		return nil
	})
}

// Gather reads rows; see Source.
func (s *Storage) Gather(ctx context.Context, dst []byte, as gds.DType, nodes []uint32) error {
	if err := s.check(dst, as, nodes); err != nil || len(nodes) == 0 {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.sort(nodes)
	s.findRuns()
	err := parallel.For(ctx, readers, int64(len(s.runs)), 1, func(i, _ int64) error {
		at := <-s.free
		defer func() { s.free <- at }()
		return s.read(&s.runs[i], at, dst, as)
	})
	s.gathered.Add(int64(len(nodes)))
	return err
}

// sort sorts the rows of a call by node, digit by digit.
func (s *Storage) sort(nodes []uint32) {
	if cap(s.keys) < len(nodes) {
		s.keys, s.sorted = make([]uint64, len(nodes)+len(nodes)/4), make([]uint64, len(nodes)+len(nodes)/4)
	}
	from, to := s.keys[:len(nodes)], s.sorted[:len(nodes)]
	for i, node := range nodes {
		from[i] = uint64(node)<<32 | uint64(i)
	}
	const digit = 11
	var counts [1 << digit]int
	for shift := 32; (s.rows-1)>>(shift-32) > 0; shift += digit {
		clear(counts[:])
		for _, key := range from {
			counts[key>>shift&(1<<digit-1)]++
		}
		at := 0
		for i, n := range counts {
			counts[i] = at
			at += n
		}
		for _, key := range from {
			d := key >> shift & (1<<digit - 1)
			to[counts[d]] = key
			counts[d]++
		}
		from, to = to, from
	}
	s.keys, s.sorted = to[:cap(to)], from
}

// findRuns joins sorted rows into reads. A read goes on over unwanted blocks if they are at most half as many as its
// wanted ones: to read them in passing takes less time than another read.
func (s *Storage) findRuns() {
	s.runs = s.runs[:0]
	for i, key := range s.sorted {
		node := int64(key >> 32)
		chunk, at := node/s.chunkRows, node%s.chunkRows*s.rowBytes()
		first, end := at/blockBytes, (at+s.rowBytes()+blockBytes-1)/blockBytes
		if last := len(s.runs) - 1; last >= 0 {
			r := &s.runs[last]
			if r.chunk == chunk && first-r.endBlock <= r.wanted/2 && end-r.firstBlock <= maxReadBytes/blockBytes {
				if more := end - max(first, r.endBlock); more > 0 {
					r.wanted, r.endBlock = r.wanted+more, end
				}
				r.end = i + 1
				continue
			}
		}
		s.runs = append(s.runs, run{chunk, first, end, end - first, i, i + 1})
	}
}

// read reads a run into memory at a place, checks its blocks, and copies its rows.
func (s *Storage) read(r *run, place int64, dst []byte, as gds.DType) error {
	e := s.matrix.Extent(int(r.chunk))
	lo, hi := r.firstBlock*blockBytes, min(r.endBlock*blockBytes, e.Length) // within the chunk
	// In the file, whose chunks need not begin with a page:
	from := (e.Offset + lo) / blockBytes * blockBytes
	length := e.Offset + hi - from
	if err := s.files[e.File].ReadInto(s.memory, place, length, from); err != nil {
		if errors.Is(err, io.ErrUnexpectedEOF) {
			return s.damaged(r.chunk)
		}
		return err
	}
	s.reads.Add(1)
	s.readBytes.Add((length + blockBytes - 1) / blockBytes * blockBytes)
	data := s.memory.Bytes()[place+e.Offset+lo-from:][:hi-lo]
	b := r.chunk*s.blocks + r.firstBlock
	for block := range slices.Chunk(data, blockBytes) {
		if kernel.CRC32C(0, block) != s.sums[b] {
			return s.damaged(r.chunk)
		}
		b++
	}
	size, out := s.rowBytes(), int64(s.columns*as.Size())
	for _, key := range s.sorted[r.first:r.end] {
		row := data[int64(key>>32)%s.chunkRows*size-lo:][:size]
		to := dst[int64(uint32(key))*out:][:out]
		if as == s.dtype {
			copy(to, row)
		} else {
			dtype.Decode(dtype.Float32s(to), row, s.dtype)
		}
	}
	return nil
}

// damaged is the error for a chunk with a block that is not as it was when the file was opened.
func (s *Storage) damaged(chunk int64) error {
	e := s.matrix.Extent(int(chunk))
	if err := s.matrix.ReadChunk(int(chunk), make([]byte, e.Length)); err != nil {
		return err // which says what to do
	}
	return &format.CorruptError{File: e.File, Chunk: e.Chunk,
		Reason: "its bytes have changed since the file was opened and checked (run the command again; if this " +
			"repeats, check the disk)"}
}

// Stored tells that rows are read from files.
func Stored(s Source) bool { _, stored := s.(*Storage); return stored }

// Stats counts reads.
func (s *Storage) Stats() Stats {
	rows := s.gathered.Load()
	stats := Stats{Rows: rows, Bytes: rows * s.rowBytes(), Reads: s.reads.Load(), ReadBytes: s.readBytes.Load()}
	for _, f := range s.files {
		receipt := f.Receipt()
		if stats.Path == "" || receipt.Reason != "" {
			stats.Path, stats.Reason = receipt.Path, receipt.Reason
		}
	}
	return stats
}

// Close closes the files. The graph has the rest.
func (s *Storage) Close() error {
	var errs []error
	for _, f := range s.files {
		errs = append(errs, f.Close())
	}
	if s.matrix != nil {
		errs = append(errs, s.matrix.Close())
	}
	if s.memory != nil {
		errs = append(errs, s.memory.Free())
	}
	return errors.Join(errs...)
}
