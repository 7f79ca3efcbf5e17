package main

import (
	. "github.com/mmcloughlin/avo/build"
	. "github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"
)

// line is the size of a cache line; AVX2 streams it by parts.
const (
	line = 64
	part = 16
)

// gatherer emits one gather function.
type gatherer struct {
	set isa

	dst, dstStride, srcStride, rowBytes reg.GPVirtual
	src                                 Mem
	row, last, ahead                    reg.GPVirtual // pointers into rows, and the way to the one to prefetch
}

// gather emits the kernel behind kernel.GatherRows, for rows of at least a line.
// While a row is copied, the one that is some rows ahead is fetched line by line, to
// the second level of the caches: the first waits for fewer lines at a time.
func gather(set isa) {
	function("gather"+set.name, "func(dst []byte, dstStride int, src []byte, srcStride, rowBytes int, "+
		"rows []uint32, ahead int, stream bool)")
	g := &gatherer{set: set}
	g.dst, g.dstStride = start("dst"), argument("dstStride")
	g.src, g.srcStride = Mem{Base: start("src")}, argument("srcStride")
	g.rowBytes = argument("rowBytes")
	g.row, g.last, g.ahead = start("rows"), length("rows"), argument("ahead")
	LEAQ(Mem{Base: g.row, Index: g.last, Scale: 4, Disp: -4}, g.last)
	SHLQ(U8(2), g.ahead)
	CMPB(parameter("stream"), U8(0))
	JE(LabelRef("cached"))
	if set == avx512 {
		g.rows("streamed", g.stream)
	} else {
		Comment("Only parts of lines that are aligned are written past the caches.")
		parts := GP64()
		MOVQ(g.dst, parts)
		ORQ(g.dstStride, parts)
		ORQ(g.rowBytes, parts)
		TESTQ(U32(part-1), parts)
		JNE(LabelRef("cached"))
		g.rows("streamed", g.streamParts)
	}
	SFENCE()
	JMP(LabelRef("done"))
	g.rows("cached", g.cache)
	Label("done")
	finish()
}

// rows emits the loop over rows. copy emits that over the lines of one, from src to
// dst; it may change both, and next, whose lines are to be fetched.
func (g *gatherer) rows(label string, copy func(label string, dst, src, next reg.GPVirtual)) {
	Label(label)
	CMPQ(g.row, g.last)
	JA(LabelRef(label + "End"))
	src, next, dst := GP64(), GP64(), GP64()
	MOVL(Mem{Base: g.row}, src.As32())
	IMULQ(g.srcStride, src)
	ADDQ(g.src.Base, src)
	LEAQ(Mem{Base: g.row, Index: g.ahead, Scale: 1}, next)
	CMPQ(next, g.last)
	CMOVQHI(g.last, next)
	MOVL(Mem{Base: next}, next.As32())
	IMULQ(g.srcStride, next)
	ADDQ(g.src.Base, next)
	MOVQ(g.dst, dst)
	copy(label, dst, src, next)
	ADDQ(g.dstStride, g.dst)
	ADDQ(U8(4), g.row)
	JMP(LabelRef(label))
	Label(label + "End")
}

// cache copies a row by whole lines; the last one begins a line before the end of the row.
func (g *gatherer) cache(label string, dst, src, next reg.GPVirtual) {
	end := GP64()
	LEAQ(Mem{Base: src, Index: g.rowBytes, Scale: 1, Disp: -line}, end)
	Label(label + "Line")
	CMPQ(src, end)
	JAE(LabelRef(label + "Tail"))
	PREFETCHT1(Mem{Base: next})
	g.line(src, dst)
	advance(U8(line), src, dst, next)
	JMP(LabelRef(label + "Line"))
	Label(label + "Tail")
	SUBQ(src, end) // how far the last line is before where the next one would be
	ADDQ(end, dst)
	ADDQ(end, src)
	PREFETCHT1(Mem{Base: next, Index: end, Scale: 1, Disp: line - 1})
	g.line(src, dst)
}

// advance moves pointers on.
func advance(by Op, pointers ...reg.GPVirtual) {
	for _, p := range pointers {
		ADDQ(by, p)
	}
}

// line copies a line that need not be aligned.
func (g *gatherer) line(src, dst reg.GPVirtual) {
	bytes := 4 * g.set.lanes
	var vectors []reg.VecVirtual
	for at := 0; at < line; at += bytes {
		v := g.set.vector()
		VMOVUPS(Mem{Base: src, Disp: at}, v)
		vectors = append(vectors, v)
	}
	for i, v := range vectors {
		VMOVUPS(v, Mem{Base: dst, Disp: i * bytes})
	}
}

// stream copies the lines of dst that a row fills past the caches, and what is before and behind them in pieces.
func (g *gatherer) stream(label string, dst, src, next reg.GPVirtual) {
	left, head := GP64(), GP64()
	MOVQ(g.rowBytes, left)
	MOVQ(dst, head)
	NEGQ(head)
	ANDQ(U8(line-1), head)
	JZ(LabelRef(label + "Lines"))
	g.piece(head, dst, src, next)
	SUBQ(head, left)
	advance(head, src, dst, next)
	Label(label + "Lines")
	SUBQ(U8(line), left)
	JL(LabelRef(label + "Tail"))
	PREFETCHT1(Mem{Base: next})
	v := ZMM()
	VMOVUPS(Mem{Base: src}, v)
	VMOVNTPS(v, Mem{Base: dst})
	advance(U8(line), src, dst, next)
	JMP(LabelRef(label + "Lines"))
	Label(label + "Tail")
	ADDQ(U8(line), left)
	JZ(LabelRef(label + "Done"))
	g.piece(left, dst, src, next)
	PREFETCHT1(Mem{Base: next, Index: left, Scale: 1, Disp: -1})
	Label(label + "Done")
}

// streamParts copies a row of whole parts past the caches.
func (g *gatherer) streamParts(label string, dst, src, next reg.GPVirtual) {
	left, parts := GP64(), []reg.VecVirtual{XMM(), XMM(), XMM(), XMM()}
	MOVQ(g.rowBytes, left)
	Label(label + "Lines")
	SUBQ(U8(line), left)
	JL(LabelRef(label + "Tail"))
	PREFETCHT1(Mem{Base: next})
	for i, v := range parts {
		VMOVUPS(Mem{Base: src, Disp: i * part}, v)
	}
	for i, v := range parts {
		VMOVNTPS(v, Mem{Base: dst, Disp: i * part})
	}
	advance(U8(line), src, dst, next)
	JMP(LabelRef(label + "Lines"))
	Label(label + "Tail")
	ADDQ(U8(line), left)
	JZ(LabelRef(label + "Done"))
	PREFETCHT1(Mem{Base: next})
	PREFETCHT1(Mem{Base: next, Index: left, Scale: 1, Disp: -1})
	Label(label + "Part")
	VMOVUPS(Mem{Base: src}, parts[0])
	VMOVNTPS(parts[0], Mem{Base: dst})
	ADDQ(U8(part), src)
	ADDQ(U8(part), dst)
	SUBQ(U8(part), left)
	JNE(LabelRef(label + "Part"))
	Label(label + "Done")
}

// piece copies fewer bytes than a line.
func (g *gatherer) piece(bytes, dst, src, next reg.GPVirtual) {
	ones, mask, v := GP64(), K(), ZMM()
	MOVQ(I32(-1), ones)
	BZHIQ(bytes, ones, ones)
	KMOVQ(ones, mask)
	PREFETCHT1(Mem{Base: next})
	VMOVDQU8_Z(Mem{Base: src}, mask, v)
	VMOVDQU8(v, mask, Mem{Base: dst})
}
