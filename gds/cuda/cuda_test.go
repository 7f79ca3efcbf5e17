//go:build cuda && cgo && linux

package cuda_test

import (
	"testing"

	"github.com/hopfeed/hopfeed/gds"
	"github.com/hopfeed/hopfeed/gds/cuda"
	"github.com/hopfeed/hopfeed/gds/gdstest"
)

// open opens device i. Without a driver there is nothing to test: .ci/cuda builds one in software.
func open(t testing.TB, i int) *cuda.Device {
	t.Helper()
	d, err := cuda.Open(i, cuda.Options{})
	if err != nil {
		t.Fatal(err)
	}
	return d
}

func TestSuite(t *testing.T) {
	devices, err := cuda.Count()
	if err != nil {
		t.Fatal(err)
	}
	next := 0 // so that peers are on another device where there is one
	gdstest.Run(t, func(t *testing.T) gds.Device {
		next++
		return open(t, next%devices)
	})
}
