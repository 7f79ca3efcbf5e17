// Package chunk plans epochs: which rows form which batch, in which order. A plan is a pure function of a few
// integers; it stores no table of the order, and does no I/O. Row reshuffling (SGD-RR) is chunk reshuffling (SGD-CR;
// preprop-gnn section 4.2) with chunks of one row.
//
// The rows are cut into chunks of ChunkRows; only the last may be shorter. An epoch is the chunks, one after
// another, in ascending order or permuted by (Seed, epoch); batch k is its positions
// [k*BatchRows, (k+1)*BatchRows), so batches run across the borders of chunks. Since only one chunk is shorter, its
// place in the permutation is all that is needed to find the chunk at any position.
//
// Plans are safe for concurrent use. The same plan gives the same batches in every version of the program:
// checkpoints rely on it.
package chunk

import (
	"fmt"
	"iter"
	"math/bits"
	"slices"

	"github.com/hopfeed/hopfeed/internal/kernel"
	"github.com/hopfeed/hopfeed/internal/rng"
)

// Span is a run of consecutive rows, relative to the first row of the plan.
type Span struct {
	First int64
	Rows  int
}

// Order says how the chunks of an epoch are ordered.
type Order uint8

const (
	Sequential Order = iota // ascending: evaluation
	Shuffled                // a new permutation each epoch: training
)

// MaxRows is the most rows that a plan can have.
const MaxRows = 1 << 48

// Plan describes the epochs over a set of rows. The zero values of ChunkRows, DropLast, Rank and World mean chunks of
// one row, and one rank that also gets the last, short batch.
type Plan struct {
	Rows      int64
	ChunkRows int // rows that stay together; 1 is SGD-RR
	BatchRows int // of the global batch, over all ranks
	Order     Order
	Seed      uint64
	DropLast  bool
	Rank      int
	World     int // ranks that share each batch
	// Holder returns the rank that holds a row, if each holds a part of the rows: a rank's share of a batch is then,
	// as far as possible, rows that it holds. nil: all ranks hold all rows. It must be a pure function.
	Holder func(row int64) int
	// OwnRows: each rank has RankRows rows of its own, numbered from 0. Its share of a batch is the next of them, and as
	// large as without OwnRows. Rows counts the rows of all ranks.
	OwnRows bool
}

// Batch is one rank's share of a global batch. It may be empty if the batch has fewer rows than there are ranks. Its
// rows are computed by Spans or RowNumbers, when they are called.
type Batch struct {
	Index      int // within the epoch
	GlobalRows int // over all ranks: what the loss is divided by
	Rows       int // of this rank
	Remote     int // rows that another rank holds: the last of Rows

	order *order
	first int64  // its place in the epoch
	share []Span // where the plan has a Holder
}

// Spans returns the rows, in training order, as runs of consecutive ones. The caller owns the slice.
func (b Batch) Spans() []Span {
	if b.share != nil {
		return slices.Clone(b.share)
	}
	return b.order.spans(b.first, int64(b.Rows))
}

// RowNumbers writes the rows, in training order, to numbers[:Rows]. If single rows are reshuffled, it is much faster
// than Spans. The plan must not have more than 2^32 rows.
func (b Batch) RowNumbers(numbers []uint32) {
	o := b.order
	if b.share == nil && o.permutation != nil && o.chunkRows == 1 {
		images := make([]uint64, min(b.Rows, 1<<10))
		for at := 0; at < b.Rows; at += len(images) {
			images = images[:min(len(images), b.Rows-at)]
			o.permutation.images(images, uint64(b.first)+uint64(at))
			for i, row := range images {
				numbers[at+i] = uint32(row)
			}
		}
		return
	}
	AppendRows(numbers[:0:b.Rows], b.Spans())
}

// Check returns an error for the first setting that is impossible. The other methods may be called only if it returns
// nil.
func (p Plan) Check() error {
	switch {
	case p.Rows < 0 || p.Rows > MaxRows:
		return fmt.Errorf("plan of %d rows (want 0 to %d)", p.Rows, int64(MaxRows))
	case p.ChunkRows < 0:
		return fmt.Errorf("plan with chunks of %d rows (want 1, which reshuffles rows, or more)", p.ChunkRows)
	case p.BatchRows < 1:
		return fmt.Errorf("plan with batches of %d rows (want 1 or more)", p.BatchRows)
	case p.Order > Shuffled:
		return fmt.Errorf("plan in unknown order %d", p.Order)
	case p.World < 0 || p.Rank < 0 || p.Rank >= max(p.World, 1):
		return fmt.Errorf("plan for rank %d of %d (ranks count from 0)", p.Rank, p.World)
	case p.DropLast && p.Rows > 0 && p.Rows < int64(p.BatchRows):
		return fmt.Errorf("plan that drops the short batch has no other: %d rows, batches of %d", p.Rows, p.BatchRows)
	case p.OwnRows && p.Holder != nil:
		return fmt.Errorf("plan of ranks with rows of their own that other ranks hold")
	}
	return nil
}

// RankRows is the number of rows of the plan's rank: the sum of its shares.
func (p Plan) RankRows() int64 {
	full, last := p.Rows/int64(p.BatchRows), p.Rows%int64(p.BatchRows)
	return full*p.share(int64(p.BatchRows)) + p.share(last)
}

// share is how many rows of a batch the plan's rank has: the first ranks have a row more where they do not divide.
func (p Plan) share(rows int64) int64 {
	world := int64(max(p.World, 1))
	return shareRows(int64(p.Rank), rows/world, rows%world)
}

// WithRows is the plan with Rows set, unless its ranks have OwnRows: then Rows is known already.
func (p Plan) WithRows(rows int) Plan {
	if !p.OwnRows {
		p.Rows = int64(rows)
	}
	return p
}

// Batches is the number of batches of an epoch, the same on all ranks.
func (p Plan) Batches() int {
	batches := p.Rows / int64(p.BatchRows)
	if !p.DropLast && p.Rows%int64(p.BatchRows) != 0 {
		batches++
	}
	return int(batches)
}

// MaxBatchRows is the most rows that a batch can have on one rank.
func (p Plan) MaxBatchRows() int {
	rows, world := min(p.Rows, int64(p.BatchRows)), int64(max(p.World, 1))
	if rows == 0 {
		return 0
	}
	return int((rows-1)/world + 1)
}

// Epoch yields the batches of an epoch in order.
func (p Plan) Epoch(epoch int) iter.Seq[Batch] { return p.EpochFrom(epoch, 0) }

// Batch is batch k of an epoch, which has it.
func (p Plan) Batch(epoch, k int) Batch {
	o := p.order(epoch)
	return p.batch(&o, k)
}

// EpochFrom yields the batches of an epoch from batch first on. Starting late costs nothing.
func (p Plan) EpochFrom(epoch, first int) iter.Seq[Batch] {
	return func(yield func(Batch) bool) {
		o := p.order(epoch)
		for k := max(first, 0); k < p.Batches(); k++ {
			if !yield(p.batch(&o, k)) {
				return
			}
		}
	}
}

// batch is this rank's share of batch k: the ranks' shares follow one another, and the first ones have a row more
// where the rows do not divide.
func (p Plan) batch(o *order, k int) Batch {
	lo := int64(k) * int64(p.BatchRows)
	rows := min(p.Rows-lo, int64(p.BatchRows))
	world, rank := int64(max(p.World, 1)), int64(p.Rank)
	each, more := rows/world, rows%world
	b := Batch{Index: k, GlobalRows: int(rows), Rows: int(shareRows(rank, each, more)), order: o, first: lo +
		each*rank + min(rank, more)}
	switch {
	case p.OwnRows:
		b.first = int64(k) * p.share(int64(p.BatchRows))
	case p.Holder != nil:
		b.share, b.Remote = p.shareByHolder(o.spans(lo, rows), each, more)
	}
	return b
}

// shareRows is the number of rows of a rank's share: each, and one more for the first ranks.
func shareRows(rank, each, more int64) int64 {
	if rank < more {
		return each + 1
	}
	return each
}

// order is the order of the chunks of one epoch.
type order struct {
	chunkRows   int64
	chunks      int64
	lastRows    int64        // rows of the chunk that is last by row number
	lastPlace   int64        // the place of that chunk in the epoch
	permutation *permutation // nil: ascending
}

func (p Plan) order(epoch int) order {
	o, rows := order{chunkRows: max(int64(p.ChunkRows), 1)}, p.Rows
	if p.OwnRows {
		rows = p.RankRows()
	}
	if rows == 0 {
		return o
	}
	o.chunks = (rows-1)/o.chunkRows + 1
	o.lastRows = rows - (o.chunks-1)*o.chunkRows
	o.lastPlace = o.chunks - 1
	if p.Order == Shuffled {
		seed := rng.Hash(rng.Derive(p.Seed, "chunk order"), uint64(epoch))
		if p.OwnRows {
			seed = rng.Hash(seed, uint64(p.Rank))
		}
		perm := newPermutation(uint64(o.chunks), seed)
		o.permutation = &perm
		o.lastPlace = int64(perm.inverse(uint64(o.chunks - 1)))
	}
	return o
}

// spans returns the rows at positions [lo, lo+rows) of the epoch.
func (o *order) spans(lo, rows int64) []Span {
	if rows == 0 {
		return nil
	}
	if o.permutation == nil {
		return []Span{{First: lo, Rows: int(rows)}}
	}
	// The place of the chunk at position lo, and the position within it.
	place, within := lo/o.chunkRows, lo%o.chunkRows
	if end := o.lastPlace*o.chunkRows + o.lastRows; lo >= end {
		place, within = o.lastPlace+1+(lo-end)/o.chunkRows, (lo-end)%o.chunkRows
	}
	places := min((rows-1)/o.chunkRows+3, o.chunks-place)
	images := make([]uint64, places)
	o.permutation.images(images, uint64(place))
	out := make([]Span, 0, min(rows, places))
	for _, image := range images {
		chunk, size := int64(image), o.chunkRows
		if chunk == o.chunks-1 {
			size = o.lastRows
		}
		n := min(rows, size-within)
		out = AppendSpan(out, Span{First: chunk*o.chunkRows + within, Rows: int(n)})
		if rows -= n; rows == 0 {
			break
		}
		within = 0
	}
	return out
}

// AppendRows appends the row numbers of spans, which must be below 2^32.
func AppendRows(numbers []uint32, spans []Span) []uint32 {
	for _, s := range spans {
		for row := s.First; row < s.First+int64(s.Rows); row++ {
			numbers = append(numbers, uint32(row))
		}
	}
	return numbers
}

// AppendSpan appends a span, or extends the last one if the new rows follow it.
func AppendSpan(spans []Span, s Span) []Span {
	if last := len(spans) - 1; last >= 0 && spans[last].First+int64(spans[last].Rows) == s.First {
		spans[last].Rows += s.Rows
		return spans
	}
	return append(spans, s)
}

// shareByHolder returns the share of the plan's rank in a batch: first rows that it holds, in their order, up to the
// size of its share; then, if it holds fewer, rows that other ranks hold beyond their shares (locality-aware loading:
// Yang and Cong 2019; preprop-gnn section 5). A share is each rows, and one more for the first more ranks.
func (p Plan) shareByHolder(batch []Span, each, more int64) (share []Span, remote int) {
	quota := func(rank int) int64 { return shareRows(int64(rank), each, more) }
	held := make([]int64, max(p.World, 1))
	eachRow(batch, func(row int64) { held[p.Holder(row)]++ })
	// Surplus rows, held beyond a rank's share, are dealt out in the order of ranks: this rank gets those from place
	// first to last.
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

// Half rounds of a permutation. A domain below smallDomain needs these for all permutations of eight chunks to be
// equally likely to within a few percent; above it four full rounds, as Luby and Rackoff ask for, are doubled.
const (
	smallDomain = 1 << 12
	smallRounds = 24
	largeRounds = 8
)

// permutation is a bijection of [0,n) that is drawn by a seed and needs no table: a Feistel network on Z_a x Z_b with
// modular addition, a*b >= n, and walking along the cycle until a number below n is met (Black and Rogaway 2002,
// "Ciphers with Arbitrary Finite Domains", methods 2 and 3). b = 2^shift is close to the square root of n and a =
// ceil(n/b), so that a*b < n+b and hardly any walk takes a second step. Additions modulo a power of two are odd
// permutations for some keys, so every permutation can come up.
type permutation struct {
	n, a  uint64
	shift uint
	keys  []uint64 // the streams of the half rounds: see rng.At
}

func newPermutation(n, seed uint64) permutation {
	p := permutation{n: n}
	if n > 0 {
		p.shift = uint(bits.Len64(n-1)) / 2
		p.a = (n-1)>>p.shift + 1
	}
	rounds := largeRounds
	if n < smallDomain {
		rounds = smallRounds
	}
	p.keys = make([]uint64, rounds)
	for i := range p.keys {
		p.keys[i] = rng.Start(rng.Hash(seed, uint64(i)))
	}
	return p
}

// images writes the images of first, first+1, ... to out. All must be below n.
func (p *permutation) images(out []uint64, first uint64) {
	kernel.Feistel(out, first, p.keys, p.a, p.shift)
	for i, x := range out {
		for ; x >= p.n; x = out[i] {
			kernel.Feistel(out[i:i+1], x, p.keys, p.a, p.shift)
		}
	}
}

// inverse returns the x whose image is i.
func (p *permutation) inverse(i uint64) uint64 {
	mask := uint64(1)<<p.shift - 1
	for {
		left, right := i>>p.shift, i&mask
		for r := len(p.keys) - 2; r >= 0; r -= 2 {
			right = (right - rng.At(p.keys[r+1], left)) & mask
			left += p.a - below(rng.At(p.keys[r], right), p.a)
			if left >= p.a {
				left -= p.a
			}
		}
		if i = left<<p.shift | right; i < p.n {
			return i
		}
	}
}

// below maps a hash to a number in [0,n).
func below(hash, n uint64) uint64 {
	high, _ := bits.Mul64(hash, n)
	return high
}
