package chunk

// near is the share of the plan's rank in the rows of a batch: of the rows that it
// holds the first ones, in their order, up to its share; then, if it holds fewer, what
// others hold beyond theirs (locality-aware loading: Yang and Cong 2019; preprop-gnn
// section 5). Shares are each rows, and one more for the first ranks.
func (p Plan) near(batch []Span, each, more int64) (share []Span, remote int) {
	quota := func(rank int) int64 { return shareOf(int64(rank), each, more) }
	held := make([]int64, max(p.World, 1))
	eachRow(batch, func(row int64) { held[p.Holder(row)]++ })
	// What is held beyond shares is taken by the ranks in turn: this one from place
	// first on.
	var first int64
	for rank := range p.Rank {
		first += max(0, quota(rank)-held[rank])
	}
	last := first + max(0, quota(p.Rank)-held[p.Rank])
	var others []Span
	var surplus int64
	clear(held)
	eachRow(batch, func(row int64) {
		holder := p.Holder(row)
		held[holder]++ // so far
		switch beyond := held[holder] > quota(holder); {
		case !beyond && holder == p.Rank:
			share = AppendSpan(share, Span{row, 1})
		case beyond:
			if first <= surplus && surplus < last {
				others = AppendSpan(others, Span{row, 1})
				remote++
			}
			surplus++
		}
	})
	for _, s := range others {
		share = AppendSpan(share, s)
	}
	return share, remote
}

func eachRow(spans []Span, do func(row int64)) {
	for _, s := range spans {
		for row := s.First; row < s.First+int64(s.Rows); row++ {
			do(row)
		}
	}
}
