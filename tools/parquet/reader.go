package parquet

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math"
	"math/bits"
	"slices"
	"strconv"

	"github.com/hopfeed/hopfeed/internal/dtype"
)

// Cells are values of a column, one after another. Of the three kinds of values,
// the column's is there. They are valid until the reader's next call, texts longer.
type Cells struct {
	N      int
	Starts []bool // [N] of a list: whether a row begins here; nil: each is a row
	Null   []bool // [N] there is no value: a null, or a list that is null or empty
	Ints   []int64
	Floats []float64
	Texts  [][]byte

	unsigned bool
}

// Text is the text of a value, or the digits of an integer, which it may write
// into buf.
func (c *Cells) Text(i int, buf []byte) []byte {
	switch {
	case c.Texts != nil:
		return c.Texts[i]
	case c.unsigned:
		return strconv.AppendUint(buf[:0], uint64(c.Ints[i]), 10)
	}
	return strconv.AppendInt(buf[:0], c.Ints[i], 10)
}

// Number is a value as a float64: an integer with one rounding.
func (c *Cells) Number(i int) float64 {
	switch {
	case c.Floats != nil:
		return c.Floats[i]
	case c.unsigned:
		return float64(uint64(c.Ints[i]))
	}
	return float64(c.Ints[i])
}

// Reader reads one column of a table, from the first row to the last.
type Reader struct {
	table  *Table
	column Column // of the present file
	row    int64  // rows begun

	file      *openedFile
	nextFile  int
	nextGroup int
	inGroup   bool
	groupRows int64 // that are left of the present row group
	fresh     bool  // none of it have been taken
	pages     pages
	dict      *dictionary

	left     int64 // cells of the present page
	rep, def hybrid
	values   values
	levels   []uint32
	texts    [][]byte
	cells    Cells
}

// Read starts to read a column of the table, of any kind but Other.
func (t *Table) Read(c *Column) (*Reader, error) {
	if c.Kind == Other {
		return nil, fmt.Errorf("%w: %s: column %q is a %s, which cannot be read", ErrInvalid, t.Path, c.Name, c.Type)
	}
	return &Reader{table: t, column: *c}, nil
}

// Close ends reading.
func (r *Reader) Close() error {
	if r.file == nil {
		return nil
	}
	f := r.file
	r.file = nil
	return f.Close()
}

// Next returns the next n cells; fewer only at the end of the table, and none, with
// io.EOF, after it.
func (r *Reader) Next(n int) (*Cells, error) {
	c := &r.cells
	*c = Cells{Starts: c.Starts[:0], Null: c.Null[:0], Ints: c.Ints[:0], Floats: c.Floats[:0], Texts: c.Texts[:0]}
	for c.N < n {
		if r.left == 0 {
			err := r.nextPage()
			if err == io.EOF && c.N > 0 {
				break
			}
			if err != nil {
				return nil, err
			}
		}
		k := int(min(int64(n-c.N), r.left))
		if err := r.take(c, k); err != nil {
			return nil, r.invalid(err)
		}
		c.N, r.left = c.N+k, r.left-int64(k)
	}
	c.unsigned = r.column.unsigned
	if !r.column.List {
		c.Starts = nil
	}
	return c, nil
}

func (r *Reader) invalid(err error) error {
	var disk *diskError
	if err == nil || errors.As(err, &disk) {
		return err
	}
	return fmt.Errorf("%w: %s: column %q, at row %d of the table: %w", ErrInvalid, r.file.Path(), r.column.Name, r.row, err)
}

// nextPage goes to the next page that has cells; io.EOF after the last.
func (r *Reader) nextPage() error {
	for {
		if r.inGroup {
			found, err := r.openPage()
			if found || err != nil {
				return r.invalid(err)
			}
			continue
		}
		if r.file == nil || r.nextGroup == len(r.file.groups) {
			if err := r.openFile(); err != nil {
				return err
			}
			continue
		}
		if r.nextGroup++; r.file.groups[r.nextGroup-1].rows == 0 {
			continue // its pages may be anything
		}
		if err := r.openGroup(r.nextGroup - 1); err != nil {
			return r.invalid(err)
		}
	}
}

func (r *Reader) openFile() error {
	if err := r.Close(); err != nil {
		return err
	}
	if r.nextFile == len(r.table.files) {
		if r.row != r.table.Rows {
			return fmt.Errorf("%w: %s: %d rows, but %d when it was opened", ErrInvalid, r.table.Path, r.row, r.table.Rows)
		}
		return io.EOF
	}
	f, err := openFile(r.table.fsys, r.table.files[r.nextFile])
	if err != nil {
		return err
	}
	r.file, r.nextGroup = f, 0
	r.nextFile++
	i := slices.IndexFunc(f.columns, func(c Column) bool { return c.Name == r.column.Name })
	if i < 0 || f.columns[i].Kind != r.column.Kind || f.columns[i].List != r.column.List || f.columns[i].unsigned != r.column.unsigned {
		return fmt.Errorf("%w: %s: no column %q of %s, as %s has", ErrInvalid, f.Path(), r.column.Name, r.column.Type, r.table.files[0])
	}
	r.column = f.columns[i]
	return nil
}

func (r *Reader) openGroup(k int) error {
	group := &r.file.groups[k]
	if r.column.leaf >= len(group.chunks) {
		return fmt.Errorf("row group %d has no such column", k)
	}
	chunk := &group.chunks[r.column.leaf]
	r.groupRows, r.fresh, r.dict, r.inGroup = group.rows, true, nil, true
	start := chunk.data
	if chunk.dictionary > 0 {
		start = min(start, chunk.dictionary)
	}
	if chunk.elsewhere || start < 0 || chunk.size < 0 || start > r.file.size || chunk.size > r.file.size-start {
		return fmt.Errorf("row group %d of it is not in the file", k)
	}
	r.pages = pages{file: r.file, at: start, end: start + chunk.size, codec: chunk.codec, window: r.pages.window}
	return chunk.codec.check()
}

// openPage goes to the next page of the row group, and tells whether it has cells.
// After the last, there is no row group.
func (r *Reader) openPage() (found bool, err error) {
	p, err := r.pages.next()
	if err == io.EOF {
		if r.inGroup = false; r.groupRows > 0 {
			return false, fmt.Errorf("row group %d ends %d rows early", r.nextGroup-1, r.groupRows)
		}
		return false, nil
	}
	if err != nil {
		return false, err
	}
	if p.kind == dictionaryPage {
		if r.dict != nil {
			return false, errors.New("a second dictionary")
		}
		r.dict, err = newDictionary(p, &r.column)
		return false, err
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
			return false, fmt.Errorf("it has levels in the encoding %v", l.encoding)
		default:
			if bytes, data, err = prefixed(data); err != nil {
				return false, err
			}
		}
		*l.to = hybrid{data: bytes, width: bits.Len(uint(l.most))}
	}
	r.left = p.cells
	r.values = values{column: &r.column, data: data, index: r.values.index, scratch: r.values.scratch}
	return p.cells > 0, r.values.setEncoding(p.encoding, r.dict)
}

// take appends the next k cells of the page to c.
func (r *Reader) take(c *Cells, k int) error {
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
			return errors.New("its row group begins within a list")
		}
	}
	r.fresh = false
	if rows > r.groupRows {
		return errors.New("more rows than its row group has")
	}
	r.row, r.groupRows = r.row+rows, r.groupRows-rows
	present := k
	from := len(c.Null)
	c.Null = append(c.Null, make([]bool, k)...)
	if r.column.maxDef > 0 {
		levels, err := r.readLevels(&r.def, k)
		if err != nil {
			return err
		}
		for i, l := range levels {
			if int(l) != r.column.maxDef {
				c.Null[from+i] = true
				present--
			}
		}
	}
	return r.takeValues(c, c.Null[from:], present)
}

func (r *Reader) readLevels(h *hybrid, k int) ([]uint32, error) {
	if cap(r.levels) < k {
		r.levels = make([]uint32, k)
	}
	levels := r.levels[:k]
	return levels, h.read(levels)
}

// takeValues appends a value for each that is not null; others are 0.
func (r *Reader) takeValues(c *Cells, null []bool, present int) error {
	if r.column.Kind == Text {
		if cap(r.texts) < present {
			r.texts = make([][]byte, present)
		}
		texts := r.texts[:present]
		if err := r.values.text(texts); err != nil {
			return err
		}
		for _, null := range null {
			if null {
				c.Texts = append(c.Texts, nil)
				continue
			}
			c.Texts, texts = append(c.Texts, texts[0]), texts[1:]
		}
		return nil
	}
	raw, err := r.values.fixed(present)
	if err != nil {
		return err
	}
	size := r.column.size
	for _, null := range null {
		var bits uint64
		if !null {
			switch size {
			case 1:
				bits = uint64(raw[0])
			case 2:
				bits = uint64(binary.LittleEndian.Uint16(raw))
			case 4:
				bits = uint64(binary.LittleEndian.Uint32(raw))
			case 8:
				bits = binary.LittleEndian.Uint64(raw)
			}
			raw = raw[size:]
		}
		switch {
		case r.column.Kind != Float && size == 4 && !r.column.unsigned:
			c.Ints = append(c.Ints, int64(int32(bits)))
		case r.column.Kind != Float:
			c.Ints = append(c.Ints, int64(bits))
		case size == 2:
			c.Floats = append(c.Floats, float64(dtype.Float16ToFloat32(uint16(bits))))
		case size == 4:
			c.Floats = append(c.Floats, float64(math.Float32frombits(uint32(bits))))
		default:
			c.Floats = append(c.Floats, math.Float64frombits(bits))
		}
	}
	return nil
}
