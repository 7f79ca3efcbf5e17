package main

import (
	. "github.com/mmcloughlin/avo/build"
	. "github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"
)

// dotLanes is how many sums kernel.Dot has.
const dotLanes = 32

// dot emits the kernel behind kernel.Dot, for a length that is a multiple of dotLanes.
func dot(set isa) {
	function("dot"+set.name, "func(x, y []float32) float32")
	x, y, left := start("x"), start("y"), length("x")
	sums := make([]reg.VecVirtual, dotLanes/set.lanes)
	for i := range sums {
		sums[i] = set.vector()
		set.clearVector(sums[i])
	}
	Label("next")
	SUBQ(U8(dotLanes), left)
	JL(LabelRef("add"))
	for i := range sums {
		products := set.vector()
		VMOVUPS(Mem{Base: x, Disp: 4 * set.lanes * i}, products)
		VMULPS(Mem{Base: y, Disp: 4 * set.lanes * i}, products, products)
		VADDPS(products, sums[i], sums[i])
	}
	ADDQ(I32(4*dotLanes), x)
	ADDQ(I32(4*dotLanes), y)
	JMP(LabelRef("next"))
	Label("add")
	for n := len(sums) / 2; n > 0; n /= 2 {
		for i := range n {
			VADDPS(sums[n+i], sums[i], sums[i])
		}
	}
	sum := sums[0]
	fold(set, sum, func(upper, sum reg.Register) { VADDPS(upper, sum, sum) })
	VMOVSS(sum.AsX(), result())
	finish()
}

// addScaled emits the kernel behind kernel.AddScaled, or without add that behind kernel.Scale.
func addScaled(set isa, name string, add bool) {
	function(name+set.name, "func(dst []float32, by float32, x []float32)")
	dst, x, left := start("dst"), start("x"), length("x")
	by, products := set.vector(), set.vector()
	VBROADCASTSS(parameter("by"), by)
	Label("next")
	SUBQ(U8(set.lanes), left)
	JL(LabelRef("rest"))
	VMULPS(Mem{Base: x}, by, products)
	if add {
		VADDPS(Mem{Base: dst}, products, products)
	}
	VMOVUPS(products, Mem{Base: dst})
	ADDQ(I32(4*set.lanes), x)
	ADDQ(I32(4*set.lanes), dst)
	JMP(LabelRef("next"))

	Label("rest")
	ADDQ(U8(set.lanes), left)
	JZ(LabelRef("done"))
	mask := firstLanes(set, left, 1)[0]
	before := set.vector()
	if set == avx512 {
		VMULPS_Z(Mem{Base: x}, by, mask, products)
		if add {
			VADDPS_Z(Mem{Base: dst}, products, mask, products)
		}
		VMOVUPS(products, mask, Mem{Base: dst})
	} else {
		VMASKMOVPS(Mem{Base: x}, mask, products)
		VMULPS(products, by, products)
		if add {
			VMASKMOVPS(Mem{Base: dst}, mask, before)
			VADDPS(before, products, products)
		}
		VMASKMOVPS(products, mask, Mem{Base: dst})
	}
	Label("done")
	finish()
}
