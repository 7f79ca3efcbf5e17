package ingest

import (
	"fmt"

	"github.com/hopfeed/hopfeed/internal/dtype"
	"github.com/hopfeed/hopfeed/internal/machine"
	"github.com/hopfeed/hopfeed/internal/offheap"
)

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
