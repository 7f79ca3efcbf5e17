package parquet

import (
	"cmp"
	"fmt"
	"net/url"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/hopfeed/hopfeed/internal/vfs"
)

// key is a value that all rows in a folder named key=value have.
type key struct {
	name, value string
	null        bool
}

// nullKey is the value that Hive and its followers write for null.
const nullKey = "__HIVE_DEFAULT_PARTITION__"

// tableLogs are folders of table formats that list the files of the current version of a table: files beside them may
// be of another version.
var tableLogs = map[string]string{"_delta_log": "Delta Lake", ".hoodie": "Hudi"}

// addFolder adds the files of a folder and of those named key=value within it.
func (t *Table) addFolder(fsys vfs.FS, path string, keys []key) error {
	if len(keys) > maxDepth {
		return fmt.Errorf("%w: %s: more than %d folders within one another", ErrInvalid, path, maxDepth)
	}
	entries, err := fsys.ReadDir(path)
	if err != nil {
		return err
	}
	names := make([]string, 0, len(entries))
	isDir := map[string]bool{}
	for _, e := range entries {
		name := e.Name()
		if kind := tableLogs[name]; kind != "" {
			return fmt.Errorf("%w: %s: a table of %s, whose log in %s says which files count; write it anew as "+
				"plain Parquet", ErrInvalid, path, kind, name)
		}
		if strings.HasPrefix(name, ".") || strings.HasPrefix(name, "_") {
			continue
		}
		info, err := fsys.Stat(filepath.Join(path, name)) // follows links
		if err != nil {
			return err
		}
		isDir[name] = info.IsDir()
		if info.IsDir() || strings.HasSuffix(name, ".parquet") {
			names = append(names, name)
		}
	}
	slices.SortFunc(names, compareNames)
	for _, name := range names {
		at := filepath.Join(path, name)
		if !isDir[name] {
			if err := t.add(fsys, at, keys); err != nil {
				return err
			}
			continue
		}
		k, ok := parseKey(name)
		if !ok {
			return fmt.Errorf("%w: %s: a folder in a table, whose name is not key=value; take it away, or its "+
				"files out of it", ErrInvalid, at)
		}
		if err := t.addFolder(fsys, at, append(slices.Clip(keys), k)); err != nil {
			return err
		}
	}
	return nil
}

func parseKey(name string) (k key, ok bool) {
	k.name, k.value, ok = strings.Cut(name, "=")
	for _, s := range []*string{&k.name, &k.value} {
		if plain, err := url.PathUnescape(*s); err == nil {
			*s = plain
		}
	}
	k.null = k.value == nullKey
	return k, ok && k.name != ""
}

// compareNames compares names, and runs of digits in them as numbers, so that part-2 comes before part-10.
func compareNames(a, b string) int {
	return cmp.Or(cmp.Compare(nameKey(a), nameKey(b)), cmp.Compare(a, b))
}

// nameKey is a name with the length of each number before its digits.
func nameKey(name string) string {
	return digits.ReplaceAllStringFunc(name, func(number string) string {
		number = strings.TrimLeft(number, "0")
		return "0" + string(rune(len(number))) + number
	})
}

var digits = regexp.MustCompile("[0-9]+")

// addKeys makes columns of the keys, which all files must have. If a key has the name of a column of the files, the
// column is used.
func (t *Table) addKeys() error {
	for i, k := range t.parts[0].keys {
		c := Column{Name: k.name, Kind: Integer, Type: "whole numbers in names of folders", Key: true, leaf: i}
		for _, p := range t.parts {
			if len(p.keys) != len(t.parts[0].keys) || p.keys[i].name != k.name {
				return fmt.Errorf("%w: %s: it is not in a folder %s=..., as %s is",
					ErrInvalid, p.path, k.name, t.parts[0].path)
			}
			v := p.keys[i]
			if n, err := strconv.ParseInt(v.value, 10, 64); !v.null &&
				(err != nil || strconv.FormatInt(n, 10) != v.value) {
				c.Kind, c.Type = Text, "text in names of folders"
			}
		}
		if !slices.ContainsFunc(t.parts[0].columns, func(f Column) bool { return f.Name == k.name }) {
			t.Columns = append(t.Columns, c)
		}
	}
	for _, p := range t.parts {
		if len(p.keys) > len(t.parts[0].keys) {
			return fmt.Errorf("%w: %s: it is in a folder %s=..., and %s is not", ErrInvalid, p.path,
				p.keys[len(t.parts[0].keys)].name, t.parts[0].path)
		}
	}
	return nil
}
