//go:build cuda && cgo && linux

package cuda

/*
#include "native.h"
*/
import "C"

import (
	"embed"
	"errors"
	"fmt"
	"io/fs"
	"path"
	"regexp"

	"gorgonia.org/cu"
)

//go:embed kernels/*.ptx
var ptx embed.FS

// kernelFiles are what is loaded: tests put others there.
var kernelFiles fs.FS = ptx

// entry is how PTX names a kernel.
var entry = regexp.MustCompile(`\.visible \.entry (\w+)\(`)

// loadKernels loads all kernels into the current context, all or none. kernels/*.cu name them.
func loadKernels() (kernels map[string]C.uintptr_t, err error) {
	files, err := fs.ReadDir(kernelFiles, "kernels")
	if err != nil {
		return nil, err
	}
	var modules []cu.Module
	defer func() {
		if err != nil {
			for _, m := range modules {
				err = errors.Join(err, m.Unload())
			}
		}
	}()
	kernels = make(map[string]C.uintptr_t)
	for _, file := range files {
		name := path.Join("kernels", file.Name())
		image, err := fs.ReadFile(kernelFiles, name)
		if err != nil {
			return nil, err
		}
		m, err := cu.LoadData(string(image))
		if err != nil {
			return nil, fmt.Errorf("loading %s: %w", name, err)
		}
		modules = append(modules, m)
		for _, found := range entry.FindAllSubmatch(image, -1) {
			f, err := m.Function(string(found[1]))
			if err != nil {
				return nil, fmt.Errorf("kernel %s of %s: %w", found[1], name, err)
			}
			kernels[string(found[1])] = handle(f)
		}
	}
	return kernels, nil
}
