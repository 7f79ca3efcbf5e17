// The functions of cuFile that gds/cuda calls: files are read by pread into the memory of the software
// driver. What there is of nvidia-fs is told by the environment variable SOFTCUFILE when the driver of
// cuFile opens: "gds" (the default), "compat" (nvidia-fs is not loaded, and need not be) or "refused" (it
// is not, and must be).
#include <cerrno>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <cuda.h>
#include <fcntl.h>
#include <map>
#include <mutex>
#include <set>
#include <unistd.h>

#define EXPORT extern "C" __attribute__((visibility("default")))
EXPORT bool softcuda_is_memory(uintptr_t p, size_t n);
EXPORT void softcuda_written(uintptr_t p, size_t n);

namespace {
enum { SUCCESS = 0, NOT_INITIALIZED = 5001, CUDA_DRIVER_ERROR = 5011, POINTER_INVALID = 5012, DIRECT_NOT_SET = 5020, INVALID_VALUE = 5022, ALREADY_REGISTERED = 5023, NOT_REGISTERED = 5024 };
struct Status { int error, cuda_error; };
struct Description { int type; union { int descriptor; void *pointer; } handle; const void *operations; };
struct Properties {
	struct { unsigned major, minor; size_t poll_threshold, largest_direct; unsigned file_systems, control; } nvfs;
	unsigned features, cache, cache_of_buffer, pinned, batch, batch_timeout;
};
struct File { int descriptor; };
std::mutex mu; // of all below
bool is_open;
std::set<File *> files;
std::map<uintptr_t, size_t> buffers;
int fails_in, fails_with, fails_pins;
size_t at_most; // that a read gives; 0: all
size_t reads;
int slow; // milliseconds that a read takes

bool has_context() { CUcontext c = nullptr; return cuCtxGetCurrent(&c) == CUDA_SUCCESS && c; }
bool loaded() { const char *m = getenv("SOFTCUFILE"); return !m || !strcmp(m, "gds"); }
} // namespace

// What tests set: the n-th read from now on, and all after it, fail with an error of cuFile, or as -errno
// says; reads give so many bytes at most, or are slow; buffers cannot be registered. What they see: how many files and
// buffers are registered, and how many reads there were.
EXPORT void softcufile_fail(int n, int with) { std::lock_guard l(mu); fails_in = n; fails_with = with; }
EXPORT void softcufile_short(size_t bytes) { std::lock_guard l(mu); at_most = bytes; }
EXPORT void softcufile_fail_pins(int yes) { std::lock_guard l(mu); fails_pins = yes; }
EXPORT void softcufile_slow(int milliseconds) { std::lock_guard l(mu); slow = milliseconds; }
EXPORT size_t softcufile_held() { std::lock_guard l(mu); return files.size() + buffers.size(); }
EXPORT size_t softcufile_reads() { std::lock_guard l(mu); return reads; }

EXPORT Status cuFileDriverOpen(void) {
	std::lock_guard l(mu);
	const char *m = getenv("SOFTCUFILE");
	if (m && !strcmp(m, "refused")) return {NOT_INITIALIZED, 0};
	is_open = true;
	return {SUCCESS, 0};
}
EXPORT Status cuFileDriverGetProperties(Properties *p) {
	*p = Properties{};
	p->nvfs.control = 2; // the compatibility mode is allowed
	if (loaded()) p->nvfs.major = 2, p->nvfs.minor = 17, p->nvfs.file_systems = 1 << 4;
	return {SUCCESS, 0};
}
EXPORT Status cuFileHandleRegister(void **file, Description *d) {
	std::lock_guard l(mu);
	int flags = d->type == 1 ? fcntl(d->handle.descriptor, F_GETFL) : -1;
	if (!is_open || !has_context()) return {is_open ? CUDA_DRIVER_ERROR : NOT_INITIALIZED, 0};
	if (flags < 0 || d->operations) return {INVALID_VALUE, 0};
	if (!(flags & O_DIRECT)) return {DIRECT_NOT_SET, 0};
	File *f = new File{d->handle.descriptor};
	files.insert(f);
	*file = f;
	return {SUCCESS, 0};
}
EXPORT void cuFileHandleDeregister(void *file) {
	std::lock_guard l(mu);
	if (files.erase((File *)file)) delete (File *)file;
	else abort();
}
EXPORT Status cuFileBufRegister(const void *start, size_t bytes, int flags) {
	std::lock_guard l(mu);
	if (flags || !has_context() || !softcuda_is_memory((uintptr_t)start, bytes)) return {POINTER_INVALID, 0};
	if (fails_pins) return {5036, 0};
	return {buffers.emplace((uintptr_t)start, bytes).second ? SUCCESS : ALREADY_REGISTERED, 0};
}
EXPORT Status cuFileBufDeregister(const void *start) {
	std::lock_guard l(mu);
	return {buffers.erase((uintptr_t)start) ? SUCCESS : NOT_REGISTERED, 0};
}
EXPORT ssize_t cuFileRead(void *file, void *start, size_t bytes, off_t offset, off_t at) {
	int descriptor;
	{
		std::lock_guard l(mu);
		if (!files.count((File *)file)) return -INVALID_VALUE;
		if (!has_context()) return -CUDA_DRIVER_ERROR;
		uintptr_t to = (uintptr_t)start + at;
		if (!softcuda_is_memory(to, bytes)) return -POINTER_INVALID;
		auto b = buffers.find((uintptr_t)start);
		if (b != buffers.end() && at + bytes > b->second) return -INVALID_VALUE;
		reads++;
		if (fails_in > 0 && --fails_in == 0) fails_in = 1;
		if (fails_in == 1) {
			if (fails_with >= 0) return -fails_with;
			errno = -fails_with;
			return -1;
		}
		if (at_most && bytes > at_most) bytes = at_most;
		descriptor = ((File *)file)->descriptor;
	}
	if (slow) usleep(1000 * slow);
	ssize_t n = pread(descriptor, (char *)start + at, bytes, offset);
	if (n > 0) softcuda_written((uintptr_t)start + at, size_t(n));
	return n;
}
