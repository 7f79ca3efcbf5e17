// Products and sums of linear layers.
#include "common.h"
#include "columns.h"

// c = alpha op(a) op(b) + beta c, where op(a)[i,l] = a[i*a_row + l*a_col], and b and c likewise: one
// block of 256 threads makes a tile of 64 by 64, each thread 4 by 4 of it. Terms are added in order
// of l. It is what there is where cuBLAS is not.
KERNEL(gemm, const float *a, u64 a_row, u64 a_col, const float *b, u64 b_row, u64 b_col, float *c, u64 c_row, u64 m, u64 n, u64 inner, float alpha, float beta) {
	enum { side = 64, depth = 16 };
	__shared__ float left[depth][side + 1], right[depth][side + 1];
	u64 across = (n + side - 1) / side;
	u64 top = blockIdx.x / across * side, first = blockIdx.x % across * side;
	u32 t = threadIdx.x, ty = t / 16, tx = t % 16;
	float sum[4][4] = {};
	for (u64 l0 = 0; l0 < inner; l0 += depth) {
		for (u32 k = t; k < side * depth; k += 256) {
			// Neighbouring threads read neighbouring memory, whichever way a matrix lies.
			u32 i = a_col == 1 ? k / depth : k % side, l = a_col == 1 ? k % depth : k / side;
			left[l][i] = top + i < m && l0 + l < inner ? a[(top + i) * a_row + (l0 + l) * a_col] : 0;
			u32 j = b_col == 1 ? k % side : k / depth, r = b_col == 1 ? k / side : k % depth;
			right[r][j] = first + j < n && l0 + r < inner ? b[(l0 + r) * b_row + (first + j) * b_col] : 0;
		}
		__syncthreads();
		u32 end = inner - l0 < depth ? (u32)(inner - l0) : depth;
		for (u32 l = 0; l < end; l++)
			for (u32 i = 0; i < 4; i++)
				for (u32 j = 0; j < 4; j++) sum[i][j] = fmaf(left[l][ty + 16 * i], right[l][tx + 16 * j], sum[i][j]);
		__syncthreads();
	}
	for (u32 i = 0; i < 4; i++)
		for (u32 j = 0; j < 4; j++) {
			u64 row = top + ty + 16 * i, col = first + tx + 16 * j;
			if (row >= m || col >= n) continue;
			float *out = &c[row * c_row + col];
			*out = beta == 0 ? alpha * sum[i][j] : alpha * sum[i][j] + beta * *out;
		}
}

// dst = alpha src^T + beta dst, for dst of rows by cols: one block of 256 threads turns a tile of 32 by 32.
KERNEL(transpose, const float *src, u64 src_stride, float *dst, u64 dst_stride, u64 rows, u64 cols, float alpha, float beta) {
	enum { side = 32 };
	__shared__ float tile[side][side + 1];
	u64 across = (cols + side - 1) / side;
	u64 top = blockIdx.x / across * side, left = blockIdx.x % across * side;
	u32 x = threadIdx.x % side, y = threadIdx.x / side;
	for (u32 j = y; j < side; j += 256 / side)
		if (left + j < cols && top + x < rows) tile[j][x] = src[(left + j) * src_stride + top + x];
	__syncthreads();
	for (u32 i = y; i < side; i += 256 / side)
		if (top + i < rows && left + x < cols) {
			float *out = &dst[(top + i) * dst_stride + left + x];
			*out = beta == 0 ? alpha * tile[x][i] : alpha * tile[x][i] + beta * *out;
		}
}

KERNEL(add_row, float *dst, u64 stride, const float *row, u64 rows, u64 cols) {
	FOR_EACH(i, rows * cols) { u64 r = divide(i, cols), c = i - r * cols; dst[r * stride + c] += row[c]; }
}

KERNEL(mul_row, float *dst, u64 stride, const float *row, u64 rows, u64 cols) {
	FOR_EACH(i, rows * cols) { u64 r = divide(i, cols), c = i - r * cols; dst[r * stride + c] *= row[c]; }
}

struct Itself {
	const float *src; u64 stride;
	DEVICE_MEMBER void add(float *sum, u64 i, u64 j) const { sum[0] += src[i * stride + j]; }
};
KERNEL(sum_rows, float *parts, const float *src, u64 stride, u64 rows, u64 cols, u64 slab) {
	add_columns<1>(parts, rows, cols, slab, Itself{src, stride});
}

// dst[j] = beta dst[j] + the sums of all slabs, which are apart elements apart, in order.
KERNEL(sum_slabs, float *dst, float beta, const float *parts, u64 slabs, u64 width, u64 apart) {
	FOR_EACH(j, width) {
		float sum = beta == 0 ? 0 : beta * dst[j];
		for (u64 s = 0; s < slabs; s++) sum += parts[s * apart + j];
		dst[j] = sum;
	}
}
