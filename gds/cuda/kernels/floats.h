// The float types that matrices have, and how their numbers become float32 and back.
#pragma once
#include "common.h"

struct Single { typedef float Bits; static DEVICE_MEMBER float decode(float v) { return v; } static DEVICE_MEMBER float encode(float v) { return v; } };
struct Half { typedef u16 Bits; static DEVICE_MEMBER float decode(u16 v) { return half_to_float(v); } static DEVICE_MEMBER u16 encode(float v) { return float_to_half(v); } };
struct Brain { // bfloat16: the upper half of a float
	typedef u16 Bits;
	static DEVICE_MEMBER float decode(u16 v) { return __uint_as_float((u32)v << 16); }
	static DEVICE_MEMBER u16 encode(float v) {
		u32 bits = __float_as_uint(v);
		if ((bits & 0x7fffffff) > 0x7f800000) return (u16)(bits >> 16 | 0x40);
		return (u16)((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
	}
};

// Numbers are V numbers side by side, which are read and written by one access.
template <class T, int V> struct alignas(sizeof(T) * V) Numbers { T at[V]; };
