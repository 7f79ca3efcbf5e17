//go:build cuda && cgo && linux

package cuda

// Forget makes the process connect to devices, and load kernels, again.
func Forget() {
	primaries.mu.Lock()
	defer primaries.mu.Unlock()
	clear(primaries.of)
}
