package main

import (
	"fmt"

	. "github.com/mmcloughlin/avo/build"
	. "github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"
)

// scaler emits one scale function.
type scaler struct {
	set isa
	t   element

	dst, src, factors, factorsEnd reg.GPVirtual
	whole, tail                   reg.GPVirtual // columns, in whole vectors and after them
	magnitude, most               reg.VecVirtual
	rounder
}

// scale emits the kernel behind kernel.ScaleFloat32 and its like, for the whole vectors of each row.
func scale(set isa, t element) {
	function("scale"+t.name+set.name, fmt.Sprintf(
		"func(dst []%s, src, factors []float32, columns int, stream bool) (finite bool)", t.goType))
	s := &scaler{set: set, t: t}
	s.dst, s.src = start("dst"), start("src")
	s.factors, s.factorsEnd = start("factors"), length("factors")
	LEAQ(Mem{Base: s.factors, Index: s.factorsEnd, Scale: 4}, s.factorsEnd)
	s.whole, s.tail = argument("columns"), argument("columns")
	ANDQ(I8(-set.lanes), s.whole)
	SUBQ(s.whole, s.tail)
	s.magnitude = broadcast(set, 0x7fffffff)
	largest := broadcast(set, t.largest)
	s.most = set.vector() // magnitude in each lane; infinities and NaN are above all others
	set.clearVector(s.most)
	if t == bfloat16s {
		s.rounder = newRounder(set)
	}

	CMPB(parameter("stream"), U8(0))
	JE(LabelRef("rows"))
	Comment("Only whole cache lines are written past the caches.")
	lines := argument("columns")
	IMUL3Q(U8(t.bytes), lines, lines)
	ORQ(s.dst, lines)
	TESTQ(U32(63), lines)
	JNE(LabelRef("rows"))
	s.rows("streamed", true)
	SFENCE()
	JMP(LabelRef("done"))
	s.rows("rows", false)

	Label("done")
	if set == avx512 {
		over := K()
		VPCMPGTD(largest, s.most, over)
		KORTESTW(over, over)
	} else {
		VPCMPGTD(largest, s.most, s.most)
		VPTEST(s.most, s.most)
	}
	SETEQ(result())
	finish()
}

// rows scales all rows.
func (s *scaler) rows(label string, stream bool) {
	Label(label)
	CMPQ(s.factors, s.factorsEnd)
	JE(LabelRef(label + "End"))
	factor, left := s.set.vector(), GP64()
	VBROADCASTSS(Mem{Base: s.factors}, factor)
	ADDQ(U8(4), s.factors)
	MOVQ(s.whole, left)
	Label(label + "Vector")
	SUBQ(U8(s.set.lanes), left)
	JL(LabelRef(label + "Tail"))
	x, m := s.set.vector(), s.set.vector()
	VMULPS(Mem{Base: s.src}, factor, x)
	if s.set == avx512 {
		VPANDD(x, s.magnitude, m)
	} else {
		VPAND(x, s.magnitude, m)
	}
	VPMAXUD(m, s.most, s.most)
	to := Mem{Base: s.dst}
	switch s.t {
	case float32s:
		store(stream, x, to)
	case float16s:
		if stream {
			half := s.set.half()
			VCVTPS2PH(U8(0), x, half)
			store(stream, half, to)
		} else {
			VCVTPS2PH(U8(0), x, to)
		}
	case bfloat16s:
		s.round(x)
		if s.set == avx512 {
			half := s.set.half()
			VPMOVDW(x, half)
			store(stream, half, to)
		} else {
			VPACKUSDW(x, x, x)
			VPERMQ(U8(0b1000), x, x)
			store(stream, x.AsX(), to)
		}
	}
	ADDQ(I32(4*s.set.lanes), s.src)
	ADDQ(U8(s.t.bytes*s.set.lanes), s.dst)
	JMP(LabelRef(label + "Vector"))
	Label(label + "Tail")
	if !stream { // a streamed row has none
		LEAQ(Mem{Base: s.src, Index: s.tail, Scale: 4}, s.src)
		LEAQ(Mem{Base: s.dst, Index: s.tail, Scale: uint8(s.t.bytes)}, s.dst)
	}
	JMP(LabelRef(label))
	Label(label + "End")
}

// store writes a vector, past the caches if it is a stream.
func store(stream bool, x reg.Register, to Mem) {
	if stream {
		VMOVNTPS(x, to)
	} else {
		VMOVUPS(x, to)
	}
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
	function("decode"+t.name+set.name, "func(dst []float32, src []uint16)")
	dst, src := start("dst"), start("src")
	left := length("src")
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
	finish()
}
