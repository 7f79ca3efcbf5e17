//go:build openblas

package blas

import (
	"fmt"
	"runtime"
	"sync"
	"unsafe"

	"github.com/ebitengine/purego"
)

// Name says what multiplies matrices.
const Name = "OpenBLAS"

// openblas is where functions of OpenBLAS are, once it is loaded.
var openblas struct {
	sgemm, setThreads uintptr
}

// Load loads OpenBLAS, the first time, and otherwise returns what that did. The error says what to
// install.
var Load = sync.OnceValue(func() error {
	names := []string{"libopenblas.so.0", "libopenblas.so"}
	if runtime.GOOS == "darwin" {
		names = []string{"libopenblas.dylib", "/opt/homebrew/opt/openblas/lib/libopenblas.dylib"}
	}
	return load(names...)
})

// load loads the first library that there is.
func load(names ...string) error {
	var handle uintptr
	var err error
	for _, name := range names {
		if handle, err = purego.Dlopen(name, purego.RTLD_NOW|purego.RTLD_LOCAL); err == nil {
			break
		}
	}
	var sgemm, setThreads uintptr
	if err == nil {
		sgemm, err = purego.Dlsym(handle, "sgemm_")
	}
	if err == nil {
		setThreads, err = purego.Dlsym(handle, "openblas_set_num_threads")
	}
	if err != nil {
		return fmt.Errorf("OpenBLAS, by which this program is built to multiply, cannot be loaded (%w): "+
			"install libopenblas0 (Debian, Ubuntu), openblas-threads (Fedora) or openblas (Homebrew), or build without the tag openblas", err)
	}
	// It runs on the goroutine that calls it: several products at once are ours to share out.
	purego.SyscallN(setThreads, 1)
	openblas.sgemm, openblas.setThreads = sgemm, setThreads
	return nil
}

const (
	// openblasParts is how many parts a product has at most, and openblasWork how many products of numbers
	// a part has at least. Both are the same for any number of threads, so that results are.
	openblasParts = 16
	openblasWork  = 1 << 24
)

// Gemm computes products as kernel.Gemm does, but by OpenBLAS, which packs parts for itself, in memory of
// its own: some 32 MiB for each part that is multiplied at once.
type Gemm struct {
	product       Product
	begun         bool
	rows, columns int // parts that they are divided into
	calls         [openblasParts]call
}

// call is what sgemm is called with, and where that is: it takes addresses.
type call struct {
	addresses              [13]uintptr
	transA, transB         byte
	m, n, k, lda, ldb, ldc int32
	alpha, beta            float32
}

// Begin starts a product. It panics if a matrix is not as large as the product says.
func (g *Gemm) Begin(p Product, _ int) {
	p.Check()
	g.product, g.begun, g.rows, g.columns = p, false, 1, 1
	for 2*g.rows*g.columns <= openblasParts && p.Rows*p.Columns*p.Inner/(2*g.rows*g.columns) >= openblasWork {
		if p.Rows/g.rows >= p.Columns/g.columns {
			g.rows *= 2
		} else {
			g.columns *= 2
		}
	}
}

// Next prepares the only step.
func (g *Gemm) Next() bool {
	if g.begun || g.product.Rows == 0 || g.product.Columns == 0 {
		g.product = Product{}
		return false
	}
	g.begun = true
	return true
}

// Packs is how many parts are to be packed: none.
func (g *Gemm) Packs() int { return 0 }

// Pack is never called.
func (g *Gemm) Pack(int) {}

// Parts is how many parts are to be multiplied.
func (g *Gemm) Parts() int { return g.rows * g.columns }

// Multiply multiplies part i. OpenBLAS takes columns to follow one another, so it is told to compute
// the transposed product of transposed matrices.
func (g *Gemm) Multiply(i int) {
	p, c := &g.product, &g.calls[i]
	row, endRow := i/g.columns*p.Rows/g.rows, (i/g.columns+1)*p.Rows/g.rows
	column, endColumn := i%g.columns*p.Columns/g.columns, (i%g.columns+1)*p.Columns/g.columns
	if row == endRow || column == endColumn {
		return
	}
	*c = call{
		transA: letter(p.TransB), transB: letter(p.TransA),
		m: int32(endColumn - column), n: int32(endRow - row), k: int32(p.Inner),
		lda: int32(p.BStride), ldb: int32(p.AStride), ldc: int32(p.CStride),
		alpha: p.Alpha, beta: p.Beta,
	}
	var a, b []float32
	switch {
	case p.Inner == 0 || p.Alpha == 0: // they may be missing, but not their shapes be wrong
		c.transA, c.transB, c.k, c.lda, c.ldb = 'T', 'N', 0, 1, 1
	case p.TransA && p.TransB:
		a, b = p.A[row:], p.B[column*p.BStride:]
	case p.TransA:
		a, b = p.A[row:], p.B[column:]
	case p.TransB:
		a, b = p.A[row*p.AStride:], p.B[column*p.BStride:]
	default:
		a, b = p.A[row*p.AStride:], p.B[column:]
	}
	c.addresses = [...]uintptr{
		uintptr(unsafe.Pointer(&c.transA)), uintptr(unsafe.Pointer(&c.transB)),
		uintptr(unsafe.Pointer(&c.m)), uintptr(unsafe.Pointer(&c.n)), uintptr(unsafe.Pointer(&c.k)),
		uintptr(unsafe.Pointer(&c.alpha)),
		uintptr(unsafe.Pointer(unsafe.SliceData(b))), uintptr(unsafe.Pointer(&c.lda)),
		uintptr(unsafe.Pointer(unsafe.SliceData(a))), uintptr(unsafe.Pointer(&c.ldb)),
		uintptr(unsafe.Pointer(&c.beta)),
		uintptr(unsafe.Pointer(&p.C[row*p.CStride+column])), uintptr(unsafe.Pointer(&c.ldc)),
	}
	purego.SyscallN(openblas.sgemm, c.addresses[:]...)
	runtime.KeepAlive(g) // it holds all that has an address here
}

func letter(transposed bool) byte {
	if transposed {
		return 'T'
	}
	return 'N'
}
