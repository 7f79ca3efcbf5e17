package wholegraph

import (
	"bytes"

	"github.com/hopfeed/hopfeed/gds"
)

// uploadLabels makes the labels of rows on the device. A row to which visit gives no node is unlabelled.
func (g *Graph) uploadLabels(rows int, visit func(label func(row int, node uint32))) (gds.Tensor, error) {
	l, size := g.labels, g.labels.RowBytes()
	data := bytes.Repeat([]byte{0xff}, rows*size) // -1; as float32 it is NaN
	visit(func(row int, node uint32) { copy(data[row*size:][:size], l.Data[int(node)*size:]) })
	cols := l.Columns
	if !g.labelsPerRow() {
		rows, cols = 1, rows
	}
	m, err := g.alloc("labels", rows, cols, l.Type)
	if err == nil {
		err = gds.Upload(g.device, g.stream, m, data)
	}
	return m, err
}

// labelsPerRow tells whether a row has several labels, or values: their tensor is then a matrix.
func (g *Graph) labelsPerRow() bool { return g.labels.Type != gds.Int32 }
