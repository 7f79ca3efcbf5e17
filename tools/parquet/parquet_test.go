package parquet

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/hopfeed/hopfeed/internal/vfs"
)

// column reads a column, n cells at a time, from row groups first to before end: a
// number for each float, text for other values, nil for nulls, and a []any for each
// list, but nil for one that is null, empty, or one null.
func column(t *Table, c *Column, n, first, end int) (out []any, err error) {
	r, err := t.Read(c)
	if err != nil {
		return nil, err
	}
	defer r.Close()
	if err := r.Restart(c, first, end); err != nil {
		return nil, err
	}
	var digits [30]byte
	for len(out) < 1<<16 { // a changed byte may make billions of rows
		cells, err := r.Next(n)
		if err == io.EOF {
			break
		}
		if err != nil {
			return nil, err
		}
		for i := range cells.N {
			var v any
			switch {
			case cells.Null[i]:
			case c.Kind == Float:
				v = cells.Number(i)
			default:
				v = string(cells.Text(i, digits[:]))
			}
			switch {
			case cells.Starts == nil:
				out = append(out, v)
			case cells.Starts[i]:
				out = append(out, []any{v})
			default:
				out[len(out)-1] = append(out[len(out)-1].([]any), v)
			}
		}
	}
	return withoutEmpty(out), nil
}

func same(a, b []any) bool { return len(a) == 0 && len(b) == 0 || reflect.DeepEqual(a, b) }

func withoutEmpty(rows []any) []any {
	for i, row := range rows {
		if list, ok := row.([]any); ok && (len(list) == 0 || len(list) == 1 && list[0] == nil) {
			rows[i] = nil
		}
	}
	return rows
}

// written are the tables of testdata/values.json, as pyarrow reads them, by file.
func written(t testing.TB) map[string]map[string][]any {
	t.Helper()
	b, err := os.ReadFile(filepath.Join("testdata", "values.json"))
	if err != nil {
		t.Fatal(err)
	}
	var all struct {
		Files  map[string]string
		Tables map[string]map[string][]any
	}
	if err := json.Unmarshal(b, &all); err != nil {
		t.Fatal(err)
	}
	out := map[string]map[string][]any{}
	for _, columns := range all.Tables {
		for name := range columns {
			columns[name] = withoutEmpty(columns[name])
		}
	}
	for file, table := range all.Files {
		out[file] = all.Tables[table]
	}
	return out
}

func TestWhatWritersWriteIsReadAsPyarrowReadsIt(t *testing.T) {
	files := written(t)
	paths, err := filepath.Glob("testdata/*.parquet")
	if err != nil || len(paths) != len(files) || len(files) < 30 {
		t.Fatalf("%d files, and %d have values: %v", len(paths), len(files), err)
	}
	for file, columns := range files {
		table, err := Open(vfs.OS(), filepath.Join("testdata", file+".parquet"), 0)
		if err != nil {
			t.Error(err)
			continue
		}
		for name, want := range columns {
			c := find(table, strings.ToUpper(name))
			if c == nil {
				t.Errorf("%s: no column %s", file, name)
				continue
			}
			for _, n := range []int{1, 7, 1000} {
				got, err := column(table, c, n, 0, len(table.Groups()))
				if err != nil || int64(len(got)) != table.Rows || !same(got, want) {
					t.Errorf("%s: %s, %d at a time: %v, %v; want %v", file, name, n, got, err, want)
					break
				}
			}
			for g, group := range table.Groups() {
				got, err := column(table, c, 5, g, g+1)
				if err != nil || !same(got, want[group.First:group.First+group.Rows]) {
					t.Errorf("%s: %s, row group %d: %v, %v", file, name, g, got, err)
				}
			}
			if strings.Contains(name, ".") != c.Field {
				t.Errorf("%s: %s is a field: %v", file, name, c.Field)
			}
		}
	}
}

// Arrow writes a dictionary of no values, of a column that is null throughout, as a page of no bytes.
func TestAPageOfNoBytesInflates(t *testing.T) {
	for c, page := range map[codec]string{snappyCodec: "\x00", brotliCodec: "\x06", zstdCodec: "", lz4RawCodec: "\x00",
		gzipCodec: "\x1f\x8b\x08\x00\x00\x00\x00\x00\x02\x03\x03\x00\x00\x00\x00\x00\x00\x00\x00\x00"} {
		if err := c.inflate(nil, []byte(page)); err != nil {
			t.Errorf("%v: %v", c, err)
		}
	}
}

func TestWhatIsNoValueIsNamedByItsType(t *testing.T) {
	for file, types := range map[string]map[string]string{
		"types": {"date": "date", "time": "time", "timestamp": "timestamp", "none": "null",
			"fixed_binary": "fixed-size binary", "map": "map", "lists": "list of lists",
			"structs": "list of structures", "struct": "structure"},
		"spark_v1": {"int96": "int96 timestamp", "date": "date", "map": "map", "struct": "structure"},
	} {
		table, err := Open(vfs.OS(), filepath.Join("testdata", file+".parquet"), 0)
		if err != nil {
			t.Fatal(err)
		}
		for name, want := range types {
			c := find(table, name)
			if c == nil || c.Kind != Other || c.Type != want {
				t.Errorf("%s: %s is %+v", file, name, c)
				continue
			}
			if _, err := table.Read(c); !errors.Is(err, ErrInvalid) ||
				!strings.Contains(err.Error(), fmt.Sprintf("column %q is a %s", name, want)) {
				t.Errorf("%s: %s: %v", file, name, err)
			}
		}
	}
}

// testFile is the content of a file of testdata.
func testFile(t testing.TB, name string) []byte {
	t.Helper()
	b, err := os.ReadFile(filepath.Join("testdata", name+".parquet"))
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// disk is a file system of some files.
func disk(t testing.TB, files map[string][]byte) *vfs.Mem {
	t.Helper()
	d := vfs.NewMem()
	for path, data := range files {
		if err := d.MkdirAll(filepath.Dir(path)); err != nil {
			t.Fatal(err)
		}
		f, err := d.Create(path)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := f.Write(data); err != nil {
			t.Fatal(err)
		}
		if err := f.Commit(); err != nil {
			t.Fatal(err)
		}
	}
	return d
}

// readAll reads all columns that can be read, within some memory.
func readAll(fsys vfs.FS, path string, memory int64) (map[string][]any, error) {
	table, err := Open(fsys, path, memory)
	if err != nil {
		return nil, err
	}
	out := map[string][]any{}
	for i := range table.Columns {
		c := &table.Columns[i]
		if c.Kind == Other {
			continue
		}
		if out[c.Name], err = column(table, c, 100, 0, len(table.Groups())); err != nil {
			return nil, err
		}
	}
	return out, nil
}

func TestNoFaultOfTheDiskIsBlamedOnAFile(t *testing.T) {
	files := disk(t, map[string][]byte{"/x/a.parquet": testFile(t, "pages"), "/x/b.parquet": testFile(t, "delta")})
	failed := 0
	for n := int64(1); ; n++ {
		faulty := vfs.NewFault(files)
		faulty.FailAt(n, syscall.EIO)
		_, err := readAll(faulty, "/x", 0)
		if err == nil {
			break
		}
		if failed++; errors.Is(err, ErrInvalid) || !errors.Is(err, syscall.EIO) {
			t.Fatalf("operation %d fails: %v", n, err)
		}
	}
	if failed < 10 {
		t.Errorf("reading failed %d times", failed)
	}
}

func TestAReaderOpensEachFileOnceAndItsBytesAreReadOnce(t *testing.T) {
	files := map[string][]byte{}
	bytes := 0
	for i := range 5 {
		files[fmt.Sprintf("/x/part-%d.parquet", i)] = testFile(t, "pages")
		bytes += len(testFile(t, "pages"))
	}
	count := vfs.NewPastCache(disk(t, files))
	table, err := Open(count, "/x", 0)
	if err != nil {
		t.Fatal(err)
	}
	r, err := table.Read(&table.Columns[0])
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	for g := range table.Groups() {
		for i := range table.Columns {
			if err := r.Restart(&table.Columns[i], g, g+1); err != nil {
				t.Fatal(err)
			}
			for err = nil; err != io.EOF; {
				if _, err = r.Next(100); err != nil && err != io.EOF {
					t.Fatal(err)
				}
			}
		}
	}
	if count.Opened() != 5+5 || count.Read().Bytes() > int64(bytes) || count.Read().Bytes() < int64(bytes)/2 {
		t.Errorf("%d files were opened and %d bytes of %d read", count.Opened(), count.Read().Bytes(), bytes)
	}
}

func TestAFileThatHasChangedSinceTheTableWasOpenedIsRefused(t *testing.T) {
	small, files := testFile(t, "small"), map[string][]byte{}
	for i := range 3 {
		files[fmt.Sprintf("/x/part-%d.parquet", i)] = small
	}
	d := disk(t, files)
	table, err := Open(d, "/x", 0)
	if err != nil {
		t.Fatal(err)
	}
	want := written(t)["small"]["text"]
	last := len(table.Groups()) - 1
	got, err := column(table, find(table, "text"), 100, last-2, last+1)
	if err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("%v, %v", got, err)
	}
	changed := "/x/part-2.parquet"
	f, err := d.Create(changed)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := f.Write(testFile(t, "small_v2")); err != nil {
		t.Fatal(err)
	}
	if err := f.Commit(); err != nil {
		t.Fatal(err)
	}
	if _, err := column(table, find(table, "text"), 100, last, last+1); !errors.Is(err, ErrInvalid) ||
		!strings.Contains(err.Error(), changed) {
		t.Errorf("a file that has changed: %v", err)
	}
}

func TestFilesOfOneSchemaKeepItOnce(t *testing.T) {
	var bytes []int64
	files := map[string][]byte{}
	for i := range 3 {
		files[fmt.Sprintf("/x/%d.parquet", i)] = testFile(t, "spark_v1")
		table, err := Open(disk(t, files), "/x", 0)
		if err != nil {
			t.Fatal(err)
		}
		bytes = append(bytes, table.Bytes())
	}
	if first, second := bytes[0], bytes[1]-bytes[0]; second < chunkBytes*15 || second > first/2 ||
		bytes[2]-bytes[1] != second {
		t.Errorf("one, two and three files take %d bytes", bytes)
	}
}

func TestFilesWithoutTheColumnAreNamed(t *testing.T) {
	d := disk(t, map[string][]byte{"/x/a.parquet": testFile(t, "delta"), "/x/b.parquet": testFile(t, "snappy_v1")})
	table, err := Open(d, "/x", 0)
	if err != nil {
		t.Fatal(err)
	}
	if got, err := column(table, find(table, "i64"), 100, 0, 2); err != nil || len(got) != 48 {
		t.Errorf("%d rows, %v", len(got), err)
	}
	if _, err := column(table, find(table, "f64"), 100, 0, 2); !errors.Is(err, ErrInvalid) ||
		!strings.Contains(err.Error(), `/x/b.parquet: no column "f64" of float64, as /x/a.parquet has`) {
		t.Error(err)
	}
}

func TestWhatIsNoTableIsNamed(t *testing.T) {
	small := testFile(t, "small")
	for name, c := range map[string]struct {
		data []byte
		say  string
	}{
		"nothing": {nil, "no Parquet file"},
		"text":    {bytes.Repeat([]byte("source,destination\n"), 10), "no Parquet file"},
		"another footer": {append(bytes.Clone(small[:1000]), "\xff\xff\xff\x7fPAR1"...),
			"metadata of 2147483647 bytes"},
		"encrypted": {append(bytes.Clone(small[:1000]), "PARE"...), "encrypted"},
		"cut off":   {small[:len(small)/2], "no Parquet file"},
	} {
		if _, err := readAll(disk(t, map[string][]byte{"/x.parquet": c.data}), "/x.parquet", 0); !errors.Is(err,
			ErrInvalid) || !strings.Contains(err.Error(), "/x.parquet: ") || !strings.Contains(err.Error(), c.say) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, err := Open(vfs.NewMem(), "/none.parquet", 0); !errors.Is(err, os.ErrNotExist) || errors.Is(err, ErrInvalid) {
		t.Errorf("no file: %v", err)
	}
}

func TestAReaderTakesNoMoreThanItsTableSays(t *testing.T) {
	for file := range written(t) {
		table, err := Open(vfs.OS(), filepath.Join("testdata", file+".parquet"), 0)
		if err != nil {
			t.Fatal(err)
		}
		for i := range table.Columns {
			c := &table.Columns[i]
			if c.Kind == Other {
				continue
			}
			r, err := table.Read(c)
			if err != nil {
				t.Fatal(err)
			}
			took := int64(0)
			for {
				cells, err := r.Next(100)
				if err == io.EOF {
					break
				}
				if err != nil {
					t.Fatalf("%s, column %s: %v", file, c.Name, err)
				}
				bytes := int64(cap(r.pages.buffer)+cap(r.pages.inflated)) + int64(len(cells.texts.bytes))
				if d := r.dict; d != nil {
					bytes += 8*int64(len(d.Ints)+len(d.Floats)+len(d.texts.ends)) + int64(len(d.texts.bytes))
				}
				took = max(took, bytes)
			}
			if declared := table.ReadBytes(c); took > declared {
				t.Errorf("%s, column %s: %d bytes, and %d are declared", file, c.Name, took, declared)
			}
			if err := r.Close(); err != nil {
				t.Error(err)
			}
		}
	}
}

// find returns the column with a name, in upper or lower case, or nil.
func find(t *Table, name string) *Column {
	i := slices.IndexFunc(t.Columns, func(c Column) bool { return strings.EqualFold(c.Name, name) })
	if i < 0 {
		return nil
	}
	return &t.Columns[i]
}
