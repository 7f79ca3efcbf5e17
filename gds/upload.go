package gds

import (
	"context"
	"errors"
	"fmt"

	"github.com/hopfeed/hopfeed/internal/dtype"
)

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
