//go:build !(cuda && cgo && linux)

package testdevice

import (
	"errors"
	"testing"
	"testing/synctest"

	"github.com/hopfeed/hopfeed/gds"
)

// GPU tells whether Open opens a GPU.
const GPU = false

func openGPU() (gds.Device, error) {
	return nil, errors.New("the tests are built without GPUs: build them with the tag cuda")
}

// Bubble runs a test whose goroutines must end and must not wait for one another for ever, in a synctest bubble. The
// driver of a GPU wakes goroutines from outside of any bubble: with one, the test runs without.
func Bubble(t *testing.T, test func(*testing.T)) {
	t.Helper()
	synctest.Test(t, test)
}
