//go:build cuda

#include "native.h"

#define USE(context) \
	do { \
		CUresult use = cuCtxSetCurrent((CUcontext)(context)); \
		if (use != CUDA_SUCCESS) return use; \
	} while (0)

CUresult hopfeed_launch(uintptr_t context, uintptr_t function, uintptr_t stream, hopfeed_shape s, const uint64_t *args, int count) {
	void *params[32];
	if (count > 32) return CUDA_ERROR_INVALID_VALUE;
	for (int i = 0; i < count; i++) params[i] = (void *)&args[i];
	USE(context);
	return cuLaunchKernel((CUfunction)function, s.grid_x, s.grid_y, 1, s.block_x, s.block_y, 1, 0, (CUstream)stream, params, NULL);
}

CUresult hopfeed_copy(uintptr_t context, uintptr_t stream, uint64_t dst, uint64_t src, size_t bytes) {
	USE(context);
	return cuMemcpyAsync(dst, src, bytes, (CUstream)stream);
}

CUresult hopfeed_copy_rows(uintptr_t context, uintptr_t stream, uint64_t dst, size_t dst_pitch, uint64_t src, size_t src_pitch, size_t width, size_t rows) {
	CUDA_MEMCPY2D c = {
		.srcMemoryType = CU_MEMORYTYPE_UNIFIED, .srcDevice = src, .srcPitch = src_pitch,
		.dstMemoryType = CU_MEMORYTYPE_UNIFIED, .dstDevice = dst, .dstPitch = dst_pitch,
		.WidthInBytes = width, .Height = rows,
	};
	USE(context);
	return cuMemcpy2DAsync(&c, (CUstream)stream);
}

CUresult hopfeed_copy_rows_to_peer(uintptr_t context, uintptr_t stream, uintptr_t dst_context, uint64_t dst, size_t dst_pitch, uintptr_t src_context, uint64_t src, size_t src_pitch, size_t width, size_t rows) {
	CUDA_MEMCPY3D_PEER c = {
		.srcMemoryType = CU_MEMORYTYPE_DEVICE, .srcContext = (CUcontext)src_context, .srcDevice = src, .srcPitch = src_pitch, .srcHeight = rows,
		.dstMemoryType = CU_MEMORYTYPE_DEVICE, .dstContext = (CUcontext)dst_context, .dstDevice = dst, .dstPitch = dst_pitch, .dstHeight = rows,
		.WidthInBytes = width, .Height = rows, .Depth = 1,
	};
	USE(context);
	return cuMemcpy3DPeerAsync(&c, (CUstream)stream);
}

CUresult hopfeed_host_alloc(uintptr_t context, size_t bytes, void **p) {
	USE(context);
	return cuMemHostAlloc(p, bytes, CU_MEMHOSTALLOC_PORTABLE | CU_MEMHOSTALLOC_DEVICEMAP);
}

CUresult hopfeed_record(uintptr_t context, uintptr_t stream, uintptr_t event) {
	USE(context);
	return cuEventRecord((CUevent)event, (CUstream)stream);
}

CUresult hopfeed_wait_event(uintptr_t context, uintptr_t stream, uintptr_t event) {
	USE(context);
	return cuStreamWaitEvent((CUstream)stream, (CUevent)event, 0);
}

CUresult hopfeed_query(uintptr_t context, uintptr_t event) {
	USE(context);
	return cuEventQuery((CUevent)event);
}

CUresult hopfeed_wait(uintptr_t context, uintptr_t event) {
	USE(context);
	return cuEventSynchronize((CUevent)event);
}

CUresult hopfeed_begin_capture(uintptr_t context, uintptr_t stream) {
	USE(context);
	return cuStreamBeginCapture((CUstream)stream, CU_STREAM_CAPTURE_MODE_RELAXED); // the goroutine may move to other threads
}

CUresult hopfeed_drop_capture(uintptr_t context, uintptr_t stream) {
	CUgraph graph = NULL;
	USE(context);
	CUresult r = cuStreamEndCapture((CUstream)stream, &graph);
	if (graph) cuGraphDestroy(graph);
	return r;
}

CUresult hopfeed_end_capture(uintptr_t context, uintptr_t stream, uintptr_t *exec) {
	CUgraph graph = NULL;
	CUgraphExec e = (CUgraphExec)*exec;
	USE(context);
	CUresult r = cuStreamEndCapture((CUstream)stream, &graph);
	if (r != CUDA_SUCCESS) return r;
	if (e) {
		CUgraphExecUpdateResultInfo info;
		if (cuGraphExecUpdate(e, graph, &info) != CUDA_SUCCESS) {
			// It has other operations. The old one may run still.
			r = cuStreamSynchronize((CUstream)stream);
			CUresult destroyed = cuGraphExecDestroy(e);
			if (r == CUDA_SUCCESS) r = destroyed;
			*exec = 0;
			e = NULL;
		}
	}
	if (r == CUDA_SUCCESS && !e) {
		r = cuGraphInstantiateWithFlags(&e, graph, 0);
		if (r == CUDA_SUCCESS) *exec = (uintptr_t)e;
	}
	CUresult destroyed = cuGraphDestroy(graph);
	if (r == CUDA_SUCCESS) r = destroyed;
	return r == CUDA_SUCCESS ? cuGraphLaunch(e, (CUstream)stream) : r;
}

CUresult hopfeed_destroy_exec(uintptr_t context, uintptr_t exec) {
	USE(context);
	return cuGraphExecDestroy((CUgraphExec)exec);
}

const char *hopfeed_error_name(CUresult r) {
	const char *s;
	return cuGetErrorName(r, &s) == CUDA_SUCCESS ? s : "unknown error";
}

const char *hopfeed_error_text(CUresult r) {
	const char *s;
	return cuGetErrorString(r, &s) == CUDA_SUCCESS ? s : "no text";
}
