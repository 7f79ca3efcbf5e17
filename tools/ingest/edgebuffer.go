package ingest

import (
	"fmt"
	"math/bits"

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
	counts       [1 + maxDigits]digitCounts // of the upper bits, and of each digit below
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
	p.keys, p.otherKeys = keys[:records], keys[records:]
	if weighted {
		weights := dtype.Float32s(b.Bytes()[16*records:])
		p.weights, p.otherWeights = weights[:records], weights[records:]
	}
	return p, nil
}

const (
	maxDigitBits  = 11 // so that the counters of a digit stay in cache
	maxDigits     = (64 + maxDigitBits - 1) / maxDigitBits
	cachedRecords = 1 << 13 // about, that stay in cache
)

// digitCounts has a number for each value of a digit: first how many records have it, then the index of the next such
// record.
type digitCounts [1 << maxDigitBits]uint32

// sort sorts the records by their keys, which have keyBits bits. It is stable. It groups the records by the upper bits
// first, so that each group fits in cache, and sorts each group from the lowest digit to the highest (radix sort).
func (p *sortBuffer) sort(keyBits int) {
	n := p.used
	upper := min(bits.Len(uint(n/cachedRecords)), maxDigitBits, keyBits)
	rest := keyBits - upper
	from, to := records{p.keys, p.weights}.slice(0, n), records{p.otherKeys, p.otherWeights}.slice(0, n)
	groups := p.counts[0][:1<<upper]
	clear(groups)
	for _, key := range from.keys {
		groups[key>>(rest&63)]++
	}
	p.counts[0].toIndexes(upper)
	from.scatter(to, rest, upper, &p.counts[0])
	first := 0
	for _, end := range groups { // scatter has moved each index to the end of its group
		p.sortLowBits(to.slice(first, int(end)), from.slice(first, int(end)), rest)
		first = int(end)
	}
}

// sortLowBits sorts records from by the lowest keyBits bits of their keys, into to.
func (p *sortBuffer) sortLowBits(from, to records, keyBits int) {
	digits := (keyBits + maxDigitBits - 1) / maxDigitBits
	width := 0
	if digits > 0 {
		width = (keyBits + digits - 1) / digits
	}
	counts := p.counts[1 : 1+digits]
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
	sorted := false // the records are in the slice that the caller passed as to
	for d := range counts {
		if !counts[d].toIndexes(width) {
			continue
		}
		from.scatter(to, d*width, width, &counts[d])
		from, to = to, from
		sorted = !sorted
	}
	if !sorted {
		copy(to.keys, from.keys)
		copy(to.weights, from.weights)
	}
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
