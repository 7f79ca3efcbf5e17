package ingest

import (
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/hopfeed/hopfeed/format"
	"github.com/hopfeed/hopfeed/internal/dtype"
	"github.com/hopfeed/hopfeed/internal/progress"
	"github.com/hopfeed/hopfeed/tools/npy"
	"github.com/hopfeed/hopfeed/tools/parquet"
)

// openColumns opens the features that nodes.parquet has.
func (s *parquetSource) openColumns(ctx context.Context) error {
	n := int64(len(s.columns))
	if s.columns[0].List {
		var err error
		if n, err = s.listLength(s.columns[0]); err != nil {
			return err
		}
	}
	if n > format.MaxFeatures {
		return fmt.Errorf("%w: %s: %d features a node (want 1 to %d)", ErrInvalid, s.nodes.Path, n, format.MaxFeatures)
	}
	s.info.Nodes, s.info.Features = s.nodes.Rows, int(max(1, n))
	if !s.columns[0].List {
		return s.copyColumns(ctx)
	}
	s.info.FeatureBytes = s.nodes.ReadBytes(s.columns[0])
	s.features = func(int) (FeatureReader, error) {
		r, err := s.nodes.Read(s.columns[0])
		return &parquetLists{table: s.nodes, column: s.columns[0], reader: r, length: int64(s.info.Features)}, err
	}
	return nil
}

// copyColumns puts feature columns into a scratch file, one after another, a row group
// at a time: side by side, each would need pages of its own in memory.
func (s *parquetSource) copyColumns(ctx context.Context) error {
	t := s.nodes
	bytes := 4 * t.Rows * int64(len(s.columns))
	if err := checkSpace(s.fsys, s.scratch.Dir(), bytes); err != nil {
		return err
	}
	pending, err := s.fsys.Create(s.scratch.Path("features"))
	if err != nil {
		return err
	}
	defer pending.Abort()
	task := s.scratch.Progress.Start("read features", bytes, progress.Bytes)
	defer task.Done()
	sum, err := s.copyGroups(ctx, pending, task)
	if err != nil {
		return err
	}
	if err := pending.Commit(); err != nil {
		return err
	}
	a, err := npy.OpenRaw(s.fsys, s.scratch.Path("features"), npy.Float32, t.Rows, int64(len(s.columns)))
	if err != nil {
		return err
	}
	a.Fortran = true
	s.open = append(s.open, a)
	s.features = func(int) (FeatureReader, error) {
		return newCopiedRows(a, sum, t.Place), nil
	}
	return nil
}

// copyGroups writes the feature columns, in the order in which the files have them, and
// returns their sumElements.
func (s *parquetSource) copyGroups(ctx context.Context, to io.WriterAt, task progress.Task) (sum uint64, err error) {
	t := s.nodes
	r, err := t.Read(s.columns[0])
	if err != nil {
		return 0, err
	}
	defer r.Close()
	values := make([]float32, parquetBlock)
	for g, group := range t.Groups() {
		for k, c := range s.columns {
			if err := errors.Join(context.Cause(ctx), r.Restart(c, g, g+1)); err != nil {
				return 0, err
			}
			for row := group.First; ; {
				cells, err := r.Next(parquetBlock)
				if err == io.EOF {
					break
				} else if err != nil {
					return 0, err
				}
				for i := range cells.N {
					if cells.Null[i] {
						return 0, errNull(t, row+int64(i), c.Name)
					}
					if values[i] = float32(cells.Number(i)); values[i]-values[i] != 0 {
						return 0, fmt.Errorf("%w: %s, column %q: %v %s", ErrInvalid, t.Place(row+int64(i)), c.Name, cells.Number(i), notFinite)
					}
				}
				columns := int64(len(s.columns))
				sum += sumElements(row*columns+int64(k), columns, values[:cells.N])
				if _, err := to.WriteAt(dtype.BytesOf(values[:cells.N]), 4*(int64(k)*t.Rows+row)); err != nil {
					return 0, err
				}
				row += int64(cells.N)
				task.Add(4 * int64(cells.N))
			}
		}
	}
	return sum, nil
}

// parquetLists reads features that are a column of lists of one length.
type parquetLists struct {
	table  *parquet.Table
	column *parquet.Column
	reader *parquet.Reader
	length int64
	at     int64 // cells read
}

func (r *parquetLists) Read(ctx context.Context, dst []float32) error {
	for len(dst) > 0 {
		if err := context.Cause(ctx); err != nil {
			return err
		}
		cells, err := r.reader.Next(min(len(dst), parquetBlock))
		if err == io.EOF {
			return r.badLength()
		} else if err != nil {
			return err
		}
		for i := range cells.N {
			if cells.Starts[i] != (r.at%r.length == 0) {
				return r.badLength()
			}
			if cells.Null[i] {
				return errNull(r.table, r.at/r.length, r.column.Name)
			}
			dst[i] = float32(cells.Number(i))
			r.at++
		}
		dst = dst[cells.N:]
	}
	if r.at < r.table.Rows*r.length {
		return nil
	}
	if _, err := r.reader.Next(1); err == nil {
		return r.badLength()
	} else if err != io.EOF {
		return err
	}
	return nil
}

// badLength is the error where a list ends early, or goes on.
func (r *parquetLists) badLength() error {
	row := r.at / r.length
	if r.at%r.length == 0 {
		row-- // which goes on
	}
	return fmt.Errorf("%w: %s: column %q is not a list of %d values, as in row 0", ErrInvalid, r.table.Place(row), r.column.Name, r.length)
}

func (r *parquetLists) Place(row int64) string { return r.table.Place(row) }
func (r *parquetLists) Close() error           { return r.reader.Close() }
