// Each element from those at the same place of matrices of one shape.
#include "common.h"
#include "random.h"

KERNEL(axpy, const float *x, u64 x_stride, float *y, u64 y_stride, u64 rows, u64 cols, float alpha) {
	FOR_EACH(i, rows * cols) y[place(i, cols, y_stride)] += alpha * x[place(i, cols, x_stride)];
}

DEVICE float above_zero(float v) { return v < 0 ? 0 : v; } // NaN stays NaN

KERNEL(relu, float *dst, u64 dst_stride, const float *src, u64 src_stride, u64 rows, u64 cols) {
	FOR_EACH(i, rows * cols) dst[place(i, cols, dst_stride)] = above_zero(src[place(i, cols, src_stride)]);
}

KERNEL(relu_grad, float *dst, u64 dst_stride, const float *grad, u64 grad_stride, const float *out, u64 out_stride, u64 rows, u64 cols, float scale) {
	FOR_EACH(i, rows * cols) dst[place(i, cols, dst_stride)] = out[place(i, cols, out_stride)] > 0 ? scale * grad[place(i, cols, grad_stride)] : 0;
}

KERNEL(elu, float *dst, u64 dst_stride, const float *src, u64 src_stride, u64 rows, u64 cols) {
	FOR_EACH(i, rows * cols) {
		float v = src[place(i, cols, src_stride)];
		dst[place(i, cols, dst_stride)] = v > 0 ? v : expf(v) - 1;
	}
}

KERNEL(elu_grad, float *dst, u64 dst_stride, const float *grad, u64 grad_stride, const float *out, u64 out_stride, u64 rows, u64 cols, float keep) {
	FOR_EACH(i, rows * cols) {
		float v = out[place(i, cols, out_stride)], g = grad[place(i, cols, grad_stride)];
		dst[place(i, cols, dst_stride)] = v > 0 ? g : g * (1 + keep * v);
	}
}

KERNEL(prelu, float *dst, u64 dst_stride, const float *src, u64 src_stride, const float *slope, u64 rows, u64 cols) {
	float by = *slope;
	FOR_EACH(i, rows * cols) {
		float v = src[place(i, cols, src_stride)];
		dst[place(i, cols, dst_stride)] = v > 0 ? v : by * v;
	}
}

// parts[block] = the sum of grad * src where src is not above zero; blocks of 256 threads.
KERNEL(prelu_grad, float *dst, u64 dst_stride, float *parts, const float *grad, u64 grad_stride, const float *src, u64 src_stride, const float *slope, u64 rows, u64 cols) {
	__shared__ float shared[256];
	float by = *slope, sum = 0;
	FOR_EACH(i, rows * cols) {
		float v = src[place(i, cols, src_stride)], g = grad[place(i, cols, grad_stride)];
		if (!(v > 0)) {
			sum += g * v;
			g *= by;
		}
		dst[place(i, cols, dst_stride)] = g;
	}
	shared[threadIdx.x] = sum;
	for (u32 k = 128; k > 0; k /= 2) {
		__syncthreads();
		if (threadIdx.x < k) shared[threadIdx.x] += shared[threadIdx.x + k];
	}
	if (threadIdx.x == 0) parts[blockIdx.x] = shared[0];
}

KERNEL(mul, float *dst, u64 dst_stride, const float *a, u64 a_stride, const float *b, u64 b_stride, u64 rows, u64 cols) {
	FOR_EACH(i, rows * cols) dst[place(i, cols, dst_stride)] = a[place(i, cols, a_stride)] * b[place(i, cols, b_stride)];
}

// An element is dropped if the upper 24 bits of its hash are below threshold.
KERNEL(dropout, float *dst, u64 dst_stride, const float *src, u64 src_stride, u64 rows, u64 cols, u64 start, u64 threshold, float keep, u32 relu) {
	FOR_EACH(i, rows * cols) {
		float v = src[place(i, cols, src_stride)];
		if (relu) v = above_zero(v);
		dst[place(i, cols, dst_stride)] = hash_at(start, i) >> 40 < threshold ? 0 : v * keep;
	}
}
