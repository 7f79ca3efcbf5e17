//go:build cuda && cgo && linux

package cuda

import "github.com/hopfeed/hopfeed/gds"

// gemmTile is how many rows and columns of a product a thread block computes.
const gemmTile = 64

func (c *call) gemm() {
	m, inner, _, n := c.Product()
	a, b := c.Tensors[0], c.Tensors[1]
	if m == 0 || n == 0 {
		return
	}
	if c.multiplies(inner) {
		c.err = c.multiply(inner)
		return
	}
	// How far elements of the factors, transposed or not, are apart.
	aRow, aColumn, bRow, bColumn := a.Stride, 1, b.Stride, 1
	if c.TransA {
		aRow, aColumn = aColumn, aRow
	}
	if c.TransB {
		bRow, bColumn = bColumn, bRow
	}
	c.launch("gemm", blocks(tiles(m, n, gemmTile)), vector(0), aRow, aColumn, vector(1), bRow, bColumn, matrix(2), m, n,
		inner, c.Alpha, c.Beta)
}

// tiles is the number of squares of size x size that cover a matrix.
func tiles(rows, cols, size int) int { return (rows + size - 1) / size * ((cols + size - 1) / size) }

// transposeTile is how many rows and columns a thread block transposes.
const transposeTile = 32

func (c *call) transpose() {
	dst := c.Tensors[1]
	c.launch("transpose", blocks(tiles(dst.Rows, dst.Cols, transposeTile)), matrix(0), matrix(1), dst.Rows, dst.Cols,
		c.Alpha, c.Beta)
}

func (c *call) sumRows() {
	sums := c.columnSums(c.Tensors[1], 1)
	c.pass(sums.parts, matrix(1))
	sums.launch(c, "sum_rows")
	sums.addTo(c, c.at[0], c.Beta, 0, 1)
}

// columnSums are sums of columns: first over the rows of each slab, then over the slabs, in order. The number of slabs
// depends on the number of rows alone.
type columnSums struct {
	parts      uint64 // [slabs, sums*cols]
	rows, cols int
	sums       int
	slab       int // rows of one
	slabs      int
}

// mostSlabs is how many slabs there are at most, and slabRows how many rows one has at least.
const (
	mostSlabs = 256
	slabRows  = 128
)

// columnSums begins sums of each column of a matrix.
func (c *call) columnSums(of gds.Tensor, sums int) columnSums {
	slab := max(slabRows, (of.Rows+mostSlabs-1)/mostSlabs)
	s := columnSums{rows: of.Rows, cols: of.Cols, sums: sums, slab: slab, slabs: (of.Rows + slab - 1) / slab}
	s.parts = c.scratch(4 * s.slabs * sums * of.Cols)
	return s
}

// launch launches the kernel that sums slabs, between its first arguments and its last.
func (s columnSums) launch(c *call, kernel string, last ...any) {
	c.pass(s.rows, s.cols, s.slab)
	c.launch(kernel, shape{(s.cols + 31) / 32, s.slabs, 32, 8}, last...)
}

// addTo sets the vector at out to beta times itself and the sums first to first+count of the columns.
func (s columnSums) addTo(c *call, out uint64, beta float32, first, count int) {
	c.each("sum_slabs", count*s.cols, out, beta, s.parts+uint64(4*first*s.cols), s.slabs, count*s.cols, s.sums*s.cols)
}
