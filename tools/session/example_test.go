package session_test

import (
	"context"
	"fmt"
	"log"
	"os"

	"github.com/hopfeed/hopfeed/chunk"
	"github.com/hopfeed/hopfeed/format"
	"github.com/hopfeed/hopfeed/loader"
	"github.com/hopfeed/hopfeed/tools/session"
)

// A program that computes on batches by itself, and leaves to the session where they come from. The
// store has two hops of 58 rows to train on.
func Example() {
	ctx := context.Background()
	store, err := format.Open(os.Getenv("STORE"))
	if err != nil {
		log.Fatal(err)
	}
	defer store.Close()

	train := loader.Rows{Region: format.RegionTrain}
	s, err := session.Open(ctx, store, session.Options{
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
