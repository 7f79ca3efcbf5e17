package main

import (
	. "github.com/mmcloughlin/avo/build"
	. "github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"
)

// feistelVectors is how many vectors of 8 numbers go through the network side by side. A product of 64 bits takes long,
// and a new one can begin every other cycle: with 4 vectors the processor waits, with 11 it is no faster.
const feistelVectors = 8

// network emits the rounds of kernel.Feistel.
type network struct {
	golden, early, late reg.VecVirtual // the factors of rng.At
	a, mask, key        reg.VecVirtual
	hash, other         reg.VecVirtual // of the numbers at hand
}

// feistel emits the kernel behind kernel.Feistel, for whole turns of feistelVectors vectors.
func feistel() {
	function("feistelAVX512", "func(images []uint64, first uint64, keys []uint64, a uint64, shift uint)")
	n := &network{
		golden: broadcast64(0x9e3779b97f4a7c15),
		early:  broadcast64(0xbf58476d1ce4e5b9),
		late:   broadcast64(0x94d049bb133111eb),
		a:      ZMM(), mask: ZMM(), key: ZMM(), hash: ZMM(), other: ZMM(),
	}
	VPBROADCASTQ(parameter("a"), n.a)
	count, mask, shift := argument("shift"), GP64(), XMM()
	VMOVQ(count, shift)
	MOVQ(I32(1), mask)
	SHLXQ(count, mask, mask)
	DECQ(mask)
	VPBROADCASTQ(mask, n.mask)
	next, eight := ZMM(), broadcast64(8)
	VPBROADCASTQ(parameter("first"), next)
	VPADDQ(iota64(), next, next)
	images, left := start("images"), length("images")
	keys, keysEnd := start("keys"), length("keys")
	LEAQ(Mem{Base: keys, Index: keysEnd, Scale: 8}, keysEnd)
	var l, r [feistelVectors]reg.VecVirtual
	for i := range l {
		l[i], r[i] = ZMM(), ZMM()
	}

	Label("turn")
	SUBQ(U8(8*feistelVectors), left)
	JL(LabelRef("done"))
	for i := range l {
		VPSRLQ(shift, next, l[i])
		VPANDQ(n.mask, next, r[i])
		VPADDQ(eight, next, next)
	}
	key := GP64()
	MOVQ(keys, key)
	Label("round")
	n.load(Mem{Base: key})
	for i := range l {
		n.at(r[i])
		n.addBelow(l[i])
	}
	n.load(Mem{Base: key, Disp: 8})
	for i := range l {
		n.at(l[i])
		VPADDQ(n.hash, r[i], r[i])
		VPANDQ(n.mask, r[i], r[i])
	}
	ADDQ(U8(16), key)
	CMPQ(key, keysEnd)
	JB(LabelRef("round"))
	for i := range l {
		VPSLLQ(shift, l[i], l[i])
		VPORQ(l[i], r[i], r[i])
		VMOVDQU64(r[i], Mem{Base: images, Disp: 64 * i})
	}
	ADDQ(I32(64*feistelVectors), images)
	JMP(LabelRef("turn"))
	Label("done")
	finish()
}

func broadcast64(bits uint64) reg.VecVirtual {
	r, v := GP64(), ZMM()
	MOVQ(U64(bits), r)
	VPBROADCASTQ(r, v)
	return v
}

// iota64 is 0, 1, ... 7.
func iota64() Mem {
	m := GLOBL("iota64", RODATA|NOPTR)
	for i := range 8 {
		DATA(8*i, U64(i))
	}
	return m
}

// load gets the key of a half round, and adds the 1 of rng.At's i+1 to it.
func (n *network) load(key Mem) {
	VPBROADCASTQ(key, n.key)
	VPADDQ(n.golden, n.key, n.key)
}

// at is rng.At.
func (n *network) at(i reg.VecVirtual) {
	VPMULLQ(n.golden, i, n.hash)
	VPADDQ(n.key, n.hash, n.hash)
	n.mix(30)
	VPMULLQ(n.early, n.hash, n.hash)
	n.mix(27)
	VPMULLQ(n.late, n.hash, n.hash)
	n.mix(31)
}

func (n *network) mix(bits uint8) {
	VPSRLQ(U8(bits), n.hash, n.other)
	VPXORQ(n.other, n.hash, n.hash)
}

// addBelow adds the upper half of hash*a to x, modulo a. Since a has 32 bits, that
// is of the upper half of hash times a, and what the lower half times a carries.
func (n *network) addBelow(x reg.VecVirtual) {
	VPSRLQ(U8(32), n.hash, n.other)
	VPMULUDQ(n.a, n.hash, n.hash)
	VPMULUDQ(n.a, n.other, n.other)
	VPSRLQ(U8(32), n.hash, n.hash)
	VPADDQ(n.hash, n.other, n.other)
	VPSRLQ(U8(32), n.other, n.other)
	VPADDQ(n.other, x, x)
	VPSUBQ(n.a, x, n.other) // wraps round where x is below a
	VPMINUQ(n.other, x, x)
}
