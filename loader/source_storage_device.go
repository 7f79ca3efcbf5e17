package loader

import (
	"errors"

	"github.com/hopfeed/hopfeed/gds"
	"github.com/hopfeed/hopfeed/internal/dtype"
	"github.com/hopfeed/hopfeed/internal/pipeline"
)

// chunkSums are the checksums of chunks that were read into memory of the device.
type chunkSums struct {
	device, pinned gds.Tensor // uint32 [slots, matrices]
}

// readsIntoDevice tells whether the device reads all files into its memory by itself.
func (s *storageSource) readsIntoDevice() bool {
	if !s.l.o.ChunksOnDevice || s.l.unified() {
		return false
	}
	for _, f := range s.files {
		if path := f.Receipt().Path; path != "gds" && path != "gds-compat" {
			return false
		}
	}
	return len(s.files) > 0
}

// allocateOnDevice allocates slots of each matrix in memory of the device. If there is too little, it allocates none.
func (s *storageSource) allocateOnDevice(slots int) error {
	m := &s.onDevice
	m.Device = s.l.o.Device
	memory, sums := s.allocateSlots(slots, m.Alloc), m.Matrix("checksums", slots, len(s.matrices), gds.Uint32)
	pinned := sums
	pinned.Buf = m.Pin("checksums", int64(4*slots*len(s.matrices)))
	switch {
	case errors.Is(m.Err, gds.ErrOutOfMemory):
		return m.Free()
	case m.Err != nil:
		return m.Err
	}
	s.memory, s.sums = memory, &chunkSums{sums, pinned}
	return nil
}

// checkOnDevice checks the chunks of a batch that no batch before has used: the device computes their
// checksums, and the host compares them before anything of the batch is copied.
func (s *storageSource) checkOnDevice(w *pipeline.Worker, parts chunkSlices, stream gds.Stream) error {
	checking := false
	for _, p := range parts {
		if p.slot.checked {
			continue
		}
		checking = true
		i := p.slot.index
		for m, matrix := range s.matrices {
			length := int(matrix.Extent(p.slot.chunk).Length)
			stream.Checksum(s.sums.device.Slice(i, i+1).Columns(m, m+1), gds.Tensor{
				Buf: s.memory[m], Offset: int64(i) * s.stride, Rows: 1, Cols: length, Stride: length, DType: gds.Uint8,
			})
		}
		stream.Copy(s.sums.pinned.Slice(i, i+1), s.sums.device.Slice(i, i+1))
	}
	if !checking {
		return nil
	}
	if err := w.Wait(stream.Record()); err != nil {
		return err
	}
	sums := dtype.Uint32s(s.sums.pinned.Buf.Bytes()[:4*s.sums.pinned.Rows*s.sums.pinned.Cols])
	for m, matrix := range s.matrices { // in the order in which the host checks
		for _, p := range parts {
			if p.slot.checked {
				continue
			}
			if err := matrix.CheckChecksum(p.slot.chunk, sums[p.slot.index*len(s.matrices)+m]); err != nil {
				return err
			}
		}
	}
	return nil
}
