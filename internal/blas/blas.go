// Package blas multiplies matrices of float32: by package kernel, or, where the program is built with the
// tag openblas, by OpenBLAS, which is loaded when it is first needed. Either way by the type Gemm, for
// those who have goroutines of their own, or by Implementation, for gonum's blas32.
package blas

import (
	"context"
	"sync"

	"gonum.org/v1/gonum/blas"
	"gonum.org/v1/gonum/blas/gonum"

	"github.com/hopfeed/hopfeed/internal/kernel"
	"github.com/hopfeed/hopfeed/internal/parallel"
)

// Product is a product of matrices, and where they are.
type Product = kernel.Product

// Implementation is gonum's, but for what is faster here: Sgemm, on parallel.Threads goroutines. Its results
// do not depend on their number.
//
//	blas32.Use(blas.Implementation{})
type Implementation struct{ gonum.Implementation }

var _ blas.Float32 = Implementation{}

var idle = sync.Pool{New: func() any { return new(Gemm) }}

// Sgemm computes c = alpha * op(a) op(b) + beta * c. It panics if a matrix is shorter than its shape, and,
// in a build with the tag openblas, if Load fails.
func (Implementation) Sgemm(transA, transB blas.Transpose, m, n, k int, alpha float32, a []float32, lda int, b []float32, ldb int, beta float32, c []float32, ldc int) {
	if err := Load(); err != nil {
		panic(err)
	}
	g := idle.Get().(*Gemm)
	defer idle.Put(g)
	run(g, Product{
		TransA: isTransposed(transA), TransB: isTransposed(transB), Rows: m, Columns: n, Inner: k,
		Alpha: alpha, A: a, AStride: lda, B: b, BStride: ldb, Beta: beta, C: c, CStride: ldc,
	})
}

// steps is what a Gemm is: see kernel.Gemm.
type steps interface {
	Begin(p Product, threads int)
	Next() bool
	Packs() int
	Pack(i int)
	Parts() int
	Multiply(i int)
}

// run computes a product on parallel.Threads goroutines.
func run(g steps, p Product) {
	loop := func(n int, part func(i int)) {
		// No part fails, and the context does not end.
		_ = parallel.For(context.Background(), 0, int64(n), 1, func(i, _ int64) error {
			part(int(i))
			return nil
		})
	}
	g.Begin(p, parallel.Threads())
	for g.Next() {
		loop(g.Packs(), g.Pack)
		loop(g.Parts(), g.Multiply)
	}
}

func isTransposed(t blas.Transpose) bool {
	switch t {
	case blas.NoTrans:
		return false
	case blas.Trans, blas.ConjTrans:
		return true
	}
	panic("blas: neither transposed nor not")
}
