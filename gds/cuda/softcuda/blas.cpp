// The functions of cuBLAS that gds/cuda calls, on the streams of the software driver. Factors are rounded
// to 10 bits of fraction where TF32 is asked for, as tensor cores round them.
#include <cstdint>
#include <cstring>
#include <cuda.h>
#include <functional>

#define EXPORT extern "C" __attribute__((visibility("default")))
EXPORT void softcuda_enqueue(CUstream s, std::function<void()> f);
EXPORT void softcuda_written(uintptr_t p, size_t n);
EXPORT bool softcuda_captures();

namespace {
enum { SUCCESS = 0, NOT_INITIALIZED = 1, INVALID_VALUE = 7 };
struct Handle { CUstream stream = nullptr; bool tf32 = false, workspace = false; };
int failing; // the next creations of handles that fail

float rounded(float x, bool tf32) {
	uint32_t u;
	memcpy(&u, &x, 4);
	if (tf32 && (u >> 23 & 0xff) != 0xff) u = (u + 0xfff + (u >> 13 & 1)) & ~0x1fffu;
	memcpy(&x, &u, 4);
	return x;
}
} // namespace

EXPORT void softcublas_fail(int n) { failing = n; }

EXPORT int cublasCreate_v2(void **h) {
	CUcontext c = nullptr;
	if (cuCtxGetCurrent(&c) || !c || softcuda_captures() || (failing > 0 && failing--)) return NOT_INITIALIZED;
	*h = new Handle;
	return SUCCESS;
}
EXPORT int cublasDestroy_v2(void *h) { delete (Handle *)h; return SUCCESS; }
EXPORT int cublasGetProperty(int type, int *v) { *v = type == 0 ? 12 : 0; return SUCCESS; }
EXPORT int cublasSetStream_v2(void *h, CUstream s) { *(Handle *)h = {s, ((Handle *)h)->tf32}; return SUCCESS; } // and no work space
EXPORT bool softcuda_is_memory(uintptr_t p, size_t n);
EXPORT int cublasSetWorkspace_v2(void *h, void *p, size_t n) {
	((Handle *)h)->workspace = softcuda_is_memory((uintptr_t)p, n) && (uintptr_t)p % 256 == 0;
	return ((Handle *)h)->workspace ? SUCCESS : INVALID_VALUE;
}
EXPORT int cublasSetMathMode(void *h, int mode) {
	((Handle *)h)->tf32 = mode == 3;
	return mode == 0 || mode == 3 ? SUCCESS : INVALID_VALUE;
}
EXPORT int cublasSgemm_v2(void *handle, int ta, int tb, int m, int n, int k, const float *alpha, const float *a, int lda, const float *b, int ldb, const float *beta, float *c, int ldc) {
	Handle h = *(Handle *)handle;
	// Without work space it would allocate some.
	if (!h.stream || !h.workspace || m < 0 || n < 0 || k < 0 || lda < (ta ? k : m) || ldb < (tb ? n : k) || ldc < m) return INVALID_VALUE;
	softcuda_enqueue(h.stream, [=, alpha = *alpha, beta = *beta] {
		for (int j = 0; j < n; j++)
			for (int i = 0; i < m; i++) {
				float sum = 0, *to = c + size_t(j) * ldc + i;
				for (int l = 0; l < k; l++)
					sum += rounded(ta ? a[size_t(i) * lda + l] : a[size_t(l) * lda + i], h.tf32) *
						rounded(tb ? b[size_t(l) * ldb + j] : b[size_t(j) * ldb + l], h.tf32);
				*to = alpha * sum + (beta == 0 ? 0 : beta * *to);
			}
		for (int j = 0; j < n; j++) softcuda_written(uintptr_t(c + size_t(j) * ldc), size_t(m) * sizeof *c);
	});
	return SUCCESS;
}
