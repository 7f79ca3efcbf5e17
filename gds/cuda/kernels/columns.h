// Sums of columns: each block adds up a slab of rows of 32 columns.
#pragma once

// parts[s, k*cols + j] = the sum over rows i of slab s of what term.add adds to sum[k] at (i, j), k < Sums.
// The grid is [column tiles, slabs], the block [32, 8].
template <int Sums, class Term>
DEVICE void add_columns(float *parts, u64 rows, u64 cols, u64 slab, Term term) {
	__shared__ float shared[Sums][8][32];
	u64 j = (u64)blockIdx.x * 32 + threadIdx.x, first = blockIdx.y * slab, end = first + slab < rows ? first + slab : rows;
	float sum[Sums] = {};
	if (j < cols)
		for (u64 i = first + threadIdx.y; i < end; i += 8) term.add(sum, i, j);
	for (int k = 0; k < Sums; k++) shared[k][threadIdx.y][threadIdx.x] = sum[k];
	__syncthreads();
	if (threadIdx.y == 0 && j < cols)
		for (int k = 0; k < Sums; k++) {
			float total = 0;
			for (int y = 0; y < 8; y++) total += shared[k][y][threadIdx.x];
			parts[((u64)blockIdx.y * Sums + k) * cols + j] = total;
		}
}
