package trainer

import (
	"context"
	"errors"
	"fmt"

	"github.com/hopfeed/hopfeed/gds"
	"github.com/hopfeed/hopfeed/internal/dtype"
	"github.com/hopfeed/hopfeed/internal/parallel"
)

// exchange adds up vectors of all ranks. They meet in pinned memory, and the processor adds them, in
// the order of ranks: so all ranks get the same sum, bit for bit, in every run.
type exchange struct {
	mem     memory
	partial []gds.Buffer // of each rank
	total   gds.Buffer
	from    [][]float32
	copied  []gds.Event
}

// newExchange allocates memory for vectors of up to count elements.
func newExchange(devices []gds.Device, count int) (*exchange, error) {
	x := &exchange{from: make([][]float32, len(devices)), copied: make([]gds.Event, len(devices))}
	bytes := gds.Bytes(1, count, gds.Float32)
	for _, device := range append(devices[:1:1], devices...) {
		x.mem.dev = device
		x.partial = append(x.partial, x.mem.pinned("sums over devices", bytes))
	}
	x.total, x.partial = x.partial[0], x.partial[1:]
	if err := x.mem.err; err != nil {
		return nil, errors.Join(err, x.mem.free())
	}
	return x, nil
}

// sumGrain is how many numbers one thread adds at a time.
const sumGrain = 1 << 14

// sum makes the vector [1,n] of every rank the sum of all. It waits for the devices whatever happens
// to the training: a batch that has begun is finished.
func (x *exchange) sum(g *group, vectors []gds.Tensor) error {
	ctx, count := context.Background(), vectors[0].Cols
	if most := int(x.total.Len()) / gds.Float32.Size(); count > most {
		return fmt.Errorf("a sum of %d numbers over devices, but memory for %d, the number of parameters", count, most)
	}
	for rank, n := range g.ranks {
		n.stream.Copy(gds.NewTensor(x.partial[rank], 1, count, gds.Float32), vectors[rank])
		x.copied[rank] = n.stream.Record()
		x.from[rank] = dtype.Float32s(x.partial[rank].Bytes())[:count]
	}
	// When these events have happened, so has every copy of the total before, which came
	// earlier in the same streams.
	for rank, event := range x.copied {
		if err := event.Wait(ctx); err != nil {
			return g.rankError(rank, err)
		}
	}
	total := dtype.Float32s(x.total.Bytes())[:count]
	err := addUp(ctx, total, x.from)
	if err != nil {
		return err
	}
	for rank, n := range g.ranks {
		n.stream.Copy(vectors[rank], gds.NewTensor(x.total, 1, count, gds.Float32))
	}
	return nil
}

// addUp sets total to the sum of vectors, added in their order.
func addUp(ctx context.Context, total []float32, from [][]float32) error {
	return parallel.For(ctx, 0, int64(len(total)), sumGrain, func(lo, hi int64) error {
		to := total[lo:hi]
		copy(to, from[0][lo:hi])
		for _, v := range from[1:] {
			for i, value := range v[lo:hi] {
				to[i] += value
			}
		}
		return nil
	})
}
