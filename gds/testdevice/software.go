//go:build cuda && cgo && linux

package testdevice

import (
	"syscall"
	"testing"

	"github.com/ebitengine/purego"
)

// Result is the result of a call of the software driver.
type Result int32

// Results of calls that fail. After Lost the devices are lost, as after a kernel that crashed.
const (
	OutOfMemory Result = 2
	Lost        Result = 719
	Unknown     Result = 999
)

// SoftwareDriver is the software driver of gds/cuda/softcuda, if this process has loaded that. Tests set what it does.
type SoftwareDriver struct {
	Fail       func(function string, n int32, with Result) // the n-th call of a function of the driver from now on
	Memory     func(bytes uint64)                          // sets the memory of each device
	Lose       func(yes bool)                              // makes all calls fail, until the devices are found again
	Capability func(major int32)                           // of compute, of each device
	Map        func(yes bool)                              // whether devices read host memory by themselves
	Allocated  func() uint64                               // bytes of device memory and of pinned memory
	Objects    func() uint64                               // streams and events
	Graphs     func() uint64                               // that have been made
	Interpret  func(yes bool)                              // kernels that are loaded from now on run from their PTX
	Interprets func() bool
	Fault      func() string // what the last kernel that had a fault did, since the last call
	Changes    func() uint64 // of a graph to the next
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
		"fail": &s.Fail, "memory": &s.Memory, "lose": &s.Lose, "map": &s.Map, "capability": &s.Capability,
		"interpret": &s.Interpret, "interprets": &s.Interprets, "fault": &s.Fault,
		"allocated": &s.Allocated, "objects": &s.Objects, "graphs": &s.Graphs, "graph_updates": &s.Changes,
	} {
		purego.RegisterLibFunc(function, handle, "softcuda_"+name)
	}
	interprets := s.Interprets()
	t.Cleanup(func() {
		s.Interpret(interprets)
		s.Fail("", 0, Unknown)
		s.Memory(1 << 30)
		s.Lose(false)
		s.Map(true)
		s.Capability(8)
	})
	return s
}

// libraryPath is where this process has its driver from.
func libraryPath() string {
	path, _ := syscall.Getenv("HOPFEED_LIBCUDA")
	return path
}
