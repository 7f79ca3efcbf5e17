package ingest

import (
	"context"
	"errors"
	"fmt"

	"github.com/hopfeed/hopfeed/tools/npy"
)

// openSparseFeatures reads the shape of node_feat.npz, a matrix saved by
// scipy.sparse.save_npz: arrays format, shape, indptr, indices and data.
func (s *npySource) openSparseFeatures(o NPYOptions) error {
	if o.FeatureType != 0 || len(o.FeatureShape) > 0 {
		return fmt.Errorf("%w: type and shape of %s stand in the file", ErrOptions, s.path("node_feat.npz"))
	}
	z, err := npy.OpenArchive(s.fsys, s.path("node_feat.npz"))
	if err != nil {
		return err
	}
	defer z.Close()
	text, err := z.Stream("format")
	if err != nil {
		return err
	}
	defer text.Close()
	layout, err := text.Text()
	if err != nil {
		return err
	}
	if layout != "csr" {
		return fmt.Errorf("%w: %s: a sparse matrix of format %q (want csr: save matrix.tocsr())", ErrInvalid, s.path("node_feat.npz"), layout)
	}
	shape, err := z.Stream("shape")
	if err != nil {
		return err
	}
	defer shape.Close()
	var dims [2]int64
	if !shape.Type.IsInteger() || shape.Elements() != 2 {
		return fmt.Errorf("%w: %s: %s array of shape %v (want two integers)", ErrInvalid, shape.Path(), shape.Type, shape.Shape)
	}
	if err := npy.Next(shape, dims[:]); err != nil {
		return err
	}
	if dims[0] < 0 {
		return fmt.Errorf("%w: %s: %d rows", ErrInvalid, shape.Path(), dims[0])
	}
	s.info.FeatureBytes = sparseBytes
	return s.setFeatures(s.path("node_feat.npz"), dims[0], dims[1])
}

// sparseReader spreads CSR rows. Its three arrays are streamed side by side, so
// that deflated ones are inflated once.
type sparseReader struct {
	path                  string
	archive               *npy.Archive
	indptr, indices, data *npy.Stream
	cols                  int64
	row                   int64 // next
	ptr                   int64 // indptr[row]
	columns               []int64
	values                []float32
	ptrs                  []int64
	at                    int   // next of columns and values
	left                  int64 // entries not yet in columns and values
}

// sparseBlock is the number of entries that are read in one go.
const sparseBlock = 1 << 16

// sparseBytes bounds what a sparseReader holds: entries, raw bytes, inflaters.
const sparseBytes = 8 << 20

func (s *npySource) sparseFeatures() (_ FeatureReader, err error) {
	r := &sparseReader{path: s.path("node_feat.npz"), cols: int64(s.info.Features)}
	if r.archive, err = npy.OpenArchive(s.fsys, r.path); err != nil {
		return nil, err
	}
	for _, m := range []struct {
		stream **npy.Stream
		name   string
	}{{&r.indptr, "indptr"}, {&r.indices, "indices"}, {&r.data, "data"}} {
		if *m.stream, err = r.archive.Stream(m.name); err != nil {
			r.Close()
			return nil, err
		}
	}
	r.left = r.data.Elements()
	switch {
	case !r.indptr.Type.IsInteger() || len(r.indptr.Shape) != 1 || r.indptr.Shape[0] != s.info.Nodes+1:
		err = fmt.Errorf("%w: %s: %s array of shape %v (want %d integers)", ErrInvalid, r.indptr.Path(), r.indptr.Type, r.indptr.Shape, s.info.Nodes+1)
	case !r.indices.Type.IsInteger() || len(r.indices.Shape) != 1 || len(r.data.Shape) != 1 || r.indices.Shape[0] != r.left:
		err = fmt.Errorf("%w: %s: arrays indices %v and data %v do not belong together", ErrInvalid, r.path, r.indices.Shape, r.data.Shape)
	default:
		var first [1]int64
		if err = npy.Next(r.indptr, first[:]); err == nil && first[0] != 0 {
			err = fmt.Errorf("%w: %s: begins with %d (want 0)", ErrInvalid, r.indptr.Path(), first[0])
		}
	}
	if err != nil {
		r.Close()
		return nil, err
	}
	return r, nil
}

// Read fills dst with zeros and the entries of the next rows; entries of one
// place add up, as in scipy.
func (r *sparseReader) Read(ctx context.Context, dst []float32) error {
	clear(dst)
	for len(dst) > 0 {
		n := min(int64(len(dst))/r.cols, sparseBlock)
		if r.ptrs == nil {
			r.ptrs = make([]int64, sparseBlock)
		}
		ptrs := r.ptrs[:n]
		if err := npy.Next(r.indptr, ptrs); err != nil {
			return err
		}
		for i, end := range ptrs {
			if err := r.readRow(dst[int64(i)*r.cols:int64(i+1)*r.cols], end); err != nil {
				return err
			}
		}
		dst = dst[n*r.cols:]
	}
	return nil
}

func (r *sparseReader) readRow(dst []float32, end int64) error {
	if end < r.ptr || end > r.data.Elements() || r.row == r.indptr.Elements()-2 && end != r.data.Elements() {
		return fmt.Errorf("%w: %s: row %d ends at entry %d, after %d, of %d", ErrInvalid, r.indptr.Path(), r.row, end, r.ptr, r.data.Elements())
	}
	for ; r.ptr < end; r.ptr++ {
		if r.at == len(r.values) {
			if err := r.refill(); err != nil {
				return err
			}
		}
		c := r.columns[r.at]
		if uint64(c) >= uint64(r.cols) {
			return fmt.Errorf("%w: %s: row %d has a value in column %d of %d", ErrInvalid, r.indices.Path(), r.row, c, r.cols)
		}
		dst[c] += r.values[r.at]
		r.at++
	}
	r.row++
	return nil
}

func (r *sparseReader) refill() error {
	if r.values == nil {
		r.columns, r.values = make([]int64, sparseBlock), make([]float32, sparseBlock)
	}
	n := min(sparseBlock, r.left)
	r.columns, r.values, r.at, r.left = r.columns[:n], r.values[:n], 0, r.left-n
	if err := npy.Next(r.indices, r.columns); err != nil {
		return err
	}
	return npy.Next(r.data, r.values)
}

func (r *sparseReader) Place(row int64) string { return fmt.Sprintf("%s: row %d", r.path, row) }

func (r *sparseReader) Close() error {
	var errs []error
	for _, s := range []*npy.Stream{r.indptr, r.indices, r.data} {
		if s != nil {
			errs = append(errs, s.Close())
		}
	}
	return errors.Join(append(errs, r.archive.Close())...)
}
