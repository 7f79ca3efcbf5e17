package kernel

import (
	"fmt"
	"unsafe"
)

const (
	// gemmInner is how many products are added up in registers before their sum is added to c. So long a part of a
	// tile's rows of op(a) stays in the first level of the caches while the panels of op(b) pass by.
	gemmInner = 384
	// gemmPacked is how many numbers are packed at a time at most.
	gemmPacked = 1 << 20
	// op(a) is packed where it is transposed, has gemmRows rows at most, and its rows are gemmApart or more numbers
	// apart: the numbers of a tile are then far from one another.
	gemmRows  = 1024
	gemmApart = 128
	// op(b) is not packed where it is not transposed, its rows are less than gemmApart numbers apart, and no more
	// rows of op(a) than these are multiplied by it.
	gemmFewRows = 64
	// gemmWork is about how many products are worth handing to another goroutine; to pack a number takes about as
	// long as packWork of them.
	gemmWork = 1 << 20
	packWork = 16
	// gemmShares is how many parts each goroutine should find, so that all end at about the same time.
	gemmShares = 8
	// gemmAlign is how many numbers a line of the caches has.
	gemmAlign = 16
)

// gemmTile multiplies tiles of c that have this number of rows and columns.
type gemmTile struct {
	rows, columns int

	// multiply computes, for at least one and at most a tile's rows and columns,
	//
	//	for i := range rows {
	//		for j := range columns {
	//			sum := float32(0)
	//			for l := range inner {
	//				sum += a[i*aRow+l*aInner] * b[l*bInner+j]
	//			}
	//			c[i*stride+j] = float32(alpha*sum) + float32(beta*c[i*stride+j])
	//		}
	//	}
	//
	// but where beta is 0, c is not read. It reads whole tiles of a and b, even if rows or columns are fewer.
	multiply func(c []float32, stride, rows, columns int, a []float32, aRow, aInner int, b []float32, bInner, inner int,
		alpha, beta float32)
}

// Product is c = alpha * op(a) op(b) + beta * c, where op transposes if asked to: op(a) is [Rows,Inner], op(b)
// [Inner,Columns] and c [Rows,Columns]. The rows of a matrix are a stride apart. If Beta is 0, c is not read; if
// Alpha is 0, a and b are not. c overlaps neither.
type Product struct {
	TransA, TransB       bool
	Rows, Columns, Inner int
	Alpha                float32
	A                    []float32
	AStride              int
	B                    []float32
	BStride              int
	Beta                 float32
	C                    []float32
	CStride              int
}

// Gemm computes products, one after another, in steps whose parts may run at once:
//
//	g.Begin(product, threads)
//	for g.Next() {
//		// g.Pack(i) for each i < g.Packs(), and when these are done
//		// g.Multiply(i) for each i < g.Parts()
//	}
//
// Sums go along the inner dimension, in blocks of fixed length. So a number of c depends on its row of op(a) and its
// column of op(b) alone: not on where these lie, on the other rows and columns, or on threads. AVX2 and AVX-512 give
// the same bits, as both fuse each product with the sum. The portable implementation fuses where the compiler does.
//
// The method is by Goto and van de Geijn ("Anatomy of High-Performance Matrix Multiplication", ACM TOMS 2008):
// op(b) is packed in panels as wide as a tile, so that a tile of c, whose sums are in registers, reads it in order. A
// tile has few rows of op(a), so op(a) is read in place, except for last rows that do not fill a tile, and mostly
// except where it is transposed. op(b) is read in place too, except for its last columns, where few rows are
// multiplied by it. Memory is kept for the next product, 4 MiB at most.
type Gemm struct {
	product Product
	tile    gemmTile
	threads int
	packed  []float32 // see Next

	// The step:
	first, columns int       // of op(b)
	from, inner    int       // of the inner dimension
	panels         int       // of columns
	direct         int       // the first direct panels are read where they are
	inPlace        int       // rows of op(a) that are read in place; the rows behind them are packed
	rows           []float32 // where these are
	shares         int       // parts that a block is packed in
	partPanels     int       // panels that one part multiplies with
	partTiles      int       // tiles of rows of a part
}

// Check panics if a matrix that is read or written is not as large as the product says.
func (p *Product) Check() {
	check := func(name string, transposed bool, rows, columns int, data []float32, stride int) {
		if transposed {
			rows, columns = columns, rows
		}
		if rows < 0 || columns < 0 || rows > 0 && columns > 0 &&
			(stride < columns || !rowFits(rows-1, stride, columns, len(data))) {
			panic(fmt.Sprintf("kernel: %s is [%d,%d], its rows %d apart, of %d numbers", name, rows, columns, stride,
				len(data)))
		}
	}
	if p.Alpha != 0 {
		check("a", p.TransA, p.Rows, p.Inner, p.A, p.AStride)
		check("b", p.TransB, p.Inner, p.Columns, p.B, p.BStride)
	}
	check("c", false, p.Rows, p.Columns, p.C, p.CStride)
}

// Begin starts a product. It panics as Check does.
func (g *Gemm) Begin(p Product, threads int) {
	p.Check()
	if p.Alpha == 0 || p.Inner == 0 {
		p.Alpha, p.Inner = 0, 0
	}
	*g = Gemm{product: p, tile: active.gemm, threads: max(threads, 1), packed: g.packed}
}

// Next prepares the next step: as many columns of op(b), and as much of the inner dimension, as are packed at a time.
// Packed memory holds the panels of columns, block by block of the inner dimension, and then the packed rows of op(a),
// block by block. At the end of the product Next forgets the matrices and returns false.
func (g *Gemm) Next() bool {
	p, rows, width := &g.product, g.tile.rows, g.tile.columns
	g.from += g.inner
	if g.columns == 0 || g.from == p.Inner {
		g.from, g.first = 0, g.first+g.columns
	}
	if p.Rows == 0 || g.first == p.Columns {
		g.product = Product{}
		return false
	}
	g.inPlace = p.Rows / rows * rows
	if p.TransA && p.Rows <= gemmRows && p.AStride >= gemmApart {
		g.inPlace = 0
	}
	packedRows := g.packedRows()
	g.columns = min(p.Columns-g.first, (gemmPacked/gemmInner-packedRows)/width*width)
	g.panels, g.direct = ceil(g.columns, width), 0
	tiles := ceil(p.Rows, rows)
	if !p.TransB && p.Rows <= gemmFewRows && p.BStride < gemmApart {
		g.direct = g.columns / width
	}
	packed := (g.panels-g.direct)*width + packedRows
	blocks := gemmPacked / (gemmInner * max(packed, 1))
	g.inner = min(p.Inner-g.from, blocks*gemmInner)
	g.packed = room(g.packed, g.inner*packed)
	g.rows = g.packed[g.inner*(g.panels-g.direct)*width:]

	g.shares = ceil(packed*min(g.inner, gemmInner)*packWork, gemmWork)
	work := rows * width * max(g.inner, 1)
	g.partTiles, g.partPanels = 1, g.panels
	if wanted := gemmShares * g.threads; g.threads > 1 && tiles < wanted {
		g.partPanels = min(g.panels, max(ceil(g.panels*tiles, wanted), ceil(gemmWork, work)))
	}
	if g.partPanels == g.panels {
		g.partTiles = ceil(gemmWork, work*g.panels)
	}
	return true
}

// room returns at least n numbers of memory from the start of a line of the caches on, as they happen to be.
func room(memory []float32, n int) []float32 {
	if n <= len(memory) {
		return memory
	}
	memory = make([]float32, n+gemmAlign)
	for uintptr(unsafe.Pointer(&memory[0]))%(4*gemmAlign) != 0 {
		memory = memory[1:]
	}
	return memory[:n]
}

// packedRows is how many rows of op(a) are packed: of whole tiles.
func (g *Gemm) packedRows() int {
	return ceil(g.product.Rows-g.inPlace, g.tile.rows) * g.tile.rows
}

// Packs is how many parts are to be packed.
func (g *Gemm) Packs() int { return ceil(g.inner, gemmInner) * g.shares }

// Parts is how many parts are to be multiplied.
func (g *Gemm) Parts() int {
	return ceil(ceil(g.product.Rows, g.tile.rows), g.partTiles) * ceil(g.panels, g.partPanels)
}

func ceil(n, by int) int { return (n + by - 1) / by }

// Pack packs part i: of a block, a share of the inner dimension. So rows that follow the inner dimension are read as
// a whole.
func (g *Gemm) Pack(i int) {
	p := &g.product
	from, share := i/g.shares*gemmInner, i%g.shares
	inner := min(gemmInner, g.inner-from)
	lo, hi := share*inner/g.shares, (share+1)*inner/g.shares
	pack(g.panel(from, inner, g.direct), g.tile.columns, inner, p.B, p.BStride, !p.TransB, g.from+from, lo, hi,
		g.first+g.direct*g.tile.columns, g.first+g.columns)
	pack(g.rows[from*g.packedRows():], g.tile.rows, inner, p.A, p.AStride, p.TransA, g.from+from, lo, hi, g.inPlace,
		p.Rows)
}

// panel is where a panel of the block of length inner at from is packed.
func (g *Gemm) panel(from, inner, panel int) []float32 {
	return g.packed[(from*(g.panels-g.direct)+(panel-g.direct)*inner)*g.tile.columns:]
}

// Multiply multiplies part i: some tiles of rows by some panels.
func (g *Gemm) Multiply(i int) {
	p, tile := &g.product, &g.tile
	groups := ceil(g.panels, g.partPanels)
	firstPanel, firstRow := i%groups*g.partPanels, i/groups*g.partTiles*tile.rows
	endPanel, endRow := min(firstPanel+g.partPanels, g.panels), min(firstRow+g.partTiles*tile.rows, p.Rows)
	for from := 0; from == 0 || from < g.inner; from += gemmInner {
		inner := min(gemmInner, g.inner-from)
		beta := float32(1)
		if g.from+from == 0 {
			beta = p.Beta
		}
		for row := firstRow; row < endRow; row += tile.rows {
			var a []float32
			rows, aRow, aInner := min(tile.rows, p.Rows-row), p.AStride, 1
			switch {
			case inner == 0:
			case row >= g.inPlace:
				a, aRow, aInner = g.rows[from*g.packedRows()+(row-g.inPlace)*inner:], 1, tile.rows
			case p.TransA:
				a, aRow, aInner = p.A[(g.from+from)*p.AStride+row:], 1, p.AStride
			default:
				a = p.A[row*p.AStride+g.from+from:]
			}
			for panel := firstPanel; panel < endPanel; panel++ {
				column := g.first + panel*tile.columns
				var b []float32
				bInner := tile.columns
				switch {
				case inner == 0:
				case panel < g.direct:
					b, bInner = p.B[(g.from+from)*p.BStride+column:], p.BStride
				default:
					b = g.panel(from, inner, panel)
				}
				tile.multiply(p.C[row*p.CStride+column:], p.CStride, rows, min(tile.columns, g.first+g.columns-column),
					a, aRow, aInner, b, bInner, inner, p.Alpha, beta)
			}
		}
	}
}

// pack packs numbers [first, end), from the places [lo, hi) of a block of the inner dimension, in panels of width
// numbers. The block starts at from and is inner long. In the first panel,
//
//	dst[l*width+i] = x[(from+l)*stride+first+i] // or, where rows do not follow the inner dimension,
//	dst[l*width+i] = x[(first+i)*stride+from+l]
//
// What is left of the last panel stays as it is.
func pack(dst []float32, width, inner int, x []float32, stride int, byInner bool, from, lo, hi, first, end int) {
	if byInner {
		for l := lo; l < hi; l++ {
			row := x[(from+l)*stride:][first:end]
			for at := l * width; len(row) > 0; at += inner * width {
				row = row[copy(dst[at:at+width], row):]
			}
		}
		return
	}
	for i := range end - first {
		at := i/width*width*inner + lo*width + i%width
		for _, v := range x[(first+i)*stride+from:][lo:hi] {
			dst[at] = v
			at += width
		}
	}
}

// gemm is gemmTile.multiply for tiles of 2 rows and 4 columns.
func gemm(c []float32, stride, rows, columns int, a []float32, aRow, aInner int, b []float32, bInner, inner int, alpha,
	beta float32) {
	var s00, s01, s02, s03, s10, s11, s12, s13 float32
	for l := range inner {
		b := b[bInner*l:][:4]
		upper, lower := a[l*aInner], a[l*aInner+aRow]
		s00 += upper * b[0]
		s01 += upper * b[1]
		s02 += upper * b[2]
		s03 += upper * b[3]
		s10 += lower * b[0]
		s11 += lower * b[1]
		s12 += lower * b[2]
		s13 += lower * b[3]
	}
	sums := [2][4]float32{{s00, s01, s02, s03}, {s10, s11, s12, s13}}
	for i := range rows {
		for j, sum := range sums[i][:columns] {
			sum = float32(alpha * sum)
			if beta != 0 {
				sum += float32(beta * c[i*stride+j])
			}
			c[i*stride+j] = sum
		}
	}
}
