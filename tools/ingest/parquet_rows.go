package ingest

import (
	"context"
	"fmt"
	"io"
	"slices"

	"github.com/hopfeed/hopfeed/format"
	"github.com/hopfeed/hopfeed/tools/parquet"
)

// listLength is the number of values in a row of a column, as the first row has them.
func (s *parquetSource) listLength(c *parquet.Column) (int64, error) {
	if !c.List {
		return 1, nil
	}
	r, err := s.nodes.Read(c)
	if err != nil {
		return 0, err
	}
	defer r.Close()
	for n := int64(0); ; {
		cells, err := r.Next(parquetBlock)
		if err == io.EOF {
			return n, nil
		} else if err != nil {
			return 0, err
		}
		for _, starts := range cells.Starts {
			if starts && n > 0 {
				return n, nil
			}
			n++
		}
	}
}

// openRowColumns says what labels and splits take in memory. Their columns are read one after
// another.
func (s *parquetSource) openRowColumns() (err error) {
	for _, c := range slices.Concat(s.split, s.label) {
		s.info.RowReadBytes = max(s.info.RowReadBytes, s.nodes.ReadBytes(c))
	}
	for _, c := range s.split {
		if err := ofKind(s.nodes, c, "integers, truth values or text", parquet.Integer, parquet.Float, parquet.Bool, parquet.Text); err != nil {
			return err
		}
	}
	if len(s.split) > format.MaxSplits {
		return errSplits(s.nodes.Path, int64(len(s.split)))
	}
	s.info.RowBytes += int64(s.numSplits())
	if err := s.files.LabelsAs.check(); err != nil || len(s.label) == 0 {
		return err
	}
	s.labels = int64(len(s.label))
	for _, c := range s.label {
		switch {
		case c.Kind == parquet.Other || c.List && c.Kind == parquet.Text:
			return fmt.Errorf("%w: %s: column %q is %s (want numbers or text, or lists of numbers)", ErrInvalid, s.nodes.Path, c.Name, c.Type)
		case c.List && len(s.label) > 1:
			return fmt.Errorf("%w: %s: column %q is a list, which holds all labels: name it alone with --%s", ErrOptions, s.nodes.Path, c.Name, labelRole.flag)
		case c.List:
			if s.labels, err = s.listLength(c); err != nil {
				return err
			}
		}
	}
	s.labels = max(1, s.labels)
	if s.labels > format.MaxLabelColumns {
		return fmt.Errorf("%w: %s: %d labels a node (at most %d)", ErrInvalid, s.nodes.Path, s.labels, format.MaxLabelColumns)
	}
	s.info.RowBytes += tableLabelBytes(s.files.LabelsAs, int(s.labels))
	return nil
}

// numSplits is how many splits nodes.parquet has.
func (s *parquetSource) numSplits() int {
	if s.maskParts != nil {
		return 1
	}
	return len(s.split)
}

// Rows adds labels and splits of nodes.parquet to what files beside it say.
func (s *parquetSource) Rows(ctx context.Context) (*format.RowTable, error) {
	t, err := s.edgeList.Rows(ctx)
	if err != nil {
		return nil, err
	}
	if s.label != nil {
		found, err := readLabels(s.files.LabelsAs, s.nodes.Path, s.labels, t, func(sink *labelSink) error { return s.readLabels(ctx, sink) })
		if err != nil {
			return nil, err
		}
		s.info.foundLabels(found)
	}
	if s.split == nil {
		return t, nil
	}
	makeSplits(t, s.numSplits())
	for k, c := range s.split {
		if err := s.readSplit(ctx, t, k, c); err != nil {
			return nil, err
		}
	}
	return t, nil
}

// readSplit reads a column of splits or a mask.
func (s *parquetSource) readSplit(ctx context.Context, t *format.RowTable, k int, c *parquet.Column) error {
	var digits [32]byte
	return eachRows(ctx, s.nodes, []*parquet.Column{c}, func(first int64, cells []*parquet.Cells) error {
		for i := range cells[0].N {
			if cells[0].Null[i] {
				continue
			}
			node, text := first+int64(i), cells[0].Text(i, digits[:])
			var err error
			if s.maskParts == nil {
				t.Splits[node*int64(t.NumSplits)+int64(k)], err = parseSplit(text)
			} else if in, bad := parseTruth(text); bad != nil {
				err = bad
			} else if in {
				err = setMask(t, node, s.maskParts[k])
			}
			if err != nil {
				return fmt.Errorf("%w: %s: column %q: %w", ErrInvalid, s.nodes.Place(node), c.Name, err)
			}
		}
		return nil
	})
}

// readLabels reads all labels.
func (s *parquetSource) readLabels(ctx context.Context, sink *labelSink) error {
	if s.label[0].List {
		return s.readLabelLists(ctx, sink)
	}
	for k, c := range s.label {
		if err := eachRows(ctx, s.nodes, []*parquet.Column{c}, func(first int64, cells []*parquet.Cells) error {
			for i := range cells[0].N {
				if cells[0].Null[i] {
					continue
				}
				var err error
				if node := first + int64(i); c.Kind == parquet.Text {
					err = sink.text(node, int64(k), cells[0].Text(i, nil))
				} else {
					err = sink.number(node, int64(k), cells[0].Number(i))
				}
				if err != nil {
					return fmt.Errorf("%w: %s: %w", ErrInvalid, s.nodes.Place(first+int64(i)), err)
				}
			}
			return nil
		}); err != nil {
			return err
		}
	}
	return nil
}

// readLabelLists reads labels that are a column of lists of one length.
func (s *parquetSource) readLabelLists(ctx context.Context, sink *labelSink) error {
	label := s.label[0]
	r, err := s.nodes.Read(label)
	if err != nil {
		return err
	}
	defer r.Close()
	row, column := int64(-1), int64(0)
	bad := func() error {
		return fmt.Errorf("%w: %s: column %q is not a list of %d values, as in row 0", ErrInvalid, s.nodes.Place(row), label.Name, s.labels)
	}
	for {
		if err := context.Cause(ctx); err != nil {
			return err
		}
		cells, err := r.Next(parquetBlock)
		if err == io.EOF {
			break
		} else if err != nil {
			return err
		}
		for i := range cells.N {
			if cells.Starts[i] {
				if row >= 0 && column != s.labels {
					return bad()
				}
				row, column = row+1, 0
			}
			if column == s.labels {
				return bad()
			}
			if !cells.Null[i] {
				if err := sink.number(row, column, cells.Number(i)); err != nil {
					return fmt.Errorf("%w: %s: %w", ErrInvalid, s.nodes.Place(row), err)
				}
			}
			column++
		}
	}
	if row >= 0 && column != s.labels {
		return bad()
	}
	return nil
}
