//go:build cuda && cgo && linux

// Package driver loads the CUDA driver when it is asked for, so that one program runs with a driver and without one.
// Whatever calls the driver, by gorgonia.org/cu or by itself, calls Load first.
package driver

/*
#cgo LDFLAGS: -L${SRCDIR}/stub -ldl
#include <cuda.h>
#include <stdlib.h>
const char *hopfeed_load_driver(const char *path, int *result);
*/
import "C"

import (
	"fmt"
	"runtime"
	"sync"
	"unsafe"
)

// Variable is the environment variable that names another driver than the system's.
const Variable = "HOPFEED_LIBCUDA"

// oldest is the first driver that takes the PTX of gds/cuda, as cuDriverGetVersion counts.
const oldest = 12000

// Load loads the driver, the first time, and otherwise returns what that did. The error says why there is none.
var Load = sync.OnceValue(func() error {
	path := "libcuda.so.1"
	name := C.CString(Variable)
	defer C.free(unsafe.Pointer(name))
	if other := C.getenv(name); other != nil && *other != 0 {
		path = C.GoString(other)
	}
	return load(path)
})

func load(path string) error {
	runtime.LockOSThread() // whose the text of an error is
	defer runtime.UnlockOSThread()
	// As many streams run beside one another; by default, 8 do.
	connections, most := C.CString("CUDA_DEVICE_MAX_CONNECTIONS"), C.CString("32")
	defer C.free(unsafe.Pointer(connections))
	defer C.free(unsafe.Pointer(most))
	C.setenv(connections, most, 0)
	name := C.CString(path)
	defer C.free(unsafe.Pointer(name))
	var result C.int
	if text := C.hopfeed_load_driver(name, &result); text != nil {
		return fmt.Errorf("there is no NVIDIA driver (%s)", C.GoString(text))
	}
	if result == C.CUDA_ERROR_NO_DEVICE {
		return fmt.Errorf("the NVIDIA driver %s finds no device", path)
	}
	if result != C.CUDA_SUCCESS {
		return fmt.Errorf("the NVIDIA driver %s does not start (cuInit: CUDA error %d)", path, result)
	}
	var version C.int
	if r := C.cuDriverGetVersion(&version); r != C.CUDA_SUCCESS || version < oldest {
		return fmt.Errorf("the NVIDIA driver %s is for CUDA %d.%d: want %d.%d or later (release 525)",
			path, version/1000, version%1000/10, oldest/1000, oldest%1000/10)
	}
	return nil
}
