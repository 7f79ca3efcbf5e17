package ingest

import (
	"cmp"
	"context"
	"fmt"
	"math"
	"strconv"
	"sync"

	"github.com/hopfeed/hopfeed/format"
	"github.com/hopfeed/hopfeed/internal/dtype"
	"github.com/hopfeed/hopfeed/internal/parallel"
	"github.com/hopfeed/hopfeed/internal/progress"
	"github.com/hopfeed/hopfeed/internal/vfs"
	"github.com/hopfeed/hopfeed/tools/npy"
)

// featureBlockBytes is how much of the feature matrix is in memory, as float32.
const featureBlockBytes = 16 << 20

func featureBlockRows(info Info) int64 {
	return max(1, min(info.Nodes, featureBlockBytes/int64(max(1, info.Features)*4)))
}

// featureMemory is the memory of writeFeatures: blocks as numbers, one as stored, what reading takes, and the stream
// that is written.
func featureMemory(info Info, o Options) int64 {
	stream := vfs.StreamBytes(info.Nodes * int64(info.Features*o.DType.Size()))
	block := featureBlockRows(info) * int64(info.Features)
	return block*int64(4*featureBlocks+o.DType.Size()) + info.FeatureBytes + stream
}

// featureBlocks is how many blocks there are in memory: one is read while another is checked and written.
const featureBlocks = 2

func writeFeatures(ctx context.Context, info Info, w *format.Writer, o Options, shared sharedParts,
	in FeatureReader) error {
	task := o.Progress.Start("write features", info.Nodes*int64(info.Features*o.DType.Size()), progress.Bytes)
	defer task.Done()
	m, err := w.Matrix(format.Input)
	if err != nil {
		return err
	}
	cols, rows, first := int64(info.Features), featureBlockRows(info), int64(0)
	if shared.graph != nil {
		from, err := shared.graph.Matrix(format.Input)
		if err == nil {
			first, err = m.Adopt(from, shared.features)
		}
		if err != nil {
			return err
		}
		in.(*updatedFeatures).next = first
	}
	begin := first
	stored := make([]byte, rows*cols*int64(o.DType.Size()))
	var bad *badValue
	err = parallel.Ordered(ctx, featureBlocks-1, (info.Nodes-begin+rows-1)/rows,
		func() []float32 { return make([]float32, rows*cols) },
		func(k int64, block []float32) ([]float32, error) {
			block = block[:min(rows, info.Nodes-begin-k*rows)*cols]
			return block, in.Read(ctx, block)
		}, func(block []float32) error {
			stored := stored[:len(block)*o.DType.Size()]
			if bad = encodeRows(stored, block, info.Features, o); bad != nil {
				bad.row += first
				return ErrInvalid
			}
			first += rows
			task.Add(int64(len(stored)))
			return m.Write(stored)
		})
	switch in, ok := in.(valueReader); {
	case bad == nil && err == nil:
		return m.Close()
	case bad == nil:
		return err
	case ok && bad.reason == notFinite:
		bad.value = cmp.Or(in.Value(bad.row, bad.col), bad.value)
	}
	return fmt.Errorf("%w: %s, column %d: %s %s", ErrInvalid, in.Place(bad.row), bad.col, bad.value, bad.reason)
}

type badValue struct {
	row    int64
	col    int
	value  string
	reason string
}

const notFinite = "is not a finite float32"

// valueReader is a FeatureReader that can print a value as the input has it; "": that one it cannot.
type valueReader interface {
	Value(row int64, col int) string
}

// encodeRows normalizes rows in place and converts them to the stored type. It returns the first value, in row order,
// that is or becomes no finite number.
func encodeRows(dst []byte, values []float32, cols int, o Options) *badValue {
	size := o.DType.Size()
	var mu sync.Mutex
	var bad *badValue
	// The body never fails, so all ranges are looked at and the first bad value is the same for any threads; without an
	// error, nothing is cancelled.
	_ = parallel.For(context.Background(), o.Threads, int64(len(values)/cols), max(1, int64(1<<15/cols)),
		func(first, end int64) error {
			for r := first; r < end; r++ {
				row := values[r*int64(cols) : (r+1)*int64(cols)]
				this := encodeRow(dst[r*int64(cols*size):(r+1)*int64(cols*size)], row, o)
				if this == nil {
					continue
				}
				this.row = r
				mu.Lock()
				if bad == nil || r < bad.row {
					bad = this
				}
				mu.Unlock()
				break
			}
			return nil
		})
	return bad
}

func encodeRow(dst []byte, row []float32, o Options) *badValue {
	bad := func(col int, v float64, reason string) *badValue {
		value := strconv.FormatFloat(v, 'g', -1, 32)
		if math.IsInf(v, 0) {
			value += " (or beyond float32)" // where it came from
		}
		return &badValue{col: col, value: value, reason: reason}
	}
	sum := 0.0
	for c, v := range row {
		if v-v != 0 {
			return bad(c, float64(v), notFinite)
		}
		sum += float64(v)
	}
	if o.NormalizeFeatures && sum > 0 {
		for c, v := range row {
			row[c] = float32(float64(v) / sum)
			if math.IsInf(float64(row[c]), 0) {
				return bad(c, float64(v), fmt.Sprintf("divided by the row's sum %g is not a finite float32", sum))
			}
		}
	}
	if c := dtype.Encode(dst, row, o.DType); c >= 0 {
		return bad(c, float64(row[c]), "is too large for "+o.DType.String())
	}
	return nil
}

// normalize divides a row by its sum, where that is positive, as encodeRow does.
func normalize(row []float32) {
	sum := 0.0
	for _, v := range row {
		sum += float64(v)
	}
	for c, v := range row {
		if sum > 0 {
			row[c] = float32(float64(v) / sum)
		}
	}
}

// inPlace finds the arrays that hold the features as a graph stores them, so that it can refer to them.
func inPlace(src Source, layout format.Layout, o Options) ([]*npy.Array, error) {
	if o.NormalizeFeatures {
		return nil, badOptions("--features-in-place and --normalize-features exclude each other: the features " +
			"must be stored as they are")
	}
	in, err := src.Features(o.Threads)
	if err != nil {
		return nil, err
	}
	defer in.Close()
	r, ok := in.(*denseReader)
	if !ok || r.copied != nil {
		return nil, badOptions("--features-in-place works only for features in .npy files or raw arrays: leave it " +
			"out to copy them")
	}
	var arrays []*npy.Array
	for _, a := range r.shards {
		if a.Shape[0] > 0 {
			arrays = append(arrays, a)
		}
	}
	for i, a := range arrays {
		reason := ""
		switch {
		case a.Fortran && a.Shape[0] > 1 && a.Shape[1] > 1:
			reason = "its columns are stored one after another (save numpy.ascontiguousarray of it)"
		case a.BigEndian:
			reason = "it is big endian"
		case a.Type.String() != o.DType.String():
			reason = fmt.Sprintf("it holds %s, and %s is to be stored (--dtype)", a.Type, o.DType)
		case i < len(arrays)-1 && a.Shape[0]%int64(layout.ChunkRows) != 0:
			reason = fmt.Sprintf("it has %d rows, and all files but the last must have a multiple of %d",
				a.Shape[0], layout.ChunkRows)
		default:
			continue
		}
		return nil, badOptions("--features-in-place: %s must be copied, as %s", a.Path(), reason)
	}
	if len(arrays) == 0 {
		return nil, badOptions("--features-in-place: there are no features, as there are no nodes")
	}
	return arrays, nil
}

// referFeatures makes the graph refer to arrays. It reads all of them, and checks them.
func referFeatures(ctx context.Context, w *format.Writer, arrays []*npy.Array, o Options) error {
	files, bytes := make([]format.SourceFile, len(arrays)), int64(0)
	for i, a := range arrays {
		files[i] = format.SourceFile{Path: a.Path(), Offset: a.Offset, Rows: a.Shape[0]}
		bytes += a.DataBytes()
	}
	task := o.Progress.Start("check features", bytes, progress.Bytes)
	defer task.Done()
	in, cols := &denseReader{shards: arrays}, arrays[0].Shape[1]
	return w.UseSources(ctx, files, o.Threads, func(firstRow int64, data []byte) error {
		if err := context.Cause(ctx); err != nil {
			return err
		}
		var values [1 << 10]float32
		at, size := firstRow*cols, o.DType.Size()
		for left := data; len(left) > 0; {
			n := min(len(values), len(left)/size)
			dtype.Decode(values[:n], left[:n*size], o.DType)
			for i, v := range values[:n] {
				if v-v != 0 {
					row, col := (at+int64(i))/cols, int((at+int64(i))%cols)
					return fmt.Errorf("%w: %s, column %d: %s %s", ErrInvalid,
						in.Place(row), col, in.Value(row, col), notFinite)
				}
			}
			left, at = left[n*size:], at+int64(n)
		}
		task.Add(int64(len(data)))
		return nil
	})
}
