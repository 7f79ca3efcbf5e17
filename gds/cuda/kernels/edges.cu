// Sums and attention along the edges of a block. check_edges comes first; what follows does nothing
// where it has set bad.
#include "sums.h"

// A block has edges of destinations, in lists that ascend through indices.
KERNEL(check_edges, u32 *bad, const u32 *offsets, u64 destinations, const u32 *indices, u64 edges, u64 sources, u32 name, Fault *fault, u64 operation) {
	FOR_EACH(v, destinations + 1) {
		u64 next = v < destinations ? offsets[v + 1] : edges;
		if (offsets[v] <= next) continue;
		*bad = 1;
		report(fault, operation, OFFSETS_DESCEND | name << 8, v, 0, offsets[v], (i64)next);
	}
	u64 end = offsets[destinations] < edges ? offsets[destinations] : edges;
	FOR_EACH(e, end) {
		if (e < offsets[0] || indices[e] < sources) continue;
		*bad = 1;
		report(fault, operation, NO_SUCH_SOURCE | name << 8, e, 0, indices[e], (i64)sources);
	}
}

// Rows add up src[rows_of_src[e],:] over their terms, each by weights[e], or by weights[ordered[e]].
struct EdgeSums {
	typedef Single From;
	float *dst;
	u64 dst_stride;
	const float *src;
	u64 stride;
	const u32 *offsets, *rows_of_src, *ordered;
	const float *weights;
	u64 rows, cols;
	const u32 *bad;

	DEVICE_MEMBER bool list(u64 row, u64, u64 &e, u64 &end) const {
		if (*bad) return false;
		e = offsets[row], end = offsets[row + 1];
		return true;
	}
	DEVICE_MEMBER u32 source(u64 e) const { return rows_of_src[e]; }
	DEVICE_MEMBER bool is_source(u64, u32) const { return true; } // check_edges has seen them
	DEVICE_MEMBER float coefficient(u64 e, u32) const { return weights[ordered ? ordered[e] : e]; }
	DEVICE_MEMBER void store(u64 row, u64 j, float v) const { dst[row * dst_stride + j] = v; }
};

#define EDGE_SUMS \
	float *dst, u64 dst_stride, const float *src, u64 src_stride, const u32 *offsets, const u32 *rows_of_src, const u32 *ordered, const float *weights, u64 rows, \
	u64 cols, const u32 *bad
SUMS(sum_edges, EdgeSums, EDGE_SUMS, dst, dst_stride, src, src_stride, offsets, rows_of_src, ordered, weights, rows, cols, bad)

// The edges are sorted by source, and those of a source ascend, so that its sums have one order: a radix sort, which
// takes up to 8 bits of the sources at a time from the lowest on. Each block of 256 threads has a slab of the edges, in
// the order so far: previous, or as they come. counts are, for each slab, how many edges have each digit.
enum { digits = 256 };
struct Slab {
	const u32 *offsets, *indices, *previous;
	u64 destinations, slab;
	u32 shift, mask;
	DEVICE_MEMBER u64 first() const { return blockIdx.x * slab; }
	DEVICE_MEMBER u64 end() const {
		u64 all = offsets[destinations] - offsets[0], end = first() + slab;
		return end < all ? end : all;
	}
	DEVICE_MEMBER u32 edge(u64 i) const { return previous ? previous[i] : offsets[0] + (u32)i; }
	DEVICE_MEMBER u32 digit(u32 edge) const { return indices[edge] >> shift & mask; }
};

// same_digit are the lanes that have an element, of the same digit.
DEVICE u32 same_digit(bool has, u32 digit) {
	u32 lanes = __ballot_sync(ALL_LANES, has);
	for (u32 bit = 1; bit < digits; bit *= 2) {
		u32 set = __ballot_sync(ALL_LANES, (digit & bit) != 0);
		lanes &= digit & bit ? set : ~set;
	}
	return lanes;
}

#define SLAB const u32 *offsets, u64 destinations, const u32 *indices, const u32 *previous, u64 slab, u32 shift, u32 mask, u32 *counts, const u32 *bad
#define OF_SLAB Slab{offsets, indices, previous, destinations, slab, shift, mask}

KERNEL(count_by_source, SLAB) {
	__shared__ u32 counted[8][digits];
	if (*bad) return;
	Slab s = OF_SLAB;
	u32 warp = threadIdx.x / 32;
	for (u32 w = 0; w < 8; w++) counted[w][threadIdx.x] = 0;
	__syncthreads();
	for (u64 from = s.first(); from < s.end(); from += 256) {
		u64 i = from + threadIdx.x;
		bool has = i < s.end();
		u32 digit = has ? s.digit(s.edge(i)) : 0, lanes = same_digit(has, digit);
		if (has && (lanes & LANES_BELOW) == 0) counted[warp][digit] += __popc(lanes);
		__syncwarp();
	}
	__syncthreads();
	u32 total = 0;
	for (u32 w = 0; w < 8; w++) total += counted[w][threadIdx.x];
	counts[blockIdx.x * digits + threadIdx.x] = total;
}

KERNEL(sort_by_source, SLAB, u32 *ordered) {
	__shared__ u32 at[8][digits], sums[digits];
	if (*bad) return;
	Slab s = OF_SLAB;
	u32 warp = threadIdx.x / 32, own = threadIdx.x, before = 0, total = 0; // of the digit that is its own
	for (u64 b = 0; b < gridDim.x; b++) {
		u32 count = counts[b * digits + own];
		if (b < blockIdx.x) before += count;
		total += count;
	}
	sums[own] = total;
	__syncthreads();
	for (u32 k = 1; k < digits; k *= 2) {
		u32 left = own >= k ? sums[own - k] : 0;
		__syncthreads();
		sums[own] += left;
		__syncthreads();
	}
	u32 next = sums[own] - total + before; // where the next edge of the digit goes
	for (u64 from = s.first(); from < s.end(); from += 256) {
		u64 i = from + threadIdx.x;
		bool has = i < s.end();
		u32 edge = has ? s.edge(i) : 0, digit = has ? s.digit(edge) : 0, lanes = same_digit(has, digit);
		for (u32 w = 0; w < 8; w++) at[w][own] = 0;
		__syncthreads();
		if (has && (lanes & LANES_BELOW) == 0) at[warp][digit] = __popc(lanes);
		__syncthreads();
		for (u32 w = 0; w < 8; w++) {
			u32 count = at[w][own];
			at[w][own] = next;
			next += count;
		}
		__syncthreads();
		if (has) ordered[at[warp][digit] + __popc(lanes & LANES_BELOW)] = edge;
		__syncthreads();
	}
}

// starts[u] is where the edges of source u begin in ordered; to are the destinations of the edges in ordered.
KERNEL(find_by_source, u32 *starts, u32 *to, const u32 *ordered, const u32 *offsets, u64 destinations, const u32 *indices, u64 edges, u64 sources, const u32 *bad) {
	if (*bad) return;
	u64 count = offsets[destinations] - offsets[0];
	FOR_EACH(i, edges > sources ? edges : sources + 1) {
		if (i <= sources) {
			u64 low = 0, high = count; // all before low have sources below i, and none from high on
			while (low < high) {
				u64 middle = (low + high) / 2;
				if (indices[ordered[middle]] < i) low = middle + 1;
				else high = middle;
			}
			starts[i] = (u32)low;
		}
		if (i < count) {
			u32 edge = ordered[i];
			u64 low = 0, high = destinations; // offsets[low] <= edge < offsets[high]
			while (high - low > 1) {
				u64 middle = (low + high) / 2;
				if (offsets[middle] <= edge) low = middle;
				else high = middle;
			}
			to[i] = (u32)low;
		}
	}
}

DEVICE float leaky(float x, float slope) { return x > 0 ? x : slope * x; }

// A warp takes one head of one destination: the largest exponent of its edges, and the sum of their exponentials.
KERNEL(attend_stats, float *stats, u64 stats_stride, const float *scores, u64 scores_stride, const u32 *offsets, const u32 *indices, u64 destinations, u64 heads, float slope, const u32 *bad) {
	if (*bad) return;
	FOR_EACH_ROW(i, destinations * heads) {
		u64 v = divide(i, heads), h = i - v * heads, first = offsets[v], end = offsets[v + 1];
		float own = scores[v * scores_stride + 2 * h + 1], largest = -INFINITY, sum = 0;
		for (u64 e = first + LANE; e < end; e += 32) largest = fmaxf(largest, leaky(scores[indices[e] * scores_stride + 2 * h] + own, slope));
		largest = warp_max(largest);
		for (u64 e = first + LANE; e < end; e += 32) sum += expf(leaky(scores[indices[e] * scores_stride + 2 * h] + own, slope) - largest);
		sum = warp_sum(sum);
		if (LANE == 0) {
			stats[v * stats_stride + 2 * h] = first < end ? largest : 0;
			stats[v * stats_stride + 2 * h + 1] = first < end ? sum : 1;
		}
	}
}

// Destinations add up values by their attention.
struct Attended {
	typedef Single From;
	float *dst;
	u64 dst_stride;
	const float *stats;
	u64 stats_stride;
	const float *src;
	u64 stride;
	const float *scores;
	u64 scores_stride;
	const u32 *offsets, *indices;
	u64 rows, cols, size; // of a head
	float slope;
	const u32 *bad;
	u64 score; // the column of the head's
	float own, largest, sum;

	DEVICE_MEMBER bool list(u64 row, u64 j, u64 &e, u64 &end) {
		if (*bad) return false;
		e = offsets[row], end = offsets[row + 1];
		score = 2 * divide(j, size);
		own = scores[row * scores_stride + score + 1];
		largest = stats[row * stats_stride + score], sum = stats[row * stats_stride + score + 1];
		return true;
	}
	DEVICE_MEMBER u32 source(u64 e) const { return indices[e]; }
	DEVICE_MEMBER bool is_source(u64, u32) const { return true; } // check_edges has seen them
	DEVICE_MEMBER float coefficient(u64, u32 u) const { return expf(leaky(scores[u * scores_stride + score] + own, slope) - largest) / sum; }
	DEVICE_MEMBER void store(u64 row, u64 j, float v) const { dst[row * dst_stride + j] = v; }
};

#define ATTENDED \
	float *dst, u64 dst_stride, const float *stats, u64 stats_stride, const float *src, u64 src_stride, const float *scores, u64 scores_stride, const u32 *offsets, \
	const u32 *indices, u64 rows, u64 cols, u64 size, float slope, const u32 *bad
SUMS(attend_edges, Attended, ATTENDED, dst, dst_stride, stats, stats_stride, src, src_stride, scores, scores_stride, offsets, indices, rows, cols, size, slope, bad)

// The coefficient of each edge and head, the gradient of its exponent, and those of destinations' scores. A warp takes
// one head of one destination: as many lanes as a head has columns take an edge.
KERNEL(attend_edges_grad_scores, float *alphas, float *slopes, float *grad_scores, u64 grad_scores_stride, const float *grad, u64 grad_stride, const float *stats, u64 stats_stride, const float *values, u64 values_stride, const float *scores, u64 scores_stride, const u32 *offsets, const u32 *indices, u64 destinations, u64 heads, u64 size, float slope, const u32 *bad) {
	if (*bad) return;
	u32 across = 1;
	while (across < 32 && across < size) across *= 2;
	u64 at_once = 32 / across;
	FOR_EACH_ROW(i, destinations * heads) {
		u64 v = divide(i, heads), h = i - v * heads, first = offsets[v], end = offsets[v + 1];
		float own = scores[v * scores_stride + 2 * h + 1], largest = stats[v * stats_stride + 2 * h], sum = stats[v * stats_stride + 2 * h + 1], mean = 0, total = 0;
		const float *g = grad + v * grad_stride + h * size;
		for (u64 e0 = first; e0 < end; e0 += at_once) {
			u64 e = e0 + LANE / across;
			float by = 0, alpha = 0;
			if (e < end) {
				const float *x = values + indices[e] * values_stride + h * size;
				for (u64 j = LANE % across; j < size; j += across) by += g[j] * x[j];
				alpha = expf(leaky(scores[indices[e] * scores_stride + 2 * h] + own, slope) - largest) / sum;
			}
			for (u32 k = across / 2; k > 0; k /= 2) by += __shfl_xor_sync(ALL_LANES, by, k);
			if (LANE % across == 0 && e < end) {
				alphas[e * heads + h] = alpha;
				slopes[e * heads + h] = by;
				mean += alpha * by;
			}
		}
		mean = warp_sum(mean);
		__syncwarp();
		for (u64 e = first + LANE; e < end; e += 32) {
			float by = alphas[e * heads + h] * (slopes[e * heads + h] - mean);
			if (!(scores[indices[e] * scores_stride + 2 * h] + own > 0)) by *= slope;
			slopes[e * heads + h] = by;
			total += by;
		}
		total = warp_sum(total);
		if (LANE == 0) grad_scores[v * grad_scores_stride + 2 * h + 1] = total;
	}
}

// A warp takes one head of one source: the gradient of its score.
KERNEL(attend_edges_grad_sources, float *grad_scores, u64 grad_scores_stride, const float *slopes, const u32 *starts, const u32 *ordered, u64 destinations, u64 sources, u64 heads, const u32 *bad) {
	if (*bad) return;
	FOR_EACH_ROW(i, sources * heads) {
		u64 u = divide(i, heads), h = i - u * heads;
		float sum = 0;
		for (u64 k = starts[u] + LANE; k < starts[u + 1]; k += 32) sum += slopes[ordered[k] * heads + h];
		sum = warp_sum(sum);
		if (LANE == 0) {
			grad_scores[u * grad_scores_stride + 2 * h] = sum;
			if (u >= destinations) grad_scores[u * grad_scores_stride + 2 * h + 1] = 0;
		}
	}
}

// Sources add up the gradients of destinations by the attention to them.
struct AttendedGrad {
	typedef Single From;
	float *dst;
	u64 dst_stride;
	const float *src;
	u64 stride;
	const float *alphas;
	u64 heads, size;
	const u32 *starts, *ordered, *to;
	u64 rows, cols;
	const u32 *bad;
	u64 head;

	DEVICE_MEMBER bool list(u64 row, u64 j, u64 &e, u64 &end) {
		if (*bad) return false;
		e = starts[row], end = starts[row + 1];
		head = divide(j, size);
		return true;
	}
	DEVICE_MEMBER u32 source(u64 e) const { return to[e]; }
	DEVICE_MEMBER bool is_source(u64, u32) const { return true; } // check_edges has seen them
	DEVICE_MEMBER float coefficient(u64 e, u32) const { return alphas[ordered[e] * heads + head]; }
	DEVICE_MEMBER void store(u64 row, u64 j, float v) const { dst[row * dst_stride + j] = v; }
};

#define ATTENDED_GRAD \
	float *dst, u64 dst_stride, const float *src, u64 src_stride, const float *alphas, u64 heads, u64 size, const u32 *starts, const u32 *ordered, const u32 *to, \
	u64 rows, u64 cols, const u32 *bad
SUMS(attend_edges_grad, AttendedGrad, ATTENDED_GRAD, dst, dst_stride, src, src_stride, alphas, heads, size, starts, ordered, to, rows, cols, bad)
