// Package parquet reads the columns of Parquet tables (https://parquet.apache.org/docs/file-format/), a page at a time:
// all encodings of values that writers use, and pages that are not compressed or compressed by snappy, gzip, brotli,
// zstd or lz4. Nothing in a file is trusted: invalid data are ErrInvalid. Before memory is allocated, its size is
// compared with a limit and with the size of the file.
//
// It also writes tables of numbers and texts (Writer). A Table is safe for concurrent use, a Reader and a Writer are
// not.
package parquet

import (
	"fmt"
	"slices"
	"sort"

	"github.com/hopfeed/hopfeed/internal/vfs"
	"github.com/hopfeed/hopfeed/tools/npy"
)

// ErrInvalid is returned when a file is not a table that can be read, or not the expected one. The text names the file
// and the place.
var ErrInvalid = npy.ErrInvalid

// Table is the rows of a file, or of the files of a folder, one file after another.
type Table struct {
	Path string
	Rows int64
	// Columns lists the columns of the first file: plain columns, fields of structures, and then keys. The other files
	// must have every column that is read.
	Columns []Column

	parts     []*part
	groups    []Group
	metadata  allowance
	pageBytes int64 // greatest size of a page
}

// Group is a row group of a table.
type Group struct {
	First, Rows int64 // its first row in the table, and the number of its rows

	part  *part
	index int // among the row groups of the part
}

type part struct {
	path    string
	fsys    vfs.FS
	first   int64 // its first row in the table
	size    int64
	columns []Column
	groups  []rowGroup
	keys    []key
}

// The metadata of a table may take 1/16 of the memory limit, and so may a page. Up to three columns are read side by
// side, and each has a stored page, a decompressed one and a dictionary, which takes twice as much as its page.
const (
	memoryShare      = 16
	minPageBytes     = 1 << 20
	defaultPageBytes = 1 << 30 // if there is no memory limit
)

// Open opens a file, or the files of a folder whose names end with .parquet, ordered by name, with numbers in names by
// value. Folders within it are named key=value: their keys become columns. It reads the metadata of all files. memory
// is the number of bytes that the table and its readers may use; 0: no limit.
func Open(fsys vfs.FS, path string, memory int64) (*Table, error) {
	t := &Table{Path: path, metadata: allowance{defaultMetaBytes, defaultMetaBytes}, pageBytes: defaultPageBytes}
	if memory > 0 {
		share := max(minPageBytes, memory/memoryShare)
		t.metadata, t.pageBytes = allowance{share, share}, min(share, defaultPageBytes)
	}
	info, err := fsys.Stat(path)
	if err != nil {
		return nil, err
	}
	if info.IsDir() {
		err = t.addFolder(fsys, path, nil)
		if err == nil && len(t.parts) == 0 {
			err = fmt.Errorf("%w: %s: a folder without .parquet files", ErrInvalid, path)
		}
	} else {
		err = t.add(fsys, path, nil)
	}
	if err == nil {
		err = t.addKeys()
	}
	return t, err
}

// Bytes is the memory that the table takes.
func (t *Table) Bytes() int64 { return t.metadata.total - t.metadata.left }

// ReadBytes bounds what a Reader of a column takes in memory, where the file says rightly how large the column is
// inflated: a page as stored and one inflated, a dictionary made of one, and the texts of a call of Next. No page takes
// more than a share of the memory.
func (t *Table) ReadBytes(c *Column) int64 {
	stored, inflated := int64(0), int64(0)
	for _, p := range t.parts {
		i := slices.IndexFunc(p.columns, func(of Column) bool { return of.Name == c.Name && of.Field == c.Field })
		for _, g := range p.groups {
			if i >= 0 && !p.columns[i].Key {
				k := &g.chunks[p.columns[i].leaf]
				stored, inflated = max(stored, k.size), max(inflated, k.inflated, k.size)
			}
		}
	}
	stored, inflated = min(stored, t.pageBytes), min(inflated, t.pageBytes)
	texts := int64(0)
	if c.Kind == Text {
		texts = inflated
	}
	return stored + 3*inflated + texts
}

// Keyed reports whether the files are in folders named key=value, so that the rows are ordered by key.
func (t *Table) Keyed() bool { return len(t.parts[0].keys) > 0 }

// Groups lists the row groups, in order.
func (t *Table) Groups() []Group { return t.groups }

// Place names a row of the table, for messages.
func (t *Table) Place(row int64) string {
	i := sort.Search(len(t.groups), func(i int) bool { return t.groups[i].First > row }) - 1
	if len(t.parts) < 2 || i < 0 {
		return fmt.Sprintf("%s: row %d", t.Path, row)
	}
	p := t.groups[i].part
	return fmt.Sprintf("%s: row %d", p.path, row-p.first)
}

func (t *Table) add(fsys vfs.FS, path string, keys []key) error {
	p := &part{path: path, fsys: fsys, first: t.Rows, keys: keys}
	if err := t.metadata.take(partBytes + int64(len(path))); err != nil {
		return invalid(path, err)
	}
	file, size, err := vfs.OpenSized(fsys, path)
	if err != nil {
		return err
	}
	defer file.Close()
	f, err := readFooter(file, size, &t.metadata)
	if err != nil {
		return invalid(path, err)
	}
	p.size, p.columns, p.groups = size, f.columns, f.groups
	if t.parts = append(t.parts, p); len(t.parts) == 1 {
		t.Columns = slices.Clone(f.columns)
	} else if first := t.parts[0].columns; slices.Equal(first, p.columns) {
		p.columns = first // shared, as the files of most tables have the same columns
		t.metadata.left += f.columnBytes
	}
	for i, g := range f.groups {
		if g.rows > maxRows-t.Rows {
			return fmt.Errorf("%w: %s: more than %d rows", ErrInvalid, t.Path, int64(maxRows))
		}
		t.groups = append(t.groups, Group{First: t.Rows, Rows: g.rows, part: p, index: i})
		t.Rows += g.rows
	}
	return nil
}

// partBytes is the memory of a file of a table, without its row groups.
const partBytes = 256

// invalid makes an error about a file ErrInvalid and adds the place, unless the file system or the memory limit is its
// cause.
func invalid(place string, err error) error {
	switch {
	case err == nil || vfs.Failed(err):
		return err
	case tooLarge(err):
		return fmt.Errorf("%s: %w", place, err)
	}
	return fmt.Errorf("%w: %s: %w", ErrInvalid, place, err)
}
