// Sums and attention along the edges of a block. check_edges comes first; what follows does nothing
// where it has set bad.
#include "common.h"

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

// Sums run as those of propagation do: products are rounded, and blocks of 1024 edges are added up
// one by one, each from zero.
enum { sum_block = 1024 };

KERNEL(sum_edges, float *dst, u64 dst_stride, const float *src, u64 src_stride, const u32 *offsets, const u32 *indices, const float *weights, u64 destinations, u64 cols, const u32 *bad) {
	if (*bad) return;
	FOR_EACH(i, destinations * cols) {
		u64 v = divide(i, cols), j = i - v * cols, end = offsets[v + 1];
		float total = 0;
		for (u64 e = offsets[v]; e < end;) {
			u64 stop = e + sum_block < end ? e + sum_block : end;
			float sum = 0;
			for (; e < stop; e++) sum += weights[e] * src[indices[e] * src_stride + j];
			total += sum;
		}
		dst[v * dst_stride + j] = total;
	}
}

// The edges by source. starts are [sources+1] and zero before; ordered are the edges of each source,
// ascending, and to the destinations of all edges.
KERNEL(count_by_source, u32 *starts, u32 *to, const u32 *offsets, u64 destinations, const u32 *indices, const u32 *bad) {
	if (*bad) return;
	FOR_EACH(v, destinations)
		for (u64 e = offsets[v]; e < offsets[v + 1]; e++) {
			to[e] = (u32)v;
			atomicAdd(&starts[indices[e] + 1], 1u);
		}
}

KERNEL(place_by_source, u32 *ordered, u32 *cursors, const u32 *offsets, u64 destinations, const u32 *indices, const u32 *bad) {
	if (*bad) return;
	u64 first = offsets[0], end = offsets[destinations];
	FOR_EACH(i, end - first) ordered[atomicAdd(&cursors[indices[first + i]], 1u)] = (u32)(first + i);
}

DEVICE void sift(u32 *x, u64 i, u64 n) {
	for (u64 child; (child = 2 * i + 1) < n; i = child) {
		if (child + 1 < n && x[child + 1] > x[child]) child++;
		if (x[i] >= x[child]) return;
		u32 v = x[i]; x[i] = x[child]; x[child] = v;
	}
}

// The edges of each source come in any order, and are sorted (a heap), so that sums have one.
KERNEL(sort_by_source, u32 *ordered, const u32 *starts, u64 sources, const u32 *bad) {
	if (*bad) return;
	FOR_EACH(u, sources) {
		u32 *x = ordered + starts[u];
		u64 n = starts[u + 1] - starts[u];
		for (u64 i = n / 2; i > 0; i--) sift(x, i - 1, n);
		for (u64 last = n; last > 1; last--) {
			u32 v = x[0]; x[0] = x[last - 1]; x[last - 1] = v;
			sift(x, 0, last - 1);
		}
	}
}

KERNEL(sum_edges_grad, float *dst, u64 dst_stride, const float *grad, u64 grad_stride, const float *weights, const u32 *starts, const u32 *ordered, const u32 *to, u64 sources, u64 cols, const u32 *bad) {
	if (*bad) return;
	FOR_EACH(i, sources * cols) {
		u64 u = divide(i, cols), j = i - u * cols, end = starts[u + 1];
		float total = 0;
		for (u64 k = starts[u]; k < end;) {
			u64 stop = k + sum_block < end ? k + sum_block : end;
			float sum = 0;
			for (; k < stop; k++) sum += weights[ordered[k]] * grad[to[ordered[k]] * grad_stride + j];
			total += sum;
		}
		dst[u * dst_stride + j] = total;
	}
}

DEVICE float leaky(float x, float slope) { return x > 0 ? x : slope * x; }

// A warp takes one head of one destination.
KERNEL(attend_edges, float *dst, u64 dst_stride, float *stats, u64 stats_stride, const float *values, u64 values_stride, const float *scores, u64 scores_stride, const u32 *offsets, const u32 *indices, u64 destinations, u64 heads, u64 size, float slope, const u32 *bad) {
	if (*bad) return;
	FOR_EACH_ROW(i, destinations * heads) {
		u64 v = divide(i, heads), h = i - v * heads, first = offsets[v], end = offsets[v + 1];
		float own = scores[v * scores_stride + 2 * h + 1], largest = -INFINITY, sum = 0;
		for (u64 e = first + LANE; e < end; e += 32) largest = fmaxf(largest, leaky(scores[indices[e] * scores_stride + 2 * h] + own, slope));
		largest = warp_max(largest);
		for (u64 e = first + LANE; e < end; e += 32) sum += expf(leaky(scores[indices[e] * scores_stride + 2 * h] + own, slope) - largest);
		sum = warp_sum(sum);
		if (first == end) { largest = 0; sum = 1; }
		if (LANE == 0) {
			stats[v * stats_stride + 2 * h] = largest;
			stats[v * stats_stride + 2 * h + 1] = sum;
		}
		for (u64 j = LANE; j < size; j += 32) {
			float total = 0;
			for (u64 e = first; e < end; e++) {
				float alpha = expf(leaky(scores[indices[e] * scores_stride + 2 * h] + own, slope) - largest) / sum;
				total += alpha * values[indices[e] * values_stride + h * size + j];
			}
			dst[v * dst_stride + h * size + j] = total;
		}
	}
}

// The coefficient of each edge and head, the gradient of its exponent, and those of destinations' scores.
KERNEL(attend_edges_grad_scores, float *alphas, float *slopes, float *grad_scores, u64 grad_scores_stride, const float *grad, u64 grad_stride, const float *stats, u64 stats_stride, const float *values, u64 values_stride, const float *scores, u64 scores_stride, const u32 *offsets, const u32 *indices, u64 destinations, u64 heads, u64 size, float slope, const u32 *bad) {
	if (*bad) return;
	FOR_EACH_ROW(i, destinations * heads) {
		u64 v = divide(i, heads), h = i - v * heads, first = offsets[v], end = offsets[v + 1];
		float own = scores[v * scores_stride + 2 * h + 1], largest = stats[v * stats_stride + 2 * h], sum = stats[v * stats_stride + 2 * h + 1], mean = 0, total = 0;
		const float *g = grad + v * grad_stride + h * size;
		for (u64 e = first; e < end; e++) {
			const float *x = values + indices[e] * values_stride + h * size;
			float by = 0;
			for (u64 j = LANE; j < size; j += 32) by += g[j] * x[j];
			by = warp_sum(by);
			float alpha = expf(leaky(scores[indices[e] * scores_stride + 2 * h] + own, slope) - largest) / sum;
			mean += alpha * by;
			if (LANE == 0) {
				alphas[e * heads + h] = alpha;
				slopes[e * heads + h] = by;
			}
		}
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

// A warp takes one head of one source.
KERNEL(attend_edges_grad_values, float *grad_values, u64 grad_values_stride, float *grad_scores, u64 grad_scores_stride, const float *grad, u64 grad_stride, const float *alphas, const float *slopes, const u32 *starts, const u32 *ordered, const u32 *to, u64 destinations, u64 sources, u64 heads, u64 size, const u32 *bad) {
	if (*bad) return;
	FOR_EACH_ROW(i, sources * heads) {
		u64 u = divide(i, heads), h = i - u * heads, first = starts[u], end = starts[u + 1];
		float sum = 0;
		for (u64 k = first + LANE; k < end; k += 32) sum += slopes[ordered[k] * heads + h];
		sum = warp_sum(sum);
		if (LANE == 0) {
			grad_scores[u * grad_scores_stride + 2 * h] = sum;
			if (u >= destinations) grad_scores[u * grad_scores_stride + 2 * h + 1] = 0;
		}
		for (u64 j = LANE; j < size; j += 32) {
			float total = 0;
			for (u64 k = first; k < end; k++) total += alphas[ordered[k] * heads + h] * grad[to[ordered[k]] * grad_stride + h * size + j];
			grad_values[u * grad_values_stride + h * size + j] = total;
		}
	}
}
