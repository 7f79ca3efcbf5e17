package gdstest_test

import (
	"fmt"
	"log"

	"github.com/hopfeed/hopfeed/gds/gdstest"
	"github.com/hopfeed/hopfeed/gds/host"
)

// What uses a device is tried with one that fails at its first call, its second, and so on, until
// it succeeds.
func ExampleFailingDevice() {
	for n := 1; ; n++ {
		device, err := host.New(host.Options{})
		if err != nil {
			log.Fatal(err)
		}
		failing := &gdstest.FailingDevice{Device: device}
		failing.FailAt(n)
		err = func() error { // what is tried
			b, err := failing.AllocPinned(1 << 20)
			if err != nil {
				return err
			}
			defer b.Free()
			s, err := failing.NewStream()
			if err != nil {
				return err
			}
			return s.Close()
		}()
		fmt.Println(n, failing.Failed(), err)
		if err := device.Close(); err != nil {
			log.Fatal(err)
		}
		if !failing.Failed() {
			break
		}
	}

	// Output:
	// 1 true injected failure of the device
	// 2 true injected failure of the device
	// 3 false <nil>
}
