package ingest

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"math/bits"
	"path/filepath"
	"sync"
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
// where the source has weights.
//
//  1. Edges are gathered in pieces. A piece that is full is sorted, stably, and
//     becomes a run.
//  2. The runs are merged, segment by segment of the range of keys, all threads
//     at once; duplicates, now side by side, are merged on the way, and degrees
//     counted. What is left has a place of its own, since where it begins in the
//     file of the graph depends on how much that is.
//  3. Degrees and merged edges become the topology.
//
// Runs, and then merged edges too, are on disk where memory does not hold them; it
// must hold the degrees. Every list is in the order (source, place in the input),
// whatever the pieces, so the bytes are the same, and lists may have any length.

// sortPlan is how edges are sorted.
type sortPlan struct {
	runsOnDisk, mergedOnDisk bool

	pieces  int   // that are gathered at a time
	piece   int64 // records of each
	threads int   // that merge
	buffer  int64 // records of each run on disk that a thread has in memory
}

const (
	minPiece       = 1 << 16  // records
	maxPiece       = 1 << 24  // memory that is not touched costs nothing
	minMergeBuffer = 64 << 10 // bytes; below, a disk seeks more than it reads
	maxMergeBuffer = 1 << 20
)

// recordBytes is the size of a record in a run. A piece takes it twice.
func (t *topology) recordBytes() int64 {
	if t.info.Weighted {
		return 12
	}
	return 8
}

// planSort divides the memory that there is, with fewer threads where it is short.
func (t *topology) planSort() (sortPlan, error) {
	record, merged := t.recordBytes(), t.edgeBytes(t.entries)
	pieces := 1 // weighted edges in order: it tells which of several is the first
	if !t.info.Weighted {
		pieces = t.o.Threads
	}
	p := sortPlan{pieces: pieces, threads: t.o.Threads}
	fixed := 4*t.info.Nodes + workingBytes(t.o)
	if whole := fixed + record*t.entries + merged; t.o.MemoryBytes == 0 || whole <= t.o.MemoryBytes {
		// Pieces are gone when merged edges come.
		p.piece = min(max(minPiece, merged/int64(pieces)/(2*record)), maxPiece)
		return p, nil
	}
	p.runsOnDisk = true
	free := t.o.MemoryBytes - fixed
	for _, p.mergedOnDisk = range []bool{false, true} {
		for p.threads = t.o.Threads; p.threads > 0; p.threads-- {
			p.pieces = min(pieces, p.threads)
			if p.piece = min(free/int64(p.pieces)/(2*record), maxPiece); p.piece < minPiece {
				continue
			}
			left, least := free, int64(minMergeBuffer)
			if !p.mergedOnDisk {
				left, least = free-merged, maxMergeBuffer/4
			}
			runs := t.entries/p.piece + int64(p.pieces) + 1
			bytes := min(left/int64(p.threads)/runs, maxMergeBuffer)
			if p.buffer = bytes / record; bytes >= least {
				return p, nil
			}
		}
	}
	return p, fmt.Errorf("%w: to sort %d edges of %d nodes needs %v of memory, %v may be used",
		machine.ErrDoesNotFit, t.entries, t.info.Nodes, units.Bytes(t.leastMemory()), units.Bytes(t.o.MemoryBytes))
}

// leastMemory is memory that suffices, though with one thread.
func (t *topology) leastMemory() int64 {
	// In x bytes, 2*record*entries/x + 2 runs are made at most, unless pieces are as
	// large as they may be. Each has a buffer of b bytes when they are merged.
	const b = minMergeBuffer + 1
	record := float64(2 * t.recordBytes())
	x := b + math.Sqrt(b*b+b*record*float64(t.entries))
	x = max(x, b*float64(t.entries/maxPiece+2))
	return 4*t.info.Nodes + workingBytes(t.o) + max(int64(x)+b, minPiece*int64(record))
}

// edgeSort is edges that are being sorted.
type edgeSort struct {
	*topology
	plan sortPlan
	bits int // of a node id in a key

	keys, weights            *edgeArea // of runs, one run behind another; weights nil where the source has none
	neighbors, mergedWeights *edgeArea // what merging leaves, each segment where its first record was
	segments                 []segment
	stored                   int64 // edges of all segments
	degreeMemory             *offheap.Buffer
	degrees                  []uint32 // [n] entries of each list, when merged

	mu      sync.Mutex
	ends    []int64  // of runs, in records
	samples []uint64 // every so many keys of each run
}

// sort sorts and merges the edges. The caller frees what is returned.
func (t *topology) sort(ctx context.Context, fsys vfs.FS, w *format.Writer, plan sortPlan) (_ *edgeSort, err error) {
	s := &edgeSort{topology: t, plan: plan, bits: bits.Len64(uint64(max(t.info.Nodes, 2) - 1))}
	defer func() {
		if err != nil {
			s.free()
		}
	}()
	folder := ""
	if plan.runsOnDisk {
		if folder, err = w.Scratch(); err != nil {
			return nil, err
		}
	}
	create := func(onDisk bool, name string, bytes int64) (*edgeArea, error) {
		if onDisk {
			return newAreaFile(fsys, filepath.Join(folder, name))
		}
		return newAreaMemory(bytes)
	}
	if s.keys, err = create(plan.runsOnDisk, "edges", 8*t.entries); err != nil {
		return nil, err
	}
	if t.info.Weighted {
		if s.weights, err = create(plan.runsOnDisk, "edge-weights", 4*t.entries); err != nil {
			return nil, err
		}
	}
	if err := s.gather(ctx); err != nil {
		return nil, err
	}
	if s.neighbors, err = create(plan.mergedOnDisk, "neighbors", 4*t.entries); err != nil {
		return nil, err
	}
	if t.weighted {
		if s.mergedWeights, err = create(plan.mergedOnDisk, "weights", 4*t.entries); err != nil {
			return nil, err
		}
	}
	if s.degreeMemory, err = offheap.Alloc(4 * t.info.Nodes); err != nil {
		return nil, fmt.Errorf("%w: %w", machine.ErrDoesNotFit, err)
	}
	s.degrees = dtype.Uint32s(s.degreeMemory.Bytes())
	if err := s.merge(ctx); err != nil {
		return nil, err
	}
	for _, g := range s.segments {
		s.stored += g.edges
	}
	return s, errors.Join(s.keys.free(), s.weights.free())
}

// free gives everything back. Files that could not be removed go with their folder.
func (s *edgeSort) free() {
	for _, f := range []*edgeArea{s.keys, s.weights, s.neighbors, s.mergedWeights} {
		_ = f.free()
	}
	if s.degreeMemory != nil {
		_ = s.degreeMemory.Free()
	}
}

// write writes the topology.
func (s *edgeSort) write(ctx context.Context, w *format.Writer) error {
	task := s.o.Progress.Start("write edges", s.edgeBytes(s.stored), progress.Bytes)
	defer task.Done()
	read := func(f *edgeArea) io.Reader {
		var parts []io.Reader
		for _, g := range s.segments {
			parts = append(parts, io.NewSectionReader(f, 4*g.first, 4*g.edges))
		}
		return &watchedReader{ctx, io.MultiReader(parts...), task}
	}
	if s.mergedWeights == nil {
		return w.StreamTopology(s.degrees, read(s.neighbors), nil)
	}
	return w.StreamTopology(s.degrees, read(s.neighbors), read(s.mergedWeights))
}

// watchedReader ends with its context, and shows progress.
type watchedReader struct {
	ctx  context.Context
	r    io.Reader
	task progress.Task
}

func (r *watchedReader) Read(p []byte) (int, error) {
	if err := context.Cause(r.ctx); err != nil {
		return 0, err
	}
	n, err := r.r.Read(p)
	r.task.Add(int64(n))
	return n, err
}

// gather turns the edges into sorted runs.
func (s *edgeSort) gather(ctx context.Context) error {
	task := s.o.Progress.Start("sort edges", s.edges, progress.Items)
	defer task.Done()
	pieces := make(chan *edgePiece, s.plan.pieces)
	for range s.plan.pieces {
		p, err := newEdgePiece(s.plan.piece, s.info.Weighted)
		if err != nil {
			return err
		}
		defer p.buffer.Free()
		pieces <- p
	}
	drop := s.o.SelfLoops == DropLoops
	var edges, loops atomic.Int64
	err := s.src.Edges(ctx, s.plan.pieces, func(e Edges) error {
		if edges.Add(int64(len(e.Dst))) > s.edges {
			return errChanged // and there may be no room for them
		}
		p := <-pieces
		defer func() { pieces <- p }()
		for i, dst := range e.Dst {
			source := e.Src[i]
			if source == dst {
				loops.Add(1)
				if drop {
					continue
				}
			}
			if p.used+2 > len(p.keys) {
				if err := s.spill(p); err != nil {
					return err
				}
			}
			p.keys[p.used] = uint64(dst)<<s.bits | uint64(source)
			p.used++
			if s.reverses && source != dst {
				p.keys[p.used] = uint64(source)<<s.bits | uint64(dst)
				p.used++
			}
			if p.weights != nil {
				p.weights[p.used-1] = e.Weights[i]
				if s.reverses && source != dst {
					p.weights[p.used-2] = e.Weights[i]
				}
			}
		}
		task.Add(int64(len(e.Dst)))
		return nil
	})
	if err == nil {
		err = parallel.For(ctx, s.plan.pieces, int64(s.plan.pieces), 1, func(int64, int64) error { return s.spill(<-pieces) })
	}
	if err == nil && edges.Load() != s.edges {
		err = errChanged
	}
	s.entries, s.loops = s.records(), loops.Load()
	return err
}

// records is the number of records in all runs.
func (s *edgeSort) records() int64 {
	if len(s.ends) == 0 {
		return 0
	}
	return s.ends[len(s.ends)-1]
}

// samplesOfPiece is the number of samples of a full piece.
const samplesOfPiece = 256

// spill sorts a piece, and makes a run of it.
func (s *edgeSort) spill(p *edgePiece) error {
	p.sort(2 * s.bits)
	s.mu.Lock()
	defer s.mu.Unlock()
	keys, first := p.keys[:p.used], s.records()
	p.used = 0
	if len(keys) == 0 {
		return nil
	}
	if _, err := s.keys.WriteAt(dtype.BytesOf(keys), 8*first); err != nil {
		return err
	}
	if p.weights != nil {
		if _, err := s.weights.WriteAt(dtype.BytesOf(p.weights[:len(keys)]), 4*first); err != nil {
			return err
		}
	}
	s.ends = append(s.ends, first+int64(len(keys)))
	for i := 0; i < len(keys); i += max(1, len(p.keys)/samplesOfPiece) {
		s.samples = append(s.samples, keys[i])
	}
	return nil
}
