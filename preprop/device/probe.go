package device

import (
	"context"
	"errors"
	"math/rand/v2"

	"github.com/hopfeed/hopfeed/gds"
	"github.com/hopfeed/hopfeed/internal/dtype"
	"github.com/hopfeed/hopfeed/preprop/plan"
)

// Measured is a device whose rates are measured, with up to probeBytes of its memory, in less than a second
// beside opening it. Rates that are known stay. If it cannot be measured, it is as it was.
func Measured(d *plan.Device) *plan.Device {
	out := *d
	if link, gather, err := measure(d); err == nil {
		if out.LinkBytesPerSecond == 0 {
			out.LinkBytesPerSecond = link
		}
		if out.GatherBytesPerSecond == 0 {
			out.GatherBytesPerSecond = gather
		}
	}
	return &out
}

const probeBytes = 64 << 20

// measure measures how fast bytes come to the device, and how fast it adds rows of 512 bytes.
func measure(d *plan.Device) (link, gather float64, err error) {
	const columns, degree = 128, 16
	bytes := int64(probeBytes)
	if d.FreeBytes > 0 {
		bytes = min(bytes, d.FreeBytes/4)
	}
	rows := int(bytes / 2 / (4*columns + 4*degree + 16))
	if rows == 0 {
		return 0, 0, errors.New("there is too little memory")
	}
	device, err := d.Open()
	if err != nil {
		return 0, 0, err
	}
	defer func() { err = errors.Join(err, device.Close()) }()
	s, err := device.NewStream()
	if err != nil {
		return 0, 0, err
	}
	defer func() { err = errors.Join(err, s.Close()) }()
	memory := gds.Memory{Device: device}
	defer func() { err = errors.Join(err, memory.Free()) }()
	tensor := func(rows, columns int, t gds.DType) gds.Tensor { return memory.Matrix("a probe", rows, columns, t) }
	x, y := tensor(rows, columns, gds.Float32), tensor(rows, columns, gds.Float32)
	host := gds.NewTensor(memory.Pin("a probe", gds.Bytes(rows, columns, gds.Float32)), rows, columns, gds.Float32)
	offsets, nodes := tensor(1, rows+1, gds.Int64), tensor(1, rows*degree, gds.Uint32)
	if memory.Err != nil {
		return 0, 0, memory.Err
	}
	starts, random := make([]int64, rows+1), rand.New(rand.NewPCG(1, 2))
	for v := range starts {
		starts[v] = int64(v * degree)
	}
	ends := make([]uint32, rows*degree)
	for e := range ends {
		ends[e] = random.Uint32N(uint32(rows))
	}
	if err := errors.Join(gds.Upload(device, s, offsets, starts), gds.Upload(device, s, nodes, ends)); err != nil {
		return 0, 0, err
	}
	seconds := func(do func()) float64 {
		do() // first use takes longer
		begun := s.Record()
		do()
		done := s.Record()
		if e := done.Wait(context.Background()); e != nil {
			err = errors.Join(err, e)
			return 1
		}
		took, e := done.Elapsed(begun)
		err = errors.Join(err, e)
		return max(took.Seconds(), 1e-9)
	}
	copied := seconds(func() { s.Copy(x, host) })
	added := seconds(func() {
		s.Propagate(y, x, gds.Product{Starts: offsets.Columns(0, rows), Ends: offsets.Columns(1, rows+1), Nodes: nodes})
	})
	size := float64(dtype.Float32.Size())
	return float64(rows*columns) * size / copied, float64(rows*degree*columns) * size / added, err
}
