//go:build cuda

// The driver's functions (gorgonia.org/cu calls some 160 by name) are jumps through
// pointers that are filled when the driver is loaded. Until then, and where a driver lacks a
// function, they answer that there is no device, or no such function; all but cuInit, which
// gorgonia.org/cu calls when a program starts, and ends the program if it fails.
#include <cuda.h>
#include <dlfcn.h>
#include <stddef.h>

#if defined(__x86_64__)
#define JUMP(name) "\tjmp *hopfeed_driver_" #name "(%rip)\n"
#elif defined(__aarch64__)
#define JUMP(name) "\tadrp x16, hopfeed_driver_" #name "\n\tldr x16, [x16, :lo12:hopfeed_driver_" #name "]\n\tbr x16\n"
#else
#error "CUDA is for amd64 and arm64"
#endif

static CUresult no_device(void) { return CUDA_ERROR_NO_DEVICE; }
static CUresult not_supported(void) { return CUDA_ERROR_NOT_SUPPORTED; }

#define DRIVER(name) \
	__attribute__((visibility("hidden"))) void *hopfeed_driver_##name = (void *)no_device; \
	__asm__("\t.pushsection .text\n\t.globl " #name "\n\t.type " #name ", %function\n" #name ":\n" JUMP(name) "\t.popsection\n");
#include "symbols.h"
#undef DRIVER

static const struct { const char *name; void **function; } functions[] = {
#define DRIVER(name) {#name, &hopfeed_driver_##name},
#include "symbols.h"
#undef DRIVER
};

CUresult cuInit(unsigned flags) { (void)flags; return CUDA_SUCCESS; }

// hopfeed_load_driver loads the driver and starts it. It returns what dlopen says where there is
// none, and otherwise NULL and the result of the driver's cuInit.
const char *hopfeed_load_driver(const char *path, int *result) {
	void *library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
	if (!library) return dlerror();
	CUresult (*init)(unsigned) = (CUresult (*)(unsigned))dlsym(library, "cuInit");
	if (!init) return dlerror();
	*result = init(0);
	if (*result != CUDA_SUCCESS) return NULL;
	for (size_t i = 0; i < sizeof functions / sizeof *functions; i++) {
		void *function = dlsym(library, functions[i].name);
		*functions[i].function = function ? function : (void *)not_supported;
	}
	return NULL;
}
