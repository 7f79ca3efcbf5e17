package main

import (
	"fmt"

	. "github.com/mmcloughlin/avo/build"
	. "github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"
)

// vectors is how many vectors of sums are in registers at most.
const vectors = 8

// lister emits one function that sums lists of rows where they lie. What is used once a row at most is in locals.
type lister struct {
	set isa
	t   element

	x, rowBytes, bound, lastByte Mem // of the matrix: its start, bytes where its last row may start, last byte of columns
	end                          Mem
	edges, codes, factors, self  Mem // starts of coefficients; codes and factors are 0 where there are none
	edgeMask, selfMask           Mem // -1 where there are coefficients, 0 where all are 1
	inserted                     Mem

	sums, nodes                reg.GPVirtual
	list, at, stop, own        reg.GPVirtual // the list to come; the next row and the end of this one; its own row
	soon, soonStop, soonerList reg.GPVirtual // the row to fetch, the end of its list, and that list
	tail                       reg.Register  // of a row's last vector: its mask (AVX-512) or column (AVX2)
}

// listBytes is the size of a kernel.List.
const listBytes = 24

// sumLists emits the kernel behind kernel.SumLists, for up to vectors vectors of columns: for each number of vectors a
// loop over the lists and, within, one over the rows of a list. Sums stay in registers while the rows of their list are
// added.
func sumLists(set isa, t element) {
	function("sumLists"+t.name+set.name, fmt.Sprintf("func(sums []float32, x []%s, stride, columns int, "+
		"lists [][3]int64, nodes []uint32, edges []float32, codes []uint16, factors, selves []float32, "+
		"distance int) (inserted int)", t.goType))
	local := func() Mem { return AllocLocal(8) }
	s := &lister{set: set, t: t, x: local(), rowBytes: local(), bound: local(), lastByte: local(), end: local(),
		edges: local(), codes: local(), factors: local(), self: local(), edgeMask: local(), selfMask: local(),
		inserted: local()}
	s.sums = start("sums")
	MOVQ(U32(0), s.inserted)
	MOVQ(start("x"), s.x)
	columns, n := argument("columns"), argument("stride")
	IMUL3Q(U8(t.bytes), n, n)
	MOVQ(n, s.rowBytes)
	n = length("x")
	SUBQ(columns, n)
	IMUL3Q(U8(t.bytes), n, n)
	MOVQ(n, s.bound)
	IMUL3Q(U8(t.bytes), columns, n)
	DECQ(n)
	MOVQ(n, s.lastByte)
	s.nodes = start("nodes")
	MOVQ(start("codes"), s.codes)
	MOVQ(start("factors"), s.factors)
	s.orOnes("edges", s.edges, s.edgeMask)
	s.orOnes("selves", s.self, s.selfMask)
	s.list = start("lists")
	n = length("lists")
	IMUL3Q(U8(listBytes), n, n)
	ADDQ(s.list, n)
	MOVQ(n, s.end)

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
	s.at, s.stop, s.own, s.soon, s.soonStop, s.soonerList = GP64(), GP64(), GP64(), GP64(), GP64(), GP64()
	LEAQ(Mem{Base: s.list, Disp: -listBytes}, s.soonerList)
	XORQ(s.soon, s.soon)
	XORQ(s.soonStop, s.soonStop)
	s.nextToFetch("first")
	Comment("Fetch the first rows.")
	ahead := argument("distance")
	Label("ahead")
	TESTQ(ahead, ahead)
	JZ(LabelRef("fetched"))
	DECQ(ahead)
	s.fetchNext("warm", 1)
	JMP(LabelRef("ahead"))
	Label("fetched")

	columns = argument("columns")
	for n := 1; n < vectors; n++ {
		CMPQ(columns, U8(n*set.lanes))
		JLE(LabelRef(fmt.Sprintf("lists%d", n)))
	}
	for n := vectors; n > 0; n-- {
		s.lists(n)
	}
	Label("failed")
	MOVQ(I32(-1), s.inserted)
	Label("done")
	n = GP64()
	MOVQ(s.inserted, n)
	Store(n, ReturnIndex(0))
	finish()
}

// orOnes sets where coefficients start, and the mask of their places: those that are not given are all 1.
func (s *lister) orOnes(name string, at, mask Mem) {
	given, p := LabelRef(name+"Given"), start(name)
	MOVQ(I32(-1), mask)
	TESTQ(p, p)
	JNZ(given)
	LEAQ(one, p)
	MOVQ(U32(0), mask)
	Label(string(given))
	MOVQ(p, at)
}

// fetch fetches a row of n vectors, whose number it replaces.
func (s *lister) fetch(row reg.GPVirtual, n int) {
	IMULQ(s.rowBytes, row)
	ADDQ(s.x, row)
	for byte := 0; byte < n*s.set.lanes*s.t.bytes; byte += 64 {
		PREFETCHT0(Mem{Base: row, Disp: byte})
	}
	ADDQ(s.lastByte, row)
	PREFETCHT0(Mem{Base: row})
}

// fetchNext fetches the next row of the lists, or the last one again.
func (s *lister) fetchNext(label string, n int) {
	row, factors := GP64(), GP64()
	MOVL(Mem{Base: s.nodes, Index: s.soon, Scale: 4}, row.As32())
	MOVQ(s.factors, factors)
	TESTQ(factors, factors)
	JZ(LabelRef(label + "Plain"))
	PREFETCHT0(Mem{Base: factors, Index: row, Scale: 4})
	Label(label + "Plain")
	s.fetch(row, n)
	INCQ(s.soon)
	CMPQ(s.soon, s.soonStop)
	JNE(LabelRef(label + "Fetched"))
	s.nextToFetch(label)
	Label(label + "Fetched")
}

// nextToFetch goes on to the next list that is not empty, if there is one.
func (s *lister) nextToFetch(label string) {
	list, at := GP64(), GP64()
	MOVQ(s.soonerList, list)
	Label(label + "Next")
	ADDQ(U8(listBytes), list)
	CMPQ(list, s.end)
	JNE(LabelRef(label + "More"))
	DECQ(s.soon)
	JMP(LabelRef(label + "Found"))
	Label(label + "More")
	MOVQ(Mem{Base: list}, at)
	CMPQ(at, Mem{Base: list, Disp: 8})
	JE(LabelRef(label + "Next"))
	MOVQ(at, s.soon)
	MOVQ(Mem{Base: list, Disp: 8}, s.soonStop)
	MOVQ(list, s.soonerList)
	Label(label + "Found")
}

// lists sums all lists, of rows of n vectors.
func (s *lister) lists(n int) {
	label := func(name string) string { return fmt.Sprintf("%s%d", name, n) }
	jump := func(name string) LabelRef { return LabelRef(label(name)) }
	sums, c := make([]reg.VecVirtual, n), s.set.vector()
	for i := range sums {
		sums[i] = s.set.vector()
	}
	add := func(row reg.GPVirtual) { // c times the row that starts there
		ADDQ(s.x, row)
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
	}

	Label(label("lists"))
	CMPQ(s.list, s.end)
	JE(LabelRef("done"))
	MOVQ(Mem{Base: s.list}, s.at)
	MOVQ(Mem{Base: s.list, Disp: 8}, s.stop)
	MOVQ(Mem{Base: s.list, Disp: 16}, s.own)
	ADDQ(U8(listBytes), s.list)
	for _, sum := range sums {
		VXORPS(sum.AsX(), sum.AsX(), sum.AsX())
	}
	JMP(jump("next"))

	Label(label("row"))
	s.fetchNext(label("row"), n)
	row, base, place, from := GP64(), GP64(), GP64(), GP64()
	Label(label("look"))
	MOVL(Mem{Base: s.nodes, Index: s.at, Scale: 4}, row.As32())
	CMPQ(row, s.own)
	JAE(jump("own"))
	Label(label("term"))
	MOVQ(row, from)
	IMULQ(s.rowBytes, from)
	CMPQ(from, s.bound)
	JG(LabelRef("failed"))
	MOVQ(s.at, place)
	MOVQ(s.codes, base)
	TESTQ(base, base)
	JZ(jump("coefficient"))
	MOVWLZX(Mem{Base: base, Index: s.at, Scale: 2}, place.As32())
	Label(label("coefficient"))
	ANDQ(s.edgeMask, place)
	MOVQ(s.edges, base)
	VMOVSS(Mem{Base: base, Index: place, Scale: 4}, c.AsX())
	MOVQ(s.factors, base)
	TESTQ(base, base)
	JZ(jump("times"))
	VMULSS(Mem{Base: base, Index: row, Scale: 4}, c.AsX(), c.AsX())
	Label(label("times"))
	VBROADCASTSS(c.AsX(), c)
	add(from)
	INCQ(s.at)
	Label(label("next"))
	CMPQ(s.at, s.stop)
	JL(jump("row"))
	TESTQ(s.own, s.own)
	JNS(jump("insert"))

	Label(label("store"))
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

	Comment("The row is the list's own, or the first above it.")
	Label(label("own"))
	JNE(jump("insert"))
	MOVQ(I32(-1), s.own)
	JMP(jump("term"))
	Label(label("insert"))
	own, places := GP64(), GP64()
	MOVQ(s.own, own)
	MOVQ(own, places)
	ANDQ(s.selfMask, places)
	selves := GP64()
	MOVQ(s.self, selves)
	VBROADCASTSS(Mem{Base: selves, Index: places, Scale: 4}, c)
	IMULQ(s.rowBytes, own)
	add(own)
	INCQ(s.inserted)
	MOVQ(I32(-1), s.own)
	CMPQ(s.at, s.stop)
	JL(jump("look"))
	JMP(jump("store"))
}

// add adds c times the vector at m to sum.
func (s *lister) add(sum, c reg.VecVirtual, m Mem) {
	x := s.set.vector()
	if s.t == float32s {
		VMULPS(m, c, x)
	} else {
		load(s.t, m, x)
		VMULPS(x, c, x)
	}
	VADDPS(x, sum, sum)
}

func (s *lister) addMasked(sum, c reg.VecVirtual, m Mem) {
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
