package main

import (
	"fmt"

	. "github.com/mmcloughlin/avo/build"
	. "github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"
)

// gemmVectors is how many vectors a row of a tile has.
const gemmVectors = 2

// gemmRows is how many rows a tile has. Its sums, a row of b and a number of a fill the registers,
// and one product of vectors need not wait for the one before it in its sum.
func (set isa) gemmRows() int {
	if set == avx512 {
		return 14
	}
	return 6
}

// multiplier emits one function that multiplies tiles.
type multiplier struct {
	set                  isa
	sums                 [][]reg.VecVirtual // of each row
	mask                 reg.Register       // of the last vector of a row of c
	c, stride, rows      reg.GPVirtual
	alpha, beta, product reg.VecVirtual
}

// gemm emits the kernel behind kernel.Gemm: gemmTile.multiply. There is a loop for tiles of a
// vector less as well, for what is left of c at its end.
func gemm(set isa) {
	function("gemm"+set.name, "func(c []float32, stride, rows, columns int, "+
		"a []float32, aRow, aInner int, b []float32, bInner, inner int, alpha, beta float32)")
	columns := argument("columns")
	for vectors := 1; vectors < gemmVectors; vectors++ {
		CMPQ(columns, U8(vectors*set.lanes))
		JLE(LabelRef(fmt.Sprintf("vectors%d", vectors)))
	}
	for vectors := gemmVectors; vectors > 0; vectors-- {
		m := &multiplier{set: set}
		m.add(vectors)
		m.store(vectors)
	}
	Label("done")
	finish()
}

// add emits the sum over the inner dimension. Row i of a is at a + i*aRow, which an index register
// gives for every odd i, and its scale for twice, four and eight times that.
func (m *multiplier) add(vectors int) {
	label := fmt.Sprintf("vectors%d", vectors)
	Label(label)
	a, b := start("a"), start("b")
	step, stepB, left := argument("aInner"), argument("bInner"), argument("inner")
	SHLQ(U8(2), step)
	SHLQ(U8(2), stepB)
	odd := map[int]reg.GPVirtual{1: argument("aRow")}
	SHLQ(U8(2), odd[1])
	for i := 3; i < m.set.gemmRows(); i += 2 {
		odd[i] = GP64()
		LEAQ(Mem{Base: odd[i-2], Index: odd[1], Scale: 2}, odd[i])
	}
	for range m.set.gemmRows() {
		row := make([]reg.VecVirtual, vectors)
		for v := range row {
			row[v] = m.set.vector()
			VXORPS(row[v].AsX(), row[v].AsX(), row[v].AsX())
		}
		m.sums = append(m.sums, row)
	}
	TESTQ(left, left)
	JZ(LabelRef(label + "Store"))
	Label(label + "Inner")
	row := make([]reg.VecVirtual, vectors)
	for v := range row {
		row[v] = m.set.vector()
		VMOVUPS(Mem{Base: b, Disp: 4 * v * m.set.lanes}, row[v])
	}
	for i, sums := range m.sums {
		at := Mem{Base: a}
		if i > 0 {
			scale := i & -i
			at.Index, at.Scale = odd[i/scale], uint8(scale)
		}
		number := m.set.vector()
		VBROADCASTSS(at, number)
		for v, sum := range sums {
			VFMADD231PS(row[v], number, sum)
		}
	}
	ADDQ(step, a)
	ADDQ(stepB, b)
	DECQ(left)
	JNZ(LabelRef(label + "Inner"))
	Label(label + "Store")
}

// store emits c = alpha * sums + beta * c, for as many rows and columns as are wanted.
func (m *multiplier) store(vectors int) {
	label := fmt.Sprintf("vectors%d", vectors)
	m.c, m.stride, m.rows = start("c"), argument("stride"), argument("rows")
	SHLQ(U8(2), m.stride)
	m.alpha = m.set.vector()
	VBROADCASTSS(parameter("alpha"), m.alpha)
	for _, sums := range m.sums {
		for _, sum := range sums {
			VMULPS(m.alpha, sum, sum)
		}
	}
	m.beta, m.product = m.set.vector(), m.set.vector()
	VBROADCASTSS(parameter("beta"), m.beta)

	columns := argument("columns")
	masks := []bool{true}
	if m.set != avx512 {
		masks = []bool{true, false}
		CMPQ(columns, U8(vectors*m.set.lanes))
		JEQ(LabelRef(label + "Whole"))
	}
	if vectors > 1 {
		SUBQ(U8((vectors-1)*m.set.lanes), columns)
	}
	m.mask = firstLanes(m.set, columns, 1)[0]
	for _, masked := range masks {
		if !masked {
			Label(label + "Whole")
		}
		name := fmt.Sprintf("%sRows%t", label, masked)
		bits := GP32()
		Comment("Neither zero is multiplied by what is in c, as that may be no number.")
		MOVL(parameter("beta"), bits)
		ADDL(bits, bits)
		JZ(LabelRef(name + "Zero"))
		m.storeRows(name, masked, true)
		Label(name + "Zero")
		m.storeRows(name+"Zero", masked, false)
	}
}

// storeRows emits the rows one after another, and a jump behind each.
func (m *multiplier) storeRows(label string, masked, add bool) {
	for i, sums := range m.sums {
		for v, sum := range sums {
			at := Mem{Base: m.c, Disp: 4 * v * m.set.lanes}
			last := masked && v == len(sums)-1
			switch {
			case !last:
				if add {
					VMULPS(at, m.beta, m.product)
					VADDPS(m.product, sum, sum)
				}
				VMOVUPS(sum, at)
			case m.set == avx512:
				if add {
					VMULPS_Z(at, m.beta, m.mask, m.product)
					VADDPS(m.product, sum, sum)
				}
				VMOVUPS(sum, m.mask, at)
			default:
				if add {
					VMASKMOVPS(at, m.mask, m.product)
					VMULPS(m.product, m.beta, m.product)
					VADDPS(m.product, sum, sum)
				}
				VMASKMOVPS(sum, m.mask, at)
			}
		}
		if i < len(m.sums)-1 {
			DECQ(m.rows)
			JZ(LabelRef("done"))
			ADDQ(m.stride, m.c)
		}
	}
	JMP(LabelRef("done"))
}
