package gds_test

import (
	"fmt"
	"log"

	"github.com/hopfeed/hopfeed/gds"
	"github.com/hopfeed/hopfeed/gds/host"
)

// A layer y = max(x w, 0) for the rows of a feature matrix that an index chooses. Nothing in it
// depends on what kind of device it runs on.
func Example() {
	var device gds.Device = must(host.New(host.Options{}))
	stream := must(device.NewStream())

	// Memory of the device, seen as matrices.
	matrix := func(rows, cols int, t gds.DType) gds.Tensor {
		return gds.NewTensor(must(device.Alloc(gds.Bytes(rows, cols, t))), rows, cols, t)
	}
	features, index, w := matrix(3, 2, gds.Float32), matrix(1, 2, gds.Uint32), matrix(2, 2, gds.Float32)
	x, y := matrix(2, 2, gds.Float32), matrix(2, 2, gds.Float32)
	check(gds.Upload(device, stream, features, []float32{1, 2, 3, 4, 5, 6}))
	check(gds.Upload(device, stream, index, []uint32{2, 0}))
	check(gds.Upload(device, stream, w, []float32{1, -1, 0, 1}))

	// Work is enqueued, and runs in this order.
	stream.Gather(x, features, index)
	stream.Gemm(false, false, 1, x, w, 0, y)
	stream.ReLU(y, y)

	out := make([]float32, 4)
	check(gds.Download(device, stream, out, y)) // waits; an error of the work comes here
	fmt.Println(out)

	check(stream.Close())
	for _, t := range []gds.Tensor{features, index, w, x, y} {
		check(t.Buf.Free())
	}
	check(device.Close()) // an error if something were left

	// Output: [5 1 1 1]
}

func must[T any](value T, err error) T {
	check(err)
	return value
}

func check(err error) {
	if err != nil {
		log.Fatal(err)
	}
}
