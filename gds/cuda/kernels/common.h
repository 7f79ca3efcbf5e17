// What all kernels share. A kernel is plain C++ but for the few names here, so that the same source
// is compiled to PTX for GPUs and, with softcuda/shim.h, for the processor, in tests.
//
// Matrices are a pointer and a stride in elements. Parameters are of at most 8 bytes. Sums run in
// an order that depends on shapes alone. Products are fused with sums only where a kernel says
// fmaf: everything is compiled with --fmad=false.
#pragma once

typedef unsigned char u8;
typedef signed char i8;
typedef unsigned short u16;
typedef unsigned int u32;
typedef int i32;
typedef unsigned long long u64;
typedef long long i64;

#ifdef HOPFEED_SHIM
#include "shim.h"
#else
#define KERNEL(name, ...) extern "C" __global__ void name(__VA_ARGS__)
#define DEVICE static __device__ __forceinline__
#define DEVICE_MEMBER __device__ __forceinline__
#define CONSTANT static __device__ const
#define INFINITY __int_as_float(0x7f800000)
DEVICE float half_to_float(u16 h) { float f; asm("cvt.f32.f16 %0, %1;" : "=f"(f) : "h"(h)); return f; }
DEVICE u16 float_to_half(float f) { u16 h; asm("cvt.rn.f16.f32 %0, %1;" : "=h"(h) : "f"(f)); return h; }
#endif

// Each thread takes elements threads apart.
#define FOR_EACH(i, n) for (u64 i = (u64)blockIdx.x * blockDim.x + threadIdx.x, all_##i = (n); i < all_##i; i += (u64)gridDim.x * blockDim.x)

// Each warp takes rows warps apart; blocks are of whole warps.
#define FOR_EACH_ROW(i, n) for (u64 i = ((u64)blockIdx.x * blockDim.x + threadIdx.x) / 32, all_##i = (n); i < all_##i; i += (u64)gridDim.x * blockDim.x / 32)
#define LANE (threadIdx.x % 32)
#define LANES_BELOW ((1u << LANE) - 1)
#define ALL_LANES 0xffffffffu

// divide returns i / by; most numbers are of 32 bits, whose division is several times faster.
DEVICE u64 divide(u64 i, u64 by) { return (i | by) >> 32 ? i / by : (u32)i / (u32)by; }

// place is where element i, counted row by row, lies in a matrix.
DEVICE u64 place(u64 i, u64 cols, u64 stride) {
	if (cols == stride) return i;
	u64 row = divide(i, cols);
	return row * stride + (i - row * cols);
}

// Sums, and so on, of a value of each lane; all lanes get the same bits.
DEVICE float warp_sum(float v) { for (int k = 16; k > 0; k /= 2) v += __shfl_xor_sync(ALL_LANES, v, k); return v; }
DEVICE double warp_sum(double v) { for (int k = 16; k > 0; k /= 2) v += __shfl_xor_sync(ALL_LANES, v, k); return v; }
DEVICE float warp_max(float v) { for (int k = 16; k > 0; k /= 2) v = fmaxf(v, __shfl_xor_sync(ALL_LANES, v, k)); return v; }

// Fault is what a kernel found wrong with the values that it was given: the first on its stream.
// It is pinned host memory; fault.go reads it.
struct Fault { u64 operation; u32 what, reserved; u64 row; i64 value, limit; u64 column; };

enum { INDEX_OUT_OF_RANGE = 1, LABEL_OUT_OF_RANGE, LABEL_NOT_BINARY, OFFSETS_DESCEND, NO_SUCH_SOURCE, TARGET_OUT_OF_RANGE, NO_SUCH_NODE, OTHER_COUNTS };

DEVICE void report(Fault *f, u64 operation, u32 what, u64 row, u64 column, i64 value, i64 limit) {
	if (atomicCAS(&f->operation, 0ull, operation) != 0) return;
	f->row = row; f->column = column; f->value = value; f->limit = limit;
	__threadfence_system();
	f->what = what; // last: the host then reads the rest
	__threadfence_system();
}
