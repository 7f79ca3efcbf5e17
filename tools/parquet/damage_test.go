package parquet

import (
	"bytes"
	"compress/gzip"
	"encoding/binary"
	"errors"
	"math"
	"math/rand/v2"
	"reflect"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/hopfeed/hopfeed/internal/machine"
)

// fewBytes is a limit of memory for small files, and mostBytes is more than reading one
// may allocate then, in all.
const (
	fewBytes  = 16 << 20
	mostBytes = 32 << 20
)

// read reads a file of some bytes, and fails the test where that takes too much memory
// or ends in an error that does not blame the file.
func read(t *testing.T, what string, data []byte) (map[string][]any, error) {
	t.Helper()
	d := disk(t, map[string][]byte{"/x.parquet": data})
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	got, err := readAll(d, "/x.parquet", fewBytes)
	runtime.ReadMemStats(&after)
	if err != nil && !errors.Is(err, ErrInvalid) && !errors.Is(err, machine.ErrDoesNotFit) || err != nil &&
		!strings.Contains(err.Error(), "/x.parquet") {
		t.Fatalf("%s: %v", what, err)
	}
	if used := after.TotalAlloc - before.TotalAlloc; used > mostBytes {
		t.Fatalf("%s: %d MiB have been allocated for %d bytes: %v", what, used>>20, len(data), err)
	}
	return got, err
}

// footerStart is where the metadata of a file begin.
func footerStart(b []byte) int {
	return len(b) - 8 - int(binary.LittleEndian.Uint32(b[len(b)-8:]))
}

func TestAnyDamageIsReadOrRefused(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	for _, name := range []string{"small", "small_v2", "delta_v2", "split", "brotli_v1", "gzip_v2", "lz4_v1", "zstd_v2",
		"spark_lz4", "fastparquet_lz4", "duckdb_v2", "types_delta"} {
		whole := testFile(t, name)
		for range 80 {
			changed, at := bytes.Clone(whole), random.IntN(len(whole))
			if at%2 == 0 {
				at = footerStart(whole) + at%(len(whole)-footerStart(whole))
			}
			changed[at] ^= 1 << random.IntN(8)
			if at%3 == 0 {
				changed[random.IntN(len(whole))] = byte(random.IntN(256))
			}
			read(t, name, changed)
		}
		for range 20 {
			if _, err := read(t, name, whole[:random.IntN(len(whole))]); err == nil {
				t.Fatalf("%s is read though it is cut off", name)
			}
			from := random.IntN(len(whole))
			read(t, name, slices.Delete(bytes.Clone(whole), from, min(len(whole), from+1+random.IntN(50))))
		}
	}
}

func TestNoChangedBitOfPagesWithChecksumsGoesUnnoticed(t *testing.T) {
	whole := testFile(t, "checked")
	want, err := read(t, "whole", whole)
	if err != nil {
		t.Fatal(err)
	}
	refused := 0
	for at := range footerStart(whole) {
		changed := bytes.Clone(whole)
		changed[at] ^= 1 << (at % 8)
		got, err := read(t, "changed", changed)
		if err == nil && !reflect.DeepEqual(got, want) {
			t.Errorf("bit %d of byte %d: other values are read", at%8, at)
		}
		if err != nil {
			refused++
		}
	}
	if refused < footerStart(whole)/2 {
		t.Errorf("%d changes of %d bytes are refused", refused, footerStart(whole))
	}
}

// thrift are structures in Thrift's compact protocol, of fields with long headers.
type thrift []byte

func structure(fields ...thrift) thrift { return append(slices.Concat(fields...), 0) }

func field(id int64, kind byte, value ...byte) thrift {
	return append(binary.AppendVarint(thrift{kind}, id), value...)
}

func number(id, v int64) thrift           { return field(id, 6, binary.AppendVarint(nil, v)...) }
func nested(id int64, f ...thrift) thrift { return field(id, 12, structure(f...)...) }
func list(id int64, count int, items ...thrift) thrift {
	return field(id, 9, append(binary.AppendUvarint([]byte{0xfc}, uint64(count)), slices.Concat(items...)...)...)
}
func name(id int64, s string) thrift {
	return field(id, 8, append(binary.AppendUvarint(nil, uint64(len(s))), s...)...)
}

// crafted is a file of one column "a" with one page, or what it says of itself instead.
type crafted struct {
	physical, repetition, codec int64
	encoding                    int64
	rows                        int64
	data                        []byte
	inflated, stored            int64 // 0: as it is
	kind                        int64
	pages                       []byte // instead of a page
	schema, groups, chunks      int    // counts of lists; 0: as they are
}

func (c crafted) page() []byte {
	size := int64(len(c.data))
	inflated, stored := size, size
	if c.inflated > 0 {
		inflated = c.inflated
	}
	if c.stored > 0 {
		stored = c.stored
	}
	header := nested(5, number(1, c.rows), number(2, c.encoding), number(3, 3), number(4, 3))
	if c.kind == dictionaryPage {
		header = nested(7, number(1, c.rows), number(2, c.encoding))
	}
	return append(structure(number(1, c.kind), number(2, inflated), number(3, stored), header), c.data...)
}

func (c crafted) file() []byte {
	out := append([]byte("PAR1"), c.pages...)
	if c.pages == nil {
		out = append(out, c.page()...)
	}
	size := int64(len(out) - 4)
	schema := []thrift{structure(name(4, "schema"), number(5, 1)),
		structure(number(1, c.physical), number(3, c.repetition), name(4, "a"))}
	chunk := structure(number(2, 4), nested(3, number(1, c.physical), number(4, c.codec), number(5, c.rows), number(6,
		size), number(7, size), number(9, 4)))
	group := structure(list(1, max(1, c.chunks), chunk), number(2, size), number(3, c.rows))
	return closed(out, structure(number(1, 1), list(2, max(2, c.schema), schema...), number(3, c.rows), list(4, max(1,
		c.groups), group)))
}

// closed puts a footer behind pages.
func closed(out, footer []byte) []byte {
	out = append(out, footer...)
	return append(binary.LittleEndian.AppendUint32(out, uint32(len(footer))), "PAR1"...)
}

func uvarints(values ...uint64) (b []byte) {
	for _, v := range values {
		b = binary.AppendUvarint(b, v)
	}
	return b
}

func deflated(data []byte) []byte {
	var b bytes.Buffer
	z := gzip.NewWriter(&b)
	z.Write(data)
	z.Close()
	return b.Bytes()
}

func TestSmallFilesThatAskForMuchAreRefused(t *testing.T) {
	int64Type, textType := int64(int64s), int64(byteArray)
	ones := make([]byte, 16)
	if got, err := read(t, "a file as it should be",
		crafted{physical: int64Type, rows: 2, data: ones}.file()); err != nil ||
		!reflect.DeepEqual(got["a"], []any{"0", "0"}) {
		t.Fatalf("%v, %v", got, err)
	}
	deep := []thrift{structure(name(4, "schema"), number(5, 1))}
	for range 2000 {
		deep = append(deep, structure(number(3, 0), name(4, "s"), number(5, 1)))
	}
	const most = math.MaxInt32
	empty := func(n int) thrift { return make(thrift, n) }
	for what, c := range map[string]struct {
		data []byte
		say  string
	}{
		"a footer longer than the file": {append([]byte("PAR1xxxx"), "\xf0\xff\xff\xffPAR1"...),
			"metadata of 4294967280 bytes"},
		"a count of columns": {crafted{physical: int64Type, rows: 2, data: ones,
			schema: 1 << 30}.file(), "end early"},
		"a count of row groups": {crafted{physical: int64Type, rows: 2, data: ones,
			groups: 1 << 30}.file(), "end early"},
		"a count of chunks": {crafted{physical: int64Type, rows: 2, data: ones,
			chunks: 1 << 30}.file(), "end early"},
		"elements of nothing": {closed([]byte("PAR1"), structure(list(2, 1<<14, empty(1<<16)))),
			"are not valid Thrift"},
		"row groups of nothing": {closed([]byte("PAR1"), structure(list(4, 1<<14, empty(1<<16)))),
			"are not valid Thrift"},
		"row groups of hardly anything": {closed([]byte("PAR1"),
			structure(list(4, 1<<18, bytes.Repeat([]byte{0x16, 0, 0x16, 0, 0}, 1<<18)))), "--memory"},
		"deep structures": {closed([]byte("PAR1"),
			structure(list(2, len(deep), deep...), number(3, 0), list(4, 0))), "levels"},
		"a count of rows": {crafted{physical: int64Type, rows: most, data: ones}.file(),
			"2147483647 rows, in a file of"},
		"an inflated size": {crafted{physical: int64Type, codec: 1, rows: 2, data: ones,
			inflated: most}.file(), "inflate to 2147483647"},
		"an inflated size of zstd": {crafted{physical: int64Type, codec: 6, rows: 2, data: ones,
			inflated: most}.file(), "inflate to 2147483647"},
		"a stored size": {crafted{physical: int64Type, rows: 2, data: ones, inflated: most,
			stored: most}.file(), "2147483647 bytes, and 16 are left"},
		"a page that inflates to much": {crafted{physical: int64Type, codec: 2, rows: 1 << 18,
			data: deflated(make([]byte, 2<<20)), inflated: 2 << 20}.file(), "a page may have 1 MiB"},
		"a page that inflates to more": {crafted{physical: int64Type, codec: 2, rows: 2,
			data: deflated(make([]byte, 8<<20)), inflated: 16}.file(), "its length differs"},
		"a page of more values than rows": {crafted{physical: int64Type, rows: 2,
			pages: crafted{physical: int64Type, rows: most,
				data: ones}.page()}.file(), "2147483647 values, and the row group has 2"},
		"a dictionary of more than it holds": {crafted{physical: int64Type, rows: 2,
			pages: crafted{kind: dictionaryPage, rows: most, data: ones}.page()}.file(), "ends before its last value"},
		"deltas without end": {crafted{physical: int64Type, encoding: 5, rows: 2,
			data: uvarints(128, 4, most, 2)}.file(), "2147483647 differences"},
		"deltas in a block without end": {crafted{physical: int64Type, encoding: 5, rows: 200,
			data: uvarints(1<<62, 1, 200, 2, 2, 0)}.file(), "delta encoding is not valid"},
		"deltas of no width": {crafted{physical: int64Type, encoding: 5, rows: 1 << 20,
			data: append(uvarints(1<<20, 1, 1<<20, 2, 2), 200)}.file(), "delta encoding is not valid"},
		"a text that grows by what is before it": {crafted{physical: textType, encoding: 7, rows: 200,
			data: slices.Concat(
				uvarints(1<<20, 1, 200, 0), append(uvarints(2*(1<<17)), 0), // prefixes: 0, 1<<17, 2<<17, …
				uvarints(1<<20, 1, 200, 2<<17), append(uvarints(0), 0), make([]byte,
					1<<19))}.file(), "a text of more than 65536 bytes"},
		"a text that no id has": {crafted{physical: textType, rows: 1,
			data: append(binary.LittleEndian.AppendUint32(nil, 1<<17),
				make([]byte, 1<<17)...)}.file(), "a text of more than 65536 bytes"},
		"another codec": {crafted{physical: int64Type, codec: 3, rows: 2, data: ones}.file(),
			"compressed by lzo; write it anew"},
		"no codec": {crafted{physical: int64Type, codec: -5, rows: 2, data: ones}.file(),
			"compressed by codec -5"},
		"no encoding": {crafted{physical: int64Type, encoding: 77, rows: 2, data: ones}.file(),
			"the encoding 77"},
		"no page": {crafted{physical: int64Type, rows: 2, pages: []byte{}}.file(),
			"ends 2 rows and 2 values early"},
	} {
		_, err := read(t, what, c.data)
		if err == nil || !strings.Contains(err.Error(), c.say) || strings.Contains(err.Error(), "\n") {
			t.Errorf("%s: %v", what, err)
		}
		if err != nil && !strings.Contains(err.Error(), "; ") &&
			!strings.Contains(err.Error(), "give more with --memory") &&
			!strings.Contains(err.Error(), "which no id") && !strings.Contains(err.Error(), "which is no id") {
			t.Errorf("%s: nothing is said about what to do: %v", what, err)
		}
	}
}

func TestErrorsOfPagesTellThePlace(t *testing.T) {
	whole := testFile(t, "checked")
	at := bytes.LastIndex(whole[:footerStart(whole)], []byte("t1")) // in the dictionary of text, of row group 1
	whole[at] ^= 1
	if _, err := read(t, "changed", whole); err == nil ||
		!strings.Contains(err.Error(), `/x.parquet: column "text", row group 1, page 0: its bytes have the checksum`) ||
		!strings.Contains(err.Error(), "copy or write it again") {
		t.Error(err)
	}
}

func TestPagesTakeAShareOfTheMemory(t *testing.T) {
	large := crafted{physical: int64(int64s), rows: 1 << 18, data: make([]byte, 2<<20)}.file()
	d := disk(t, map[string][]byte{"/x.parquet": large})
	if _, err := readAll(d, "/x.parquet", 16<<20); !errors.Is(err, machine.ErrDoesNotFit) ||
		errors.Is(err, ErrInvalid) {
		t.Errorf("in 16 MiB: %v", err)
	}
	for _, memory := range []int64{0, 32 << 20} {
		if _, err := readAll(d, "/x.parquet", memory); err != nil {
			t.Errorf("in %d bytes: %v", memory, err)
		}
	}
}

func TestDecimalsAreRoundedOnce(t *testing.T) {
	for _, c := range []struct {
		bytes []byte
		scale int
		whole int64 // -1: does not fit
		want  float64
	}{
		{[]byte{0}, 2, 0, 0}, {[]byte{0xff, 0xff, 0x9c}, 2, -100,
			-1}, {[]byte{0x7f, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff}, 0, math.MaxInt64, math.MaxInt64},
		{[]byte{0x80, 0, 0, 0, 0, 0, 0, 0}, 3, math.MinInt64,
			-9223372036854775.808}, {[]byte{0, 0x80, 0, 0, 0, 0, 0, 0, 0}, 19, -1, 0.9223372036854775808},
		{[]byte{0xff, 0x7f, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff}, 0, -1,
			-9223372036854775809}, {[]byte{0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 7}, 30, 7, 7e-30},
		{[]byte{0, 0x20, 0, 0, 0, 0, 0, 1}, 1, 1<<53 + 1, 900719925474099.3},
	} {
		if v, err := wholeDecimal(c.bytes); (err != nil) != (c.whole == -1) || err == nil && v != c.whole {
			t.Errorf("%x: %d, %v", c.bytes, v, err)
		}
		if v, err := scaledBytes(c.bytes, c.scale); err != nil || v != c.want {
			t.Errorf("%x / 10^%d: %v, %v; want %v", c.bytes, c.scale, v, err, c.want)
		}
	}
	for _, b := range [][]byte{nil, make([]byte, 65)} {
		if _, err := scaledBytes(b, 2); err == nil {
			t.Errorf("a decimal of %d bytes is read", len(b))
		}
	}
}

func FuzzTable(f *testing.F) {
	for _, name := range []string{"small", "small_v2", "delta_v2", "split", "gzip_v1", "brotli_v2", "spark_lz4",
		"duckdb_v2"} {
		f.Add(testFile(f, name))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		_, err := readAll(disk(t, map[string][]byte{"/x.parquet": b}), "/x.parquet", fewBytes)
		if err != nil && !errors.Is(err, ErrInvalid) && !errors.Is(err, machine.ErrDoesNotFit) || err != nil &&
			strings.Contains(err.Error(), "\n") {
			t.Error(err)
		}
	})
}
