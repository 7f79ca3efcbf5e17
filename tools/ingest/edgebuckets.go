package ingest

import (
	"encoding/binary"
	"errors"
	"fmt"
	"sync"

	"github.com/hopfeed/hopfeed/internal/dtype"
	"github.com/hopfeed/hopfeed/internal/folder"
	"github.com/hopfeed/hopfeed/internal/kernel"
	"github.com/hopfeed/hopfeed/internal/machine"
	"github.com/hopfeed/hopfeed/internal/offheap"
)

// bucketSet is records in buckets, by the upper bits of their keys. The spaces hold the lower bits of the keys, and the
// weights, at the same indexes.
type bucketSet struct {
	shift         int   // lower bits of a key: a bucket has all keys with the same upper bits
	width         int64 // bytes of a stored key, little-endian
	keys, weights *scratchSpace

	mu      sync.Mutex
	buckets []bucket
	records int64
}

// bucket says where the records of a bucket are. Records that one goroutine has added are in the order in which it
// added them.
type bucket struct {
	runs    []edgeRun
	records int64
	edges   int64     // that merging has left, at the start of the runs
	sums    checksums // of these edges
}

// edgeRun is consecutive records of one bucket, at the same indexes of both spaces.
type edgeRun struct {
	first, records int64
	sums           checksums
}

// checksums are the CRC-32C of keys and of weights. They are zero where the spaces are memory.
type checksums struct{ keys, weights uint32 }

func (s *checksums) add(p *bucketSet, keys, weights []byte) {
	if p.keys.memory == nil {
		s.keys = kernel.CRC32C(s.keys, keys)
		s.weights = kernel.CRC32C(s.weights, weights)
	}
}

// damaged is the error of records whose checksums differ from what was written. It names the file.
func (p *bucketSet) damaged(found, written checksums) error {
	file := p.keys
	if found.keys == written.keys {
		file = p.weights
	}
	return fmt.Errorf("%s: %w", file.file.Path(), folder.ErrDamaged)
}

// keyWidth is the bytes of a stored key: enough for its bits, and for the source ID of 4 bytes that overwrites it when
// its bucket is merged.
func keyWidth(bits int) int64 { return int64(max(4, (bits+7)/8)) }

func (p *bucketSet) free() error { return errors.Join(p.keys.free(), p.weights.free()) }

// append adds records to a bucket, as a run. Keys have width bytes each.
func (p *bucketSet) append(b uint64, keys []byte, weights []float32) error {
	n := int64(len(keys)) / p.width
	var sums checksums
	sums.add(p, keys, dtype.BytesOf(weights))
	p.mu.Lock()
	first := p.records
	p.records += n
	to := &p.buckets[b]
	to.records += n
	if last := len(to.runs) - 1; p.keys.memory != nil && last >= 0 &&
		to.runs[last].first+to.runs[last].records == first {
		to.runs[last].records += n
	} else {
		to.runs = append(to.runs, edgeRun{first, n, sums})
	}
	p.mu.Unlock()
	_, err := p.keys.WriteAt(keys, first*p.width)
	if err == nil && weights != nil {
		_, err = p.weights.WriteAt(dtype.BytesOf(weights), 4*first)
	}
	return err
}

// distributor adds records to buckets, for one goroutine. It has a buffer for each bucket, which it adds to the bucket
// when it is full.
type distributor struct {
	memory   *offheap.Buffer
	capacity int       // records of a buffer
	keys     []byte    // [buckets][8*capacity + 8] bytes
	weights  []float32 // [buckets][capacity], or nil
	used     []int32   // records in each buffer

	newKeys    []uint64 // records to be added by the next call of add
	newWeights []float32
}

// newRecords is how many records are added at a time, at most.
const newRecords = 1 << 12

func distributorBytes(plan sortPlan, weighted bool) int64 {
	record := int64(8)
	if weighted {
		record = 12
	}
	return (record*plan.bufferRecords + 8) << plan.bucketBits
}

func newDistributor(plan sortPlan, weighted bool) (*distributor, error) {
	buckets := int64(1) << plan.bucketBits
	keyBytes := buckets * (8*plan.bufferRecords + 8)
	memory, err := offheap.Alloc(distributorBytes(plan, weighted))
	if err != nil {
		return nil, fmt.Errorf("%w: %w", machine.ErrDoesNotFit, err)
	}
	p := &distributor{
		memory:   memory,
		capacity: int(plan.bufferRecords),
		keys:     memory.Bytes()[:keyBytes],
		used:     make([]int32, buckets),
		newKeys:  make([]uint64, newRecords),
	}
	if weighted {
		p.weights, p.newWeights = dtype.Float32s(memory.Bytes()[keyBytes:]), make([]float32, newRecords)
	}
	return p, nil
}

func (p *distributor) add(to *bucketSet, n int) error {
	shift, width := to.shift&63, int(to.width) // the mask spares a check at each shift
	keys, used, capacity, stride := p.keys, p.used, int32(p.capacity), 8*p.capacity+8
	for i, key := range p.newKeys[:n] {
		b := key >> shift
		n := used[b]
		// This writes 8 bytes; those beyond width are overwritten by the next key.
		binary.LittleEndian.PutUint64(keys[int(b)*stride+int(n)*width:], key)
		if p.weights != nil {
			p.weights[int(b)*p.capacity+int(n)] = p.newWeights[i]
		}
		n++
		used[b] = n
		if n == capacity {
			if err := p.flushBucket(to, b); err != nil {
				return err
			}
		}
	}
	return nil
}

func (p *distributor) flushBucket(to *bucketSet, b uint64) error {
	n, stride := int(p.used[b]), 8*p.capacity+8
	p.used[b] = 0
	weights := p.weights
	if weights != nil {
		weights = weights[int(b)*p.capacity:][:n]
	}
	return to.append(b, p.keys[int(b)*stride:][:n*int(to.width)], weights)
}

func (p *distributor) flush(to *bucketSet) error {
	for b, n := range p.used {
		if n > 0 {
			if err := p.flushBucket(to, uint64(b)); err != nil {
				return err
			}
		}
	}
	return nil
}
