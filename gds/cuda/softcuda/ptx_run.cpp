// Blocks, warps and lanes of a kernel in a random order, and the checks of what they access.
#include "ptx_warp.h"
#include <algorithm>
#include <cstdio>

namespace ptx {
namespace {
constexpr uintptr_t page = 4096;
constexpr size_t most_resident = 4; // blocks at a time

// Page is the records of a page of memory in a launch.
struct Page { uint64_t launch = 0; std::vector<Record> records; };

// Pages are those of a thread: launches after one another use them again.
struct Pages {
	std::unordered_map<uintptr_t, Page> of;
	std::pair<uintptr_t, Page *> near[256] = {};
	uint64_t launch = 0;

	void begin() {
		launch++;
		if (of.size() < 8192) return;
		of.clear();
		std::fill(near, near + 256, std::pair<uintptr_t, Page *>{});
	}
	Record *records(uintptr_t p, size_t granule) {
		uintptr_t number = p / page;
		auto &[key, found] = near[number % 256];
		if (key != number || !found) key = number, found = &of[number];
		if (found->launch != launch) {
			found->launch = launch;
			found->records.assign(page / granule, Record{});
		}
		return &found->records[p % page / granule];
	}
};
thread_local Pages pages;
} // namespace

struct Run {
	const Kernel &kernel;
	Dim grid, size; // of the grid in blocks, of a block in threads
	const std::vector<uint64_t> &arguments;
	const std::vector<Memory> &memory;
	uint64_t state; // of random numbers
	const Memory *last = nullptr; // that was accessed

	uint32_t random(uint32_t below) {
		state = state * 6364136223846793005ull + 1442695040888963407ull;
		return uint32_t((state >> 33) * below >> 31);
	}
	void all();
};

struct Block {
	Run &run;
	uint32_t x, y, number, barriers = 0;
	std::vector<uint8_t> shared, written;
	std::vector<Record> records;
	std::vector<Warp> warps;

	Block(Run &r, uint32_t number) : run(r), x(number % r.grid.x), y(number / r.grid.x), number(number) {
		const Kernel &k = r.kernel;
		shared.resize(k.shared_bytes), written.resize(k.shared_bytes), records.resize(k.shared_bytes / k.granule + 1);
		unsigned threads = r.size.x * r.size.y;
		warps.reserve((threads + 31) / 32);
		for (unsigned w = 0; 32 * w < threads; w++) warps.emplace_back(*this, w, std::min(32u, threads - 32 * w));
	}
	// Any lane of a block in which none is ready: it waits for ever, unless the block has ended.
	bool turn();
};

Warp::Warp(Block &b, unsigned number, unsigned threads) : block(b), number(number) {
	const Run &r = b.run;
	const Kernel &k = r.kernel;
	values.resize(k.registers * 32), set.resize(k.registers);
	existing = live = ready = threads == 32 ? ~0u : (1u << threads) - 1;
	auto give = [&](uint16_t reg, auto value) {
		set[reg] = ~0u;
		for (unsigned l = 0; l < 32; l++) (*this)[reg][l] = value(l);
	};
	for (auto [reg, value] : k.constants) give(reg, [value = value](unsigned) { return value; });
	for (size_t i = 0; i < k.parameters.size(); i++) give(k.parameters[i], [&](unsigned) { return r.arguments[i]; });
	for (auto &[name, reg] : k.specials)
		give(reg, [&, name = name](unsigned l) -> uint64_t {
			unsigned thread = 32 * this->number + l;
			bool second = name.back() == 'y', third = name.back() == 'z';
			if (name == "%laneid") return l;
			if (name.rfind("%tid", 0) == 0) return third ? 0 : second ? thread / r.size.x : thread % r.size.x;
			if (name.rfind("%ntid", 0) == 0) return third ? 1 : second ? r.size.y : r.size.x;
			if (name.rfind("%ctaid", 0) == 0) return third ? 0 : second ? b.y : b.x;
			return third ? 1 : second ? r.grid.y : r.grid.x;
		});
}

void Warp::fail(const std::string &what, const Instruction &i, int lane) const {
	const Kernel &k = block.run.kernel;
	std::string line = size_t(i.line) < k.lines->size() ? (*k.lines)[size_t(i.line)] : "";
	line.erase(0, line.find_first_not_of("\t "));
	throw Fault{"kernel " + k.name + ", block " + std::to_string(block.number) + ", thread " + std::to_string(32 * number + unsigned(lane)) + ", line " +
		std::to_string(i.line + 1) + " (" + line + "): " + what};
}

void Warp::require(uint16_t r, uint32_t lanes, const Instruction &i) {
	if (uint32_t unset = lanes & ~set[r]) fail("reads a register that was never written", i, __builtin_ctz(unset));
}

namespace {
// is_before tells whether something orders an access before one of now.
bool is_before(const Access &a, const Access &now) {
	if (a.who == Who::nobody) return true;
	if (a.who == Who::grid || a.block != now.block) return false;
	if (a.barriers < now.barriers) return true;
	if (a.who == Who::block || a.thread / 32 != now.thread / 32) return false;
	return a.meetings < now.meetings || (a.who == Who::thread && a.thread == now.thread);
}
// join makes a stand for both: nothing orders them.
void join(Access &a, const Access &b) {
	if (a.block != b.block || a.who == Who::grid) a.who = Who::grid;
	else if (a.thread / 32 != b.thread / 32 || a.who == Who::block) a.who = Who::block;
	else if (a.thread != b.thread) a.who = Who::warp;
	a.barriers = std::max(a.barriers, b.barriers), a.meetings = std::max(a.meetings, b.meetings);
}
std::string name(const Access &a) {
	if (a.who == Who::grid) return "threads of several blocks";
	std::string block = "block " + std::to_string(a.block);
	return a.who == Who::block ? "threads of " + block : a.who == Who::warp ? "threads of warp " + std::to_string(a.thread / 32) + " of " + block :
		"thread " + std::to_string(a.thread) + " of " + block;
}
} // namespace

void *Warp::access(uint64_t address, Kind kind, const void *value, const Instruction &i, int lane) {
	Run &run = block.run;
	size_t n = size_t(i.bytes) * i.count, granule = run.kernel.granule;
	const char *verb = kind == Kind::read ? "reads " : "writes ";
	auto what = [&] {
		char text[64];
		snprintf(text, sizeof text, "%zu bytes at %#llx", n, (unsigned long long)address);
		return verb + std::string(text);
	};
	if (address % n) fail(what() + ", which is not aligned", i, lane);
	uint8_t *at, *written = nullptr;
	Record *records;
	if (address >= shared_window) {
		bool inside = false;
		for (auto &v : run.kernel.shared) inside |= v.start <= address && address + n <= v.start + v.bytes;
		if (!inside || i.space == Space::global) fail(what() + ", outside of shared variables", i, lane);
		size_t offset = address - shared_window;
		at = &block.shared[offset], written = &block.written[offset], records = &block.records[offset / granule];
	} else {
		const Memory *m = run.last;
		if (!m || address < m->start || address + n > m->start + m->bytes) {
			auto next = std::upper_bound(run.memory.begin(), run.memory.end(), address, [](uint64_t a, const Memory &m) { return a < m.start; });
			m = next == run.memory.begin() ? nullptr : &*--next;
			if (!m || address + n > m->start + m->bytes || i.space == Space::shared)
				fail(what() + (m ? ", " + std::to_string(address + n - m->start) + " bytes from the start of memory of " + std::to_string(m->bytes) : ", which is no memory"), i, lane);
			run.last = m;
		}
		at = (uint8_t *)address;
		if (m->written) written = m->written + (address - m->start);
		records = pages.records(address, granule);
	}
	if (written && kind != Kind::write)
		for (size_t b = 0; b < n; b++)
			if (!written[b]) fail(what() + ", which nobody has written", i, lane);
	if (written && kind == Kind::write) memset(written, 1, n);
	// Shared memory and pages are of whole records, and accesses aligned: they do not leave a page.
	Access now = {block.number, block.barriers, meetings, uint16_t(32 * number + unsigned(lane)), Who::thread, kind == Kind::atomic};
	bool same = value && !memcmp(at, value, n);
	for (size_t r = 0; r < (n + granule - 1) / granule; r++) {
		auto &[write, read] = records[r];
		bool after_write = is_before(write, now), after_read = is_before(read, now), both_atomic = write.atomic && now.atomic;
		if (!same && !after_write && !both_atomic) fail(what() + ", a race: " + name(write) + " has written it", i, lane);
		if (kind == Kind::read) {
			if (after_read) read = now;
			else join(read, now);
			continue;
		}
		if (!same && !after_read) fail(what() + ", a race: " + name(read) + " has read it", i, lane);
		if (after_write) write = now;
		else join(write, now), write.atomic = write.atomic && now.atomic;
		if (after_read) read.who = Who::nobody;
	}
	return at;
}

// meet lets lanes that have come to an instruction of the warp wait for the lanes that it names, and then runs it.
void Warp::meet(uint32_t lanes, uint32_t pc, const Instruction &i) {
	uint16_t members = i.from[i.froms - 1];
	meeting |= lanes, ready &= ~lanes;
	uint32_t here = 0, named = uint32_t((*this)[members][__builtin_ctz(lanes)]) & existing;
	each(meeting, [&](int l) { here |= uint32_t(at[l] == pc) << l; });
	each(here, [&](int l) {
		uint32_t its = uint32_t((*this)[members][l]) & existing;
		if (!(its >> l & 1)) fail("the mask of members lacks the lane itself", i, l);
		if (its != named) fail("lanes name different members", i, l);
		if (its & ~live) fail("the mask of members has a lane that has ended: " + std::to_string(__builtin_ctz(its & ~live)), i, l);
	});
	if (here != named) return;
	i.run(*this, i, here);
	for (int r = 0; r < i.tos; r++) set[i.to[r]] |= here;
	each(here, [&](int l) { at[l]++; });
	meeting &= ~here, ready |= here;
	if (i.tos == 0 && here == live) meetings++; // bar.warp.sync, which orders memory; the others do not
}

// step runs at most so many instructions of some of the lanes that are ready.
void Warp::step(unsigned most) {
	Run &run = block.run;
	const auto &code = run.kernel.code;
	while (most > 0 && ready) {
		// Mostly those that are behind, so that lanes come together again.
		uint32_t pc = ~0u, lanes = 0, other = ~0u;
		if (run.random(8)) {
			each(ready, [&](int l) { pc = std::min(pc, at[l]); });
		} else {
			uint32_t left = ready;
			for (uint32_t skip = run.random(uint32_t(__builtin_popcount(ready))); skip > 0; skip--) left &= left - 1;
			pc = at[__builtin_ctz(left)];
		}
		each(ready, [&](int l) {
			if (at[l] == pc) lanes |= 1u << l;
			else if (at[l] > pc) other = std::min(other, at[l]);
		});
		for (bool on = true; on && most > 0;) {
			most--;
			const Instruction &i = code[pc];
			uint32_t now = lanes;
			if (i.guard >= 0) {
				require(uint16_t(i.guard), lanes, i);
				uint64_t *guard = (*this)[uint16_t(i.guard)];
				now = 0;
				each(lanes, [&](int l) { now |= uint32_t((guard[l] != 0) != i.unless) << l; });
			}
			for (int r = 0; r < i.froms; r++) require(i.from[r], now, i);
			switch (i.flow) {
			case Flow::next:
				if (now) i.run(*this, i, now);
				for (int r = 0; r < i.tos; r++) set[i.to[r]] |= now;
				pc++;
				on = pc < other;
				break;
			case Flow::branch:
				if (now == lanes) {
					pc = i.target;
				} else if (now == 0) {
					pc++;
				} else {
					each(now, [&](int l) { at[l] = i.target; });
					lanes &= ~now;
					pc++;
					on = false;
					break;
				}
				on = pc < other;
				break;
			case Flow::end:
				live &= ~now, ready &= ~now, lanes &= ~now;
				pc++;
				on = lanes != 0 && pc < other;
				break;
			default: // where others are waited for
				each(lanes, [&](int l) { at[l] = pc; });
				on = false;
				if (now != lanes) each(lanes & ~now, [&](int l) { at[l] = pc + 1; });
				lanes = 0;
				if (!now) break;
				if (i.flow == Flow::block) waiting |= now, ready &= ~now;
				else meet(now, pc, i);
			}
		}
		each(lanes & live, [&](int l) { at[l] = pc; });
	}
}

bool Block::turn() {
	uint32_t live = 0, waiting = 0, meeting = 0, threads = run.size.x * run.size.y, at = ~0u;
	const Warp *late = nullptr;
	for (auto &w : warps) {
		live += uint32_t(__builtin_popcount(w.live)), waiting += uint32_t(__builtin_popcount(w.waiting)), meeting += uint32_t(__builtin_popcount(w.meeting));
		if (w.ready) return true;
		if (w.waiting || w.meeting) late = &w;
	}
	if (live == 0) return false;
	int lane = __builtin_ctz(late->waiting ? late->waiting : late->meeting);
	const Instruction &i = run.kernel.code[late->at[lane]];
	if (meeting) late->fail("waits for lanes that never come", i, lane);
	if (live < threads) late->fail("waits at a barrier that " + std::to_string(threads - live) + " threads of the block have ended without", i, lane);
	for (auto &w : warps)
		each(w.waiting, [&](int l) {
			if (at != ~0u && w.at[l] != at) w.fail("waits at another barrier than others of the block", run.kernel.code[w.at[l]], l);
			at = w.at[l];
		});
	for (auto &w : warps) {
		each(w.waiting, [&](int l) { w.at[l]++; });
		w.ready = w.waiting, w.waiting = 0;
	}
	barriers++;
	return true;
}

void Run::all() {
	uint64_t blocks = uint64_t(grid.x) * grid.y, begun = 0, first = random(uint32_t(std::min<uint64_t>(blocks, 1u << 30)));
	std::vector<std::unique_ptr<Block>> resident;
	while (begun < blocks || !resident.empty()) {
		while (begun < blocks && resident.size() < most_resident) resident.push_back(std::make_unique<Block>(*this, uint32_t((first + begun++) % blocks)));
		size_t b = random(uint32_t(resident.size()));
		Block &block = *resident[b];
		if (!block.turn()) {
			resident.erase(resident.begin() + long(b));
			continue;
		}
		Warp &w = block.warps[random(uint32_t(block.warps.size()))];
		w.step(1u << random(11));
	}
}

std::string run(const Kernel &k, Dim grid, Dim block, const std::vector<uint64_t> &arguments, const std::vector<Memory> &memory, uint64_t seed) {
	pages.begin();
	Run r{k, grid, block, arguments, memory, seed};
	try {
		r.all();
	} catch (const Fault &f) {
		return f.text;
	}
	return "";
}
} // namespace ptx
