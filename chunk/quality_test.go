package chunk

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"
	"time"
)

// sorted are the labels of n rows in runs of equal ones: the worst order.
func sorted(n, labels int) []int32 {
	out := make([]int32, n)
	for i := range out {
		out[i] = int32(i * labels / n)
	}
	return out
}

// mixed are the same labels in random order.
func mixed(n, labels int) []int32 {
	out := sorted(n, labels)
	r := rand.New(rand.NewPCG(3, 0))
	r.Shuffle(n, func(i, k int) { out[i], out[k] = out[k], out[i] })
	return out
}

// The variance of labels in batches has an expectation that can be worked out. With batches of b out of n rows it is
// that of drawing rows; where chunks of c rows all have one label it is that of drawing b/c out of n/c chunks that
// count c times each: c (n-1)/(n-c) as much. A statistic has 9 degrees of freedom, so the mean over 20 epochs of
// 40 batches has a standard error of sqrt(2/9/800), 1.7 %: the tolerance is four of these.
func TestLabelVarianceIsWhatSamplingTheoryExpects(t *testing.T) {
	const n, batch, labels, epochs = 40000, 1000, 10, 20
	for _, c := range []struct {
		name      string
		chunkRows int
		labels    []int32
		want      float64
	}{
		{"rows, of sorted labels", 1, sorted(n, labels), 1},
		{"rows, of mixed labels", 1, mixed(n, labels), 1},
		{"chunks, of mixed labels", 100, mixed(n, labels), 1},
		{"chunks of one label each", 100, sorted(n, labels), 100. * (n - 1) / (n - 100)},
		{"chunks of one label each, shorter", 10, sorted(n, labels), 10. * (n - 1) / (n - 10)},
	} {
		t.Run(c.name, func(t *testing.T) {
			p := Plan{Rows: n, ChunkRows: c.chunkRows, BatchRows: batch, Order: Shuffled, Seed: 5}
			mean := 0.0
			for epoch := range epochs {
				mean += p.Quality(epoch, n, c.labels).LabelVariance / epochs
			}
			if math.Abs(mean/c.want-1) > 0.07 {
				t.Errorf("%.2f times that of random reshuffling, want %.2f", mean, c.want)
			}
		})
	}
}

func TestUnshuffledBatchesOfSortedLabelsAreAsBadAsCanBe(t *testing.T) {
	const n, batch = 8000, 1000
	p := Plan{Rows: n, ChunkRows: 1, BatchRows: batch}
	// Each batch holds one of 8 labels, b of it instead of b/8: a statistic of 7b, where 7 (n-b)/(n-1) is expected.
	got, want := p.Quality(0, n, sorted(n, 8)).LabelVariance, float64(batch)*(n-1)/(n-batch)
	if math.Abs(got/want-1) > 1e-9 {
		t.Errorf("%v times that of random reshuffling, want %v", got, want)
	}
}

// Neighbours, counted row by row.
func TestNeighboursAreRowsWhoseNextIsInTheirBatch(t *testing.T) {
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	r := rand.New(rand.NewPCG(seed, 0))
	for range 300 {
		p := randomPlan(r)
		if p.Rows < 2 || p.Batches() == 0 {
			continue
		}
		p.DropLast = false
		batchOf := make([]int, p.Rows)
		for b := range p.Epoch(1) {
			for _, row := range rows(b) {
				batchOf[row] = b.Index
			}
		}
		same, pairs := 0, 0
		for i, b := range batchOf[1:] {
			if batchOf[i] == b {
				same++
			}
		}
		for _, b := range batchOf {
			for _, c := range batchOf {
				if b == c {
					pairs++
				}
			}
		}
		got := p.Quality(1, p.Rows, nil)
		want := float64(same) / float64(p.Rows-1)
		// Any two rows are as likely next to each other as any others.
		rr := float64(pairs-int(p.Rows)) / float64(p.Rows*(p.Rows-1))
		if math.Abs(got.Neighbours-want) > 1e-9 || math.Abs(got.RRNeighbours-rr) > 1e-9 ||
			!math.IsNaN(got.LabelVariance) {
			t.Fatalf("%+v: %+v, want %v and %v", p, got, want, rr)
		}
	}
}

func TestChunksKeepNeighboursAsRowsDoNot(t *testing.T) {
	const n = 100000
	for _, c := range []struct {
		chunkRows int
		want      float64 // but for chance
	}{{1, 0}, {10, 0.9}, {1000, 0.999}} {
		p := Plan{Rows: n, ChunkRows: c.chunkRows, BatchRows: 1000, Order: Shuffled, Seed: 2}
		// A look at half of the epoch must not change the meaning.
		for _, looked := range []int64{n, n / 2} {
			q := p.Quality(0, looked, nil)
			if want := c.want + (1-c.want)*q.RRNeighbours; math.Abs(q.Neighbours-want) > 0.002 ||
				math.Abs(q.RRNeighbours-0.01) > 1e-4 {
				t.Errorf("chunks of %d, %d rows looked at: %+v, want %v", c.chunkRows, looked, q, want)
			}
		}
	}
}

func TestQualityOfWhatCannotBeShuffledIsDefined(t *testing.T) {
	for _, c := range []struct {
		name   string
		plan   Plan
		labels []int32
	}{
		{"no rows", Plan{BatchRows: 5}, nil},
		{"one row", Plan{Rows: 1, BatchRows: 5}, []int32{0}},
		{"one batch", Plan{Rows: 5, BatchRows: 5}, []int32{0, 1, 0, 1, -1}},
		{"one label", Plan{Rows: 50, BatchRows: 5}, slices.Repeat([]int32{7}, 50)},
	} {
		q := c.plan.Quality(0, 100, c.labels)
		if !math.IsNaN(q.LabelVariance) || math.IsNaN(q.Neighbours) || math.IsNaN(q.RRNeighbours) {
			t.Errorf("%s: %+v", c.name, q)
		}
	}
}

// An epoch that is left in the middle goes on with as many ranks as there are then: no row is lost, none comes twice.
func TestAnEpochGoesOnInAnotherWorld(t *testing.T) {
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	r := rand.New(rand.NewPCG(seed, 0))
	for range 300 {
		p, epoch := randomPlan(r), r.IntN(5)
		var want []int64
		for b := range p.Epoch(epoch) {
			want = append(want, rows(b)...)
		}
		var got []int64
		for next := 0; next < p.Batches(); {
			stop := next + 1 + r.IntN(p.Batches()-next)
			p.World = 1 + r.IntN(8)
			shares := make([][]int64, stop) // by batch, ranks in turn
			for p.Rank = range p.World {
				for b := range p.EpochFrom(epoch, next) {
					if b.Index == stop {
						break
					}
					shares[b.Index] = append(shares[b.Index], rows(b)...)
				}
			}
			got = append(got, slices.Concat(shares...)...)
			next = stop
		}
		if !slices.Equal(got, want) {
			t.Fatalf("%+v epoch %d:\n got %v\nwant %v", p, epoch, got, want)
		}
	}
}
