package gds

import (
	"context"
	"errors"
	"fmt"
)

// Upload copies data, a dense matrix of dst's shape and type, to dst through pinned
// memory that it allocates for that, and waits until it is there, and so for all
// earlier work of the stream. Data that are copied often should lie in a pinned
// Buffer of their own.
func Upload(d Device, s Stream, dst Tensor, data []byte) error {
	if want := Bytes(dst.Rows, dst.Cols, dst.DType); int64(len(data)) != want {
		return fmt.Errorf("%d bytes for tensor %v of %d", len(data), dst, want)
	}
	pinned, err := d.AllocPinned(int64(len(data)))
	if err != nil {
		return err
	}
	copy(pinned.Bytes(), data)
	s.Copy(dst, NewTensor(pinned, dst.Rows, dst.Cols, dst.DType))
	return errors.Join(s.Synchronize(context.Background()), pinned.Free())
}

// Download copies src to data the same way.
func Download(d Device, s Stream, data []byte, src Tensor) error {
	if want := Bytes(src.Rows, src.Cols, src.DType); int64(len(data)) != want {
		return fmt.Errorf("%d bytes for tensor %v of %d", len(data), src, want)
	}
	pinned, err := d.AllocPinned(int64(len(data)))
	if err != nil {
		return err
	}
	s.Copy(NewTensor(pinned, src.Rows, src.Cols, src.DType), src)
	err = s.Synchronize(context.Background())
	if err == nil {
		copy(data, pinned.Bytes())
	}
	return errors.Join(err, pinned.Free())
}
