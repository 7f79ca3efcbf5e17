package chunk

// stripe is the share of one rank in the rows of a batch, where row i is held by
// rank i mod world: of the rows that it holds the first ones, in their order, up to
// its share; then, if it holds fewer, what others hold beyond theirs
// (locality-aware loading: Yang and Cong 2019; preprop-gnn section 5). Rows are
// dealt out in stripes so that rows that follow one another, as in evaluation, are
// held by all ranks alike. Shares are each rows, and one more for the first ranks.
func stripe(batch []Span, rank, each, more, world int64) (share []Span, remote int) {
	quota := func(r int64) int64 {
		if r < more {
			return each + 1
		}
		return each
	}
	held := make([]int64, world)
	eachRow(batch, func(row int64) { held[row%world]++ })
	// What is held beyond shares is taken by the ranks in turn: this one from place
	// first on.
	var first int64
	for r := range rank {
		first += max(0, quota(r)-held[r])
	}
	last := first + max(0, quota(rank)-held[rank])
	var others []Span
	var surplus int64
	seen := make([]int64, world)
	eachRow(batch, func(row int64) {
		holder := row % world
		seen[holder]++
		switch beyond := seen[holder] > quota(holder); {
		case !beyond && holder == rank:
			share = appendSpan(share, Span{row, 1})
		case beyond:
			if first <= surplus && surplus < last {
				others = appendSpan(others, Span{row, 1})
				remote++
			}
			surplus++
		}
	})
	for _, s := range others {
		share = appendSpan(share, s)
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
