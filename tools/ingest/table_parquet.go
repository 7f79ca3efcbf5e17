package ingest

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"

	"github.com/hopfeed/hopfeed/internal/machine"
	"github.com/hopfeed/hopfeed/internal/progress"
	"github.com/hopfeed/hopfeed/internal/vfs"
	"github.com/hopfeed/hopfeed/tools/npy"
	"github.com/hopfeed/hopfeed/tools/parquet"
)

// parquetTable is a Parquet file or a folder of them.
type parquetTable struct {
	*parquet.Table
	header
	columns []*parquet.Column
	mapped  bool // ids may be text
}

// parquetBlock is about how many cells are read in one go.
const parquetBlock = 1 << 12

// openParquetTable opens a table. Its header has all columns but the fields of structures that no flag names.
func openParquetTable(fsys vfs.FS, path string, memory int64, o TableOptions) (*parquetTable, error) {
	file, err := parquet.Open(fsys, path, memory)
	if err != nil {
		return nil, err
	}
	t := &parquetTable{Table: file, header: header{named: true}, mapped: o.MapIDs}
	f := o.Columns
	asked := slices.Concat([]string{f.Source, f.Destination, f.Weight, f.ID}, f.Label, f.Split, f.Features,
		columnNames(f.Edge), columnNames(f.Node))
	for i := range file.Columns {
		if c := &file.Columns[i]; !c.Field || slices.Contains(asked, c.Name) {
			t.names, t.columns = append(t.names, c.Name), append(t.columns, c)
		}
	}
	return t, nil
}

// openParquetEdges opens the table of edges, and that of nodes if there is one, and finds the columns of edges.
func (l *edgeList) openParquetEdges(ctx context.Context, path string, o TableOptions) (table, edgeColumns, error) {
	// A table has memory for three columns that are read side by side.
	memory := l.scratch.MemoryBytes * 3 / int64(3+len(o.Columns.Edge))
	t, err := openParquetTable(l.fsys, path, memory, o)
	if err == nil && o.Table != "" {
		err = l.openParquetNodes(ctx, o.Table, o)
	}
	if err != nil {
		return nil, edgeColumns{}, err
	}
	c, err := t.edgeColumns(o.Columns)
	if err == nil {
		err = c.checkItems(o.Bipartite)
	}
	if err != nil {
		err = badOptions("%s: %w", path, err)
	}
	return t, c, err
}

func (t *parquetTable) rowCount() int64 { return t.Rows }

func (t *parquetTable) readBytes(columns []int) int64 {
	bytes := t.Bytes()
	for _, i := range columns {
		bytes += t.ReadBytes(t.columns[i])
	}
	return bytes
}

// chooseNodes finds the columns of a table of nodes.
func (t *parquetTable) chooseNodes(o Columns) (*nodeTable, error) {
	var values []columnValues
	for _, c := range t.columns {
		isNumber := c.Kind == parquet.Integer || c.Kind == parquet.Float || c.Kind == parquet.Bool
		values = append(values, columnValues{
			id:     !c.List && (c.Kind == parquet.Integer || c.Kind == parquet.Text) && !c.Key,
			number: isNumber && !c.List && !c.Key, // keys of folders are no features
			list:   isNumber && c.List,
			what:   c.Type,
		})
	}
	n := &nodeTable{table: t, path: t.Path, byRow: true, columnwise: true}
	var err error
	if n.nodeColumns, err = t.nodeColumns(values, o, allParts); err != nil {
		return nil, badOptions("%s: %w", t.Path, err)
	}
	switch {
	case n.id < 0 && t.Keyed():
		err = badOptions("%s: its rows are in the order of its key=value folders, so a column must hold the ids "+
			"of the nodes: name it with --%s", t.Path, idRole.flag)
	case n.id < 0 && t.mapped:
		err = badOptions("%s: --ids map needs a column of ids: name it with --%s", t.Path, idRole.flag)
	case t.Rows > MaxNodes:
		err = invalid(t.Path, "%d nodes (at most %d fit node ids of 32 bits)", t.Rows, int64(MaxNodes))
	}
	return n, err
}

func (t *parquetTable) check(column int, as use) error {
	c, want := t.columns[column], ""
	number := !c.List && (c.Kind == parquet.Integer || c.Kind == parquet.Float)
	text := !c.List && c.Kind == parquet.Text
	switch {
	case as == asID && !t.mapped && !number:
		want = "whole numbers; --ids map takes text too"
	case as == asID && !number && !text:
		want = "whole numbers or text"
	case as == asWeight && !number:
		want = "numbers"
	case as == asNumbers && c.Kind != parquet.Integer && c.Kind != parquet.Float:
		want = "numbers, or lists of numbers"
	case as == asSplit && (c.List || c.Kind == parquet.Other):
		want = "integers, truth values or text"
	case as == asOneLabel && c.List:
		return badOptions("%s: column %q is a list, which holds all labels: name it alone with --%s", t.Path,
			c.Name, labelRole.flag)
	case as >= asLabel && as != asSplit && (c.Kind == parquet.Other || c.List && c.Kind == parquet.Text):
		want = "numbers or text, or lists of numbers"
	default:
		return nil
	}
	return invalid(t.Path, "column %q is %s (want %s)", c.Name, c.Type, want)
}

func (t *parquetTable) numbers(column int) (npy.Type, bool) {
	c := t.columns[column]
	return c.NumberType(), c.List
}

func (t *parquetTable) width(column int) (int, error) {
	c := t.columns[column]
	if !c.List {
		return 1, nil
	}
	r, err := t.Read(c)
	if err != nil {
		return 0, err
	}
	defer r.Close()
	for n := 0; ; {
		cells, err := r.Next(parquetBlock)
		if err == io.EOF {
			return max(1, n), nil
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

func (t *parquetTable) read(columns []int) (_ rows, err error) {
	r := &parquetRows{columnsRead: columnsRead{header: t.header, columns: columns}, table: t,
		cells: make([]*parquet.Cells, len(columns)), row: -1}
	if r.stride, err = t.width(columns[0]); err != nil {
		return nil, err
	}
	for _, i := range columns {
		reader, err := t.Read(t.columns[i])
		if err != nil {
			return nil, errors.Join(err, r.Close())
		}
		r.readers = append(r.readers, reader)
	}
	return r, nil
}

// parquetRows reads rows of a Parquet table, a block at a time.
type parquetRows struct {
	columnsRead
	table   *parquetTable
	readers []*parquet.Reader
	cells   []*parquet.Cells // of the block, for each column
	stride  int              // cells of a row: more than 1 in a list
	at      int              // first cell of the row
	row     int64
}

func (r *parquetRows) next() error {
	r.row++
	if r.at += r.stride; r.cells[0] == nil || r.at >= r.cells[0].N {
		r.at = 0
		for i, reader := range r.readers {
			cells, err := reader.Next(r.stride * max(1, parquetBlock/r.stride))
			if err != nil && (err != io.EOF || i == 0) {
				return err
			}
			if r.cells[i] = cells; err != nil || cells.N != r.cells[0].N {
				return invalid(r.table.Path, "columns %q and %q have different lengths",
					r.names[r.columns[0]], r.names[r.columns[i]])
			}
		}
	}
	if r.cells[0].Starts == nil {
		return nil
	}
	return r.checkList()
}

// checkList compares the length of a list with that of the first row.
func (r *parquetRows) checkList() error {
	c := r.cells[0]
	bad := min(r.at+r.stride, c.N) // the first cell that should be within the list, and is not
	for k := range bad - r.at {
		if c.Starts[r.at+k] != (k == 0) {
			bad = r.at + k
			break
		}
	}
	switch {
	case bad == r.at+r.stride:
		return nil
	case bad == r.at: // the list before goes on
		r.row--
	case c.Null[r.at]:
		return atRow(r, fmt.Errorf("%s: %w", r.place(0), errNull))
	}
	return atRow(r, fmt.Errorf("%s is not a list of %d values, as in row 0", r.place(0), r.stride))
}

func (r *parquetRows) cell(k int) *cell {
	if r.value.cells, r.value.i = r.cells[0], r.at+k; len(r.columns) > 1 {
		r.value.cells, r.value.i = r.cells[k], r.at
	}
	return &r.value
}

func (r *parquetRows) node() (int64, error) { return r.row, nil }
func (r *parquetRows) position() position   { return position{table: r.table.Table, row: r.row} }

func (r *parquetRows) Close() error {
	var errs []error
	for _, reader := range r.readers {
		errs = append(errs, reader.Close())
	}
	return errors.Join(errs...)
}

// openParquetNodes opens the table of nodes, and numbers the nodes by its rows.
func (l *edgeList) openParquetNodes(ctx context.Context, path string, o TableOptions) error {
	t, err := openParquetTable(l.fsys, path, l.scratch.MemoryBytes, o)
	if err != nil {
		return err
	}
	l.info.HeldBytes += t.Bytes()
	n, err := t.chooseNodes(l.files.Columns)
	if err != nil {
		return err
	}
	for _, p := range eachPart {
		if n.ofPart(p.part) != nil && l.files.file(p.part) != "" {
			return badOptions("%s has %s of its own: leave out --%s", path, p.file, p.file)
		}
	}
	l.noteNodes(n, true)
	l.tables[path] = n
	if n.id >= 0 {
		if err := t.check(n.id, asID); err != nil {
			return err
		}
		if err := n.each(ctx, []int{n.id}, t.Rows, func(row int64, r rows) error {
			if err := l.rowID(row, r); err != nil {
				return fmt.Errorf("%s: %w", t.place(n.id), err)
			}
			return nil
		}); err != nil {
			return err
		}
	}
	l.ids.nodes, l.ids.fixed = t.Rows, true
	for _, i := range slices.Concat(n.splits, n.labels) { // which are read one after another
		l.info.RowReadBytes = max(l.info.RowReadBytes, t.ReadBytes(t.columns[i]))
	}
	return nil
}

// rowID numbers the node of a row by its id, or else compares the id with the number of the row.
func (l *edgeList) rowID(row int64, r rows) error {
	cell := r.cell(0)
	node, err := l.ids.ofCell(cell, "")
	if err != nil || int64(node) == row {
		return err
	}
	id, _ := cell.id(nil)
	if l.ids.ids != nil {
		return fmt.Errorf("id %.100q is there twice", id)
	}
	return fmt.Errorf("id %s (want %d, as rows must be in the order of ids; --ids map takes any order)", id, row)
}

func (t *parquetTable) openFeatures(ctx context.Context, l *edgeList, columns []int, width int) error {
	if !t.columns[columns[0]].List {
		return t.copyColumns(ctx, l, columns)
	}
	l.info.FeatureBytes = t.ReadBytes(t.columns[columns[0]])
	l.features = func(int) (FeatureReader, error) {
		r, err := t.read(columns)
		return &rowReader{rows: r, width: width, nodes: t.Rows, at: t.Place}, err
	}
	return nil
}

// copyColumns copies feature columns to a scratch file, one after another, a row group at a time: side by side, each
// would need pages of its own in memory.
func (t *parquetTable) copyColumns(ctx context.Context, l *edgeList, columns []int) error {
	bytes := 4 * t.Rows * int64(len(columns))
	if err := machine.CheckSpace(l.fsys, l.scratch.Dir(), bytes); err != nil {
		return err
	}
	task := l.scratch.Progress.Start("read features", bytes, progress.Bytes)
	defer task.Done()
	h := npy.Header{Fortran: true, Shape: []int64{t.Rows, int64(len(columns))}}
	return l.copyFeatures(t.Place, h, func(m *scratchMatrix) error { return t.copyGroups(ctx, m, columns, task) })
}

// copyGroups writes the feature columns, in the order in which the files have them.
func (t *parquetTable) copyGroups(ctx context.Context, m *scratchMatrix, columns []int, task progress.Task) error {
	r, err := t.Read(t.columns[columns[0]])
	if err != nil {
		return err
	}
	defer r.Close()
	values := make([]float32, parquetBlock)
	for g, group := range t.Groups() {
		for k, column := range columns {
			if err := errors.Join(context.Cause(ctx), r.Restart(t.columns[column], g, g+1)); err != nil {
				return err
			}
			for row := group.First; ; {
				cells, err := r.Next(parquetBlock)
				if err == io.EOF {
					break
				} else if err != nil {
					return err
				}
				for i := range cells.N {
					if values[i] = float32(cells.Number(i)); !cells.Null[i] && values[i]-values[i] == 0 {
						continue
					}
					bad := errNull
					if !cells.Null[i] {
						bad = fmt.Errorf("%v %s", cells.Number(i), notFinite)
					}
					return fmt.Errorf("%w: %s, %s: %w", ErrInvalid, t.Place(row+int64(i)), t.place(column), bad)
				}
				if err := m.put(row, int64(k), values[:cells.N]); err != nil {
					return err
				}
				row += int64(cells.N)
				task.Add(4 * int64(cells.N))
			}
		}
	}
	return nil
}
