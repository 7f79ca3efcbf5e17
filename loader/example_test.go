package loader_test

import (
	"context"
	"fmt"
	"log"

	"github.com/hopfeed/hopfeed/chunk"
	"github.com/hopfeed/hopfeed/format"
	"github.com/hopfeed/hopfeed/gds"
	"github.com/hopfeed/hopfeed/gds/host"
	"github.com/hopfeed/hopfeed/internal/dtype"
	"github.com/hopfeed/hopfeed/loader"
)

// From a store to the batches of an epoch, on the processor.
func Example() {
	ctx := context.Background()
	store, err := format.Open("../format/testdata/v2/store")
	check(err)
	defer store.Close()
	device, err := host.New(host.Options{})
	check(err)
	defer device.Close()
	l, err := loader.Open(ctx, loader.Options{
		Device: device, Store: store, Matrices: store.Matrices(), Placement: loader.Storage, BatchRows: 1,
		NodeIDs: true,
	})
	check(err)
	defer l.Close()
	stream, err := device.NewStream() // in which batches are used
	check(err)
	defer stream.Close()

	set, err := l.Set(loader.Rows{Region: format.RegionTrain}, chunk.Plan{
		BatchRows: 1, Order: chunk.Shuffled, ChunkRows: store.Layout().ChunkRows, Seed: 1,
	})
	check(err)
	for batch, err := range set.Epoch(ctx, stream, 0) {
		check(err)
		fmt.Printf("batch %d: %d matrices [%d,%d], nodes %d\n",
			batch.Index, len(batch.X), batch.Rows, batch.X[0].Cols, numbers(device, stream, batch.NodeIDs))
	}
	// Output:
	// batch 0: 2 matrices [1,3], nodes [0]
	// batch 1: 2 matrices [1,3], nodes [4]
}

func check(err error) {
	if err != nil {
		log.Fatal(err)
	}
}

// numbers waits for a tensor of node ids.
func numbers(d gds.Device, s gds.Stream, ids gds.Tensor) []uint32 {
	out := make([]uint32, ids.Cols)
	check(gds.Download(d, s, dtype.BytesOf(out), ids))
	return out
}
