package product

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"sort"
	"sync"

	"github.com/hopfeed/hopfeed/format"
	"github.com/hopfeed/hopfeed/internal/dtype"
	"github.com/hopfeed/hopfeed/internal/folder"
	"github.com/hopfeed/hopfeed/internal/kernel"
	"github.com/hopfeed/hopfeed/internal/offheap"
	"github.com/hopfeed/hopfeed/internal/parallel"
	"github.com/hopfeed/hopfeed/internal/vfs"
	"github.com/hopfeed/hopfeed/preprop/plan"
)

// Range is a node range and, where the propagator has EdgeFactors, the coefficient of each edge: a code or itself.
type Range struct {
	format.NodeRange
	codes        []uint16  // in the order of Neighbors; nil: none
	coefficients []float32 // in the order of Neighbors; nil: none
}

// EdgeFactors is a list of the coefficients w(u,v) * t(u) of a propagator, one for each edge, in the order of the
// topology. A hop reads the list from end to end. Without it, a hop looks t up by the source of each edge; where t
// does not fit the caches, that takes as long as to fetch a row of one cache line.
//
// Without weights, t has few distinct values, at most one for each distinct degree, and the list has codes of them.
type EdgeFactors struct {
	values *[1 << 16]float32 // by code; nil: the list has coefficients
	memory *offheap.Buffer   // the list, or its first part
	file   vfs.File          // the rest; nil: there is none
	sums   []uint32          // CRC-32C of the part of each node range, in file
	remove func() error
}

// elementBytes is the size of an element of the list.
func (l *EdgeFactors) elementBytes() int64 { return plan.FactorBytes(l.values == nil) }

// Close frees the memory or removes the file. Close of nil does nothing.
func (l *EdgeFactors) Close() error {
	switch {
	case l == nil:
		return nil
	case l.file == nil:
		return l.memory.Free()
	}
	return errors.Join(l.memory.Free(), l.file.Close(), l.remove())
}

// ListFactors makes p.Edges in one walk, in memory; if the topology is on disk, what is beyond the first held bytes
// goes to the file at path. It makes none if the operator has no t, or if t has more distinct values than codes.
func (p *Propagator) ListFactors(ctx context.Context, fsys vfs.FS, path string, held int64, threads int,
	walk WalkAll) (err error) {
	if p.T == nil {
		return nil
	}
	list, codes := &EdgeFactors{}, []uint16(nil)
	if !p.Graph.Weighted() {
		buf, err := offheap.Alloc(2 * p.Graph.Sources())
		if err != nil {
			return err
		}
		defer buf.Free()
		codes = dtype.Uint16s(buf.Bytes())
		if list.values, err = encodeFactors(ctx, codes, p.T, threads); err != nil || list.values == nil {
			return err
		}
	}
	put := func(dst []byte, b *Range, first int64) { // of edges of a node range, from one on
		if codes != nil {
			out := dtype.Uint16s(dst)
			for i, u := range b.Neighbors[first:][:len(out)] {
				out[i] = codes[u]
			}
			return
		}
		out := dtype.Float32s(dst)
		for i, u := range b.Neighbors[first:][:len(out)] {
			out[i] = float32(b.Weights[first+int64(i)] * p.T[u])
		}
	}
	size, inMemory := list.elementBytes(), p.Graph.Edges()
	disk, onDisk := p.Graph.(*DiskTopology)
	if onDisk { // whole node ranges
		k := sort.Search(disk.Ranges(), func(k int) bool { _, end := disk.Bounds(k + 1); return size*end > held })
		_, inMemory = disk.Bounds(k)
	}
	if list.memory, err = offheap.Alloc(size * inMemory); err != nil {
		return err
	}
	if inMemory < p.Graph.Edges() {
		err = list.write(disk, fsys, path, threads, walk, put)
	} else {
		err = walk(func(b *Range) error {
			part, _ := list.inMemory(b)
			put(part, b, 0)
			return nil
		})
	}
	if err != nil {
		return errors.Join(err, list.Close())
	}
	p.Edges = list
	return nil
}

// inMemory is the part of the list for a node range, unless that is in the file.
func (l *EdgeFactors) inMemory(b *Range) (part []byte, found bool) {
	size, memory := l.elementBytes(), l.memory.Bytes()
	if end := size * (b.Offsets[0] + b.Edges()); end <= int64(len(memory)) {
		return memory[size*b.Offsets[0] : end], true
	}
	return nil, false
}

// write makes the list. What memory has no room for goes to a scratch file.
func (l *EdgeFactors) write(graph *DiskTopology, fsys vfs.FS, path string, threads int, walk WalkAll,
	put func(dst []byte, b *Range, first int64)) error {
	size, inMemory := l.elementBytes(), int64(len(l.memory.Bytes()))
	buffers, err := NewBuffers(plan.DiskReaders(threads), plan.ListPiece*size)
	if err != nil {
		return err
	}
	defer buffers.Free()
	f, file, err := vfs.CreateScratch(fsys, path)
	if err != nil {
		return err
	}
	l.sums, l.file, l.remove = make([]uint32, graph.Ranges()), file, f.Abort
	return walk(func(b *Range) error {
		if part, found := l.inMemory(b); found {
			put(part, b, 0)
			return nil
		}
		buffer, sum := buffers.Get(), uint32(0)
		defer buffers.Put(buffer)
		for first := int64(0); first < b.Edges(); first += plan.ListPiece {
			part := buffer[:size*min(plan.ListPiece, b.Edges()-first)]
			put(part, b, first)
			sum = kernel.CRC32C(sum, part)
			if _, err := f.WriteAt(part, size*(b.Offsets[0]+first)-inMemory); err != nil {
				return err
			}
		}
		l.sums[graph.rangeAt(b.First)] = sum
		return nil
	})
}

// of sets the coefficients of a node range. buffer has room for them where the list is in a file; k is the number of
// the node range then.
func (l *EdgeFactors) of(b *Range, k int, buffer []byte) error {
	part, found := l.inMemory(b)
	if !found {
		size := l.elementBytes()
		at := size*b.Offsets[0] - int64(len(l.memory.Bytes()))
		var err error
		if part, _, err = vfs.ReadPages(l.file, buffer, at, size*b.Edges()); err != nil {
			return fmt.Errorf("%s: %d of %d bytes at byte %d: %w", l.file.Path(), len(part), size*b.Edges(), at, err)
		}
		if kernel.CRC32C(0, part) != l.sums[k] {
			return fmt.Errorf("%s: the %d bytes from byte %d on: %w", l.file.Path(), len(part), at, folder.ErrDamaged)
		}
	}
	if l.values != nil {
		b.codes = dtype.Uint16s(part)
	} else {
		b.coefficients = dtype.Float32s(part)
	}
	return nil
}

// encodeFactors numbers the distinct factors and sets the code of each. values is nil if there are too many.
func encodeFactors(ctx context.Context, codes []uint16, factors []float32, threads int) (values *[1 << 16]float32,
	err error) {
	const grain = 1 << 18
	var mu sync.Mutex
	known := map[uint32]uint16{}
	err = parallel.For(ctx, threads, int64(len(factors)), grain, func(lo, hi int64) error {
		here := map[uint32]uint16{}
		for _, x := range factors[lo:hi] {
			here[math.Float32bits(x)] = 0
		}
		mu.Lock()
		defer mu.Unlock()
		for bits := range here {
			known[bits] = 0
		}
		return nil
	})
	if err != nil || len(known) > len(values) {
		return nil, err
	}
	values = new([1 << 16]float32)
	all := make([]uint32, 0, len(known))
	for bits := range known {
		all = append(all, bits)
	}
	slices.Sort(all)
	for code, bits := range all {
		known[bits], values[code] = uint16(code), math.Float32frombits(bits)
	}
	return values, parallel.For(ctx, threads, int64(len(factors)), grain, func(lo, hi int64) error {
		for v := lo; v < hi; v++ {
			codes[v] = known[math.Float32bits(factors[v])]
		}
		return nil
	})
}
