package training

import (
	"errors"
	"fmt"

	"github.com/hopfeed/hopfeed/gds"
	"github.com/hopfeed/hopfeed/internal/machine"
	"github.com/hopfeed/hopfeed/internal/units"
	"github.com/hopfeed/hopfeed/tools/session"
)

// Memory is what a training or an inference takes at most, in bytes.
type Memory struct {
	HostBytes int64 `json:"host_bytes"` // beside the memory of devices
	// the part of HostBytes on the Go heap; of a store 0: not told apart
	HeapBytes   int64 `json:"heap_bytes"`
	DeviceBytes int64 `json:"device_bytes"`                 // of the device that takes most
	OtherBytes  int64 `json:"other_device_bytes,omitempty"` // of each other device
}

// fits tells whether a machine has room for what. A device that is the host's processor has its memory from the budget.
func (p Memory) fits(m session.Machine, what string) error {
	switch d := m.Devices; {
	case d.Info.Unified:
		p.HostBytes += p.DeviceBytes
	case d.FreeBytes > 0 && p.DeviceBytes > d.FreeBytes:
		return fmt.Errorf("%w: %s takes %s of device memory, and %s are free", machine.ErrDoesNotFit, what,
			units.Bytes(p.DeviceBytes), units.Bytes(d.FreeBytes))
	}
	return m.Budget.Fits(what, p.HostBytes)
}

// hostBytes is host memory: off the Go heap, pinned or not, and on it.
type hostBytes struct{ off, heap int64 }

func (b hostBytes) plus(more hostBytes) hostBytes {
	return hostBytes{b.off + more.off, b.heap + more.heap}
}

func (b hostBytes) times(n int) hostBytes { return hostBytes{int64(n) * b.off, int64(n) * b.heap} }

// explain says what the batches of a graph were expected to need, where there was too little device memory.
func (p *graphPlan) explain(err error) error {
	if p.scarceBytes == 0 || !errors.Is(err, gds.ErrOutOfMemory) {
		return err
	}
	return fmt.Errorf("%w; batches and their activations were expected to need up to %s "+
		"(give more --memory, fewer seed nodes by --batch, or a smaller --fanout)", err, units.Bytes(p.scarceBytes))
}
