package main

import (
	"math"

	. "github.com/mmcloughlin/avo/build"
	. "github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"
)

// expSums is how many sums kernel.Exp has.
const expSums = 16

// The constants of kernel.Exp, by name, each as often as the widest register has lanes. Their values are in ../exp.go.
var (
	expConstants Mem
	expPlaces    = map[string]int{}
)

func expTable() {
	expConstants = GLOBL("expConstants", RODATA|NOPTR)
	for i, c := range []struct {
		name string
		bits uint32
	}{
		{"least", math.Float32bits(-104)},
		{"most", math.Float32bits(89)},
		{"log2e", 0x3fb8aa3b},
		{"magic", 0x4b400000},
		{"ln2Upper", 0x3f317200},
		{"ln2Lower", 0x35bfbe8e},
		{"c6", 0x3ab511e8},
		{"c5", 0x3c091d10},
		{"c4", 0x3d2aac79},
		{"c3", 0x3e2aaa49},
		{"c2", 0x3efffffe},
		{"one", math.Float32bits(1)},
		{"minusInfinity", 0xff800000},
	} {
		expPlaces[c.name] = i
		for lane := range avx512.lanes {
			DATA(4*(i*avx512.lanes+lane), U32(c.bits))
		}
	}
}

func constant(name string) Mem {
	return expConstants.Offset(4 * avx512.lanes * expPlaces[name])
}

// loadConstant is a register with a constant.
func loadConstant(set isa, name string) reg.VecVirtual {
	v := set.vector()
	VMOVUPS(constant(name), v)
	return v
}

// powers emits x = exp(x). NaN stays NaN, as it is the last operand of minima and maxima.
func powers(set isa, x, least, most reg.VecVirtual) {
	t, n, product, q := set.vector(), set.vector(), set.vector(), set.vector()
	VMAXPS(x, least, x)
	VMINPS(x, most, x)
	VMULPS(constant("log2e"), x, t)
	VADDPS(constant("magic"), t, t)
	VSUBPS(constant("magic"), t, n)
	VMULPS(constant("ln2Upper"), n, product)
	VSUBPS(product, x, x)
	VMULPS(constant("ln2Lower"), n, product)
	VSUBPS(product, x, x)
	VMULPS(constant("c6"), x, q)
	for _, c := range []string{"c5", "c4", "c3", "c2"} {
		VADDPS(constant(c), q, q)
		if c != "c2" {
			VMULPS(x, q, q)
		}
	}
	VMULPS(x, x, product)
	VMULPS(product, q, q)
	VADDPS(q, x, x)
	VADDPS(constant("one"), x, x)
	if set == avx512 {
		VSCALEFPS(n, x, x)
		return
	}
	half := set.vector()
	VPSUBD(constant("magic"), t, t)
	VPSRAD(U8(1), t, half)
	VPSUBD(half, t, t)
	for _, exponent := range []reg.VecVirtual{half, t} {
		VPSLLD(U8(23), exponent, exponent)
		VPADDD(constant("one"), exponent, exponent)
		VMULPS(exponent, x, x)
	}
}

// exp emits the kernel behind kernel.Exp.
func exp(set isa) {
	function("exp"+set.name, "func(dst, src []float32, less float32) (sum float32)")
	dst, src, left := start("dst"), start("src"), length("src")
	least, most, less := loadConstant(set, "least"), loadConstant(set, "most"), set.vector()
	VBROADCASTSS(parameter("less"), less)
	sums := make([]reg.VecVirtual, expSums/set.lanes)
	for i := range sums {
		sums[i] = set.vector()
		VXORPS(sums[i].AsX(), sums[i].AsX(), sums[i].AsX())
	}
	Label("next")
	SUBQ(U8(expSums), left)
	JL(LabelRef("rest"))
	for i, sum := range sums {
		x := set.vector()
		VMOVUPS(Mem{Base: src, Disp: 4 * set.lanes * i}, x)
		VSUBPS(less, x, x)
		powers(set, x, least, most)
		VADDPS(x, sum, sum)
		VMOVUPS(x, Mem{Base: dst, Disp: 4 * set.lanes * i})
	}
	ADDQ(U8(4*expSums), src)
	ADDQ(U8(4*expSums), dst)
	JMP(LabelRef("next"))

	Label("rest")
	ADDQ(U8(expSums), left)
	JZ(LabelRef("add"))
	masks := firstLanes(set, left, len(sums))
	for i, sum := range sums {
		x, at := set.vector(), 4*set.lanes*i
		if set == avx512 {
			VMOVUPS_Z(Mem{Base: src, Disp: at}, masks[i], x)
		} else {
			VMASKMOVPS(Mem{Base: src, Disp: at}, masks[i], x)
		}
		VSUBPS(less, x, x)
		powers(set, x, least, most)
		if set == avx512 {
			VADDPS(x, sum, masks[i], sum)
			VMOVUPS(x, masks[i], Mem{Base: dst, Disp: at})
		} else {
			VANDPS(masks[i], x, x)
			VADDPS(x, sum, sum)
			VMASKMOVPS(x, masks[i], Mem{Base: dst, Disp: at})
		}
	}
	Label("add")
	if set == avx2 {
		VADDPS(sums[1], sums[0], sums[0])
	}
	fold(set, sums[0], func(upper, sum reg.Register) { VADDPS(upper, sum, sum) })
	VMOVSS(sums[0].AsX(), result())
	finish()
}

// largest emits the kernel behind kernel.Max.
func largest(set isa) {
	function("largest"+set.name, "func(x []float32) float32")
	x, left := start("x"), length("x")
	most, v := loadConstant(set, "minusInfinity"), set.vector()
	Label("next")
	SUBQ(U8(set.lanes), left)
	JL(LabelRef("rest"))
	VMOVUPS(Mem{Base: x}, v)
	VMAXPS(most, v, most) // of NaN and another number the last operand, which is the first here
	ADDQ(U8(4*set.lanes), x)
	JMP(LabelRef("next"))

	Label("rest")
	ADDQ(U8(set.lanes), left)
	JZ(LabelRef("fold"))
	mask := firstLanes(set, left, 1)[0]
	if set == avx512 {
		VMOVUPS_Z(Mem{Base: x}, mask, v)
		VMAXPS(most, v, mask, most)
	} else {
		VMASKMOVPS(Mem{Base: x}, mask, v)
		VMAXPS(most, v, v)
		VBLENDVPS(mask, v, most, most)
	}
	Label("fold")
	fold(set, most, func(upper, sum reg.Register) { VMAXPS(upper, sum, sum) })
	VMOVSS(most.AsX(), result())
	finish()
}

// fold emits with(upper half, lower half) of a vector, then of its lower half, and so on, until the result is in its
// first lane.
func fold(set isa, v reg.VecVirtual, with func(upper, lower reg.Register)) {
	upper := set.vector()
	if set == avx512 {
		VEXTRACTF64X4(U8(1), v, upper.AsY())
		with(upper.AsY(), v.AsY())
	}
	VEXTRACTF128(U8(1), v.AsY(), upper.AsX())
	with(upper.AsX(), v.AsX())
	VMOVHLPS(v.AsX(), v.AsX(), upper.AsX())
	with(upper.AsX(), v.AsX())
	VMOVSHDUP(v.AsX(), upper.AsX())
	with(upper.AsX(), v.AsX())
}

// firstLanes are masks of some vectors, set in the first n lanes of all of them.
func firstLanes(set isa, n reg.GPVirtual, vectors int) []reg.Register {
	if set == avx512 {
		ones, mask := GP64(), K()
		MOVL(U32(0xffff), ones.As32())
		BZHIQ(n, ones, ones)
		KMOVW(ones.As32(), mask)
		return []reg.Register{mask}
	}
	at, masks := GP64(), make([]reg.Register, vectors)
	LEAQ(laneMask, at)
	NEGQ(n)
	for i := range masks {
		mask := YMM()
		VMOVDQU(Mem{Base: at, Index: n, Scale: 4, Disp: 4 * (laneMaskSet + i*set.lanes)}, mask)
		masks[i] = mask
	}
	return masks
}

// laneMask has laneMaskSet words that are set, and as many behind them that are not.
var laneMask Mem

const laneMaskSet = 16

func laneMasks() {
	laneMask = GLOBL("laneMask", RODATA|NOPTR)
	for i := range 2 * laneMaskSet {
		bits := uint32(0)
		if i < laneMaskSet {
			bits = 0xffffffff
		}
		DATA(4*i, U32(bits))
	}
}
