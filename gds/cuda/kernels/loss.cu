// What a model is trained for and judged by. A warp takes a row, whose loss goes to losses[row];
// add_losses adds them up. grad may be null, and so may row_weights, which multiply losses.
#include "common.h"

KERNEL(softmax_cross_entropy, double *losses, float *grad, u64 grad_stride, const float *logits, u64 logits_stride, const float *row_weights, const i32 *labels, const float *weights, u64 rows, u64 classes, float scale, Fault *fault, u64 operation) {
	FOR_EACH_ROW(r, rows) {
		i32 label = labels[r];
		if (LANE == 0) losses[r] = 0;
		if (label >= 0 && (u64)label >= classes) {
			if (LANE == 0) report(fault, operation, LABEL_OUT_OF_RANGE, r, 0, label, (i64)classes);
			continue;
		}
		float *out = grad + r * grad_stride;
		if (label < 0) {
			if (grad) for (u64 j = LANE; j < classes; j += 32) out[j] = 0;
			continue;
		}
		const float *x = logits + r * logits_stride;
		float largest = -INFINITY;
		for (u64 j = LANE; j < classes; j += 32) largest = fmaxf(largest, x[j]);
		largest = warp_max(largest);
		double sum = 0;
		for (u64 j = LANE; j < classes; j += 32) sum += expf(x[j] - largest);
		sum = warp_sum(sum);
		double weight = (weights ? (double)weights[label] : 1) * (row_weights ? row_weights[r] : 1);
		if (LANE == 0) losses[r] = weight * (log(sum) + ((double)largest - (double)x[label]));
		if (!grad) continue;
		float by = (float)(weight * scale), whole = (float)sum;
		for (u64 j = LANE; j < classes; j += 32) {
			float p = expf(x[j] - largest) / whole;
			out[j] = by * (j == (u64)label ? p - 1 : p);
		}
	}
}

KERNEL(sigmoid_cross_entropy, double *losses, float *grad, u64 grad_stride, const float *logits, u64 logits_stride, const float *row_weights, const i8 *labels, u64 labels_stride, u64 rows, u64 cols, float scale, Fault *fault, u64 operation) {
	FOR_EACH_ROW(r, rows) {
		double sum = 0;
		float weight = row_weights ? row_weights[r] : 1, by = weight * scale / (float)cols;
		for (u64 j = LANE; j < cols; j += 32) {
			float z = logits[r * logits_stride + j], g = 0;
			i8 label = labels[r * labels_stride + j];
			if (label > 1) report(fault, operation, LABEL_NOT_BINARY, r, j, label, 1);
			if (label >= 0) {
				float power = expf(-fabsf(z)); // at most one
				sum += (double)(z < 0 ? 0 : z) - (double)z * label + log1pf(power);
				g = by * ((z < 0 ? power : 1) / (1 + power) - label);
			}
			if (grad) grad[r * grad_stride + j] = g;
		}
		sum = warp_sum(sum);
		if (LANE == 0) losses[r] = weight * sum / (double)cols;
	}
}

// squared chooses between the squared and the absolute error.
KERNEL(error_loss, double *losses, float *grad, u64 grad_stride, const float *values, u64 values_stride, const float *row_weights, const float *labels, u64 labels_stride, const float *units, u64 rows, u64 cols, float scale, u32 squared) {
	FOR_EACH_ROW(r, rows) {
		double sum = 0, weight = row_weights ? row_weights[r] : 1;
		for (u64 j = LANE; j < cols; j += 32) {
			double label = labels[r * labels_stride + j], unit = units[j], slope = 0;
			if (label == label) {
				double e = ((double)values[r * values_stride + j] - label) / unit;
				if (squared) {
					sum += e * e;
					slope = 2 * e;
				} else {
					sum += e < 0 ? -e : e;
					slope = e > 0 ? 1 : e < 0 ? -1 : 0;
				}
			}
			if (grad) grad[r * grad_stride + j] = (float)(weight * (double)scale / (double)cols * slope / unit);
		}
		sum = warp_sum(sum);
		if (LANE == 0) losses[r] = weight * sum / (double)cols;
	}
}

// One block of 256 threads: loss += the sum of losses.
KERNEL(add_losses, float *loss, const double *losses, u64 rows) {
	__shared__ double shared[256];
	double sum = 0;
	for (u64 i = threadIdx.x; i < rows; i += 256) sum += losses[i];
	shared[threadIdx.x] = sum;
	for (u32 k = 128; k > 0; k /= 2) {
		__syncthreads();
		if (threadIdx.x < k) shared[threadIdx.x] += shared[threadIdx.x + k];
	}
	if (threadIdx.x == 0) *loss += (float)shared[0];
}

KERNEL(count_correct, u64 *count, const float *logits, u64 logits_stride, const i32 *labels, u64 rows, u64 classes) {
	FOR_EACH_ROW(r, rows) {
		i32 label = labels[r];
		if (label < 0) continue;
		const float *x = logits + r * logits_stride;
		float best = -INFINITY;
		u64 first = ~0ull; // where the best is
		u32 nan = 0;
		for (u64 j = LANE; j < classes; j += 32) {
			float v = x[j];
			if (v != v) nan = 1;
			else if (first == ~0ull || v > best) { best = v; first = j; }
		}
		for (int k = 16; k > 0; k /= 2) {
			float other = __shfl_xor_sync(ALL_LANES, best, k);
			u64 its = __shfl_xor_sync(ALL_LANES, first, k);
			nan |= __shfl_xor_sync(ALL_LANES, nan, k);
			if (its != ~0ull && (first == ~0ull || other > best || (other == best && its < first))) { best = other; first = its; }
		}
		if (LANE != 0) continue;
		if (!nan && first == (u64)label) atomicAdd(&count[0], 1ull);
		atomicAdd(&count[1], 1ull);
	}
}
