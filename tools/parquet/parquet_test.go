package parquet

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/hopfeed/hopfeed/internal/vfs"
)

// cell is a value with what is said of it.
type cell struct {
	starts, null bool
	value        any
}

// readColumn reads a column, n cells at a time.
func readColumn(t *Table, name string, n int) (out []cell, err error) {
	c := t.Find(name)
	if c == nil {
		return nil, fmt.Errorf("no column %s", name)
	}
	r, err := t.Read(c)
	if err != nil {
		return nil, err
	}
	defer r.Close()
	for {
		cells, err := r.Next(n)
		if err == io.EOF {
			return out, nil
		}
		if err != nil {
			return out, err
		}
		for i := range cells.N {
			v := cell{starts: cells.Starts == nil || cells.Starts[i], null: cells.Null[i]}
			switch {
			case v.null:
			case c.Kind == Text:
				v.value = string(cells.Text(i, nil))
			case c.Kind == Float:
				v.value = cells.Number(i)
			default:
				v.value = string(cells.Text(i, make([]byte, 3)))
			}
			out = append(out, v)
		}
	}
}

// wanted are the columns of testdata/make.py.
func wanted() map[string][]cell {
	out := map[string][]cell{}
	for i := range 40 {
		f := float64(i)
		put := func(name string, v any) { out[name] = append(out[name], cell{true, false, v}) }
		put("i8", fmt.Sprint(i-20))
		put("i16", fmt.Sprint(100*(i-20)))
		put("i32", fmt.Sprint(1_000_000*(i-20)))
		put("i64", fmt.Sprint(1_000_000_000_000*(i-20)))
		put("u8", fmt.Sprint(6*i))
		put("u16", fmt.Sprint(1600*i))
		put("u32", fmt.Sprint(math.MaxUint32-i))
		put("u64", fmt.Sprint(math.MaxUint64-uint64(i)))
		put("f16", f/8)
		put("f32", f/4)
		put("f64", f/3)
		put("bool", map[bool]string{true: "1", false: "0"}[i%3 == 0])
		put("text", fmt.Sprintf("t%d", i%5))
		put("names", fmt.Sprintf("t%d", i%5))
		put("binary", strings.Repeat("\xff", i%3))
		if i%4 == 1 {
			out["nulls"] = append(out["nulls"], cell{true, true, nil})
		} else {
			put("nulls", fmt.Sprint(i))
		}
		if i%7 == 3 || i%4 == 0 {
			out["list"] = append(out["list"], cell{true, true, nil})
		} else {
			for j := range i % 4 {
				c := cell{j == 0, j == 2, f + float64(j)/4}
				if c.null {
					c.value = nil
				}
				out["list"] = append(out["list"], c)
			}
		}
		out["fixed"] = append(out["fixed"], cell{true, false, 2 * f}, cell{false, false, 2*f + 1})
	}
	return out
}

func TestEveryTypeIsReadInEveryEncoding(t *testing.T) {
	for _, name := range []string{"snappy", "plain", "zstd", "gzip", "pages", "lz4", "split"} {
		table, err := Open(vfs.OS(), filepath.Join("testdata", name+".parquet"))
		if err != nil {
			t.Fatal(err)
		}
		if table.Rows != 40 {
			t.Errorf("%s: %d rows", name, table.Rows)
		}
		for column, want := range wanted() {
			for _, n := range []int{1, 7, 1000} {
				got, err := readColumn(table, column, n)
				if err != nil || !slices.Equal(got, want) {
					t.Errorf("%s: %s, %d at a time: %v, %v; want %v", name, column, n, got, err, want)
				}
			}
		}
		for column, what := range map[string]string{"date": "date", "time": "timestamp", "decimal": "decimal", "struct": "structure", "lists": "list of lists"} {
			if _, err := readColumn(table, column, 1); !errors.Is(err, ErrInvalid) || !strings.Contains(err.Error(), what) {
				t.Errorf("%s: %s: %v", name, column, err)
			}
		}
		if table.Find("I8", "i16").Name != "i8" || table.Find("none") != nil {
			t.Errorf("%s: columns are not found by name", name)
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

func put(t testing.TB, disk vfs.FS, path string, data []byte) {
	t.Helper()
	f, err := disk.Create(path)
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

func TestATableWithoutRowsHasNoCells(t *testing.T) {
	disk := vfs.NewMem()
	put(t, disk, "/empty.parquet", testFile(t, "empty"))
	table, err := Open(disk, "/empty.parquet")
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"i32", "text", "nulls", "list"} {
		if cells, err := readColumn(table, name, 5); err != nil || len(cells) > 0 || table.Rows != 0 {
			t.Errorf("%s: %v, %v of %d rows", name, cells, err, table.Rows)
		}
	}
}

func TestTheFilesOfAFolderAreOneTable(t *testing.T) {
	disk := vfs.NewMem()
	if err := disk.MkdirAll("/table.parquet"); err != nil {
		t.Fatal(err)
	}
	if _, err := Open(disk, "/table.parquet"); !errors.Is(err, ErrInvalid) {
		t.Errorf("an empty folder: %v", err)
	}
	for _, name := range []string{"part-1.zstd.parquet", "part-0.parquet", "_metadata.parquet", ".hidden.parquet", "_SUCCESS"} {
		put(t, disk, "/table.parquet/"+name, testFile(t, map[bool]string{true: "zstd", false: "plain"}[strings.Contains(name, "zstd")]))
	}
	table, err := Open(disk, "/table.parquet")
	if err != nil {
		t.Fatal(err)
	}
	for column, want := range wanted() {
		got, err := readColumn(table, column, 9)
		if err != nil || !slices.Equal(got, slices.Concat(want, want)) {
			t.Errorf("%s: %v, %v", column, got, err)
		}
	}
	put(t, disk, "/table.parquet/part-2.parquet", testFile(t, "small"))
	if table, err = Open(disk, "/table.parquet"); err != nil {
		t.Fatal(err)
	}
	if _, err := readColumn(table, "u8", 9); !errors.Is(err, ErrInvalid) || !strings.Contains(err.Error(), "/table.parquet/part-2.parquet: no column \"u8\"") {
		t.Errorf("a file without the column: %v", err)
	}
	put(t, disk, "/table.parquet/part-2.parquet", testFile(t, "plain"))
	if _, err := readColumn(table, "u8", 9); !errors.Is(err, ErrInvalid) {
		t.Errorf("a file that has changed: %v", err)
	}
}

func TestWhatCannotBeReadIsNamed(t *testing.T) {
	disk := vfs.NewMem()
	for name, c := range map[string]struct {
		data []byte
		say  string
	}{
		"nothing":         {nil, "no Parquet file"},
		"text":            {bytes.Repeat([]byte("source,destination\n"), 10), "no Parquet file"},
		"another footer":  {append(testFile(t, "small")[:1000], "\xff\xff\xff\x7fPAR1"...), "metadata of 2147483647 bytes"},
		"encrypted":       {append(testFile(t, "small")[:1000], "PARE"...), "encrypted"},
		"brotli":          {testFile(t, "brotli"), "brotli"},
		"delta encodings": {testFile(t, "delta"), "encoding delta_binary_packed"},
	} {
		put(t, disk, "/x.parquet", c.data)
		table, err := Open(disk, "/x.parquet")
		if err == nil {
			_, err = readColumn(table, table.Columns[0].Name, 10)
		}
		if !errors.Is(err, ErrInvalid) || !strings.Contains(err.Error(), "/x.parquet: ") || !strings.Contains(err.Error(), c.say) || strings.Contains(err.Error(), "\n") {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, err := Open(disk, "/none.parquet"); !errors.Is(err, os.ErrNotExist) || errors.Is(err, ErrInvalid) {
		t.Errorf("no file: %v", err)
	}
	put(t, disk, "/x.parquet", testFile(t, "plain"))
	opened := 0
	for fail := int64(1); ; fail++ {
		faulty := vfs.NewFault(disk)
		faulty.FailAt(fail, syscall.EIO)
		table, err := Open(faulty, "/x.parquet")
		if err == nil {
			opened++
			_, err = readColumn(table, "text", 10)
		}
		if err == nil {
			break
		}
		if errors.Is(err, ErrInvalid) || !errors.Is(err, syscall.EIO) {
			t.Fatalf("operation %d fails: %v", fail, err)
		}
	}
	if opened < 3 {
		t.Errorf("reading failed %d times", opened)
	}
}

// readAll reads all columns that can be read.
func readAll(disk vfs.FS, path string) error {
	table, err := Open(disk, path)
	if err != nil {
		return err
	}
	for _, c := range table.Columns {
		if c.Kind == Other {
			continue
		}
		r, err := table.Read(&c)
		if err != nil {
			return err
		}
		for cells := 0; cells < 1<<16 && err == nil; cells += 1 << 10 { // a changed byte may make billions of them
			_, err = r.Next(1 << 10)
		}
		r.Close()
		if err != nil && err != io.EOF {
			return err
		}
	}
	return nil
}

func TestAnyChangedByteIsReadOrRefused(t *testing.T) {
	for _, name := range []string{"small", "small_v2", "delta"} {
		whole := testFile(t, name)
		disk := vfs.NewMem()
		for i := range whole {
			for _, change := range []byte{1, 0x80, 0xff} {
				changed := bytes.Clone(whole)
				changed[i] ^= change
				put(t, disk, "/x.parquet", changed)
				if err := readAll(disk, "/x.parquet"); err != nil && !errors.Is(err, ErrInvalid) {
					t.Fatalf("%s: byte %d: %v", name, i, err)
				}
			}
			put(t, disk, "/x.parquet", whole[:i])
			if err := readAll(disk, "/x.parquet"); !errors.Is(err, ErrInvalid) {
				t.Fatalf("%s: cut off at byte %d: %v", name, i, err)
			}
		}
	}
}

func FuzzTable(f *testing.F) {
	for _, name := range []string{"small", "small_v2", "delta", "split", "gzip", "snappy"} {
		f.Add(testFile(f, name))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		disk := vfs.NewMem()
		put(t, disk, "/x.parquet", b)
		if err := readAll(disk, "/x.parquet"); err != nil && (!errors.Is(err, ErrInvalid) || strings.Contains(err.Error(), "\n")) {
			t.Error(err)
		}
	})
}
