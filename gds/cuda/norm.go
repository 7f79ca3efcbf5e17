//go:build cuda && cgo && linux

package cuda

func (c *call) sumSquares() {
	sums := c.columnSums(c.Tensors[1], 1)
	c.pass(sums.parts, matrix(1), vector(2))
	sums.launch(c, "sum_squares")
	sums.addTo(c, c.at[0], 0, 0, 1)
}

func (c *call) normalizeColumnsSums() {
	sums := c.columnSums(c.Tensors[2], 2)
	c.pass(sums.parts, matrix(1), matrix(2), vector(3), vector(4))
	sums.launch(c, "normalize_columns_sums", c.Alpha)
	sums.addTo(c, c.at[0], 0, 0, 2)
}

func (c *call) normalizeRowsGrad() {
	src := c.Tensors[4]
	// The sums first, as dst may be grad.
	sums := c.columnSums(src, 2)
	c.pass(sums.parts, matrix(3), matrix(4), matrix(5))
	sums.launch(c, "normalize_rows_sums")
	sums.addTo(c, c.at[1], 1, 0, 1)
	sums.addTo(c, c.at[2], 1, 1, 1)
	c.eachRow("normalize_rows_grad", src.Rows, matrix(0), matrix(3), matrix(4), matrix(5), vector(6), src.Rows,
		src.Cols)
}

func (c *call) normalizeRows() {
	kernel := "normalize_rows_1"
	if c.unit(0, 2) == 4 { // 16 bytes
		kernel = "normalize_rows_4"
	}
	c.eachRow(kernel, c.Tensors[2].Rows, matrix(0), matrix(1), matrix(2), vector(3), vector(4), c.Tensors[2].Rows,
		c.Tensors[2].Cols, c.Alpha)
}
