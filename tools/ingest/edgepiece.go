package ingest

import (
	"fmt"
	"math/bits"

	"github.com/hopfeed/hopfeed/internal/dtype"
	"github.com/hopfeed/hopfeed/internal/machine"
	"github.com/hopfeed/hopfeed/internal/offheap"
)

// edgePiece is as many edges as are sorted at a time, off the Go heap.
type edgePiece struct {
	keys    []uint64
	weights []float32 // nil where edges have none
	used    int       // of both

	otherKeys    []uint64 // what sorting moves records to and from
	otherWeights []float32
	counts       [1 + maxDigits]digitCounts // of buckets, and of digits within one
	buffer       *offheap.Buffer
}

func newEdgePiece(records int64, weighted bool) (*edgePiece, error) {
	bytes := 16 * records
	if weighted {
		bytes += 8 * records
	}
	b, err := offheap.Alloc(bytes)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", machine.ErrDoesNotFit, err)
	}
	p := &edgePiece{buffer: b}
	keys := dtype.As[uint64](b.Bytes()[:16*records])
	p.keys, p.otherKeys = keys[:records], keys[records:]
	if weighted {
		weights := dtype.Float32s(b.Bytes()[16*records:])
		p.weights, p.otherWeights = weights[:records], weights[records:]
	}
	return p, nil
}

const (
	maxDigitBits = 11 // so that the counters of a digit stay in cache
	maxDigits    = (64 + maxDigitBits - 1) / maxDigitBits
	bucketLength = 1 << 13 // about; a bucket stays in cache
)

// digitCounts has a counter or a place for each value of a digit.
type digitCounts [1 << maxDigitBits]uint32

// sort sorts the records by the low bits of their keys, which have no others.
// Records with equal keys stay in order. The upper bits part them into buckets,
// each of which is sorted in cache, from the last digit to the first (radix sort).
func (p *edgePiece) sort(keyBits int) {
	n := p.used
	upper := min(bits.Len(uint(n/bucketLength)), maxDigitBits, keyBits)
	rest := keyBits - upper
	from, to := records{p.keys, p.weights}.slice(0, n), records{p.otherKeys, p.otherWeights}.slice(0, n)
	buckets := p.counts[0][:1<<upper]
	clear(buckets)
	for _, key := range from.keys {
		buckets[key>>(rest&63)]++
	}
	p.counts[0].places(upper)
	from.scatter(to, rest, upper, &p.counts[0])
	first := 0
	for _, end := range buckets { // scattering has moved each place to the end of its bucket
		p.sortBucket(to.slice(first, int(end)), from.slice(first, int(end)), rest)
		first = int(end)
	}
}

// sortBucket sorts records by the low bits of their keys into others.
func (p *edgePiece) sortBucket(from, to records, keyBits int) {
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
	inPlace := false // the records have gone to where they should be
	for d := range counts {
		if !counts[d].places(width) {
			continue
		}
		from.scatter(to, d*width, width, &counts[d])
		from, to = to, from
		inPlace = !inPlace
	}
	if !inPlace {
		copy(to.keys, from.keys)
		copy(to.weights, from.weights)
	}
}

// places turns counters of a digit of so many bits into the places of the first
// record with each value. It is false where all records have the same.
func (c *digitCounts) places(width int) bool {
	at, values := uint32(0), 0
	for i, count := range c[:1<<width] {
		if c[i] = at; count > 0 {
			values++
		}
		at += count
	}
	return values > 1
}

// records are keys with their weights, if any.
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

// scatter moves each record to the place that its digit has, and the place on.
// Here and above, constant masks tell the compiler that no index is out of range, and
// no shift.
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
