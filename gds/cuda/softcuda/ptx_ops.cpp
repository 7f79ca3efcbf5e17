// What each instruction of PTX does to the lanes of a warp.
#include "ptx_warp.h"
#include <algorithm>
#include <cfenv>
#include <cmath>
#include <limits>
#include <type_traits>

namespace ptx {
namespace {
typedef std::unordered_map<std::string, Handler> Table;

template <class T, auto F> void unary(Warp &w, const Instruction &i, uint32_t lanes) {
	auto *to = w[i.to[0]], *a = w[i.from[0]];
	each(lanes, [&](int l) { to[l] = raw(F(as<T>(a[l]))); });
}
template <class T, auto F> void binary(Warp &w, const Instruction &i, uint32_t lanes) {
	auto *to = w[i.to[0]], *a = w[i.from[0]], *b = w[i.from[1]];
	each(lanes, [&](int l) { to[l] = raw(F(as<T>(a[l]), as<T>(b[l]))); });
}
template <class T, auto F> void ternary(Warp &w, const Instruction &i, uint32_t lanes) {
	auto *to = w[i.to[0]], *a = w[i.from[0]], *b = w[i.from[1]], *c = w[i.from[2]];
	each(lanes, [&](int l) { to[l] = raw(F(as<T>(a[l]), as<T>(b[l]), as<T>(c[l]))); });
}
template <class T, auto F> void shift(Warp &w, const Instruction &i, uint32_t lanes) { // by 32 bits
	auto *to = w[i.to[0]], *a = w[i.from[0]], *b = w[i.from[1]];
	each(lanes, [&](int l) { to[l] = raw(F(as<T>(a[l]), as<uint32_t>(b[l]))); });
}

void move(Warp &w, const Instruction &i, uint32_t lanes) {
	auto *to = w[i.to[0]], *a = w[i.from[0]];
	each(lanes, [&](int l) { to[l] = a[l]; });
}
// move_parts moves 64 bits from or to two registers of 32.
void move_parts(Warp &w, const Instruction &i, uint32_t lanes) {
	each(lanes, [&](int l) {
		if (i.tos == 2) {
			uint64_t v = w[i.from[0]][l];
			w[i.to[0]][l] = uint32_t(v);
			w[i.to[1]][l] = v >> 32;
		} else {
			w[i.to[0]][l] = uint32_t(w[i.from[0]][l]) | w[i.from[1]][l] << 32;
		}
	});
}
void select(Warp &w, const Instruction &i, uint32_t lanes) {
	auto *to = w[i.to[0]], *a = w[i.from[0]], *b = w[i.from[1]], *c = w[i.from[2]];
	each(lanes, [&](int l) { to[l] = c[l] ? a[l] : b[l]; });
}
void permute(Warp &w, const Instruction &i, uint32_t lanes) {
	auto *to = w[i.to[0]], *a = w[i.from[0]], *b = w[i.from[1]], *c = w[i.from[2]];
	each(lanes, [&](int l) {
		uint64_t bytes = uint32_t(a[l]) | b[l] << 32, out = 0;
		for (int k = 0; k < 4; k++) {
			uint64_t by = c[l] >> (4 * k) & 15, byte = bytes >> (8 * (by & 7)) & 255;
			if (by & 8) byte = byte & 128 ? 255 : 0;
			out |= byte << (8 * k);
		}
		to[l] = out;
	});
}

template <class To, class From> void convert(Warp &w, const Instruction &i, uint32_t lanes) {
	unary<From, [](From v) { return To(v); }>(w, i, lanes);
}
// toward computes with another direction of rounding.
template <int Direction, class F> float toward(F f) {
	int before = fegetround();
	fesetround(Direction);
	volatile float r = f();
	fesetround(before);
	return r;
}
template <class T> T largest(T a, T b) { return std::isnan(a) ? b : std::isnan(b) ? a : a == b ? (std::signbit(a) ? b : a) : std::max(a, b); }
template <class T> T least(T a, T b) { return std::isnan(a) ? b : std::isnan(b) ? a : a == b ? (std::signbit(a) ? a : b) : std::min(a, b); }

void load(Warp &w, const Instruction &i, uint32_t lanes) {
	each(lanes, [&](int l) {
		auto *p = (const uint8_t *)w.access(w[i.from[0]][l] + i.offset, Kind::read, nullptr, i, l);
		for (int k = 0; k < i.count; k++, p += i.bytes) {
			uint64_t v = 0;
			memcpy(&v, p, i.bytes);
			if (i.is_signed && i.bytes < 8) v = uint64_t(int64_t(v << (64 - 8 * i.bytes)) >> (64 - 8 * i.bytes));
			w[i.to[k]][l] = v;
		}
	});
}
void store(Warp &w, const Instruction &i, uint32_t lanes) {
	each(lanes, [&](int l) {
		uint8_t value[32];
		for (int k = 0; k < i.count; k++) memcpy(value + k * i.bytes, &w[i.from[1 + k]][l], i.bytes);
		memcpy(w.access(w[i.from[0]][l] + i.offset, Kind::write, value, i, l), value, i.bytes * i.count);
	});
}
template <class T, auto F> void atomic(Warp &w, const Instruction &i, uint32_t lanes) {
	each(lanes, [&](int l) {
		auto *p = (T *)w.access(w[i.from[0]][l] + i.offset, Kind::atomic, nullptr, i, l);
		T a = as<T>(w[i.from[1]][l]), b = i.froms > 2 ? as<T>(w[i.from[2]][l]) : 0, before = __atomic_load_n(p, __ATOMIC_SEQ_CST);
		while (!__atomic_compare_exchange_n(p, &before, F(before, a, b), false, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST)) {}
		w[i.to[0]][l] = before;
	});
}

// Where a warp meets; all lanes of the mask are there. shfl.sync.bfly value, lane mask, clamp and segments, members.
void butterfly(Warp &w, const Instruction &i, uint32_t lanes) {
	uint64_t before[32];
	memcpy(before, w[i.from[0]], sizeof before);
	each(lanes, [&](int l) {
		int from = l ^ int(w[i.from[1]][l]), clamp = int(w[i.from[2]][l]) & 31, segments = int(w[i.from[2]][l]) >> 8 & 31;
		bool inside = from <= ((l & segments) | (clamp & ~segments));
		if (inside && !(lanes >> from & 1)) w.fail("reads a lane that is not there: " + std::to_string(from), i, l);
		w[i.to[0]][l] = before[inside ? from : l];
		if (i.tos > 1) w[i.to[1]][l] = inside;
	});
}
void ballot(Warp &w, const Instruction &i, uint32_t lanes) {
	uint32_t all = 0;
	each(lanes, [&](int l) { all |= uint32_t(w[i.from[0]][l] != 0) << l; });
	each(lanes, [&](int l) { w[i.to[0]][l] = all; });
}
void meet(Warp &, const Instruction &, uint32_t) {}

template <class T> void comparisons(Table &t, const std::string &type) {
	t["setp.eq." + type] = binary<T, [](T a, T b) { return a == b; }>;
	t["setp.ne." + type] = binary<T, [](T a, T b) { return a == a && b == b && a != b; }>;
	t["setp.lt." + type] = binary<T, [](T a, T b) { return a < b; }>;
	t["setp.le." + type] = binary<T, [](T a, T b) { return a <= b; }>;
	t["setp.gt." + type] = binary<T, [](T a, T b) { return (a > b); }>;
	t["setp.ge." + type] = binary<T, [](T a, T b) { return a >= b; }>;
}
template <class T> void integers(Table &t, const std::string &type) {
	typedef std::make_unsigned_t<T> U;
	comparisons<T>(t, type);
	t["add." + type] = binary<U, [](U a, U b) { return U(a + b); }>;
	t["sub." + type] = binary<U, [](U a, U b) { return U(a - b); }>;
	t["mul.lo." + type] = binary<U, [](U a, U b) { return U(uint64_t(a) * b); }>;
	t["mad.lo." + type] = ternary<U, [](U a, U b, U c) { return U(uint64_t(a) * b + c); }>;
	t["neg." + type] = unary<U, [](U a) { return U(-a); }>;
	t["min." + type] = binary<T, [](T a, T b) { return std::min(a, b); }>;
	t["max." + type] = binary<T, [](T a, T b) { return std::max(a, b); }>;
	t["div." + type] = binary<T, [](T a, T b) { return b == 0 ? T(-1) : std::is_signed_v<T> && b == T(-1) ? T(U(-U(a))) : T(a / b); }>;
	t["rem." + type] = binary<T, [](T a, T b) { return b == 0 ? a : std::is_signed_v<T> && b == T(-1) ? T(0) : T(a % b); }>;
	t["shr." + type] = shift<T, [](T a, uint32_t n) { return n < 8 * sizeof a ? T(a >> n) : T(a < 0 ? -1 : 0); }>;
}
template <class T> void bits(Table &t, const std::string &type) {
	t["and." + type] = binary<T, [](T a, T b) { return T(a & b); }>;
	t["or." + type] = binary<T, [](T a, T b) { return T(a | b); }>;
	t["xor." + type] = binary<T, [](T a, T b) { return T(a ^ b); }>;
	t["not." + type] = unary<T, [](T a) {
		if constexpr (std::is_same_v<T, bool>) return !a;
		else return T(~a);
	}>;
}
template <class T> void words(Table &t, const std::string &type) {
	bits<T>(t, type);
	t["setp.eq." + type] = binary<T, [](T a, T b) { return a == b; }>;
	t["setp.ne." + type] = binary<T, [](T a, T b) { return a != b; }>;
	t["shl." + type] = shift<T, [](T a, uint32_t n) { return n < 8 * sizeof a ? T(a << n) : T(0); }>;
	t["atom.cas." + type] = atomic<T, [](T before, T a, T b) { return before == a ? b : before; }>;
	t["atom.exch." + type] = atomic<T, [](T, T a, T) { return a; }>;
}
template <class T> void atomics(Table &t, const std::string &type) {
	t["atom.add." + type] = atomic<T, [](T before, T a, T) { return T(before + a); }>;
	t["atom.min." + type] = atomic<T, [](T before, T a, T) { return std::min(before, a); }>;
	t["atom.max." + type] = atomic<T, [](T before, T a, T) { return std::max(before, a); }>;
}
template <class T> void floats(Table &t, const std::string &type) {
	comparisons<T>(t, type);
	t["setp.leu." + type] = binary<T, [](T a, T b) { return !(a > b); }>;
	t["setp.ltu." + type] = binary<T, [](T a, T b) { return !(a >= b); }>;
	t["setp.geu." + type] = binary<T, [](T a, T b) { return !(a < b); }>;
	t["setp.gtu." + type] = binary<T, [](T a, T b) { return !(a <= b); }>;
	t["setp.neu." + type] = binary<T, [](T a, T b) { return a != b; }>;
	t["setp.equ." + type] = binary<T, [](T a, T b) { return !(a < b || a > b); }>;
	t["setp.nan." + type] = binary<T, [](T a, T b) { return a != a || b != b; }>;
	t["setp.num." + type] = binary<T, [](T a, T b) { return a == a && b == b; }>;
	t["add.rn." + type] = binary<T, [](T a, T b) { return a + b; }>;
	t["sub.rn." + type] = binary<T, [](T a, T b) { return a - b; }>;
	t["mul.rn." + type] = binary<T, [](T a, T b) { return a * b; }>;
	t["div.rn." + type] = binary<T, [](T a, T b) { return a / b; }>;
	t["rcp.rn." + type] = unary<T, [](T a) { return 1 / a; }>;
	t["sqrt.rn." + type] = unary<T, [](T a) { return std::sqrt(a); }>;
	t["fma.rn." + type] = ternary<T, [](T a, T b, T c) { return std::fma(a, b, c); }>;
	t["neg." + type] = unary<T, [](T a) { return -a; }>;
	t["abs." + type] = unary<T, [](T a) { return std::fabs(a); }>;
	t["max." + type] = binary<T, [](T a, T b) { return largest(a, b); }>;
	t["min." + type] = binary<T, [](T a, T b) { return least(a, b); }>;
}
template <class To> void converts_to(Table &t, const std::string &to) {
	std::string c = "cvt." + to + ".", rounded = "cvt.rn." + to + ".";
	t[c + "u8"] = convert<To, uint8_t>, t[c + "s8"] = convert<To, int8_t>;
	t[c + "u16"] = convert<To, uint16_t>, t[c + "s16"] = convert<To, int16_t>;
	t[c + "u32"] = convert<To, uint32_t>, t[c + "s32"] = convert<To, int32_t>;
	t[c + "u64"] = convert<To, uint64_t>, t[c + "s64"] = convert<To, int64_t>;
	if constexpr (std::is_floating_point_v<To>) {
		for (const char *from : {"u16", "s16", "u32", "s32", "u64", "s64"}) t[rounded + from] = t[c + from], t.erase(c + from);
	}
}

Table build() {
	Table t;
	integers<uint16_t>(t, "u16"), integers<int16_t>(t, "s16");
	integers<uint32_t>(t, "u32"), integers<int32_t>(t, "s32");
	integers<uint64_t>(t, "u64"), integers<int64_t>(t, "s64");
	words<uint16_t>(t, "b16"), words<uint32_t>(t, "b32"), words<uint64_t>(t, "b64");
	bits<bool>(t, "pred");
	atomics<uint32_t>(t, "u32"), atomics<int32_t>(t, "s32"), atomics<uint64_t>(t, "u64"), atomics<int64_t>(t, "s64");
	floats<float>(t, "f32"), floats<double>(t, "f64");
	for (const char *type : {"pred", "b16", "b32", "b64", "u16", "u32", "u64", "s16", "s32", "s64", "f32", "f64"}) {
		t[std::string("mov.") + type] = move;
		t[std::string("selp.") + type] = select;
	}
	t["mov"] = t["cvta.to.global.u64"] = t["cvta.global.u64"] = t["cvta.shared.u64"] = t["cvta.to.shared.u64"] = move;
	t["mov.parts"] = move_parts;
	t["prmt.b32"] = permute;
	t["mul.hi.u64"] = binary<uint64_t, [](uint64_t a, uint64_t b) { return uint64_t((unsigned __int128)a * b >> 64); }>;
	t["mul.hi.u32"] = binary<uint32_t, [](uint32_t a, uint32_t b) { return uint32_t(uint64_t(a) * b >> 32); }>;
	t["mul.wide.u32"] = binary<uint32_t, [](uint32_t a, uint32_t b) { return uint64_t(a) * b; }>;
	t["mul.wide.s32"] = binary<int32_t, [](int32_t a, int32_t b) { return int64_t(a) * b; }>;
	t["mul.wide.u16"] = binary<uint16_t, [](uint16_t a, uint16_t b) { return uint32_t(a) * b; }>;
	t["popc.b32"] = unary<uint32_t, [](uint32_t a) { return uint32_t(__builtin_popcount(a)); }>;
	t["clz.b32"] = unary<uint32_t, [](uint32_t a) { return uint32_t(a ? __builtin_clz(a) : 32); }>;
	converts_to<uint16_t>(t, "u16"), converts_to<int16_t>(t, "s16");
	converts_to<uint32_t>(t, "u32"), converts_to<int32_t>(t, "s32");
	converts_to<uint64_t>(t, "u64"), converts_to<int64_t>(t, "s64");
	converts_to<float>(t, "f32"), converts_to<double>(t, "f64");
	t["cvt.f64.f32"] = convert<double, float>;
	t["cvt.rn.f32.f64"] = convert<float, double>;
	t["cvt.f32.f16"] = unary<_Float16, [](_Float16 v) { return float(v); }>;
	t["cvt.rn.f16.f32"] = unary<float, [](float v) { return _Float16(v); }>;
	t["cvt.sat.f32.f32"] = unary<float, [](float v) { return (v > 0) ? std::min(v, 1.0f) : 0.0f; }>; // and NaN is 0
	t["fma.rm.f32"] = ternary<float, [](float a, float b, float c) { return toward<FE_DOWNWARD>([=] { volatile float x = a; return std::fma(float(x), b, c); }); }>;
	t["add.rz.f32"] = binary<float, [](float a, float b) { return toward<FE_TOWARDZERO>([=] { volatile float x = a; return float(x) + b; }); }>;
	// Those that are not exact on GPUs have errors of a few units in the last place there, and less here.
	t["ex2.approx.ftz.f32"] = unary<float, [](float v) {
		float r = float(std::exp2(double(v)));
		return std::fabs(r) < std::numeric_limits<float>::min() ? 0.0f : r;
	}>;
	t["lg2.approx.f32"] = unary<float, [](float v) { return float(std::log2(double(v))); }>;
	t["rcp.approx.ftz.f64"] = unary<double, [](double v) { return as<double>(raw(1 / v) & ~uint64_t(0xffffffff)); }>;
	t["shfl.sync.bfly.b32"] = butterfly;
	t["vote.sync.ballot.b32"] = ballot;
	t["bar.warp.sync"] = meet;
	return t;
}
} // namespace

Handler find(const std::string &opcode) {
	static const Table t = build();
	auto i = t.find(opcode);
	return i == t.end() ? nullptr : i->second;
}
Handler loads() { return load; }
Handler stores() { return store; }
} // namespace ptx
