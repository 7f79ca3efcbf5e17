// The functions of cuBLAS that are used, from a library that is loaded when a program runs. Those that
// return int return a cublasStatus_t. Handles are passed as numbers.
#pragma once
#include <stddef.h>
#include <stdint.h>

// hopfeed_load_blas loads a library and tries whether it works in a context: one may be too new for the driver. It
// returns what is wrong, or NULL and the library's version, as 12 and 4.
const char *hopfeed_load_blas(const char *path, uintptr_t context, int *major, int *minor);
// Products of a handle use workspace, memory of so many bytes, and allocate none.
int hopfeed_blas_open(uintptr_t context, uintptr_t stream, int tf32, uint64_t workspace, size_t bytes, uintptr_t *handle);
int hopfeed_blas_close(uintptr_t context, uintptr_t handle);

// hopfeed_gemm computes c = alpha * op(a) op(b) + beta * c for matrices of columns, m rows by n columns.
typedef struct {
	int transpose_a, transpose_b, m, n, k, lda, ldb, ldc;
	float alpha, beta;
	uint64_t a, b, c;
} hopfeed_product;
int hopfeed_gemm(uintptr_t context, uintptr_t handle, const hopfeed_product *p);
