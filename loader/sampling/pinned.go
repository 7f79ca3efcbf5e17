package sampling

import (
	"errors"
	"fmt"

	"github.com/hopfeed/hopfeed/format"
	"github.com/hopfeed/hopfeed/gds"
	"github.com/hopfeed/hopfeed/internal/dtype"
	"github.com/hopfeed/hopfeed/loader/internal/epoch"
)

// PinnedTopology is a topology in pinned host memory, which samplers on the processor read like any
// other, and which devices read by themselves (unified virtual addressing; MorphGL section 2.2).
type PinnedTopology struct {
	loadedTopology
	pins                      pins
	offsets, sources, weights gds.Tensor // weights is the zero Tensor where there are none
}

// PinTopology moves a topology that LoadTopology or InMemory has made to pinned memory of a device,
// which other devices of its kind reach too. t is closed, if there is no error; until then both are in
// memory. The caller closes the result before the device.
func PinTopology(device gds.Device, t Topology) (_ *PinnedTopology, err error) {
	loaded, ok := t.(*loadedTopology)
	if !ok {
		return nil, errors.New("only a topology that has been loaded into memory can be pinned, not one that is " +
			"mapped from files")
	}
	p, from := &PinnedTopology{}, loaded.c
	if p.offsets, err = pin(&p.pins, device, from.Offsets, gds.Int64); err == nil {
		p.sources, err = pin(&p.pins, device, from.Neighbors, gds.Uint32)
	}
	if err == nil {
		p.weights, err = pin(&p.pins, device, from.Weights, gds.Float32)
	}
	if err != nil {
		err = fmt.Errorf("pinning a topology of %d nodes and %d edges: %w", t.Nodes(), t.Edges(), err)
		return nil, errors.Join(err, p.Close())
	}
	p.c = &format.CSC{Offsets: pinned[int64](p.offsets), Neighbors: pinned[uint32](p.sources),
		Weights: pinned[float32](p.weights)}
	return p, t.Close()
}

// Close frees the memory.
func (p *PinnedTopology) Close() error { return p.pins.free() }

// pins are vectors in pinned memory.
type pins []gds.Buffer

// pin copies values to pinned memory; nil is the zero Tensor.
func pin[T dtype.Number](p *pins, device gds.Device, values []T, t gds.DType) (gds.Tensor, error) {
	if values == nil {
		return gds.Tensor{}, nil
	}
	b, err := device.AllocPinned(gds.Bytes(1, len(values), t))
	if err != nil {
		return gds.Tensor{}, err
	}
	*p = append(*p, b)
	copy(dtype.As[T](b.Bytes()), values)
	return gds.NewTensor(b, 1, len(values), t), nil
}

// pinned is a vector that pin has made.
func pinned[T dtype.Number](t gds.Tensor) []T {
	if t.Buf == nil {
		return nil
	}
	return dtype.As[T](t.Buf.Bytes())[:t.Cols]
}

func (p *pins) free() error {
	buffers := *p
	*p = nil
	return epoch.FreeAll(buffers...)
}
