package main

import (
	"fmt"

	. "github.com/mmcloughlin/avo/build"
	. "github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"
)

// scale emits the kernel behind kernel.ScaleFloat32 and its like, for whole vectors.
// It fetches the memory behind dst, which is the next row to be written, as a rule:
// a row is written in a burst that would wait for it.
func scale(set isa, t element) {
	TEXT("scale"+t.name+set.name, NOSPLIT, fmt.Sprintf("func(dst []%s, src []float32, s float32) (finite bool)", t.goType))
	Pragma("noescape")
	dst, src := argument(Param("dst").Base()), argument(Param("src").Base())
	left := argument(Param("src").Len())
	behind := GP64()
	IMUL3Q(U8(t.bytes), left, behind)
	factor := set.vector()
	VBROADCASTSS(memory(Param("s")), factor)
	magnitude, largest := broadcast(set, 0x7fffffff), broadcast(set, t.largest)
	most := set.vector() // magnitude in each lane; infinities and NaN are above all others
	if set == avx512 {
		VPXORD(most, most, most)
	} else {
		VPXOR(most, most, most)
	}
	var r rounder
	if t == bfloat16s {
		r = newRounder(set)
	}

	Label("next")
	SUBQ(U8(set.lanes), left)
	JL(LabelRef("done"))
	x, m := set.vector(), set.vector()
	PREFETCHT0(Mem{Base: dst, Index: behind, Scale: 1})
	VMULPS(Mem{Base: src}, factor, x)
	if set == avx512 {
		VPANDD(x, magnitude, m)
	} else {
		VPAND(x, magnitude, m)
	}
	VPMAXUD(m, most, most)
	switch t {
	case float32s:
		VMOVUPS(x, Mem{Base: dst})
	case float16s:
		VCVTPS2PH(U8(0), x, Mem{Base: dst})
	case bfloat16s:
		r.round(x)
		if set == avx512 {
			VPMOVDW(x, Mem{Base: dst})
		} else {
			VPACKUSDW(x, x, x)
			VPERMQ(U8(0b1000), x, x)
			VMOVUPS(x.AsX(), Mem{Base: dst})
		}
	}
	ADDQ(U8(4*set.lanes), src)
	ADDQ(U8(t.bytes*set.lanes), dst)
	JMP(LabelRef("next"))

	Label("done")
	if set == avx512 {
		over := K()
		VPCMPGTD(largest, most, over)
		KORTESTW(over, over)
	} else {
		VPCMPGTD(largest, most, most)
		VPTEST(most, most)
	}
	SETEQ(memory(ReturnIndex(0)))
	VZEROUPPER()
	RET()
}

// rounder makes bfloat16 of float32, in the lower halves of lanes.
type rounder struct {
	set              isa
	half, one, quiet reg.VecVirtual
}

func newRounder(set isa) rounder {
	return rounder{set, broadcast(set, 0x7fff), broadcast(set, 1), broadcast(set, 0x40)}
}

func (r rounder) round(x reg.VecVirtual) {
	upper, odd := r.set.vector(), r.set.vector()
	VPSRLD(U8(16), x, upper)
	if r.set == avx512 {
		nan := K()
		VCMPPS(U8(3), x, x, nan) // unordered
		VPANDD(r.one, upper, odd)
		VPADDD(r.half, x, x)
		VPADDD(odd, x, x)
		VPSRLD(U8(16), x, x)
		VPORD(r.quiet, upper, nan, x)
		return
	}
	nan := YMM()
	VCMPPS(U8(3), x, x, nan)
	VPAND(r.one, upper, odd)
	VPOR(r.quiet, upper, upper)
	VPADDD(r.half, x, x)
	VPADDD(odd, x, x)
	VPSRLD(U8(16), x, x)
	VBLENDVPS(nan, upper, x, x)
}

// decode emits the kernel behind kernel.DecodeFloat16 and its like, for whole vectors.
func decode(set isa, t element) {
	TEXT("decode"+t.name+set.name, NOSPLIT, "func(dst []float32, src []uint16)")
	Pragma("noescape")
	dst, src := argument(Param("dst").Base()), argument(Param("src").Base())
	left := argument(Param("src").Len())
	Label("next")
	SUBQ(U8(set.lanes), left)
	JL(LabelRef("done"))
	x := set.vector()
	load(t, Mem{Base: src}, x)
	VMOVUPS(x, Mem{Base: dst})
	ADDQ(U8(2*set.lanes), src)
	ADDQ(I32(4*set.lanes), dst)
	JMP(LabelRef("next"))
	Label("done")
	VZEROUPPER()
	RET()
}
