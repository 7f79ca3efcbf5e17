// A warp that runs a kernel, and the memory that it sees: for the files of ptx.h.
#pragma once
#include "ptx.h"
#include <cstring>
#include <type_traits>

namespace ptx {

struct Block;

// Fault is what a kernel does that a GPU would leave undefined.
struct Fault { std::string text; };

// Access is who has accessed a place: in which block, after how many barriers of it, by which thread, after how many of
// its warp. Where several have that nothing orders, who says how far apart they are.
enum class Who : uint8_t { nobody, thread, warp, block, grid };
struct Access { uint32_t block, barriers, meetings; uint16_t thread; Who who; bool atomic; };
struct Record { Access write, read; };

enum class Kind { read, write, atomic };

struct Warp {
	Block &block;
	unsigned number; // in the block
	std::vector<uint64_t> values; // of 32 lanes for each register
	std::vector<uint32_t> set;    // which lanes of a register were ever written
	uint32_t at[32] = {}, existing = 0, live = 0, ready = 0, meeting = 0, waiting = 0; // lanes; waiting: at a barrier of the block
	uint32_t meetings = 0;

	Warp(Block &b, unsigned number, unsigned threads);
	uint64_t *operator[](uint16_t r) { return &values[size_t(r) * 32]; }
	void require(uint16_t r, uint32_t lanes, const Instruction &i);
	// access checks an access of a lane, and returns where the bytes are. value is what is written, or null.
	void *access(uint64_t address, Kind kind, const void *value, const Instruction &i, int lane);
	[[noreturn]] void fail(const std::string &what, const Instruction &i, int lane) const;
	void step(unsigned most);
private:
	void meet(uint32_t lanes, uint32_t pc, const Instruction &i);
};

template <class F> inline void each(uint32_t lanes, F f) {
	if (lanes == ~0u)
		for (int l = 0; l < 32; l++) f(l);
	else
		for (; lanes; lanes &= lanes - 1) f(__builtin_ctz(lanes));
}
template <class T> inline T as(uint64_t v) {
	if constexpr (std::is_same_v<T, bool>) return v & 1; // true is also written as -1
	T t;
	memcpy(&t, &v, sizeof t);
	return t;
}
template <class T> inline uint64_t raw(T v) { uint64_t r = 0; memcpy(&r, &v, sizeof v); return r; }

} // namespace ptx
