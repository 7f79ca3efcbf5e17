package ingest

import (
	"context"
	"fmt"

	"github.com/hopfeed/hopfeed/format"
	"github.com/hopfeed/hopfeed/internal/dtype"
	"github.com/hopfeed/hopfeed/internal/progress"
	"github.com/hopfeed/hopfeed/tools/npy"
)

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
	if !ok {
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
