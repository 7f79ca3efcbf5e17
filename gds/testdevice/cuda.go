//go:build cuda && cgo && linux

package testdevice

import (
	"sync/atomic"
	"testing"

	"github.com/hopfeed/hopfeed/gds"
	"github.com/hopfeed/hopfeed/gds/cuda"
)

// GPU tells whether Open opens a GPU.
const GPU = true

var opened atomic.Int64

// openGPU opens one GPU after another, so that what takes several runs on as many as there are.
func openGPU() (gds.Device, error) {
	n, err := cuda.Count()
	if err != nil {
		return nil, err
	}
	return cuda.Open(int(opened.Add(1)-1)%n, cuda.Options{})
}

// Bubble runs a test without a bubble: the driver of a GPU wakes goroutines from outside of any.
func Bubble(t *testing.T, test func(*testing.T)) {
	t.Helper()
	test(t)
}
