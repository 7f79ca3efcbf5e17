// Attention among the tokens of a row, softmax of rows, weighted sums of tokens.
#include "common.h"

// dot is the product of two vectors, by the lanes of a warp.
DEVICE float dot(const float *x, const float *y, u64 n) {
	float sum = 0;
	for (u64 i = LANE; i < n; i += 32) sum = fmaf(x[i], y[i], sum);
	return warp_sum(sum);
}

// softmax of a row by a warp; dst may be src.
DEVICE void softmax(float *dst, const float *src, u64 n) {
	float largest = -INFINITY, sum = 0;
	for (u64 j = LANE; j < n; j += 32) largest = fmaxf(largest, src[j]);
	largest = warp_max(largest);
	for (u64 j = LANE; j < n; j += 32) {
		float power = expf(src[j] - largest);
		dst[j] = power;
		sum += power;
	}
	sum = warp_sum(sum);
	for (u64 j = LANE; j < n; j += 32) dst[j] /= sum;
}

// Head is where a head of the tokens of a row lies in queries, keys and values of 3*width each.
struct Head { u64 width, at, size; };
DEVICE u64 query(Head h, u64 token) { return token * 3 * h.width + h.at; }
DEVICE u64 key(Head h, u64 token) { return (token * 3 + 1) * h.width + h.at; }
DEVICE u64 value(Head h, u64 token) { return (token * 3 + 2) * h.width + h.at; }

// A warp takes one head of one row.
KERNEL(attention, float *dst, u64 dst_stride, float *weights, u64 weights_stride, const float *qkv, u64 qkv_stride, u64 rows, u64 width, u64 tokens, u64 heads, float scale) {
	FOR_EACH_ROW(i, rows * heads) {
		u64 row = divide(i, heads), h = i - row * heads;
		Head head = {width, h * (width / heads), width / heads};
		const float *x = qkv + row * qkv_stride;
		for (u64 t = 0; t < tokens; t++) {
			float *w = weights + row * weights_stride + (h * tokens + t) * tokens, *out = dst + row * dst_stride + t * width + head.at;
			for (u64 u = 0; u < tokens; u++) {
				float score = scale * dot(x + query(head, t), x + key(head, u), head.size);
				if (LANE == 0) w[u] = score;
			}
			__syncwarp();
			softmax(w, w, tokens);
			__syncwarp();
			for (u64 e = LANE; e < head.size; e += 32) {
				float sum = 0;
				for (u64 u = 0; u < tokens; u++) sum = fmaf(w[u], x[value(head, u) + e], sum);
				out[e] = sum;
			}
		}
	}
}

// Each lane sums up its own elements of the head, so that no two write to one place.
KERNEL(attention_grad, float *dst, u64 dst_stride, const float *grad, u64 grad_stride, const float *weights, u64 weights_stride, const float *qkv, u64 qkv_stride, u64 rows, u64 width, u64 tokens, u64 heads, float scale) {
	FOR_EACH_ROW(i, rows * heads) {
		u64 row = divide(i, heads), h = i - row * heads;
		Head head = {width, h * (width / heads), width / heads};
		const float *x = qkv + row * qkv_stride;
		float *out = dst + row * dst_stride;
		for (u64 t = 0; t < tokens; t++)
			for (u64 e = LANE; e < head.size; e += 32) out[query(head, t) + e] = out[key(head, t) + e] = out[value(head, t) + e] = 0;
		for (u64 t = 0; t < tokens; t++) {
			const float *g = grad + row * grad_stride + t * width + head.at, *w = weights + row * weights_stride + (h * tokens + t) * tokens;
			float mean = 0;
			for (u64 u = 0; u < tokens; u++) mean = fmaf(w[u], dot(g, x + value(head, u), head.size), mean);
			for (u64 u = 0; u < tokens; u++) {
				float by = scale * (w[u] * (dot(g, x + value(head, u), head.size) - mean));
				for (u64 e = LANE; e < head.size; e += 32) {
					out[query(head, t) + e] = fmaf(by, x[key(head, u) + e], out[query(head, t) + e]);
					out[key(head, u) + e] = fmaf(by, x[query(head, t) + e], out[key(head, u) + e]);
					out[value(head, u) + e] = fmaf(w[u], g[e], out[value(head, u) + e]);
				}
			}
		}
	}
}

KERNEL(softmax_rows, float *dst, u64 dst_stride, const float *src, u64 src_stride, u64 rows, u64 cols) {
	FOR_EACH_ROW(r, rows) softmax(dst + r * dst_stride, src + r * src_stride, cols);
}

KERNEL(softmax_rows_grad, float *dst, u64 dst_stride, const float *grad, u64 grad_stride, const float *out, u64 out_stride, u64 rows, u64 cols) {
	FOR_EACH_ROW(r, rows) {
		const float *g = grad + r * grad_stride, *p = out + r * out_stride;
		float mean = dot(g, p, cols);
		for (u64 j = LANE; j < cols; j += 32) dst[r * dst_stride + j] = p[j] * (g[j] - mean);
	}
}

KERNEL(weigh_tokens, float *dst, u64 dst_stride, const float *weights, u64 weights_stride, const float *tokens, u64 tokens_stride, u64 rows, u64 width, u64 count) {
	FOR_EACH(i, rows * width) {
		u64 r = divide(i, width), e = i - r * width;
		float sum = 0;
		for (u64 t = 0; t < count; t++) sum = fmaf(weights[r * weights_stride + t], tokens[r * tokens_stride + t * width + e], sum);
		dst[r * dst_stride + e] = sum;
	}
}

KERNEL(weigh_tokens_grad, float *grad_weights, u64 grad_weights_stride, float *grad_tokens, u64 grad_tokens_stride, const float *grad, u64 grad_stride, const float *weights, u64 weights_stride, const float *tokens, u64 tokens_stride, u64 rows, u64 width, u64 count) {
	FOR_EACH_ROW(i, rows * count) {
		u64 r = divide(i, count), t = i - r * count;
		const float *g = grad + r * grad_stride;
		float product = dot(g, tokens + r * tokens_stride + t * width, width), by = weights[r * weights_stride + t];
		float *out = grad_tokens + r * grad_tokens_stride + t * width;
		for (u64 e = LANE; e < width; e += 32) out[e] += by * g[e];
		if (LANE == 0) grad_weights[r * grad_weights_stride + t] = product;
	}
}
