package preprop

import (
	"cmp"
	"fmt"
	"slices"
)

// columnRange is the columns [first, end) of a matrix.
type columnRange struct{ first, end int }

func (s columnRange) width() int { return s.end - s.first }

func (s columnRange) String() string { return fmt.Sprintf("columns %d to %d", s.first, s.end-1) }

// coverPart is columns, and the range that they are taken from, which has them all.
type coverPart struct {
	columnRange
	source columnRange
}

// cover tells from which of the ranges to take each column of s, in ascending order.
// Columns that are in none of the ranges are left out.
func cover(s columnRange, ranges []columnRange) []coverPart {
	ranges = slices.Clone(ranges)
	slices.SortFunc(ranges, func(a, b columnRange) int { return cmp.Or(cmp.Compare(a.first, b.first), cmp.Compare(b.end, a.end)) })
	var out []coverPart
	at := s.first
	for _, from := range ranges {
		part := columnRange{max(at, from.first), min(s.end, from.end)}
		if part.width() > 0 {
			out = append(out, coverPart{part, from})
			at = part.end
		}
	}
	return out
}

// missing is the columns of s that are in none of the ranges. The ranges that it returns
// do not overlap.
func missing(s columnRange, ranges []columnRange) []columnRange {
	var out []columnRange
	at := s.first
	for _, part := range cover(s, ranges) {
		if at < part.first {
			out = append(out, columnRange{at, part.first})
		}
		at = part.end
	}
	if at < s.end {
		out = append(out, columnRange{at, s.end})
	}
	return out
}
