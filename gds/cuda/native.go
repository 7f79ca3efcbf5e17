//go:build cuda && cgo && linux

package cuda

/*
#include "native.h"
*/
import "C"

import (
	"fmt"
	"unsafe"
)

// failure is an error that the driver gives.
type failure C.CUresult

func (f failure) Error() string {
	return fmt.Sprintf("%s (%s)", C.GoString(C.hopfeed_error_name(C.CUresult(f))),
		C.GoString(C.hopfeed_error_text(C.CUresult(f))))
}

const (
	notReady    failure = C.CUDA_ERROR_NOT_READY
	outOfMemory failure = C.CUDA_ERROR_OUT_OF_MEMORY
)

// check is the error of a function of native.c, or nil.
func check(r C.CUresult) error {
	if r == C.CUDA_SUCCESS {
		return nil
	}
	return failure(r)
}

// handle is the driver's handle in a type of gorgonia.org/cu: a structure of one pointer, not exported.
func handle[T any](of T) C.uintptr_t {
	var _ [1]struct{} = [unsafe.Sizeof(uintptr(0)) / 8]struct{}{}
	return *(*C.uintptr_t)(unsafe.Pointer(&of))
}
