package host_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/hopfeed/hopfeed/gds"
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

func TestADeviceThatMapsNoMemoryDoesNotReadWhatIsPinned(t *testing.T) {
	d := newDevice(t, host.Options{Discrete: true, Unmapped: true})
	s, err := d.NewStream()
	if err != nil {
		t.Fatal(err)
	}
	pinned, err := d.AllocPinned(64)
	if err != nil {
		t.Fatal(err)
	}
	b, err := d.Alloc(64)
	if err != nil {
		t.Fatal(err)
	}
	x := gds.NewTensor(b, 1, 2, gds.Uint32)
	s.Gather(x, gds.NewTensor(pinned, 8, 2, gds.Uint32), x.Columns(0, 1))
	if err := s.Close(); d.Info().MapsPinned || err == nil || !strings.Contains(err.Error(), "does not read") {
		t.Errorf("%+v, %v", d.Info(), err)
	}
	if err := errors.Join(pinned.Free(), b.Free(), d.Close()); err != nil {
		t.Error(err)
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
	out, gradW, gradX, sums := matrix(rows, hidden, 3), matrix(features, hidden, 4), matrix(rows, features, 5),
		matrix(1, features, 6)
	loss, grad, labels := matrix(1, 1, 7), matrix(rows, hidden, 8), matrix(1, rows, 9)
	labels.DType = gds.Int32
	for i := range rows {
		dtype.Int32s(labels.Buf.Bytes()[4*shift:])[i] = int32(i % hidden)
	}
	s.Gemm(false, false, 1, x, w, 0, out)
	s.Gemm(true, false, 1, x, out, 0.5, gradW)
	s.Gemm(false, true, 1, out, w, 0, gradX)
	s.SumRows(sums, 1, x)
	s.SoftmaxCrossEntropy(loss, grad, out, labels, gds.Tensor{}, gds.Tensor{}, 1)
	s.Dropout(gradX, gradX, 0.5, 3)
	s.Adam(w, gradW, matrix(features, hidden, 10), matrix(features, hidden, 11),
		gds.AdamOptions{LearningRate: 1, Beta1: 0.9, Beta2: 0.9, Step: 1})
	const degree, heads = 20, 3
	offsets, indices, weights := matrix(1, rows+1, 12), matrix(1, rows*degree, 13), matrix(1, rows*degree, 14)
	offsets.DType, indices.DType = gds.Uint32, gds.Uint32
	for i := range rows + 1 {
		dtype.Uint32s(offsets.Buf.Bytes()[4*shift:])[i] = uint32(i * degree)
	}
	for i := range rows * degree {
		dtype.Uint32s(indices.Buf.Bytes()[4*shift:])[i] = uint32(rng.Hash(15, uint64(i)) % rows)
	}
	edgeSum, edgeGrad, scores := matrix(rows, features, 16), matrix(rows, features, 17), matrix(rows, 2*heads, 18)
	attended, stats, gradValues, gradScores := matrix(rows, features, 19), matrix(rows, 2*heads, 20),
		matrix(rows, features, 21), matrix(rows, 2*heads, 22)
	s.SumEdges(edgeSum, x, offsets, indices, weights)
	s.SumEdgesGrad(edgeGrad, x, offsets, indices, weights)
	s.AttendEdges(attended, stats, x, scores, offsets, indices, 0.2)
	s.AttendEdgesGrad(gradValues, gradScores, x, stats, x, scores, offsets, indices, 0.2)
	var all []byte
	for _, m := range []gds.Tensor{out, gradW, gradX, sums, loss, grad, w, edgeSum, edgeGrad, attended, stats,
		gradValues, gradScores} {
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
			t.Errorf("%d threads, %d elements into the buffer: other bits than one thread at the start", c.threads,
				c.shift)
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

// Operations are values in a queue, and their loops plain functions: see op and team.
func TestOperationsAllocateNothing(t *testing.T) {
	for _, c := range []struct{ threads, rows int }{{1, 3}, {1, 700}, {4, 3}, {4, 700}} {
		d := newDevice(t, host.Options{Threads: c.threads})
		s, err := d.NewStream()
		if err != nil {
			t.Fatal(err)
		}
		var buffers []gds.Buffer
		tensor := func(rows, cols int, dt gds.DType) gds.Tensor {
			b, err := d.Alloc(gds.Bytes(rows, cols, dt))
			if err != nil {
				t.Fatal(err)
			}
			buffers = append(buffers, b)
			return gds.NewTensor(b, rows, cols, dt)
		}
		const cols, classes = 300, 40
		pinned, err := d.AllocPinned(gds.Bytes(c.rows, cols, gds.Float32))
		if err != nil {
			t.Fatal(err)
		}
		buffers = append(buffers, pinned)
		x, y, w, half := tensor(c.rows, cols, gds.Float32), tensor(c.rows, classes, gds.Float32),
			tensor(cols, classes, gds.Float32), tensor(c.rows, cols, gds.Float16)
		m, v, row := tensor(cols, classes, gds.Float32), tensor(cols, classes, gds.Float32),
			tensor(1, cols, gds.Float32)
		sums := tensor(1, 2*cols, gds.Float32)
		loss, count, labels := tensor(1, 1, gds.Float32), tensor(1, 2, gds.Int64), tensor(1, c.rows, gds.Int32)
		multi := tensor(c.rows, classes, gds.Int8)
		index, index64 := tensor(1, c.rows, gds.Uint32), tensor(1, c.rows, gds.Int64)
		scores, edgeWeights := tensor(c.rows, 4, gds.Float32), tensor(1, c.rows, gds.Float32)
		starts, graph := tensor(1, 3, gds.Uint32), &gds.Graph{Offsets: tensor(1, 3, gds.Int64)}
		chain := func() {
			s.Copy(x, gds.NewTensor(pinned, c.rows, cols, gds.Float32))
			s.Convert(half, x)
			s.Gather(x, x.Slice(0, 1), index)
			s.Gather(x, x.Slice(0, 1), index64)
			s.Scatter(x.Slice(0, 1), x.Slice(0, 1), index.Slice(0, 1).Columns(0, 1))
			s.Fill(loss, 0)
			s.Fill(y, 0.5)
			s.Gemm(false, false, 1, x, w, 0, y)
			s.Gemm(true, false, 1, x, y, 0, m)
			s.Gemm(false, true, 1, y, w, 0, x)
			s.AddRow(x, row)
			s.MulRow(x, row)
			s.SumRows(row, 0, x)
			s.Axpy(1, w, m)
			s.ReLU(y, y)
			s.ReLUGrad(y, y, y, 1)
			s.ReLUDropout(y, y, 0.5, 1)
			s.Dropout(x, x, 0.5, 1)
			s.PReLU(x, x, loss)
			s.PReLUGrad(x, loss, x, x, loss)
			s.ELU(x, x)
			s.ELUGrad(x, x, x, 0.5)
			s.Mul(x, x, x)
			s.SumSquares(row, x, row)
			s.NormalizeColumns(x, x, row, row, row, row, 1)
			s.NormalizeColumnsSums(sums, x, x, row, row, 1)
			s.NormalizeColumnsGrad(x, x, x, row, row, row, sums, 1, 1)
			s.NormalizeRows(x, x.Columns(0, 2), x, row, row, 1)
			s.NormalizeRowsGrad(x, row, row, x, x, x.Columns(0, 2), row)
			s.Attention(x.Columns(0, 100), x.Columns(0, 16), x, 4, 1)
			s.AttentionGrad(x.Columns(0, 60), y.Columns(0, 20), y.Columns(0, 16), x.Columns(0, 60), 4, 1)
			s.SoftmaxRows(y, y)
			s.SoftmaxRowsGrad(y, y, y)
			s.WeighTokens(y, x.Columns(0, 4), x.Columns(0, 160))
			s.WeighTokensGrad(x.Columns(0, 4), x.Columns(0, 160), y, x.Columns(0, 4), x.Columns(0, 160))
			offsets, indices := index.Columns(0, 2), index // all zero
			s.SumEdges(y.Slice(0, 1), y, offsets, indices, edgeWeights)
			s.SumEdgesGrad(y, x.Slice(0, 1).Columns(0, classes), offsets, indices, edgeWeights)
			s.AttendEdges(y.Slice(0, 1), m.Slice(0, 1).Columns(0, 4), x.Columns(0, classes), scores, offsets, indices,
				0.2)
			s.AttendEdgesGrad(y, scores, m.Slice(0, 1), m.Slice(0, 1).Columns(0, 4), x.Columns(0, classes),
				x.Columns(0, 4), offsets, indices, 0.2)
			s.Propagate(x.Slice(0, 2), x, gds.Product{Starts: index64.Columns(0, 2), Ends: index64.Columns(0, 2),
				Nodes: index, Blend: x.Slice(0, 2), NotFinite: count.Columns(0, 1)})
			s.CountSampled(starts, count.Columns(0, 1), count.Columns(0, 1), index.Columns(0, 2), graph,
				gds.Sampling{Fanout: 1})
			s.SampleEdges(gds.Tensor{}, gds.Tensor{}, starts, index.Columns(0, 2), graph, gds.Sampling{Fanout: 1})
			s.Relabel(index.Columns(0, 1), index, starts.Columns(0, 1), index.Columns(0, 1), 0)
			s.GatherCached(x, x.Slice(0, 1), x, index, index, count.Columns(0, 1))
			s.Checksum(gds.NewTensor(loss.Buf, 1, 1, gds.Uint32), x)
			s.SoftmaxCrossEntropy(loss, y, y, labels, gds.Tensor{}, gds.Tensor{}, 1)
			s.SigmoidCrossEntropy(loss, y, y, multi, gds.Tensor{}, 1)
			s.SquaredError(loss, y, y, y, row.Columns(0, classes), gds.Tensor{}, 1)
			s.AbsoluteError(loss, y, y, y, row.Columns(0, classes), gds.Tensor{}, 1)
			s.CountCorrect(count, y, labels)
			s.Adam(w, m, m, v, gds.AdamOptions{LearningRate: 1, Beta1: 0.9, Beta2: 0.9, Step: 1})
			s.ClipNorm(row, 1)
		}
		ofSynchronize := testing.AllocsPerRun(20, func() { mustSynchronize(t, s) })
		all := testing.AllocsPerRun(20, func() { chain(); mustSynchronize(t, s) })
		if all > ofSynchronize || ofSynchronize > 2 {
			t.Errorf("%d threads, %d rows: %v allocations by 48 operations and Synchronize, %v by Synchronize",
				c.threads, c.rows, all, ofSynchronize)
		}
		err = s.Close()
		for _, b := range buffers {
			err = errors.Join(err, b.Free())
		}
		if err := errors.Join(err, d.Close()); err != nil {
			t.Fatal(err)
		}
	}
}

func mustSynchronize(t *testing.T, s gds.Stream) {
	if err := s.Synchronize(context.Background()); err != nil {
		t.Fatal(err)
	}
}
