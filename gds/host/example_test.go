package host_test

import (
	"context"
	"errors"
	"fmt"
	"log"

	"github.com/hopfeed/hopfeed/gds"
	"github.com/hopfeed/hopfeed/gds/host"
)

// Two cards that the machine does not have: memory of their own, capped, behind links of a given
// rate. One copies from the other.
func Example() {
	var cards host.Emulation
	if err := cards.Set("gpu=2,mem=1MiB,link=1GiB/s"); err != nil {
		log.Fatal(err)
	}
	var devices [2]*host.Device
	var buffers [2]gds.Buffer
	for i := range devices {
		var err error
		if devices[i], err = host.New(cards.Device(i, 1)); err != nil {
			log.Fatal(err)
		}
		if buffers[i], err = devices[i].Alloc(768 << 10); err != nil {
			log.Fatal(err)
		}
	}
	_, err := devices[0].Alloc(512 << 10)
	fmt.Println(errors.Is(err, gds.ErrOutOfMemory), err)
	fmt.Println("the host sees the memory:", buffers[0].Bytes() != nil)

	stream, err := devices[0].NewStream()
	if err != nil {
		log.Fatal(err)
	}
	before := stream.Record()
	stream.Copy(gds.NewTensor(buffers[0], 768, 256, gds.Float32), gds.NewTensor(buffers[1], 768, 256, gds.Float32))
	after := stream.Record()
	if err := after.Wait(context.Background()); err != nil {
		log.Fatal(err)
	}
	elapsed, err := after.Elapsed(before)
	fmt.Println("the copy took some time:", elapsed > 0, err)

	if err := errors.Join(stream.Close(), buffers[0].Free(), buffers[1].Free(), devices[0].Close(),
		devices[1].Close()); err != nil {
		log.Fatal(err)
	}

	// Output:
	// true host device: out of device memory: asked for 512 KiB (524288 bytes), 256 KiB of 1 MiB left
	// the host sees the memory: false
	// the copy took some time: true <nil>
}
