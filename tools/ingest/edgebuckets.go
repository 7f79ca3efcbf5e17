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

// bucketSet is records in buckets, by the upper bits of their keys. Its spaces hold the lower bits of the keys and, if
// there are weights, the weights, at the same indexes.
type bucketSet struct {
	shift  int // lower bits of a key: a bucket has all keys with the same upper bits
	spaces [2]*scratchSpace
	widths [2]int64 // bytes of a stored key, little-endian, and of a weight

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

// checksums are the CRC-32C of what is in each space. They are zero where the spaces are memory.
type checksums [2]uint32

func (s *checksums) add(p *bucketSet, data [2][]byte) {
	for i, space := range p.spaces {
		if space != nil && space.memory == nil {
			s[i] = kernel.CRC32C(s[i], data[i])
		}
	}
}

// compare returns an error, which names the file, if checksums differ from those of what was written.
func (p *bucketSet) compare(found, written checksums) error {
	for i, space := range p.spaces {
		if found[i] != written[i] {
			return fmt.Errorf("%s: %w", space.file.Path(), folder.ErrDamaged)
		}
	}
	return nil
}

// keyWidth is the bytes of a stored key: enough for its bits, and for the source ID of 4 bytes that overwrites it when
// its bucket is merged.
func keyWidth(bits int) int64 { return int64(max(4, (bits+7)/8)) }

func (p *bucketSet) free() error { return errors.Join(p.spaces[0].free(), p.spaces[1].free()) }

// append adds records to a bucket, as a run.
func (p *bucketSet) append(b uint64, keys []byte, weights []float32) error {
	n := int64(len(keys)) / p.widths[0]
	data := [2][]byte{keys, dtype.BytesOf(weights)}
	var sums checksums
	sums.add(p, data)
	p.mu.Lock()
	first := p.records
	p.records += n
	to := &p.buckets[b]
	to.records += n
	if last := len(to.runs) - 1; p.spaces[0].memory != nil && last >= 0 &&
		to.runs[last].first+to.runs[last].records == first {
		to.runs[last].records += n
	} else {
		to.runs = append(to.runs, edgeRun{first, n, sums})
	}
	p.mu.Unlock()
	return p.writeAt(data, first, 0)
}

// writeAt writes to both spaces, some bytes behind where a record begins.
func (p *bucketSet) writeAt(data [2][]byte, record, behind int64) error {
	for i, space := range p.spaces {
		if len(data[i]) > 0 {
			if _, err := space.WriteAt(data[i], record*p.widths[i]+behind); err != nil {
				return err
			}
		}
	}
	return nil
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
	shift, width := to.shift&63, int(to.widths[0]) // the mask spares a check at each shift
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
	return to.append(b, p.keys[int(b)*stride:][:n*int(to.widths[0])], weights)
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
	keys    []uint64
	weights []float32 // nil where edges have none
	used    int       // records, of keys and weights

	otherKeys    []uint64 // as large: sorting moves records from one to the other
	otherWeights []float32
	counts       [maxDigits]digitCounts
	memory       *offheap.Buffer
}

func sortBufferBytes(records int64, weighted bool) int64 {
	if weighted {
		return 24 * records
	}
	return 16 * records
}

func newSortBuffer(records int64, weighted bool) (*sortBuffer, error) {
	b, err := offheap.Alloc(sortBufferBytes(records, weighted))
	if err != nil {
		return nil, fmt.Errorf("%w: %w", machine.ErrDoesNotFit, err)
	}
	p := &sortBuffer{memory: b}
	keys := dtype.As[uint64](b.Bytes()[:16*records])
	p.keys, p.otherKeys = keys[:records:records], keys[records:]
	if weighted {
		weights := dtype.Float32s(b.Bytes()[16*records:])
		p.weights, p.otherWeights = weights[:records:records], weights[records:]
	}
	return p, nil
}

const (
	maxDigitBits = 11 // so that the counters of a digit stay in cache
	maxDigits    = (64 + maxDigitBits - 1) / maxDigitBits
)

// digitCounts has a number for each value of a digit: first how many records have it, then the index of the next such
// record.
type digitCounts [1 << maxDigitBits]uint32

// sort sorts the records by their keys, which have keyBits bits, from the lowest digit to the highest (radix sort). It
// is stable.
func (p *sortBuffer) sort(keyBits int) {
	from, to := records{p.keys, p.weights}.slice(0, p.used), records{p.otherKeys, p.otherWeights}.slice(0, p.used)
	digits := (keyBits + maxDigitBits - 1) / maxDigitBits
	width := 0
	if digits > 0 {
		width = (keyBits + digits - 1) / digits
	}
	counts := p.counts[:digits]
	for d := range counts {
		clear(counts[d][:1<<width])
	}
	mask := uint64(1)<<width - 1
	for d := range counts {
		digit, shift := &counts[d], d*width&63
		for _, key := range from.keys {
			digit[key>>shift&mask&(1<<maxDigitBits-1)]++
		}
	}
	for d := range counts {
		if counts[d].toIndexes(width) {
			from.scatter(to, d*width, width, &counts[d])
			from, to = to, from
		}
	}
	p.keys, p.weights, p.otherKeys, p.otherWeights = from.keys[:cap(from.keys)], from.weights[:cap(from.weights)],
		to.keys[:cap(to.keys)], to.weights[:cap(to.weights)]
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
	weights []float32
}

func (r records) slice(first, end int) records {
	r.keys = r.keys[first:end]
	if r.weights != nil {
		r.weights = r.weights[first:end]
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
