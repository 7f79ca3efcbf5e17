package features

import (
	"context"
	"errors"
	"fmt"

	"github.com/hopfeed/hopfeed/format"
	"github.com/hopfeed/hopfeed/gds"
	"github.com/hopfeed/hopfeed/internal/need"
)

// Device has all rows in the memory of a device, as float32. The device itself gathers them (Rows); the host can only
// where that memory is its own.
type Device struct {
	shape
	x      gds.Tensor
	memory gds.Memory // of x
	host   *Host      // of the same memory; nil: the host cannot read it
}

// LoadDevice reads and checks the features of a graph, and brings them to a device. threads 0 is parallel.Threads.
func LoadDevice(ctx context.Context, graph *format.Dir, device gds.Device, threads int) (*Device, error) {
	source, err := LoadHost(ctx, graph, nil, threads)
	if err != nil {
		return nil, err
	}
	memory := gds.Memory{Device: device}
	x := memory.Matrix(fmt.Sprintf("features of %d nodes", source.rows), int(source.rows), source.columns, gds.Float32)
	err = memory.Err
	if err == nil {
		err = upload(ctx, device, x, source)
	}
	if err = errors.Join(err, source.Close()); err != nil {
		return nil, errors.Join(err, memory.Free())
	}
	d := OnDevice(x, threads)
	d.memory = memory
	return d, nil
}

// upload is Upload on a stream of its own.
func upload(ctx context.Context, device gds.Device, to gds.Tensor, from Source) error {
	stream, err := device.NewStream()
	if err != nil {
		return err
	}
	return errors.Join(Upload(ctx, device, stream, to, from), stream.Close())
}

// OnDevice are rows that a device has, float32 [n,F], which stay the caller's.
func OnDevice(x gds.Tensor, threads int) *Device {
	d := &Device{shape: shape{rows: int64(x.Rows), columns: x.Cols, dtype: gds.Float32}, x: x}
	if bytes := x.Buf.Bytes(); bytes != nil {
		d.host = InMemory(bytes[x.Offset:][:gds.Bytes(x.Rows, x.Cols, gds.Float32)], x.Cols, threads)
	}
	return d
}

// stagingBytes is the pinned memory of Upload.
const stagingBytes = 8 << 20

// Upload copies the rows of all nodes to a matrix of float32 on a device, and waits for that.
func Upload(ctx context.Context, device gds.Device, stream gds.Stream, to gds.Tensor, from Source) (err error) {
	some := max(1, min(to.Rows, stagingBytes/(4*to.Cols)))
	staging, err := device.AllocPinned(gds.Bytes(some, to.Cols, gds.Float32))
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, staging.Free()) }()
	nodes := make([]uint32, 0, some)
	for lo := 0; lo < to.Rows; lo += some {
		nodes = nodes[:0]
		for v := lo; v < min(lo+some, to.Rows); v++ {
			nodes = append(nodes, uint32(v))
		}
		if err := from.Gather(ctx, staging.Bytes(), gds.Float32, nodes); err != nil {
			return err
		}
		stream.Copy(to.Slice(lo, lo+len(nodes)), gds.NewTensor(staging, len(nodes), to.Cols, gds.Float32))
		if err := stream.Synchronize(context.WithoutCancel(ctx)); err != nil { // staging is freed after an error
			return err
		}
	}
	return nil
}

// UploadNeed is the pinned memory of Upload, for so many rows.
func UploadNeed(rows int64, columns int) need.Term {
	return need.Term{Name: "features on their way to the device", Place: need.Pinned, From: need.Features,
		Until: need.Features, Bytes: min(stagingBytes, gds.Bytes(int(rows), columns, gds.Float32))}
}

// Resident are the rows of a source that a device has to gather by itself; the zero Tensor: the host gathers them.
func Resident(s Source) gds.Tensor {
	if d, is := s.(*Device); is && d.host == nil {
		return d.x
	}
	return gds.Tensor{}
}

// Gather copies rows where the host can read them; see Source.
func (d *Device) Gather(ctx context.Context, dst []byte, as gds.DType, nodes []uint32) error {
	if d.host == nil {
		return errors.New("rows in the memory of a device are gathered by it")
	}
	return d.host.Gather(ctx, dst, as, nodes)
}

// Stats counts the rows that the host gathered.
func (d *Device) Stats() Stats {
	s := Stats{Path: "device"}
	if d.host != nil {
		s = d.host.Stats()
	}
	return s
}

// Close frees the rows of LoadDevice.
func (d *Device) Close() (err error) {
	if d.host != nil {
		err = d.host.Close()
	}
	return errors.Join(err, d.memory.Free())
}
