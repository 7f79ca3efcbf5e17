// The counter-based random numbers of internal/rng.
#pragma once

// hash_at is rng.At: start is Start(seed), i the place in the stream.
DEVICE u64 hash_at(u64 start, u64 i) {
	u64 x = start + (i + 1) * 0x9e3779b97f4a7c15ull;
	x ^= x >> 30; x *= 0xbf58476d1ce4e5b9ull;
	x ^= x >> 27; x *= 0x94d049bb133111ebull;
	return x ^ x >> 31;
}
