//go:build cuda && cgo && linux

package cuda

/*
#include "native.h"
*/
import "C"

import (
	"errors"
	"math"
	"math/bits"
	"unsafe"

	"github.com/hopfeed/hopfeed/gds"
)

func (s *stream) Copy(dst, src gds.Tensor) {
	s.enqueue("Copy", []gds.Tensor{dst, src}, func(c *call) {
		c.sameShape(dst, src)
		to, dstStart, err := memory(dst)
		c.require(err == nil, err)
		from, srcStart, err := memory(src)
		c.require(err == nil, err)
		if c.err != nil || from == nil {
			return
		}
		c.require(dst.DType == src.DType, errTypes)
		if c.err == nil {
			c.err = s.copyRows(to, dstStart, dst, from, srcStart, src)
		}
	})
}

// longestRow is how many bytes apart rows may be that are copied by one call.
const longestRow = math.MaxInt32

func (s *stream) copyRows(to *buffer, dstStart uint64, dst gds.Tensor, from *buffer, srcStart uint64,
	src gds.Tensor) error {
	size := int64(dst.DType.Size())
	width, rows := C.size_t(int64(dst.Cols)*size), C.size_t(dst.Rows)
	dstPitch, srcPitch := int64(dst.Stride)*size, int64(src.Stride)*size
	context, stream := handle(s.device.context), handle(s.stream)
	if !to.pinned && !from.pinned && to.device.ordinal != from.device.ordinal {
		if err := to.device.reachPeer(from.device); err != nil {
			return err
		}
	}
	switch {
	case dst.Dense() && src.Dense():
		return check(C.hopfeed_copy(context, stream, C.uint64_t(dstStart), C.uint64_t(srcStart), width*rows))
	case dstPitch > longestRow || srcPitch > longestRow:
		return errors.New("rows are more than 2 GiB apart")
	case to.pinned || from.pinned || to.device.ordinal == from.device.ordinal:
		return check(C.hopfeed_copy_rows(context, stream, C.uint64_t(dstStart), C.size_t(dstPitch),
			C.uint64_t(srcStart), C.size_t(srcPitch), width, rows))
	}
	return check(C.hopfeed_copy_rows_to_peer(context, stream, handle(to.device.context), C.uint64_t(dstStart),
		C.size_t(dstPitch),
		handle(from.device.context), C.uint64_t(srcStart), C.size_t(srcPitch), width, rows))
}

// convertKernels are by the types that they convert to and from.
var convertKernels = map[[2]gds.DType]*kernel{
	{gds.Float16, gds.Float32}:  newKernel("move", "convert_f16_f32"),
	{gds.BFloat16, gds.Float32}: newKernel("move", "convert_bf16_f32"),
	{gds.Float32, gds.Float16}:  newKernel("move", "convert_f32_f16"),
	{gds.Float32, gds.BFloat16}: newKernel("move", "convert_f32_bf16"),
	{gds.BFloat16, gds.Float16}: newKernel("move", "convert_bf16_f16"),
	{gds.Float16, gds.BFloat16}: newKernel("move", "convert_f16_bf16"),
}

func (s *stream) Convert(dst, src gds.Tensor) {
	s.enqueue("Convert", []gds.Tensor{dst, src}, func(c *call) {
		c.require(dst.DType.IsFloat() && src.DType.IsFloat(), errors.New("want float types"))
		c.sameShape(dst, src)
		for _, t := range [2]gds.Tensor{dst, src} {
			c.number(c.address(t))
			c.number(uint64(t.Stride))
		}
		switch {
		case c.err != nil || dst.Rows == 0 || dst.Cols == 0:
		case dst.DType == src.DType:
			c.err = s.copyRows(dst.Buf.(*buffer), c.args[0], dst, src.Buf.(*buffer), c.args[2], src)
		default:
			c.size(dst.Rows, dst.Cols)
			c.each(convertKernels[[2]gds.DType{dst.DType, src.DType}], dst.Rows*dst.Cols)
		}
	})
}

// gatherKernels are by the logarithm of the unit that they move, and whether the index is of 64 bits.
var gatherKernels = [5][2]*kernel{
	{newKernel("move", "gather_1_by_u32"), newKernel("move", "gather_1_by_i64")},
	{newKernel("move", "gather_2_by_u32"), newKernel("move", "gather_2_by_i64")},
	{newKernel("move", "gather_4_by_u32"), newKernel("move", "gather_4_by_i64")},
	{newKernel("move", "gather_8_by_u32"), newKernel("move", "gather_8_by_i64")},
	{newKernel("move", "gather_16_by_u32"), newKernel("move", "gather_16_by_i64")},
}

func (s *stream) Gather(dst, src, index gds.Tensor) {
	s.enqueue("Gather", []gds.Tensor{dst, src, index}, func(c *call) {
		c.require(isVector(index, dst.Rows) && dst.Cols == src.Cols, errShape)
		if c.err != nil || dst.Rows == 0 || dst.Cols == 0 {
			return
		}
		c.require(dst.DType == src.DType, errTypes)
		wide := index.DType == gds.Int64
		indexType, which := gds.Uint32, 0
		if wide {
			indexType, which = gds.Int64, 1
		}
		to, from, by := c.address(dst), c.mapped(src), c.typed(index, indexType)
		if c.err != nil {
			return
		}
		unit := c.rows(to, dst, from, src, by, dst.Rows)
		c.number(uint64(src.Rows))
		c.checked()
		c.each(gatherKernels[unit.log][which], dst.Rows*unit.cols)
	})
}

// rowUnits are what rows are moved in: the largest that all rows are multiples of.
type rowUnits struct{ log, cols int }

// rows passes two matrices in units, and how many rows are moved by an index.
func (c *call) rows(to uint64, dst gds.Tensor, from uint64, src gds.Tensor, by uint64, rows int) rowUnits {
	size := uint64(dst.DType.Size())
	log := min(4, bits.TrailingZeros64(to|from|size*uint64(dst.Cols)|size*uint64(dst.Stride)|size*uint64(src.Stride)))
	u := rowUnits{log, dst.Cols * int(size) >> log}
	c.number(to)
	c.number(uint64(dst.Stride) * size >> log)
	c.number(from)
	c.number(uint64(src.Stride) * size >> log)
	c.number(by)
	c.size(rows, u.cols)
	return u
}

// scatterKernels are by the logarithm of the unit that they move.
var scatterKernels = [5]*kernel{
	newKernel("move", "scatter_1"), newKernel("move", "scatter_2"), newKernel("move", "scatter_4"),
	newKernel("move", "scatter_8"), newKernel("move", "scatter_16"),
}

func (s *stream) Scatter(dst, src, index gds.Tensor) {
	s.enqueue("Scatter", []gds.Tensor{dst, src, index}, func(c *call) {
		c.require(isVector(index, src.Rows) && dst.Cols == src.Cols, errShape)
		if c.err != nil || src.Rows == 0 || src.Cols == 0 {
			return
		}
		c.require(dst.DType == src.DType, errTypes)
		to, from, by := c.address(dst), c.address(src), c.typed(index, gds.Uint32)
		if c.err != nil {
			return
		}
		unit := c.rows(to, dst, from, src, by, src.Rows)
		c.number(uint64(dst.Rows))
		c.checked()
		c.each(scatterKernels[unit.log], src.Rows*unit.cols)
	})
}

// fillKernels are by the logarithm of the size of an element.
var fillKernels = [4]*kernel{newKernel("move", "fill_1"), newKernel("move", "fill_2"), newKernel("move", "fill_4"),
	newKernel("move", "fill_8")}

func (s *stream) Fill(dst gds.Tensor, value float32) {
	s.enqueue("Fill", []gds.Tensor{dst}, func(c *call) {
		start := c.address(dst)
		if c.err != nil || dst.Rows == 0 || dst.Cols == 0 {
			return
		}
		if value != 0 || math.Signbit(float64(value)) {
			start = c.typed(dst, gds.Float32)
		}
		c.number(start)
		c.number(uint64(dst.Stride))
		c.size(dst.Rows, dst.Cols)
		c.number(uint64(*(*uint32)(unsafe.Pointer(&value))))
		c.each(fillKernels[bits.TrailingZeros(uint(dst.DType.Size()))], dst.Rows*dst.Cols)
	})
}
