// Products of a sparse matrix with features: gds.PropagationOps.
#include "common.h"
#include "floats.h"

// The order of sums is part of the format: products are rounded, and blocks of 1024 terms are added up
// one by one, each from zero.
enum { sum_block = 1024 };

// Rows of more than a block are left to propagate_long: work is how many, and which.
#define PRODUCT(From) \
	void *dst, const From::Bits *src, const i64 *starts, const i64 *ends, const u32 *nodes, u64 terms, const float *weights, const float *node_factors, \
	const float *row_factors, const void *blend, float factor, float theta, u64 rows, u64 cols, u64 sources, u32 types, u64 *not_finite, u32 *work, \
	Fault *fault, u64 operation
#define GIVEN dst, src, starts, ends, nodes, terms, weights, node_factors, row_factors, blend, factor, theta, rows, cols, sources, types, not_finite, work, fault, operation

enum { IS_FLOAT32, IS_FLOAT16, IS_BFLOAT16 };

template <class T, int V> struct alignas(sizeof(T) * V) Numbers { T at[V]; };

template <class From> struct Product {
	void *dst;
	const typename From::Bits *src;
	const i64 *starts, *ends;
	const u32 *nodes;
	u64 terms;
	const float *weights, *node_factors, *row_factors;
	const void *blend;
	float factor, theta;
	u64 rows, cols, sources;
	u32 types; // of dst, and from bit 8 on of blend
	u64 *not_finite;
	u32 *work;
	Fault *fault;
	u64 operation;

	DEVICE_MEMBER bool has_terms(u64 row, i64 start, i64 end) const {
		if (0 <= start && start <= end && (u64)end <= terms) return true;
		report(fault, operation, OFFSETS_DESCEND | 4 << 8, row, 0, start, end);
		return false;
	}

	DEVICE_MEMBER bool has_source(i64 e, u32 u) const {
		if (u < sources) return true;
		report(fault, operation, NO_SUCH_SOURCE | 4 << 8, (u64)e, 0, u, (i64)sources);
		return false;
	}

	DEVICE_MEMBER float coefficient(i64 e, u32 u) const {
		float c = weights ? weights[e] : 1;
		return node_factors ? c * node_factors[u] : c;
	}

	// add adds the terms [e, end) of columns [j, j+V) to sum, four rows of src on their way at once.
	template <int V> DEVICE_MEMBER void add(float *sum, i64 e, i64 end, u64 j) const {
		typedef Numbers<typename From::Bits, V> Row;
		constexpr int ahead = 4;
		for (; e + ahead <= end; e += ahead) {
			u32 u[ahead];
			bool all = true;
			for (int k = 0; k < ahead; k++) u[k] = nodes[e + k];
			for (int k = 0; k < ahead; k++) all = all && has_source(e + k, u[k]);
			if (!all) return;
			float c[ahead];
			Row x[ahead];
			for (int k = 0; k < ahead; k++) {
				c[k] = coefficient(e + k, u[k]);
				x[k] = *(const Row *)(src + u[k] * cols + j);
			}
			for (int k = 0; k < ahead; k++)
				for (int v = 0; v < V; v++) sum[v] += c[k] * From::decode(x[k].at[v]);
		}
		for (; e < end; e++) {
			u32 u = nodes[e];
			if (!has_source(e, u)) return;
			float c = coefficient(e, u);
			Row x = *(const Row *)(src + u * cols + j);
			for (int v = 0; v < V; v++) sum[v] += c * From::decode(x.at[v]);
		}
	}

	// store stores the total of an element.
	DEVICE_MEMBER void store(u64 row, u64 j, float v) const {
		u64 at = row * cols + j;
		if (row_factors) v *= row_factors[row];
		if (blend) {
			float x;
			switch (types >> 8) {
			case IS_FLOAT32: x = ((const float *)blend)[at]; break;
			case IS_FLOAT16: x = Half::decode(((const u16 *)blend)[at]); break;
			default: x = Brain::decode(((const u16 *)blend)[at]);
			}
			v = factor * v + theta * x;
		}
		bool finite;
		switch (types & 0xff) {
		case IS_FLOAT32:
			((float *)dst)[at] = v;
			finite = (__float_as_uint(v) & 0x7f800000) != 0x7f800000;
			break;
		case IS_FLOAT16: {
			u16 h = ((u16 *)dst)[at] = Half::encode(v);
			finite = (h & 0x7c00) != 0x7c00;
			break;
		}
		default: {
			u16 h = ((u16 *)dst)[at] = Brain::encode(v);
			finite = (h & 0x7f80) != 0x7f80;
		}
		}
		if (!finite && not_finite) atomicAdd(not_finite, 1ull);
	}

	DEVICE_MEMBER void leave(u64 row) const { work[1 + atomicAdd(work, 1u)] = (u32)row; }
};

// Each thread takes V columns of a row.
template <class From, int V> DEVICE void in_order(const Product<From> &p) {
	u64 parts = p.cols / V;
	FOR_EACH(i, p.rows * parts) {
		u64 row = divide(i, parts), j = (i - row * parts) * V;
		i64 start = p.starts[row], end = p.ends[row];
		if (!p.has_terms(row, start, end)) continue;
		if (end - start > sum_block) {
			if (j == 0) p.leave(row);
			continue;
		}
		float sum[V] = {};
		p.template add<V>(sum, start, end, j);
		for (int v = 0; v < V; v++) p.store(row, j + v, sum[v]);
	}
}

// A warp takes up to 32 * V columns of a row. Where there are fewer, its lanes share the terms too.
template <class From, int V> DEVICE void in_any_order(const Product<From> &p) {
	typedef Numbers<typename From::Bits, V> Row;
	u32 across = 1;
	while (across < 32 && across * V < p.cols) across *= 2;
	u64 parts = (p.cols + across * V - 1) / (across * V);
	FOR_EACH_ROW(i, p.rows * parts) {
		u64 row = divide(i, parts), first = (i - row * parts) * across * V, j = first + LANE % across * V;
		i64 start = p.starts[row], end = p.ends[row];
		if (!p.has_terms(row, start, end)) continue;
		if (end - start > sum_block) {
			if (first == 0 && LANE == 0) p.leave(row);
			continue;
		}
		float sum[V] = {};
		if (j < p.cols)
			for (i64 e = start + LANE / across; e < end; e += 32 / across) {
				u32 u = p.nodes[e];
				if (!p.has_source(e, u)) break;
				float c = p.coefficient(e, u);
				Row x = *(const Row *)(p.src + u * p.cols + j);
				for (int v = 0; v < V; v++) sum[v] = fmaf(c, From::decode(x.at[v]), sum[v]);
			}
		for (u32 k = 16; k >= across; k /= 2)
			for (int v = 0; v < V; v++) sum[v] += __shfl_xor_sync(ALL_LANES, sum[v], k);
		if (LANE < across && j < p.cols)
			for (int v = 0; v < V; v++) p.store(row, j + v, sum[v]);
	}
}

// Blocks of 32 x 32 threads: each row of them adds up a block of the terms of a long row, for 32 columns.
template <class From> DEVICE void long_rows(const Product<From> &p) {
	__shared__ float sums[32][32];
	u64 parts = (p.cols + 31) / 32, count = p.work[0] * parts;
	for (u64 i = blockIdx.x; i < count; i += gridDim.x) {
		u64 row = p.work[1 + divide(i, parts)], j = (i - divide(i, parts) * parts) * 32 + threadIdx.x;
		i64 end = p.ends[row];
		float total = 0;
		for (i64 first = p.starts[row]; first < end; first += 32 * sum_block) {
			i64 e = first + (i64)threadIdx.y * sum_block, stop = e + sum_block < end ? e + sum_block : end;
			float sum = 0;
			if (j < p.cols && e < end) p.template add<1>(&sum, e, stop, j);
			sums[threadIdx.y][threadIdx.x] = sum;
			__syncthreads();
			if (threadIdx.y == 0)
				for (i64 y = 0; y < 32 && first + y * sum_block < end; y++) total += sums[y][threadIdx.x];
			__syncthreads();
		}
		if (threadIdx.y == 0 && j < p.cols) p.store(row, j, total);
	}
}

#define PROPAGATE(type, From) \
	KERNEL(propagate_1_##type, PRODUCT(From)) { in_order<From, 1>(Product<From>{GIVEN}); } \
	KERNEL(propagate_4_##type, PRODUCT(From)) { in_order<From, 4>(Product<From>{GIVEN}); } \
	KERNEL(propagate_any_1_##type, PRODUCT(From)) { in_any_order<From, 1>(Product<From>{GIVEN}); } \
	KERNEL(propagate_any_4_##type, PRODUCT(From)) { in_any_order<From, 4>(Product<From>{GIVEN}); } \
	KERNEL(propagate_long_##type, PRODUCT(From)) { long_rows(Product<From>{GIVEN}); }
PROPAGATE(f32, Single)
PROPAGATE(f16, Half)
PROPAGATE(bf16, Brain)
