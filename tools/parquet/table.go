// Package parquet reads the columns of Parquet tables (https://parquet.apache.org/docs/file-format/),
// a page at a time: all encodings of values that writers use, and pages that are plain
// or compressed by snappy, gzip, brotli, zstd or lz4. Nothing in a file is trusted: what
// is wrong is ErrInvalid. Memory is checked against a limit, and sizes against the file's,
// before anything is allocated.
//
// A Table is safe for concurrent use, a Reader is not.
package parquet

import (
	"errors"
	"fmt"
	"slices"
	"sort"
	"strings"

	"github.com/hopfeed/hopfeed/internal/vfs"
	"github.com/hopfeed/hopfeed/tools/npy"
)

// ErrInvalid is returned when a file is no table that can be read, or not the one
// that it should be. The text names file and place.
var ErrInvalid = npy.ErrInvalid

// Table is the rows of a file, or of the files of a folder one after another.
type Table struct {
	Path    string
	Rows    int64
	Columns []Column // of the first file, the fields of its structures last but for keys; other files must have those that are read

	parts     []*part
	groups    []Group
	metadata  allowance
	pageBytes int64 // most of a page
}

// Group is a row group of a table.
type Group struct {
	First, Rows int64 // rows of the table

	part  *part
	index int // among those of the part
}

// part is a file of a table.
type part struct {
	path    string
	fsys    vfs.FS
	file    vfs.File // nil: it is opened when it is read
	size    int64
	columns []Column
	groups  []rowGroup
	keys    []key
}

// maxOpen is how many files of a table stay open; those beyond are opened once more
// by each Reader.
const maxOpen = 512

// Of the memory that may be used, the metadata of a table get a share of 1/16, and so
// does a page. Up to three columns are read side by side, each with a page as stored,
// inflated, and a dictionary, which takes twice as much as its page.
const (
	memoryShare      = 16
	minPageBytes     = 1 << 20
	defaultPageBytes = 1 << 30 // without a limit
)

// Open opens a file, or the files of a folder: those whose names end with .parquet, in
// the order of these, in which numbers count as such, and those of folders named
// key=value within it, whose keys are columns. It reads their metadata, once. memory
// is what the caller may use in all; 0: no limit.
func Open(fsys vfs.FS, path string, memory int64) (_ *Table, err error) {
	t := &Table{Path: path, metadata: allowance{defaultMetaBytes, defaultMetaBytes}, pageBytes: defaultPageBytes}
	if memory > 0 {
		share := max(minPageBytes, memory/memoryShare)
		t.metadata, t.pageBytes = allowance{share, share}, min(share, defaultPageBytes)
	}
	defer func() {
		if err != nil {
			t.Close()
		}
	}()
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

// Close closes the files.
func (t *Table) Close() error {
	var errs []error
	for _, p := range t.parts {
		if p.file != nil {
			errs = append(errs, p.file.Close())
		}
	}
	t.parts, t.groups = nil, nil
	return errors.Join(errs...)
}

// Bytes is what the table takes in memory while it is open.
func (t *Table) Bytes() int64 { return t.metadata.total - t.metadata.left }

// Keyed tells whether the files lie in folders named key=value, so that the order of
// the rows is that of the keys.
func (t *Table) Keyed() bool { return len(t.parts[0].keys) > 0 }

// Groups are the row groups, in order.
func (t *Table) Groups() []Group { return t.groups }

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
func (t *Table) Place(row int64) string {
	if len(t.parts) < 2 {
		return fmt.Sprintf("%s: row %d", t.Path, row)
	}
	i := sort.Search(len(t.groups), func(i int) bool { return t.groups[i].First > row }) - 1
	if i < 0 {
		return fmt.Sprintf("%s: row %d", t.Path, row)
	}
	g := t.groups[i]
	first := g.First
	for ; i >= 0 && t.groups[i].part == g.part; i-- {
		first = t.groups[i].First
	}
	return fmt.Sprintf("%s: row %d", g.part.path, row-first)
}

// add opens a file and adds its row groups.
func (t *Table) add(fsys vfs.FS, path string, keys []key) error {
	p := &part{path: path, fsys: fsys, keys: keys}
	if err := t.metadata.take(partBytes + int64(len(path))); err != nil {
		return p.invalid(err)
	}
	file, err := fsys.Open(path)
	if err != nil {
		return err
	}
	p.file = file
	t.parts = append(t.parts, p) // so that Close closes it
	var f *footer
	if p.size, err = file.Size(); err == nil {
		f, err = readFooter(file, p.size, &t.metadata)
		err = p.invalid(err)
	}
	if err != nil {
		return err
	}
	p.columns, p.groups = f.columns, f.groups
	if len(t.parts) == 1 {
		t.Columns = slices.Clone(f.columns)
	} else if first := t.parts[0].columns; slices.Equal(first, p.columns) {
		p.columns = first // most tables have as many of them as files
		t.metadata.left += f.columnBytes
	}
	for i, g := range f.groups {
		if g.rows > maxRows-t.Rows {
			return fmt.Errorf("%w: %s: more than %d rows", ErrInvalid, t.Path, int64(maxRows))
		}
		t.groups = append(t.groups, Group{First: t.Rows, Rows: g.rows, part: p, index: i})
		t.Rows += g.rows
	}
	if len(t.parts) <= maxOpen {
		return nil
	}
	p.file = nil
	return file.Close()
}

// partBytes is what a file of a table takes in memory, beside its row groups.
const partBytes = 256

// open is the file, and whether the caller must close it.
func (p *part) open() (f vfs.File, owned bool, err error) {
	if p.file != nil {
		return p.file, false, nil
	}
	if f, err = p.fsys.Open(p.path); err != nil {
		return nil, false, err
	}
	size, err := f.Size()
	if err == nil && size != p.size {
		err = fmt.Errorf("%w: %s: it had %d bytes when it was opened first, and now %d", ErrInvalid, p.path, p.size, size)
	}
	if err != nil {
		f.Close()
		return nil, false, err
	}
	return f, true, nil
}

// invalid is ErrInvalid about the file, unless the file system or the limit of memory
// is to blame.
func (p *part) invalid(err error) error {
	var disk *diskError
	switch {
	case err == nil || errors.As(err, &disk):
		return err
	case tooLarge(err):
		return fmt.Errorf("%s: %w", p.path, err)
	}
	return fmt.Errorf("%w: %s: %w", ErrInvalid, p.path, err)
}
