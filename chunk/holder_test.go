package chunk

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/hopfeed/hopfeed/internal/rng"
)

// stripes deals rows out in turn.
func stripes(world int) func(int64) int {
	return func(row int64) int { return int(row % int64(world)) }
}

func TestRanksShareTheSameBatchesAndTakeWhatTheyHold(t *testing.T) {
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	r := rand.New(rand.NewPCG(seed, 0))
	for range 300 {
		p, epoch := randomPlan(r), r.IntN(5)
		alone := slices.Collect(p.Epoch(epoch))
		p.World = 1 + r.IntN(9)
		plain := p
		p.Holder = stripes(p.World)
		if r.IntN(2) == 0 {
			p.Holder = func(row int64) int { return int(rng.Hash(seed, uint64(row)) % uint64(p.World)) }
		}
		for k, want := range alone {
			var union []int64
			moved, surplus := 0, 0
			for rank := range p.World {
				p.Rank, plain.Rank = rank, rank
				var b Batch
				for b = range p.EpochFrom(epoch, k) {
					break
				}
				mine := rows(b)
				var same Batch
				for same = range plain.EpochFrom(epoch, k) {
					break
				}
				if b.Index != k || b.GlobalRows != want.Rows || b.Rows != len(mine) || b.Rows != same.Rows {
					t.Fatalf("%+v: batch %d is %+v, beside %+v", p, k, b, same)
				}
				remote := 0
				for i, row := range mine {
					if p.Holder(row) != rank {
						remote++
					} else if remote > 0 {
						t.Fatalf("%+v: batch %d has row %d, which it holds, at place %d behind others", p, k, row, i)
					}
				}
				if remote != b.Remote {
					t.Fatalf("%+v: batch %d says that %d rows are remote, and %d are", p, k, b.Remote, remote)
				}
				held := 0
				for _, row := range rows(want) {
					if p.Holder(row) == rank {
						held++
					}
				}
				moved += remote
				surplus += max(0, held-b.Rows) // no other rows have to move
				union = append(union, mine...)
			}
			if moved != surplus {
				t.Fatalf("%+v: of batch %d %d rows move, where %d have to", p, k, moved, surplus)
			}
			all := rows(want)
			slices.Sort(all)
			slices.Sort(union)
			if !slices.Equal(union, all) {
				t.Fatalf("%+v batch %d:\nunion %v\nalone %v", p, k, union, all)
			}
		}
	}
}

// Under random reshuffling the rows of a batch that a rank holds are binomial, with the mean b/k; sqrt((k-1)/(2 pi
// b)) of the rows are expected beyond equal shares. Of two ranks, the mean over 500 batches has a standard error of
// 4.8 %; of more, less. The tolerance is three of these.
func TestFewRowsMoveBetweenRanks(t *testing.T) {
	const batch, batches = 1000, 250
	for _, world := range []int{2, 4} {
		p := Plan{Rows: batch * batches * 2, ChunkRows: 1, BatchRows: batch, Order: Shuffled, Seed: 9, World: world,
			Holder: stripes(world)}
		moved := 0
		for p.Rank = range world {
			for b := range p.Epoch(0) {
				if b.Index == batches {
					break
				}
				moved += b.Remote
			}
		}
		got, want := float64(moved)/(batch*batches), math.Sqrt(float64(world-1)/(2*math.Pi*batch))
		if math.Abs(got/want-1) > 0.14 {
			t.Errorf("%d ranks: %.4f of the rows move, want %.4f", world, got, want)
		}
	}
	// In row order, as for evaluation, none does.
	p := Plan{Rows: 1000, BatchRows: 100, World: 4, Rank: 1, Holder: stripes(4)}
	for b := range p.Epoch(0) {
		if b.Remote != 0 || b.Rows != 25 {
			t.Errorf("batch %d: %d of %d rows move", b.Index, b.Remote, b.Rows)
		}
	}
}

func TestRanksWithRowsOfTheirOwnShareBatchesEqually(t *testing.T) {
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	r := rand.New(rand.NewPCG(seed, 0))
	for range 200 {
		p, epoch := randomPlan(r), r.IntN(5)
		p.World = 1 + r.IntN(9)
		own, total := p, int64(0)
		own.OwnRows = true
		for rank := range p.World {
			p.Rank, own.Rank = rank, rank
			total += own.RankRows()
			seen := make([]bool, own.RankRows())
			var want []Batch
			for b := range p.Epoch(epoch) {
				want = append(want, b)
			}
			count := 0
			for b := range own.EpochFrom(epoch, 0) {
				w := want[b.Index]
				if b.Rows != w.Rows || b.GlobalRows != w.GlobalRows || b.Remote != 0 {
					t.Fatalf("%+v: batch %d has %d rows of %d, want %d of %d", own, b.Index, b.Rows, b.GlobalRows, w.Rows,
						w.GlobalRows)
				}
				count++
				numbers := make([]uint32, b.Rows)
				b.RowNumbers(numbers)
				for i, row := range rows(b) {
					if seen[row] || uint32(row) != numbers[i] {
						t.Fatalf("%+v: row %d is twice in epoch %d, or is %d by RowNumbers", own, row, epoch, numbers[i])
					}
					seen[row] = true
				}
			}
			if count != len(want) || !own.DropLast && slices.Contains(seen, false) {
				t.Fatalf("%+v: %d batches, want %d with all rows", own, count, len(want))
			}
		}
		if total != p.Rows {
			t.Fatalf("%+v: ranks have %d rows of their own", own, total)
		}
	}
}
