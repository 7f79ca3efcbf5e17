package gds

import (
	"context"
	"errors"
	"fmt"

	"github.com/hopfeed/hopfeed/internal/dtype"
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

// Room is what is allocated where n bytes, or rows, are needed and more may be later: a quarter more, so that
// what grows with batches is allocated seldom.
func Room(n int64) int64 { return n + n/4 }

// Aligned is bytes, rounded up to a multiple of Align.
func Aligned(bytes int64) int64 { return (bytes + Align - 1) / Align * Align }

// AllocateRoom calls allocate(wanted), in bytes or rows, and, if memory is too small, allocate(needed).
// After an error, allocate has allocated nothing.
func AllocateRoom(needed, wanted int64, allocate func(n int64) error) error {
	err := allocate(wanted)
	if err != nil && wanted > needed {
		err = allocate(needed)
	}
	return err
}

// Upload copies data, the elements of dst row by row, to dst through pinned memory that it
// allocates for that, and waits until they are there, and so for all earlier work of the stream.
// Data that are copied often should lie in a pinned Buffer of their own.
func Upload[T dtype.Number](d Device, s Stream, dst Tensor, data []T) error {
	pinned, err := pinnedLike(d, dst, dtype.BytesOf(data))
	if err != nil {
		return err
	}
	copy(pinned.Buf.Bytes(), dtype.BytesOf(data))
	s.Copy(dst, pinned)
	return errors.Join(s.Synchronize(context.Background()), pinned.Buf.Free())
}

// Download copies src to data the same way.
func Download[T dtype.Number](d Device, s Stream, data []T, src Tensor) error {
	pinned, err := pinnedLike(d, src, dtype.BytesOf(data))
	if err != nil {
		return err
	}
	s.Copy(pinned, src)
	if err = s.Synchronize(context.Background()); err == nil {
		copy(dtype.BytesOf(data), pinned.Buf.Bytes())
	}
	return errors.Join(err, pinned.Buf.Free())
}

// pinnedLike allocates pinned memory for the elements of t, which are data's.
func pinnedLike(d Device, t Tensor, data []byte) (Tensor, error) {
	bytes := Bytes(t.Rows, t.Cols, t.DType)
	if int64(len(data)) != bytes {
		return t, fmt.Errorf("%d bytes for tensor %v of %d", len(data), t, bytes)
	}
	pinned, err := d.AllocPinned(bytes)
	return NewTensor(pinned, t.Rows, t.Cols, t.DType), err
}
