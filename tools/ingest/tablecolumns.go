package ingest

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/hopfeed/hopfeed/format"
	"github.com/hopfeed/hopfeed/internal/dtype"
	"github.com/hopfeed/hopfeed/internal/machine"
	"github.com/hopfeed/hopfeed/internal/units"
	"github.com/hopfeed/hopfeed/tools/npy"
)

// The flags that name the columns of edges and of nodes that a graph keeps.
const edgeColumnsFlag, nodeColumnsFlag = "edge-columns", "node-columns"

// tableColumn is a column of a table that the graph keeps: in a scratch file or, where rows of nodes come in any order,
// in memory.
type tableColumn struct {
	format.Column
	*scratchFile
	at   int // column of the table
	kind npy.Type
	path string // of the table
	// as of inputColumn
	rowAt func(row int64) string
	left  bool
}

// columnNames are the names of columns NAME or NAME:TYPE.
func columnNames(asked []string) (names []string) {
	for _, column := range asked {
		name, _, _ := strings.Cut(column, ":")
		names = append(names, name)
	}
	return names
}

// notInNames matches what the name of a column of a graph cannot have.
var notInNames = regexp.MustCompile("[^a-z0-9_]+")

// edgeIndexName and edgeWeightName are the arrays of an exported graph's edges and weights, without .npy.
const edgeIndexName, edgeWeightName = "edge_index", "edge_weight"

// chooseColumns finds the further columns of edges or nodes that are asked for. Those of edges are named edge_<name>.
func (l *edgeList) chooseColumns(t table, h header, path, of string, o Columns) error {
	flag, asked, seen := nodeColumnsFlag, o.Node, o.seen
	if of == format.OfEdges {
		flag, asked = edgeColumnsFlag, o.Edge
	}
	var found []string
	for i, name := range columnNames(asked) {
		at, err := h.find(flag, name)
		switch {
		case err != nil && seen == nil:
			return badOptions("%s: %w", path, err)
		case err != nil:
			continue
		case seen != nil:
			seen[flag+" "+asked[i]] = true
		}
		found = append(found, asked[i])
		kind, isList := t.numbers(at)
		if _, named, typed := strings.Cut(asked[i], ":"); typed {
			kind, err = npy.ParseType(named)
			if _, known := columnTypes[kind]; err != nil || !known || kind == npy.Bool {
				return badOptions("--%s %s: want NAME, or NAME:TYPE with an integer type of numpy, float16, float32 or "+
					"float64", flag, asked[i])
			}
		}
		stored := notInNames.ReplaceAllString(strings.ToLower(name), "_")
		as, width := asWeight, 0
		switch prefixed := strings.HasPrefix(stored, "edge_"); {
		case of == format.OfEdges && !prefixed:
			stored = "edge_" + stored
		case of == format.OfNodes && prefixed:
			return badOptions("--%s %s: a column of nodes cannot be called edge_..., as those of edges are: rename the column",
				flag, name)
		case of == format.OfNodes:
			as = asNumbers
		}
		if stored == edgeIndexName || stored == edgeWeightName {
			return badOptions("--%s %s: a graph has its edges and weights by the name %s: rename the column, or give "+
				"--weight-column", flag, name, stored)
		}
		if err := t.check(at, as); err != nil {
			return err
		}
		if isList && of == format.OfNodes {
			if width, err = t.width(at); err != nil {
				return err
			}
		}
		c := &tableColumn{Column: format.NewColumn(of, stored, columnTypes[kind], width), at: at, kind: kind, path: path}
		if err := c.Check(); err != nil {
			return badOptions("--%s: %w", flag, err)
		}
		if slices.ContainsFunc(l.columns, func(o *tableColumn) bool { return o.Name == c.Name }) {
			return badOptions("--%s: two columns would be called %s", flag, c.Name)
		}
		l.columns = append(l.columns, c)
	}
	if found != nil {
		l.info.Input[strings.ReplaceAll(flag, "-", "_")] = strings.Join(found, ",")
	}
	return nil
}

// createFiles creates a scratch file of rows for each column.
func (l *edgeList) createFiles(rows int64, columns ...*tableColumn) (err error) {
	bytes := int64(0)
	for _, c := range columns {
		bytes += rows * c.RowBytes()
	}
	if err := machine.CheckSpace(l.fsys, l.scratch.Dir(), bytes); err != nil {
		return err
	}
	for _, c := range columns {
		if c.scratchFile, err = l.scratch.newFile("column-" + c.Name); err != nil {
			return err
		}
	}
	return nil
}

// places are the columns of the table that the columns are.
func places(columns []*tableColumn) (at []int) {
	for _, c := range columns {
		at = append(at, c.at)
	}
	return at
}

// add appends a cell as a number.
func (c *tableColumn) add(value *cell) error {
	var buf [8]byte
	number, err := value.appendNumber(buf[:0], c.kind)
	if err != nil {
		return err
	}
	return c.put(number)
}

func flushColumns(columns []*tableColumn) (err error) {
	for _, c := range columns {
		err = errors.Join(err, c.flush())
	}
	return err
}

// readNodeColumns reads columns of nodes from a table of all nodes: single numbers together, and lists one by one.
func (l *edgeList) readNodeColumns(ctx context.Context, t *nodeTable, columns ...*tableColumn) (err error) {
	if t.byRow {
		err = l.createFiles(l.info.Nodes, columns...)
	} else {
		err = l.allocColumns(t.path, columns)
	}
	var singles []*tableColumn
	for _, c := range columns {
		switch {
		case err != nil:
			return err
		case c.Columns == 0:
			singles = append(singles, c)
		default:
			err = l.readColumns(ctx, t, c)
		}
	}
	if err != nil || len(singles) == 0 {
		return err
	}
	return l.readColumns(ctx, t, singles...)
}

// allocColumns allocates memory for columns of nodes.
func (l *edgeList) allocColumns(path string, columns []*tableColumn) error {
	bytes := int64(0)
	for _, c := range columns {
		bytes += l.info.Nodes * c.RowBytes()
	}
	l.info.HeldBytes += bytes
	if most := l.scratch.MemoryBytes; most > 0 && l.info.HeldBytes > most {
		return fmt.Errorf("%s: %w: columns of %d nodes need %v, and %v may be used (raise --memory)", path,
			machine.ErrDoesNotFit, l.info.Nodes, units.Bytes(bytes), units.Bytes(most))
	}
	for _, c := range columns {
		bytes := l.info.Nodes * c.RowBytes()
		memory, err := alloc(bytes)
		if err != nil {
			return err
		}
		c.scratchFile = &scratchFile{scratchSpace: &scratchSpace{memory: memory}, bytes: bytes}
		l.scratch.spaces = append(l.scratch.spaces, c.scratchSpace)
	}
	return nil
}

// readColumns reads one column of lists, or columns of single numbers.
func (l *edgeList) readColumns(ctx context.Context, t *nodeTable, columns ...*tableColumn) error {
	var seen bitset
	if err := t.eachValue(ctx, places(columns), l.info.Nodes, func(node int64, k int, value *cell) error {
		c, offset := columns[min(k, len(columns)-1)], int64(0)
		if c.Columns > 0 {
			offset = int64(k) * c.kind.Size()
		}
		if t.byRow {
			return c.add(value)
		}
		if k == 0 {
			seen.set(node)
		}
		var buf [8]byte
		number, err := value.appendNumber(buf[:0], c.kind)
		if err == nil {
			_, err = c.WriteAt(number, node*c.RowBytes()+offset)
		}
		return err
	}); err != nil {
		return err
	}
	if err := flushColumns(columns); err != nil {
		return err
	}
	for node := int64(0); !t.byRow && !t.partial && node < l.info.Nodes; node++ {
		if !seen.has(node) {
			return invalid(t.path, "no row of %s, and columns want one of each node", l.ids.name(node))
		}
	}
	return nil
}

// appendNumber appends the value as a number of a type, little endian.
func (c *cell) appendNumber(b []byte, kind npy.Type) ([]byte, error) {
	if kind.IsInteger() {
		if c.isNull() {
			return b, errors.New("it is null (want a value, or ask for NAME:float64, where it is NaN)")
		}
		var buf [32]byte
		text, err := c.id(buf[:])
		if err != nil {
			return b, err
		}
		v, bits := uint64(0), 8*int(kind.Size())
		if kind >= npy.Uint8 {
			v, err = strconv.ParseUint(string(text), 10, bits)
		} else {
			var signed int64
			signed, err = strconv.ParseInt(string(text), 10, bits)
			v = uint64(signed)
		}
		if err != nil {
			return b, fmt.Errorf("%.100q is not a whole number of %d bits", text, bits)
		}
		return binary.LittleEndian.AppendUint64(b, v)[:len(b)+bits/8], nil
	}
	v, isNumber := c.number()
	if !isNumber {
		var err error
		if v, err = strconv.ParseFloat(string(c.field), 64); err != nil {
			return b, fmt.Errorf("%.100q is not a number", c.field)
		}
	}
	if kind == npy.Float64 {
		return append(b, dtype.BytesOf([]float64{v})...), nil
	}
	t := columnTypes[kind]
	n := len(b)
	b = append(b, make([]byte, t.Size())...)
	if dtype.Encode(b[n:], []float32{float32(v)}, t) >= 0 || math.IsInf(float64(float32(v)), 0) && !math.IsInf(v, 0) {
		return b[:n], fmt.Errorf("%v is beyond %v (ask for float64)", v, t)
	}
	return b, nil
}

// Columns are the columns of tables that were asked for.
func (l *edgeList) Columns() (columns []inputColumn) {
	for _, c := range l.columns {
		columns = append(columns, inputColumn{Column: c.Column, path: c.path, rows: c.bytes / c.RowBytes(), read: c.read,
			at: c.rowAt, left: c.left})
	}
	return columns
}
