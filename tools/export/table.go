package export

import (
	"encoding/binary"
	"encoding/csv"
	"fmt"
	"io"
	"maps"
	"math"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/apache/arrow/go/v17/arrow"

	"github.com/hopfeed/hopfeed/internal/arrowfile"
	"github.com/hopfeed/hopfeed/tools/parquet"
)

// TableWriter writes a table into a file, a run of rows at a time.
type TableWriter interface {
	// Batch writes rows: a record batch of Arrow, or a row group of Parquet. Their data are given
	// column by column: little-endian numbers, and of a text the offsets (int64) before the bytes.
	Batch(rows int64, buffers ...[]byte) error
	// Close writes what is at the end of the file. It does not close the file.
	Close() error
}

// tableWriters are the formats of tables, by the suffix of a file's name. To add one, write its
// TableWriter in a file of its own, and add it here.
var tableWriters = map[string]func(w io.Writer, schema *arrow.Schema) (TableWriter, error){
	".arrow":   func(w io.Writer, schema *arrow.Schema) (TableWriter, error) { return arrowfile.NewWriter(w, schema) },
	".parquet": func(w io.Writer, schema *arrow.Schema) (TableWriter, error) { return parquet.NewWriter(w, schema) },
	".csv":     newCSVWriter,
}

// TableSuffixes lists the suffixes of files that NewTableWriter can write.
func TableSuffixes() []string { return slices.Sorted(maps.Keys(tableWriters)) }

// NewTableWriter starts a table in the format that the suffix of its path names. Its columns are
// int32, uint32, float32 and large strings, without nulls.
func NewTableWriter(w io.Writer, path string, schema *arrow.Schema) (TableWriter, error) {
	open, ok := tableWriters[strings.ToLower(filepath.Ext(path))]
	if !ok {
		return nil, fmt.Errorf("%s: the name of a table ends in %s", path, strings.Join(TableSuffixes(), ", "))
	}
	return open(w, schema)
}

// csvWriter writes comma-separated values: a line of names, then a line for each row. Numbers are the
// shortest that read back as the same.
type csvWriter struct {
	w      *csv.Writer
	fields []arrow.Field
	record []string
	digits []byte // of the numbers of a row, so that they are one string
	ends   []int  // in digits, of each column
}

func newCSVWriter(w io.Writer, schema *arrow.Schema) (TableWriter, error) {
	c := &csvWriter{w: csv.NewWriter(w), fields: schema.Fields(), ends: make([]int, schema.NumFields())}
	for _, f := range c.fields {
		c.record = append(c.record, f.Name)
	}
	return c, c.w.Write(c.record)
}

func (c *csvWriter) Batch(rows int64, buffers ...[]byte) error {
	for i := range rows {
		at := buffers
		c.digits = c.digits[:0]
		for k, f := range c.fields {
			switch f.Type.(type) {
			case *arrow.LargeStringType:
				from, to := binary.LittleEndian.Uint64(at[0][8*i:]), binary.LittleEndian.Uint64(at[0][8*i+8:])
				c.record[k] = string(at[1][from:to])
				at = at[1:]
			case *arrow.Float32Type:
				v := math.Float32frombits(binary.LittleEndian.Uint32(at[0][4*i:]))
				c.digits = strconv.AppendFloat(c.digits, float64(v), 'g', -1, 32)
			case *arrow.Int32Type:
				c.digits = strconv.AppendInt(c.digits, int64(int32(binary.LittleEndian.Uint32(at[0][4*i:]))), 10)
			case *arrow.Uint32Type:
				c.digits = strconv.AppendUint(c.digits, uint64(binary.LittleEndian.Uint32(at[0][4*i:])), 10)
			default:
				return fmt.Errorf("column %q has type %s, which is not written", f.Name, f.Type)
			}
			c.ends[k] = len(c.digits)
			at = at[1:]
		}
		numbers, from := string(c.digits), 0
		for k, f := range c.fields {
			if f.Type.ID() != arrow.LARGE_STRING {
				c.record[k] = numbers[from:c.ends[k]]
			}
			from = c.ends[k]
		}
		if err := c.w.Write(c.record); err != nil {
			return err
		}
	}
	c.w.Flush()
	return c.w.Error()
}

func (c *csvWriter) Close() error {
	c.w.Flush()
	return c.w.Error()
}
