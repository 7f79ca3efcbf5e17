package ingest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"slices"
	"strings"

	"github.com/hopfeed/hopfeed/format"
	"github.com/hopfeed/hopfeed/internal/vfs"
)

// table is a text table with a row of values for each node, separated by commas,
// semicolons, tabs or spaces.
type table struct {
	*textFile
	nodeColumns
	ids    *numbering     // nil: rows are in the order of nodes, and no column is an id
	values []columnValues // of the columns, as the first row shows
	sep    byte
	width  int    // values a row, of the columns that pick has chosen
	picks  []int  // these
	isList bool   // the one of them is a list
	first  []byte // the first row, once more
	row    int64  // next
	fields [][]byte
	picked [][]byte
}

// plainWidth is the number of values in a row of a table without ids and header.
func plainWidth(fsys vfs.FS, path string) (int, error) {
	t, err := openPlainTable(fsys, path)
	if err != nil {
		return 0, err
	}
	return t.width, t.Close()
}

// nodeTable is a text table of nodes with ids.
type nodeTable struct {
	path    string
	columns Columns
	want    wanted // what is taken from it, if it is there
	must    wanted // what has to be there
}

// openPlainTable opens a table without ids and header.
func openPlainTable(fsys vfs.FS, path string) (*table, error) {
	t := &table{nodeColumns: nodeColumns{id: -1}}
	var err error
	if t.textFile, err = openText(fsys, path, ""); err != nil {
		return nil, err
	}
	line, err := t.firstLine()
	if err != nil {
		return nil, err
	}
	t.sep = separator(line, false)
	t.header = numbered(len(t.split(line)))
	t.setFirst(line)
	t.pick(t.others())
	return t, nil
}

// openNodeTable opens a table with ids, and decides which of its columns is what. A
// first line that names columns is a header: one with the customary name of one, or
// without an id and without numbers.
func openNodeTable(fsys vfs.FS, f nodeTable, ids *numbering) (_ *table, err error) {
	t := &table{ids: ids}
	if t.textFile, err = openTextParts(fsys, f.path, "#%"); err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			t.Close()
		}
	}()
	line, err := t.firstLine()
	if err != nil {
		return nil, err
	}
	place := fmt.Sprintf("%s: line %d", t.path, t.number)
	t.sep = separator(line, true)
	fields := t.split(line)
	h := headerOf(fields)
	if t.isHeader(h, fields, f.columns, f.want) {
		t.setHeader(line)
		if line, err = t.textFile.next(); err == io.EOF {
			return nil, fmt.Errorf("%w: %s: the table has a header, but no rows", ErrInvalid, f.path)
		} else if err != nil {
			return nil, err
		}
	} else {
		t.sep = separator(line, ids.ids != nil)
		h = numbered(len(t.split(line)))
	}
	t.header = h
	if fields = t.split(line); len(fields) != len(h.names) {
		return nil, t.errFields(len(fields))
	}
	for _, b := range fields {
		isNumber := isMissing(b) || isFloat(b)
		t.values = append(t.values, columnValues{id: !isList(b), number: isNumber, list: isList(b), what: "text"})
	}
	t.setFirst(line)
	if t.nodeColumns, err = h.nodeColumns(t.values, f.columns, f.want); err != nil {
		return nil, fmt.Errorf("%w: %s: %w", ErrOptions, place, err)
	}
	if t.id < 0 && ids.ids != nil {
		return nil, fmt.Errorf("%w: %s: --ids map needs a column of ids: name it with --%s", ErrOptions, place, idRole.flag)
	}
	for _, r := range []struct {
		must  bool
		found int
		flag  string
	}{
		{f.must.features, len(t.features), "feature-columns"},
		{f.must.labels, len(t.labels), labelRole.flag},
		{f.must.splits, len(t.splitColumns()), splitRole.flag},
	} {
		if r.must && r.found == 0 {
			if !h.named && len(h.names) == 1 {
				return nil, t.errorf("one field (want an id and values)")
			}
			return nil, fmt.Errorf("%w: %s: no column is recognised by its name: name it with --%s (the columns are %s)", ErrOptions, place, r.flag, h.all())
		}
	}
	return t, nil
}

// headerOf is the header that fields are, if they are one.
func headerOf(fields [][]byte) header {
	h := header{named: true}
	for _, b := range fields {
		h.names = append(h.names, string(b))
	}
	return h
}

// isHeader tells whether the first line names the columns.
func (t *table) isHeader(h header, fields [][]byte, o Columns, want wanted) bool {
	asked := []string{o.ID}
	for _, role := range []struct {
		want    bool
		columns []string
	}{{want.labels, o.Label}, {want.splits, o.Split}, {want.features, o.Features}} {
		if role.want {
			asked = append(asked, role.columns...)
		}
	}
	if slices.ContainsFunc(asked, byName) {
		return true
	}
	if t.ids.has(fields[0]) {
		return false
	}
	return isIndex(h.names[0]) || len(h.withRoles(append(maskRoles[:], idRole, labelRole, splitRole)...)) > 0 || !slices.ContainsFunc(fields, isFloat)
}

// firstLine is the first line. Where it fails, the file is closed.
func (t *table) firstLine() ([]byte, error) {
	line, err := t.textFile.next()
	if err == io.EOF {
		err = fmt.Errorf("%w: %s: the table has no rows", ErrInvalid, t.path)
	}
	if err != nil {
		t.Close()
	}
	return line, err
}

func (t *table) setFirst(line []byte) {
	t.first = append([]byte{}, line...) // not nil, even if the line is empty
}

// pick makes next return the values of some columns: all of them single values, or
// one that is a list.
func (t *table) pick(columns []int) {
	t.picks, t.width = columns, len(columns)
	if t.isList = len(columns) == 1 && t.values != nil && t.values[columns[0]].list; t.isList {
		t.width = len(listItems(nil, t.split(t.first)[columns[0]]))
	}
}

// splitColumns are the columns of splits, or the masks of one.
func (c *nodeColumns) splitColumns() []int {
	if c.hasMasks() {
		return slices.DeleteFunc(slices.Clone(c.masks[:]), func(i int) bool { return i < 0 })
	}
	return c.splits
}

// numSplits is how many splits there are.
func (c *nodeColumns) numSplits() int {
	if c.hasMasks() {
		return 1
	}
	return len(c.splits)
}

// split returns the fields of a line; an empty line is one empty field.
func (t *table) split(line []byte) [][]byte {
	if t.fields = split(t.fields[:0], line, t.sep); len(t.fields) == 0 {
		t.fields = append(t.fields, nil)
	}
	return t.fields
}

// listItems appends the items of a list in one field: numbers between brackets, or
// without, separated by commas, semicolons, bars or spaces.
func listItems(items [][]byte, field []byte) [][]byte {
	field = bytes.TrimSpace(field)
	if n := len(field); n >= 2 && strings.Contains("[] () {}", string([]byte{field[0], field[n-1]})) {
		field = bytes.TrimSpace(field[1 : n-1])
	}
	sep := byte(' ')
	if at := bytes.IndexAny(field, ",;|"); at >= 0 {
		sep = field[at]
	}
	return split(items, field, sep)
}

// isList tells whether a field is a list of numbers.
func isList(field []byte) bool {
	field = bytes.TrimSpace(field)
	if len(field) == 0 || isFloat(field) {
		return false
	}
	items := listItems(nil, field)
	bracketed := bytes.IndexByte([]byte("[({"), field[0]) >= 0
	return (len(items) > 1 || bracketed && len(items) == 1) && !slices.ContainsFunc(items, func(b []byte) bool { return !isFloat(b) })
}

// isMissing tells whether a field is what tables have for a number that is not there.
func isMissing(field []byte) bool {
	return len(field) == 0 || slices.Contains([]string{"na", "n/a", "null", "none", "<na>"}, strings.ToLower(string(field[:min(8, len(field))])))
}

func (t *table) errFields(n int) error {
	if t.ids == nil {
		return t.fieldsError("%d values (want %d)", n, len(t.header.names))
	}
	return t.fieldsError("%d fields (want %d, as the first line has)", n, len(t.header.names))
}

// next returns the next row: what pick has chosen of it. Values are valid until the
// call after this one. After the last row it returns io.EOF.
func (t *table) next() (node int64, values [][]byte, err error) {
	line := t.first
	if t.first = nil; line == nil {
		if line, err = t.textFile.next(); err != nil {
			return 0, nil, err
		}
	}
	fields := t.split(line)
	if len(fields) != len(t.header.names) {
		return 0, nil, t.errFields(len(fields))
	}
	node = t.row
	t.row++
	t.picked = t.picked[:0]
	if t.isList {
		if t.picked = listItems(t.picked, fields[t.picks[0]]); len(t.picked) != t.width {
			return 0, nil, t.errorf("column %s is a list of %d values (want %d, as in the first row)", t.name(t.picks[0]), len(t.picked), t.width)
		}
	} else {
		for _, i := range t.picks {
			t.picked = append(t.picked, fields[i])
		}
	}
	switch {
	case t.ids == nil:
	case t.id < 0:
		err = t.ids.row(node)
	default:
		var id uint32
		id, err = t.ids.node(fields[t.id])
		node = int64(id)
	}
	if err != nil {
		err = t.atLine(err)
	}
	return node, t.picked, err
}

// byRow tells that rows are in the order of nodes.
func (t *table) byRow() bool { return t.ids == nil || t.id < 0 }

// eachRow calls body with all rows. Of tables without ids there must be rows rows,
// unless rows is negative.
func (t *table) eachRow(ctx context.Context, rows int64, body func(node int64, values [][]byte) error) error {
	for {
		if t.row%1024 == 0 {
			if err := context.Cause(ctx); err != nil {
				return err
			}
		}
		node, values, err := t.next()
		switch counted := t.byRow() && rows >= 0; {
		case err == io.EOF && (!counted || t.row == rows):
			return nil
		case err == io.EOF, err == nil && counted && node >= rows:
			return t.errRows(rows)
		case err != nil:
			return err
		}
		if err := body(node, values); err != nil {
			return t.atLine(err)
		}
	}
}

// errRows is the error of a table that ends early, or does not end.
func (t *table) errRows(nodes int64) error {
	if t.row > nodes {
		return t.errorf("the table has more rows than the %d nodes of the graph", nodes)
	}
	return t.errorf("the table ends after %d rows (want one for each of %d nodes)", t.row, nodes)
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
		if err := r.floats(dst[:r.width], values); err != nil {
			return r.atLine(err)
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
func (t *table) floats(dst []float32, values [][]byte) error {
	for i, b := range values {
		v, ok := parseFloat(b)
		if ok && v-v == 0 {
			dst[i] = v
			continue
		}
		column := fmt.Sprintf("column %d", i)
		if t.named && !t.isList {
			column = "column " + t.name(t.picks[i])
		}
		return fmt.Errorf("%s: %.100q %s", column, b, notFinite)
	}
	return nil
}

func isFloat(b []byte) bool { _, ok := parseFloat(b); return ok }

// tableLabelBytes is what labels of a table take in memory, for one node.
func tableLabelBytes(as LabelsAs, width int) int64 {
	if as != LabelsAsMulti {
		width *= 4
	}
	return int64(width) + 1
}

// readLabels reads the labels, which pick has chosen.
func (t *table) readLabels(ctx context.Context, sink *labelSink) error {
	return t.once(ctx, sink.rows.Rows, func(node int64, values [][]byte) error {
		for column, b := range values {
			if err := sink.text(node, int64(column), b); err != nil {
				return err
			}
		}
		return nil
	})
}

// splitNames are how tables name the parts of a split, in lower case.
var splitNames = map[string]uint8{
	"0": format.SplitTrain, "train": format.SplitTrain, "training": format.SplitTrain,
	"1": format.SplitValid, "valid": format.SplitValid, "val": format.SplitValid, "validation": format.SplitValid,
	"2": format.SplitTest, "test": format.SplitTest, "testing": format.SplitTest,
	"-1": format.SplitNone, "none": format.SplitNone, "": format.SplitNone, "nan": format.SplitNone,
}

func parseSplit(b []byte) (uint8, error) {
	part, ok := splitNames[strings.ToLower(string(wholeNumber(b)))]
	if !ok {
		return 0, fmt.Errorf("split %.100q (want train or 0, valid or 1, test or 2, none or -1)", b)
	}
	return part, nil
}

// wholeNumber takes the fraction of a number away that is 0: pandas writes whole
// numbers so where some are missing.
func wholeNumber(b []byte) []byte {
	whole, fraction, ok := bytes.Cut(b, []byte("."))
	if ok && len(whole) > 0 && len(bytes.Trim(fraction, "0")) == 0 {
		return whole
	}
	return b
}

// parseTruth reads a value of a mask; one that is missing is false.
func parseTruth(b []byte) (bool, error) {
	switch strings.ToLower(string(wholeNumber(b))) {
	case "1", "true", "t", "yes":
		return true, nil
	case "0", "false", "f", "no", "", "nan":
		return false, nil
	}
	return false, fmt.Errorf("mask %.100q (want true or 1, false or 0)", b)
}

// setMask puts a node into a part of a split by a mask.
func setMask(rows *format.RowTable, node int64, part uint8) error {
	if rows.Splits[node] != format.SplitNone {
		return errTwoParts
	}
	rows.Splits[node] = part
	return nil
}

// readSplits reads all splits: a column each, or the masks of one.
func (t *table) readSplits(ctx context.Context, rows *format.RowTable) error {
	var parts []uint8 // of masks
	for i, column := range t.masks {
		if column >= 0 {
			parts = append(parts, format.SplitTrain+uint8(i))
		}
	}
	want := rows.NumSplits
	if parts != nil {
		want = len(parts)
	}
	return t.once(ctx, rows.Rows, func(node int64, values [][]byte) error {
		if len(values) != want {
			return fmt.Errorf("%d values of splits (want %d: a field is one of them, not a list)", len(values), want)
		}
		for k, b := range values {
			if parts != nil {
				in, err := parseTruth(b)
				if err == nil && in {
					err = setMask(rows, node, parts[k])
				}
				if err != nil {
					return err
				}
				continue
			}
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
			return paths, fmt.Errorf("%w: %s: both %s and %s list the same nodes: remove one", ErrInvalid, dir, filepath.Base(*path), e.Name())
		}
		*path = filepath.Join(dir, e.Name())
	}
	for i, name := range []string{"train", "valid", "test"} {
		if paths[i] == "" {
			return paths, fmt.Errorf("%w: %s: no list of the %s nodes (want %s.csv or %s.csv.gz)", ErrInvalid, dir, name, name, name)
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
			return t.atLine(err)
		}
		at := int64(node)*int64(rows.NumSplits) + int64(k)
		if rows.Splits[at] != format.SplitNone {
			return t.errorf("%s is listed twice", ids.name(int64(node)))
		}
		rows.Splits[at] = part
	}
}
