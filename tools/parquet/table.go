// Package parquet reads the columns of Parquet tables (https://parquet.apache.org/docs/file-format/),
// a page at a time: plain, dictionary and byte stream split encodings; plain,
// snappy, gzip, zstd and lz4_raw pages. Nothing in a file is trusted: what is wrong
// is ErrInvalid, and memory is bounded by that of a page. (Arrow's reader panics,
// or does not return, on some files that are damaged.)
//
// A Table is safe for concurrent use, a Reader is not.
package parquet

import (
	"errors"
	"fmt"
	"path/filepath"
	"strings"

	"github.com/hopfeed/hopfeed/internal/vfs"
	"github.com/hopfeed/hopfeed/tools/npy"
)

// ErrInvalid is returned when a file is no table that can be read, or not the one
// that it should be. The text names file and place.
var ErrInvalid = npy.ErrInvalid

// Kind is what the values of a column are.
type Kind uint8

const (
	Other   Kind = iota // none of these: dates, decimals, structures, lists of lists
	Integer             // of up to 64 bits, signed or not
	Float               // float16, float32, float64
	Bool
	Text
)

// Column is a column of a table: of one value a row, or of a list.
type Column struct {
	Name string
	Kind Kind
	List bool
	Type string // in words

	leaf     int // among those of the file
	physical physical
	size     int  // bytes of a value; 0: they differ
	unsigned bool // integers
	maxDef   int  // definition level of a value; lower ones say which level is null
	maxRep   int
}

// Table is the rows of a file, or of the files of a folder one after another.
type Table struct {
	Path    string
	Rows    int64
	Columns []Column // of the first file; the others must have those that are read

	fsys  vfs.FS
	files []string
}

// Open opens a file, or the folder of all files in it whose names end with
// .parquet, in the order of these. It reads their metadata.
func Open(fsys vfs.FS, path string) (*Table, error) {
	info, err := fsys.Stat(path)
	if err != nil {
		return nil, err
	}
	t := &Table{Path: path, fsys: fsys, files: []string{path}}
	if info.IsDir() {
		entries, err := fsys.ReadDir(path)
		if err != nil {
			return nil, err
		}
		t.files = nil
		for _, e := range entries {
			if strings.HasSuffix(e.Name(), ".parquet") && !strings.HasPrefix(e.Name(), ".") && !strings.HasPrefix(e.Name(), "_") {
				t.files = append(t.files, filepath.Join(path, e.Name()))
			}
		}
		if len(t.files) == 0 {
			return nil, fmt.Errorf("%w: %s: a folder without .parquet files", ErrInvalid, path)
		}
	}
	for i, name := range t.files {
		f, err := openFile(fsys, name)
		if err != nil {
			return nil, err
		}
		if i == 0 {
			t.Columns = f.columns
		}
		if t.Rows += f.rows; t.Rows > maxRows {
			err = fmt.Errorf("%w: %s: more than %d rows", ErrInvalid, path, int64(maxRows))
		}
		if err := errors.Join(err, f.Close()); err != nil {
			return nil, err
		}
	}
	return t, nil
}

// Find is the column with one of the names, in any case; nil where there is none.
func (t *Table) Find(names ...string) *Column {
	for _, name := range names {
		for i := range t.Columns {
			if strings.EqualFold(t.Columns[i].Name, name) {
				return &t.Columns[i]
			}
		}
	}
	return nil
}

// Place names a row of the table.
func (t *Table) Place(row int64) string { return fmt.Sprintf("%s: row %d", t.Path, row) }

// openedFile is one file of a table.
type openedFile struct {
	vfs.File
	size int64
	*footer
	columns []Column
}

func openFile(fsys vfs.FS, path string) (*openedFile, error) {
	file, err := fsys.Open(path)
	if err != nil {
		return nil, err
	}
	f := &openedFile{File: file}
	if f.size, err = file.Size(); err == nil {
		if f.footer, err = readFooter(file, f.size); err == nil {
			f.columns, err = columns(f.schema)
		}
		err = f.invalid(err)
	}
	if err != nil {
		file.Close()
		return nil, err
	}
	return f, nil
}

// invalid is ErrInvalid about the file, unless the file system is to blame.
func (f *openedFile) invalid(err error) error {
	var disk *diskError
	if err == nil || errors.As(err, &disk) {
		return err
	}
	return fmt.Errorf("%w: %s: %w", ErrInvalid, f.Path(), err)
}

// columns lists the columns of a schema.
func columns(schema []element) ([]Column, error) {
	if len(schema) == 0 {
		return nil, errors.New("it has no schema")
	}
	w := &schemaWalk{left: schema[1:]}
	var out []Column
	for range schema[0].children {
		if len(w.left) == 0 {
			return nil, errors.New("its schema ends early")
		}
		c := Column{Name: w.left[0].name, leaf: w.leaves}
		if err := w.walk(&c, 1); err != nil {
			return nil, err
		}
		switch nested := w.depth > 1; {
		case w.leaves-c.leaf != 1:
			c = Column{Name: c.Name, Type: "structure"}
		case c.maxRep > 1:
			c.Kind, c.Type = Other, "list of lists"
		case c.maxRep == 1:
			c.List, c.Type = true, "list of "+c.Type
		case nested:
			c.Kind, c.Type = Other, "structure"
		}
		w.depth = 0
		out = append(out, c)
	}
	return out, nil
}

// schemaWalk goes through the elements of a schema.
type schemaWalk struct {
	left   []element
	leaves int
	depth  int // of the last leaf
}

// walk goes through an element and those within it, and makes c of its last leaf.
func (w *schemaWalk) walk(c *Column, depth int) error {
	if len(w.left) == 0 || depth > maxDepth {
		return errors.New("its schema ends early, or is too deep")
	}
	e := w.left[0]
	w.left = w.left[1:]
	switch e.repetition {
	case required:
	case repeated:
		c.maxRep++
		c.maxDef++
	case optional:
		c.maxDef++
	default:
		return fmt.Errorf("its column %q has the unknown repetition %d", e.name, e.repetition)
	}
	if e.children == 0 {
		w.leaves++
		w.depth = depth
		c.setKind(e)
		return nil
	}
	for range e.children {
		if err := w.walk(c, depth+1); err != nil {
			return err
		}
	}
	return nil
}

// typeNames are in words what cannot be read, and what is not what it should be.
var (
	physicalNames = []string{"truth values", "int32", "int64", "int96", "float32", "float64", "text", "fixed-size binary"}
	logicalNames  = map[int64]string{5: "decimal", 6: "date", 7: "time", 8: "timestamp", 11: "null", 12: "json", 13: "bson", 14: "uuid"}
	convertedOnes = map[int64]string{5: "decimal", 6: "date", 7: "time", 8: "time", 9: "timestamp", 10: "timestamp", 19: "json", 20: "bson", 21: "interval"}
)

// setKind decides by the types of a leaf what its values are.
func (c *Column) setKind(e element) {
	c.Kind, c.physical, c.size = Other, e.physical, 0
	if e.physical < 0 || int(e.physical) >= len(physicalNames) {
		c.Type = "unknown type"
		return
	}
	c.Type = physicalNames[e.physical]
	name, other := logicalNames[e.logical]
	if !other && e.logical == 0 {
		name, other = convertedOnes[e.converted]
	}
	if other {
		c.Type = name
		return
	}
	switch e.physical {
	case boolean:
		c.Kind, c.size = Bool, 1
	case int32s, int64s:
		c.Kind, c.size = Integer, 4
		if e.physical == int64s {
			c.size = 8
		}
		c.unsigned = e.logical == logicalInteger && !e.signed || e.logical == 0 && e.converted >= convertedUint8 && e.converted <= convertedUint64
	case floats:
		c.Kind, c.size = Float, 4
	case doubles:
		c.Kind, c.size = Float, 8
	case fixedArray:
		if e.logical == logicalFloat16 && e.size == 2 {
			c.Kind, c.size, c.Type = Float, 2, "float16"
		}
	case byteArray:
		c.Kind = Text
	}
}
