//go:build !(cuda && cgo && linux)

package testdevice

import (
	"testing"
	"testing/synctest"

	"github.com/hopfeed/hopfeed/gds"
)

// GPU tells whether Open opens a GPU.
const GPU = false

func openGPU() (gds.Device, error) { panic("built without GPUs") }

// Bubble runs a test whose goroutines must end and must not wait for one another for ever, in a
// synctest bubble. The driver of a GPU wakes goroutines from outside of any bubble: with one, the
// test runs without.
func Bubble(t *testing.T, test func(*testing.T)) {
	t.Helper()
	synctest.Test(t, test)
}
