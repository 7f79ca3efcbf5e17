// The functions of cuFile that are used, from a library that is loaded when a program runs. Handles are
// passed as numbers.
#pragma once
#include <stddef.h>
#include <stdint.h>

// hopfeed_load_cufile loads the first of count libraries that there is. It returns what is wrong with the
// last where there is none, and otherwise NULL.
const char *hopfeed_load_cufile(const char **paths, int count);

// What opening the driver of cuFile gives: an error, or what it has.
typedef struct {
	int error, cuda_error;
	unsigned major, minor; // of nvidia-fs; 0: it is not loaded
	unsigned file_systems; // bits of CUfileDriverStatusFlags
	unsigned control;      // bits of CUfileDriverControlFlags
} hopfeed_cufile_driver;
void hopfeed_cufile_open(uintptr_t context, hopfeed_cufile_driver *d);

// Those that return int return a CUfileOpError.
int hopfeed_cufile_add(uintptr_t context, int descriptor, uintptr_t *file);
void hopfeed_cufile_remove(uintptr_t context, uintptr_t file);
int hopfeed_cufile_pin(uintptr_t context, uint64_t start, size_t bytes);
int hopfeed_cufile_unpin(uintptr_t context, uint64_t start);

// hopfeed_cufile_read returns how many bytes it has read to start + at, the negative of a CUfileOpError,
// or -errno.
int64_t hopfeed_cufile_read(uintptr_t context, uintptr_t file, uint64_t start, size_t bytes, int64_t offset, int64_t at);

// hopfeed_file_system is the type of a file's file system, as statfs has it; 0: unknown.
int64_t hopfeed_file_system(int descriptor);
