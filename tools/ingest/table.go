package ingest

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"strconv"
	"strings"

	"github.com/hopfeed/hopfeed/format"
	"github.com/hopfeed/hopfeed/internal/machine"
	"github.com/hopfeed/hopfeed/internal/vfs"
	"github.com/hopfeed/hopfeed/tools/npy"
	"github.com/hopfeed/hopfeed/tools/parquet"
)

// table is rows of values under columns: text (openText...) or Parquet (openParquetTable).
type table interface {
	// read starts to read columns side by side: single values, or one column that is a list.
	read(columns []int) (rows, error)
	// width is the number of values that a row has in a column, as the first row shows.
	width(column int) (int, error)
	// numbers is the type that the numbers of a column are kept in, and whether each of its values is a list of them.
	numbers(column int) (kind npy.Type, isList bool)
	// check refuses a column whose type cannot be what it is taken for.
	check(column int, as use) error
	rowCount() int64               // negative: unknown
	readBytes(columns []int) int64 // that the table takes in memory, and reading these columns side by side
}

// use is the meaning of a column.
type use uint8

const (
	asID use = iota
	asWeight
	asNumbers // or lists of them
	asLabel
	asOneLabel // of several
	asSplit
)

// rows reads columns of a table row after row.
type rows interface {
	next() error // io.EOF after the last row
	// cell is value k of the row, valid until the next call: of column k, or item k of a list.
	cell(k int) *cell
	place(k int) string   // names the column of cell k, for errors
	node() (int64, error) // of the row
	position() position
	Close() error
}

func floats(r rows, dst []float32) (err error) {
	for k := range dst {
		if dst[k], err = r.cell(k).float(); err != nil {
			return fmt.Errorf("%s: %w", r.place(k), err)
		}
	}
	return nil
}

type columnsRead struct {
	header
	columns []int
	value   cell
}

func (c *columnsRead) place(k int) string { return c.header.place(c.columns[min(k, len(c.columns)-1)]) }

// position is the place of a row, for messages.
type position struct {
	path  string // of a text file
	line  int64
	table *parquet.Table // nil: text
	row   int64
}

func (p position) String() string {
	if p.table != nil {
		return p.table.Place(p.row)
	}
	return fmt.Sprintf("%s: line %d", p.path, p.line)
}

// atRow adds the position of the row to an error about its content.
func atRow(r rows, err error) error { return atPlace(r.position(), err) }

// atPlace adds a place to an error about what the input says. Errors that are not about the input stay as they are.
func atPlace(place any, err error) error {
	if errors.Is(err, machine.ErrDoesNotFit) || vfs.Failed(err) {
		return err
	}
	return invalid(place, "%w", err)
}

// cell is a value of a table: a field of text, or value i of cells.
type cell struct {
	field []byte
	cells *parquet.Cells
	i     int
}

func (c *cell) isNull() bool { return c.cells != nil && c.cells.Null[c.i] }

// number is the value of a column that holds numbers; a null is NaN.
func (c *cell) number() (v float64, isNumber bool) {
	if c.cells == nil || c.i >= len(c.cells.Ints) && c.i >= len(c.cells.Floats) {
		return 0, false
	}
	if c.isNull() {
		return math.NaN(), true
	}
	return c.cells.Number(c.i), true
}

// text is the value as text, which may be written into buf; a null is empty.
func (c *cell) text(buf []byte) []byte {
	if c.cells == nil {
		return c.field
	}
	if c.isNull() {
		return nil
	}
	return c.cells.Text(c.i, buf)
}

var errNull = errors.New("it is null (want a value)")

// id is the value as an id, which may be written into buf. Floats have no fraction: pandas writes ids as floats if some
// are missing.
func (c *cell) id(buf []byte) ([]byte, error) {
	switch {
	case c.cells == nil:
		return c.field, nil
	case c.isNull():
		return nil, errNull
	case c.i >= len(c.cells.Floats):
		return c.cells.Text(c.i, buf), nil
	}
	v := c.cells.Floats[c.i]
	if v != math.Trunc(v) || math.Abs(v) >= 1<<53 {
		return nil, fmt.Errorf("id %v is not a whole number", v)
	}
	return strconv.AppendInt(buf[:0], int64(v), 10), nil
}

// float is the value as a feature; in Parquet it may be infinite.
func (c *cell) float() (float32, error) {
	switch {
	case c.cells == nil:
		if v, ok := parseFloat(c.field); ok && v-v == 0 {
			return v, nil
		}
		return 0, fmt.Errorf("%.100q %s", c.field, notFinite)
	case c.isNull():
		return 0, errNull
	}
	return float32(c.cells.Number(c.i)), nil
}

// weight is the value as the weight of an edge.
func (c *cell) weight() (float32, error) {
	v, isNumber := c.number()
	switch w := float32(v); {
	case !isNumber:
		return parseWeight(c.field)
	case c.isNull():
		return 0, errNull
	case !(w >= 0) || math.IsInf(float64(w), 0):
		return 0, fmt.Errorf("weight %v (want finite float32, not negative)", v)
	default:
		return w, nil
	}
}

type nodeTable struct {
	nodeColumns
	table
	path       string
	byRow      bool // row i is node i
	partial    bool // columns that the graph keeps may lack nodes
	columnwise bool // columns are read one after another, which takes less memory
}

// values is the number of values a node in some columns.
func (t *nodeTable) values(columns []int) (int, error) {
	if len(columns) == 1 {
		return t.width(columns[0])
	}
	return len(columns), nil
}

// each calls body with every row, which it must read once a node. Without ids the table must have nodes rows, unless
// nodes is negative.
func (t *nodeTable) each(ctx context.Context, columns []int, nodes int64, body func(node int64, r rows) error) error {
	r, err := t.read(columns)
	if err != nil {
		return err
	}
	defer r.Close()
	want := int64(-1)
	if t.byRow {
		want = nodes
	}
	var seen bitset
	for row := int64(0); ; row++ {
		if row%1024 == 0 && ctx.Err() != nil {
			return context.Cause(ctx)
		}
		if err := nextRow(r, row, want); err == io.EOF {
			return nil
		} else if err != nil {
			return err
		}
		node, err := r.node()
		if err == nil && !t.byRow && seen.set(node) {
			err = errTwice
		}
		if err == nil {
			err = body(node, r)
		}
		if err != nil {
			return atRow(r, err)
		}
	}
}

// eachFeatures calls body with the features of every row.
func (t *nodeTable) eachFeatures(ctx context.Context, width int, body func(node int64, values []float32) error) error {
	values := make([]float32, width)
	return t.each(ctx, t.features, -1, func(node int64, r rows) error {
		if err := floats(r, values); err != nil {
			return err
		}
		return body(node, values)
	})
}

// nextRow goes to a row of a table that must have nodes rows (negative: any number); behind the last it returns io.EOF.
func nextRow(r rows, row, nodes int64) error {
	err := r.next()
	switch {
	case nodes >= 0 && err == nil && row >= nodes:
		return atRow(r, fmt.Errorf("the table has more rows than the %d nodes of the graph", nodes))
	case nodes >= 0 && err == io.EOF && row != nodes:
		return atRow(r, fmt.Errorf("the table ends after %d rows (want one for each of %d nodes)", row, nodes))
	}
	return err
}

// eachValue calls body with value k of every node, in some columns.
func (t *nodeTable) eachValue(ctx context.Context, columns []int, nodes int64,
	body func(node int64, k int, c *cell) error) error {
	n, err := t.values(columns)
	if err != nil {
		return err
	}
	pass := func(first int, columns []int, n int) error {
		return t.each(ctx, columns, nodes, func(node int64, r rows) error {
			for k := range n {
				if err := body(node, first+k, r.cell(k)); err != nil {
					return fmt.Errorf("%s: %w", r.place(k), err)
				}
			}
			return nil
		})
	}
	if !t.columnwise || len(columns) == 1 {
		return pass(0, columns, n)
	}
	for k := range columns {
		if err := pass(k, columns[k:k+1], 1); err != nil {
			return err
		}
	}
	return nil
}

func (t *nodeTable) readLabels(ctx context.Context, sink *labelSink) error {
	var buf [32]byte
	return t.eachValue(ctx, t.labels, sink.rows.Rows, func(node int64, k int, c *cell) error {
		if v, isNumber := c.number(); isNumber {
			return sink.number(node, int64(k), v)
		}
		return sink.text(node, int64(k), c.text(buf[:]))
	})
}

// readSplits reads all splits: a column each, or the masks of one.
func (t *nodeTable) readSplits(ctx context.Context, to *format.RowTable, _ int64) error {
	var buf [32]byte
	return t.eachValue(ctx, t.splits, to.Rows, func(node int64, k int, c *cell) (err error) {
		text := c.text(buf[:])
		if t.masks == nil {
			to.Splits[node*int64(to.NumSplits)+int64(k)], err = parseSplit(text)
			return err
		}
		in, err := parseTruth(text)
		if err != nil || !in {
			return err
		}
		if to.Splits[node] != format.SplitNone {
			return errTwoParts
		}
		to.Splits[node] = t.masks[k]
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

// rowReader reads features from the rows of a table, which are in the order of the nodes.
type rowReader struct {
	rows
	width       int
	read, nodes int64                  // rows
	at          func(row int64) string // its place
}

func (r *rowReader) Read(ctx context.Context, dst []float32) error {
	for ; len(dst) > 0; dst = dst[r.width:] {
		if r.read%64 == 0 && ctx.Err() != nil {
			return context.Cause(ctx)
		}
		if err := nextRow(r.rows, r.read, r.nodes); err != nil {
			return err
		}
		if err := floats(r.rows, dst[:r.width]); err != nil {
			return atRow(r.rows, err)
		}
		r.read++
	}
	if r.read == r.nodes {
		if err := nextRow(r.rows, r.read, r.nodes); err != io.EOF {
			return err
		}
	}
	return nil
}

func (r *rowReader) Place(row int64) string { return r.at(row) }
