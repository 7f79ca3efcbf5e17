//go:build cuda && cgo && linux

package testdevice

import (
	"syscall"
	"testing"

	"github.com/ebitengine/purego"
)

// Result is what a call of the software driver gives.
type Result int32

// Results of calls that fail. After Lost the devices are lost, as after a kernel that crashed.
const (
	OutOfMemory Result = 2
	Lost        Result = 719
	Unknown     Result = 999
)

// SoftwareDriver is the software driver of gds/cuda/softcuda, if this process has loaded that. Tests set what it does.
type SoftwareDriver struct {
	fail      func(function string, n, result int32)
	memory    func(bytes uint64)
	lose      func(yes int32)
	maps      func(yes int32)
	allocated func() uint64
	objects   func() uint64
	graphs    func() uint64
	updates   func() uint64
}

// Software skips a test on another driver, and sets the software driver back after it.
func Software(t testing.TB) *SoftwareDriver {
	t.Helper()
	handle, err := purego.Dlopen(libraryPath(), purego.RTLD_NOW)
	if err == nil {
		_, err = purego.Dlsym(handle, "softcuda_fail")
	}
	if err != nil {
		t.Skip("for the software driver alone")
	}
	s := &SoftwareDriver{}
	for name, function := range map[string]any{
		"fail": &s.fail, "memory": &s.memory, "lose": &s.lose, "map": &s.maps, "allocated": &s.allocated,
		"objects": &s.objects, "graphs": &s.graphs, "graph_updates": &s.updates,
	} {
		purego.RegisterLibFunc(function, handle, "softcuda_"+name)
	}
	t.Cleanup(func() {
		s.Fail("", 0, Unknown)
		s.Memory(1 << 30)
		s.Lose(false)
		s.Map(true)
	})
	return s
}

// Fail makes the n-th call of a function of the driver from now on fail.
func (s *SoftwareDriver) Fail(function string, n int, with Result) {
	s.fail(function, int32(n), int32(with))
}

// Memory sets the memory of each device.
func (s *SoftwareDriver) Memory(bytes uint64) { s.memory(bytes) }

// Lose makes all calls fail, until the devices are found again.
func (s *SoftwareDriver) Lose(yes bool) { s.lose(number(yes)) }

// Map sets whether devices read host memory by themselves.
func (s *SoftwareDriver) Map(yes bool) { s.maps(number(yes)) }

// Allocated is the bytes of device memory and of pinned memory that are allocated.
func (s *SoftwareDriver) Allocated() uint64 { return s.allocated() }

// Objects is how many streams and events there are.
func (s *SoftwareDriver) Objects() uint64 { return s.objects() }

// Graphs is how many graphs have been made, and how often one was changed to the next.
func (s *SoftwareDriver) Graphs() (made, changed uint64) { return s.graphs(), s.updates() }

func number(yes bool) int32 {
	if yes {
		return 1
	}
	return 0
}

// libraryPath is where this process has its driver from.
func libraryPath() string {
	path, _ := syscall.Getenv("HOPFEED_LIBCUDA")
	return path
}
