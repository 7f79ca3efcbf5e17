// Runs CUDA kernels on the processor, for tests. A thread of a block runs as a plain function until
// it comes to a barrier, and then on as a fiber with a stack of its own, so that barriers and warp
// shuffles work. Blocks run one after another: races between them are not found. A barrier that not
// every thread reaches ends the process with a message.
//
// Restrictions: parameters of at most 8 bytes, static shared memory, at most 1024 threads a block,
// shuffles of all lanes.
#pragma once
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <sys/mman.h>
#include <unordered_map>
#include <utility>
#include <vector>

#define __shared__ static thread_local
#define DEVICE static inline
#define DEVICE_MEMBER inline
#define CONSTANT static const

namespace shim {
struct Dim { unsigned x = 1, y = 1, z = 1; };

typedef void (*Entry)(void **);
struct Kernel { Entry entry; std::vector<uint64_t> (*copy)(void **); };
inline std::unordered_map<std::string, Kernel> &kernels() { static std::unordered_map<std::string, Kernel> k; return k; }
inline int add(const char *name, Kernel k) { kernels()[name] = k; return 0; }

template <auto F> struct Thunk;
template <class... A, void (*F)(A...)> struct Thunk<F> {
	static_assert(((sizeof(A) <= 8) && ...));
	template <size_t... I> static void call(void **p, std::index_sequence<I...>) { F(*(A *)p[I]...); }
	static void run(void **p) { call(p, std::index_sequence_for<A...>()); }
	static std::vector<uint64_t> copy(void **p) { // each argument in 8 bytes of its own
		std::vector<uint64_t> v(sizeof...(A));
		size_t sizes[] = {sizeof(A)..., 0};
		for (size_t i = 0; i < v.size(); i++) memcpy(&v[i], p[i], sizes[i]);
		return v;
	}
};

enum State { ready, at_warp, at_block, done };
struct Thread { void *sp; State state; Dim at; uint64_t slots[2] = {}; int turn = 0; };

constexpr size_t stack_bytes = 64 << 10;

// Group is the block that a stream runs.
struct Group {
	std::vector<Thread> threads;
	char *stacks = nullptr;
	size_t stacks_mapped = 0, started = 0, live = 0;
	bool backwards = false;
	void *home = nullptr; // the scheduler's stack pointer
	Thread *now = nullptr;
	Entry entry;
	void **args;
	Dim block, grid, index;
	~Group() { if (stacks) munmap(stacks, stacks_mapped * stack_bytes); }
	size_t number(size_t k) const { return backwards ? threads.size() - 1 - k : k; }
};
inline thread_local Group *group;

extern "C" void shim_switch(void **save, void *to);

inline void yield(State s) {
	Thread *t = group->now;
	t->state = s;
	shim_switch(&t->sp, group->home);
}

// body runs threads that have not started, on one stack, until one of them waits; when that goes
// on, and ends, and all have started, it returns to the scheduler for good.
inline void body() {
	Group &g = *group;
	while (g.started < g.threads.size()) {
		size_t i = g.number(g.started++);
		g.now = &g.threads[i];
		*g.now = Thread{nullptr, ready, {unsigned(i % g.block.x), unsigned(i / g.block.x % g.block.y), unsigned(i / g.block.x / g.block.y)}};
		g.entry(g.args);
		g.now->state = done;
		g.live--;
	}
	void *nowhere;
	shim_switch(&nowhere, g.home);
	abort();
}

inline void run_block(Group &g) {
	size_t n = g.threads.size(), stacks = 0;
	g.started = 0;
	g.live = n;
	while (g.started < n) {
		stacks++;
		void **sp = (void **)(g.stacks + stacks * stack_bytes - 136 - stacks % 64 * 64); // as if body had been called
		sp[0] = nullptr;
		*--sp = (void *)body;
		shim_switch(&g.home, sp - 6); // below are the registers that it restores
	}
	while (g.live) {
		size_t waiting = 0, progress = 0;
		for (size_t w = 0; w < n; w += 32) { // warps whose live lanes have all come
			size_t end = w + 32 < n ? w + 32 : n, come = 0, alive = 0;
			for (size_t i = w; i < end; i++) come += g.threads[i].state == at_warp, alive += g.threads[i].state != done;
			if (come && come == alive)
				for (size_t i = w; i < end; i++) if (g.threads[i].state == at_warp) g.threads[i].state = ready;
		}
		for (Thread &t : g.threads) waiting += t.state == at_block;
		if (waiting && waiting == g.live) for (Thread &t : g.threads) if (t.state == at_block) t.state = ready;
		for (size_t k = 0; k < n; k++) {
			Thread &t = g.threads[g.number(k)];
			if (t.state != ready) continue;
			g.now = &t;
			shim_switch(&g.home, t.sp);
			progress++;
		}
		if (!progress) {
			fprintf(stderr, "softcuda: a barrier that some threads of the block never reach\n");
			abort();
		}
	}
}

// launch runs a kernel. Every other launch runs the threads of a block backwards, so that a missing
// barrier shows in one of two.
inline void launch(Entry entry, Dim grid, Dim block, void **args) {
	static thread_local Group g;
	size_t n = size_t(block.x) * block.y * block.z;
	if (n > g.stacks_mapped) {
		if (g.stacks) munmap(g.stacks, g.stacks_mapped * stack_bytes);
		g.stacks = (char *)mmap(nullptr, n * stack_bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
		if (g.stacks == MAP_FAILED) abort();
		g.stacks_mapped = n;
	}
	g.threads.resize(n);
	g.entry = entry; g.args = args; g.block = block; g.grid = grid; g.backwards = !g.backwards;
	group = &g;
	for (unsigned z = 0; z < grid.z; z++)
		for (unsigned y = 0; y < grid.y; y++)
			for (unsigned x = 0; x < grid.x; x++) { g.index = {x, y, z}; run_block(g); }
}

// offer shows a value to the lanes of the warp, once all have come. Two slots of each lane take turns: a lane cannot
// come twice more, and overwrite the first, before all have come once more, and have read it.
inline int offer(const void *v, size_t bytes) {
	Thread *t = group->now;
	int turn = t->turn ^= 1;
	memcpy(&t->slots[turn], v, bytes);
	yield(at_warp);
	return turn;
}
// shuffle gives the value of a lane of the warp, or one's own if there is no such lane.
template <class T> T shuffle(T v, int from) {
	static_assert(sizeof(T) <= 8);
	Group *g = group;
	size_t warp = (g->now - g->threads.data()) & ~size_t(31);
	int turn = offer(&v, sizeof v);
	if (from >= 0 && from < 32 && warp + from < g->threads.size()) memcpy(&v, &g->threads[warp + from].slots[turn], sizeof v);
	return v;
}
// ballot has a bit for each lane of the warp: its condition.
inline unsigned ballot(bool v) {
	Group *g = group;
	size_t warp = (g->now - g->threads.data()) & ~size_t(31);
	uint64_t condition = v;
	int turn = offer(&condition, sizeof condition);
	unsigned bits = 0;
	for (size_t i = 0; i < 32 && warp + i < g->threads.size(); i++) bits |= unsigned(g->threads[warp + i].slots[turn] != 0) << i;
	return bits;
}
inline int lane() { return int(group->now - group->threads.data()) & 31; }
template <class To, class From> To bits(From v) { static_assert(sizeof(To) == sizeof v); To t; memcpy(&t, &v, sizeof t); return t; }
} // namespace shim

#define threadIdx (shim::group->now->at)
#define blockIdx (shim::group->index)
#define blockDim (shim::group->block)
#define gridDim (shim::group->grid)
#define __syncthreads() shim::yield(shim::at_block)
#define __syncwarp() shim::yield(shim::at_warp)
#define __shfl_xor_sync(mask, v, k) shim::shuffle(v, shim::lane() ^ int(k))
#define __ballot_sync(mask, v) shim::ballot(v)
#define __threadfence_system() __atomic_thread_fence(__ATOMIC_SEQ_CST)
#define __uint_as_float(v) shim::bits<float>(v)
#define __float_as_uint(v) shim::bits<unsigned>(v)

inline unsigned long long atomicCAS(unsigned long long *p, unsigned long long expected, unsigned long long v) {
	__atomic_compare_exchange_n(p, &expected, v, false, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST);
	return expected;
}
inline unsigned long long atomicAdd(unsigned long long *p, unsigned long long v) { return __atomic_fetch_add(p, v, __ATOMIC_RELAXED); }
inline unsigned atomicAdd(unsigned *p, unsigned v) { return __atomic_fetch_add(p, v, __ATOMIC_RELAXED); }

inline unsigned long long atomicMin(unsigned long long *p, unsigned long long v) {
	unsigned long long before = __atomic_load_n(p, __ATOMIC_RELAXED);
	while (v < before && !__atomic_compare_exchange_n(p, &before, v, false, __ATOMIC_RELAXED, __ATOMIC_RELAXED)) {}
	return before;
}
inline unsigned long long __umul64hi(unsigned long long a, unsigned long long b) { return (unsigned long long)((unsigned __int128)a * b >> 64); }
inline int __popc(unsigned v) { return __builtin_popcount(v); }

inline float half_to_float(unsigned short h) { return shim::bits<_Float16>(h); }
inline unsigned short float_to_half(float f) { return shim::bits<unsigned short>(_Float16(f)); }

#define KERNEL(name, ...) \
	extern "C" void name(__VA_ARGS__); \
	static const int shim_add_##name = shim::add(#name, {&shim::Thunk<&name>::run, &shim::Thunk<&name>::copy}); \
	extern "C" void name(__VA_ARGS__)
