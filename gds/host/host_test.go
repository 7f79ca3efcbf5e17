package host_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/hopfeed/hopfeed/gds"
	"github.com/hopfeed/hopfeed/gds/gdstest"
	"github.com/hopfeed/hopfeed/gds/host"
	"github.com/hopfeed/hopfeed/internal/dtype"
	"github.com/hopfeed/hopfeed/internal/rng"
	"github.com/hopfeed/hopfeed/internal/vfs"
)

func newDevice(t testing.TB, o host.Options) *host.Device {
	d, err := host.New(o)
	if err != nil {
		t.Fatal(err)
	}
	return d
}

func TestSuite(t *testing.T) {
	for name, o := range map[string]host.Options{"unified": {}, "discrete": {Discrete: true, LinkBytesPerSecond: 64 << 30}} {
		t.Run(name, func(t *testing.T) {
			gdstest.Run(t, func(t *testing.T) gds.Device { return newDevice(t, o) })
		})
	}
}

func TestMemoryIsHandedOutUpToTheLimit(t *testing.T) {
	d := newDevice(t, host.Options{MemoryBytes: 1 << 20})
	first, err := d.Alloc(768 << 10)
	if err != nil {
		t.Fatal(err)
	}
	_, err = d.Alloc(512 << 10)
	if !errors.Is(err, gds.ErrOutOfMemory) {
		t.Fatalf("512 KiB of 256 left: %v", err)
	}
	for _, says := range []string{"512 KiB", "256 KiB", "1 MiB"} {
		if !strings.Contains(err.Error(), says) {
			t.Errorf("%q does not say %s", err, says)
		}
	}
	if _, err := d.Alloc(256<<10 + 1); !errors.Is(err, gds.ErrOutOfMemory) {
		t.Errorf("a byte too many: %v", err)
	}
	second, err := d.Alloc(256 << 10)
	if err != nil {
		t.Fatal(err)
	}
	pinned, err := d.AllocPinned(2 << 20)
	if err != nil {
		t.Errorf("pinned memory is under the device's limit: %v", err)
	}
	if u := d.Usage(); u.InUse != 1<<20 || u.Peak != 1<<20 || u.PinnedInUse != 2<<20 {
		t.Errorf("usage %+v", u)
	}
	if err := errors.Join(first.Free(), second.Free(), pinned.Free(), d.Close()); err != nil {
		t.Error(err)
	}
}

func TestOptionsAreChecked(t *testing.T) {
	for _, o := range []host.Options{{MemoryBytes: -1}, {Threads: -1}, {LinkBytesPerSecond: -1}} {
		if _, err := host.New(o); err == nil {
			t.Errorf("%+v was accepted", o)
		}
	}
}

// results runs every operation that sums, or that runs in parts, on matrices
// that begin shift elements into their buffers, and returns all outputs.
func results(t *testing.T, threads, shift int) []byte {
	d := newDevice(t, host.Options{Threads: threads})
	s, err := d.NewStream()
	if err != nil {
		t.Fatal(err)
	}
	var buffers []gds.Buffer
	matrix := func(rows, cols int, seed uint64) gds.Tensor {
		b, err := d.Alloc(gds.Bytes(rows, cols, gds.Float32) + int64(4*shift))
		if err != nil {
			t.Fatal(err)
		}
		buffers = append(buffers, b)
		values := dtype.Float32s(b.Bytes()[4*shift:])
		for i := range values {
			values[i] = float32(rng.Normal(seed, uint64(i)))
		}
		m := gds.NewTensor(b, rows, cols, gds.Float32)
		m.Offset = int64(4 * shift)
		return m
	}
	const rows, features, hidden = 700, 600, 37
	x, w := matrix(rows, features, 1), matrix(features, hidden, 2)
	out, gradW, gradX, sums := matrix(rows, hidden, 3), matrix(features, hidden, 4), matrix(rows, features, 5), matrix(1, features, 6)
	loss, grad, labels := matrix(1, 1, 7), matrix(rows, hidden, 8), matrix(1, rows, 9)
	labels.DType = gds.Int32
	for i := range rows {
		dtype.Int32s(labels.Buf.Bytes()[4*shift:])[i] = int32(i % hidden)
	}
	s.Gemm(false, false, 1, x, w, 0, out)
	s.Gemm(true, false, 1, x, out, 0.5, gradW)
	s.Gemm(false, true, 1, out, w, 0, gradX)
	s.SumRows(sums, 1, x)
	s.SoftmaxCrossEntropy(loss, grad, out, labels, 1)
	s.Dropout(gradX, gradX, 0.5, 3)
	s.Adam(w, gradW, matrix(features, hidden, 10), matrix(features, hidden, 11), gds.AdamOptions{LearningRate: 1, Beta1: 0.9, Beta2: 0.9, Step: 1})
	var all []byte
	for _, m := range []gds.Tensor{out, gradW, gradX, sums, loss, grad, w} {
		host := make([]byte, gds.Bytes(m.Rows, m.Cols, m.DType))
		if err := gds.Download(d, s, host, m); err != nil {
			t.Fatal(err)
		}
		all = append(all, host...)
	}
	err = s.Close()
	for _, b := range buffers {
		err = errors.Join(err, b.Free())
	}
	if err := errors.Join(err, d.Close()); err != nil {
		t.Fatal(err)
	}
	return all
}

func TestResultsDependOnNeitherThreadsNorPlace(t *testing.T) {
	want := results(t, 1, 0)
	for _, c := range []struct{ threads, shift int }{{1, 1}, {2, 0}, {3, 2}, {16, 3}} {
		if !bytes.Equal(results(t, c.threads, c.shift), want) {
			t.Errorf("%d threads, %d elements into the buffer: other bits than one thread at the start", c.threads, c.shift)
		}
	}
}

func TestAFileTruncatedWhileOpenIsAnError(t *testing.T) {
	path := filepath.Join(t.TempDir(), "part-0.arrow")
	if err := os.WriteFile(path, bytes.Repeat([]byte{7}, 16384), 0o666); err != nil {
		t.Fatal(err)
	}
	d := newDevice(t, host.Options{})
	f, err := d.OpenFile(vfs.OS(), path)
	if err != nil {
		t.Fatal(err)
	}
	b, err := d.Alloc(16384)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Truncate(path, 4099); err != nil {
		t.Fatal(err)
	}
	if err := f.ReadInto(b, 0, 16384, 0); !errors.Is(err, io.ErrUnexpectedEOF) || !strings.Contains(err.Error(), path) {
		t.Errorf("reading beyond the new end: %v", err)
	}
	if err := f.ReadInto(b, 0, 4099, 0); err != nil || !bytes.Equal(b.Bytes()[:4099], bytes.Repeat([]byte{7}, 4099)) {
		t.Errorf("reading what is left: %v", err)
	}
	if err := errors.Join(f.Close(), b.Free(), d.Close()); err != nil {
		t.Error(err)
	}
}

// bench runs one operation per iteration on a stream of its own. Matrices are
// of numbers in [-1/2, 1/2).
type bench struct {
	*testing.B
	d *host.Device
	s gds.Stream
}

func newBench(b *testing.B) bench {
	d := newDevice(b, host.Options{})
	s, err := d.NewStream()
	if err != nil {
		b.Fatal(err)
	}
	return bench{b, d, s}
}

func (b bench) matrix(rows, cols int) gds.Tensor {
	buffer, err := b.d.Alloc(gds.Bytes(rows, cols, gds.Float32))
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { buffer.Free() })
	x := dtype.Float32s(buffer.Bytes())
	for i := range x {
		x[i] = rng.Float32(rng.Hash(1, uint64(i))) - 0.5
	}
	return gds.NewTensor(buffer, rows, cols, gds.Float32)
}

func (b bench) loop(op func(s gds.Stream)) {
	for b.Loop() {
		op(b.s)
		if err := b.s.Synchronize(context.Background()); err != nil {
			b.Fatal(err)
		}
	}
	if err := b.s.Close(); err != nil {
		b.Fatal(err)
	}
}

func BenchmarkGemm(b *testing.B) {
	for _, s := range [][3]int{{1024, 64, 745}, {1024, 8, 745}, {1024, 512, 512}} {
		m, n, k := s[0], s[1], s[2]
		for _, c := range []struct {
			name string
			run  func(s gds.Stream, x, w, y gds.Tensor)
		}{
			{"forward", func(s gds.Stream, x, w, y gds.Tensor) { s.Gemm(false, false, 1, x, w, 0, y) }},
			{"weightgrad", func(s gds.Stream, x, w, y gds.Tensor) { s.Gemm(true, false, 1, x, y, 0, w) }},
			{"inputgrad", func(s gds.Stream, x, w, y gds.Tensor) { s.Gemm(false, true, 1, y, w, 0, x) }},
		} {
			b.Run(fmt.Sprintf("rows=%d/in=%d/out=%d/%s", m, k, n, c.name), func(b *testing.B) {
				b2 := newBench(b)
				x, w, y := b2.matrix(m, k), b2.matrix(k, n), b2.matrix(m, n)
				b2.loop(func(s gds.Stream) { c.run(s, x, w, y) })
				b.ReportMetric(2*float64(m)*float64(n)*float64(k)*float64(b.N)/b.Elapsed().Seconds()/1e9, "Gflop/s")
			})
		}
	}
}

func BenchmarkGather(b *testing.B) {
	for _, cols := range []int{100, 745} {
		b.Run(fmt.Sprintf("rows=8192/cols=%d", cols), func(b *testing.B) {
			const rows, sources = 8192, 200_000
			b2 := newBench(b)
			src, dst, index := b2.matrix(sources, cols), b2.matrix(rows, cols), b2.matrix(1, rows)
			index.DType = gds.Uint32
			for i := range rows {
				dtype.Uint32s(index.Buf.Bytes())[i] = uint32(rng.Hash(2, uint64(i)) % sources)
			}
			b.SetBytes(gds.Bytes(rows, cols, gds.Float32))
			b2.loop(func(s gds.Stream) { s.Gather(dst, src, index) })
		})
	}
}

func BenchmarkSoftmaxCrossEntropy(b *testing.B) {
	for _, classes := range []int{8, 172} {
		b.Run(fmt.Sprintf("rows=8192/classes=%d", classes), func(b *testing.B) {
			const rows = 8192
			b2 := newBench(b)
			loss, grad, logits, labels := b2.matrix(1, 1), b2.matrix(rows, classes), b2.matrix(rows, classes), b2.matrix(1, rows)
			labels.DType = gds.Int32
			for i := range rows {
				dtype.Int32s(labels.Buf.Bytes())[i] = int32(i % classes)
			}
			b.SetBytes(gds.Bytes(rows, classes, gds.Float32))
			b2.loop(func(s gds.Stream) { s.SoftmaxCrossEntropy(loss, grad, logits, labels, 1) })
		})
	}
}

func BenchmarkElementwise(b *testing.B) {
	const rows, cols = 8192, 512
	for _, c := range []struct {
		name string
		run  func(s gds.Stream, x, y, m, v gds.Tensor)
	}{
		{"axpy", func(s gds.Stream, x, y, m, v gds.Tensor) { s.Axpy(1e-9, x, y) }},
		{"relu", func(s gds.Stream, x, y, m, v gds.Tensor) { s.ReLU(y, x) }},
		{"dropout", func(s gds.Stream, x, y, m, v gds.Tensor) { s.Dropout(y, x, 0.5, 1) }},
		{"sumrows", func(s gds.Stream, x, y, m, v gds.Tensor) { s.SumRows(m.Slice(0, 1), 0, x) }},
		{"adam", func(s gds.Stream, x, y, m, v gds.Tensor) {
			s.Adam(y, x, m, v, gds.AdamOptions{LearningRate: 1e-9, Beta1: 0.9, Beta2: 0.999, Epsilon: 1e-8, Step: 3})
		}},
	} {
		b.Run(c.name, func(b *testing.B) {
			b2 := newBench(b)
			x, y, m, v := b2.matrix(rows, cols), b2.matrix(rows, cols), b2.matrix(rows, cols), b2.matrix(rows, cols)
			b2.s.ReLU(v, v)
			b.SetBytes(gds.Bytes(rows, cols, gds.Float32))
			b2.loop(func(s gds.Stream) { c.run(s, x, y, m, v) })
		})
	}
}
