package ingest

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"math/bits"
	"path/filepath"
	"strconv"
	"sync/atomic"

	"github.com/hopfeed/hopfeed/format"
	"github.com/hopfeed/hopfeed/internal/dtype"
	"github.com/hopfeed/hopfeed/internal/machine"
	"github.com/hopfeed/hopfeed/internal/offheap"
	"github.com/hopfeed/hopfeed/internal/parallel"
	"github.com/hopfeed/hopfeed/internal/progress"
	"github.com/hopfeed/hopfeed/internal/units"
	"github.com/hopfeed/hopfeed/internal/vfs"
)

// Edges are sorted as records: a key, destination and then source, and a weight
// where the source has weights. It is a radix sort from the first digit on:
//
//  1. Records are parted into buckets by the upper bits of their keys.
//  2. Each bucket is sorted in memory, stably, all threads at once; duplicates, now
//     side by side, are merged, and degrees counted. What is left of a bucket goes
//     to where its records were. A bucket that is too large for memory is parted
//     again, on disk, before.
//  3. Degrees and edges become the topology.
//
// Buckets are on disk where memory does not hold them; it must hold the degrees.
// Every list is in the order (source, place in the input), so the bytes are the same
// for any buckets, and lists may have any length.

// sortPlan is how edges are sorted.
type sortPlan struct {
	onDisk  bool  // the buckets are
	threads int   // that sort
	digit   int   // bits of a key that part records into buckets
	block   int64 // records that a thread gathers of a bucket before they go there
	piece   int64 // most records that a thread sorts in memory
}

const (
	bucketRecords = 1 << 17 // about; a bucket should stay in cache
	maxBucketBits = 10
	minBlock      = 1 << 7 // records
	maxBlock      = 1 << 9
	maxDiskBlock  = 1 << 13
	maxBlocks     = 1 << 18 // whose places are known by heart
	minPiece      = 1 << 16 // records
)

// recordBytes is the most that a record takes while it is gathered or sorted.
func (t *topology) recordBytes() int64 {
	if t.info.Weighted {
		return 12
	}
	return 8
}

// nodeBits is how many bits of a key are the source. The others are the destination.
func (t *topology) nodeBits() int { return bits.Len64(uint64(max(t.info.Nodes, 2) - 1)) }

// bucketBits is how many bits part the records into buckets. A list is in one.
func (t *topology) bucketBits() int {
	return min(1+bits.Len64(uint64(t.entries/bucketRecords)), maxBucketBits, t.nodeBits())
}

// bucketBytes is what all buckets take.
func (t *topology) bucketBytes() int64 {
	bytes := keyWidth(2*t.nodeBits() - t.bucketBits())
	if t.weighted {
		bytes += 4
	}
	return bytes * t.entries
}

// planSort divides the memory that there is, with fewer threads where it is short.
func (t *topology) planSort() (sortPlan, error) {
	p := sortPlan{threads: t.o.Threads, digit: t.bucketBits(), block: t.leastBlock(), piece: math.MaxInt64}
	if p.block = max(p.block, maxBlock); t.o.MemoryBytes == 0 {
		return p, nil
	}
	left := t.o.MemoryBytes - 4*t.info.Nodes - workingBytes(t.o)
	record, buckets := t.recordBytes(), int64(1)<<p.digit
	for _, p.onDisk = range []bool{false, true} {
		left, most, least := left-t.bucketBytes(), int64(maxBlock), max(minPiece, 8*t.entries/buckets)
		if p.onDisk {
			left, most, least = left+t.bucketBytes(), maxDiskBlock, minPiece
		}
		for p.threads = t.o.Threads; p.threads > 0; p.threads-- {
			share := left / int64(p.threads) / record
			p.block = max(t.leastBlock(), min((share/2-least)/buckets, most))
			if p.piece = (share - p.block*buckets) / 2; p.piece >= least {
				return p, nil
			}
		}
	}
	return p, fmt.Errorf("%w: to sort %d edges of %d nodes needs %v of memory, %v may be used",
		machine.ErrDoesNotFit, t.entries, t.info.Nodes, units.Bytes(t.leastMemory()), units.Bytes(t.o.MemoryBytes))
}

func (t *topology) leastBlock() int64 { return max(minBlock, (t.entries+maxBlocks-1)/maxBlocks) }

// leastMemory is memory that suffices, though with one thread.
func (t *topology) leastMemory() int64 {
	return 4*t.info.Nodes + workingBytes(t.o) + t.recordBytes()*(t.leastBlock()<<t.bucketBits()+2*minPiece)
}

// edgeSort is edges that are being sorted.
type edgeSort struct {
	*topology
	plan sortPlan
	bits int // of a node id in a key

	fsys         vfs.FS
	folder       string // of scratch files
	scratchFiles atomic.Int64

	*partition         // the buckets, and then what merging leaves of them
	stored       int64 // of all
	degreeMemory *offheap.Buffer
	degrees      []uint32 // [n] entries of each list, when merged
}

// sort sorts and merges the edges, with scratch files in folder. The caller frees what is
// returned.
func (t *topology) sort(ctx context.Context, fsys vfs.FS, folder string, plan sortPlan) (_ *edgeSort, err error) {
	s := &edgeSort{topology: t, plan: plan, bits: t.nodeBits(), fsys: fsys, folder: folder}
	defer func() {
		if err != nil {
			s.free()
		}
	}()
	if s.partition, err = s.newPartition(2*s.bits, t.entries, plan.onDisk, t.weighted); err != nil {
		return nil, err
	}
	if err := s.gather(ctx); err != nil {
		return nil, err
	}
	if s.degreeMemory, err = offheap.Alloc(4 * t.info.Nodes); err != nil {
		return nil, fmt.Errorf("%w: %w", machine.ErrDoesNotFit, err)
	}
	s.degrees = dtype.Uint32s(s.degreeMemory.Bytes())
	return s, s.merge(ctx)
}

// newPartition starts a partition of so many records with keys of so many bits.
func (s *edgeSort) newPartition(keyBits int, records int64, onDisk, weighted bool) (p *partition, err error) {
	p = &partition{shift: max(0, keyBits-s.plan.digit)}
	p.width = keyWidth(p.shift)
	p.buckets = make([]bucket, 1<<(keyBits-p.shift))
	create := func(bytes int64) (*edgeArea, error) {
		if !onDisk {
			return newAreaMemory(bytes)
		}
		return newAreaFile(s.fsys, filepath.Join(s.folder, "edges-"+strconv.FormatInt(s.scratchFiles.Add(1), 10)))
	}
	if p.keys, err = create(p.width * records); err != nil {
		return nil, err
	}
	if weighted {
		if p.weights, err = create(4 * records); err != nil {
			return nil, errors.Join(err, p.keys.free())
		}
	}
	return p, nil
}

// free gives memory and disk back. Files that could not be removed go with their folder.
func (s *edgeSort) free() {
	if s.partition != nil {
		_ = s.partition.free()
	}
	if s.degreeMemory != nil {
		_ = s.degreeMemory.Free()
	}
}

// gather parts the edges into buckets.
func (s *edgeSort) gather(ctx context.Context) error {
	task := s.o.Progress.Start("part edges", s.edges, progress.Items)
	defer task.Done()
	threads := s.plan.threads
	if s.info.Weighted {
		threads = 1 // edges in order: it tells which of several is the first
	}
	partitioners := make(chan *partitioner, threads)
	for range threads {
		p, err := newPartitioner(s.plan, s.info.Weighted)
		if err != nil {
			return err
		}
		defer p.memory.Free()
		partitioners <- p
	}
	var edges, loops atomic.Int64
	err := s.src.Edges(ctx, threads, func(e Edges) error {
		if edges.Add(int64(len(e.Dst))) > s.edges {
			return errChanged // and there may be no room for them
		}
		p := <-partitioners
		defer func() { partitioners <- p }()
		task.Add(int64(len(e.Dst)))
		n, err := s.addEdges(p, e)
		loops.Add(n)
		return err
	})
	if err == nil {
		err = parallel.For(ctx, threads, int64(threads), 1, func(int64, int64) error { return (<-partitioners).flush(s.partition) })
	}
	if err == nil && edges.Load() != s.edges {
		err = errChanged
	}
	s.entries, s.loops = s.records, loops.Load()
	return err
}

// addEdges adds edges and their reverses to the buckets, and counts the loops.
func (s *edgeSort) addEdges(p *partitioner, e Edges) (loops int64, err error) {
	drop := s.o.SelfLoops == DropLoops
	used := 0
	for i, dst := range e.Dst {
		source := e.Src[i]
		if source == dst {
			loops++
			if drop {
				continue
			}
		}
		if used+2 > len(p.newKeys) {
			if err := p.add(s.partition, used); err != nil {
				return loops, err
			}
			used = 0
		}
		p.newKeys[used] = uint64(dst)<<s.bits | uint64(source)
		if e.Weights != nil {
			p.newWeights[used] = e.Weights[i]
		}
		used++
		if s.reverses && source != dst {
			p.newKeys[used] = uint64(source)<<s.bits | uint64(dst)
			if e.Weights != nil {
				p.newWeights[used] = e.Weights[i]
			}
			used++
		}
	}
	return loops, p.add(s.partition, used)
}

// write writes the topology.
func (s *edgeSort) write(ctx context.Context, w *format.Writer) error {
	task := s.o.Progress.Start("write edges", s.edgeBytes(s.stored), progress.Bytes)
	defer task.Done()
	neighbors := &edgeReader{ctx: ctx, task: task, area: s.keys, width: s.width, s: s}
	if s.weights == nil {
		return w.StreamTopology(s.degrees, neighbors, nil)
	}
	return w.StreamTopology(s.degrees, neighbors, &edgeReader{ctx: ctx, task: task, area: s.weights, width: 4, s: s})
}

// edgeReader reads what merging has left in an area, 4 bytes an edge. It ends with its context, and
// shows progress.
type edgeReader struct {
	ctx    context.Context
	task   progress.Task
	s      *edgeSort
	area   *edgeArea
	width  int64 // bytes of a record of the area
	bucket int
	extent int
	done   int64 // bytes of the extent
	before int64 // edges of the bucket in extents before
}

func (r *edgeReader) Read(p []byte) (int, error) {
	if err := context.Cause(r.ctx); err != nil {
		return 0, err
	}
	for ; r.bucket < len(r.s.buckets); r.bucket, r.extent, r.before = r.bucket+1, 0, 0 {
		b := &r.s.buckets[r.bucket]
		for ; r.extent < len(b.extents); r.extent++ {
			e := b.extents[r.extent]
			if left := 4*min(e.records, b.edges-r.before) - r.done; left > 0 {
				p = p[:min(int64(len(p)), left)]
				n, err := r.area.ReadAt(p, e.first*r.width+r.done)
				r.done += int64(n)
				r.task.Add(int64(n))
				return n, err
			}
			r.before, r.done = r.before+e.records, 0
		}
	}
	return 0, io.EOF
}
