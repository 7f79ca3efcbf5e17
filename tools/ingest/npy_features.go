package ingest

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/hopfeed/hopfeed/format"
	"github.com/hopfeed/hopfeed/internal/parallel"
	"github.com/hopfeed/hopfeed/tools/npy"
)

func (s *arraySource) openFeatures(o NPYOptions, meta npyMeta) error {
	var shards []string
	for s.has(shardName(len(shards))) {
		shards = append(shards, shardName(len(shards)))
	}
	for name := range s.names {
		digits, isShard := strings.CutPrefix(strings.TrimSuffix(name, ".npy"), "node_feat_")
		if k, err := strconv.Atoi(digits); isShard && err == nil && name == shardName(k) && k >= len(shards) {
			return invalid(s.dir, "the shard %s is there, and %s is missing", name, shardName(len(shards)))
		}
	}
	found := 0
	for _, there := range []bool{s.has("node_feat.npy"), s.has("node_feat.npz"), len(shards) > 0} {
		if there {
			found++
		}
	}
	switch {
	case found == 0:
		return invalid(s.dir,
			"no features%s (want node_feat.npy, node_feat.npz, or shards node_feat_0.npy, node_feat_1.npy, ...)",
			arrayHint(s.names, "node_feat.npy"))
	case found > 1:
		return invalid(s.dir, "more than one of node_feat.npy, node_feat.npz and node_feat_0.npy (want one)")
	case s.names["node_feat.npz"]:
		return s.openSparseFeatures(o)
	case s.names["node_feat.npy"]:
		shards = []string{"node_feat.npy"}
	}
	for _, name := range shards {
		a, err := s.openMaybeRaw(s.path(name), "numbers [n,F]", func() (npy.Type, int64, error) {
			return s.rawFeatures(s.path(name), o, meta)
		})
		if err != nil {
			return err
		}
		if len(o.FeatureShape) > 0 && a.Offset > 0 {
			return badOptions("%s has a header, which states the shape: leave out --shape", a.Path())
		}
		if s.shards = append(s.shards, a); a.Shape[1] != s.shards[0].Shape[1] {
			return invalid(a.Path(), "array of shape %v (want %d features in all shards)",
				a.Shape, s.shards[0].Shape[1])
		}
		if o.FeatureType == npy.BFloat16 && a.Type != npy.BFloat16 {
			if err := a.AsBFloat16(a.Path()); err != nil {
				return err
			}
		}
		if o.FeatureType != 0 && a.Type != o.FeatureType {
			return badOptions("%s: its header says %s, and --feature-dtype %s: leave out --feature-dtype",
				a.Path(), a.Type, o.FeatureType)
		}
		if err := s.setFeatures(a.Path(), max(0, s.info.Nodes)+a.Shape[0], a.Shape[1]); err != nil {
			return err
		}
	}
	s.readShards()
	if shape := o.FeatureShape; len(shape) > 0 && s.info.Nodes != shape[0] {
		return invalid(s.dir, "the shards have %d rows together, and --shape says %d", s.info.Nodes, shape[0])
	}
	return nil
}

func shardName(k int) string { return "node_feat_" + strconv.Itoa(k) + ".npy" }

// rawFeatures says what is in a file without header, as options or meta.json tell: the type and the columns.
func (s *arraySource) rawFeatures(path string, o NPYOptions, meta npyMeta) (t npy.Type, columns int64, err error) {
	shape, t := o.FeatureShape, o.FeatureType
	if len(shape) == 0 && meta.Nodes != nil && meta.Features != nil {
		shape = []int64{*meta.Nodes, *meta.Features}
	}
	if len(shape) == 0 {
		return 0, 0, invalid(path,
			"not a .npy file (no NUMPY magic); for an array without header give --shape and --feature-dtype")
	}
	if t == 0 && meta.FeatureDType != "" {
		if t, err = npy.ParseType(meta.FeatureDType); err != nil {
			return 0, 0, invalid(s.path("meta.json"), "feature_dtype: %w", err)
		}
	}
	if t == 0 {
		t = npy.Float32
	}
	if shape[0] < 0 || shape[1] < 1 || shape[1] > format.MaxFeatures {
		return 0, 0, invalid(path, "an array of shape %v (want 1 to %d features)", shape, format.MaxFeatures)
	}
	return t, shape[1], nil
}

func (s *arraySource) readShards() {
	s.features = func(threads int) (FeatureReader, error) {
		return &denseReader{shards: s.shards, readers: 2 * threads}, nil
	}
}

// denseReader reads the rows of shards one after another.
type denseReader struct {
	shards  []*npy.Array
	readers int // that read a block at a time
	shard   int
	row     int64       // within the shard
	copied  *copiedRows // of the only shard; nil: it is the input
}

// readBytes is how much a reader of a denseReader reads at once.
const readBytes = 2 << 20

func (r *denseReader) Read(ctx context.Context, dst []float32) error {
	cols := r.shards[0].Shape[1]
	for len(dst) > 0 {
		a := r.shards[r.shard]
		n := min(int64(len(dst))/cols, a.Shape[0]-r.row)
		if n == 0 {
			r.shard, r.row = r.shard+1, 0
			continue
		}
		step := max(1, readBytes/(cols*a.ItemBytes()))
		if a.Fortran { // each row is in as many places as there are columns
			step = n
		}
		err := parallel.For(ctx, r.readers, n, step, func(first, end int64) error {
			return npy.ReadRows(a, dst[first*cols:end*cols], r.row+first)
		})
		if err != nil {
			return err
		}
		if r.copied != nil {
			if err := r.copied.compare(a, r.row*cols, dst[:n*cols]); err != nil {
				return err
			}
		}
		dst, r.row = dst[n*cols:], r.row+n
	}
	return nil
}

func (r *denseReader) find(row int64) (shard *npy.Array, in int64) {
	k := 0
	for k < len(r.shards)-1 && row >= r.shards[k].Shape[0] {
		row -= r.shards[k].Shape[0]
		k++
	}
	return r.shards[k], row
}

func (r *denseReader) Place(row int64) string {
	if r.copied != nil {
		return r.copied.place(row)
	}
	a, row := r.find(row)
	return fmt.Sprintf("%s: row %d", a.Path(), row)
}

// Value prints a feature as the file has it.
func (r *denseReader) Value(row int64, col int) string {
	a, row := r.find(row)
	if a.Fortran {
		return a.Element(int64(col)*a.Shape[0] + row)
	}
	return a.Element(row*a.Shape[1] + int64(col))
}

func (r *denseReader) Close() error { return nil }

// openSparseFeatures reads the shape of node_feat.npz, a matrix saved by scipy.sparse.save_npz: arrays format, shape,
// indptr, indices and data.
func (s *arraySource) openSparseFeatures(o NPYOptions) error {
	if o.FeatureType != 0 || len(o.FeatureShape) > 0 {
		return badOptions("%s states type and shape itself: leave out --shape and --feature-dtype",
			s.path("node_feat.npz"))
	}
	path := s.path("node_feat.npz")
	a, err := s.openMember(path, "format", "")
	if err != nil {
		return err
	}
	defer a.Close()
	layout, err := a.Strings()
	if err == nil && !slices.Equal(layout, []string{"csr"}) {
		err = invalid(path, "a sparse matrix of format %.100q (want csr: save matrix.tocsr())", layout)
	}
	var dims [2]int64
	if err == nil {
		err = s.readMember(path, "shape", "integers [2]", dims[:])
	}
	if err != nil {
		return err
	}
	if dims[0] < 0 {
		return invalid(path, "shape: %d rows (want 0 or more)", dims[0])
	}
	s.info.FeatureBytes = sparseBytes
	s.features = func(int) (FeatureReader, error) { return s.sparseFeatures() }
	return s.setFeatures(path, dims[0], dims[1])
}

// sparseReader spreads CSR rows. Its three arrays are streamed side by side, so that deflated ones are inflated once.
type sparseReader struct {
	path                  string
	indptr, indices, data *npy.Stream
	cols, rows            int64
	row                   int64 // next
	ptr                   int64 // indptr[row]
	columns               [sparseBlock]int64
	values                [sparseBlock]float32
}

// sparseBlock is the most entries that are read in one go.
const sparseBlock = 1 << 12

// sparseBytes bounds what a sparseReader holds: entries, raw bytes, inflaters.
const sparseBytes = 8 << 20

func (s *arraySource) sparseFeatures() (_ FeatureReader, err error) {
	r := &sparseReader{path: s.path("node_feat.npz"), cols: int64(s.info.Features), rows: s.info.Nodes}
	defer closeOnError(&err, r)
	if r.data, err = s.openMember(r.path, "data", "numbers [entries]"); err != nil {
		return nil, err
	}
	want := fmt.Sprintf("integers [%d]: one for each value", r.data.Elements())
	if r.indices, err = s.openMember(r.path, "indices", want); err != nil {
		return nil, err
	}
	want = fmt.Sprintf("integers [%d]: where each row ends", r.rows+1)
	if r.indptr, err = s.openMember(r.path, "indptr", want); err != nil {
		return nil, err
	}
	var first [1]int64
	if err = npy.Next(r.indptr, first[:]); err == nil && first[0] != 0 {
		err = invalid(r.indptr.Path(), "the first entry is %d (want 0)", first[0])
	}
	return r, err
}

// Read fills dst with zeros and the entries of the next rows; entries of one place add up, as in scipy.
func (r *sparseReader) Read(_ context.Context, dst []float32) error {
	clear(dst)
	for ; len(dst) > 0; dst = dst[r.cols:] {
		if err := r.readRow(dst[:r.cols]); err != nil {
			return err
		}
	}
	return nil
}

func (r *sparseReader) readRow(dst []float32) error {
	var ends [1]int64
	if err := npy.Next(r.indptr, ends[:]); err != nil {
		return err
	}
	end, entries := ends[0], r.data.Elements()
	if end < r.ptr || end > entries || r.row == r.rows-1 && end != entries {
		return invalid(r.indptr.Path(), "row %d ends at entry %d (want %d to %d)", r.row, end, r.ptr, entries)
	}
	for r.ptr < end {
		n := min(end-r.ptr, sparseBlock)
		columns, values := r.columns[:n], r.values[:n]
		if err := npy.Next(r.indices, columns); err != nil {
			return err
		}
		if err := npy.Next(r.data, values); err != nil {
			return err
		}
		for i, c := range columns {
			if uint64(c) >= uint64(r.cols) {
				return invalid(r.indices.Path(), "row %d has a value in column %d, but there are %d columns",
					r.row, c, r.cols)
			}
			dst[c] += values[i]
		}
		r.ptr += n
	}
	r.row++
	return nil
}

func (r *sparseReader) Place(row int64) string { return fmt.Sprintf("%s: row %d", r.path, row) }

func (r *sparseReader) Close() (err error) {
	for _, s := range []*npy.Stream{r.data, r.indices, r.indptr} {
		if s != nil {
			err = errors.Join(err, s.Close())
		}
	}
	return err
}
