package ingest

import (
	"encoding/binary"
	"errors"
	"fmt"
	"sync"

	"github.com/hopfeed/hopfeed/internal/dtype"
	"github.com/hopfeed/hopfeed/internal/machine"
	"github.com/hopfeed/hopfeed/internal/offheap"
)

// partition is records parted into buckets by the upper bits of their keys. In the
// areas, a key has only its other bits.
type partition struct {
	shift         int   // bits of a key that are not the bucket
	width         int64 // bytes of a key in its area, little-endian
	keys, weights *edgeArea

	mu      sync.Mutex
	buckets []bucket
	records int64
}

// bucket is where the records of a bucket are. Those that one goroutine has added
// are in order.
type bucket struct {
	extents []extent
	records int64
	edges   int64 // that are in their place, when merged
}

// extent is records that are one behind another, in both areas.
type extent struct{ first, records int64 }

// keyWidth is how many bytes hold so many bits of a key; and a neighbour, which
// comes to where the key was.
func keyWidth(bits int) int64 { return int64(max(4, (bits+7)/8)) }

func (p *partition) free() error { return errors.Join(p.keys.free(), p.weights.free()) }

// append puts records behind those of a bucket. Keys have 8 bytes of which the first
// count, at every width bytes.
func (p *partition) append(b uint64, keys []byte, weights []float32) error {
	n := int64(len(keys)) / p.width
	p.mu.Lock()
	first := p.records
	p.records += n
	to := &p.buckets[b]
	to.records += n
	if last := len(to.extents) - 1; last >= 0 && to.extents[last].first+to.extents[last].records == first {
		to.extents[last].records += n
	} else {
		to.extents = append(to.extents, extent{first, n})
	}
	p.mu.Unlock()
	_, err := p.keys.WriteAt(keys, first*p.width)
	if err == nil && weights != nil {
		_, err = p.weights.WriteAt(dtype.BytesOf(weights), 4*first)
	}
	return err
}

// partitioner adds records to the buckets of a partition, for one goroutine: it gathers
// a block for each bucket before it goes there.
type partitioner struct {
	memory  *offheap.Buffer
	block   int
	keys    []byte    // [buckets][8*block + 8]
	weights []float32 // [buckets][block], or nil
	used    []int32   // records of each block

	newKeys    []uint64 // to be added next
	newWeights []float32
}

// newRecords is how many records are added at a time, at most.
const newRecords = 1 << 12

func newPartitioner(plan sortPlan, weighted bool) (*partitioner, error) {
	buckets := int64(1) << plan.digit
	keyBytes := buckets * (8*plan.block + 8)
	bytes := keyBytes
	if weighted {
		bytes += 4 * buckets * plan.block
	}
	memory, err := offheap.Alloc(bytes)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", machine.ErrDoesNotFit, err)
	}
	p := &partitioner{
		memory:  memory,
		block:   int(plan.block),
		keys:    memory.Bytes()[:keyBytes],
		used:    make([]int32, buckets),
		newKeys: make([]uint64, newRecords),
	}
	if weighted {
		p.weights, p.newWeights = dtype.Float32s(memory.Bytes()[keyBytes:]), make([]float32, newRecords)
	}
	return p, nil
}

// add adds the first n of newKeys and newWeights.
func (p *partitioner) add(to *partition, n int) error {
	shift, width := to.shift&63, int(to.width) // the mask spares a check at each shift
	keys, used, block, stride := p.keys, p.used, int32(p.block), 8*p.block+8
	for i, key := range p.newKeys[:n] {
		b := key >> shift
		at := used[b]
		// The bytes too many are overwritten by the next.
		binary.LittleEndian.PutUint64(keys[int(b)*stride+int(at)*width:], key)
		if p.weights != nil {
			p.weights[int(b)*p.block+int(at)] = p.newWeights[i]
		}
		at++
		used[b] = at
		if at == block {
			if err := p.flushBlock(to, b); err != nil {
				return err
			}
		}
	}
	return nil
}

func (p *partitioner) flushBlock(to *partition, b uint64) error {
	n, stride := int(p.used[b]), 8*p.block+8
	p.used[b] = 0
	weights := p.weights
	if weights != nil {
		weights = weights[int(b)*p.block:][:n]
	}
	return to.append(b, p.keys[int(b)*stride:][:n*int(to.width)], weights)
}

// flush adds what has been gathered of all buckets.
func (p *partitioner) flush(to *partition) error {
	for b, n := range p.used {
		if n > 0 {
			if err := p.flushBlock(to, uint64(b)); err != nil {
				return err
			}
		}
	}
	return nil
}
