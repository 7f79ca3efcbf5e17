// Normalisation of columns and of rows.
#include "common.h"
#include "columns.h"
#include "floats.h"

DEVICE float inverse_deviation(float variance, float epsilon) { return 1 / sqrtf(variance + epsilon); }

struct Deviation {
	const float *src; u64 stride; const float *mean;
	DEVICE_MEMBER void add(float *sum, u64 i, u64 j) const { float d = src[i * stride + j] - mean[j]; sum[0] += d * d; }
};
KERNEL(sum_squares, float *parts, const float *src, u64 stride, const float *mean, u64 rows, u64 cols, u64 slab) {
	add_columns<1>(parts, rows, cols, slab, Deviation{src, stride, mean});
}

KERNEL(normalize_columns, float *dst, u64 dst_stride, const float *src, u64 src_stride, const float *mean, const float *variance, const float *gain, const float *shift, u64 rows, u64 cols, float epsilon) {
	FOR_EACH(i, rows * cols) {
		u64 r = divide(i, cols), c = i - r * cols;
		dst[r * dst_stride + c] = (src[r * src_stride + c] - mean[c]) * inverse_deviation(variance[c], epsilon) * gain[c] + shift[c];
	}
}

struct GradientAndNormal {
	const float *grad; u64 grad_stride; const float *src; u64 src_stride; const float *mean, *variance; float epsilon;
	DEVICE_MEMBER void add(float *sum, u64 i, u64 j) const {
		float g = grad[i * grad_stride + j];
		sum[0] += g;
		sum[1] += g * ((src[i * src_stride + j] - mean[j]) * inverse_deviation(variance[j], epsilon));
	}
};
KERNEL(normalize_columns_sums, float *parts, const float *grad, u64 grad_stride, const float *src, u64 src_stride, const float *mean, const float *variance, u64 rows, u64 cols, u64 slab, float epsilon) {
	add_columns<2>(parts, rows, cols, slab, GradientAndNormal{grad, grad_stride, src, src_stride, mean, variance, epsilon});
}

KERNEL(normalize_columns_grad, float *dst, u64 dst_stride, const float *grad, u64 grad_stride, const float *src, u64 src_stride, const float *mean, const float *variance, const float *gain, const float *sums, u64 rows, u64 cols, float part, float epsilon) {
	FOR_EACH(i, rows * cols) {
		u64 r = divide(i, cols), c = i - r * cols;
		float inverse = inverse_deviation(variance[c], epsilon), normal = (src[r * src_stride + c] - mean[c]) * inverse, g = grad[r * grad_stride + c];
		if (part != 0) g = g - part * sums[c] - normal * (part * sums[cols + c]);
		dst[r * dst_stride + c] = gain[c] * inverse * g;
	}
}

// A warp takes a row, each lane V columns at a time.
template <int V> DEVICE void normalize_row(float *y, const float *x, const float *gain, const float *shift, float *stats, u64 cols, float epsilon) {
	typedef Numbers<float, V> Part;
	float sum = 0, squares = 0;
	for (u64 j = LANE * V; j < cols; j += 32 * V) {
		Part p = *(const Part *)(x + j);
		for (int v = 0; v < V; v++) sum += p.at[v];
	}
	float mean = warp_sum(sum) / (float)cols;
	for (u64 j = LANE * V; j < cols; j += 32 * V) {
		Part p = *(const Part *)(x + j);
		for (int v = 0; v < V; v++) { float d = p.at[v] - mean; squares += d * d; }
	}
	float inverse = inverse_deviation(warp_sum(squares) / (float)cols, epsilon);
	for (u64 j = LANE * V; j < cols; j += 32 * V) {
		Part p = *(const Part *)(x + j);
		for (int v = 0; v < V; v++) p.at[v] = (p.at[v] - mean) * inverse * gain[j + v] + shift[j + v];
		*(Part *)(y + j) = p;
	}
	if (LANE == 0) { stats[0] = mean; stats[1] = inverse; }
}
#define NORMALIZE_ROWS(name, V) \
	KERNEL(name, float *dst, u64 dst_stride, float *stats, u64 stats_stride, const float *src, u64 src_stride, const float *gain, const float *shift, u64 rows, u64 cols, float epsilon) { \
		FOR_EACH_ROW(r, rows) normalize_row<V>(dst + r * dst_stride, src + r * src_stride, gain, shift, stats + r * stats_stride, cols, epsilon); \
	}
NORMALIZE_ROWS(normalize_rows_1, 1)
NORMALIZE_ROWS(normalize_rows_4, 4)

struct NormalAndGradient {
	const float *grad; u64 grad_stride; const float *src; u64 src_stride; const float *stats; u64 stats_stride;
	DEVICE_MEMBER void add(float *sum, u64 i, u64 j) const {
		float g = grad[i * grad_stride + j];
		sum[0] += g * ((src[i * src_stride + j] - stats[i * stats_stride]) * stats[i * stats_stride + 1]);
		sum[1] += g;
	}
};
KERNEL(normalize_rows_sums, float *parts, const float *grad, u64 grad_stride, const float *src, u64 src_stride, const float *stats, u64 stats_stride, u64 rows, u64 cols, u64 slab) {
	add_columns<2>(parts, rows, cols, slab, NormalAndGradient{grad, grad_stride, src, src_stride, stats, stats_stride});
}

KERNEL(normalize_rows_grad, float *dst, u64 dst_stride, const float *grad, u64 grad_stride, const float *src, u64 src_stride, const float *stats, u64 stats_stride, const float *gain, u64 rows, u64 cols) {
	FOR_EACH_ROW(r, rows) {
		const float *x = src + r * src_stride, *g = grad + r * grad_stride;
		float mean = stats[r * stats_stride], inverse = stats[r * stats_stride + 1], of_h = 0, of_normal = 0;
		for (u64 j = LANE; j < cols; j += 32) {
			float h = g[j] * gain[j];
			of_h += h;
			of_normal += h * ((x[j] - mean) * inverse);
		}
		of_h = warp_sum(of_h) / (float)cols;
		of_normal = warp_sum(of_normal) / (float)cols;
		for (u64 j = LANE; j < cols; j += 32) {
			float normal = (x[j] - mean) * inverse;
			dst[r * dst_stride + j] = inverse * (g[j] * gain[j] - of_h - normal * of_normal);
		}
	}
}
