// Products of a sparse matrix with features: gds.PropagationOps.
#include "sums.h"

#define PRODUCT(From) \
	void *dst, const From::Bits *src, const i64 *starts, const i64 *ends, const u32 *nodes, u64 terms, const float *weights, const float *node_factors, \
	const float *row_factors, const void *blend, float factor, float theta, u64 rows, u64 cols, u64 sources, u32 types, u64 *not_finite, Fault *fault, \
	u64 operation

enum { IS_FLOAT32, IS_FLOAT16, IS_BFLOAT16 };

template <class Type> struct Product {
	typedef Type From;
	void *dst;
	const typename From::Bits *src;
	const i64 *starts, *ends;
	const u32 *nodes;
	u64 terms;
	const float *weights, *node_factors, *row_factors;
	const void *blend;
	float factor, theta;
	u64 rows, cols, stride, sources;
	u32 types; // of dst, and from bit 8 on of blend
	u64 *not_finite;
	Fault *fault;
	u64 operation;

	DEVICE_MEMBER bool list(u64 row, u64, u64 &e, u64 &end) const {
		e = (u64)starts[row], end = (u64)ends[row];
		if (e <= end && end <= terms) return true; // below 0, they are large
		report(fault, operation, OFFSETS_DESCEND | 4 << 8, row, 0, (i64)e, (i64)end);
		return false;
	}

	DEVICE_MEMBER u32 source(u64 e) const { return nodes[e]; }
	DEVICE_MEMBER bool is_source(u64 e, u32 u) const {
		if (u < sources) return true;
		report(fault, operation, NO_SUCH_SOURCE | 4 << 8, e, 0, u, (i64)sources);
		return false;
	}

	DEVICE_MEMBER float coefficient(u64 e, u32 u) const {
		float c = weights ? weights[e] : 1;
		return node_factors ? c * node_factors[u] : c;
	}

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
};

#define PROPAGATE(name, From) \
	SUMS(name, Product<From>, PRODUCT(From), dst, src, starts, ends, nodes, terms, weights, node_factors, row_factors, blend, factor, theta, rows, cols, cols, \
		sources, types, not_finite, fault, operation)
PROPAGATE(propagate_f32, Single)
PROPAGATE(propagate_f16, Half)
PROPAGATE(propagate_bf16, Brain)
