//go:build !cuda

package devices_test

import (
	"fmt"
	"log"

	"github.com/hopfeed/hopfeed/gds/devices"
	"github.com/hopfeed/hopfeed/gds/host"
)

// The devices that there are, without opening one, and then two of the best kind.
func Example() {
	var cards host.Emulation
	if err := cards.Set("gpu=2,mem=4GiB"); err != nil {
		log.Fatal(err)
	}
	options := devices.Options{Emulate: cards, HostBytes: 16 << 30}
	for _, kind := range devices.List(options) {
		if kind.Count == 0 {
			fmt.Printf("no %s: %s\n", kind.Name, kind.WhyNone)
			continue
		}
		fmt.Printf("%d %s, memory of its own: %t, %d MiB free\n", kind.Count, kind.Name, !kind.Info.Unified,
			kind.FreeBytes>>20)
	}
	opened, err := devices.Default(options).Open(2)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(opened[1].Info().Name)
	if err := devices.Close(opened); err != nil {
		log.Fatal(err)
	}

	// Output:
	// 2 emulated, memory of its own: true, 4096 MiB free
	// no cuda: this program was built without CUDA (see docs/operations.md)
	// 1 host, memory of its own: false, 16384 MiB free
	// emulated gpu 1
}
