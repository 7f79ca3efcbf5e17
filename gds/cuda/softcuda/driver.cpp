// A CUDA driver on the processor, for tests: the part of the driver API that gds/cuda calls, over
// the kernels compiled with shim.h or, with SOFTCUDA_KERNELS=ptx, over the PTX that it is given (ptx.h),
// in an order that SOFTCUDA_SEED sets. It is no emulator for users.
//
// Streams are threads, so work is asynchronous, and unordered between streams, as on a GPU. Device
// memory is poisoned when allocated and lies between pages that nobody may touch; below 1 MiB it is
// aligned to 512 bytes, no more. A copy from or to memory that is neither a device's nor pinned is an
// error: on a GPU it would be one silently, by losing its asynchrony. So are objects after they were
// destroyed, streams in another context, and what may not be captured; to enqueue waits where a stream
// has 1024 pieces of work. Tests set limits by the functions softcuda_*.
#include "ptx.h"
#include "shim.h"
#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cuda.h>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <thread>

#define EXPORT extern "C" __attribute__((visibility("default")))
#define API EXPORT CUresult
typedef std::unique_lock<std::mutex> Lock;

asm(R"(
	.text
	.globl shim_switch
	.type shim_switch,@function
shim_switch:
	push %rbp; push %rbx; push %r12; push %r13; push %r14; push %r15
	mov %rsp,(%rdi); mov %rsi,%rsp
	pop %r15; pop %r14; pop %r13; pop %r12; pop %rbx; pop %rbp
	ret
)");

namespace {
constexpr int devices = 2;
constexpr size_t page = 4096, most_queued = 1024;

struct Allocation {
	size_t bytes;
	int device;
	void *mapped;
	size_t mapped_bytes;
	std::shared_ptr<uint8_t[]> written; // for PTX: a byte for each that tells whether it was written; null: all were
};
std::mutex mu; // of all below
std::map<uintptr_t, Allocation> memory, pinned; // by their start
size_t in_use[devices], limit = size_t(1) << 30;
std::string failing;
long fails_in;
CUresult fails_with;
size_t events;
std::set<const void *> alive; // objects that handles are of; those that were destroyed leave their address behind
std::atomic<size_t> graphs, updates;
bool lost, maps = true, interprets = getenv("SOFTCUDA_KERNELS") && !strcmp(getenv("SOFTCUDA_KERNELS"), "ptx");
uint64_t seed = getenv("SOFTCUDA_SEED") ? strtoull(getenv("SOFTCUDA_SEED"), nullptr, 0) : 1;
std::string fault; // of a kernel, the last
int capability = 8;
char contexts[devices];
thread_local CUcontext current;

CUresult begin(const char *name) {
	Lock l(mu);
	if (lost) return CUDA_ERROR_LAUNCH_FAILED;
	if (failing != name || fails_in <= 0 || --fails_in > 0) return CUDA_SUCCESS;
	lost = fails_with == CUDA_ERROR_LAUNCH_FAILED;
	return fails_with;
}
template <class T> T *born(T *object) { Lock l(mu); alive.insert(object); return object; }
bool dies(const void *object) { Lock l(mu); return alive.erase(object) > 0; }
bool lives(const void *object) { Lock l(mu); return alive.count(object) > 0; }
int device_of(CUcontext c) { return int((char *)c - contexts); }

#define CALL if (CUresult r = begin(__func__)) return r
#define CURRENT CALL; if (!current) return CUDA_ERROR_INVALID_CONTEXT

#define LIVES(object) if (!lives(object)) return CUDA_ERROR_INVALID_HANDLE
#define STREAM(s) LIVES(s); if (s->context != current) return CUDA_ERROR_INVALID_CONTEXT

struct Point { // that streams reach
	std::mutex m;
	std::condition_variable c;
	bool reached = false;
	std::chrono::steady_clock::time_point at;
	void reach() { Lock l(m); at = std::chrono::steady_clock::now(); reached = true; c.notify_all(); }
	void wait() { Lock l(m); c.wait(l, [&] { return reached; }); }
	bool is_reached() { Lock l(m); return reached; }
};
} // namespace

// Work of a stream: what it does, and which function of the driver, or kernel, that is.
struct Work { std::function<void()> run; const void *what; };
struct CUgraph_st { std::vector<Work> work; };
struct CUgraphExec_st { std::vector<Work> work; };

struct CUstream_st {
	const CUcontext context;
	std::unique_ptr<CUgraph_st> graph; // that is captured
	bool invalid = false;              // by what may not be captured
	std::mutex m;
	std::condition_variable c;
	std::deque<std::function<void()>> work;
	bool stop = false, busy = false;
	std::thread thread{[this] { run(); }};
	void run() {
		for (Lock l(m);;) {
			c.wait(l, [&] { return stop || !work.empty(); });
			if (work.empty()) return;
			auto f = std::move(work.front());
			work.pop_front();
			busy = true;
			c.notify_all();
			l.unlock(); f(); l.lock();
			busy = false;
			c.notify_all();
		}
	}
	CUresult add(std::function<void()> f, const void *what = nullptr) {
		Lock l(m);
		if (graph) {
			graph->work.push_back({std::move(f), what});
			return CUDA_SUCCESS;
		}
		c.wait(l, [&] { return work.size() < most_queued; });
		work.push_back(std::move(f));
		c.notify_all();
		return CUDA_SUCCESS;
	}
	// captures tells whether the stream captures; what asks may not be captured, and ends that.
	bool captures() { Lock l(m); return graph && (invalid = true); }
	void drain() { Lock l(m); c.wait(l, [&] { return work.empty() && !busy; }); }
	void end() { { Lock l(m); stop = true; c.notify_all(); } thread.join(); }
};
struct CUfunc_st { const shim::Kernel *compiled = nullptr; const ptx::Kernel *interpreted = nullptr; CUmodule module = nullptr; };
struct CUmod_st {
	bool interpreted = false;
	std::unique_ptr<ptx::Module> ptx;
	std::map<std::string, CUfunc_st> functions;
};
struct CUevent_st { const CUcontext context; std::mutex m; std::shared_ptr<Point> point; std::shared_ptr<Point> get() { Lock l(m); return point; } };

namespace {
std::mutex streams_mu;
std::set<CUstream_st *> streams;
// drain_all waits for all work, as freeing memory does.
void drain_all() { Lock l(streams_mu); for (auto s : streams) s->drain(); }

// map_memory gives memory that lies between pages that nobody may touch.
CUresult map_memory(std::map<uintptr_t, Allocation> &to, size_t bytes, int device, int fill, uintptr_t *out) {
	static std::atomic<size_t> count;
	size_t shift = &to == &memory && bytes < 1 << 20 ? 512 * (1 + count++ % 7) : 0, whole = (shift + bytes + page - 1) / page * page;
	char *p = (char *)mmap(nullptr, whole + 2 * page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (p == MAP_FAILED) return CUDA_ERROR_OUT_OF_MEMORY;
	mprotect(p, page, PROT_NONE);
	mprotect(p + page + whole, page, PROT_NONE);
	memset(p + page, fill, whole);
	Lock l(mu);
	std::shared_ptr<uint8_t[]> written;
	if (&to == &memory && interprets) written.reset(new uint8_t[bytes]());
	to[*out = uintptr_t(p) + page + shift] = {bytes, device, p, whole + 2 * page, written};
	return CUDA_SUCCESS;
}
CUresult unmap(std::map<uintptr_t, Allocation> &from, uintptr_t p) {
	drain_all();
	Lock l(mu);
	auto i = from.find(p);
	if (i == from.end()) return CUDA_ERROR_INVALID_VALUE;
	if (&from == &memory) in_use[i->second.device] -= i->second.bytes;
	munmap(i->second.mapped, i->second.mapped_bytes);
	from.erase(i);
	return CUDA_SUCCESS;
}
bool lies_in(const std::map<uintptr_t, Allocation> &m, uintptr_t p, size_t n) {
	auto i = m.upper_bound(p);
	return i != m.begin() && (--i, p + n <= i->first + i->second.bytes);
}
bool reachable(uintptr_t p, size_t n) { Lock l(mu); return n == 0 || lies_in(memory, p, n) || lies_in(pinned, p, n); }
// written_of is where the marks of memory from p on are, or null where it has none.
uint8_t *written_of(uintptr_t p) {
	Lock l(mu);
	auto i = memory.upper_bound(p);
	if (i == memory.begin() || (--i, p >= i->first + i->second.bytes) || !i->second.written) return nullptr;
	return i->second.written.get() + (p - i->first);
}
CUresult move_rows(CUstream s, uintptr_t dst, size_t dst_pitch, uintptr_t src, size_t src_pitch, size_t width, size_t height) {
	if (!s || (height > 1 && (dst_pitch < width || src_pitch < width))) return CUDA_ERROR_INVALID_VALUE;
	if (height == 0 || width == 0) return CUDA_SUCCESS;
	if (!reachable(dst, (height - 1) * dst_pitch + width) || !reachable(src, (height - 1) * src_pitch + width)) return CUDA_ERROR_INVALID_VALUE;
	uint8_t *to = written_of(dst), *from = written_of(src);
	return s->add([=] {
		for (size_t y = 0; y < height; y++) {
			memmove((void *)(dst + y * dst_pitch), (void *)(src + y * src_pitch), width);
			if (to && from) memmove(to + y * dst_pitch, from + y * src_pitch, width);
			else if (to) memset(to + y * dst_pitch, 1, width);
		}
	});
}
// run_ptx runs a kernel from its PTX. A fault of it loses the device, and is told.
void run_ptx(const ptx::Kernel &k, const ptx::Module &m, ptx::Dim grid, ptx::Dim block, const std::vector<uint64_t> &arguments) {
	std::vector<ptx::Memory> reached;
	uint64_t order;
	{
		Lock l(mu);
		if (lost) return;
		for (auto *all : {&memory, &pinned})
			for (auto &[start, a] : *all) reached.push_back({start, a.bytes, a.written.get()});
		order = seed++ * 0x9e3779b97f4a7c15ull;
	}
	for (auto &g : m.globals) reached.push_back({uintptr_t(g->data()), g->size(), nullptr});
	std::sort(reached.begin(), reached.end(), [](auto &a, auto &b) { return a.start < b.start; });
	std::string wrong = ptx::run(k, grid, block, arguments, reached, order);
	if (wrong.empty()) return;
	Lock l(mu);
	fault = wrong;
	lost = true;
	fprintf(stderr, "softcuda: %s\n", wrong.c_str());
}
} // namespace

// What tests set (gds/testdevice): the n-th call of a function from now on fails, with a result; the memory of each device; whether
// all devices are lost, as after a kernel that crashed, until they are found again; their compute capability; whether they map host memory. An idle driver
// has no memory allocated.
EXPORT void softcuda_fail(const char *function, int n, int result) { Lock l(mu); failing = function; fails_in = n; fails_with = CUresult(result); }
EXPORT void softcuda_memory(size_t bytes) { Lock l(mu); limit = bytes; }
// Modules that are loaded from now on are interpreted, or not; memory allocated from now on knows what was written.
EXPORT void softcuda_interpret(int yes) { Lock l(mu); interprets = yes; }
EXPORT int softcuda_interprets() { Lock l(mu); return interprets; }
// What the last kernel that had a fault did; "" where none had since the last call.
EXPORT const char *softcuda_fault() {
	static thread_local std::string last;
	Lock l(mu);
	last = std::exchange(fault, "");
	return last.c_str();
}
EXPORT void softcuda_lose(int yes) { Lock l(mu); lost = yes; }
EXPORT void softcuda_capability(int major) { Lock l(mu); capability = major; }
EXPORT void softcuda_map(int yes) { Lock l(mu); maps = yes; }
EXPORT size_t softcuda_allocated() { Lock l(mu); size_t n = in_use[0] + in_use[1]; for (auto &p : pinned) n += p.second.bytes; return n; }

EXPORT size_t softcuda_graphs() { return graphs; }
EXPORT size_t softcuda_graph_updates() { return updates; }
EXPORT size_t softcuda_objects() { Lock l(mu), k(streams_mu); return streams.size() + events; }

// For the software cuFile: whether memory is a device's.
EXPORT bool softcuda_is_memory(uintptr_t p, size_t n) { Lock l(mu); return lies_in(memory, p, n); }

// For the software cuBLAS and cuFile: they have written to memory.
EXPORT void softcuda_written(uintptr_t p, size_t n) { if (uint8_t *w = written_of(p)) memset(w, 1, n); }

// For the software cuBLAS: f runs in the order of a stream; whether a stream captures, in which cuBLAS could not allocate.
EXPORT bool softcuda_captures() { Lock l(streams_mu); for (auto s : streams) { Lock k(s->m); if (s->graph) return true; } return false; }
EXPORT void softcuda_enqueue(CUstream s, std::function<void()> f) { s->add(std::move(f)); }

API cuInit(unsigned) { CALL; return CUDA_SUCCESS; }
API cuDriverGetVersion(int *v) { *v = 12000; return CUDA_SUCCESS; }
API cuGetErrorName(CUresult r, const char **s) { *s = r == CUDA_ERROR_LAUNCH_FAILED ? "CUDA_ERROR_LAUNCH_FAILED" : "CUDA_ERROR_OF_SOFTCUDA"; return CUDA_SUCCESS; }
API cuGetErrorString(CUresult, const char **s) { *s = "an error of the software driver"; return CUDA_SUCCESS; }
API cuDeviceGetCount(int *n) { CALL; *n = devices; return CUDA_SUCCESS; }
API cuDeviceGet(CUdevice *d, int i) { CALL; *d = i; return i < 0 || i >= devices ? CUDA_ERROR_INVALID_DEVICE : CUDA_SUCCESS; }
API cuDeviceGetName(char *s, int n, CUdevice) { snprintf(s, n, "software GPU"); return CUDA_SUCCESS; }
API cuDeviceTotalMem_v2(size_t *n, CUdevice) { Lock l(mu); *n = limit; return CUDA_SUCCESS; }
API cuDeviceGetAttribute(int *v, CUdevice_attribute a, CUdevice) {
	bool yes = a == CU_DEVICE_ATTRIBUTE_UNIFIED_ADDRESSING || (a == CU_DEVICE_ATTRIBUTE_CAN_MAP_HOST_MEMORY && maps);
	*v = a == CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT ? 2 : a == CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR ? capability : yes;
	return CUDA_SUCCESS;
}
API cuDeviceCanAccessPeer(int *can, CUdevice d, CUdevice peer) { CALL; *can = d != peer; return CUDA_SUCCESS; }
API cuDevicePrimaryCtxRetain(CUcontext *c, CUdevice d) { CALL; *c = (CUcontext)&contexts[d]; return CUDA_SUCCESS; }
API cuDevicePrimaryCtxRelease_v2(CUdevice) { CALL; return CUDA_SUCCESS; }
API cuCtxSetCurrent(CUcontext c) { CALL; current = c; return CUDA_SUCCESS; }
API cuCtxGetCurrent(CUcontext *c) { *c = current; return CUDA_SUCCESS; }
API cuCtxEnablePeerAccess(CUcontext peer, unsigned flags) {
	CURRENT;
	static std::set<std::pair<CUcontext, CUcontext>> enabled;
	if (flags || peer == current) return CUDA_ERROR_INVALID_VALUE;
	Lock l(mu);
	return enabled.insert({current, peer}).second ? CUDA_SUCCESS : CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED;
}
API cuMemGetInfo_v2(size_t *free, size_t *total) { CURRENT; Lock l(mu); *free = limit - in_use[device_of(current)]; *total = limit; return CUDA_SUCCESS; }

API cuMemAlloc_v2(CUdeviceptr *p, size_t n) {
	CURRENT;
	if (!n) return CUDA_ERROR_INVALID_VALUE;
	int d = device_of(current);
	{
		Lock l(mu);
		if (n > limit - in_use[d]) return CUDA_ERROR_OUT_OF_MEMORY;
		in_use[d] += n;
	}
	uintptr_t at;
	CUresult r = map_memory(memory, n, d, 0xa5, &at);
	if (r) { Lock l(mu); in_use[d] -= n; } else *p = at;
	return r;
}
API cuMemFree_v2(CUdeviceptr p) { CURRENT; return unmap(memory, p); }
API cuMemHostAlloc(void **p, size_t n, unsigned) {
	CURRENT;
	uintptr_t at;
	CUresult r = map_memory(pinned, n, 0, 0x5a, &at);
	if (!r) *p = (void *)at;
	return r;
}
API cuMemFreeHost(void *p) { CURRENT; return unmap(pinned, (uintptr_t)p); }

API cuMemcpyAsync(CUdeviceptr d, CUdeviceptr s, size_t n, CUstream st) { CURRENT; STREAM(st); return move_rows(st, d, n, s, n, n, 1); }
API cuMemcpy2DAsync_v2(const CUDA_MEMCPY2D *c, CUstream s) {
	CURRENT; STREAM(s);
	if (c->dstMemoryType != CU_MEMORYTYPE_UNIFIED || c->srcMemoryType != CU_MEMORYTYPE_UNIFIED) return CUDA_ERROR_NOT_SUPPORTED;
	return move_rows(s, c->dstDevice, c->dstPitch, c->srcDevice, c->srcPitch, c->WidthInBytes, c->Height);
}
API cuMemcpy3DPeerAsync(const CUDA_MEMCPY3D_PEER *c, CUstream s) {
	CURRENT; STREAM(s);
	if (c->dstMemoryType != CU_MEMORYTYPE_DEVICE || c->srcMemoryType != CU_MEMORYTYPE_DEVICE || c->Depth != 1) return CUDA_ERROR_NOT_SUPPORTED;
	return move_rows(s, c->dstDevice, c->dstPitch, c->srcDevice, c->srcPitch, c->WidthInBytes, c->Height);
}
API cuMemsetD8Async(CUdeviceptr d, unsigned char v, size_t n, CUstream s) {
	CURRENT; STREAM(s);
	if (!reachable(d, n)) return CUDA_ERROR_INVALID_VALUE;
	uint8_t *written = written_of(d);
	return s->add([=] { memset((void *)d, v, n); if (written) memset(written, 1, n); });
}

API cuStreamCreate(CUstream *s, unsigned) {
	CURRENT;
	*s = born(new CUstream_st{current});
	Lock l(streams_mu);
	streams.insert(*s);
	return CUDA_SUCCESS;
}
API cuStreamDestroy_v2(CUstream s) {
	CURRENT; STREAM(s);
	if (!dies(s)) return CUDA_ERROR_INVALID_HANDLE;
	{ Lock l(streams_mu); streams.erase(s); }
	s->end();
	return CUDA_SUCCESS;
}
API cuStreamSynchronize(CUstream s) { CURRENT; STREAM(s); if (s->captures()) return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED; s->drain(); return begin("lost"); }
API cuStreamWaitEvent(CUstream s, CUevent e, unsigned) { CURRENT; STREAM(s); LIVES(e); if (s->captures()) return CUDA_ERROR_STREAM_CAPTURE_ISOLATION; auto p = e->get(); return p ? s->add([p] { p->wait(); }) : CUDA_SUCCESS; }
API cuEventCreate(CUevent *e, unsigned) { CURRENT; { Lock l(mu); events++; } *e = born(new CUevent_st{current}); return CUDA_SUCCESS; }
API cuEventDestroy_v2(CUevent e) { CURRENT; if (!dies(e)) return CUDA_ERROR_INVALID_HANDLE; Lock l(mu); events--; return CUDA_SUCCESS; }
API cuEventRecord(CUevent e, CUstream s) {
	CURRENT; STREAM(s); LIVES(e);
	if (e->context != s->context) return CUDA_ERROR_INVALID_HANDLE;
	if (s->captures()) return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
	auto p = std::make_shared<Point>();
	{ Lock l(e->m); e->point = p; }
	return s->add([p] { p->reach(); });
}
// An event is asked for before the device is: a kernel whose fault lost it may have ended between the two.
API cuEventQuery(CUevent e) { CURRENT; LIVES(e); auto p = e->get(); return !p || p->is_reached() ? begin("lost") : CUDA_ERROR_NOT_READY; }
API cuEventSynchronize(CUevent e) { CURRENT; LIVES(e); if (auto p = e->get()) p->wait(); return begin("lost"); }
API cuEventElapsedTime(float *ms, CUevent from, CUevent to) {
	CURRENT; LIVES(from); LIVES(to);
	auto p = from->get(), q = to->get();
	if (!p || !q) return CUDA_ERROR_INVALID_HANDLE;
	if (!p->is_reached() || !q->is_reached()) return CUDA_ERROR_NOT_READY;
	*ms = std::chrono::duration<float, std::milli>(q->at - p->at).count();
	return CUDA_SUCCESS;
}

API cuModuleLoadData(CUmodule *m, const void *image) {
	CURRENT;
	const char *text = (const char *)image;
	if (!strstr(text, ".version")) return CUDA_ERROR_INVALID_PTX;
	std::string wrong;
	auto made = std::make_unique<CUmod_st>();
	{ Lock l(mu); made->interpreted = interprets; }
	if (made->interpreted && !(made->ptx = ptx::parse(text, wrong))) {
		fprintf(stderr, "softcuda: PTX, %s\n", wrong.c_str());
		return CUDA_ERROR_INVALID_PTX;
	}
	*m = born(made.release());
	return CUDA_SUCCESS;
}
API cuModuleUnload(CUmodule m) {
	CURRENT;
	if (!dies(m)) return CUDA_ERROR_INVALID_HANDLE;
	drain_all();
	for (auto &f : m->functions) dies(&f.second);
	return CUDA_SUCCESS;
}
API cuModuleGetFunction(CUfunction *f, CUmodule m, const char *name) {
	CURRENT; LIVES(m);
	auto &made = m->functions[name];
	if (m->interpreted) {
		auto i = m->ptx->kernels.find(name);
		if (i == m->ptx->kernels.end()) return CUDA_ERROR_NOT_FOUND;
		made.interpreted = i->second.get();
	} else {
		auto i = shim::kernels().find(name);
		if (i == shim::kernels().end()) return CUDA_ERROR_NOT_FOUND;
		made.compiled = &i->second;
	}
	made.module = m;
	*f = born(&made);
	return CUDA_SUCCESS;
}
API cuLaunchKernel(CUfunction f, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by, unsigned bz, unsigned, CUstream s, void **params, void **) {
	CURRENT; STREAM(s); LIVES(f);
	if (!gx || !gy || !gz || !bx || !by || !bz || size_t(bx) * by * bz > 1024 || gy > 65535 || gz > 65535) return CUDA_ERROR_INVALID_VALUE;
	if (auto *k = f->interpreted) {
		if (gz > 1 || bz > 1) return CUDA_ERROR_NOT_SUPPORTED;
		std::vector<uint64_t> args(k->parameters.size());
		for (size_t i = 0; i < args.size(); i++) memcpy(&args[i], params[i], k->parameter_bytes[i]);
		return s->add([=] { run_ptx(*k, *f->module->ptx, {gx, gy}, {bx, by}, args); }, f);
	}
	auto args = f->compiled->copy(params); // the caller's may go once this returns
	return s->add([=]() mutable {
		std::vector<void *> p;
		for (auto &a : args) p.push_back(&a);
		shim::launch(f->compiled->entry, {gx, gy, gz}, {bx, by, bz}, p.data());
	}, f);
}

API cuStreamBeginCapture_v2(CUstream s, CUstreamCaptureMode) {
	CURRENT; STREAM(s);
	Lock l(s->m);
	if (s->graph) return CUDA_ERROR_ILLEGAL_STATE;
	s->graph.reset(born(new CUgraph_st));
	s->invalid = false;
	return CUDA_SUCCESS;
}
API cuStreamEndCapture(CUstream s, CUgraph *g) {
	LIVES(s);
	Lock l(s->m);
	*g = s->graph.release();
	bool invalid = s->invalid;
	l.unlock();
	if (!*g) return CUDA_ERROR_ILLEGAL_STATE;
	CUresult r = begin(__func__);
	if (!r && invalid) r = CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
	if (r) {
		dies(*g);
		(*g)->work = {};
		*g = nullptr;
	}
	return r;
}
API cuGraphInstantiateWithFlags(CUgraphExec *e, CUgraph g, unsigned long long) { CURRENT; LIVES(g); *e = born(new CUgraphExec_st{g->work}); graphs++; return CUDA_SUCCESS; }
API cuGraphExecUpdate_v2(CUgraphExec e, CUgraph g, CUgraphExecUpdateResultInfo *) {
	CURRENT; LIVES(e); LIVES(g);
	bool same = e->work.size() == g->work.size();
	for (size_t i = 0; same && i < e->work.size(); i++) same = e->work[i].what == g->work[i].what;
	if (!same) return CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE;
	e->work = g->work;
	updates++;
	return CUDA_SUCCESS;
}
API cuGraphLaunch(CUgraphExec e, CUstream s) { CURRENT; STREAM(s); LIVES(e); return s->add([work = e->work] { for (auto &w : work) w.run(); }); }
API cuGraphDestroy(CUgraph g) { CURRENT; if (!dies(g)) return CUDA_ERROR_INVALID_HANDLE; g->work = {}; return CUDA_SUCCESS; }
API cuGraphExecDestroy(CUgraphExec e) { CURRENT; if (!dies(e)) return CUDA_ERROR_INVALID_HANDLE; e->work = {}; return CUDA_SUCCESS; }
