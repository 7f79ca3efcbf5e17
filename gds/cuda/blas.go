//go:build cuda && cgo && linux

package cuda

/*
#include <stdlib.h>
#include "blas.h"
*/
import "C"

import (
	"errors"
	"fmt"
	"math"
	"runtime"
	"sync"
	"unsafe"
)

// blasVariable is the environment variable that names another cuBLAS than the system's.
const blasVariable = "HOPFEED_LIBCUBLAS"

// loadBLAS loads cuBLAS, the first time, and otherwise returns what that did: its name with its version.
// The error says why there is none; products are then computed by the kernel of kernels/dense.cu.
var loadBLAS = sync.OnceValues(func() (string, error) {
	runtime.LockOSThread() // whose the text of an error is
	defer runtime.UnlockOSThread()
	paths := []*C.char{C.CString("libcublas.so.13"), C.CString("libcublas.so.12")}
	if other, named := environment(blasVariable); named {
		paths = append(paths, C.CString(other))[len(paths):]
	}
	var major, minor C.int
	text := C.hopfeed_load_blas(&paths[0], C.int(len(paths)), &major, &minor)
	for _, p := range paths {
		C.free(unsafe.Pointer(p))
	}
	if text != nil {
		return "", fmt.Errorf("there is no cuBLAS (%s)", C.GoString(text))
	}
	return fmt.Sprintf("cuBLAS %d.%d", major, minor), nil
})

// blasError is an error that cuBLAS gives: a cublasStatus_t.
type blasError C.int

func (e blasError) Error() string { return fmt.Sprintf("cuBLAS gives status %d", int(e)) }

func checkBLAS(status C.int) error {
	if status == 0 {
		return nil
	}
	return blasError(status)
}

// products says what multiplies matrices.
func (o Options) products() string {
	name, err := loadBLAS()
	switch {
	case err != nil:
		return "kernels of this program: " + err.Error()
	case o.TF32:
		return name + ", in TF32"
	}
	return name
}

// blas is cuBLAS for one stream.
type blas struct {
	handle  C.uintptr_t       // 0: not open
	product C.hopfeed_product // of the moment
}

func (h *blas) open(d *Device, stream C.uintptr_t) error {
	tf32 := C.int(0)
	if d.options.TF32 {
		tf32 = 1
	}
	return checkBLAS(C.hopfeed_blas_open(handle(d.context), stream, tf32, &h.handle))
}

func (h *blas) close(d *Device) error {
	if h.handle == 0 {
		return nil
	}
	closing := h.handle
	h.handle = 0
	return checkBLAS(C.hopfeed_blas_close(handle(d.context), closing))
}

// multiplies tells whether cuBLAS computes the product: its sizes are of 32 bits, and above zero.
func (c *call) multiplies(inner int) bool {
	if _, err := loadBLAS(); err != nil || inner == 0 {
		return false
	}
	for _, t := range c.Tensors[:3] {
		if max(t.Rows, t.Stride) > math.MaxInt32 {
			return false
		}
	}
	return true
}

// multiply enqueues c = alpha * op(a) op(b) + beta * c. To cuBLAS, whose matrices are of columns, ours are
// transposed: it computes transposed(c) = op(transposed(b)) op(transposed(a)).
func (c *call) multiply(inner int) error {
	s := c.stream
	if s.blas.handle == 0 {
		if err := s.blas.open(s.device, handle(s.stream)); err != nil {
			return err
		}
	}
	a, b, out, p := c.Tensors[0], c.Tensors[1], c.Tensors[2], &s.blas.product
	*p = C.hopfeed_product{
		m: C.int(out.Cols), n: C.int(out.Rows), k: C.int(inner),
		lda: C.int(b.Stride), ldb: C.int(a.Stride), ldc: C.int(out.Stride),
		alpha: C.float(c.Alpha), beta: C.float(c.Beta),
		a: C.uint64_t(c.at[1]), b: C.uint64_t(c.at[0]), c: C.uint64_t(c.at[2]),
	}
	if c.TransA {
		p.transpose_b = 1
	}
	if c.TransB {
		p.transpose_a = 1
	}
	err := checkBLAS(C.hopfeed_gemm(handle(s.device.context), s.blas.handle, p))
	if err != nil { // cuBLAS does not say whether the device is lost
		err = errors.Join(err, s.device.do(s.stream.Synchronize))
	}
	return err
}
