package ingest

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/hopfeed/hopfeed/format"
	"github.com/hopfeed/hopfeed/internal/dtype"
	"github.com/hopfeed/hopfeed/internal/machine"
	"github.com/hopfeed/hopfeed/internal/vfs"
	"github.com/hopfeed/hopfeed/tools/npy"
)

// edgeColumnsFlag names the columns of edges that a graph keeps.
const edgeColumnsFlag = "edge-columns"

// tableColumn is a column of a table of edges that the graph keeps. It is copied to a scratch file.
type tableColumn struct {
	at    int // column of the table
	name  string
	kind  npy.Type
	space *scratchSpace
	block []byte     // that is being filled, or was read
	sums  []uint32   // CRC-32C of each columnBlock of the file
	array *npy.Array // in the file
}

// columnBlock is so many bytes of a scratch file as have a checksum: whole numbers.
const columnBlock = 64 << 10

// tableColumnTypes are the types that a column can be asked for as.
var tableColumnTypes = []npy.Type{npy.Float32, npy.Float64, npy.Int64}

// edgeColumnNames are the names of columns NAME or NAME:TYPE.
func edgeColumnNames(asked []string) (names []string) {
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

// chooseEdgeColumns finds the columns that are asked for, and names them edge_<name>. kind is the type of a column for
// which none is asked.
func (l *edgeList) chooseEdgeColumns(h header, path string, asked []string, kind func(at int) npy.Type) error {
	for i, name := range edgeColumnNames(asked) {
		at, err := h.find(edgeColumnsFlag, name)
		if err != nil {
			return badOptions("%s: %w", path, err)
		}
		c := &tableColumn{at: at, kind: kind(at), name: notInNames.ReplaceAllString(strings.ToLower(name), "_")}
		if !strings.HasPrefix(c.name, "edge_") {
			c.name = "edge_" + c.name
		}
		if _, kind, typed := strings.Cut(asked[i], ":"); typed {
			c.kind, err = npy.ParseType(kind)
			if err != nil || !slices.Contains(tableColumnTypes, c.kind) {
				return badOptions("--%s %s: want NAME, or NAME:TYPE with float32, float64 or int64", edgeColumnsFlag, asked[i])
			}
		}
		if c.name == edgeIndexName || c.name == edgeWeightName {
			return badOptions("--%s %s: a graph has its edges and weights by the name %s: rename the column, or give "+
				"--weight-column", edgeColumnsFlag, name, c.name)
		}
		column := c.column()
		if err := column.Check(); err != nil {
			return badOptions("--%s: %w", edgeColumnsFlag, err)
		}
		if slices.ContainsFunc(l.edgeColumns, func(o *tableColumn) bool { return o.name == c.name }) {
			return badOptions("--%s: two columns would be called %s", edgeColumnsFlag, c.name)
		}
		l.edgeColumns = append(l.edgeColumns, c)
	}
	if asked != nil {
		l.info.Input["edge_columns"] = strings.Join(asked, ",")
	}
	return nil
}

// column is the column of the graph.
func (c *tableColumn) column() format.Column {
	return format.NewColumn(format.OfEdges, c.name, columnTypes[c.kind], 0)
}

// copyEdgeColumns copies the columns to a scratch file each, and reads the table once for all of them.
func (l *edgeList) copyEdgeColumns(ctx context.Context, t table, path string) (err error) {
	if len(l.edgeColumns) == 0 {
		return nil
	}
	var at []int
	rowBytes := int64(0)
	for _, c := range l.edgeColumns {
		if err := t.check(c.at, asWeight); err != nil {
			return err
		}
		at, rowBytes = append(at, c.at), rowBytes+c.kind.Size()
	}
	if err := machine.CheckSpace(l.fsys, l.scratch.Dir(), rowBytes*l.edges.edges); err != nil {
		return err
	}
	for _, c := range l.edgeColumns {
		if c.space, err = newFileSpace(l.fsys, l.columnFile(c)); err != nil {
			return err
		}
	}
	r, err := t.read(at)
	if err != nil {
		return err
	}
	defer r.Close()
	for row := int64(0); ; row++ {
		if err := r.next(); err == io.EOF && row == l.edges.edges {
			break
		} else if err == io.EOF || err == nil && row == l.edges.edges {
			return fmt.Errorf("%s: %w", path, errChanged)
		} else if err != nil {
			return err
		}
		for k, c := range l.edgeColumns {
			if c.block, err = r.cell(k).appendNumber(c.block, c.kind); err != nil {
				return atRow(r, fmt.Errorf("%s: %w", r.place(k), err))
			}
			if len(c.block) == columnBlock {
				if err := errors.Join(context.Cause(ctx), c.flush()); err != nil {
					return err
				}
			}
		}
	}
	for _, c := range l.edgeColumns {
		if err := c.flush(); err != nil {
			return err
		}
		if c.array, err = npy.OpenRaw(l.fsys, l.columnFile(c)+vfs.TempSuffix, c.kind, l.edges.edges); err != nil {
			return err
		}
	}
	return nil
}

func (l *edgeList) columnFile(c *tableColumn) string { return l.scratch.Path("column-" + c.name) }

// flush writes the block that was filled, if it has anything.
func (c *tableColumn) flush() error {
	if len(c.block) == 0 {
		return nil
	}
	_, err := c.space.WriteAt(c.block, int64(len(c.sums))*columnBlock)
	c.sums, c.block = append(c.sums, c.space.sum(0, c.block)), c.block[:0]
	return err
}

// read reads bytes of the file from an offset, and checks the blocks that they lie in.
func (c *tableColumn) read(p []byte, off int64) error {
	size := c.array.Shape[0] * c.kind.Size()
	for len(p) > 0 {
		k := off / columnBlock
		block := slices.Grow(c.block[:0], columnBlock)[:min(columnBlock, size-k*columnBlock)]
		c.block = block
		if _, err := c.space.ReadAt(block, k*columnBlock); err != nil {
			return err
		}
		if err := c.space.compare(c.space.sum(0, block), c.sums[k]); err != nil {
			return err
		}
		n := copy(p, block[off-k*columnBlock:])
		p, off = p[n:], off+int64(n)
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
	if math.IsInf(float64(float32(v)), 0) && !math.IsInf(v, 0) {
		return b, fmt.Errorf("%v is beyond float32 (ask for float64)", v)
	}
	return append(b, dtype.BytesOf([]float32{float32(v)})...), nil
}

// Columns are those of the table of edges that were asked for.
func (l *edgeList) Columns() (columns []inputColumn) {
	for _, c := range l.edgeColumns {
		columns = append(columns, inputColumn{c.column(), c.array, c.read})
	}
	return columns
}

// closeColumns closes the arrays and removes the files of columns.
func (l *edgeList) closeColumns() (err error) {
	for _, c := range l.edgeColumns {
		if c.array != nil {
			err = errors.Join(err, c.array.Close())
		}
		err = errors.Join(err, c.space.free())
	}
	return err
}
