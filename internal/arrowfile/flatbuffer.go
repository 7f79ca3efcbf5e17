package arrowfile

import "encoding/binary"

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

func (f *flatbuffer) uint16(at int) uint16 {
	if !f.ok(at, 2) {
		return 0
	}
	return binary.LittleEndian.Uint16(f.b[at:])
}

func (f *flatbuffer) uint32(at int) uint32 {
	if !f.ok(at, 4) {
		return 0
	}
	return binary.LittleEndian.Uint32(f.b[at:])
}

func (f *flatbuffer) uint64(at int) uint64 {
	if !f.ok(at, 8) {
		return 0
	}
	return binary.LittleEndian.Uint64(f.b[at:])
}

// table follows the offset at position at.
func (f *flatbuffer) table(at int) table {
	t := table{f: f}
	at += int(f.uint32(at))
	vtable := at - int(int32(f.uint32(at)))
	size := int(f.uint16(vtable))
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
	offset := int(t.f.uint16(t.vtable + 4 + 2*i))
	if offset == 0 || t.f.err != nil {
		return -1
	}
	return t.at + offset
}

func (t table) present(i int) bool { return t.slot(i) >= 0 }

func (t table) uint8(i int, absent uint8) uint8 {
	at := t.slot(i)
	if at < 0 || !t.f.ok(at, 1) {
		return absent
	}
	return t.f.b[at]
}

func (t table) bool(i int, absent bool) bool {
	if !t.present(i) {
		return absent
	}
	return t.uint8(i, 0) != 0
}

func (t table) int16(i int, absent int16) int16 {
	if at := t.slot(i); at >= 0 {
		return int16(t.f.uint16(at))
	}
	return absent
}

func (t table) int32(i int, absent int32) int32 {
	if at := t.slot(i); at >= 0 {
		return int32(t.f.uint32(at))
	}
	return absent
}

func (t table) int64(i int, absent int64) int64 {
	if at := t.slot(i); at >= 0 {
		return int64(t.f.uint64(at))
	}
	return absent
}

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
	at += int(t.f.uint32(at))
	n := int(t.f.uint32(at))
	if !t.f.ok(at, 4) || !t.f.ok(at+4, n*size) {
		return vector{f: t.f}
	}
	return vector{f: t.f, at: at + 4, n: n}
}

func (t table) string(i int) string {
	v := t.vector(i, 1)
	if v.n > maxText {
		t.f.err = invalid("a name of %d bytes", v.n)
		return ""
	}
	return string(v.bytes())
}

func (v vector) bytes() []byte {
	if v.n == 0 {
		return nil
	}
	return v.f.b[v.at : v.at+v.n]
}

// table is element i of a vector of tables.
func (v vector) table(i int) table { return v.f.table(v.at + 4*i) }

// int64 is the number at byte offset of element i, of size bytes each.
func (v vector) int64(i, size, offset int) int64 {
	return int64(v.f.uint64(v.at + i*size + offset))
}
