// Command gen writes the assembly of package kernel. In internal/kernel/_gen:
//
//	go run . -out ../kernel_amd64.s -stubs ../stubs_amd64.go -pkg kernel
package main

import (
	. "github.com/mmcloughlin/avo/build"
	"github.com/mmcloughlin/avo/gotypes"
	. "github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"
)

// isa is an instruction set.
type isa struct {
	name  string
	lanes int // float32 in a register
}

var (
	avx2   = isa{"AVX2", 8}
	avx512 = isa{"AVX512", 16}
)

func (set isa) vector() reg.VecVirtual {
	if set == avx512 {
		return ZMM()
	}
	return YMM()
}

// half is a register of as many numbers of 16 bits.
func (set isa) half() reg.VecVirtual {
	if set == avx512 {
		return YMM()
	}
	return XMM()
}

// element is a type of numbers in memory.
type element struct {
	name, goType string
	bytes        int
	largest      uint32 // bits of the largest float32 that rounds to a finite one
}

var (
	float32s  = element{"Float32", "float32", 4, 0x7f7fffff}
	float16s  = element{"Float16", "uint16", 2, 0x477fefff}
	bfloat16s = element{"BFloat16", "uint16", 2, 0x7f7f7fff}
)

// one is the coefficient where none are given.
var one Mem

func main() {
	ConstraintExpr("!noasm")
	one = GLOBL("one", RODATA|NOPTR)
	DATA(0, F32(1))
	laneMasks()
	expTable()
	for _, set := range []isa{avx2, avx512} {
		for _, t := range []element{float32s, float16s, bfloat16s} {
			sumLists(set, t)
			scale(set, t)
			if t != float32s {
				decode(set, t)
			}
		}
		gather(set)
		gemm(set)
		dot(set)
		addScaled(set, "addScaled", true)
		addScaled(set, "scaled", false)
		exp(set)
		largest(set)
	}
	feistel()
	crc()
	Generate()
}

// function begins a function, whose end is for finish to emit.
func function(name, signature string) {
	TEXT(name, NOSPLIT, signature)
	Pragma("noescape")
}

func finish() {
	VZEROUPPER()
	RET()
}

// argument loads an argument, start the pointer of a slice, and length its length.
func argument(name string) reg.GPVirtual { return Load(Param(name), GP64()).(reg.GPVirtual) }
func start(name string) reg.GPVirtual    { return Load(Param(name).Base(), GP64()).(reg.GPVirtual) }
func length(name string) reg.GPVirtual   { return Load(Param(name).Len(), GP64()).(reg.GPVirtual) }

// parameter is where an argument is, and result where the result is.
func parameter(name string) Mem { return place(Param(name)) }
func result() Mem               { return place(ReturnIndex(0)) }

func place(c gotypes.Component) Mem {
	b, err := c.Resolve()
	if err != nil {
		panic(err)
	}
	return b.Addr
}

// clearVector sets all lanes to zero, as numbers of 32 bits.
func (set isa) clearVector(v reg.VecVirtual) {
	if set == avx512 {
		VPXORD(v, v, v)
	} else {
		VPXOR(v, v, v)
	}
}

// load makes float32 of a vector of numbers at m.
func load(t element, m Op, to reg.VecVirtual) {
	switch t {
	case float32s:
		VMOVUPS(m, to)
	case float16s:
		VCVTPH2PS(m, to)
	case bfloat16s:
		VPMOVZXWD(m, to)
		VPSLLD(U8(16), to, to)
	}
}

// broadcast fills a vector with a constant.
func broadcast(set isa, bits uint32) reg.VecVirtual {
	r, v := GP32(), set.vector()
	MOVL(U32(bits), r)
	if set == avx512 {
		VPBROADCASTD(r, v)
	} else {
		VMOVD(r, v.AsX())
		VPBROADCASTD(v.AsX(), v)
	}
	return v
}
