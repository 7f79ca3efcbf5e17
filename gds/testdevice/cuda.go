//go:build cuda && cgo && linux

package testdevice

import (
	"testing"

	"github.com/hopfeed/hopfeed/gds"
	"github.com/hopfeed/hopfeed/gds/cuda"
)

// GPU tells whether Open opens a GPU.
const GPU = true

func openGPU() (gds.Device, error) { return cuda.Open(0, cuda.Options{}) }

// Bubble runs a test without a bubble: the driver of a GPU wakes goroutines from outside of any.
func Bubble(t *testing.T, test func(*testing.T)) {
	t.Helper()
	test(t)
}
