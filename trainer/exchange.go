package trainer

import (
	"context"
	"fmt"

	"github.com/hopfeed/hopfeed/gds"
	"github.com/hopfeed/hopfeed/internal/dtype"
	"github.com/hopfeed/hopfeed/internal/parallel"
)

// exchange adds up vectors of all ranks, of up to count elements. They meet in pinned memory, and the processor adds
// them, in the order of ranks: so all ranks get the same sum, bit for bit, in every run.
type exchange struct {
	mem     gds.Memory
	count   int
	places  int          // vectors in each buffer
	partial []gds.Buffer // of each rank
	total   gds.Buffer
	order   []int // all ranks
	from    [][]float32
	copied  []gds.Event
}

// allocate gets memory for vectors as long as the parameters.
func (x *exchange) allocate(ranks []*network, places int) error {
	x.count, x.places = ranks[0].params.count, places
	x.from, x.copied = make([][]float32, len(ranks)), make([]gds.Event, len(ranks))
	bytes := gds.Bytes(places, x.count, gds.Float32)
	for rank, n := range ranks {
		x.order, x.mem.Device = append(x.order, rank), n.mem.Device
		x.partial = append(x.partial, x.mem.Pin("vectors that are added up", bytes))
		if x.total == nil {
			x.total = x.mem.Pin("sums over devices", bytes)
		}
	}
	return x.mem.Err
}

// vector is the vector at a place of a buffer.
func (x *exchange) vector(b gds.Buffer, place, count int) gds.Tensor {
	return gds.NewTensor(b, x.places, x.count, gds.Float32).Slice(place, place+1).Columns(0, count)
}

// sum makes the vector [1,n] of every rank the sum of all. It waits for the devices whatever happens
// to the training: a batch that has begun is finished.
func (x *exchange) sum(g *group, vectors []gds.Tensor) error {
	ctx, count := context.Background(), vectors[0].Cols
	if count > x.count {
		return fmt.Errorf("a sum of %d numbers over devices, but memory for %d, the number of parameters", count,
			x.count)
	}
	for rank, n := range g.ranks {
		n.stream.Copy(x.vector(x.partial[rank], 0, count), vectors[rank])
		x.copied[rank] = n.stream.Record()
	}
	// When these events have happened, so has every copy of the total before, which came earlier in the same streams.
	for rank, event := range x.copied {
		if err := event.Wait(ctx); err != nil {
			return g.rankError(rank, err)
		}
	}
	if err := x.addUp(ctx, 0, count, x.order); err != nil {
		return err
	}
	for rank, n := range g.ranks {
		n.stream.Copy(vectors[rank], x.vector(x.total, 0, count))
	}
	return nil
}

// sumGrain is how many numbers one thread adds at a time.
const sumGrain = 1 << 14

// addUp sets the total at a place to the sum of the vectors of the ranks, which it adds in this order.
func (x *exchange) addUp(ctx context.Context, place, count int, order []int) error {
	at := func(b gds.Buffer) []float32 { return dtype.Float32s(b.Bytes())[place*x.count:][:count] }
	for i, rank := range order {
		x.from[i] = at(x.partial[rank])
	}
	total := at(x.total)
	return parallel.For(ctx, 0, int64(count), sumGrain, func(lo, hi int64) error {
		to := total[lo:hi]
		copy(to, x.from[0][lo:hi])
		for _, v := range x.from[1:] {
			for i, value := range v[lo:hi] {
				to[i] += value
			}
		}
		return nil
	})
}
