// Steps of training.
#include "common.h"

// The bias corrections are in rate and root: Kingma and Ba 2015, Algorithm 1, in the order of its section 2.
KERNEL(adam, float *param, u64 param_stride, const float *grad, u64 grad_stride, float *m, u64 m_stride, float *v, u64 v_stride, u64 rows, u64 cols, float rate, float root, float beta1, float beta2, float epsilon, float decay) {
	float rest1 = 1 - beta1, rest2 = 1 - beta2;
	FOR_EACH(i, rows * cols) {
		float *w = &param[place(i, cols, param_stride)], *first = &m[place(i, cols, m_stride)], *second = &v[place(i, cols, v_stride)];
		float g = grad[place(i, cols, grad_stride)] + decay * *w;
		float mean = beta1 * *first + rest1 * g, square = beta2 * *second + rest2 * (g * g);
		*first = mean;
		*second = square;
		*w = *w - rate * mean / (sqrtf(square) * root + epsilon);
	}
}

// parts[block] = the sum of squares of grain elements; blocks of 256 threads.
KERNEL(squares, double *parts, const float *x, u64 n, u64 grain) {
	__shared__ double shared[256];
	u64 first = blockIdx.x * grain, end = first + grain < n ? first + grain : n;
	double sum = 0;
	for (u64 i = first + threadIdx.x; i < end; i += 256) sum += (double)x[i] * (double)x[i];
	shared[threadIdx.x] = sum;
	for (u32 k = 128; k > 0; k /= 2) {
		__syncthreads();
		if (threadIdx.x < k) shared[threadIdx.x] += shared[threadIdx.x + k];
	}
	if (threadIdx.x == 0) parts[blockIdx.x] = shared[0];
}

// One block of 256 threads: parts[count] = what the vector is multiplied by.
KERNEL(clip_factor, double *parts, u64 count, float most) {
	__shared__ double shared[256];
	double sum = 0;
	for (u64 i = threadIdx.x; i < count; i += 256) sum += parts[i];
	shared[threadIdx.x] = sum;
	for (u32 k = 128; k > 0; k /= 2) {
		__syncthreads();
		if (threadIdx.x < k) shared[threadIdx.x] += shared[threadIdx.x + k];
	}
	if (threadIdx.x != 0) return;
	double norm = sqrt(shared[0]);
	parts[count] = norm > (double)most ? (double)most / norm : 1;
}

KERNEL(clip, float *x, u64 n, const double *factor) {
	float by = (float)*factor;
	if (by == 1) return;
	FOR_EACH(i, n) x[i] *= by;
}
