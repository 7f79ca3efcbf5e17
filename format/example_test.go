package format_test

import (
	"context"
	"encoding/binary"
	"fmt"
	"log"
	"math"

	"github.com/hopfeed/hopfeed/format"
)

// Opens a store, reads the labels of its training rows, and the first chunk of each matrix, which
// is compared with its checksum.
func Example() {
	store, err := format.Open("testdata/v2/store")
	if err != nil {
		log.Fatal(err)
	}
	defer store.Close()
	train, _ := store.Region(format.RegionTrain)
	labels := make([]int32, train.Rows)
	if err := store.ReadLabels(context.Background(), train, labels); err != nil {
		log.Fatal(err)
	}
	fmt.Printf("%d training rows, labels %v\n", train.Rows, labels)

	for _, id := range store.Matrices() {
		matrix, err := store.Matrix(id)
		if err != nil {
			log.Fatal(err)
		}
		chunk := make([]byte, matrix.Extent(train.FirstChunk).Length)
		if err := matrix.ReadChunk(train.FirstChunk, chunk); err != nil {
			log.Fatal(err)
		}
		fmt.Printf("%s in %s:", id, matrix.Layout.DType)
		for ; len(chunk) > 0; chunk = chunk[2:] { // the upper half of a float32 each
			fmt.Printf(" %g", math.Float32frombits(uint32(binary.LittleEndian.Uint16(chunk))<<16))
		}
		fmt.Println()
		if err := matrix.Close(); err != nil {
			log.Fatal(err)
		}
	}
	// Output:
	// 2 training rows, labels [0 1]
	// x/hop-0 in bfloat16: 0.0078125 2 -32
	// sym/hop-1 in bfloat16: 2 -32 0.0078125
}
