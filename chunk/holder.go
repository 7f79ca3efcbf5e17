package chunk

// shareByHolder returns the share of the plan's rank in a batch: first rows that it holds, in
// their order, up to the size of its share; then, if it holds fewer, rows that other ranks hold
// beyond their shares (locality-aware loading: Yang and Cong 2019; preprop-gnn section 5). A
// share is each rows, and one more for the first more ranks.
func (p Plan) shareByHolder(batch []Span, each, more int64) (share []Span, remote int) {
	quota := func(rank int) int64 { return shareRows(int64(rank), each, more) }
	held := make([]int64, max(p.World, 1))
	eachRow(batch, func(row int64) { held[p.Holder(row)]++ })
	// Surplus rows, held beyond a rank's share, are dealt out in the order of ranks: this rank
	// gets those from place first to last.
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
