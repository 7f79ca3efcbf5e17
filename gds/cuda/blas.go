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
	"strings"
	"sync"
	"unsafe"

	"gorgonia.org/cu"
)

// blasVariable is the environment variable that names another cuBLAS than the system's.
const blasVariable = "HOPFEED_LIBCUBLAS"

// cuBLAS is the library, once it has been looked for: its name with its version, or why there is none. Products are
// then computed by the kernel of kernels/dense.cu.
var cuBLAS struct {
	once sync.Once
	name string
	err  error
}

// loadBLAS looks for cuBLAS, the first time: the newest that there is and that works in the device's context.
func (d *Device) loadBLAS() (string, error) {
	cuBLAS.once.Do(func() {
		runtime.LockOSThread() // whose the text of an error is
		defer runtime.UnlockOSThread()
		paths := []string{"libcublas.so.13", "libcublas.so.12"}
		if other, named := environment(blasVariable); named {
			paths = strings.Split(other, ":")
		}
		for _, path := range paths {
			c := C.CString(path)
			defer C.free(unsafe.Pointer(c))
			var major, minor C.int
			text := C.hopfeed_load_blas(c, handle(d.context), &major, &minor)
			if text == nil {
				cuBLAS.name, cuBLAS.err = fmt.Sprintf("cuBLAS %d.%d", major, minor), nil
				return
			}
			cuBLAS.err = fmt.Errorf("there is no cuBLAS (%s)", C.GoString(text))
		}
	})
	return cuBLAS.name, cuBLAS.err
}

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
func (d *Device) products() string {
	name, err := d.loadBLAS()
	switch {
	case err != nil:
		return "kernels of this program: " + err.Error()
	case d.options.TF32:
		return name + ", in TF32"
	}
	return name
}

// blas is cuBLAS for one stream.
type blas struct {
	handle    C.uintptr_t // 0: not open
	workspace cu.DevicePtr
	product   C.hopfeed_product // of the moment
}

// blasWorkspace is the memory that cuBLAS is given for each stream: as much as NVIDIA recommends, for Hopper and later
// and for others. Without it cuBLAS would allocate its own, also within a group.
func (d *Device) blasWorkspace() int64 {
	if d.capability >= 9 {
		return 32 << 20
	}
	return 4 << 20
}

func (h *blas) open(d *Device, stream C.uintptr_t) error {
	if h.handle != 0 {
		return nil
	}
	tf32, bytes := C.int(0), d.blasWorkspace()
	if d.options.TF32 {
		tf32 = 1
	}
	err := d.do(func() (err error) {
		if h.workspace, err = cu.MemAlloc(bytes); errors.Is(err, cu.OutOfMemory) {
			err = errFull(bytes)
		}
		return err
	})
	if err != nil {
		return fmt.Errorf("work space of cuBLAS: %w", err)
	}
	err = checkBLAS(C.hopfeed_blas_open(handle(d.context), stream, tf32, C.uint64_t(h.workspace), C.size_t(bytes),
		&h.handle))
	if err != nil {
		err = errors.Join(err, h.close(d))
	}
	return err
}

func (h *blas) close(d *Device) (err error) {
	if h.handle != 0 {
		err = checkBLAS(C.hopfeed_blas_close(handle(d.context), h.handle))
	}
	if h.workspace != 0 {
		err = errors.Join(err, d.do(func() error { return cu.MemFree(h.workspace) }))
	}
	h.handle, h.workspace = 0, 0
	return err
}

// multiplies tells whether cuBLAS computes the product: its sizes are of 32 bits, and above zero.
func (c *call) multiplies(inner int) bool {
	if _, err := c.stream.device.loadBLAS(); err != nil || inner == 0 {
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
	if err := s.blas.open(s.device, handle(s.stream)); err != nil {
		return err
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
