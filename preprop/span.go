package preprop

import (
	"cmp"
	"fmt"
	"slices"
)

// span is a range of columns [first, end).
type span struct{ first, end int }

func (s span) width() int { return s.end - s.first }

func (s span) String() string { return fmt.Sprintf("columns %d to %d", s.first, s.end-1) }

// coverPart is a span of columns that are taken from those of another one.
type coverPart struct {
	span
	of span
}

// cover takes the columns of s from spans, each once, ascending; what none has is
// left out.
func cover(s span, spans []span) []coverPart {
	spans = slices.Clone(spans)
	slices.SortFunc(spans, func(a, b span) int { return cmp.Or(cmp.Compare(a.first, b.first), cmp.Compare(b.end, a.end)) })
	var out []coverPart
	at := s.first
	for _, from := range spans {
		part := span{max(at, from.first), min(s.end, from.end)}
		if part.width() > 0 {
			out = append(out, coverPart{part, from})
			at = part.end
		}
	}
	return out
}

// missing is the columns of s that no span has, as spans that are apart.
func missing(s span, spans []span) []span {
	var out []span
	at := s.first
	for _, part := range cover(s, spans) {
		if at < part.first {
			out = append(out, span{at, part.first})
		}
		at = part.end
	}
	if at < s.end {
		out = append(out, span{at, s.end})
	}
	return out
}
