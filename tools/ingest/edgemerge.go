package ingest

import (
	"cmp"
	"context"
	"encoding/binary"
	"errors"
	"math"
	"slices"

	"github.com/hopfeed/hopfeed/internal/dtype"
	"github.com/hopfeed/hopfeed/internal/parallel"
	"github.com/hopfeed/hopfeed/internal/progress"
)

// noKey is greater than all keys, since ids are below 2^32 - 1.
const noKey = math.MaxUint64

func (s *edgeSort) merge(ctx context.Context) error {
	task := s.o.Progress.Start("sort edges", s.recordCount, progress.Items)
	defer task.Done()
	largest := slices.MaxFunc(s.buckets, func(a, b bucket) int { return cmp.Compare(a.records, b.records) }).records
	threads := int(min(int64(s.plan.threads), int64(len(s.buckets))))
	mergers := make(chan *merger, threads)
	for range threads {
		m, err := newMerger(s, task, min(largest, s.plan.sortRecords))
		if err != nil {
			return err
		}
		defer m.free()
		mergers <- m
	}
	err := parallel.For(ctx, threads, int64(len(s.buckets)), 1, func(i, _ int64) error {
		m := <-mergers
		defer func() { mergers <- m }()
		return m.mergeBucket(ctx, int(i))
	})
	if err != nil {
		return err
	}
	for _, b := range s.buckets {
		if s.storedEdges += b.edges; b.tooLarge >= 0 {
			return invalid(s.info.WeightsFrom, "the weights of duplicate edges to node %d add up to more than float32 "+
				"can hold (--duplicates merge keeps the first)", b.tooLarge)
		}
	}
	return nil
}

// mostEdgesOut is the most edges that are written at a time.
const mostEdgesOut = 1 << 13

// merger sorts and merges buckets, one after another, for one goroutine.
type merger struct {
	*edgeSort
	task     progress.Task
	buffer   *sortBuffer
	splitter *distributor // for buckets that do not fit in buffer; nil until there is one
	packed   []byte       // a block of records as it is stored

	bucket *bucket
	last   uint64  // key of the last edge of the bucket
	total  float64 // of the weights of that edge and its duplicates

	neighborsOut []uint32 // sources of the edges that are to be written next
	weightsOut   []float32
	used         int // edges, of neighborsOut and weightsOut
}

func newMerger(s *edgeSort, task progress.Task, records int64) (*merger, error) {
	buffer, err := s.newSortBuffer(records)
	if err != nil {
		return nil, err
	}
	block := max(1, min(mostEdgesOut, records))
	m := &merger{
		edgeSort:     s,
		task:         task,
		buffer:       buffer,
		packed:       make([]byte, s.recordBytes()*s.blockSize+8), // so that 8 bytes can be read at the last key
		neighborsOut: make([]uint32, block),
	}
	if s.weighted {
		m.weightsOut = make([]float32, block)
	}
	return m, nil
}

func (m *merger) free() {
	_ = m.buffer.memory.Free()
	if m.splitter != nil {
		_ = m.splitter.memory.Free()
	}
}

// mergeBucket sorts and merges bucket i. Its edges overwrite its records.
func (m *merger) mergeBucket(ctx context.Context, i int) error {
	m.bucket, m.last = &m.buckets[i], noKey
	m.bucket.tooLarge = -1
	if err := m.mergeSorted(ctx, m.bucketSet, i, 0); err != nil {
		return err
	}
	m.task.Add(m.bucket.records)
	return m.writeOut()
}

// mergeSorted adds the records of bucket i of a set to the edges, in order of their keys. upperBits are the bits of a
// key above the bits that the set has.
func (m *merger) mergeSorted(ctx context.Context, p *bucketSet, i int, upperBits uint64) error {
	b := &p.buckets[i]
	upperBits |= uint64(i) << p.shift
	m.buffer.used = 0
	switch {
	case b.records <= int64(len(m.buffer.keys)):
		if err := m.read(ctx, p, b, func(n int) error { m.buffer.used += n; return nil }); err != nil {
			return err
		}
		m.buffer.sort(p.shift)
		return m.add(m.buffer.used, upperBits)
	case p.shift == 0: // all are duplicates of one edge
		return m.read(ctx, p, b, func(n int) error { return m.add(n, upperBits) })
	}
	smaller, err := m.splitBucket(ctx, p, b)
	if err != nil {
		return err
	}
	for i := range smaller.buckets {
		if err := m.mergeSorted(ctx, smaller, i, upperBits); err != nil {
			return errors.Join(err, smaller.space.free())
		}
	}
	return smaller.space.free()
}

// splitBucket distributes a bucket to smaller buckets, on disk. It reads all records before any edge overwrites them.
func (m *merger) splitBucket(ctx context.Context, p *bucketSet, b *bucket) (_ *bucketSet, err error) {
	if m.splitter == nil {
		if m.splitter, err = m.newDistributor(); err != nil {
			return nil, err
		}
	}
	to, buffer := m.splitter, m.buffer
	smaller, err := m.newBucketSet(p.shift, b.records, true)
	if err != nil {
		return nil, err
	}
	err = m.read(ctx, p, b, func(n int) error {
		for first := 0; first < n; first += newRecords {
			k := copy(to.newKeys, buffer.keys[first:n])
			if buffer.weights != nil {
				copy(to.newWeights, buffer.weights[first:n])
			}
			if err := to.add(smaller, k); err != nil {
				return err
			}
		}
		return nil
	})
	if err == nil {
		err = smaller.flush(to)
	}
	if err != nil {
		return nil, errors.Join(err, smaller.space.free())
	}
	return smaller, nil
}

// read reads a bucket into the buffer, behind the records that it has. It calls got after every block, with the number
// of its records.
func (m *merger) read(ctx context.Context, p *bucketSet, b *bucket, got func(n int) error) error {
	buffer, width := m.buffer, p.width
	mask := uint64(1)<<p.shift - 1
	for k, block := range b.blocks {
		if err := context.Cause(ctx); err != nil {
			return err
		}
		n := int(p.blockRecords(b, int64(k)))
		data := m.packed[:n*width]
		if _, err := p.space.ReadAt(data, block.first*int64(width)); err != nil {
			return err
		}
		if err := p.space.compare(p.space.sum(0, data), block.sum); err != nil {
			return err
		}
		keys := buffer.keys[buffer.used:][:n]
		for i := range keys {
			keys[i] = binary.LittleEndian.Uint64(m.packed[i*width:]) & mask
		}
		if buffer.weights != nil {
			for i := range keys {
				bits := binary.LittleEndian.Uint32(m.packed[i*width+p.keyWidth:])
				buffer.weights[buffer.used+i] = math.Float32frombits(bits)
			}
		}
		if err := got(n); err != nil {
			return err
		}
	}
	return nil
}

// add adds the first n records of the buffer, which are sorted, to the edges, and merges duplicates.
func (m *merger) add(n int, upperBits uint64) error {
	var (
		weights   = m.buffer.weights
		keep, sum = m.o.Duplicates == KeepDuplicates, m.o.Duplicates == SumDuplicates
		bits      = m.bits & 63 // which spares a check at each shift
		mask      = uint64(1)<<bits - 1
		degrees   = m.degrees
		last      = m.last
		weight    = float32(1)
	)
	for i, key := range m.buffer.keys[:n] {
		key |= upperBits
		if weights != nil {
			weight = weights[i]
		}
		node := key >> bits
		if key == last && !keep {
			if sum {
				m.total += float64(weight)
				total := float32(m.total)
				if m.weightsOut[m.used-1] = total; math.IsInf(float64(total), 0) && m.bucket.tooLarge < 0 {
					m.bucket.tooLarge = int64(node)
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

// writeOut writes edges over the records of the bucket.
func (m *merger) writeOut() error {
	b := m.bucket
	for done := 0; done < m.used; {
		_, left := m.edgeAt(b, b.edges, 0)
		n := int(min(int64(m.used-done), left))
		columns := [][]byte{dtype.BytesOf(m.neighborsOut[done:][:n])}
		if m.weightsOut != nil {
			columns = append(columns, dtype.BytesOf(m.weightsOut[done:][:n]))
		}
		for i, data := range columns {
			offset, _ := m.edgeAt(b, b.edges, i)
			if _, err := m.space.WriteAt(data, offset); err != nil {
				return err
			}
			b.sums[i] = m.space.sum(b.sums[i], data)
		}
		done, b.edges = done+n, b.edges+int64(n)
	}
	m.used = 0
	return nil
}
