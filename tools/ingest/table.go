package ingest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/hopfeed/hopfeed/format"
	"github.com/hopfeed/hopfeed/internal/vfs"
)

// table is a text file with a row of values for each node, separated by commas,
// semicolons, tabs or spaces. Where ids is nil, rows are in the order of nodes;
// else the first field of each names its node, and a first line of other names is
// a header.
type table struct {
	*textFile
	ids    *numbering
	width  int // values a row
	sep    byte
	first  []byte // the first row, once more
	row    int64  // next
	fields [][]byte
}

// openTable opens a table; isValue tells values from names.
func openTable(fsys vfs.FS, path string, ids *numbering, isValue func([]byte) bool) (*table, error) {
	t := &table{ids: ids}
	comments := ""
	if ids != nil {
		comments = "#%"
	}
	var err error
	if t.textFile, err = openText(fsys, path, comments); err != nil {
		return nil, err
	}
	for header := ids != nil; ; header = false {
		line, err := t.textFile.next()
		if err == io.EOF {
			err = fmt.Errorf("%w: %s: no rows", ErrInvalid, path)
		}
		if err != nil {
			t.Close()
			return nil, err
		}
		t.sep = separator(line, ids != nil && ids.ids != nil)
		values := t.split(line)
		if ids != nil {
			id := values[0]
			if values = values[1:]; header && !ids.has(id) && !slices.ContainsFunc(values, isValue) {
				continue
			}
		}
		if t.width = len(values); t.width == 0 {
			t.Close()
			return nil, t.errorf("want an id and values")
		}
		t.first = append([]byte{}, line...) // not nil, even if the line is empty
		return t, nil
	}
}

// tableWidth is the number of values in a row of a table.
func tableWidth(fsys vfs.FS, path string, ids *numbering, isValue func([]byte) bool) (int, error) {
	t, err := openTable(fsys, path, ids, isValue)
	if err != nil {
		return 0, err
	}
	return t.width, t.Close()
}

// split returns the fields of a line; an empty line is one empty field.
func (t *table) split(line []byte) [][]byte {
	if t.fields = split(t.fields[:0], line, t.sep); len(t.fields) == 0 {
		t.fields = append(t.fields, nil)
	}
	return t.fields
}

// next returns the next row; its values are valid until the call after this one.
// After the last row it returns io.EOF.
func (t *table) next() (node int64, values [][]byte, err error) {
	line := t.first
	if t.first = nil; line == nil {
		if line, err = t.textFile.next(); err != nil {
			return 0, nil, err
		}
	}
	values = t.split(line)
	node = t.row
	t.row++
	if t.ids != nil {
		if len(values) != t.width+1 {
			return 0, nil, t.errorf("%d fields (want an id and %d values)", len(values), t.width)
		}
		id, err := t.ids.node(values[0])
		if err != nil {
			err = t.at(err)
		}
		return int64(id), values[1:], err
	}
	if len(values) != t.width {
		return 0, nil, t.errorf("%d values (want %d)", len(values), t.width)
	}
	return node, values, nil
}

// eachRow calls body with all rows. Of tables without ids there must be rows rows.
func (t *table) eachRow(ctx context.Context, rows int64, body func(node int64, values [][]byte) error) error {
	for {
		if t.row%1024 == 0 {
			if err := context.Cause(ctx); err != nil {
				return err
			}
		}
		node, values, err := t.next()
		switch {
		case err == io.EOF && (t.ids != nil || t.row == rows):
			return nil
		case err == io.EOF, err == nil && t.ids == nil && node >= rows:
			return t.errRows(rows)
		case err != nil:
			return err
		}
		if err := body(node, values); err != nil {
			return t.at(err)
		}
	}
}

// errRows is the error of a table that ends early, or does not end.
func (t *table) errRows(nodes int64) error {
	if t.row > nodes {
		return t.errorf("more rows than %d nodes", nodes)
	}
	return t.errorf("the last of %d rows (want one for each of %d nodes)", t.row, nodes)
}

// once is eachRow for nodes that must not come twice.
func (t *table) once(ctx context.Context, rows int64, body func(node int64, values [][]byte) error) error {
	var seen bitset
	return t.eachRow(ctx, rows, func(node int64, values [][]byte) error {
		if seen.set(node) {
			return errTwice
		}
		return body(node, values)
	})
}

// tableReader reads a table of features without ids.
type tableReader struct {
	*table
	nodes int64
}

func (r *tableReader) Read(ctx context.Context, dst []float32) error {
	for ; len(dst) > 0; dst = dst[r.width:] {
		if err := context.Cause(ctx); err != nil {
			return err
		}
		_, values, err := r.next()
		if err == io.EOF {
			return r.errRows(r.nodes)
		} else if err != nil {
			return err
		}
		if err := floats(dst[:r.width], values); err != nil {
			return r.at(err)
		}
	}
	if r.row < r.nodes {
		return nil
	}
	if _, _, err := r.next(); err == nil {
		return r.errRows(r.nodes)
	} else if err != io.EOF {
		return err
	}
	return nil
}

func (r *tableReader) Place(row int64) string { return fmt.Sprintf("%s: line %d", r.path, row+1) }

// floats reads a row of features.
func floats(dst []float32, values [][]byte) error {
	for i, b := range values {
		v, ok := parseFloat(b)
		if !ok || v-v != 0 {
			return fmt.Errorf("column %d: %.100q is no finite float32", i, b)
		}
		dst[i] = v
	}
	return nil
}

func isFloat(b []byte) bool { _, ok := parseFloat(b); return ok }

// parseLabel reads a label; an empty one is unlabelled, as NaN is.
func parseLabel(b []byte) (float64, bool) {
	if len(b) == 0 {
		return math.NaN(), true
	}
	v, err := strconv.ParseFloat(string(b), 64)
	return v, err == nil || errors.Is(err, strconv.ErrRange)
}

func isLabel(b []byte) bool { _, ok := parseLabel(b); return ok }

// tableLabelBytes is what labels of a table take in memory, for one node.
func tableLabelBytes(width int) int64 {
	if width == 1 {
		width = 4
	}
	return int64(width) + 1
}

// readTableLabels reads one label a node, or several.
func readTableLabels(ctx context.Context, fsys vfs.FS, path string, ids *numbering, rows *format.RowTable) error {
	t, err := openTable(fsys, path, ids, isLabel)
	if err != nil {
		return err
	}
	defer t.Close()
	makeLabels(rows, int64(t.width))
	return t.once(ctx, rows.Rows, func(node int64, values [][]byte) error {
		for column, b := range values {
			v, ok := parseLabel(b)
			if !ok {
				return fmt.Errorf("label %.100q is no number", b)
			}
			if err := setLabel(rows, node, int64(column), v); err != nil {
				return err
			}
		}
		return nil
	})
}

// splitNames are how tables name the parts of a split.
var splitNames = map[string]uint8{
	"0": format.SplitTrain, "train": format.SplitTrain,
	"1": format.SplitValid, "valid": format.SplitValid, "val": format.SplitValid,
	"2": format.SplitTest, "test": format.SplitTest,
	"-1": format.SplitNone, "none": format.SplitNone, "": format.SplitNone,
}

func parseSplit(b []byte) (uint8, error) {
	part, ok := splitNames[string(b)]
	if !ok {
		return 0, fmt.Errorf("split %.100q (want train or 0, valid or 1, test or 2, none or -1)", b)
	}
	return part, nil
}

func isSplit(b []byte) bool { _, ok := splitNames[string(b)]; return ok }

// readTableSplits reads all splits: a column each.
func readTableSplits(ctx context.Context, fsys vfs.FS, path string, ids *numbering, rows *format.RowTable) error {
	t, err := openTable(fsys, path, ids, isSplit)
	if err != nil {
		return err
	}
	defer t.Close()
	return t.once(ctx, rows.Rows, func(node int64, values [][]byte) error {
		for k, b := range values {
			part, err := parseSplit(b)
			if err != nil {
				return err
			}
			rows.Splits[node*int64(rows.NumSplits)+int64(k)] = part
		}
		return nil
	})
}

var textEndings = []string{"csv.gz", "csv.zst", "csv", "txt.gz", "txt.zst", "txt"}

// splitFolder finds the files train, valid and test of a folder, with any ending
// of a text file: they list the nodes of one split, an id a line.
func splitFolder(fsys vfs.FS, dir string) (paths [3]string, err error) {
	entries, err := fsys.ReadDir(dir)
	if err != nil {
		return paths, err
	}
	for _, e := range entries {
		base, ending, _ := strings.Cut(e.Name(), ".")
		part, ok := splitNames[base]
		if !ok || part == format.SplitNone || e.IsDir() || !slices.Contains(textEndings, ending) {
			continue
		}
		path := &paths[part-format.SplitTrain]
		if *path != "" {
			return paths, fmt.Errorf("%w: %s: two lists of the same nodes, %s and %s", ErrInvalid, dir, filepath.Base(*path), e.Name())
		}
		*path = filepath.Join(dir, e.Name())
	}
	for i, name := range []string{"train", "valid", "test"} {
		if paths[i] == "" {
			return paths, fmt.Errorf("%w: %s: no list of the %s nodes (%s.csv, %s.csv.gz)", ErrInvalid, dir, name, name, name)
		}
	}
	return paths, nil
}

// readSplitFolder reads the lists of a folder into split number k.
func readSplitFolder(ctx context.Context, fsys vfs.FS, dir string, ids *numbering, rows *format.RowTable, k int) error {
	paths, err := splitFolder(fsys, dir)
	if err != nil {
		return err
	}
	for i, path := range paths {
		if err := readSplitList(ctx, fsys, path, ids, rows, k, format.SplitTrain+uint8(i)); err != nil {
			return err
		}
	}
	return nil
}

func readSplitList(ctx context.Context, fsys vfs.FS, path string, ids *numbering, rows *format.RowTable, k int, part uint8) error {
	t, err := openText(fsys, path, "#%")
	if err != nil {
		return err
	}
	defer t.Close()
	for {
		if err := context.Cause(ctx); err != nil {
			return err
		}
		line, err := t.next()
		if errors.Is(err, io.EOF) {
			return nil
		} else if err != nil {
			return err
		}
		node, err := ids.node(bytes.TrimSpace(line))
		if err != nil {
			return t.at(err)
		}
		at := int64(node)*int64(rows.NumSplits) + int64(k)
		if rows.Splits[at] != format.SplitNone {
			return t.errorf("%s is listed twice", ids.name(int64(node)))
		}
		rows.Splits[at] = part
	}
}
