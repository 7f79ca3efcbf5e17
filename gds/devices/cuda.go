//go:build cuda && cgo && linux

package devices

import (
	"fmt"

	"github.com/hopfeed/hopfeed/gds"
	"github.com/hopfeed/hopfeed/gds/cuda"
)

// BuiltWithCUDA tells whether the program could use a GPU.
const BuiltWithCUDA = true

// nvidia are the GPUs that the NVIDIA driver has. FreeBytes is the least of all.
func nvidia(o Options) Kind {
	options := cuda.Options{TF32: o.TF32}
	k := Kind{Name: "cuda", Device: func(i, _ int) (gds.Device, error) { return cuda.Open(i, options) }}
	n, err := cuda.Count()
	for i := range n {
		info, free, e := cuda.Describe(i, options)
		if e != nil {
			err = e
			break
		}
		if i == 0 {
			k.Info, k.FreeBytes = info, free
		}
		if info != k.Info {
			// Devices that share batches must be alike: the list ends before the first that differs.
			break
		}
		k.FreeBytes = min(k.FreeBytes, free)
		k.Count++
	}
	if k.Count == 0 {
		k.WhyNone = fmt.Sprint(err)
	}
	return k
}
