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
	case found == 0 && o.WithoutFeatures && meta.Nodes != nil && *meta.Nodes > 0:
		s.info.Nodes = *meta.Nodes
		return nil
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

// openSparseFeatures reads the shape of node_feat.npz.
func (s *arraySource) openSparseFeatures(o NPYOptions) error {
	path := s.path("node_feat.npz")
	if o.FeatureType != 0 || len(o.FeatureShape) > 0 {
		return badOptions("%s states type and shape itself: leave out --shape and --feature-dtype", path)
	}
	rows, columns, err := s.sparseShape(path)
	if err != nil {
		return err
	}
	s.info.FeatureBytes = sparseBytes
	s.features = func(int) (FeatureReader, error) {
		m, err := s.openSparse(path, rows, columns)
		return sparseReader{m}, err
	}
	return s.setFeatures(path, rows, columns)
}

// sparseReader spreads the rows of a sparse matrix.
type sparseReader struct{ *sparseMatrix }

// Read fills dst with zeros and the entries of the next rows; entries of one place add up, as in scipy.
func (r sparseReader) Read(_ context.Context, dst []float32) error {
	clear(dst)
	for ; len(dst) > 0; dst = dst[r.columns:] {
		if err := r.next(func(columns []int64, values []float32) error {
			for i, c := range columns {
				dst[c] += values[i]
			}
			return nil
		}); err != nil {
			return err
		}
	}
	return nil
}

func (r sparseReader) Place(row int64) string { return fmt.Sprintf("%s: row %d", r.path, row) }

// sparseMatrix is a CSR matrix that scipy.sparse.save_npz has saved: arrays format, shape, indptr, indices and data.
// Rows are read in order. The last three arrays are streamed side by side, so that deflated ones are inflated once.
type sparseMatrix struct {
	path                  string
	indptr, indices, data *npy.Stream
	rows, columns         int64
	row                   int64 // next
	ptr                   int64 // indptr[row]
	places                [sparseBlock]int64
	values                [sparseBlock]float32
}

// sparseBlock is the most entries that are read in one go.
const sparseBlock = 1 << 12

// sparseBytes bounds what a sparseMatrix holds: entries, raw bytes, inflaters.
const sparseBytes = 8 << 20

// sparseShape reads how many rows and columns a sparse matrix has, and checks that it is CSR.
func (s *source) sparseShape(path string) (rows, columns int64, err error) {
	a, err := s.openMember(path, "format", "")
	if err != nil {
		return 0, 0, err
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
	if err == nil && dims[0] < 0 {
		err = invalid(path, "shape: %d rows (want 0 or more)", dims[0])
	}
	return dims[0], dims[1], err
}

// openSparse starts to read a sparse matrix of a known shape. The caller closes it.
func (s *source) openSparse(path string, rows, columns int64) (_ *sparseMatrix, err error) {
	m := &sparseMatrix{path: path, rows: rows, columns: columns}
	defer closeOnError(&err, m)
	if m.data, err = s.openMember(path, "data", "numbers [entries]"); err != nil {
		return nil, err
	}
	want := fmt.Sprintf("integers [%d]: one for each value", m.data.Elements())
	if m.indices, err = s.openMember(path, "indices", want); err != nil {
		return nil, err
	}
	want = fmt.Sprintf("integers [%d]: where each row ends", rows+1)
	if m.indptr, err = s.openMember(path, "indptr", want); err != nil {
		return nil, err
	}
	var first [1]int64
	if err = npy.Next(m.indptr, first[:]); err == nil && first[0] != 0 {
		err = invalid(m.indptr.Path(), "the first entry is %d (want 0)", first[0])
	}
	return m, err
}

// next calls body with the entries of the next row, at most sparseBlock at a time, in the order of the file.
func (m *sparseMatrix) next(body func(columns []int64, values []float32) error) error {
	var ends [1]int64
	if err := npy.Next(m.indptr, ends[:]); err != nil {
		return err
	}
	end, entries := ends[0], m.data.Elements()
	if end < m.ptr || end > entries || m.row == m.rows-1 && end != entries {
		return invalid(m.indptr.Path(), "row %d ends at entry %d (want %d to %d)", m.row, end, m.ptr, entries)
	}
	for m.ptr < end {
		n := min(end-m.ptr, sparseBlock)
		columns, values := m.places[:n], m.values[:n]
		if err := npy.Next(m.indices, columns); err != nil {
			return err
		}
		if err := npy.Next(m.data, values); err != nil {
			return err
		}
		for _, c := range columns {
			if uint64(c) >= uint64(m.columns) {
				return invalid(m.indices.Path(), "row %d has a value in column %d, but there are %d columns",
					m.row, c, m.columns)
			}
		}
		if err := body(columns, values); err != nil {
			return err
		}
		m.ptr += n
	}
	m.row++
	return nil
}

// Close closes the streams.
func (m *sparseMatrix) Close() (err error) {
	for _, s := range []*npy.Stream{m.data, m.indices, m.indptr} {
		if s != nil {
			err = errors.Join(err, s.Close())
		}
	}
	return err
}
