package placement_test

import (
	"fmt"
	"log"

	"github.com/hopfeed/hopfeed/internal/machine"
	"github.com/hopfeed/hopfeed/internal/need"
	"github.com/hopfeed/hopfeed/placement"
)

// Places an input of 40 GiB on a machine with a card of 16 GiB.
func ExampleChoose() {
	facts, err := placement.FactsOf(machine.Hardware{
		Cores: 16, Memory: 128 << 30, MemoryBandwidth: 40 << 30, GatherBandwidth: 10 << 30,
		Devices: machine.Devices{Count: 1, Memory: 16 << 30, Link: 24 << 30, Bandwidth: 700 << 30},
		Storage: machine.Storage{Count: 1, Read: 3 << 30},
	}, 0, machine.Limit{})
	if err != nil {
		log.Fatal(err)
	}
	const rows, rowBytes = 10 << 20, 4 << 10 // of all matrices
	needs := placement.Needs{
		Input: rows * rowBytes, Work: 1 << 30, Chunks: 256 << 20, Staging: 64 << 20,
		Common:    need.Terms{{Name: "labels", Place: need.Pinned, Bytes: 128 << 20}},
		TrainRows: rows, RowBytes: rowBytes, BatchRows: 8000, ChunkRows: 1000,
	}
	d, err := placement.Choose(facts, needs, placement.Override{Placement: placement.Auto, Shuffle: placement.Auto})
	if err != nil {
		log.Fatal(err)
	}
	fmt.Printf("%s, %s reshuffled: an epoch takes %.1f s\n", d.Placement, d.Shuffle, d.EpochSeconds)
	for _, reason := range d.Reasons {
		fmt.Println("-", reason)
	}
	for _, a := range d.Alternatives {
		if a.Obstacle == "" {
			fmt.Printf("%s, %s: %.1f s\n", a.Placement, a.Shuffle, a.EpochSeconds)
		}
	}
	// Output:
	// host, rr reshuffled: an epoch takes 4.0 s
	// - not device: no room for the input (40 GiB), batches and model (1 GiB) in the 16 GiB that is free on device "device"
	// - host: the input (40 GiB) fits the memory budget of 128 GiB
	// - rows are reshuffled, as memory allows
	// - 2 batch buffers: one is filled while another is computed on
	// host, rr: 4.0 s
	// host, chunk: 1.7 s
	// storage, chunk: 13.3 s
}
