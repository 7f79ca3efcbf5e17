package parquet

import (
	"errors"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/hopfeed/hopfeed/internal/vfs"
)

func TestTheFilesOfAFolderComeInTheOrderOfTheirNames(t *testing.T) {
	names := []string{"a", "a-1", "a-2", "a-10", "a-010b", "a-b", "b", "part.0.parquet", "part.1.parquet",
		"part.10.parquet", "part-00002", "part-00010"}
	sorted := slices.Clone(names)
	slices.SortFunc(sorted, compareNames)
	want := []string{"a", "a-1", "a-2", "a-10", "a-010b", "a-b", "b", "part-00002", "part-00010", "part.0.parquet",
		"part.1.parquet", "part.10.parquet"}
	if !slices.Equal(sorted, want) {
		t.Errorf("%v", sorted)
	}
	for _, a := range names {
		for _, b := range names {
			if c := compareNames(a, b); c != -compareNames(b, a) || (c == 0) != (a == b) {
				t.Errorf("%s and %s: %d", a, b, c)
			}
		}
	}
	d := disk(t, map[string][]byte{
		"/x/part-10.zstd.parquet": testFile(t, "small_v2"), "/x/part-9.parquet": testFile(t, "none_v1"),
		"/x/_metadata.parquet": {1}, "/x/.hidden.parquet": {1}, "/x/_SUCCESS": nil, "/x/notes.txt": {1},
		"/x/_temporary/a.parquet": {1},
	})
	table, err := Open(d, "/x", 0)
	if err != nil {
		t.Fatal(err)
	}
	files := written(t)
	want2 := slices.Concat(files["none_v1"]["text"], files["small_v2"]["text"])
	if got, err := column(table, find(table, "text"), 9, 0, 2); err != nil || !reflect.DeepEqual(got, want2) {
		t.Errorf("%v, %v", got, err)
	}
	for row, place := range map[int64]string{0: "/x/part-9.parquet: row 0", 23: "/x/part-9.parquet: row 23",
		24: "/x/part-10.zstd.parquet: row 0", 35: "/x/part-10.zstd.parquet: row 11"} {
		if got := table.Place(row); got != place {
			t.Errorf("row %d is %s", row, got)
		}
	}
}

func TestNamesOfFoldersAreColumns(t *testing.T) {
	small, want := testFile(t, "small"), written(t)["small"]["i32"]
	d := disk(t, map[string][]byte{
		"/x/split=train/year=2020/a.parquet": small, "/x/split=train/year=9/a.parquet": small,
		"/x/split=a%2Fb/year=-1/a.parquet": small, "/x/split=__HIVE_DEFAULT_PARTITION__/year=1/a.parquet": small,
	})
	table, err := Open(d, "/x", 0)
	if err != nil {
		t.Fatal(err)
	}
	split, year := find(table, "split"), find(table, "year")
	if split == nil || year == nil || split.Kind != Text || year.Kind != Integer || !split.Key || !year.Key {
		t.Fatalf("%+v, %+v", split, year)
	}
	repeat := func(values ...any) (out []any) {
		for _, v := range values {
			out = append(out, slices.Repeat([]any{v}, 12)...)
		}
		return out
	}
	for _, n := range []int{1, 5, 100} {
		for c, want := range map[*Column][]any{split: repeat(nil, "a/b", "train", "train"),
			year: repeat("1", "-1", "9", "2020"), find(table, "i32"): slices.Concat(want, want, want, want)} {
			if got, err := column(table, c, n, 0, len(table.Groups())); err != nil || !reflect.DeepEqual(got, want) {
				t.Errorf("%s, %d at a time: %v, %v", c.Name, n, got, err)
			}
		}
	}
	own, err := Open(disk(t, map[string][]byte{"/x/i32=7/a.parquet": small}), "/x", 0)
	if err != nil {
		t.Fatal(err)
	}
	if c := find(own, "i32"); c.Key {
		t.Error("a column of the file does not go before a key of its name")
	}
}

func TestFoldersThatAreNoTableAreRefused(t *testing.T) {
	small := testFile(t, "small")
	for name, c := range map[string]struct {
		files map[string][]byte
		say   string
	}{
		"an empty folder": {map[string][]byte{"/x/notes.txt": nil}, "without .parquet files"},
		"another folder": {map[string][]byte{"/x/a.parquet": small, "/x/more/b.parquet": small},
			"/x/more: a folder"},
		"a log of versions": {map[string][]byte{"/x/a.parquet": small, "/x/_delta_log/0.json": nil}, "Delta Lake"},
		"a key beside none": {map[string][]byte{"/x/a.parquet": small, "/x/k=1/b.parquet": small}, "/x/k=1/b.parquet"},
		"other keys": {map[string][]byte{"/x/k=1/b.parquet": small, "/x/l=1/b.parquet": small},
			"/x/l=1/b.parquet"},
		"fewer keys": {map[string][]byte{"/x/k=1/b.parquet": small, "/x/k=2/l=1/b.parquet": small},
			"/x/k=2/l=1/b.parquet"},
		"too many folders": {map[string][]byte{"/x" + strings.Repeat("/k=1", 40) + "/b.parquet": small}, "32 folders"},
	} {
		if _, err := Open(disk(t, c.files), "/x", 0); !errors.Is(err, ErrInvalid) ||
			!strings.Contains(err.Error(), c.say) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, err := Open(vfs.NewMem(), "/x", 0); err == nil || errors.Is(err, ErrInvalid) {
		t.Errorf("no folder: %v", err)
	}
}
