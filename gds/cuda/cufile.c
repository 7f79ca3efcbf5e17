//go:build cuda

#include "cufile.h"
#include <cuda.h>
#include <dlfcn.h>
#include <errno.h>
#include <stdlib.h>
#include <sys/statfs.h>
#include <sys/types.h>

// The ABI of libcufile.so.0 (cufile.h of CUDA 12).
typedef struct { int error, cuda_error; } status;                                    // CUfileError_t
typedef struct { int type; union { int descriptor; void *pointer; } handle; const void *operations; } description; // CUfileDescr_t
typedef struct {                                                                     // CUfileDrvProps_t
	struct { unsigned major, minor; size_t poll_threshold, largest_direct; unsigned file_systems, control; } nvfs;
	unsigned features, cache, cache_of_buffer, pinned, batch, batch_timeout;
	uint64_t reserved[32]; // for versions that have more
} properties;
enum { OPAQUE_DESCRIPTOR = 1, CUDA_DRIVER_ERROR = 5011 };

static struct {
	status (*open)(void);
	status (*properties)(properties *p);
	status (*add)(void **file, description *d);
	void (*remove)(void *file);
	status (*pin)(const void *start, size_t bytes, int flags);
	status (*unpin)(const void *start);
	ssize_t (*read)(void *file, void *start, size_t bytes, off_t offset, off_t at);
} cufile;

static const struct { const char *name; void **function; } functions[] = {
	{"cuFileDriverOpen", (void **)&cufile.open}, {"cuFileDriverGetProperties", (void **)&cufile.properties},
	{"cuFileHandleRegister", (void **)&cufile.add}, {"cuFileHandleDeregister", (void **)&cufile.remove},
	{"cuFileBufRegister", (void **)&cufile.pin}, {"cuFileBufDeregister", (void **)&cufile.unpin}, {"cuFileRead", (void **)&cufile.read},
};

static int use(uintptr_t context) { return cuCtxSetCurrent((CUcontext)context) == CUDA_SUCCESS ? 0 : CUDA_DRIVER_ERROR; }

const char *hopfeed_load_cufile(const char **paths, int count) {
	void *library = NULL;
	setenv("CUFILE_LOGFILE_PATH", "/dev/null", 0); // else it writes cufile.log into the working directory
	for (int i = 0; i < count && !library; i++) library = dlopen(paths[i], RTLD_NOW | RTLD_LOCAL);
	if (!library) return dlerror();
	for (size_t i = 0; i < sizeof functions / sizeof *functions; i++)
		if (!(*functions[i].function = dlsym(library, functions[i].name))) return dlerror();
	return NULL;
}

void hopfeed_cufile_open(uintptr_t context, hopfeed_cufile_driver *d) {
	use(context);
	properties p = {0};
	status s = cufile.open();
	if (!s.error) s = cufile.properties(&p);
	*d = (hopfeed_cufile_driver){s.error, s.cuda_error, p.nvfs.major, p.nvfs.minor, p.nvfs.file_systems, p.nvfs.control};
}

int hopfeed_cufile_add(uintptr_t context, int descriptor, uintptr_t *file) {
	description d = {.type = OPAQUE_DESCRIPTOR, .handle.descriptor = descriptor};
	void *made = NULL;
	int r = use(context);
	if (r || (r = cufile.add(&made, &d).error)) return r;
	*file = (uintptr_t)made;
	return 0;
}

void hopfeed_cufile_remove(uintptr_t context, uintptr_t file) {
	use(context);
	cufile.remove((void *)file);
}

int hopfeed_cufile_pin(uintptr_t context, uint64_t start, size_t bytes) {
	int r = use(context);
	return r ? r : cufile.pin((const void *)start, bytes, 0).error;
}

int hopfeed_cufile_unpin(uintptr_t context, uint64_t start) {
	int r = use(context);
	return r ? r : cufile.unpin((const void *)start).error;
}

int64_t hopfeed_cufile_read(uintptr_t context, uintptr_t file, uint64_t start, size_t bytes, int64_t offset, int64_t at) {
	int r = use(context);
	if (r) return -r;
	errno = 0;
	ssize_t n = cufile.read((void *)file, (void *)start, bytes, offset, at);
	return n == -1 ? (errno ? -errno : -EIO) : n;
}

int64_t hopfeed_file_system(int descriptor) {
	struct statfs s;
	return fstatfs(descriptor, &s) == 0 ? (int64_t)s.f_type : 0;
}
