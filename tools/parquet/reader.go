package parquet

import (
	"errors"
	"fmt"
	"io"
	"math/bits"
	"slices"
	"strconv"

	"github.com/hopfeed/hopfeed/internal/machine"
	"github.com/hopfeed/hopfeed/internal/vfs"
)

// Cells are consecutive values of a column. They are valid until the next call of the Reader.
type Cells struct {
	N      int
	Starts []bool // [N] of a list: whether a row begins here; nil: each cell is a row
	Null   []bool // [N] whether there is no value: a null, or a list that is null or empty
	vector        // [N] values

	kind     Kind
	unsigned bool
}

// Text returns value i as text: a number as its digits, which may be written into buf.
func (c *Cells) Text(i int, buf []byte) []byte {
	switch {
	case c.kind == Text:
		return c.texts.at(i)
	case c.kind == Float:
		return strconv.AppendFloat(buf[:0], c.Floats[i], 'g', -1, 64)
	case c.unsigned:
		return strconv.AppendUint(buf[:0], uint64(c.Ints[i]), 10)
	}
	return strconv.AppendInt(buf[:0], c.Ints[i], 10)
}

// Number returns value i as a float64; an integer is rounded once.
func (c *Cells) Number(i int) float64 {
	switch {
	case c.kind == Float:
		return c.Floats[i]
	case c.unsigned:
		return float64(uint64(c.Ints[i]))
	}
	return float64(c.Ints[i])
}

// errText is returned when the texts of one call of Next exceed the memory for a page.
var errText = fmt.Errorf("%w: texts of some thousand rows take more than 1/%d of the memory that may be used "+
	"(give more with --memory)", machine.ErrDoesNotFit, memoryShare)

// Reader reads one column of a table, from the first row to the last.
type Reader struct {
	table  *Table
	wanted Column
	column Column // the same column in the current file

	group, end int // next row group of the table, and the one after the last
	part       *part
	file       vfs.File

	inGroup bool
	rows    int64 // rows of the current row group that were not read yet
	left    int64 // cells of it in pages that were not opened yet
	fresh   bool  // none of its cells were read yet
	pages   pages
	dict    *dictionary

	inPage   int64 // cells of the current page that were not read yet
	rep, def hybrid
	values   values
	levels   []uint32
	cells    Cells
}

// Read starts to read a column of the table, of any kind but Other.
func (t *Table) Read(c *Column) (*Reader, error) {
	r := &Reader{table: t}
	r.pages.maxBytes = t.pageBytes
	return r, r.Restart(c, 0, len(t.groups))
}

// Restart makes the Reader read row groups first to end-1 of any column. It reuses the memory for pages.
func (r *Reader) Restart(c *Column, first, end int) error {
	if c.Kind == Other {
		return fmt.Errorf("%w: %s: column %q is a %s, which cannot be read; leave it out, or write it anew as "+
			"numbers or text", ErrInvalid, r.table.Path, c.Name, c.Type)
	}
	r.wanted, r.group, r.end = *c, first, end
	r.inGroup, r.left, r.inPage = false, 0, 0
	return nil
}

// Close ends reading.
func (r *Reader) Close() error {
	f := r.file
	if r.file, r.part = nil, nil; f == nil {
		return nil
	}
	return f.Close()
}

// Next returns the next n cells, or fewer at the end, and io.EOF when there are no more.
func (r *Reader) Next(n int) (*Cells, error) {
	c := &r.cells
	*c = Cells{Starts: c.Starts[:0], Null: c.Null[:0], kind: r.wanted.Kind, unsigned: r.wanted.unsigned,
		vector: vector{c.Ints[:0], c.Floats[:0], texts{c.texts.bytes[:0], c.texts.ends[:0]}}}
	for c.N < n {
		if r.inPage == 0 {
			err := r.nextPage()
			if err == io.EOF && c.N > 0 {
				break
			}
			if err != nil {
				return nil, err
			}
		}
		k := int(min(int64(n-c.N), r.inPage))
		if err := r.take(c, k); err != nil {
			return nil, r.invalid(err)
		}
		c.N, r.inPage = c.N+k, r.inPage-int64(k)
	}
	if !r.wanted.List {
		c.Starts = nil
	}
	return c, nil
}

// invalid adds the place to an error, and makes it ErrInvalid if the file is at fault.
func (r *Reader) invalid(err error) error {
	if err == nil {
		return nil
	}
	place := fmt.Sprintf("%s: column %q, row group %d", r.part.path, r.column.Name, r.table.groups[r.group-1].index)
	if r.pages.read > 0 {
		place += fmt.Sprintf(", page %d", r.pages.read-1)
	}
	if !tooLarge(err) && !errors.Is(err, errCannot) && !vfs.Failed(err) {
		err = fmt.Errorf("%w%s", err, damaged)
	}
	return invalid(place, err)
}

// errCannot is in errors about something valid that this package does not read.
var errCannot = errors.New("it cannot be read")

// nextPage moves to the next page that has cells, and returns io.EOF after the last.
func (r *Reader) nextPage() error {
	for {
		if r.inGroup {
			if err := r.openPage(); r.inPage > 0 || err != nil {
				return r.invalid(err)
			}
			continue
		}
		if r.group == r.end {
			return io.EOF
		}
		if r.group++; r.table.groups[r.group-1].Rows == 0 {
			continue // without rows, its pages are not looked at
		}
		if err := r.openGroup(&r.table.groups[r.group-1]); r.inPage > 0 || err != nil {
			return err
		}
	}
}

func (r *Reader) openPart(p *part) (err error) {
	if err := r.Close(); err != nil {
		return err
	}
	var size int64
	if r.file, size, err = vfs.OpenSized(p.fsys, p.path); err != nil {
		return err
	}
	if r.part = p; size != p.size {
		return fmt.Errorf("%w: %s: it had %d bytes when it was opened first, and now %d", ErrInvalid, p.path, p.size,
			size)
	}
	return nil
}

func (r *Reader) openGroup(g *Group) error {
	if r.part != g.part {
		if err := r.openPart(g.part); err != nil {
			return err
		}
	}
	r.rows, r.fresh, r.dict, r.pages.read = g.Rows, true, nil, 0
	if r.wanted.Key {
		return r.openKey(&g.part.keys[r.wanted.leaf])
	}
	w := &r.wanted
	i := slices.IndexFunc(g.part.columns, func(c Column) bool { return c.Name == w.Name && c.Field == w.Field })
	if i < 0 || g.part.columns[i].Kind != w.Kind || g.part.columns[i].List != w.List ||
		g.part.columns[i].unsigned != w.unsigned {
		return fmt.Errorf("%w: %s: no column %q of %s, as %s has; write both anew with one schema", ErrInvalid,
			g.part.path, w.Name, w.Type, r.table.parts[0].path)
	}
	r.column = g.part.columns[i]
	chunk := &g.part.groups[g.index].chunks[r.column.leaf]
	if chunk.elsewhere {
		return r.invalid(fmt.Errorf("%w: it is encrypted or in another file; write it anew", errCannot))
	}
	if err := chunk.codec.check(); err != nil {
		return r.invalid(fmt.Errorf("%w: %w", errCannot, err))
	}
	if chunk.start < 4 || chunk.size < 0 || chunk.start > g.part.size || chunk.size > g.part.size-chunk.start {
		return r.invalid(errors.New("it is not within the file"))
	}
	if chunk.cells < g.Rows || chunk.cells > g.part.size*maxRowsPerByte || r.column.maxRep == 0 &&
		chunk.cells != g.Rows {
		return r.invalid(fmt.Errorf("it has %d values in %d rows", chunk.cells, g.Rows))
	}
	r.left, r.inGroup = chunk.cells, true
	r.pages.start(r.file, chunk)
	return nil
}

// openKey makes a page of the value that all rows of the row group have: a dictionary of it, and one run of references.
func (r *Reader) openKey(k *key) (err error) {
	r.column, r.inPage = r.wanted, r.rows
	r.column.maxDef = 1
	r.def, r.dict = hybrid{run: r.rows, value: 1}, &dictionary{n: 1}
	r.values = values{column: &r.column, maxBytes: r.pages.maxBytes, encoding: dictionaryEncoding, dictionary: r.dict,
		indices: hybrid{run: r.rows}}
	switch {
	case k.null:
		r.def.value = 0
	case r.wanted.Kind == Text:
		r.dict.texts = texts{[]byte(k.value), []int{len(k.value)}}
	default:
		r.dict.Ints = make([]int64, 1)
		r.dict.Ints[0], err = strconv.ParseInt(k.value, 10, 64)
	}
	return err
}

// openPage moves to the next page of the row group. After the last page, inGroup is false.
func (r *Reader) openPage() error {
	p, err := r.pages.next()
	if err == io.EOF {
		if r.inGroup = false; r.rows > 0 || r.left > 0 {
			return fmt.Errorf("it ends %d rows and %d values early", r.rows, r.left)
		}
		return nil
	}
	if err != nil {
		return err
	}
	if p.kind == dictionaryPage {
		if r.dict != nil {
			return errors.New("a second dictionary")
		}
		r.dict, err = newDictionary(p, &r.column, r.pages.maxBytes)
		return err
	}
	if p.cells > r.left {
		return fmt.Errorf("it has %d values, and the row group has %d more", p.cells, r.left)
	}
	data := p.data
	levels := []struct {
		to       *hybrid
		most     int
		encoding encoding
		bytes    int64
	}{{&r.rep, r.column.maxRep, p.repEncoding, p.repBytes}, {&r.def, r.column.maxDef, p.defEncoding, p.defBytes}}
	for _, l := range levels {
		var bytes []byte
		switch {
		case p.kind == dataPageV2:
			bytes, data = data[:l.bytes], data[l.bytes:]
		case l.most == 0:
			continue
		case l.encoding != runsEncoding:
			return fmt.Errorf("%w: it has levels in the encoding %v; write it anew", errCannot, l.encoding)
		default:
			if bytes, data, err = prefixed(data); err != nil {
				return err
			}
		}
		*l.to = hybrid{data: bytes, width: bits.Len(uint(l.most))}
	}
	r.inPage, r.left = p.cells, r.left-p.cells
	v := &r.values
	v.column, v.data, v.maxBytes, v.at = &r.column, data, r.pages.maxBytes, 0
	return v.setEncoding(p.encoding, r.dict, p.cells)
}

// take appends the next k cells of the page to c, and moves on.
func (r *Reader) take(c *Cells, k int) error {
	from := len(c.Null)
	c.Null = slices.Grow(c.Null, k)[:from+k]
	null := c.Null[from:]
	clear(null)
	rows := int64(k)
	if r.column.maxRep > 0 {
		levels, err := r.readLevels(&r.rep, k)
		if err != nil {
			return err
		}
		rows = 0
		for _, l := range levels {
			if l == 0 {
				rows++
			}
			c.Starts = append(c.Starts, l == 0)
		}
		if r.fresh && levels[0] != 0 {
			return errors.New("the row group begins within a list")
		}
	}
	r.fresh = false
	if rows > r.rows {
		return errors.New("it has more rows than its row group")
	}
	r.rows -= rows
	present := k
	if most := r.column.maxDef; most > 0 && !r.def.allOf(uint32(most), int64(k)) {
		levels, err := r.readLevels(&r.def, k)
		if err != nil {
			return err
		}
		for i, l := range levels {
			switch {
			case int(l) < most:
				null[i] = true
				present--
			case int(l) > most:
				return fmt.Errorf("a value has the level %d, and the greatest is %d", l, most)
			}
		}
	}
	return r.values.read(&c.vector, null, present)
}

func (r *Reader) readLevels(h *hybrid, k int) ([]uint32, error) {
	r.levels = room(r.levels, k)
	return r.levels, h.read(r.levels)
}
