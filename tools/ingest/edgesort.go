package ingest

import (
	"context"
	"fmt"
	"io"
	"math"
	"math/bits"
	"sync/atomic"

	"github.com/hopfeed/hopfeed/format"
	"github.com/hopfeed/hopfeed/internal/dtype"
	"github.com/hopfeed/hopfeed/internal/folder"
	"github.com/hopfeed/hopfeed/internal/offheap"
	"github.com/hopfeed/hopfeed/internal/progress"
	"github.com/hopfeed/hopfeed/internal/vfs"
)

// Edges are sorted by a bucket sort, on disk where they do not fit in memory. Its words:
//
//   - record: an edge that is being sorted: a key, (destination, source), and a weight
//     where the source has weights.
//   - bucket: the records whose keys have the same upper bits.
//   - block: consecutive records of one bucket in scratch space. A bucket has many blocks,
//     since all buckets share the space.
//   - sort buffer: memory for the records that a thread sorts at a time.
//
// Its steps:
//
//  1. Records are distributed to buckets.
//  2. Threads sort the buckets, stably, one bucket a thread. Duplicates, now adjacent,
//     are merged, and in-degrees counted. The edges overwrite the blocks of their bucket. A
//     bucket that does not fit in the sort buffer is distributed to smaller buckets
//     on disk first, which needs its space once more.
//  3. In-degrees and edges are written as the topology.
//
// Memory must hold the in-degrees, 4 bytes a node. The in-neighbours of a node are in the order (source, position in
// the input), so the bytes do not depend on the buckets.

// sortPlan is how the memory for sorting edges is divided.
type sortPlan struct {
	onDisk        bool  // the buckets are on disk
	threads       int   // that sort
	bucketBits    int   // upper bits of a key that tell its bucket
	bufferRecords int64 // records that a thread buffers for each bucket, and adds to it at once: a block
	sortRecords   int64 // records of the sort buffer that each thread has
}

const (
	bucketRecords        = 1 << 17 // about; a bucket should fit in cache
	maxBucketBits        = 10
	minBufferRecords     = 1 << 7 // records
	maxBufferRecords     = 1 << 9
	maxDiskBufferRecords = 1 << 13
	maxBlocks            = 1 << 18 // whose list is in memory
	minSortRecords       = 1 << 16 // records
)

func (t *topology) recordBytes() int64 {
	if t.info.Weighted {
		return 12
	}
	return 8
}

// nodeBits is how many bits of a key are the source, and how many the destination.
func (t *topology) nodeBits() int {
	return bits.Len64(uint64(max(t.info.Nodes, t.info.SourceNodes, 2) - 1))
}

// bucketBits is how many upper bits of a key tell the bucket. They are bits of the destination, so all in-neighbours of
// a node are in one bucket.
func (t *topology) bucketBits() int {
	return min(1+bits.Len64(uint64(t.recordCount/bucketRecords)), maxBucketBits, t.nodeBits())
}

func (t *topology) bucketBytes() int64 {
	_, record := t.recordWidths(2*t.nodeBits() - t.bucketBits())
	return int64(record) * t.recordCount
}

// planSort divides the memory: buckets in memory if they fit, else on disk; fewer threads where memory is short. It
// returns ErrDoesNotFit where one thread has too little.
func (t *topology) planSort() (sortPlan, error) {
	p := sortPlan{threads: t.o.Threads, bucketBits: t.bucketBits(), bufferRecords: t.leastBufferRecords(),
		sortRecords: math.MaxInt64}
	if p.bufferRecords = max(p.bufferRecords, maxBufferRecords); t.o.MemoryBytes == 0 {
		return p, nil
	}
	left := t.o.MemoryBytes - t.o.workingBytes() - 4*t.info.Nodes
	record, buckets := t.recordBytes(), int64(1)<<p.bucketBits
	for _, p.onDisk = range []bool{false, true} {
		left, most, least := left-t.bucketBytes(), int64(maxBufferRecords), max(t.leastSortRecords(), 8*t.recordCount/buckets)
		if p.onDisk {
			left, most, least = left+t.bucketBytes(), maxDiskBufferRecords, t.leastSortRecords()
		}
		for p.threads = t.o.Threads; p.threads > 0 && left >= t.writeBytes(); p.threads-- {
			share := (left/int64(p.threads) - 8*buckets) / record
			p.bufferRecords = max(t.leastBufferRecords(), min((share/2-least)/buckets, most))
			if p.sortRecords = (share - p.bufferRecords*buckets) / 2; p.sortRecords >= least {
				return p, nil
			}
		}
	}
	return p, t.o.checkMemory(fmt.Sprintf("sorting %d edges of %d nodes", t.recordCount, t.info.Nodes), t.leastMemory())
}

func (t *topology) leastBufferRecords() int64 {
	return max(minBufferRecords, (t.recordCount+maxBlocks-1)/maxBlocks)
}

// leastSortRecords is the least size of a sort buffer: a block.
func (t *topology) leastSortRecords() int64 { return max(minSortRecords, t.leastBufferRecords()) }

// writeBytes is the memory of the stream that writes the sorted edges.
func (t *topology) writeBytes() int64 { return vfs.StreamBytes(8*(t.info.Nodes+1) + 4*t.recordCount) }

// sortMemory is the memory of sorting by a plan: in-degrees, buckets that are in memory, and for each thread a
// distributor and a sort buffer, which are freed when what was sorted is written.
func (t *topology) sortMemory(p sortPlan) int64 {
	buffers := int64(p.threads) * (t.distributorBytes(p) + 2*t.recordBytes()*p.sortRecords)
	bytes := 4*t.info.Nodes + max(buffers, t.writeBytes())
	if !p.onDisk {
		bytes += t.bucketBytes()
	}
	return bytes
}

// leastMemory is the memory of sorting with one thread and buckets on disk.
func (t *topology) leastMemory() int64 {
	return t.sortMemory(sortPlan{onDisk: true, threads: 1, bucketBits: t.bucketBits(),
		bufferRecords: t.leastBufferRecords(), sortRecords: t.leastSortRecords()})
}

type edgeSort struct {
	*topology
	plan sortPlan
	bits int // of a node ID in a key

	fsys         vfs.FS
	scratch      *folder.Scratch
	scratchFiles atomic.Int64

	*bucketSet         // first records; after merging, edges
	storedEdges  int64 // edges after merging
	degreeMemory *offheap.Buffer
	degrees      []uint32 // [n] in-degrees after merging
}

// sort sorts and merges the edges, with scratch files in a folder. The caller frees the result.
func (t *topology) sort(ctx context.Context, fsys vfs.FS, scratch *folder.Scratch,
	plan sortPlan) (_ *edgeSort, err error) {
	s := &edgeSort{topology: t, plan: plan, bits: t.nodeBits(), fsys: fsys, scratch: scratch}
	defer func() {
		if err != nil {
			s.free()
		}
	}()
	if s.bucketSet, err = s.newBucketSet(2*s.bits, t.recordCount, plan.onDisk); err != nil {
		return nil, err
	}
	if err := s.distribute(ctx); err != nil {
		return nil, err
	}
	if s.degreeMemory, err = alloc(4 * t.info.Nodes); err != nil {
		return nil, err
	}
	s.degrees = dtype.Uint32s(s.degreeMemory.Bytes())
	return s, s.merge(ctx)
}

// newBucketSet makes empty buckets with space for records whose keys have keyBits bits.
func (s *edgeSort) newBucketSet(keyBits int, records int64, onDisk bool) (p *bucketSet, err error) {
	p = &bucketSet{shift: max(0, keyBits-s.plan.bucketBits), blockSize: s.plan.bufferRecords}
	p.keyWidth, p.width = s.recordWidths(p.shift)
	p.buckets = make([]bucket, 1<<(keyBits-p.shift))
	if onDisk {
		p.space, err = newFileSpace(s.fsys, s.scratch.Path(fmt.Sprint("edges-", s.scratchFiles.Add(1))))
	} else {
		p.space = &scratchSpace{}
		p.space.memory, err = alloc(int64(p.width) * records)
	}
	return p, err
}

// free frees memory and removes scratch files. A file that cannot be removed goes with its folder.
func (s *edgeSort) free() {
	if s.bucketSet != nil {
		_ = s.space.free()
	}
	if s.degreeMemory != nil {
		_ = s.degreeMemory.Free()
	}
}

// distribute adds the edges, and their reverses if wanted, to the buckets.
func (s *edgeSort) distribute(ctx context.Context) error {
	task := s.o.Progress.Start("distribute edges", s.info.Edges, progress.Items)
	defer task.Done()
	threads := s.plan.threads
	if s.info.Weighted {
		threads = 1 // in the order of the input, as the first of several duplicates counts
	}
	all, distributors := make([]*distributor, threads), make(chan *distributor, threads)
	for i := range all {
		p, err := s.newDistributor()
		if err != nil {
			return err
		}
		defer p.memory.Free()
		all[i] = p
		distributors <- p
	}
	var edges, loops atomic.Int64
	err := s.src.Edges(ctx, threads, func(e Edges) error {
		if edges.Add(int64(len(e.Dst))) > s.info.Edges {
			return errChanged // more would overrun the buckets
		}
		p := <-distributors
		defer func() { distributors <- p }()
		task.Add(int64(len(e.Dst)))
		n, err := s.addEdges(p, e)
		loops.Add(n)
		return err
	})
	if err == nil {
		err = s.flush(all...)
	}
	if err == nil && edges.Load() != s.info.Edges {
		err = errChanged
	}
	s.recordCount, s.loops = s.records, loops.Load()
	return err
}

// addEdges adds a block of edges, and their reverses if wanted, to the buckets, and counts self-loops.
func (s *edgeSort) addEdges(p *distributor, e Edges) (loops int64, err error) {
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
			if err := p.add(s.bucketSet, used); err != nil {
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
	return loops, p.add(s.bucketSet, used)
}

func (s *edgeSort) write(ctx context.Context, w *format.Writer) error {
	task := s.o.Progress.Start("write edges", s.edgeBytes(s.storedEdges), progress.Bytes)
	defer task.Done()
	sources := &edgeReader{ctx: ctx, task: task, s: s}
	if !s.weighted {
		return w.StreamTopology(s.degrees, sources, nil)
	}
	return w.StreamTopology(s.degrees, sources, &edgeReader{ctx: ctx, task: task, s: s, column: 1})
}

// edgeReader reads the merged edges of all buckets in order: their sources, or their weights, 4 bytes each. It fails
// when its context ends, and reports progress.
type edgeReader struct {
	ctx    context.Context
	task   progress.Task
	s      *edgeSort
	column int // 0: sources, 1: weights
	bucket int
	done   int64  // bytes read of the bucket
	sum    uint32 // their CRC-32C
}

func (r *edgeReader) Read(p []byte) (int, error) {
	if err := context.Cause(r.ctx); err != nil {
		return 0, err
	}
	for ; r.bucket < len(r.s.buckets); r.bucket, r.done, r.sum = r.bucket+1, 0, 0 {
		b := &r.s.buckets[r.bucket]
		if r.done == 4*b.edges {
			continue
		}
		offset, left := r.s.edgeAt(b, r.done/4, r.column)
		p = p[:min(int64(len(p)), 4*min(left, b.edges-r.done/4)-r.done%4)]
		n, err := r.s.space.ReadAt(p, offset+r.done%4)
		r.done += int64(n)
		r.task.Add(int64(n))
		r.sum = r.s.space.sum(r.sum, p[:n])
		// The check comes with the last bytes, since a caller that has all does not read further.
		if err == nil && r.done == 4*b.edges {
			if err := r.s.space.compare(r.sum, b.sums[r.column]); err != nil {
				return 0, err // without bytes, as a caller may not look at the error that comes with them
			}
		}
		return n, err
	}
	return 0, io.EOF
}
