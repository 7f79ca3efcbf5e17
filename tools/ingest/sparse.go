package ingest

import (
	"errors"
	"fmt"
	"slices"

	"github.com/hopfeed/hopfeed/tools/npy"
)

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
