package ingest

import (
	"encoding/binary"
	"math"
	"slices"
	"sync"

	"github.com/hopfeed/hopfeed/internal/dtype"
	"github.com/hopfeed/hopfeed/internal/offheap"
)

// bucketSet is records in buckets, by the upper bits of their keys. A record is stored as the lower bits of its key
// and, if there are weights, its weight, both little-endian.
type bucketSet struct {
	shift     int // lower bits of a key: a bucket has all keys with the same upper bits
	space     *scratchSpace
	keyWidth  int   // bytes of a stored key
	width     int   // bytes of a record
	blockSize int64 // records of a block

	mu      sync.Mutex
	buckets []bucket
	records int64
}

// bucket says where the records of a bucket are. Records that one goroutine has added are in the order in which it
// added them.
type bucket struct {
	blocks  []recordBlock // all full but the last
	records int64
	edges   int64     // that merging has left
	sums    [2]uint32 // CRC-32C of the sources and of the weights of these edges

	tooLarge int64 // first node whose weights add up to more than float32 can hold, or -1
}

// recordBlock is consecutive records of one bucket. Merging overwrites them with sources, 4 bytes each, and, behind the
// place of as many sources as there are records, with weights.
type recordBlock struct {
	first int64  // record in the space
	sum   uint32 // CRC-32C
}

// blockRecords is how many records block k of a bucket has.
func (p *bucketSet) blockRecords(b *bucket, k int64) int64 {
	return min(p.blockSize, b.records-k*p.blockSize)
}

// edgeAt is the offset of the source (column 0) or the weight (1) of an edge of a bucket. It also returns how many
// values there are from there to the end of the block.
func (p *bucketSet) edgeAt(b *bucket, edge int64, column int) (offset, left int64) {
	k, in := edge/p.blockSize, edge%p.blockSize
	n := p.blockRecords(b, k)
	return b.blocks[k].first*int64(p.width) + 4*(int64(column)*n+in), n - in
}

// recordWidths are the bytes of a stored key and of a record: enough for the bits of the key, and for the edge that
// overwrites the record when its bucket is merged.
func (t *topology) recordWidths(keyBits int) (key, record int) {
	key = max(4, (keyBits+7)/8)
	record = key
	if t.info.Weighted {
		record += 4
	}
	if t.weighted {
		record = max(record, 8)
	}
	return key, record
}

// append adds a block of records to a bucket.
func (p *bucketSet) append(b uint64, data []byte) error {
	n, sum := int64(len(data)/p.width), p.space.sum(0, data)
	p.mu.Lock()
	first, to := p.records, &p.buckets[b]
	p.records, to.records = first+n, to.records+n
	to.blocks = append(to.blocks, recordBlock{first, sum})
	p.mu.Unlock()
	_, err := p.space.WriteAt(data, first*int64(p.width))
	return err
}

// distributor adds records to buckets, for one goroutine. It has a buffer for each bucket, which it adds to the bucket
// as a block when it is full.
type distributor struct {
	memory *offheap.Buffer
	stride int     // bytes of a buffer
	used   []int32 // records in each buffer

	newKeys    []uint64 // records to be added by the next call of add
	newWeights []float32
}

// newRecords is how many records are added at a time, at most.
const newRecords = 1 << 12

func (t *topology) distributorBytes(plan sortPlan) int64 {
	return (t.recordBytes()*plan.bufferRecords + 8) << plan.bucketBits
}

func (s *edgeSort) newDistributor() (*distributor, error) {
	plan, bytes := s.plan, s.distributorBytes(s.plan)
	memory, err := alloc(bytes)
	if err != nil {
		return nil, err
	}
	p := &distributor{
		memory:  memory,
		stride:  int(bytes >> plan.bucketBits),
		used:    make([]int32, 1<<plan.bucketBits),
		newKeys: make([]uint64, newRecords),
	}
	if s.info.Weighted {
		p.newWeights = make([]float32, newRecords)
	}
	return p, nil
}

func (p *distributor) add(to *bucketSet, n int) error {
	shift, width := to.shift&63, to.width // the mask spares a check at each shift
	records, used, capacity, stride := p.memory.Bytes(), p.used, int32(to.blockSize), p.stride
	for i, key := range p.newKeys[:n] {
		b := key >> shift
		n := used[b]
		at := int(b)*stride + int(n)*width
		// This writes 8 bytes; those beyond the key are overwritten by the weight and the next key.
		binary.LittleEndian.PutUint64(records[at:], key)
		if p.newWeights != nil {
			binary.LittleEndian.PutUint32(records[at+to.keyWidth:], math.Float32bits(p.newWeights[i]))
		}
		if used[b] = n + 1; n+1 == capacity {
			used[b] = 0
			if err := to.append(b, records[int(b)*stride:][:int(capacity)*width]); err != nil {
				return err
			}
		}
	}
	return nil
}

// flush adds to the buckets what distributors have in their buffers. All blocks of a bucket but the last are then full.
func (p *bucketSet) flush(from ...*distributor) error {
	var left []byte
	for b := range p.buckets {
		left = left[:0]
		for _, d := range from {
			left = append(left, d.memory.Bytes()[b*d.stride:][:int(d.used[b])*p.width]...)
			d.used[b] = 0
		}
		for block := range slices.Chunk(left, int(p.blockSize)*p.width) {
			if err := p.append(uint64(b), block); err != nil {
				return err
			}
		}
	}
	return nil
}

// sortBuffer is memory for the records that a thread sorts at a time, off the Go heap.
type sortBuffer struct {
	records
	used   int     // records
	other  records // as large: sorting moves records from one to the other
	counts digitCounts
	memory *offheap.Buffer
}

func (t *topology) newSortBuffer(size int64) (*sortBuffer, error) {
	b, err := alloc(2 * t.recordBytes() * size)
	if err != nil {
		return nil, err
	}
	p := &sortBuffer{memory: b}
	keys := dtype.As[uint64](b.Bytes()[:16*size])
	p.keys, p.other.keys = keys[:size:size], keys[size:]
	if t.info.Weighted {
		weights := dtype.Float32s(b.Bytes()[16*size:])
		p.weights, p.other.weights = weights[:size:size], weights[size:]
	}
	return p, nil
}

const maxDigitBits = 11 // so that the counters of a digit stay in cache

// digitCounts has a number for each value of a digit: first how many records have it, then the index of the next such
// record.
type digitCounts [1 << maxDigitBits]uint32

// sort sorts the records by their keys, which have keyBits bits, from the lowest digit to the highest (radix sort). It
// is stable.
func (p *sortBuffer) sort(keyBits int) {
	from, to := p.records.slice(p.used), p.other.slice(p.used)
	digits := max(1, (keyBits+maxDigitBits-1)/maxDigitBits)
	width := (keyBits + digits - 1) / digits
	mask := uint64(1)<<width - 1
	for bit := 0; bit < keyBits; bit += width {
		clear(p.counts[:1<<width])
		shift := bit & 63
		for _, key := range from.keys {
			p.counts[key>>shift&mask&(1<<maxDigitBits-1)]++
		}
		if p.counts.toIndexes(width) {
			from.scatter(to, shift, width, &p.counts)
			from, to = to, from
		}
	}
	p.records, p.other = from.slice(cap(from.keys)), to.slice(cap(to.keys))
}

// toIndexes turns the counts of a digit with width bits into the index of the first record with each value. It returns
// false if all records have the same value.
func (c *digitCounts) toIndexes(width int) bool {
	at, values := uint32(0), 0
	for i, count := range c[:1<<width] {
		if c[i] = at; count > 0 {
			values++
		}
		at += count
	}
	return values > 1
}

type records struct {
	keys    []uint64
	weights []float32 // nil where edges have none
}

func (r records) slice(n int) records {
	if r.keys = r.keys[:n]; r.weights != nil {
		r.weights = r.weights[:n]
	}
	return r
}

// scatter moves each record to the index of its digit in places, and increments that. Here and above, constant masks
// tell the compiler that no index is out of range, and no shift.
func (r records) scatter(to records, shift, width int, places *digitCounts) {
	shift &= 63
	mask := uint64(1)<<width - 1
	if r.weights == nil {
		for _, key := range r.keys {
			place := &places[key>>shift&mask&(1<<maxDigitBits-1)]
			to.keys[*place] = key
			*place++
		}
		return
	}
	for i, key := range r.keys {
		place := &places[key>>shift&mask&(1<<maxDigitBits-1)]
		to.keys[*place], to.weights[*place] = key, r.weights[i]
		*place++
	}
}
