// Kernels that move matrices and convert their elements.
#include "common.h"
#include "floats.h"

struct alignas(16) unit16 { u64 lo, hi; }; // moved by one access

// dst[i,:] = src[index[i],:]; rows are cols units, strides count units.
template <class Unit, class Index>
DEVICE void gather(Unit *dst, u64 dst_stride, const Unit *src, u64 src_stride, const Index *index, u64 rows, u64 cols, u64 sources, Fault *fault, u64 operation) {
	FOR_EACH(i, rows * cols) {
		u64 row = divide(i, cols), column = i - row * cols;
		Index from = index[row];
		if ((u64)from >= sources) {
			report(fault, operation, INDEX_OUT_OF_RANGE, row, 0, (i64)from, (i64)sources);
			continue;
		}
		dst[row * dst_stride + column] = src[(u64)from * src_stride + column];
	}
}

#define GATHER(name, Unit, Index) \
	KERNEL(name, Unit *dst, u64 dst_stride, const Unit *src, u64 src_stride, const Index *index, u64 rows, u64 cols, u64 sources, Fault *fault, u64 operation) { \
		gather(dst, dst_stride, src, src_stride, index, rows, cols, sources, fault, operation); \
	}
GATHER(gather_1_by_u32, u8, u32)
GATHER(gather_2_by_u32, u16, u32)
GATHER(gather_4_by_u32, u32, u32)
GATHER(gather_8_by_u32, u64, u32)
GATHER(gather_16_by_u32, unit16, u32)
GATHER(gather_1_by_i64, u8, i64)
GATHER(gather_2_by_i64, u16, i64)
GATHER(gather_4_by_i64, u32, i64)
GATHER(gather_8_by_i64, u64, i64)
GATHER(gather_16_by_i64, unit16, i64)

// dst[index[i],:] = src[i,:], of rows of src.
#define SCATTER(name, Unit) \
	KERNEL(name, Unit *dst, u64 dst_stride, const Unit *src, u64 src_stride, const u32 *index, u64 rows, u64 cols, u64 targets, Fault *fault, u64 operation) { \
		FOR_EACH(i, rows * cols) { \
			u64 row = divide(i, cols), column = i - row * cols, to = index[row]; \
			if (to < targets) dst[to * dst_stride + column] = src[row * src_stride + column]; \
			else report(fault, operation, TARGET_OUT_OF_RANGE, row, 0, (i64)to, (i64)targets); \
		} \
	}
SCATTER(scatter_1, u8)
SCATTER(scatter_2, u16)
SCATTER(scatter_4, u32)
SCATTER(scatter_8, u64)
SCATTER(scatter_16, unit16)

#define CONVERT(name, To, From) \
	KERNEL(name, To::Bits *dst, u64 dst_stride, const From::Bits *src, u64 src_stride, u64 rows, u64 cols) { \
		FOR_EACH(i, rows * cols) dst[place(i, cols, dst_stride)] = To::encode(From::decode(src[place(i, cols, src_stride)])); \
	}
CONVERT(convert_f16_f32, Half, Single)
CONVERT(convert_bf16_f32, Brain, Single)
CONVERT(convert_f32_f16, Single, Half)
CONVERT(convert_f32_bf16, Single, Brain)
CONVERT(convert_bf16_f16, Brain, Half)
CONVERT(convert_f16_bf16, Half, Brain)

#define FILL(name, Unit) \
	KERNEL(name, Unit *dst, u64 dst_stride, u64 rows, u64 cols, Unit value) { \
		FOR_EACH(i, rows * cols) dst[place(i, cols, dst_stride)] = value; \
	}
FILL(fill_1, u8)
FILL(fill_2, u16)
FILL(fill_4, u32)
FILL(fill_8, u64)

// A stream that waits for another takes over what was wrong there up to the event; one thread.
KERNEL(inherit, Fault *to, const Fault *from, u64 before, u64 operation) {
	if (to->operation != 0 || from->operation == 0 || from->operation >= before) return;
	to->operation = operation; to->row = from->row; to->column = from->column; to->value = from->value; to->limit = from->limit;
	__threadfence_system();
	to->what = from->what;
	__threadfence_system();
}
