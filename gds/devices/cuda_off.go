//go:build !(cuda && cgo && linux)

package devices

// BuiltWithCUDA tells whether the program could use a GPU.
const BuiltWithCUDA = false

// nvidia says that this program cannot reach GPUs.
func nvidia(Options) Kind {
	return Kind{Name: "cuda", WhyNone: "this program was built without CUDA (see docs/operations.md)"}
}
