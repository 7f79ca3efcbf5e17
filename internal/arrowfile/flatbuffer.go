package arrowfile

// flatbuffer is untrusted bytes that are walked with every access checked. The first access out of bounds sets err;
// from then on everything reads as absent. (The accessors of the flatbuffers library panic instead.)
type flatbuffer struct {
	b   []byte
	err error
}

// table is a table of a flatbuffer: slot i is at the offset in entry i of its vtable, or absent. A zero table has no
// slots.
type table struct {
	f      *flatbuffer
	at     int
	vtable int
	slots  int
}

// vector is n elements from position at on.
type vector struct {
	f  *flatbuffer
	at int
	n  int
}

func openFlatbuffer(b []byte) table {
	f := &flatbuffer{b: b}
	return f.table(0)
}

// ok tells whether n bytes can be read at position at.
func (f *flatbuffer) ok(at, n int) bool {
	if f.err == nil && (at < 0 || n < 0 || at > len(f.b) || n > len(f.b)-at) {
		f.err = invalid("metadata points to bytes %d..%d of %d", at, at+n, len(f.b))
	}
	return f.err == nil
}

// uint is the little-endian number of size bytes at a position.
func (f *flatbuffer) uint(at, size int) (v uint64) {
	if !f.ok(at, size) {
		return 0
	}
	for i := size - 1; i >= 0; i-- {
		v = v<<8 | uint64(f.b[at+i])
	}
	return v
}

// offset is the position that the unsigned offset at a position leads to.
func (f *flatbuffer) offset(at int) int { return at + int(f.uint(at, 4)) }

// table follows the offset at position at.
func (f *flatbuffer) table(at int) table {
	t := table{f: f}
	at = f.offset(at)
	vtable := at - int(int32(f.uint(at, 4)))
	size := int(f.uint(vtable, 2))
	if f.ok(vtable, size) && size >= 4 {
		t.at, t.vtable, t.slots = at, vtable, (size-4)/2
	}
	return t
}

func (t table) err() error {
	if t.f == nil {
		return nil
	}
	return t.f.err
}

// slot is the position of a slot's value, or -1.
func (t table) slot(i int) int {
	if i >= t.slots {
		return -1
	}
	offset := int(t.f.uint(t.vtable+4+2*i, 2))
	if offset == 0 || t.f.err != nil {
		return -1
	}
	return t.at + offset
}

func (t table) present(i int) bool { return t.slot(i) >= 0 }

// number is the number of size bytes in a slot.
func (t table) number(i, size int) uint64 {
	if at := t.slot(i); at >= 0 {
		return t.f.uint(at, size)
	}
	return 0
}

func (t table) bool(i int) bool   { return t.number(i, 1) != 0 }
func (t table) uint8(i int) uint8 { return uint8(t.number(i, 1)) }
func (t table) int16(i int) int16 { return int16(t.number(i, 2)) }
func (t table) int64(i int) int64 { return int64(t.number(i, 8)) }

func (t table) table(i int) table {
	if at := t.slot(i); at >= 0 {
		return t.f.table(at)
	}
	return table{f: t.f}
}

// vector is a vector of elements of size bytes; an absent one is empty.
func (t table) vector(i, size int) vector {
	at := t.slot(i)
	if at < 0 {
		return vector{f: t.f}
	}
	at = t.f.offset(at)
	n := int(t.f.uint(at, 4))
	if !t.f.ok(at, 4) || !t.f.ok(at+4, n*size) {
		return vector{f: t.f}
	}
	return vector{f: t.f, at: at + 4, n: n}
}

func (t table) string(i int) string {
	v := t.vector(i, 1)
	if v.n == 0 {
		return ""
	}
	return string(v.f.b[v.at : v.at+v.n])
}

// table is element i of a vector of tables.
func (v vector) table(i int) table { return v.f.table(v.at + 4*i) }

// int64 is the number at byte offset of element i, of size bytes each.
func (v vector) int64(i, size, offset int) int64 {
	return int64(v.f.uint(v.at+i*size+offset, 8))
}
