package session_test

import (
	"context"
	"fmt"
	"log"

	"github.com/hopfeed/hopfeed/chunk"
	"github.com/hopfeed/hopfeed/format"
	"github.com/hopfeed/hopfeed/gds/host"
	"github.com/hopfeed/hopfeed/internal/machine"
	"github.com/hopfeed/hopfeed/internal/vfs"
	"github.com/hopfeed/hopfeed/loader"
	"github.com/hopfeed/hopfeed/preprop"
	"github.com/hopfeed/hopfeed/tools/ingest"
	"github.com/hopfeed/hopfeed/tools/session"
)

// A program that computes on batches by itself, and leaves to the session where they come from.
func Example() {
	ctx := context.Background()
	store, err := format.OpenStore(makeStore(ctx), "store")
	if err != nil {
		log.Fatal(err)
	}
	defer store.Close()

	train := loader.Rows{Region: format.RegionTrain}
	s, err := session.Open(ctx, store, session.Options{
		Machine:   session.ThisMachine(ctx, machine.Limit{}, 0, host.Emulation{}),
		Matrices:  store.Matrices(),
		Rows:      []loader.Rows{train},
		Train:     true,
		BatchRows: 25,
	})
	if err != nil {
		log.Fatal(err)
	}
	defer s.Close()
	fmt.Printf("input from %s, %s reshuffled\n", s.Plan.Placement, s.Plan.Shuffle)

	sets, err := s.Sets(train, chunk.Shuffled, 1) // one for each device: here, the host
	if err != nil {
		log.Fatal(err)
	}
	stream, err := s.Devices[0].NewStream() // in which the batches are used
	if err != nil {
		log.Fatal(err)
	}
	defer stream.Close()
	for batch, err := range sets[0].Epoch(ctx, stream, 0) {
		if err != nil {
			log.Fatal(err)
		}
		fmt.Printf("batch %d: %d matrices [%d,%d]\n", batch.Index, len(batch.X), batch.Rows, batch.X[0].Cols)
	}
	// Output:
	// input from device, rr reshuffled
	// batch 0: 3 matrices [25,4]
	// batch 1: 3 matrices [25,4]
	// batch 2: 3 matrices [8,4]
}

// makeStore makes a store of two hops of a random graph, in memory.
func makeStore(ctx context.Context) vfs.FS {
	files := vfs.NewMem()
	graph, err := ingest.SBM(ingest.SBMOptions{
		GenerateOptions: ingest.GenerateOptions{Nodes: 100, Edges: 300, Features: 4, Classes: 2, Labeled: 1},
		Homophily:       0.8, Separation: 2,
	})
	if err == nil {
		_, err = ingest.Run(ctx, files, graph, "graph", ingest.Options{})
	}
	if err != nil {
		log.Fatal(err)
	}
	operators, err := preprop.ParseOperators("sym", preprop.DefaultTolerance)
	if err == nil {
		_, err = preprop.Propagate(ctx, files, "graph", "store", preprop.Options{Hops: 2, Operators: operators})
	}
	if err != nil {
		log.Fatal(err)
	}
	return files
}
