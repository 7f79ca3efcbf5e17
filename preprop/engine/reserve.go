package engine

import (
	"errors"
	"slices"

	"github.com/hopfeed/hopfeed/preprop/plan"
	"github.com/hopfeed/hopfeed/preprop/product"
)

// Reserve is the matrices that one job hands on to the next: their memory need not be taken from the machine again, and
// what a job starts from may be there already.
type Reserve struct {
	// LimitBytes bounds what a job takes by its plan and what is kept beside that.
	LimitBytes int64

	kept []keptMatrix
}

type keptMatrix struct {
	*product.Matrix
	content string // what all of it is; "": nothing that is known
}

func (k *keptMatrix) bytes() int64 { return int64(len(k.Buf.Bytes())) }

// Free frees all memory.
func (r *Reserve) Free() (err error) {
	for _, k := range r.kept {
		err = errors.Join(err, k.Buf.Free())
	}
	r.kept = nil
	return err
}

// Forget says that a content is not needed any more.
func (r *Reserve) Forget(content string) {
	for i := range r.kept {
		if r.kept[i].content == content {
			r.kept[i].content = ""
		}
	}
}

// matrixBytes are the sizes of the matrices of a panel with this many columns: what the first hop is made from has a
// row for each source, the others for each node.
func (j *Job) matrixBytes(columns int) (bytes []int64) {
	hops, series := plan.PanelMatrices(j.Plan.Work.Sequences, j.DType, j.Plan.InputInMemory)
	for i := range hops + series {
		size := j.DType.Size()
		if i >= hops {
			size = 4
		}
		rows := j.Graph.Manifest.Nodes
		if i == 0 && hops > 1 {
			rows = j.sources()
		}
		bytes = append(bytes, rows*int64(columns*size))
	}
	return bytes
}

// takeReserve takes matrices of these sizes out of the reserve, where it has them (else nil), and frees what there is
// no memory for beside them. The first of several matrices is the one that holds the input, if any does.
func (e *engine) takeReserve(bytes []int64) error {
	e.reserved = make([]*product.Matrix, len(bytes))
	r := e.Reserve
	if r == nil {
		return nil
	}
	room := r.LimitBytes - e.Plan.MemoryBytes
	take := func(i int, fits func(k *keptMatrix) bool) {
		best := -1
		for at := range r.kept {
			k := &r.kept[at]
			if size := k.bytes(); size >= bytes[i] && size-bytes[i] <= room && fits(k) &&
				(best < 0 || size < r.kept[best].bytes()) {
				best = at
			}
		}
		if e.reserved[i] == nil && best >= 0 {
			k := r.kept[best]
			e.reserved[i], room = k.Matrix, room-k.bytes()+bytes[i]
			r.kept = slices.Delete(r.kept, best, best+1)
		}
	}
	if in := e.Sequences[0].Input; e.whole && in.Content != "" && len(bytes) > 0 {
		take(0, func(k *keptMatrix) bool { return k.content == in.Content })
		if m := e.reserved[0]; m != nil {
			e.kept, m.ID = in, in.ID
		}
	}
	for i := range bytes {
		take(i, func(k *keptMatrix) bool { return k.content == "" })
	}
	left := room
	for i := range r.kept { // what is too large to stay is memory
		if k := &r.kept[i]; k.content != "" && k.bytes() <= left {
			left -= k.bytes()
		} else {
			k.content = ""
		}
	}
	room = left
	for i := range bytes {
		take(i, func(k *keptMatrix) bool { return k.content == "" })
	}
	var err error
	r.kept = slices.DeleteFunc(r.kept, func(k keptMatrix) bool {
		if k.content == "" {
			err = errors.Join(err, k.Buf.Free())
		}
		return k.content == ""
	})
	return err
}

// giveReserve puts the matrices of a job that has ended into the reserve, with what they hold, if it is all of it.
func (e *engine) giveReserve(done bool) {
	whole := done && e.whole
	for i, m := range e.matrices {
		content := ""
		switch {
		case whole && len(e.matrices) <= 2 && i == 0:
			content = e.Sequences[0].Input.Content
		case whole && len(e.matrices) == 2 && len(e.Nodes) == int(e.Graph.Manifest.Nodes):
			content = e.Content
		}
		e.Reserve.kept = append(e.Reserve.kept, keptMatrix{m, content})
	}
	e.matrices = nil
}
