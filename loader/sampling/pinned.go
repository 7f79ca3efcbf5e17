package sampling

import (
	"errors"
	"fmt"

	"github.com/hopfeed/hopfeed/format"
	"github.com/hopfeed/hopfeed/gds"
	"github.com/hopfeed/hopfeed/internal/dtype"
)

// PinnedTopology is a topology in pinned host memory, which samplers on the processor read like any
// other, and which devices read by themselves (unified virtual addressing; MorphGL section 2.2).
type PinnedTopology struct {
	loadedTopology
	memory                    gds.Memory
	offsets, sources, weights gds.Tensor // weights is the zero Tensor where there are none
}

// PinTopology moves a topology that LoadTopology or InMemory has made to pinned memory of a device,
// which other devices of its kind reach too. t is closed, if there is no error; until then both are in
// memory. The caller closes the result before the device.
func PinTopology(device gds.Device, t Topology) (*PinnedTopology, error) {
	loaded, ok := t.(*loadedTopology)
	if !ok {
		return nil, errors.New("only a topology that has been loaded into memory can be pinned, not one that is " +
			"mapped from files")
	}
	p, from := &PinnedTopology{memory: gds.Memory{Device: device}}, loaded.c
	what := fmt.Sprintf("a topology of %d nodes and %d edges", t.Nodes(), t.Edges())
	p.offsets = pin(&p.memory, what, from.Offsets, gds.Int64)
	p.sources = pin(&p.memory, what, from.Neighbors, gds.Uint32)
	p.weights = pin(&p.memory, what, from.Weights, gds.Float32)
	if p.memory.Err != nil {
		return nil, errors.Join(p.memory.Err, p.Close())
	}
	p.c = &format.CSC{Offsets: pinned[int64](p.offsets), Neighbors: pinned[uint32](p.sources),
		Weights: pinned[float32](p.weights)}
	return p, t.Close()
}

// Close frees the memory.
func (p *PinnedTopology) Close() error { return p.memory.Free() }

// pin copies values to pinned memory; nil is the zero Tensor.
func pin[T dtype.Number](m *gds.Memory, what string, values []T, t gds.DType) gds.Tensor {
	if values == nil {
		return gds.Tensor{}
	}
	b := m.Pin(what, gds.Bytes(1, len(values), t))
	if b != nil {
		copy(dtype.As[T](b.Bytes()), values)
	}
	return gds.NewTensor(b, 1, len(values), t)
}

// pinned is a vector that pin has made.
func pinned[T dtype.Number](t gds.Tensor) []T {
	if t.Buf == nil {
		return nil
	}
	return dtype.As[T](t.Buf.Bytes())[:t.Cols]
}
