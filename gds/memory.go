package gds

import (
	"errors"
	"fmt"
)

// Memory is buffers of a device that are freed all at once. Without a device it is only counted.
type Memory struct {
	Device      Device
	Bytes       int64 // of the device, in pages of Align bytes
	PinnedBytes int64 // of the host, also in pages
	// Err is the first error of an allocation, after which there are no more: check it when all is allocated.
	Err     error
	buffers []Buffer
}

// Alloc allocates zeroed device memory; errors name its purpose. It returns nil without a device, or after an error.
func (m *Memory) Alloc(what string, bytes int64) Buffer {
	m.Bytes += Aligned(bytes)
	return m.add("memory for "+what, bytes, Device.Alloc)
}

// Pin allocates zeroed pinned memory of the host as Alloc does.
func (m *Memory) Pin(what string, bytes int64) Buffer {
	m.PinnedBytes += Aligned(bytes)
	return m.add("pinned memory for "+what, bytes, Device.AllocPinned)
}

// Matrix allocates a dense matrix of zeros on the device. It returns the zero Tensor without a device, or after an
// error.
func (m *Memory) Matrix(what string, rows, cols int, t DType) Tensor {
	if b := m.Alloc(what, Bytes(rows, cols, t)); b != nil {
		return NewTensor(b, rows, cols, t)
	}
	return Tensor{}
}

func (m *Memory) add(what string, bytes int64, allocate func(Device, int64) (Buffer, error)) Buffer {
	if m.Device == nil || m.Err != nil {
		return nil
	}
	b, err := allocate(m.Device, bytes)
	if err != nil {
		m.Err = fmt.Errorf("%s: %w", what, err)
		return nil
	}
	m.buffers = append(m.buffers, b)
	return b
}

// Keep lets Free free a buffer too.
func (m *Memory) Keep(b Buffer) { m.buffers = append(m.buffers, b) }

// Free frees all of it, and leaves Err. Work that uses it must be done.
func (m *Memory) Free() error {
	var errs []error
	for _, b := range m.buffers {
		errs = append(errs, b.Free())
	}
	m.buffers = nil
	return errors.Join(errs...)
}
