package ingest

import (
	"context"
	"encoding/binary"
	"errors"
	"math"

	"github.com/hopfeed/hopfeed/internal/dtype"
	"github.com/hopfeed/hopfeed/internal/parallel"
	"github.com/hopfeed/hopfeed/internal/progress"
)

// noKey is above all keys, since ids are below 2^32 - 1.
const noKey = math.MaxUint64

// merge sorts the buckets, merges duplicates and counts degrees.
func (s *edgeSort) merge(ctx context.Context) error {
	task := s.o.Progress.Start("sort edges", s.entries, progress.Items)
	defer task.Done()
	largest := int64(0)
	for _, b := range s.buckets {
		largest = max(largest, b.records)
	}
	threads := int(min(int64(s.plan.threads), int64(len(s.buckets))))
	mergers := make(chan *merger, threads)
	var tooLarge lowestNode
	for range threads {
		m, err := newMerger(s, task, min(largest, s.plan.piece), &tooLarge)
		if err != nil {
			return err
		}
		defer m.free()
		mergers <- m
	}
	err := parallel.For(ctx, threads, int64(len(s.buckets)), 1, func(i, _ int64) error {
		m := <-mergers
		defer func() { mergers <- m }()
		return m.bucket(ctx, int(i))
	})
	if err != nil {
		return err
	}
	for _, b := range s.buckets {
		s.stored += b.edges
	}
	return tooLarge.err(s.info.WeightsFrom)
}

// mergeBlock is how many records are read, and edges written, at a time, at most.
const mergeBlock = 1 << 13

// merger sorts and merges buckets, one after another.
type merger struct {
	*edgeSort
	task     progress.Task
	tooLarge *lowestNode
	piece    *edgePiece
	again    *partitioner // nil until a bucket has been too large
	packed   []byte       // records as they are in an area

	last  uint64  // key of the last edge
	total float64 // of its weights, if they are summed

	neighborsOut []uint32 // edges that are to be written next
	weightsOut   []float32
	used         int      // of both
	to           []extent // where they go
	at           int64    // edges in the first of these
}

func newMerger(s *edgeSort, task progress.Task, records int64, tooLarge *lowestNode) (*merger, error) {
	piece, err := newEdgePiece(records, s.info.Weighted)
	if err != nil {
		return nil, err
	}
	m := &merger{
		edgeSort:     s,
		task:         task,
		tooLarge:     tooLarge,
		piece:        piece,
		packed:       make([]byte, 8*mergeBlock+8), // so that 8 bytes can be read of the last
		neighborsOut: make([]uint32, mergeBlock),
	}
	if s.weighted {
		m.weightsOut = make([]float32, mergeBlock)
	}
	return m, nil
}

func (m *merger) free() {
	_ = m.piece.buffer.Free()
	if m.again != nil {
		_ = m.again.memory.Free()
	}
}

// bucket sorts and merges bucket i.
func (m *merger) bucket(ctx context.Context, i int) error {
	b := &m.buckets[i]
	m.last, m.to, m.at = noKey, b.extents, 0
	if err := m.sorted(ctx, m.partition, i, 0); err != nil {
		return err
	}
	if err := m.writeOut(); err != nil {
		return err
	}
	for _, e := range b.extents[:len(b.extents)-len(m.to)] {
		b.edges += e.records
	}
	b.edges += m.at
	m.task.Add(b.records)
	return nil
}

// sorted adds the records of bucket i of a partition in order. All their keys have the
// bits above.
func (m *merger) sorted(ctx context.Context, p *partition, i int, above uint64) error {
	b := &p.buckets[i]
	above |= uint64(i) << p.shift
	m.piece.used = 0
	switch {
	case b.records <= int64(len(m.piece.keys)):
		if err := m.read(ctx, p, b, func(n int) error { m.piece.used += n; return nil }); err != nil {
			return err
		}
		m.piece.sort(p.shift)
		return m.add(m.piece.used, above)
	case p.shift == 0: // one edge, again and again
		return m.read(ctx, p, b, func(n int) error { return m.add(n, above) })
	}
	parts, err := m.partAgain(ctx, p, b)
	if err != nil {
		return err
	}
	for i := range parts.buckets {
		if err := m.sorted(ctx, parts, i, above); err != nil {
			return errors.Join(err, parts.free())
		}
	}
	return parts.free()
}

// partAgain parts the records of a bucket, on disk. All of them are read before any
// edge goes to where the bucket is.
func (m *merger) partAgain(ctx context.Context, p *partition, b *bucket) (_ *partition, err error) {
	if m.again == nil {
		if m.again, err = newPartitioner(m.plan, m.info.Weighted); err != nil {
			return nil, err
		}
	}
	to, piece := m.again, m.piece
	parts, err := m.newPartition(p.shift, b.records, true, m.info.Weighted)
	if err != nil {
		return nil, err
	}
	err = m.read(ctx, p, b, func(n int) error {
		for first := 0; first < n; first += newRecords {
			k := copy(to.newKeys, piece.keys[first:n])
			if piece.weights != nil {
				copy(to.newWeights, piece.weights[first:n])
			}
			if err := to.add(parts, k); err != nil {
				return err
			}
		}
		return nil
	})
	if err == nil {
		err = to.flush(parts)
	}
	if err != nil {
		return nil, errors.Join(err, parts.free())
	}
	return parts, nil
}

// read reads a bucket into the piece, from piece.used on, and calls got for every block.
func (m *merger) read(ctx context.Context, p *partition, b *bucket, got func(n int) error) error {
	piece, width := m.piece, int(p.width)
	mask := uint64(1)<<p.shift - 1
	for _, e := range b.extents {
		for first, end := e.first, e.first+e.records; first < end; {
			if err := context.Cause(ctx); err != nil {
				return err
			}
			n := int(min(end-first, mergeBlock, int64(len(piece.keys)-piece.used)))
			if _, err := p.keys.ReadAt(m.packed[:n*width], first*p.width); err != nil {
				return err
			}
			keys := piece.keys[piece.used:][:n]
			for i := range keys {
				keys[i] = binary.LittleEndian.Uint64(m.packed[i*width:]) & mask
			}
			if piece.weights != nil {
				if _, err := p.weights.ReadAt(dtype.BytesOf(piece.weights[piece.used:][:n]), 4*first); err != nil {
					return err
				}
			}
			if err := got(n); err != nil {
				return err
			}
			first += int64(n)
		}
	}
	return nil
}

// add adds the first n records of the piece, which are sorted, to the edges.
func (m *merger) add(n int, above uint64) error {
	var (
		weights   = m.piece.weights
		keep, sum = m.o.Duplicates == KeepDuplicates, m.o.Duplicates == SumDuplicates
		bits      = m.bits & 63 // which spares a check at each shift
		mask      = uint64(1)<<bits - 1
		degrees   = m.degrees
		last      = m.last
		weight    = float32(1)
	)
	for i, key := range m.piece.keys[:n] {
		key |= above
		if weights != nil {
			weight = weights[i]
		}
		node := key >> bits
		if key == last && !keep {
			if sum {
				m.total += float64(weight)
				total := float32(m.total)
				if m.weightsOut[m.used-1] = total; math.IsInf(float64(total), 0) {
					m.tooLarge.add(int64(node))
				}
			}
			continue
		}
		if m.used == len(m.neighborsOut) {
			if err := m.writeOut(); err != nil {
				return err
			}
		}
		if node >= uint64(len(degrees)) {
			return errChanged
		}
		if degrees[node]++; degrees[node] == 0 {
			return errDegree(node)
		}
		last = key
		m.neighborsOut[m.used] = uint32(key & mask)
		if m.weightsOut != nil {
			m.weightsOut[m.used], m.total = weight, float64(weight)
		}
		m.used++
	}
	m.last = last
	return nil
}

// writeOut writes edges to where the records of the bucket were.
func (m *merger) writeOut() error {
	for done := 0; done < m.used; {
		to := m.to[0]
		n := int(min(int64(m.used-done), to.records-m.at))
		if _, err := m.keys.WriteAt(dtype.BytesOf(m.neighborsOut[done:][:n]), to.first*m.width+4*m.at); err != nil {
			return err
		}
		if m.weightsOut != nil {
			if _, err := m.weights.WriteAt(dtype.BytesOf(m.weightsOut[done:][:n]), 4*(to.first+m.at)); err != nil {
				return err
			}
		}
		done += n
		if m.at += int64(n); m.at == to.records {
			m.to, m.at = m.to[1:], 0
		}
	}
	m.used = 0
	return nil
}
