package main

import (
	"fmt"

	. "github.com/mmcloughlin/avo/build"
	"github.com/mmcloughlin/avo/gotypes"
	. "github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"
)

// adder emits one add function.
type adder struct {
	set isa
	t   element

	columns, whole, limit, end, advance Mem // locals
	sum, nodes, remaining, coefficients reg.GPVirtual
}

// add emits the kernel behind kernel.AddFloat32 and its like. Sums stay in
// memory, which is the first-level cache; four rows are added to a vector of sums
// between its load and its store, while four others are fetched.
func add(set isa, t element) {
	TEXT("add"+t.name+set.name, NOSPLIT, fmt.Sprintf(
		"func(sum []float32, x []%s, stride int, nodes []uint32, k int, coefficients []float32, byNode bool, distance int) (added int)", t.goType))
	Pragma("noescape")
	local := func() Mem { return AllocLocal(8) }
	a := &adder{
		set: set, t: t,
		columns: local(), // len(sum)
		whole:   local(), // columns in whole cache lines of a row
		limit:   local(), // of the place in x where a row starts
		end:     local(), // of nodes
		advance: local(), // by how many bytes coefficients move for each row
	}
	a.sum = argument(Param("sum").Base())
	a.nodes = argument(Param("nodes").Base())
	a.remaining = argument(Param("k"))
	a.coefficients = argument(Param("coefficients").Base())

	n, start := argument(Param("sum").Len()), argument(Param("x").Len())
	MOVQ(n, a.columns)
	SUBQ(n, start)
	MOVQ(start, a.limit)
	ANDQ(I8(-a.step()), n)
	MOVQ(n, a.whole)
	end := argument(Param("nodes").Len())
	LEAQ(Mem{Base: a.nodes, Index: end, Scale: 4}, end)
	MOVQ(end, a.end)

	MOVQ(U32(4), a.advance)
	TESTQ(a.coefficients, a.coefficients)
	JNZ(LabelRef("given"))
	MOVQ(U32(0), a.advance)
	LEAQ(ones, a.coefficients)
	Label("given")

	a.rows(4)
	a.rows(1)
	Label("done")
	added := argument(Param("k"))
	SUBQ(a.remaining, added)
	Store(added, ReturnIndex(0))
	VZEROUPPER()
	RET()
}

func argument(c gotypes.Component) reg.GPVirtual {
	return Load(c, GP64()).(reg.GPVirtual)
}

// step is how many columns are a cache line of a row.
func (a *adder) step() int { return 64 / a.t.bytes }

// rows adds as many rows as there are, n at a time.
func (a *adder) rows(n int) {
	label := func(name string) string { return fmt.Sprintf("%s%d", name, n) }
	jump := func(name string) LabelRef { return LabelRef(label(name)) }
	Label(label("rows"))
	CMPQ(a.remaining, U8(n))
	JL(jump("end"))

	// Where the rows are, and those to fetch: of the last in the list, which have
	// none after them, themselves.
	row, ahead, c := make([]reg.GPVirtual, n), make([]reg.GPVirtual, n), make([]reg.VecVirtual, n)
	x := argument(Param("x").Base())
	at, after := argument(Param("distance")), GP64()
	LEAQ(Mem{Base: a.nodes, Index: at, Scale: 4}, at)
	LEAQ(Mem{Base: at, Disp: 4 * n}, after)
	CMPQ(after, a.end)
	CMOVQHI(a.nodes, at)
	for i := range n {
		row[i], ahead[i] = GP64(), GP64()
		MOVL(Mem{Base: a.nodes, Disp: 4 * i}, row[i].As32())
		IMULQ(memory(Param("stride")), row[i])
		CMPQ(row[i], a.limit)
		JG(LabelRef("done"))
		LEAQ(Mem{Base: x, Index: row[i], Scale: uint8(a.t.bytes)}, row[i])
	}
	for i := range n {
		MOVL(Mem{Base: at, Disp: 4 * i}, ahead[i].As32())
		IMULQ(memory(Param("stride")), ahead[i])
		LEAQ(Mem{Base: x, Index: ahead[i], Scale: uint8(a.t.bytes)}, ahead[i])
	}
	for i := range n {
		c[i] = a.set.vector()
	}
	j := GP64()
	CMPB(memory(Param("byNode")), U8(0))
	JE(jump("inOrder"))
	ofNode := Mem{Base: a.coefficients, Index: j, Scale: 4}
	for i := range n {
		MOVL(Mem{Base: at, Disp: 4 * i}, j.As32())
		PREFETCHT0(ofNode)
		MOVL(Mem{Base: a.nodes, Disp: 4 * i}, j.As32())
		VBROADCASTSS(ofNode, c[i])
	}
	JMP(jump("found"))
	Label(label("inOrder"))
	for i := range n {
		VBROADCASTSS(Mem{Base: a.coefficients, Disp: 4 * i}, c[i])
	}
	for range n {
		ADDQ(a.advance, a.coefficients)
	}
	Label(label("found"))
	ADDQ(U8(4*n), a.nodes)
	SUBQ(U8(n), a.remaining)

	XORQ(j, j)
	fetch := func(byte int) {
		for i := range n {
			PREFETCHT0(Mem{Base: ahead[i], Index: j, Scale: uint8(a.t.bytes), Disp: byte})
		}
	}
	// of x and sum, from column j + k
	inRow := func(i, k int) Mem {
		return Mem{Base: row[i], Index: j, Scale: uint8(a.t.bytes), Disp: k * a.t.bytes}
	}
	inSum := func(k int) Mem { return Mem{Base: a.sum, Index: j, Scale: 4, Disp: 4 * k} }

	Label(label("lines"))
	CMPQ(j, a.whole)
	JGE(jump("tail"))
	fetch(0)
	for k := 0; k < a.step(); k += a.set.lanes {
		s := a.set.vector()
		VMOVUPS(inSum(k), s)
		for i := range n {
			a.addVector(s, c[i], inRow(i, k))
		}
		VMOVUPS(s, inSum(k))
	}
	ADDQ(U8(a.step()), j)
	JMP(jump("lines"))

	Label(label("tail"))
	left := GP64()
	MOVQ(a.columns, left)
	SUBQ(j, left)
	JZ(jump("rows"))
	fetch(0)
	if a.set == avx512 {
		Label(label("masked"))
		lanes, mask := GP64(), K()
		MOVL(U32(0xffff), lanes.As32())
		BZHIQ(left, lanes, lanes)
		KMOVW(lanes.As32(), mask)
		s := ZMM()
		VMOVUPS_Z(inSum(0), mask, s)
		for i := range n {
			a.addMasked(s, c[i], inRow(i, 0), mask)
		}
		VMOVUPS(s, mask, inSum(0))
		ADDQ(U8(16), j)
		SUBQ(U8(16), left)
		JG(jump("masked"))
	} else {
		Label(label("vectors"))
		CMPQ(left, U8(a.set.lanes))
		JL(jump("scalars"))
		s := a.set.vector()
		VMOVUPS(inSum(0), s)
		for i := range n {
			a.addVector(s, c[i], inRow(i, 0))
		}
		VMOVUPS(s, inSum(0))
		ADDQ(U8(a.set.lanes), j)
		SUBQ(U8(a.set.lanes), left)
		JMP(jump("vectors"))
		Label(label("scalars"))
		TESTQ(left, left)
		JZ(jump("fetched"))
		Label(label("scalar"))
		one := XMM()
		VMOVSS(inSum(0), one)
		for i := range n {
			a.addScalar(one, c[i].AsX(), inRow(i, 0))
		}
		VMOVSS(one, inSum(0))
		INCQ(j)
		DECQ(left)
		JNZ(jump("scalar"))
		Label(label("fetched"))
	}
	// The end of a row that does not end with a cache line.
	MOVQ(a.columns, j)
	fetch(-1)
	JMP(jump("rows"))
	Label(label("end"))
}

// addVector adds c times the vector at m to s.
func (a *adder) addVector(s, c reg.VecVirtual, m Mem) {
	x := a.set.vector()
	if a.t == float32s {
		VMULPS(m, c, x)
	} else {
		load(a.t, m, x)
		VMULPS(x, c, x)
	}
	VADDPS(x, s, s)
}

func (a *adder) addMasked(s, c reg.VecVirtual, m Mem, mask reg.Register) {
	x := ZMM()
	switch a.t {
	case float32s:
		VMULPS_Z(m, c, mask, x)
	case float16s:
		VCVTPH2PS_Z(m, mask, x)
		VMULPS(x, c, x)
	case bfloat16s:
		VPMOVZXWD_Z(m, mask, x)
		VPSLLD(U8(16), x, x)
		VMULPS(x, c, x)
	}
	VADDPS(x, s, s)
}

func (a *adder) addScalar(s, c reg.Register, m Mem) {
	x := XMM()
	switch a.t {
	case float32s:
		VMULSS(m, c, x)
	case float16s:
		VPXOR(x, x, x)
		VPINSRW(U8(0), m, x, x)
		VCVTPH2PS(x, x)
		VMULSS(x, c, x)
	case bfloat16s: // the upper half of a float32
		VPXOR(x, x, x)
		VPINSRW(U8(1), m, x, x)
		VMULSS(x, c, x)
	}
	VADDSS(x, s, s)
}

// memory is where an argument or a result is.
func memory(c gotypes.Component) Mem {
	b, err := c.Resolve()
	if err != nil {
		panic(err)
	}
	return b.Addr
}
