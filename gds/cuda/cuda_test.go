//go:build cuda && cgo && linux

package cuda_test

import (
	"testing"

	"github.com/hopfeed/hopfeed/gds/cuda"
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
