package chunk

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/hopfeed/hopfeed/internal/rng"
)

// rows are the row numbers of a batch, one by one.
func rows(b Batch) []int64 {
	var out []int64
	for _, s := range b.Spans() {
		for i := range s.Rows {
			out = append(out, s.First+int64(i))
		}
	}
	return out
}

// naive is the order of an epoch by the definition in the package comment: the whole table of chunks, concatenated.
func naive(p Plan, epoch int) []int64 {
	size := max(int64(p.ChunkRows), 1)
	var chunks [][]int64
	for first := int64(0); first < p.Rows; first += size {
		var c []int64
		for r := first; r < min(p.Rows, first+size); r++ {
			c = append(c, r)
		}
		chunks = append(chunks, c)
	}
	var out []int64
	perm := newPermutation(uint64(len(chunks)), rng.Hash(rng.Derive(p.Seed, "chunk order"), uint64(epoch)))
	for i := range chunks {
		if p.Order == Shuffled {
			i = int(perm.at(uint64(i)))
		}
		out = append(out, chunks[i]...)
	}
	return out
}

func randomPlan(r *rand.Rand) Plan {
	p := Plan{
		Rows:      r.Int64N(300),
		ChunkRows: r.IntN(40),
		BatchRows: 1 + r.IntN(60),
		Order:     Order(r.IntN(2)),
		Seed:      r.Uint64(),
		DropLast:  r.IntN(2) == 0,
	}
	if p.Check() != nil {
		p.DropLast = false
	}
	return p
}

func TestAnEpochIsTheChunksInOrderCutIntoBatches(t *testing.T) {
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	r := rand.New(rand.NewPCG(seed, 0))
	for range 1000 {
		p, epoch := randomPlan(r), r.IntN(5)
		want := naive(p, epoch)
		if p.DropLast {
			want = want[:len(want)/p.BatchRows*p.BatchRows]
		}
		var got []int64
		count := 0
		for b := range p.Epoch(epoch) {
			if b.Index != count || b.GlobalRows != b.Rows || b.Rows != len(rows(b)) {
				t.Fatalf("%+v epoch %d: batch %d is %+v", p, epoch, count, b)
			}
			if last := count == p.Batches()-1; b.Rows != p.BatchRows && (!last || p.DropLast || b.Rows == 0) {
				t.Fatalf("%+v epoch %d: batch %d of %d has %d rows", p, epoch, count, p.Batches(), b.Rows)
			}
			got = append(got, rows(b)...)
			count++
		}
		if count != p.Batches() {
			t.Fatalf("%+v: %d batches, announced %d", p, count, p.Batches())
		}
		if !slices.Equal(got, want) {
			t.Fatalf("%+v epoch %d:\n got %v\nwant %v", p, epoch, got, want)
		}
		slices.Sort(want)
		for i, row := range want {
			if !p.DropLast && row != int64(i) {
				t.Fatalf("%+v epoch %d: not every row once: %v", p, epoch, want)
			}
		}
	}
}

func TestRowNumbersAreTheRowsOfTheSpans(t *testing.T) {
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	r := rand.New(rand.NewPCG(seed, 0))
	check := func(p Plan, epoch, first int) {
		t.Helper()
		for b := range p.EpochFrom(epoch, first) {
			got := make([]uint32, b.Rows+1)
			b.RowNumbers(got)
			for i, want := range append(rows(b), 0) {
				if int64(got[i]) != want {
					t.Fatalf("%+v epoch %d: row %d of batch %d is %d, want %d", p, epoch, i, b.Index, got[i], want)
				}
			}
		}
	}
	for range 500 {
		p := randomPlan(r)
		p.World = 1 + r.IntN(4)
		p.Rank = r.IntN(p.World)
		if r.IntN(3) == 0 {
			p.Holder = stripes(p.World)
		}
		check(p, r.IntN(5), r.IntN(p.Batches()+1))
	}
	for range 20 {
		p := Plan{Rows: 1 + r.Int64N(20000), ChunkRows: r.IntN(3), BatchRows: 1 + r.IntN(5000), Order: Shuffled,
			Seed: r.Uint64()}
		check(p, 0, 0)
	}
}

func TestRanksShareTheBatchesOfOneRank(t *testing.T) {
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	r := rand.New(rand.NewPCG(seed, 0))
	for range 300 {
		p, epoch := randomPlan(r), r.IntN(5)
		alone := slices.Collect(p.Epoch(epoch))
		p.World = 1 + r.IntN(9)
		shares := make([][]Batch, p.World)
		for p.Rank = range p.World {
			shares[p.Rank] = slices.Collect(p.Epoch(epoch))
		}
		for k, want := range alone {
			var union []int64
			for rank := range shares {
				b := shares[rank][k]
				if b.Index != k || b.GlobalRows != want.Rows {
					t.Fatalf("%+v: batch %d of rank %d is %+v", p, k, rank, b)
				}
				if b.Rows > p.MaxBatchRows() || b.Rows < want.Rows/p.World || b.Rows > want.Rows/p.World+1 {
					t.Fatalf("%+v: rank %d has %d of %d rows", p, rank, b.Rows, want.Rows)
				}
				union = append(union, rows(b)...)
			}
			if !slices.Equal(union, rows(want)) {
				t.Fatalf("%+v batch %d:\nunion %v\nalone %v", p, k, union, rows(want))
			}
		}
	}
}

func TestAnEpochCanBeginAtAnyBatch(t *testing.T) {
	p := Plan{Rows: 1003, ChunkRows: 10, BatchRows: 37, Order: Shuffled, Seed: 3}
	whole := slices.Collect(p.Epoch(2))
	for first := range p.Batches() + 2 {
		var want []Batch
		if first < len(whole) {
			want = whole[first:]
		}
		got := slices.Collect(p.EpochFrom(2, first))
		if !slices.EqualFunc(got, want, func(a, b Batch) bool {
			return a.Index == b.Index && slices.Equal(a.Spans(), b.Spans())
		}) {
			t.Fatalf("from batch %d the epoch differs", first)
		}
	}
}

// A plan of 2^48 rows in 2^48 chunks is as quick to enter in its middle as any: nothing is walked or tabulated.
func TestTheLastBatchOfAHugePlanIsFoundAtOnce(t *testing.T) {
	p := Plan{Rows: MaxRows, ChunkRows: 1, BatchRows: 1000, Order: Shuffled, Seed: 1}
	count := 0
	for b := range p.EpochFrom(0, p.Batches()-2) {
		count++
		for _, row := range rows(b) {
			if row < 0 || row >= MaxRows {
				t.Fatalf("row %d", row)
			}
		}
	}
	if count != 2 {
		t.Fatalf("%d batches, want 2", count)
	}
	p = Plan{Rows: MaxRows, ChunkRows: math.MaxInt, BatchRows: math.MaxInt}
	got := slices.Collect(p.Epoch(0))
	if len(got) != 1 || len(got[0].Spans()) != 1 || got[0].Rows != MaxRows {
		t.Fatalf("one batch of everything is %+v", got)
	}
}

// Random reshuffling, written down for itself: position i of an epoch is the row that the permutation of all rows has
// there.
func TestChunksOfOneRowAreRandomReshuffling(t *testing.T) {
	for _, n := range []int64{1, 7, 100, 5000} {
		p := Plan{Rows: n, ChunkRows: 1, BatchRows: 64, Order: Shuffled, Seed: 11}
		perm := newPermutation(uint64(n), rng.Hash(rng.Derive(p.Seed, "chunk order"), 4))
		i := uint64(0)
		for b := range p.Epoch(4) {
			for _, row := range rows(b) {
				if want := int64(perm.at(i)); row != want {
					t.Fatalf("n=%d: position %d has row %d, want %d", n, i, row, want)
				}
				i++
			}
		}
		unset := p
		unset.ChunkRows = 0
		if !slices.EqualFunc(slices.Collect(p.Epoch(4)), slices.Collect(unset.Epoch(4)), func(a, b Batch) bool {
			return slices.Equal(a.Spans(), b.Spans())
		}) {
			t.Errorf("n=%d: chunks of 0 rows differ from chunks of one", n)
		}
	}
}

// The order of chunks depends on their number alone, so that reshuffling chunks is reshuffling rows that are c times
// as large.
func TestChunksAreShuffledAsRowsAre(t *testing.T) {
	const n, c = 123, 8
	rr := Plan{Rows: n, ChunkRows: 1, BatchRows: n, Order: Shuffled, Seed: 5}
	cr := Plan{Rows: n * c, ChunkRows: c, BatchRows: n * c, Order: Shuffled, Seed: 5}
	var a, b []int64
	for batch := range rr.Epoch(1) {
		a = rows(batch)
	}
	for batch := range cr.Epoch(1) {
		b = rows(batch)
	}
	for i := range a {
		if b[i*c] != a[i]*c || b[i*c+c-1] != a[i]*c+c-1 {
			t.Fatalf("chunk at place %d begins with row %d, want %d", i, b[i*c], a[i]*c)
		}
	}
}

func TestEpochsAndSeedsDiffer(t *testing.T) {
	p := Plan{Rows: 100, ChunkRows: 1, BatchRows: 100, Order: Shuffled, Seed: 1}
	q := p
	q.Seed = 2
	get := func(p Plan, epoch int) []int64 {
		for b := range p.Epoch(epoch) {
			return rows(b)
		}
		return nil
	}
	if slices.Equal(get(p, 0), get(p, 1)) || slices.Equal(get(p, 0), get(q, 0)) {
		t.Error("the same order twice")
	}
	p.Order = Sequential
	if !slices.Equal(get(p, 0), get(p, 1)) || !slices.IsSorted(get(p, 3)) {
		t.Error("evaluation is not in row order")
	}
}

// The very numbers: a checkpoint resumes in the middle of an epoch by them.
func TestPlansNeverChange(t *testing.T) {
	for _, test := range []struct {
		plan Plan
		want string
	}{
		{Plan{Rows: 10, ChunkRows: 1, BatchRows: 10, Order: Shuffled, Seed: 1}, goldenRows},
		{Plan{Rows: 25, ChunkRows: 4, BatchRows: 10, Order: Shuffled, Seed: 1}, goldenChunks},
		{Plan{Rows: 1 << 40, ChunkRows: 1000, BatchRows: 2500, Order: Shuffled, Seed: 1}, goldenLarge},
	} {
		for b := range test.plan.Epoch(1) {
			if got := fmt.Sprint(b.Spans()); got != test.want {
				t.Errorf("%+v:\n got %s\nwant %s", test.plan, got, test.want)
			}
			break
		}
	}
}

const (
	goldenRows   = "[{1 1} {3 1} {2 1} {6 1} {5 1} {0 1} {8 2} {4 1} {7 1}]"
	goldenChunks = "[{4 4} {12 4} {8 2}]"
	goldenLarge  = "[{473779100000 1000} {317000335000 1000} {351563454000 500}]"
)

func TestPlansThatMakeNoSenseAreRefused(t *testing.T) {
	good := Plan{Rows: 10, ChunkRows: 2, BatchRows: 4}
	for _, test := range []struct {
		name   string
		change func(*Plan)
		want   string // "" for a plan that is fine
	}{
		{"as it is", func(*Plan) {}, ""},
		{"no rows", func(p *Plan) { p.Rows = 0 }, ""},
		{"no rows, dropping the last", func(p *Plan) { p.Rows, p.DropLast = 0, true }, ""},
		{"negative rows", func(p *Plan) { p.Rows = -1 }, "-1 rows"},
		{"too many rows", func(p *Plan) { p.Rows = MaxRows + 1 }, "281474976710657 rows"},
		{"negative chunks", func(p *Plan) { p.ChunkRows = -1 }, "chunks of -1 rows"},
		{"empty batches", func(p *Plan) { p.BatchRows = 0 }, "batches of 0 rows"},
		{"an unknown order", func(p *Plan) { p.Order = 2 }, "unknown order 2"},
		{"a rank beyond the world", func(p *Plan) { p.Rank, p.World = 2, 2 }, "rank 2 of 2"},
		{"a rank without a world", func(p *Plan) { p.Rank = 1 }, "rank 1 of 0"},
		{"a negative world", func(p *Plan) { p.World = -1 }, "rank 0 of -1"},
		{"nothing but a short batch to drop", func(p *Plan) { p.DropLast, p.BatchRows = true, 11 },
			"drops the short batch"},
	} {
		p := good
		test.change(&p)
		err := p.Check()
		if test.want == "" && err != nil || test.want != "" &&
			(err == nil || !strings.Contains(err.Error(), test.want)) {
			t.Errorf("%s: %v, want %q", test.name, err, test.want)
		}
	}
}

func BenchmarkEpoch(b *testing.B) {
	p := Plan{Rows: 900750, ChunkRows: 1, BatchRows: 8000, Order: Shuffled, Seed: 1}
	for _, form := range []struct {
		name string
		take func(Batch)
	}{
		{"spans", func(batch Batch) { batch.Spans() }},
		{"numbers", func(batch Batch) { batch.RowNumbers(make([]uint32, batch.Rows)) }},
	} {
		b.Run("rows="+form.name, func(b *testing.B) {
			epoch := 0
			for b.Loop() {
				for batch := range p.Epoch(epoch) {
					form.take(batch)
				}
				epoch++
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(int64(epoch)*p.Rows), "ns/row")
		})
	}
}
