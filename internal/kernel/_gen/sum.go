package main

import (
	"fmt"

	. "github.com/mmcloughlin/avo/build"
	. "github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"
)

// vectors is how many vectors of sums are in registers at most.
const vectors = 8

// summer emits one sum function.
type summer struct {
	set isa
	t   element

	limit, lastByte, listsEnd, step          Mem // locals
	sums, x, nodes, ahead, aheadEnd, lengths reg.GPVirtual
	coefficient                              reg.GPVirtual // of the next row
	tail                                     reg.Register  // of a row's last vector: its mask (AVX-512) or column (AVX2)
}

// sum emits the kernel behind kernel.SumColumns, for up to vectors vectors of columns: for each number of vectors a
// loop over the lists and, within, one over the rows of a list. Sums stay in registers while the rows of their list are
// added.
func sum(set isa) {
	t := float32s
	function("sum"+set.name, "func(sums, x []float32, stride, columns int, nodes []uint32, lengths []int, "+
		"coefficients []float32, distance int) (added int)")
	local := func() Mem { return AllocLocal(8) }
	s := &summer{
		set: set, t: t,
		limit:    local(), // of the place in x where a row starts
		lastByte: local(), // of the columns of a row
		listsEnd: local(),
		step:     local(), // bytes from the coefficient of a row to the next
	}
	s.sums = start("sums")
	s.x = start("x")
	s.nodes = start("nodes")
	s.lengths = start("lengths")
	s.coefficient = start("coefficients")
	columns, n := argument("columns"), length("x")
	SUBQ(columns, n)
	MOVQ(n, s.limit)
	IMUL3Q(U8(t.bytes), columns, n)
	DECQ(n)
	MOVQ(n, s.lastByte)
	Load(Param("lengths").Len(), n)
	LEAQ(Mem{Base: s.lengths, Index: n, Scale: 8}, n)
	MOVQ(n, s.listsEnd)

	MOVQ(U32(4), s.step)
	TESTQ(s.coefficient, s.coefficient)
	JNZ(LabelRef("given"))
	MOVQ(U32(0), s.step)
	LEAQ(one, s.coefficient)
	Label("given")

	// The row to fetch is distance rows ahead, or the last.
	s.aheadEnd = length("nodes")
	LEAQ(Mem{Base: s.nodes, Index: s.aheadEnd, Scale: 4, Disp: -4}, s.aheadEnd)
	s.ahead = argument("distance")
	LEAQ(Mem{Base: s.nodes, Index: s.ahead, Scale: 4}, s.ahead)
	CMPQ(s.ahead, s.aheadEnd)
	CMOVQHI(s.aheadEnd, s.ahead)

	if set == avx512 {
		lanes, left, mask := GP64(), GP64(), K()
		LEAQ(Mem{Base: columns, Disp: -1}, left)
		ANDQ(U8(set.lanes-1), left)
		INCQ(left)
		MOVL(U32(0xffff), lanes.As32())
		BZHIQ(left, lanes, lanes)
		KMOVW(lanes.As32(), mask)
		s.tail = mask
	} else {
		at := GP64()
		LEAQ(Mem{Base: columns, Disp: -set.lanes}, at)
		s.tail = at
	}
	for n := 1; n < vectors; n++ {
		CMPQ(columns, U8(n*set.lanes))
		JLE(LabelRef(fmt.Sprintf("lists%d", n)))
	}
	for n := vectors; n > 0; n-- {
		s.lists(n)
	}
	Label("done")
	Load(Param("nodes").Base(), n)
	SUBQ(n, s.nodes)
	SHRQ(U8(2), s.nodes)
	Store(s.nodes, ReturnIndex(0))
	finish()
}

// lists sums all lists, of rows of n vectors.
func (s *summer) lists(n int) {
	label := func(name string) string { return fmt.Sprintf("%s%d", name, n) }
	jump := func(name string) LabelRef { return LabelRef(label(name)) }
	sums := make([]reg.VecVirtual, n)
	for i := range sums {
		sums[i] = s.set.vector()
	}

	Label(label("lists"))
	CMPQ(s.lengths, s.listsEnd)
	JE(LabelRef("done"))
	end := GP64()
	MOVQ(Mem{Base: s.lengths}, end)
	ADDQ(U8(8), s.lengths)
	LEAQ(Mem{Base: s.nodes, Index: end, Scale: 4}, end)
	for _, sum := range sums {
		VXORPS(sum.AsX(), sum.AsX(), sum.AsX())
	}
	JMP(jump("next"))

	Label(label("row"))
	node, at := GP64(), GP64()
	MOVL(Mem{Base: s.ahead}, node.As32())
	IMULQ(parameter("stride"), node)
	LEAQ(Mem{Base: s.x, Index: node, Scale: uint8(s.t.bytes)}, node)
	for byte := 0; byte < n*s.set.lanes*s.t.bytes; byte += 64 {
		PREFETCHT0(Mem{Base: node, Disp: byte})
	}
	ADDQ(s.lastByte, node)
	PREFETCHT0(Mem{Base: node})
	LEAQ(Mem{Base: s.ahead, Disp: 4}, at)
	CMPQ(s.ahead, s.aheadEnd)
	CMOVQCS(at, s.ahead)

	row, c := GP64(), s.set.vector()
	MOVL(Mem{Base: s.nodes}, row.As32())
	IMULQ(parameter("stride"), row)
	CMPQ(row, s.limit)
	JG(LabelRef("done"))
	VBROADCASTSS(Mem{Base: s.coefficient}, c)
	LEAQ(Mem{Base: s.x, Index: row, Scale: uint8(s.t.bytes)}, row)
	for i, sum := range sums {
		m := Mem{Base: row, Disp: i * s.set.lanes * s.t.bytes}
		switch {
		case i < n-1:
			s.add(sum, c, m)
		case s.set == avx512:
			s.addMasked(sum, c, m)
		default:
			s.add(sum, c, Mem{Base: row, Index: s.tail, Scale: uint8(s.t.bytes)})
		}
	}
	ADDQ(s.step, s.coefficient)
	ADDQ(U8(4), s.nodes)
	Label(label("next"))
	CMPQ(s.nodes, end)
	JB(jump("row"))

	for i, sum := range sums {
		m := Mem{Base: s.sums, Disp: 4 * i * s.set.lanes}
		switch {
		case i < n-1:
			VMOVUPS(sum, m)
		case s.set == avx512:
			VMOVUPS(sum, s.tail, m)
		default:
			VMOVUPS(sum, Mem{Base: s.sums, Index: s.tail, Scale: 4})
		}
	}
	stride := argument("stride")
	LEAQ(Mem{Base: s.sums, Index: stride, Scale: 4}, s.sums)
	JMP(jump("lists"))
}

// add adds c times the vector at m to sum.
func (s *summer) add(sum, c reg.VecVirtual, m Mem) {
	x := s.set.vector()
	if s.t == float32s {
		VMULPS(m, c, x)
	} else {
		load(s.t, m, x)
		VMULPS(x, c, x)
	}
	VADDPS(x, sum, sum)
}

func (s *summer) addMasked(sum, c reg.VecVirtual, m Mem) {
	x := ZMM()
	switch s.t {
	case float32s:
		VMULPS_Z(m, c, s.tail, x)
	case float16s:
		VCVTPH2PS_Z(m, s.tail, x)
		VMULPS(x, c, x)
	case bfloat16s:
		VPMOVZXWD_Z(m, s.tail, x)
		VPSLLD(U8(16), x, x)
		VMULPS(x, c, x)
	}
	VADDPS(x, sum, sum)
}
