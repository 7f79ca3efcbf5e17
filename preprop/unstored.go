package preprop

import (
	"github.com/hopfeed/hopfeed/format"
	"github.com/hopfeed/hopfeed/internal/dtype"
	"github.com/hopfeed/hopfeed/preprop/engine"
	"github.com/hopfeed/hopfeed/preprop/product"
)

// Inputs of steps of typed graphs that no file holds: implementations of engine.Chunked.

// evenChunks are chunks of chunkRows rows each; the last one may have fewer.
type evenChunks struct{ rows, chunkRows int64 }

func (c evenChunks) Chunks() int { return int((c.rows + c.chunkRows - 1) / c.chunkRows) }

func (c evenChunks) ChunkRowRange(k int) (first int64, rows int) {
	first = int64(k) * c.chunkRows
	return first, int(min(c.chunkRows, c.rows-first))
}

// zeros is a matrix of zeros.
type zeros struct{ evenChunks }

func (zeros) ReadChunk(_ int, dst []byte) error {
	clear(dst)
	return nil
}

// notWritten stands for the rows of a matrix that is in memory alone.
type notWritten struct{ evenChunks }

func (notWritten) ReadChunk(int, []byte) error { return errNotInMemory }

// oneHot is Y, the labels of training nodes as zeros and ones: the columns of a layout, from column first on.
type oneHot struct {
	evenChunks
	labels *product.Labels
	layout format.Layout
	first  int
}

func (y oneHot) ReadChunk(k int, dst []byte) error {
	clear(dst)
	columns, one := y.layout.Features, make([]byte, y.layout.DType.Size())
	dtype.Encode(one, []float32{1}, y.layout.DType)
	first, rows := y.ChunkRowRange(k)
	for i := range rows {
		y.labels.Ones(first+int64(i), func(column int) {
			if c := column - y.first; c >= 0 && c < columns {
				copy(dst[(i*columns+c)*len(one):], one)
			}
		})
	}
	return nil
}

// stacked is matrices one below the other.
type stacked []stackedPart

type stackedPart struct {
	engine.Chunked
	rows int64
}

// of is the part of chunk k, the chunk's number there, and the first row of the part.
func (s stacked) of(k int) (part stackedPart, chunk int, first int64) {
	for _, part = range s {
		if k < part.Chunks() {
			break
		}
		k, first = k-part.Chunks(), first+part.rows
	}
	return part, k, first
}

func (s stacked) Chunks() (n int) {
	for _, part := range s {
		n += part.Chunks()
	}
	return n
}

func (s stacked) ChunkRowRange(k int) (first int64, rows int) {
	part, k, above := s.of(k)
	first, rows = part.ChunkRowRange(k)
	return above + first, rows
}

func (s stacked) ReadChunk(k int, dst []byte) error {
	part, k, _ := s.of(k)
	return part.ReadChunk(k, dst)
}
