package npy

import (
	"archive/zip"
	"bytes"
	"errors"
	"io"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/hopfeed/hopfeed/internal/vfs"
)

// members gives the arrays that NumPy has written, by name.
func members(t testing.TB) map[string][]byte {
	t.Helper()
	z, err := zip.OpenReader("testdata/arrays.npz")
	if err != nil {
		t.Fatal(err)
	}
	defer z.Close()
	out := map[string][]byte{}
	for _, f := range z.File {
		r, err := f.Open()
		if err != nil {
			t.Fatal(err)
		}
		data, err := io.ReadAll(r)
		if err != nil {
			t.Fatal(err)
		}
		out[strings.TrimSuffix(f.Name, ".npy")] = data
	}
	return out
}

func file(t testing.TB, data []byte) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "a.npy")
	if err := os.WriteFile(path, data, 0o644); err != nil {
		t.Fatal(err)
	}
	return path
}

func openBytes(t testing.TB, data []byte) *Array {
	t.Helper()
	a, err := Open(vfs.OS(), file(t, data))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { a.Close() })
	return a
}

func TestEveryTypeAndOrderOfNumPyReadsAsTheSameRows(t *testing.T) {
	want := []float64{0, 1, 2, 3, 100, 127}
	tested := 0
	for name, data := range members(t) {
		if !strings.HasPrefix(name, "c_") && !strings.HasPrefix(name, "fortran_") &&
			!strings.HasPrefix(name, "version_") {
			continue
		}
		tested++
		a := openBytes(t, data)
		got := make([]float64, 6)
		if err := ReadRows(a, got, 0); err != nil {
			t.Fatal(err)
		}
		single := make([]float32, 3)
		if err := ReadRows(a, single, 1); err != nil {
			t.Fatal(err)
		}
		if !slices.Equal(got, want) || !slices.Equal(single, []float32{3, 100, 127}) {
			t.Errorf("%s: %v, second row %v", name, got, single)
		}
		if a.Fortran != strings.HasPrefix(name, "fortran_") {
			t.Errorf("%s: Fortran order is %v", name, a.Fortran)
		}
		if a.Type.IsInteger() {
			var ids [6]int64
			if err := Read(a, ids[:], 0); err != nil {
				t.Fatal(err)
			}
			if sum := ids[0] + ids[1] + ids[2] + ids[3] + ids[4] + ids[5]; sum != 233 {
				t.Errorf("%s: %v", name, ids)
			}
		}
	}
	if tested != 11*2*2+3 {
		t.Errorf("%d arrays were tested", tested)
	}
}

func TestStreamsGiveWhatPositionedReadsGive(t *testing.T) {
	for name, data := range members(t) {
		if strings.HasPrefix(name, "refused_") || strings.HasSuffix(name, "text") || name == "bytes" {
			continue
		}
		a := openBytes(t, data)
		want, got := make([]float64, a.Elements()), make([]float64, a.Elements())
		if err := Read(a, want, 0); err != nil {
			t.Fatal(err)
		}
		s, err := OpenStream(vfs.OS(), "testdata/arrays.npz", name)
		if err != nil {
			t.Fatal(err)
		}
		for i := range got { // in pieces
			if err := Next(s, got[i:i+1]); err != nil {
				t.Fatal(err)
			}
		}
		whole := make([]float64, a.Elements())
		if err := Next(a.Stream(), whole); err != nil {
			t.Fatal(err)
		}
		if !slices.Equal(got, want) || !slices.Equal(whole, want) {
			t.Errorf("%s: %v and %v, want %v", name, got, whole, want)
		}
		if err := Next(s, make([]float64, 1)); !errors.Is(err, ErrInvalid) {
			t.Errorf("%s: reading past the end: %v", name, err)
		}
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	}
}

func TestStoredAndDeflatedMembersRead(t *testing.T) {
	for _, path := range []string{"testdata/stored.npz", "testdata/deflated.npz"} {
		names, err := Members(vfs.OS(), path)
		if err != nil {
			t.Fatal(err)
		}
		s, err := OpenStream(vfs.OS(), path, "dense")
		if err != nil {
			t.Fatal(err)
		}
		got := make([]int64, 0)
		values := make([]float32, 12)
		if err := Next(s, values); err != nil {
			t.Fatal(err)
		}
		for _, v := range values {
			got = append(got, int64(v))
		}
		if !slices.Equal(got, []int64{0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11}) ||
			!slices.Contains(names, "dense") || slices.Contains(names, "other") {
			t.Errorf("%s: %v", path, got)
		}
		if _, err := OpenStream(vfs.OS(), path, "other"); !errors.Is(err, ErrInvalid) {
			t.Errorf("%s: a member that is not there: %v", path, err)
		}
		s.Close()
	}
}

func TestOfMembersOfOneNameTheLastIsRead(t *testing.T) {
	var data bytes.Buffer
	z := zip.NewWriter(&data)
	for _, v := range []byte{7, 8} {
		w, err := z.Create("dense.npy")
		if err == nil {
			_, err = w.Write(append(AppendHeader(nil, Uint8, 1, 1), v))
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	if err := z.Close(); err != nil {
		t.Fatal(err)
	}
	if got, err := readDense(vfs.OS(), file(t, data.Bytes())); err != nil || !slices.Equal(got, []float32{8}) {
		t.Errorf("%v, %v", got, err)
	}
}

func TestDamagedArchivesAreRefused(t *testing.T) {
	for _, path := range []string{"testdata/stored.npz", "testdata/deflated.npz"} {
		data, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		refused := 0
		for i := range data {
			damaged := slices.Clone(data)
			damaged[i] ^= 0x10
			values, err := readDense(inMemory(t, damaged), "a.npz")
			switch {
			case errors.Is(err, ErrInvalid):
				refused++
			case err != nil:
				t.Errorf("%s, byte %d: %v", path, i, err)
			case len(values) != 12 || values[11] != 11:
				t.Errorf("%s, byte %d: damage went unseen: %v", path, i, values)
			}
		}
		if refused < len(data)/2 {
			t.Errorf("%s: only %d of %d damages were seen", path, refused, len(data))
		}
		for n := range data {
			if _, err := readDense(inMemory(t, data[:n]), "a.npz"); !errors.Is(err, ErrInvalid) {
				t.Errorf("%s cut to %d bytes: %v", path, n, err)
			}
		}
	}
}

func TestDamageThatClosingFindsIsRefused(t *testing.T) {
	data, err := os.ReadFile("testdata/deflated.npz")
	if err != nil {
		t.Fatal(err)
	}
	refused := 0
	for i := range data {
		damaged := slices.Clone(data)
		damaged[i] ^= 0x10
		s, err := OpenStream(inMemory(t, damaged), "a.npz", "dense")
		if err != nil {
			continue
		}
		if err := s.Close(); errors.Is(err, ErrInvalid) {
			refused++
		} else if err != nil {
			t.Errorf("byte %d: %v", i, err)
		}
	}
	if refused == 0 {
		t.Error("closing found no damage")
	}
}

// inMemory is a disk with the file a.npz.
func inMemory(t testing.TB, data []byte) vfs.FS {
	t.Helper()
	disk := vfs.NewMem()
	f, err := disk.Create("a.npz")
	if err == nil {
		_, err = f.Write(data)
	}
	if err == nil {
		err = f.Commit()
	}
	if err != nil {
		t.Fatal(err)
	}
	return disk
}

func readDense(fsys vfs.FS, path string) ([]float32, error) {
	s, err := OpenStream(fsys, path, "dense")
	if err != nil {
		return nil, err
	}
	defer s.Close()
	if s.Elements() > 100 {
		return nil, nil
	}
	values := make([]float32, s.Elements())
	return values, Next(s, values)
}

func TestStringsRead(t *testing.T) {
	m := members(t)
	for name, want := range map[string][]string{
		"bytes":    {"a", "bcd", ""},
		"text":     {"a", "bcd", "", "ä€😀"},
		"big_text": {"a", "€"},
	} {
		got, err := openBytes(t, m[name]).Stream().Strings()
		if err != nil || !slices.Equal(got, want) {
			t.Errorf("%s: %q, %v", name, got, err)
		}
	}
	if _, err := openBytes(t, m["bool"]).Stream().Strings(); !errors.Is(err, ErrInvalid) {
		t.Errorf("numbers as strings: %v", err)
	}
	if err := Read(openBytes(t, m["text"]), make([]int64, 1), 0); !errors.Is(err, ErrInvalid) {
		t.Errorf("strings as numbers: %v", err)
	}
}

func TestElementsPrintInFull(t *testing.T) {
	a := openBytes(t, members(t)["huge_ids"])
	if got := a.Element(0) + " " + a.Element(1); got != "9223372036854775808 18446744073709551615" {
		t.Error(got)
	}
	var ids [2]int64
	if err := Read(a, ids[:], 0); err != nil || ids[0] >= 0 || ids[1] >= 0 {
		t.Errorf("%v, %v: ids beyond int64 must come out negative", ids, err)
	}
}

func TestWhatCannotBeReadIsRefusedByName(t *testing.T) {
	m := members(t)
	header := func(text string) []byte {
		return append([]byte{0x93, 'N', 'U', 'M', 'P', 'Y', 1, 0, byte(len(text)), byte(len(text) >> 8)}, text...)
	}
	long := openBytes(t, m["c_little_i4"])
	for _, c := range []struct {
		name string
		data []byte
		say  string
	}{
		{"pickled objects", m["refused_objects"], "pickled"},
		{"structured types", m["refused_structured"], "structured"},
		{"complex numbers", m["refused_complex"], "<c8"},
		{"dates", m["refused_dates"], "<M8[s]"},
		{"nothing", nil, "ends within"},
		{"something else", []byte("not an array at all"), "magic"},
		{"version 4", []byte("\x93NUMPY\x04\x00\x10\x00\x00\x00"), "version 4.0"},
		{"an endless header", []byte("\x93NUMPY\x02\x00\xff\xff\xff\xff"), "header of 4294967295 bytes"},
		{"a header cut off", m["c_little_i4"][:60], "ends within"},
		{"data cut off", m["c_little_i4"][:len(m["c_little_i4"])-1], "needs a file of 152 bytes, found 151"},
		{"data too long", append(slices.Clone(m["c_little_i4"]), 0), "needs a file of 152 bytes, found 153"},
		{"a key twice", header("{'descr': '<i4', 'descr': '<i4', 'shape': (1,)}"), "twice"},
		{"an unknown key", header("{'descr': '<i4', 'x': True, 'shape': (1,)}"), "unknown key"},
		{"a missing key", header("{'descr': '<i4', 'shape': (1,)}"), "missing"},
		{"a call", header("{'descr': '<i4', 'fortran_order': exit(), 'shape': (1,)}"), "no key, value and comma"},
		{"text behind", header("{'descr': '<i4', 'fortran_order': False, 'shape': (1,)} + 1"), "after the dictionary"},
		{"no tuple", header("{'descr': '<i4', 'fortran_order': False, 'shape': (1)}"), "no tuple"},
		{"a negative size", header("{'descr': '<i4', 'fortran_order': False, 'shape': (-1,)}"),
			"no key, value and comma"},
		{"a size beyond 64 bits", header("{'descr': '<i4', 'fortran_order': False, 'shape': (99999999999999999999,)}"),
			"unreadable size"},
		{"an array beyond 64 bits",
			header("{'descr': '<i4', 'fortran_order': False, 'shape': (4294967296, 4294967296, 0)}"), "too large"},
		{"many dimensions", header("{'descr': '<i4', 'fortran_order': False, 'shape': (" + strings.Repeat("1,",
			33) + ")}"), "dimensions"},
		{"an open string", header("{'descr: "), "no key, value and comma"},
		{"no comma", header("{'descr': '<i4' 'fortran_order': False, 'shape': (1,)}"), "no key, value and comma"},
	} {
		_, err := Open(vfs.OS(), file(t, c.data))
		if !errors.Is(err, ErrInvalid) || !strings.Contains(err.Error(), c.say) ||
			!strings.Contains(err.Error(), "a.npy") {
			t.Errorf("%s: %v", c.name, err)
		}
	}
	if err := Read(long, make([]int64, 7), 0); !errors.Is(err, ErrInvalid) {
		t.Errorf("more elements than there are: %v", err)
	}
	if _, err := Open(vfs.OS(), filepath.Join(t.TempDir(), "none.npy")); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("a file that is not there: %v", err)
	}
}

func TestAFileTruncatedWhileOpenIsRefused(t *testing.T) {
	path := file(t, members(t)["c_little_i8"])
	a, err := Open(vfs.OS(), path)
	if err != nil {
		t.Fatal(err)
	}
	defer a.Close()
	if err := os.Truncate(path, 140); err != nil {
		t.Fatal(err)
	}
	if err := Read(a, make([]int64, 6), 0); !errors.Is(err, ErrInvalid) ||
		!strings.Contains(err.Error(), "ends at byte 140") {
		t.Error(err)
	}
}

func TestRawArraysHaveTheSizeOfTheirShape(t *testing.T) {
	path := file(t, []byte{0x80, 0x3f, 0, 0, 0, 0xc0})
	if ok, err := HasHeader(vfs.OS(), path); ok || err != nil {
		t.Errorf("a raw file has a header: %v, %v", ok, err)
	}
	a, err := OpenRaw(vfs.OS(), path, BFloat16, 1, 3)
	if err != nil {
		t.Fatal(err)
	}
	defer a.Close()
	got := make([]float32, 3)
	if err := ReadRows(a, got, 0); err != nil || !slices.Equal(got, []float32{1, 0, -2}) {
		t.Errorf("%v, %v", got, err)
	}
	if _, err := OpenRaw(vfs.OS(), path, Float32, 2); !errors.Is(err, ErrInvalid) ||
		!strings.Contains(err.Error(), "needs a file of 8 bytes, found 6") {
		t.Error(err)
	}
	if _, err := OpenRaw(vfs.OS(), path, Float32, 1<<32, 1<<32); !errors.Is(err, ErrInvalid) ||
		!strings.Contains(err.Error(), "too large") {
		t.Error(err)
	}
}

func TestWrittenHeadersAreNumPysOwn(t *testing.T) {
	m := members(t)
	for name, got := range map[string][]byte{
		"c_little_i4": AppendHeader(nil, Int32, 1, 2, 3),
		"c_little_u1": AppendHeader(nil, Uint8, 1, 2, 3),
		"c_little_f2": AppendHeader(nil, Float16, 1, 2, 3),
		"huge_ids":    AppendHeader(nil, Uint64, 1, 2),
		"scalar":      AppendHeader(nil, Int64, 1),
		"text":        AppendHeader(nil, Text, 3, 4),
		"bytes":       AppendHeader(nil, Bytes, 3, 3),
	} {
		if want := m[name][:len(got)]; !bytes.Equal(got, want) {
			t.Errorf("%s: %q, want %q", name, got, want)
		}
	}
}

func TestReadsAcrossBlocksAreSeamless(t *testing.T) {
	const n = blockBytes/2 + 77 // 16-bit elements
	data := AppendHeader(nil, Uint16, 1, n)
	for i := range n {
		data = append(data, byte(i), byte(i>>8))
	}
	a := openBytes(t, data)
	got := make([]int64, n-5)
	if err := Read(a, got, 5); err != nil {
		t.Fatal(err)
	}
	for i, v := range got {
		if v != int64(uint16(i+5)) {
			t.Fatalf("element %d is %d", i+5, v)
		}
	}
}

func FuzzHeader(f *testing.F) {
	for _, data := range members(f) {
		f.Add(data[:min(len(data), 200)])
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		h, err := ReadHeader(bytes.NewReader(data))
		if err != nil {
			return
		}
		if h.Offset > int64(len(data)) || h.DataBytes() < 0 || h.DataBytes() > math.MaxInt64-h.Offset {
			t.Errorf("header of %d bytes, data of %d", h.Offset, h.DataBytes())
		}
		again, err := ReadHeader(bytes.NewReader(AppendHeader(nil, h.Type, h.Width, h.Shape...)))
		if len(h.Shape) < 8 && (err != nil || !slices.Equal(again.Shape, h.Shape) || again.Type != h.Type ||
			again.Width != h.Width) {
			t.Errorf("%+v was written as %+v, %v", h, again, err)
		}
	})
}

func FuzzArchive(f *testing.F) {
	for _, path := range []string{"testdata/stored.npz", "testdata/deflated.npz"} {
		data, err := os.ReadFile(path)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(data)
	}
	dir := f.TempDir()
	f.Fuzz(func(t *testing.T, data []byte) {
		path := filepath.Join(dir, "a.npz")
		if err := os.WriteFile(path, data, 0o644); err != nil {
			t.Fatal(err)
		}
		if _, err := readDense(vfs.OS(), path); err != nil && !errors.Is(err, ErrInvalid) {
			t.Errorf("%v is not ErrInvalid", err)
		}
	})
}
