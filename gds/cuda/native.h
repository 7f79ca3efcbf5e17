// What gorgonia.org/cu lacks, and what runs for each operation. Handles are passed as numbers. All
// functions return a CUresult, and make the context current for the calling thread first.
#pragma once
#include <cuda.h>
#include <stddef.h>
#include <stdint.h>

typedef struct { unsigned grid_x, grid_y, block_x, block_y; } hopfeed_shape;

// args are count arguments of 8 bytes each.
CUresult hopfeed_launch(uintptr_t context, uintptr_t function, uintptr_t stream, hopfeed_shape shape, const uint64_t *args, int count);
CUresult hopfeed_copy(uintptr_t context, uintptr_t stream, uint64_t dst, uint64_t src, size_t bytes);
// hopfeed_copy_rows copies rows of width bytes between memory of one device and pinned memory, and
// hopfeed_copy_rows_to_peer between memory of two devices.
CUresult hopfeed_copy_rows(uintptr_t context, uintptr_t stream, uint64_t dst, size_t dst_pitch, uint64_t src, size_t src_pitch, size_t width, size_t rows);
CUresult hopfeed_copy_rows_to_peer(uintptr_t context, uintptr_t stream, uintptr_t dst_context, uint64_t dst, size_t dst_pitch, uintptr_t src_context, uint64_t src, size_t src_pitch, size_t width, size_t rows);
CUresult hopfeed_host_alloc(uintptr_t context, size_t bytes, void **p);
CUresult hopfeed_record(uintptr_t context, uintptr_t stream, uintptr_t event);
CUresult hopfeed_wait_event(uintptr_t context, uintptr_t stream, uintptr_t event);
CUresult hopfeed_query(uintptr_t context, uintptr_t event);
// hopfeed_wait blocks the thread until the event is reached.
CUresult hopfeed_wait(uintptr_t context, uintptr_t event);
// hopfeed_begin_capture makes a stream collect what is enqueued, and hopfeed_end_capture enqueues all of it
// as one graph (hopfeed_drop_capture drops it). exec is the graph of the last time, or 0: it is changed to the new one, or replaced.
CUresult hopfeed_begin_capture(uintptr_t context, uintptr_t stream);
CUresult hopfeed_drop_capture(uintptr_t context, uintptr_t stream);
CUresult hopfeed_end_capture(uintptr_t context, uintptr_t stream, uintptr_t *exec);
CUresult hopfeed_destroy_exec(uintptr_t context, uintptr_t exec);
const char *hopfeed_error_name(CUresult r);
const char *hopfeed_error_text(CUresult r);
