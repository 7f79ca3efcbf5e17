//go:build cuda && cgo && linux

package cuda

/*
#include "native.h"
*/
import "C"

import (
	"embed"
	"fmt"

	"gorgonia.org/cu"
)

//go:embed kernels/*.ptx
var ptx embed.FS

// kernel is a kernel of a file of kernels, by its number among all.
type kernel struct {
	file, name string
	number     int
}

var kernels []*kernel

func newKernel(file, name string) *kernel {
	k := &kernel{file, name, len(kernels)}
	kernels = append(kernels, k)
	return k
}

// loadKernels loads all kernels into the current context.
func loadKernels() (modules []cu.Module, functions []C.uintptr_t, err error) {
	byFile := make(map[string]cu.Module)
	for _, k := range kernels {
		m, loaded := byFile[k.file]
		if !loaded {
			image, err := ptx.ReadFile("kernels/" + k.file + ".ptx")
			if err != nil {
				return modules, nil, err
			}
			if m, err = cu.LoadData(string(image)); err != nil {
				return modules, nil, fmt.Errorf("loading kernels/%s.ptx: %w", k.file, err)
			}
			byFile[k.file], modules = m, append(modules, m)
		}
		f, err := m.Function(k.name)
		if err != nil {
			return modules, nil, fmt.Errorf("kernel %s of kernels/%s.ptx: %w", k.name, k.file, err)
		}
		functions = append(functions, handle(f))
	}
	return modules, functions, nil
}
