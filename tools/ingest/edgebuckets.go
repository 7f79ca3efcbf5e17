package ingest

import (
	"encoding/binary"
	"math"
	"sync"

	"github.com/hopfeed/hopfeed/internal/dtype"
	"github.com/hopfeed/hopfeed/internal/offheap"
)

// bucketSet is records in buckets, by the upper bits of their keys. A record is stored as the lower bits of its key
// and, if there are weights, its weight, both little-endian.
type bucketSet struct {
	shift    int // lower bits of a key: a bucket has all keys with the same upper bits
	space    *scratchSpace
	keyWidth int // bytes of a stored key
	width    int // bytes of a record

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
	sums    [2]uint32 // CRC-32C of the sources and of the weights of these edges

	tooLarge int64 // first node whose weights add up to more than float32 can hold, or -1
}

// edgeRun is consecutive records of one bucket. Merging overwrites them with sources, 4 bytes each, and, behind the
// place of as many sources as there are records, with weights.
type edgeRun struct {
	first, records int64
	sum            uint32 // CRC-32C
}

// edgesAt is the offset of the sources (0) or the weights (1) that overwrite a run.
func (p *bucketSet) edgesAt(e edgeRun, column int) int64 {
	return e.first*int64(p.width) + 4*int64(column)*e.records
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

// append adds records to a bucket, as a run.
func (p *bucketSet) append(b uint64, data []byte) error {
	n, sum := int64(len(data)/p.width), p.space.sum(0, data)
	p.mu.Lock()
	first := p.records
	p.records += n
	to := &p.buckets[b]
	to.records += n
	if last := len(to.runs) - 1; p.space.memory != nil && last >= 0 &&
		to.runs[last].first+to.runs[last].records == first {
		to.runs[last].records += n
	} else {
		to.runs = append(to.runs, edgeRun{first, n, sum})
	}
	p.mu.Unlock()
	_, err := p.space.WriteAt(data, first*int64(p.width))
	return err
}

// distributor adds records to buckets, for one goroutine. It has a buffer for each bucket, which it adds to the bucket
// when it is full.
type distributor struct {
	memory   *offheap.Buffer
	capacity int     // records of a buffer
	stride   int     // bytes of a buffer
	used     []int32 // records in each buffer

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
		memory:   memory,
		capacity: int(plan.bufferRecords),
		stride:   int(bytes >> plan.bucketBits),
		used:     make([]int32, 1<<plan.bucketBits),
		newKeys:  make([]uint64, newRecords),
	}
	if s.info.Weighted {
		p.newWeights = make([]float32, newRecords)
	}
	return p, nil
}

func (p *distributor) add(to *bucketSet, n int) error {
	shift, width := to.shift&63, to.width // the mask spares a check at each shift
	records, used, capacity, stride := p.memory.Bytes(), p.used, int32(p.capacity), p.stride
	for i, key := range p.newKeys[:n] {
		b := key >> shift
		n := used[b]
		at := int(b)*stride + int(n)*width
		// This writes 8 bytes; those beyond the key are overwritten by the weight and the next key.
		binary.LittleEndian.PutUint64(records[at:], key)
		if p.newWeights != nil {
			binary.LittleEndian.PutUint32(records[at+to.keyWidth:], math.Float32bits(p.newWeights[i]))
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
	n := int(p.used[b])
	p.used[b] = 0
	return to.append(b, p.memory.Bytes()[int(b)*p.stride:][:n*to.width])
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
