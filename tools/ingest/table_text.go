package ingest

import (
	"bytes"
	"context"
	"errors"
	"io"
	"slices"
	"strings"

	"github.com/hopfeed/hopfeed/internal/vfs"
	"github.com/hopfeed/hopfeed/tools/npy"
)

// textTable is a table of text, with fields separated by commas, semicolons, tabs or spaces.
type textTable struct {
	header
	fsys     vfs.FS
	path     string
	comments string
	sep      byte           // wholeLine: a line is one field
	line     []byte         // the header, which begins each file; nil: none
	values   []columnValues // of the columns, as the first row shows
	loose    bool           // rows may have more or fewer fields, where these are not read
	ids      *numbering     // of nodes; nil: row i is node i
	id       int            // column of the ids; -1: row i is node i
}

const wholeLine = '\n'

// openPlainTable opens a table without ids, comments and header.
func openPlainTable(fsys vfs.FS, path string) (*nodeTable, error) {
	file, line, err := openTextTable(fsys, path, "")
	if err != nil {
		return nil, err
	}
	t := &textTable{fsys: fsys, path: path, id: -1, sep: separator(line, false)}
	t.header = numbered(len(t.split(nil, line)))
	n := &nodeTable{nodeColumns: nodeColumns{header: t.header, id: -1}, table: t, path: path, byRow: true}
	n.features, n.labels = n.others(), n.others()
	return n, file.Close()
}

// openTextTable opens a table, and reads its first line.
func openTextTable(fsys vfs.FS, path, comments string) (*textFile, []byte, error) {
	file, err := openText(fsys, path, comments)
	if err != nil {
		return nil, nil, err
	}
	line, err := file.next()
	if err == io.EOF {
		err = invalid(file.path, "the table has no rows")
	}
	if err != nil {
		file.Close()
	}
	return file, line, err
}

// setHeader takes a first line for the header if it is one, or else counts its fields. anyText: ids may be any text.
func (t *textTable) setHeader(line []byte, anyText bool, isHeader func(fields [][]byte) bool) {
	t.sep = separator(line, true)
	fields := t.split(nil, line)
	t.header = header{named: true}
	for _, b := range fields {
		t.names = append(t.names, string(b))
	}
	if isHeader(fields) {
		t.line = slices.Clone(line)
		return
	}
	t.sep = separator(line, anyText)
	t.header = numbered(len(t.split(nil, line)))
}

// textNodes says what a text table of nodes is opened for.
type textNodes struct {
	path    string
	columns Columns
	want    parts // taken, if the table has them
	must    parts // the table must have them
}

// openTextNodes opens a table with ids, and finds its columns. A first line that names columns is a
// header: one with a customary name, or without an id and without numbers.
func openTextNodes(fsys vfs.FS, f textNodes, ids *numbering) (*nodeTable, error) {
	file, line, err := openTextTable(fsys, f.path, "#%")
	if err != nil {
		return nil, err
	}
	defer file.Close()
	place := file.position()
	t := &textTable{fsys: fsys, path: f.path, comments: "#%", ids: ids}
	t.setHeader(line, ids.ids != nil, func(fields [][]byte) bool { return t.namesNodes(fields, f.columns, f.want) })
	if t.line != nil {
		file.skipped, file.begun = t.line, true
		if line, err = file.next(); err == io.EOF {
			return nil, invalid(f.path, "the table has a header, but no rows")
		} else if err != nil {
			return nil, err
		}
	}
	fields := t.split(nil, line)
	if len(fields) != len(t.names) {
		return nil, t.errFields(file, len(fields))
	}
	for _, b := range fields {
		isNumber := isMissing(b) || isFloat(b)
		width := len(listItems(nil, b))
		t.values = append(t.values, columnValues{!isList(b), isNumber, isList(b), "text", width})
	}
	n := &nodeTable{table: t, path: f.path}
	if n.nodeColumns, err = t.nodeColumns(t.values, f.columns, f.want); err != nil {
		return nil, badOptions("%v: %w", place, err)
	}
	t.id, n.byRow = n.id, n.id < 0
	if n.byRow && ids.ids != nil {
		return nil, badOptions("%v: --ids map needs a column of ids: name it with --%s", place, idRole.flag)
	}
	for _, p := range eachPart {
		switch {
		case !f.must.has(p.part) || len(n.ofPart(p.part)) > 0:
		case !t.named && len(t.names) == 1:
			return nil, file.errorf("one field (want an id and values)")
		default:
			return nil, badOptions("%v: no column is recognised by its name: name it with --%s (the columns are %s)",
				place, p.column, t.all())
		}
	}
	return n, nil
}

// namesNodes tells whether the first line names the columns of nodes.
func (t *textTable) namesNodes(fields [][]byte, o Columns, want parts) bool {
	asked := []string{o.ID}
	for part, columns := range map[parts][]string{labels: o.Label, splits: o.Split, features: o.Features,
		kept: columnNames(o.Node)} {
		if want.has(part) && (part != kept || o.seen == nil) {
			asked = append(asked, columns...)
		}
	}
	if slices.ContainsFunc(asked, byName) {
		return true
	}
	if t.ids.has(fields[0]) {
		return false
	}
	if o.ofType != "" && t.idOf(o.ofType+"_id", o.ofType) != "" {
		return true
	}
	return isIndex(t.names[0]) || len(t.withRoles(append(maskRoles[:], idRole, labelRole, splitRole)...)) > 0 ||
		!slices.ContainsFunc(fields, isFloat)
}

// openTextEdges opens a table of edges, with comments before them in which the Koblenz network collection tells the
// direction. It finds the columns. Without edges there is no table.
func (l *edgeList) openTextEdges(ctx context.Context, path string, o TableOptions) (_ table, c edgeColumns, err error) {
	file, err := openText(l.fsys, path, "")
	if err != nil {
		return nil, c, err
	}
	defer file.Close()
	line, err := l.readComments(file, o)
	switch {
	case err != nil:
		return nil, c, err
	case line == nil && o.Nodes == 0:
		return nil, c, invalid(path, "no edges (--nodes N makes a graph without edges)")
	case line == nil:
		if l.edges, err = l.scratch.newEdges(false, 0); err == nil {
			err = l.edges.finish(ctx)
		}
		return nil, c, err
	}
	t := &textTable{fsys: l.fsys, path: path, comments: "#%", loose: true, id: -1}
	line, place := slices.Clone(line), file.position()
	second, end := file.next() // another error than io.EOF shows when the edges are read
	t.setHeader(line, o.MapIDs, func(fields [][]byte) bool {
		return o.Header == "yes" || o.Header == "" && o.namesEdges(t.header, fields, split(nil, second, t.sep))
	})
	t.loose = t.line == nil
	if len(t.names) < 2 {
		return nil, c, invalid(place, "%.100q is not an edge (want a source and a destination)", line)
	}
	if c, err = t.edgeColumns(o.Columns); err != nil {
		hint := ""
		if t.named && o.Header == "" {
			hint = "; if the line is an edge, give --header no"
		}
		return nil, c, badOptions("%v: %w%s", place, err, hint)
	}
	if err := c.checkItems(o.Bipartite); err != nil {
		return nil, c, badOptions("%v: %w", place, err)
	}
	if t.line != nil && end == io.EOF && o.Nodes == 0 {
		return nil, c, invalid(path, "a header, but no edges (--nodes N makes a graph without edges)")
	}
	return t, c, nil
}

// readComments reads the comments in front of the edges, and the line after them, or nil at the end of the file.
func (l *edgeList) readComments(t *textFile, o TableOptions) ([]byte, error) {
	for {
		line, err := t.next()
		if errors.Is(err, io.EOF) {
			return nil, nil
		} else if err != nil {
			return nil, err
		}
		words := bytes.Fields(line)
		if len(words) > 0 && words[0][0] != '#' && words[0][0] != '%' {
			t.comments = "#%"
			return line, nil
		}
		if t.number > 1 || len(words) < 2 || string(words[0]) != "%" {
			continue
		}
		direction := map[string]Direction{"sym": Undirected, "asym": Directed, "bip": Undirected}[string(words[1])]
		if string(words[1]) == "bip" && !o.Bipartite {
			return nil, t.errorf("a bipartite graph, in which sources and destinations have ids of their own: " +
				"give --ids bipartite")
		}
		if direction != UnknownDirection {
			l.info.Direction, l.info.DirectionFrom = direction, t.path+": line 1"
		}
	}
}

// namesEdges tells whether the first line of an edge list names the columns: a flag calls a column by name, both ends
// have customary names, or the first field is that of an index; if ids are numbers, neither of the first two fields
// begins as a number; if ids may be any text, a field is no number, but is one in the next line.
func (o TableOptions) namesEdges(h header, fields, next [][]byte) bool {
	if len(fields) < 2 {
		return false
	}
	if slices.ContainsFunc([]string{o.Columns.Source, o.Columns.Destination, o.Columns.Weight}, byName) ||
		isIndex(h.names[0]) {
		return true
	}
	if len(h.withRoles(sourceRole)) > 0 && len(h.withRoles(destinationRole, itemRole)) > 0 {
		return true
	}
	for _, name := range o.Columns.endTypes {
		if name != "" && h.idOf(name+"_id", name) != "" {
			return true
		}
	}
	if !o.MapIDs {
		return !startsNumber(fields[0]) && !startsNumber(fields[1])
	}
	for i := range min(len(fields), len(next)) {
		if isFloat(next[i]) && !isFloat(fields[i]) {
			return true
		}
	}
	return false
}

// startsNumber tells whether a field begins as a number does, if perhaps a wrong one.
func startsNumber(b []byte) bool {
	return len(b) > 0 && bytes.IndexByte([]byte("+-.0123456789"), b[0]) >= 0
}

// split returns the fields of a line; an empty line is one empty field.
func (t *textTable) split(fields [][]byte, line []byte) [][]byte {
	if t.sep == wholeLine {
		return append(fields[:0], bytes.TrimSpace(line))
	}
	if fields = split(fields[:0], line, t.sep); len(fields) == 0 {
		fields = append(fields, nil)
	}
	return fields
}

func (t *textTable) errFields(file *textFile, n int) error {
	if t.ids == nil {
		return file.fieldsError("%d fields (want %d)", n, len(t.names))
	}
	return file.fieldsError("%d fields (want %d, as the first line has)", n, len(t.names))
}

func (t *textTable) rowCount() int64       { return -1 }
func (t *textTable) readBytes([]int) int64 { return 0 }

func (t *textTable) isList(column int) bool { return t.values != nil && t.values[column].list }

func (t *textTable) numbers(column int) (npy.Type, bool) { return npy.Float32, t.isList(column) }

func (t *textTable) width(column int) (int, error) {
	if t.isList(column) {
		return t.values[column].width, nil
	}
	return 1, nil
}

func (t *textTable) check(column int, as use) error {
	if as == asSplit && t.isList(column) {
		return invalid(t.path, "column %s is a list (want one split a node)", t.name(column))
	}
	return nil
}

func (t *textTable) read(columns []int) (rows, error) {
	file, err := openText(t.fsys, t.path, t.comments)
	if err != nil {
		return nil, err
	}
	file.skipped = t.line
	r := &textRows{textFile: file, columnsRead: columnsRead{header: t.header, columns: columns}, table: t, row: -1,
		last: slices.Max(columns)}
	r.isList = len(columns) == 1 && t.isList(columns[0])
	return r, nil
}

type textRows struct {
	*textFile
	columnsRead
	table         *textTable
	last          int // of columns
	isList        bool
	row           int64
	fields, items [][]byte
}

func (r *textRows) next() error {
	line, err := r.textFile.next()
	if err != nil {
		return err
	}
	r.row++
	t := r.table
	r.fields = t.split(r.fields, line)
	if n := len(r.fields); n <= r.last || !t.loose && n != len(t.names) {
		return t.errFields(r.textFile, n)
	}
	if r.isList {
		column := r.columns[0]
		if r.items = listItems(r.items[:0], r.fields[column]); len(r.items) != t.values[column].width {
			return r.errorf("column %s is a list of %d values (want %d, as in the first row)", t.name(column),
				len(r.items), t.values[column].width)
		}
	}
	return nil
}

func (r *textRows) cell(k int) *cell {
	if r.isList {
		r.value.field = r.items[k]
	} else {
		r.value.field = r.fields[r.columns[k]]
	}
	return &r.value
}

func (r *textRows) node() (int64, error) {
	t := r.table
	if t.ids == nil {
		return r.row, nil
	}
	var node uint32
	var err error
	if t.id < 0 {
		node, err = t.ids.number(uint64(r.row) + t.ids.first)
	} else {
		node, err = t.ids.node(r.fields[t.id])
	}
	return int64(node), err
}

// listItems appends the items of a list in one field: numbers between brackets, or without, separated by commas,
// semicolons, bars or spaces.
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

func isList(field []byte) bool {
	field = bytes.TrimSpace(field)
	if len(field) == 0 || isFloat(field) {
		return false
	}
	items := listItems(nil, field)
	bracketed := bytes.IndexByte([]byte("[({"), field[0]) >= 0
	return (len(items) > 1 || bracketed && len(items) == 1) &&
		!slices.ContainsFunc(items, func(b []byte) bool { return !isFloat(b) })
}

// isMissing tells whether a field stands for a missing number, as "" or NA.
func isMissing(field []byte) bool {
	names := []string{"na", "n/a", "null", "none", "<na>"}
	return len(field) == 0 || slices.Contains(names, strings.ToLower(string(field[:min(8, len(field))])))
}

func isFloat(b []byte) bool { _, ok := parseFloat(b); return ok }

// wholeNumber removes a fraction of zeros: pandas writes whole numbers so if some are missing.
func wholeNumber(b []byte) []byte {
	whole, fraction, ok := bytes.Cut(b, []byte("."))
	if ok && len(whole) > 0 && len(bytes.Trim(fraction, "0")) == 0 {
		return whole
	}
	return b
}
