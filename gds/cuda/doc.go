// Package cuda is the device on NVIDIA GPUs, from Ampere (sm_80) on. It is built with the tag cuda,
// by cgo, on Linux; without the tag nothing of it is in a program.
//
// The driver, cuBLAS and cuFile are loaded when they are asked for, so that a program that has this
// package runs without them, and says why there is no device. Devices, contexts, memory, modules,
// streams and events are gorgonia.org/cu's; native.c has what that lacks (pinned memory, groups) and
// what must allocate nothing.
//
// # Kernels
//
// kernels/*.cu has one file for each group of gds.Ops. They are compiled ahead to PTX, which is
// embedded; kernels/compile.py says how. Tests run the same sources on the processor: see softcuda.
//
// # Errors
//
// Shapes, types and memory are checked when an operation is enqueued. Indices and labels are checked by the kernels:
// the first that is wrong goes, with its place, into a word in pinned memory of the stream, and is found at the next
// event. Operations that were enqueued meanwhile have run; they have read and written nothing outside of their tensors.
package cuda
