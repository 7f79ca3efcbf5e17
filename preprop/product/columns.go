package product

import (
	"cmp"
	"fmt"
	"slices"
)

// ColumnRange is the columns [first, end) of a matrix.
type ColumnRange struct{ First, End int }

func (s ColumnRange) Width() int { return s.End - s.First }

func (s ColumnRange) String() string { return fmt.Sprintf("columns %d to %d", s.First, s.End-1) }

// coverPart is columns, and the range that they are taken from, which has them all.
type coverPart struct {
	ColumnRange
	Source ColumnRange
}

// Cover tells from which of the ranges to take each column of s, in ascending order.
// Columns that are in none of the ranges are left out.
func Cover(s ColumnRange, ranges []ColumnRange) []coverPart {
	ranges = slices.Clone(ranges)
	slices.SortFunc(ranges, func(a, b ColumnRange) int { return cmp.Or(cmp.Compare(a.First, b.First), cmp.Compare(b.End, a.End)) })
	var out []coverPart
	at := s.First
	for _, from := range ranges {
		part := ColumnRange{max(at, from.First), min(s.End, from.End)}
		if part.Width() > 0 {
			out = append(out, coverPart{part, from})
			at = part.End
		}
	}
	return out
}

// Missing is the columns of s that are in none of the ranges. The ranges that it returns
// do not overlap.
func Missing(s ColumnRange, ranges []ColumnRange) []ColumnRange {
	var out []ColumnRange
	at := s.First
	for _, part := range Cover(s, ranges) {
		if at < part.First {
			out = append(out, ColumnRange{at, part.First})
		}
		at = part.End
	}
	if at < s.End {
		out = append(out, ColumnRange{at, s.End})
	}
	return out
}
