//go:build cuda && cgo && linux

package cuda

import (
	"io/fs"
	"path"
	"sync"
	"testing"
	"testing/fstest"
)

// Forget makes the process connect to devices, and load kernels and cuBLAS, again.
func Forget() {
	primaries.mu.Lock()
	defer primaries.mu.Unlock()
	clear(primaries.of)
	cuBLAS.once, cuBLAS.name, cuBLAS.err = sync.Once{}, "", nil
}

// Do runs f with the context of the device.
func (d *Device) Do(f func() error) error { return d.do(f) }

// ChangePTX changes a file of kernels until the test ends.
func ChangePTX(t *testing.T, file string, change func(text string) string) {
	t.Helper()
	names, err := fs.Glob(ptx, "kernels/*.ptx")
	if err != nil {
		t.Fatal(err)
	}
	files := fstest.MapFS{}
	for _, name := range names {
		text, err := ptx.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		if path.Base(name) == file {
			text = []byte(change(string(text)))
		}
		files[name] = &fstest.MapFile{Data: text}
	}
	kernelFiles = files
	Forget()
	t.Cleanup(func() {
		kernelFiles = ptx
		Forget()
	})
}
