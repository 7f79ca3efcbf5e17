package ingest

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"

	"github.com/hopfeed/hopfeed/format"
	"github.com/hopfeed/hopfeed/internal/vfs"
	"github.com/hopfeed/hopfeed/tools/npy"
)

// source is shared by importers: the open files, and the readers of labels, splits and features.
type source struct {
	fsys     vfs.FS
	info     Info
	open     []io.Closer
	features func(threads int) (FeatureReader, error)
	labels   func(context.Context, *format.RowTable) (labelResult, error) // nil: none
	splits   []splitReader
	origIDs  func() ([]string, error) // nil: none
}

// splitReader reads count splits into a row table, as splits first to first+count-1.
type splitReader struct {
	count int64
	read  func(ctx context.Context, to *format.RowTable, first int64) error
}

func newSource(fsys vfs.FS, format string) source {
	return source{fsys: fsys, info: Info{Nodes: -1, Input: map[string]string{"source": format}}}
}

// closeOnError closes what a function that fails has opened.
func closeOnError(err *error, c io.Closer) {
	if *err != nil {
		c.Close()
	}
}

func (s *source) Info() Info { return s.info }

func (s *source) Features(threads int) (FeatureReader, error) { return s.features(threads) }

func (s *source) Close() error {
	var errs []error
	for _, c := range slices.Backward(s.open) {
		errs = append(errs, c.Close())
	}
	return errors.Join(errs...)
}

func (s *source) Rows(ctx context.Context) (_ *format.RowTable, err error) {
	t := &format.RowTable{Rows: s.info.Nodes}
	if s.labels != nil {
		found, err := s.labels(ctx, t)
		if err != nil {
			return nil, err
		}
		if s.info.ClassNames = found.names; found.note != "" && !slices.Contains(s.info.Notes, found.note) {
			s.info.note(found.note)
		}
	}
	for _, r := range s.splits {
		t.NumSplits += int(r.count)
	}
	if t.NumSplits > 0 {
		t.Splits = make([]uint8, t.Rows*int64(t.NumSplits))
	}
	first := int64(0)
	for _, r := range s.splits {
		if err := r.read(ctx, t, first); err != nil {
			return nil, err
		}
		first += r.count
	}
	if s.origIDs != nil {
		t.OrigID, err = s.origIDs()
	}
	return t, err
}

func (s *source) setFeatures(path string, nodes, features int64) error {
	if features < 1 || features > format.MaxFeatures {
		return errFeatures(path, features)
	}
	if nodes > MaxNodes {
		return invalid(path, "%d nodes (at most %d fit node ids of 32 bits)", nodes, int64(MaxNodes))
	}
	s.info.Nodes, s.info.Features = nodes, int(features)
	return nil
}

func errFeatures(path string, features int64) error {
	return invalid(path, "%d features a node (want 1 to %d)", features, format.MaxFeatures)
}

// openArray opens a .npy file, which Close closes. It must hold what checkArray is told; "" is anything.
func (s *source) openArray(path, want string) (*npy.Array, error) {
	a, err := npy.Open(s.fsys, path)
	if err != nil {
		return nil, err
	}
	s.open = append(s.open, a)
	return a, checkArray(path, &a.Header, want)
}

// openMaybeRaw opens a .npy file as openArray does or, where it does not begin as one, takes it for nothing but rows of
// numbers. raw gives their type, and how many are in a row.
func (s *source) openMaybeRaw(path, want string, raw func() (npy.Type, int64, error)) (*npy.Array, error) {
	if ok, err := npy.HasHeader(s.fsys, path); ok || err != nil {
		return s.openArray(path, want)
	}
	t, columns, err := raw()
	if err != nil {
		return nil, err
	}
	file, err := s.fsys.Stat(path)
	if err != nil {
		return nil, err
	}
	rows := file.Size() / (columns * t.Size())
	if rows == 0 || rows*columns*t.Size() != file.Size() {
		return nil, invalid(path, "%d bytes without a .npy header are no %s in rows of %d (truncated?)", file.Size(), t,
			columns)
	}
	a, err := npy.OpenRaw(s.fsys, path, t, rows, columns)
	if err == nil {
		s.open = append(s.open, a)
	}
	return a, err
}

// checkArray compares an array with what is wanted, such as "integers [2,E] or [E,2]: what they mean". Letters in
// shapes stand for any size; see ofNodes for sizes that are known.
func checkArray(path string, h *npy.Header, want string) error {
	description, _, _ := strings.Cut(want, ":")
	kind, shapes, _ := strings.Cut(description, " ")
	isKind := map[string]bool{"numbers": h.Type.IsNumber(), "integers": h.Type.IsInteger(), "floats": h.Type.IsFloat(),
		"text": !h.Type.IsNumber()}[kind]
	for shape := range strings.SplitSeq(shapes, " or ") {
		sizes := strings.Split(strings.Trim(shape, "[]"), ",")
		fits := want == "" || isKind && len(sizes) == len(h.Shape)
		for i := 0; fits && i < len(sizes); i++ {
			size, err := strconv.ParseInt(sizes[i], 10, 64)
			fits = err != nil || size == h.Shape[i]
		}
		if fits {
			return nil
		}
	}
	return invalid(path, "%s array of shape %v (want %s)", h.Type, h.Shape, want)
}

// ofNodes puts the number of nodes for the letter n of a description; negative: unknown.
func ofNodes(want string, n int64) string {
	if n < 0 {
		return want
	}
	return strings.NewReplacer("[n", fmt.Sprint("[", n), ",n]", fmt.Sprint(",", n, "]")).Replace(want)
}

// asNode is the node of a row where rows are nodes.
func asNode(row int64) (node int64, ok bool) { return row, true }

// each calls body with every element of an array, in the order of the file.
func each[T npy.Number](ctx context.Context, a *npy.Stream, body func(i int64, v T) error) error {
	block := make([]T, min(edgeBlock, a.Elements()))
	for first := int64(0); first < a.Elements(); first += int64(len(block)) {
		if err := context.Cause(ctx); err != nil {
			return err
		}
		block = block[:min(int64(len(block)), a.Elements()-first)]
		if err := npy.Next(a, block); err != nil {
			return err
		}
		for i, v := range block {
			if err := body(first+int64(i), v); err != nil {
				return err
			}
		}
	}
	return nil
}

// openMember starts to read an array of an archive, which must hold what checkArray is told. The caller closes it.
func (s *source) openMember(path, name, want string) (*npy.Stream, error) {
	a, err := npy.OpenStream(s.fsys, path, name)
	if err != nil {
		return nil, err
	}
	if err := checkArray(a.Path(), &a.Header, want); err != nil {
		return nil, errors.Join(err, a.Close())
	}
	return a, nil
}

// readMember reads the first integers of an array of an archive.
func (s *source) readMember(path, name, want string, dst []int64) error {
	a, err := s.openMember(path, name, want)
	if err != nil {
		return err
	}
	defer a.Close()
	return npy.Next(a, dst)
}

// openLabelArray opens labels in a .npy file with n rows (negative: any number). nodeOf is the node of a row.
func (s *source) openLabelArray(path string, n int64, as LabelsAs, nodeOf func(row int64) (int64, bool)) error {
	a, err := s.openArray(path, "")
	if err != nil {
		return err
	}
	return s.addLabels(func() (*npy.Stream, error) { return a.Stream(), nil }, n, as, nodeOf)
}

// addLabels makes an array of n rows (negative: any number) the labels: one a row, or several. open is called for each
// reading.
func (s *source) addLabels(open func() (*npy.Stream, error), n int64, as LabelsAs,
	nodeOf func(row int64) (int64, bool)) error {
	a, err := open()
	if err != nil {
		return err
	}
	h, path := &a.Header, a.Path()
	want := "numbers [n] or [n,L]: a row for each node"
	if h.Type == npy.Text {
		want = "text [n] or [n,1]"
	}
	if err := errors.Join(checkArray(path, h, ofNodes(want, n)), a.Close()); err != nil {
		return err
	}
	columns := int64(1)
	if len(h.Shape) == 2 {
		columns = h.Shape[1]
	}
	if columns < 1 || columns > format.MaxLabelColumns {
		return invalid(path, "%d labels a node (want 1 to %d)", columns, format.MaxLabelColumns)
	}
	switch {
	case h.Type == npy.Text:
		s.info.RowBytes += 20 + h.Width // of ASCII
	case columns == 1, h.Type.IsFloat() && as != LabelsAsMulti, as == LabelsAsValues:
		s.info.RowBytes += 4 * columns
	default:
		s.info.RowBytes += columns
	}
	s.labels = func(ctx context.Context, to *format.RowTable) (labelResult, error) {
		return readLabels(as, path, columns, to, func(sink *labelSink) error {
			a, err := open()
			if err != nil {
				return err
			}
			defer a.Close()
			if !slices.Equal(a.Shape, h.Shape) || a.Type != h.Type {
				return fmt.Errorf("%s: %w", path, errChanged)
			}
			return sink.array(ctx, a, nodeOf)
		})
	}
	return nil
}

func (s *labelSink) array(ctx context.Context, a *npy.Stream, nodeOf func(row int64) (int64, bool)) error {
	if a.Type == npy.Text {
		texts, err := a.Strings()
		for row, text := range texts {
			if node, ok := nodeOf(int64(row)); ok && err == nil {
				if err = s.text(node, 0, []byte(text)); err != nil {
					err = invalid(a.Path(), "row %d: %w", row, err)
				}
			}
		}
		return err
	}
	rows, l := a.Shape[0], s.columns
	return each(ctx, a, func(i int64, v float64) error {
		row, column := i/l, i%l
		if a.Fortran {
			row, column = i%rows, i/rows
		}
		node, ok := nodeOf(row)
		if !ok {
			return nil
		}
		if err := s.number(node, column, v); err != nil {
			return fmt.Errorf("%w: %s: %w", ErrInvalid, a.Path(), err)
		}
		return nil
	})
}

func (s *source) addSplits(path string, count int64,
	read func(ctx context.Context, to *format.RowTable, first int64) error) error {
	s.splits = append(s.splits, splitReader{count, read})
	s.info.RowBytes += count
	total := int64(0)
	for _, r := range s.splits {
		total += r.count
	}
	if total > format.MaxSplits {
		return invalid(path, "%d splits (at most %d)", total, format.MaxSplits)
	}
	return nil
}

// addSplitArray appends the splits of an array [k,n] or [n] (a negative n: any number of nodes). nodeOf is the node of
// a row.
func (s *source) addSplitArray(path string, n int64, nodeOf func(row int64) (int64, bool)) error {
	a, err := s.openArray(path, ofNodes("integers [k,n] or [n]: 0 train, 1 valid, 2 test, -1 none", n))
	if err != nil {
		return err
	}
	rows, count := a.Shape[len(a.Shape)-1], int64(1)
	if len(a.Shape) == 2 {
		count = a.Shape[0]
	}
	return s.addSplits(path, count, func(ctx context.Context, to *format.RowTable, first int64) error {
		return each(ctx, a.Stream(), func(i, v int64) error {
			split, row := i/rows, i%rows
			if a.Fortran {
				split, row = i%count, i/count
			}
			if v < -1 || v > 2 {
				return invalid(a.Path(), "split %d has %s for node %d (want 0 train, 1 valid, 2 test or -1)",
					split, a.Element(i), row)
			}
			if node, ok := nodeOf(row); ok {
				to.Splits[node*int64(to.NumSplits)+first+split] = uint8(v + 1)
			}
			return nil
		})
	})
}
