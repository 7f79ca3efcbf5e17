//go:build cuda && cgo && linux

package cuda

/*
#include "native.h"
*/
import "C"

import (
	"errors"
	"fmt"
	"math"
	"math/bits"

	"github.com/hopfeed/hopfeed/gds"
)

// longestRow is how many bytes apart rows may be that are copied by one call.
const longestRow = math.MaxInt32

func (c *call) copy() {
	if c.buffers[0] != nil {
		c.err = c.copyRows()
	}
}

func (c *call) copyRows() error {
	to, from, dst, src := c.buffers[0], c.buffers[1], c.Tensors[0], c.Tensors[1]
	size := int64(dst.DType.Size())
	width, rows := C.size_t(int64(dst.Cols)*size), C.size_t(dst.Rows)
	dstStart, srcStart := C.uint64_t(c.at[0]), C.uint64_t(c.at[1])
	dstPitch, srcPitch := int64(dst.Stride)*size, int64(src.Stride)*size
	context, stream := handle(c.stream.device.context), handle(c.stream.stream)
	peers := !to.pinned && !from.pinned && to.device.ordinal != from.device.ordinal
	if peers {
		if err := to.device.reachPeer(from.device); err != nil {
			return err
		}
	}
	switch {
	case dst.Dense() && src.Dense():
		return check(C.hopfeed_copy(context, stream, dstStart, srcStart, width*rows))
	case dstPitch > longestRow || srcPitch > longestRow:
		return errors.New("rows are more than 2 GiB apart")
	case peers:
		return check(C.hopfeed_copy_rows_to_peer(context, stream, handle(to.device.context), dstStart,
			C.size_t(dstPitch), handle(from.device.context), srcStart, C.size_t(srcPitch), width, rows))
	}
	return check(C.hopfeed_copy_rows(context, stream, dstStart, C.size_t(dstPitch), srcStart, C.size_t(srcPitch), width,
		rows))
}

// convertKernels are by the types that they convert to and from.
var convertKernels = map[[2]gds.DType]string{
	{gds.Float16, gds.Float32}: "convert_f16_f32", {gds.BFloat16, gds.Float32}: "convert_bf16_f32",
	{gds.Float32, gds.Float16}: "convert_f32_f16", {gds.Float32, gds.BFloat16}: "convert_f32_bf16",
	{gds.BFloat16, gds.Float16}: "convert_bf16_f16", {gds.Float16, gds.BFloat16}: "convert_f16_bf16",
}

func (c *call) convert() {
	dst, src := c.Tensors[0], c.Tensors[1]
	if dst.DType == src.DType {
		c.copy()
		return
	}
	c.each(convertKernels[[2]gds.DType{dst.DType, src.DType}], dst.Rows*dst.Cols, matrix(0), matrix(1), dst.Rows,
		dst.Cols)
}

// byUnit are kernels by the logarithm of the bytes of the unit that they move.
func byUnit(name string) (kernels [5]string) {
	for i := range kernels {
		kernels[i] = fmt.Sprintf(name, 1<<i)
	}
	return kernels
}

var (
	gatherKernels, gather64Kernels = byUnit("gather_%d_by_u32"), byUnit("gather_%d_by_i64")
	scatterKernels, fillKernels    = byUnit("scatter_%d"), byUnit("fill_%d")
)

func (c *call) gather() {
	kernels := &gatherKernels
	if c.Tensors[2].DType == gds.Int64 {
		kernels = &gather64Kernels
	}
	c.moveRows(kernels, c.unit(0, 1), c.Tensors[0].Rows, c.Tensors[1].Rows, faults{})
}

func (c *call) scatter() {
	c.moveRows(&scatterKernels, c.unit(0, 1), c.Tensors[1].Rows, c.Tensors[0].Rows, faults{})
}

// unit is the logarithm of the bytes, up to 16, that the addresses, rows and strides of some tensors are multiples of.
func (c *call) unit(tensors ...int) int {
	all := uint64(0)
	for _, i := range tensors {
		t := &c.Tensors[i]
		all |= c.at[i] | uint64(t.DType.Size())*uint64(t.Cols|t.Stride)
	}
	return min(4, bits.TrailingZeros64(all))
}

// moveRows launches a kernel that moves rows from tensor 1 to tensor 0, in units, by the row numbers in
// tensor 2, which are below limit. last are its last arguments.
func (c *call) moveRows(kernels *[5]string, unit, rows, limit int, last ...any) {
	dst := c.Tensors[0]
	cols := dst.Cols * dst.DType.Size() >> unit
	c.pass(inUnits{0, unit}, inUnits{1, unit}, vector(2), rows, cols, limit)
	c.each(kernels[unit], rows*cols, last...)
}

func (c *call) fill() {
	dst := c.Tensors[0]
	kernel := fillKernels[bits.TrailingZeros(uint(max(dst.DType.Size(), 1)))]
	c.each(kernel, dst.Rows*dst.Cols, matrix(0), dst.Rows, dst.Cols, c.Alpha)
}
