// Sums over lists of terms, in the order that is part of docs/format.md: products are rounded, and blocks of 1024
// terms are added up one by one, each from zero.
//
// Lists are the terms of rows, each a row of src and its coefficient. Of a Lists l, l.list(row, j, e, end) sets which
// terms a row has, for columns from j on; l.source(e) is the row of src of a term, and l.is_source(e, u) tells whether
// there is one; l.coefficient(e, u) is its factor; and l.store(row, j, sum) takes a sum. What list and is_source refuse is
// not added up.
#pragma once
#include "floats.h"

enum { sum_block = 1024, long_warps = 16, most_rows = 8 };

// add_terms adds the terms [e, end) of columns [j, j+V) to sum, with so many rows of src on their way at once.
template <int V, int ahead, class Lists> DEVICE void add_terms(const Lists &l, float *sum, u64 e, u64 end, u64 j) {
	typedef typename Lists::From From;
	typedef Numbers<typename From::Bits, V> Row;
	for (; e + ahead <= end; e += ahead) {
		u32 u[ahead];
		bool all = true;
		float c[ahead];
		Row x[ahead];
		for (int k = 0; k < ahead; k++) u[k] = l.source(e + k);
		for (int k = 0; k < ahead; k++) all = all && l.is_source(e + k, u[k]);
		if (!all) return;
		for (int k = 0; k < ahead; k++) x[k] = *(const Row *)(l.src + u[k] * l.stride + j);
		for (int k = 0; k < ahead; k++) c[k] = l.coefficient(e + k, u[k]);
		for (int k = 0; k < ahead; k++)
			for (int v = 0; v < V; v++) sum[v] += c[k] * From::decode(x[k].at[v]);
	}
	for (; e < end; e++) {
		u32 u = l.source(e);
		if (!l.is_source(e, u)) return;
		Row x = *(const Row *)(l.src + u * l.stride + j);
		float c = l.coefficient(e, u);
		for (int v = 0; v < V; v++) sum[v] += c * From::decode(x.at[v]);
	}
}

// Each thread takes V columns of a row. Rows of more than a block are left to sum_long: work is how many, and which.
template <int V, class Lists> DEVICE void sum_lists(Lists l, u32 *work) {
	u64 parts = l.cols / V;
	FOR_EACH(i, l.rows * parts) {
		u64 row = divide(i, parts), j = (i - row * parts) * V, e, end;
		if (!l.list(row, j, e, end)) continue;
		if (end - e > sum_block) {
			if (j == 0) work[1 + atomicAdd(work, 1u)] = (u32)row;
			continue;
		}
		float sum[V] = {};
		add_terms<V, 8>(l, sum, e, end, j);
		for (int v = 0; v < V; v++) l.store(row, j + v, sum[v]);
	}
}

// Blocks of long_warps warps take 32 columns of a long row, or of up to most_rows if there are many. The warps share the
// blocks of terms of these rows, in rounds, and warp r adds up those of row r.
template <class Lists> DEVICE void sum_long(Lists l, const u32 *work) {
	__shared__ float sums[long_warps][32];
	__shared__ u64 blocks[most_rows];
	u64 rows = work[0], parts = (l.cols + 31) / 32, group = rows * parts / gridDim.x, warp = threadIdx.y;
	group = group < 1 ? 1 : group > most_rows ? most_rows : group;
	u64 count = (rows + group - 1) / group * parts;
	for (u64 i = blockIdx.x; i < count; i += gridDim.x) {
		u64 first = divide(i, parts) * group, j = (i - divide(i, parts) * parts) * 32 + threadIdx.x, e = 0, end = 0;
		bool owns = warp < group && first + warp < rows;
		if (warp < most_rows && threadIdx.x == 0) {
			if (owns) l.list(work[1 + first + warp], 0, e, end);
			blocks[warp] = (end - e + sum_block - 1) / sum_block;
		}
		__syncthreads();
		u64 all = 0, before = 0; // blocks of all rows, and of those before its own
		for (u64 r = 0; r < most_rows; r++) {
			if (r < warp) before += blocks[r];
			all += blocks[r];
		}
		u64 after = owns ? before + blocks[warp] : before;
		float total = 0;
		for (u64 round = 0; round < all; round += long_warps) {
			float sum = 0;
			if (round + warp < all && j < l.cols) {
				u64 r = 0, block = round + warp;
				for (; block >= blocks[r]; r++) block -= blocks[r];
				l.list(work[1 + first + r], j, e, end);
				e += block * sum_block;
				add_terms<1, 16>(l, &sum, e, e + sum_block < end ? e + sum_block : end, j);
			}
			sums[warp][threadIdx.x] = sum;
			__syncthreads();
			for (u64 b = before > round ? before : round; b < after && b < round + long_warps; b++) total += sums[b - round][threadIdx.x];
			__syncthreads();
		}
		if (owns && j < l.cols) l.store(work[1 + first + warp], j, total);
		__syncthreads();
	}
}

#define SUMS(name, Lists, PARAMETERS, ...) \
	KERNEL(name##_1, PARAMETERS, u32 *work) { sum_lists<1>(Lists{__VA_ARGS__}, work); } \
	KERNEL(name##_4, PARAMETERS, u32 *work) { sum_lists<4>(Lists{__VA_ARGS__}, work); } \
	KERNEL(name##_long, PARAMETERS, u32 *work) { sum_long(Lists{__VA_ARGS__}, work); }
