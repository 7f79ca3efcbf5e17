// CRC-32C of memory: gds.ChecksumOps. Bits are coefficients of polynomials over GF(2), the highest bit
// that of 1, as the checksum has them.
#include "common.h"

// multiply multiplies modulo the polynomial of Castagnoli.
DEVICE constexpr u32 multiply(u32 a, u32 b) {
	u32 product = 0;
	for (u32 bit = 0x80000000; bit; bit >>= 1) {
		if (a & bit) product ^= b;
		b = b & 1 ? b >> 1 ^ 0x82f63b78 : b >> 1;
	}
	return product;
}

// power is x to the power of n.
DEVICE constexpr u32 power(u64 n) {
	u32 result = 0x80000000, base = 0x40000000;
	for (; n; n >>= 1) {
		if (n & 1) result = multiply(result, base);
		base = multiply(base, base);
	}
	return result;
}

enum { threads = 256, steps = 32, part_words = threads * steps };

// A thread takes words threads apart: advance multiplies by x^(32 * threads), byte by byte, and halves are
// x^(32 * threads/2), x^(32 * threads/4) ...
struct Tables {
	u32 advance[4][256], halves[8];
	DEVICE_MEMBER constexpr Tables() : advance(), halves() {
		u32 by = power(32 * threads);
		for (int k = 0; k < 4; k++)
			for (int bit = 0; bit < 8; bit++) {
				u32 of_bit = multiply(1u << (8 * k + bit), by);
				for (u32 v = 0; v < 1u << bit; v++) advance[k][1u << bit | v] = advance[k][v] ^ of_bit;
			}
		for (int k = 0; k < 8; k++) halves[k] = power(32 * (threads / 2 >> k));
	}
};
CONSTANT Tables tables = Tables();

// parts[b] is the polynomial of part_words words, of which those of part 0 are the last; words before the
// first are zero.
KERNEL(checksum_parts, u32 *parts, const u8 *src, u64 words) {
	__shared__ u32 advance[4][256], sums[threads];
	u32 t = threadIdx.x;
	for (int k = 0; k < 4; k++) advance[k][t] = tables.advance[k][t];
	__syncthreads();
	bool whole = (u64)src % 4 == 0;
	i64 at = (i64)words - (i64)(blockIdx.x + 1) * part_words + t;
	u32 sum = 0;
	for (int k = 0; k < steps; k++, at += threads) {
		u32 word = 0;
		if (at >= 0 && whole) word = ((const u32 *)src)[at];
		else if (at >= 0) word = src[4 * at] | src[4 * at + 1] << 8 | src[4 * at + 2] << 16 | (u32)src[4 * at + 3] << 24;
		sum = advance[0][sum & 255] ^ advance[1][sum >> 8 & 255] ^ advance[2][sum >> 16 & 255] ^ advance[3][sum >> 24] ^ word;
	}
	sums[t] = sum;
	for (u32 k = 0, half = threads / 2; half > 0; k++, half /= 2) {
		__syncthreads();
		if (t < half) sums[t] = multiply(sums[t], tables.halves[k]) ^ sums[t + half];
	}
	if (t == 0) parts[blockIdx.x] = sums[0];
}

// One thread. state is what the words would leave of the first state, if all were zero; tail are the bytes
// after the last word.
KERNEL(checksum_whole, u32 *dst, const u32 *parts, u64 count, u32 state, const u8 *tail, u64 tail_bytes) {
	constexpr u32 by = power(32ull * part_words), word = power(32);
	u32 sum = 0;
	for (u64 b = count; b > 0; b--) sum = multiply(sum, by) ^ parts[b - 1];
	state ^= multiply(sum, word);
	for (u64 i = 0; i < tail_bytes; i++) {
		state ^= tail[i];
		for (int bit = 0; bit < 8; bit++) state = state & 1 ? state >> 1 ^ 0x82f63b78 : state >> 1;
	}
	*dst = ~state;
}
