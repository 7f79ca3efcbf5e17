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
	buffers                   []gds.Buffer
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
	p := &PinnedTopology{}
	defer func() {
		if err != nil {
			err = errors.Join(fmt.Errorf("pinning a topology of %d nodes and %d edges: %w", t.Nodes(), t.Edges(), err),
				p.free())
		}
	}()
	c := &format.CSC{}
	if c.Offsets, p.offsets, err = pinVector(p, device, loaded.c.Offsets, gds.Int64); err != nil {
		return nil, err
	}
	if c.Neighbors, p.sources, err = pinVector(p, device, loaded.c.Neighbors, gds.Uint32); err != nil {
		return nil, err
	}
	if t.Weighted() {
		if c.Weights, p.weights, err = pinVector(p, device, loaded.c.Weights, gds.Float32); err != nil {
			return nil, err
		}
	}
	p.c = c
	return p, t.Close()
}

// pinVector copies values to pinned memory.
func pinVector[T dtype.Number](p *PinnedTopology, device gds.Device, values []T, t gds.DType) ([]T, gds.Tensor, error) {
	b, err := device.AllocPinned(gds.Bytes(1, len(values), t))
	if err != nil {
		return nil, gds.Tensor{}, err
	}
	p.buffers = append(p.buffers, b)
	pinned := dtype.As[T](b.Bytes())
	copy(pinned, values)
	return pinned, gds.NewTensor(b, 1, len(values), t), nil
}

func (p *PinnedTopology) free() error {
	var errs []error
	for _, b := range p.buffers {
		errs = append(errs, b.Free())
	}
	p.buffers = nil
	return errors.Join(errs...)
}

// Close frees the memory.
func (p *PinnedTopology) Close() error { return p.free() }
