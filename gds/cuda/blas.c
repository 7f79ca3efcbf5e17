//go:build cuda

#include "blas.h"
#include <cuda.h>
#include <dlfcn.h>
#include <stdio.h>

enum { NOT_INITIALIZED = 1 };                         // cublasStatus_t
enum { DEFAULT_MATH = 0, TF32_TENSOR_OP_MATH = 3 };   // cublasMath_t
enum { MAJOR_VERSION = 0, MINOR_VERSION = 1 };        // libraryPropertyType

static struct {
	int (*create)(void **handle);
	int (*destroy)(void *handle);
	int (*property)(int type, int *value);
	int (*stream)(void *handle, CUstream stream);
	int (*workspace)(void *handle, void *memory, size_t bytes);
	int (*math)(void *handle, int mode);
	int (*gemm)(void *handle, int ta, int tb, int m, int n, int k, const float *alpha, const float *a, int lda, const float *b, int ldb, const float *beta, float *c, int ldc);
} cublas;

static const struct { const char *name; void **function; } functions[] = {
	{"cublasCreate_v2", (void **)&cublas.create}, {"cublasDestroy_v2", (void **)&cublas.destroy},
	{"cublasGetProperty", (void **)&cublas.property}, {"cublasSetStream_v2", (void **)&cublas.stream},
	{"cublasSetWorkspace_v2", (void **)&cublas.workspace}, {"cublasSetMathMode", (void **)&cublas.math}, {"cublasSgemm_v2", (void **)&cublas.gemm},
};

static int use(uintptr_t context) { return cuCtxSetCurrent((CUcontext)context) == CUDA_SUCCESS ? 0 : NOT_INITIALIZED; }

const char *hopfeed_load_blas(const char *path, uintptr_t context, int *major, int *minor) {
	static char text[80];
	void *handle, *library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
	if (!library) return dlerror();
	for (size_t i = 0; i < sizeof functions / sizeof *functions; i++)
		if (!(*functions[i].function = dlsym(library, functions[i].name))) return dlerror();
	if (cublas.property(MAJOR_VERSION, major) || cublas.property(MINOR_VERSION, minor)) return "it does not say its version";
	int r = use(context);
	if (r || (r = cublas.create(&handle)) || (r = cublas.destroy(handle))) {
		snprintf(text, sizeof text, "cuBLAS %d.%d does not start: status %d", *major, *minor, r);
		return text;
	}
	return NULL;
}

int hopfeed_blas_open(uintptr_t context, uintptr_t stream, int tf32, uint64_t workspace, size_t bytes, uintptr_t *handle) {
	void *made;
	int r = use(context);
	if (r || (r = cublas.create(&made))) return r;
	// In this order: another stream would set the workspace back.
	if ((r = cublas.stream(made, (CUstream)stream)) || (r = cublas.workspace(made, (void *)workspace, bytes)) ||
		(r = cublas.math(made, tf32 ? TF32_TENSOR_OP_MATH : DEFAULT_MATH))) {
		cublas.destroy(made);
		return r;
	}
	*handle = (uintptr_t)made;
	return 0;
}

int hopfeed_blas_close(uintptr_t context, uintptr_t handle) {
	int r = use(context);
	return r ? r : cublas.destroy((void *)handle);
}

int hopfeed_gemm(uintptr_t context, uintptr_t handle, const hopfeed_product *p) {
	int r = use(context);
	return r ? r : cublas.gemm((void *)handle, p->transpose_a, p->transpose_b, p->m, p->n, p->k, &p->alpha, (const float *)p->a, p->lda,
		(const float *)p->b, p->ldb, &p->beta, (float *)p->c, p->ldc);
}
