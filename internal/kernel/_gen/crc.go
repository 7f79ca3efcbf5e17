package main

import (
	. "github.com/mmcloughlin/avo/build"
	. "github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"
)

const (
	crcVectors = 4               // registers of 64 bytes that hold the remainder so far
	crcStep    = 64 * crcVectors // bytes that are folded into it at a time
	crcAhead   = 2048            // bytes
)

// crc emits the kernel behind kernel.CRC32C, for whole steps, on the register of the checksum (its complement). Each
// lane of 16 bytes, as a polynomial over GF(2), is multiplied by x^(8*crcStep) mod P and added to the lane that many
// bits later (Gopal et al., "Fast CRC Computation for Generic Polynomials Using PCLMULQDQ Instruction", Intel 2009).
// The last step's remainder has the checksum of the whole.
func crc() {
	// x^(8*crcStep+32) mod P and x^(8*crcStep-32) mod P, reflected, times x: for the low and the high half of a lane.
	factors := GLOBL("crcFactors", RODATA|NOPTR)
	DATA(0, U64(0xdcb17aa4))
	DATA(8, U64(0xb9e02b86))

	function("crcAVX512", "func(register uint32, p []byte) uint32")
	remainder := AllocLocal(crcStep)
	p, left := start("p"), length("p")
	factor, low := ZMM(), ZMM()
	VBROADCASTI32X4(factors, factor)
	var sum [crcVectors]reg.VecVirtual
	for i := range sum {
		sum[i] = ZMM()
		VMOVDQU64(Mem{Base: p, Disp: 64 * i}, sum[i])
	}
	register, first := argument("register"), XMM()
	VMOVD(register.As32(), first) // the rest of it is zero
	VPXORQ(first.AsZ(), sum[0], sum[0])
	Label("step")
	ADDQ(U32(crcStep), p)
	SUBQ(U32(crcStep), left)
	JBE(LabelRef("done"))
	for i := range sum {
		PREFETCHT0(Mem{Base: p, Disp: crcAhead + 64*i})
		VPCLMULQDQ(U8(0x00), factor, sum[i], low)
		VPCLMULQDQ(U8(0x11), factor, sum[i], sum[i])
		VPTERNLOGD(U8(0x96), Mem{Base: p, Disp: 64 * i}, low, sum[i])
	}
	JMP(LabelRef("step"))
	Label("done")
	for i := range sum {
		VMOVDQU64(sum[i], remainder.Offset(64*i))
	}
	out := GP64()
	XORL(out.As32(), out.As32())
	for i := range crcStep / 8 {
		CRC32Q(remainder.Offset(8*i), out)
	}
	Store(out.As32(), ReturnIndex(0))
	finish()
}
