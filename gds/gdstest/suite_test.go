package gdstest

import (
	"bytes"
	"context"
	"fmt"
	"math"
	"sync"
	"testing"

	"github.com/hopfeed/hopfeed/gds"
	"github.com/hopfeed/hopfeed/gds/host"
	"github.com/hopfeed/hopfeed/internal/dtype"
	"github.com/hopfeed/hopfeed/internal/rng"
)

// This is what every device must do: the contract of package gds as tests. They touch device memory through copies
// alone, so that it need not be host memory, and compare operations with plain float64 loops.
//
// Tolerances come from the arithmetic: a float32 operation errs by half a unit in the last place, 2^-24 of its result,
// and a sum of k terms in any order by k*2^-24 of the sum of their magnitudes (Higham 2002, section 4.2).

// kinds are the kinds of device of this build. open makes a device, anew for each test; the suite closes it.
var kinds = map[string]func() (gds.Device, error){
	"unified": func() (gds.Device, error) { return host.New(host.Options{}) },
	"discrete": func() (gds.Device, error) {
		return host.New(host.Options{Discrete: true, LinkBytesPerSecond: 64 << 30})
	},
}

func TestSuite(t *testing.T) {
	for kind, open := range kinds {
		t.Run(kind, func(t *testing.T) {
			for _, group := range []struct {
				name  string
				tests []test
			}{
				{"memory", memoryTests},
				{"streams", streamTests},
				{"bad calls", badCallTests},
				{"copies", copyTests},
				{"moving", moveTests},
				{"dense", denseTests},
				{"elementwise", elementwiseTests},
				{"normalisation", normTests},
				{"attention", attentionTests},
				{"edges", edgeTests},
				{"propagation", propagationTests},
				{"checksums", checksumTests},
				{"sampling", sampleTests},
				{"losses", lossTests},
				{"optimizers", optimizerTests},
				{"files", fileTests},
			} {
				t.Run(group.name, func(t *testing.T) {
					for _, c := range group.tests {
						t.Run(c.name, func(t *testing.T) { c.run(newFixture(t, open)) })
					}
				})
			}
		})
	}
}

type test struct {
	name string
	run  func(b *fixture)
}

// unit is the rounding error of one float32 operation, relative.
const unit = 1.0 / (1 << 24)

// fixture is a device under test, with a stream, and what must be cleared away.
type fixture struct {
	*testing.T
	open    func() (gds.Device, error)
	device  gds.Device
	stream  gds.Stream
	buffers []gds.Buffer
	staging *gds.Buffer // of uploads and downloads, of all parts of a test
	seed    uint64      // of the next random numbers
	closed  bool        // by the test itself
}

// newFixture also sees to it that the device ends clean: nothing poisoned that
// the test did not expect, nothing leaked.
func newFixture(t *testing.T, open func() (gds.Device, error)) *fixture {
	t.Helper()
	device, err := open()
	if err != nil {
		t.Fatal(err)
	}
	b := &fixture{T: t, open: open, device: device, staging: new(gds.Buffer)}
	b.stream = b.newStream()
	t.Cleanup(func() {
		if b.closed {
			return
		}
		if err := b.stream.Close(); err != nil {
			t.Errorf("the stream ends with %v", err)
		}
		if *b.staging != nil {
			b.buffers = append(b.buffers, *b.staging)
		}
		b.freeAll()
		if err := b.device.Close(); err != nil {
			t.Errorf("the device ends with %v", err)
		}
	})
	return b
}

// withPeer opens another device of the kind beside this one.
func (b *fixture) withPeer(run func(b, peer *fixture)) {
	b.Run("with a peer", func(t *testing.T) {
		peer := newFixture(t, b.open)
		b.at("peer", func(b *fixture) { run(b, peer) })
	})
}

// at runs a part of a test, with the bench's device and stream.
func (b *fixture) at(name string, run func(b *fixture)) {
	b.Run(name, func(t *testing.T) {
		part := &fixture{T: t, open: b.open, device: b.device, stream: b.stream, staging: b.staging,
			seed: rng.Derive(b.seed, name)}
		defer part.freeAll()
		run(part)
		part.sync()
	})
}

func (b *fixture) newStream() gds.Stream {
	b.Helper()
	s, err := b.device.NewStream()
	if err != nil {
		b.Fatal(err)
	}
	return s
}

func (b *fixture) alloc(size int64) gds.Buffer {
	b.Helper()
	buffer, err := b.device.Alloc(size)
	if err != nil {
		b.Fatal(err)
	}
	b.buffers = append(b.buffers, buffer)
	return buffer
}

func (b *fixture) pin(size int64) gds.Buffer {
	b.Helper()
	buffer, err := b.device.AllocPinned(size)
	if err != nil {
		b.Fatal(err)
	}
	b.buffers = append(b.buffers, buffer)
	return buffer
}

func (b *fixture) freeAll() {
	for _, buffer := range b.buffers {
		if err := buffer.Free(); err != nil {
			b.Errorf("free: %v", err)
		}
	}
	b.buffers = nil
}

func (b *fixture) sync() {
	b.Helper()
	if err := b.stream.Synchronize(context.Background()); err != nil {
		b.Fatal(err)
	}
}

// upload sets a whole buffer.
func (b *fixture) upload(buffer gds.Buffer, content []byte) {
	b.Helper()
	staged := b.stage(buffer)
	copy(staged.Buf.Bytes(), content)
	b.stream.Copy(wholeOf(buffer), staged)
	b.sync()
}

// stage is pinned memory for a copy of a buffer, the same for all.
func (b *fixture) stage(buffer gds.Buffer) gds.Tensor {
	if *b.staging == nil || (*b.staging).Len() < buffer.Len() {
		pinned, err := b.device.AllocPinned(gds.Room(max(buffer.Len(), 1<<20)))
		if err == nil && *b.staging != nil {
			err = (*b.staging).Free()
		}
		if err != nil {
			b.Fatal(err)
		}
		*b.staging = pinned
	}
	return gds.NewTensor(*b.staging, 1, int(buffer.Len()), gds.Uint8)
}

// download is a whole buffer.
func (b *fixture) download(buffer gds.Buffer) []byte {
	b.Helper()
	staged := b.stage(buffer)
	b.stream.Copy(staged, wholeOf(buffer))
	b.sync()
	return bytes.Clone(staged.Buf.Bytes()[:buffer.Len()])
}

func wholeOf(buffer gds.Buffer) gds.Tensor {
	return gds.NewTensor(buffer, 1, int(buffer.Len()), gds.Uint8)
}

// layout is how a matrix lies in its buffer.
type layout struct {
	name        string
	before, gap int // elements before the first, and after each row
}

var (
	dense   = layout{name: "dense"}
	shifted = layout{"dense at an odd offset", 7, 0}
	strided = layout{"strided", 5, 3}
	layouts = []layout{dense, shifted, strided}
)

// array is a matrix on the device amid bytes that nobody may touch.
type array struct {
	gds.Tensor
	around []byte // the whole buffer as it was set
}

const bytesAfter = 52

// array puts a matrix on the device, with NaN all around it; nil values leave
// NaN inside too.
func (b *fixture) array(l layout, rows, cols int, t gds.DType, values []byte) *array {
	b.Helper()
	return b.arrayIn(b.alloc, l, rows, cols, t, values)
}

// arrayIn does so in the memory that alloc gives.
func (b *fixture) arrayIn(alloc func(int64) gds.Buffer, l layout, rows, cols int, t gds.DType, values []byte) *array {
	b.Helper()
	size := t.Size()
	stride := cols + l.gap
	a := &array{around: bytes.Repeat([]byte{0xff}, (l.before+rows*stride)*size+bytesAfter)}
	a.Tensor = gds.Tensor{Buf: alloc(int64(len(a.around))), Offset: int64(l.before * size), Rows: rows, Cols: cols,
		Stride: stride, DType: t}
	if values != nil {
		for i := range rows {
			copy(a.row(a.around, i), values[i*cols*size:])
		}
	}
	b.upload(a.Buf, a.around)
	return a
}

// row is the bytes of row i in a copy of the buffer.
func (a *array) row(buffer []byte, i int) []byte {
	size := a.DType.Size()
	at := int(a.Offset) + i*a.Stride*size
	return buffer[at : at+a.Cols*size]
}

// bytes is the matrix, row by row, as it is now; what lies around it must be as
// it was.
func (b *fixture) bytes(a *array) []byte {
	b.Helper()
	now := b.download(a.Buf)
	var values []byte
	for i := range a.Rows {
		values = append(values, a.row(now, i)...)
		copy(a.row(now, i), a.row(a.around, i))
	}
	if !bytes.Equal(now, a.around) {
		b.Errorf("bytes outside of %v have changed", a.Tensor)
	}
	return values
}

func (b *fixture) floats(l layout, rows, cols int, values []float32) *array {
	b.Helper()
	return b.array(l, rows, cols, gds.Float32, dtype.BytesOf(values))
}

func (b *fixture) ints(values ...int32) *array {
	b.Helper()
	return b.array(shifted, 1, len(values), gds.Int32, dtype.BytesOf(values))
}

func (b *fixture) counts(values ...int64) *array {
	b.Helper()
	return b.array(shifted, 1, len(values), gds.Int64, dtype.BytesOf(values))
}

// read is the values of a float32 matrix.
func (b *fixture) read(a *array) []float32 {
	b.Helper()
	return dtype.Float32s(b.bytes(a))
}

// normal is n standard normal numbers, other ones at each call.
func (b *fixture) normal(n int) []float32 {
	b.seed++
	x, at := make([]float32, n), rng.Hash(b.seed, 0)
	for i := range x {
		x[i] = normals()[(at+uint64(i))%uint64(len(normals()))]
	}
	return x
}

// normals are as many as the largest matrix has elements.
var normals = sync.OnceValue(func() []float32 {
	x := make([]float32, 1<<17-1)
	for i := range x {
		x[i] = float32(rng.Normal(1, uint64(i)))
	}
	return x
})

// expect compares got[i] with want(i), which comes with its tolerance.
func (b *fixture) expect(got []float32, n int, want func(i int) (value, tolerance float64)) {
	b.Helper()
	if len(got) != n {
		b.Fatalf("%d values, want %d", len(got), n)
	}
	for i, g := range got {
		value, tolerance := want(i)
		// Written so that NaN fails.
		if !(math.Abs(float64(g)-value) <= tolerance+math.SmallestNonzeroFloat32) {
			b.Errorf("element %d is %v, want %v within %.3g", i, g, value, tolerance)
			return
		}
	}
}

// shapes are matrices around the sizes at which implementations change course.
var shapes = [][2]int{{0, 0}, {0, 5}, {5, 0}, {1, 1}, {1, 7}, {9, 1}, {3, 64}, {17, 33}, {300, 5}, {513, 130}}

// eachShape runs a test for all shapes and layouts.
func (b *fixture) eachShape(run func(b *fixture, l layout, rows, cols int)) {
	for _, s := range shapes {
		for _, l := range layouts {
			b.at(fmt.Sprintf("rows=%d,cols=%d,%s", s[0], s[1], l.name), func(b *fixture) { run(b, l, s[0], s[1]) })
		}
	}
}
