package epoch

import (
	"cmp"

	"github.com/hopfeed/hopfeed/gds"
)

// Growing is memory that grows with the batches.
type Growing struct{ gds.Buffer } // nil: none

// Size is how many bytes there are.
func (g *Growing) Size() int64 {
	if g.Buffer == nil {
		return 0
	}
	return g.Len()
}

// Grow replaces the memory, which nothing uses, if it is smaller than needed: by wanted bytes of alloc or, if they are
// not to be had, by needed.
func (g *Growing) Grow(needed, wanted int64, alloc func(bytes int64) (gds.Buffer, error)) error {
	if g.Buffer != nil && g.Len() >= needed {
		return nil
	}
	if err := g.Free(); err != nil {
		return err
	}
	return gds.AllocateRoom(needed, wanted, func(bytes int64) error {
		b, err := alloc(bytes)
		if err == nil {
			g.Buffer = b
		}
		return err
	})
}

// Free frees the memory, if there is any.
func (g *Growing) Free() error {
	b := g.Buffer
	if g.Buffer = nil; b == nil {
		return nil
	}
	return b.Free()
}

// Arena places parts of memory one after another.
type Arena struct {
	Bytes int64 // of all parts
	Align int64 // of each part; 0: 256
}

// Take is the place of a matrix, as a Tensor without memory.
func (a *Arena) Take(rows, cols int, t gds.DType) gds.Tensor {
	v := gds.NewTensor(nil, rows, cols, t)
	v.Offset = a.Bytes
	align := cmp.Or(a.Align, 256)
	a.Bytes = (a.Bytes + gds.Bytes(rows, cols, t) + align - 1) / align * align
	return v
}
