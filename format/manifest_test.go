package format

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/hopfeed/hopfeed/internal/kernel"
)

// manifestOf is a manifest as published, with its bytes.
func manifestOf(t testing.TB, s sample) (*Manifest, []byte) {
	t.Helper()
	fsys, dir := s.mustWrite(t)
	m, err := readManifest(fsys, dir)
	if err != nil {
		t.Fatal(err)
	}
	b, err := readFile(fsys, dir+"/"+manifestName, sizeOf(t, fsys, dir+"/"+manifestName))
	if err != nil {
		t.Fatal(err)
	}
	return m, b
}

// reseal gives changed bytes of a manifest the checksum that they should have.
func reseal(b []byte) []byte {
	digits := len(b) - len("\"\n}\n") - 8
	copy(b[digits:], "00000000")
	copy(b[digits:], hex32(kernel.CRC32C(0, b)))
	return b
}

func TestManifestsAreReadAsWritten(t *testing.T) {
	for _, s := range samples() {
		m, b := manifestOf(t, s)
		again, err := decodeManifest(bytes.Clone(b))
		if err != nil {
			t.Fatalf("%s: %v", s.name, err)
		}
		if !reflect.DeepEqual(again, m) || !bytes.Equal(again.encodeWithChecksum(), b) {
			t.Errorf("%s: %+v became %+v", s.name, m, again)
		}
		var plain map[string]any
		if err := json.Unmarshal(b, &plain); err != nil || plain["kind"] != m.Kind {
			t.Errorf("%s: not plain JSON: %v", s.name, err)
		}
	}
}

func TestAnotherVersionIsNamedUnlessItIsDamage(t *testing.T) {
	_, b := manifestOf(t, tiny()[0])
	for version, says := range map[int]string{
		Version - 1: "earlier version of hopfeed (format 1; this one reads format 2): import or propagate again",
		Version + 1: "later version of hopfeed (format 3; this one reads format 2): use that version",
	} {
		other := bytes.Replace(b, []byte(`"format": 2,`), fmt.Appendf(nil, `"format": %d, "new": [7],`, version), 1)
		if _, err := decodeManifest(other); err == nil || errors.Is(err, ErrVersion) {
			t.Errorf("format %d with a wrong checksum: %v", version, err)
		}
		if _, err := decodeManifest(reseal(other)); !errors.Is(err, ErrVersion) ||
			!strings.Contains(err.Error(), says) {
			t.Errorf("format %d with a right checksum: %v", version, err)
		}
	}
}

// changed replaces the first of a text in a manifest.
func changed(t *testing.T, b []byte, from, to string) []byte {
	t.Helper()
	out := bytes.Replace(b, []byte(from), []byte(to), 1)
	if bytes.Equal(out, b) {
		t.Fatalf("nothing is %q", from)
	}
	return reseal(out)
}

func TestManifestsThatOthersWriteAreRead(t *testing.T) {
	want, b := manifestOf(t, tiny()[1])
	for name, change := range map[string][2]string{
		"other spaces":             {`"kind": `, "\"kind\"\t:\r\n  "},
		"another order":            {`"kind": "store",`, `"row_set": "labeled", "kind": "store",`},
		"other escapes":            {`"kind": "store"`, `"k\u0069nd": "\u0073tore"`},
		"a zero that is implied":   {`"row_set"`, `"split": 0, "row_set"`},
		"a field of a later time":  {`"nodes":`, `"later": {"a": [null, 1e99]}, "nodes":`},
		"one that differs by case": {`"nodes":`, `"Seed": 99, "Format": 9, "Requires": ["a"], "nodes":`},
		"one of a region":          {`"first_row":`, `"later": 1, "First_Row": 7, "first_row":`},
		"one of a file":            {`"path":`, `"later": {}, "SOURCE": "/etc/passwd", "path":`},
		"one of an operator":       {`"hops":`, `"later": "", "HOPS": 3, "hops":`},
	} {
		other := changed(t, b, change[0], change[1])
		if name == "another order" {
			first := bytes.Index(other, []byte(`"row_set"`)) + 1
			next := first + bytes.Index(other[first:], []byte(`"row_set": "labeled",`))
			other = reseal(slices.Concat(other[:next], other[next+len(`"row_set": "labeled",`):]))
		}
		m, err := decodeManifest(other)
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		if m.bytes != int64(len(other)) {
			t.Errorf("%s: %d bytes, want %d", name, m.bytes, len(other))
		}
		m.unknown, m.bytes, m.CRC32C = want.unknown, want.bytes, want.CRC32C
		if !reflect.DeepEqual(m, want) {
			t.Errorf("%s: read as %+v, want %+v", name, m, want)
		}
	}
}

func TestManifestsThatLackSomethingOrHaveItTwiceAreRefused(t *testing.T) {
	_, b := manifestOf(t, tiny()[1])
	for name, change := range map[string][2]string{
		`no "kind"`:                             {`"kind":`, `"sort":`},
		`no "format"`:                           {`"format": 2,`, `"Format": 2,`},
		`format: `:                              {`"format": 2,`, `"format": "2",`},
		`requires: `:                            {`"kind":`, `"requires": 1, "kind":`},
		`label_hops is 2`:                       {`"kind":`, `"label_hops": 2, "kind":`},
		`label_hops is 0`:                       {`"kind":`, `"requires": ["propagated_labels"], "kind":`},
		`label_hops is 0, with`:                 {`"name": "sym"`, `"name": "sym:labels"`},
		`no "nodes"`:                            {`"nodes":`, `"Nodes":`},
		`no "input"`:                            {`"input": {},`, `"input": null,`},
		`no "directed"`:                         {`"directed": false,`, ``},
		`files: entry 0: it has no "size"`:      {`"size":`, `"length":`},
		`tool: found number (want a string)`:    {`"tool": "`, `"tool": 1, "later": "`},
		`"kind" twice`:                          {`"kind":`, `"kind": "store", "kind":`},
		`regions: entry 0: it has "rows" twice`: {`"first_row":`, `"rows": 1, "first_row":`},
		`chunk_rows: found number 2e0`:          {`"chunk_rows": 2,`, `"chunk_rows": 2e0,`},
		`chunk_rows: found number 2.5 (want a whole number)`: {`"chunk_rows": 2,`, `"chunk_rows": 2.5,`},
		`is not a checksum`: {`"index_crc32c": "`, `"index_crc32c": "A`},
		`not valid UTF-8`:   {`"name": "`, "\"name\": \"\xff"},
	} {
		if _, err := decodeManifest(changed(t, b, change[0], change[1])); err == nil ||
			!strings.Contains(err.Error(), name) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, err := decodeManifest(reseal(append(bytes.TrimSuffix(bytes.Clone(b), []byte("\n}\n")),
		"\n} \n"...))); err == nil {
		t.Error("another end is accepted")
	}
}

func TestFeaturesThatAreRequiredAndUnknownAreNamed(t *testing.T) {
	_, b := manifestOf(t, tiny()[1])
	later := changed(t, b, `"kind":`, `"requires": ["sparse_hops"], "kind":`)
	if _, err := decodeManifest(later); !errors.Is(err, ErrVersion) ||
		!strings.Contains(err.Error(), `it requires "sparse_hops"`) {
		t.Errorf("a feature that nobody knows: %v", err)
	}
	known := knownRequirements
	knownRequirements = []string{"more", "sparse_hops"}
	defer func() { knownRequirements = known }()
	m, err := decodeManifest(later)
	if err != nil || len(m.Requires) != 1 {
		t.Errorf("a feature that is known: %v", err)
	}
	for _, list := range []string{`["sparse_hops", "more"]`, `["more", "more"]`} {
		if _, err := decodeManifest(changed(t, b, `"kind":`, `"requires": `+list+`, "kind":`)); err == nil ||
			!strings.Contains(err.Error(), "not in its place") {
			t.Errorf("%s: %v", list, err)
		}
	}
}

func TestUnknownFieldsOutliveGrowth(t *testing.T) {
	next := growing()
	before := next.without()
	disk, dir := before.mustWrite(t)
	path := dir + "/" + manifestName
	const licence = `"licence": {"name": "<CC-BY>", "years": [2024, 2.50]}`
	overwrite(t, disk, path, func(b []byte) []byte { return changed(t, b, `"nodes":`, licence+`, "nodes":`) })
	if r := verify(t, disk, dir); len(r.Bad) > 0 {
		t.Fatalf("found damaged: %v", r.Bad)
	}
	if err := next.extend(disk, dir, "j"); err != nil {
		t.Fatal(err)
	}
	if r := verify(t, disk, dir); len(r.Bad) > 0 {
		t.Fatalf("found damaged: %v", r.Bad)
	}
	b, err := readFile(disk, path, sizeOf(t, disk, path))
	if err != nil {
		t.Fatal(err)
	}
	var after bytes.Buffer
	if err := json.Compact(&after, b); err != nil || !strings.Contains(after.String(),
		strings.ReplaceAll(strings.ReplaceAll(licence, ": ", ":"), ", ", ",")+`,"crc32c":`) {
		t.Errorf("%v: %s", err, b)
	}
	want, _ := manifestOf(t, *next)
	if got, err := readManifest(disk, dir); err != nil || got.Fingerprint != want.Fingerprint {
		t.Errorf("an unknown field changes the fingerprint: %v", err)
	}
}

func TestManifestsThatContradictThemselvesAreRefused(t *testing.T) {
	file := func(m *Manifest, path string) *FileEntry {
		i, ok := m.findFile(path)
		if !ok {
			t.Fatalf("no %s", path)
		}
		return &m.Files[i]
	}
	for name, change := range map[string]func(m *Manifest){
		"another kind":             func(m *Manifest) { m.Kind = KindGraph },
		"no kind":                  func(m *Manifest) { m.Kind = "" },
		"nodes below zero":         func(m *Manifest) { m.Nodes = -1 },
		"too many nodes":           func(m *Manifest) { m.Nodes = 1 << 32 },
		"fewer nodes than rows":    func(m *Manifest) { m.Nodes = 4 },
		"too many edges":           func(m *Manifest) { m.Edges = 1 << 62 },
		"rows of another number":   func(m *Manifest) { m.Rows = 4 },
		"features below zero":      func(m *Manifest) { m.Features = -1 },
		"features beyond all":      func(m *Manifest) { m.Features = 1 << 62 },
		"an unknown type":          func(m *Manifest) { m.DType = "float64" },
		"integers":                 func(m *Manifest) { m.DType = "int32" },
		"a chunk of no rows":       func(m *Manifest) { m.ChunkRows = 0 },
		"chunks of another size":   func(m *Manifest) { m.ChunkRows = 1 },
		"huge chunks":              func(m *Manifest) { m.ChunkRows = 1 << 60 },
		"huge regions":             func(m *Manifest) { m.Regions[0].Rows = 1 << 62 },
		"overlapping regions":      func(m *Manifest) { m.Regions[1].FirstRow-- },
		"regions of another order": func(m *Manifest) { m.Regions[0], m.Regions[1] = m.Regions[1], m.Regions[0] },
		"no regions":               func(m *Manifest) { m.Regions = []Region{} },
		"more label columns":       func(m *Manifest) { m.Labels = 1 << 40 },
		"class names too few":      func(m *Manifest) { m.ClassNames = []string{"a"} },
		"a class name twice":       func(m *Manifest) { m.Classes, m.ClassNames = 2, []string{"a", "a"} },
		"a class without a name":   func(m *Manifest) { m.Classes, m.ClassNames = 2, []string{"a", ""} },
		"a class name without end": func(m *Manifest) {
			m.Classes, m.ClassNames = 1,
				[]string{strings.Repeat("a", MaxClassName+1)}
		},
		"values that are classes": func(m *Manifest) { m.LabelValues = true },
		"values without columns":  func(m *Manifest) { m.LabelValues, m.Labels, m.Classes = true, 0, 0 },
		"classes below zero":      func(m *Manifest) { m.Classes = -1 },
		"splits below zero":       func(m *Manifest) { m.Splits = -1 },
		"a path that goes up": func(m *Manifest) {
			file(m, PartPath("rows", 0)).Path = PartPath("rows/../..",
				0)
		},
		"an absolute path":           func(m *Manifest) { file(m, PartPath("rows", 0)).Path = PartPath("/rows", 0) },
		"a part twice":               func(m *Manifest) { m.Files = append(m.Files, m.Files[len(m.Files)-1]) },
		"a part that does not start": func(m *Manifest) { file(m, PartPath("rows", 0)).Path = PartPath("rows", 1) },
		"a topology in a store": func(m *Manifest) {
			m.Files = append(m.Files, FileEntry{Path: PartPath("topology", 0), Size: 1, CRC32C: "00000000"})
		},
		"a missing hop": func(m *Manifest) { m.Operators[0].Hops = 2 },
		"more hops than files": func(m *Manifest) {
			for i := range 1000 {
				m.Operators = append(m.Operators, Operator{Name: fmt.Sprintf("sym%d", i), Hops: MaxHops})
			}
		},
		"an operator x":            func(m *Manifest) { m.Operators[0].Name = "x" },
		"an operator with a slash": func(m *Manifest) { m.Operators[0].Name = "a/b" },
		"a size below zero":        func(m *Manifest) { m.Files[0].Size = -1 },
		"a checksum that is none":  func(m *Manifest) { m.Files[0].CRC32C = "0000000g" },
		"an index beyond all":      func(m *Manifest) { m.IndexSize = 1 << 62 },
	} {
		m, _ := manifestOf(t, tiny()[1])
		change(m)
		if _, err := decodeManifest(m.encodeWithChecksum()); err == nil || strings.Contains(err.Error(), "\n") {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestLabelsThatAreValuesMayBeMissingButNotInfinite(t *testing.T) {
	s := makeGraph("values", 5, 1, 2, Float32, false, columns{-2, 0, false})
	nan := float32(math.NaN())
	s.rows.LabelValues = []float32{1, nan, -2.5, 3e38, nan, nan, 0, 1, 2, 3}
	fsys, dir := s.mustWrite(t)
	d, err := OpenAny(fsys, dir)
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	rows, err := d.Rows(context.Background())
	if err != nil || fmt.Sprint(rows.LabelValues) != fmt.Sprint(s.rows.LabelValues) || rows.LabelColumns != 2 ||
		!d.Manifest.LabelValues || d.Manifest.Labels != 2 {
		t.Errorf("%+v, %v, %+v", rows, err, d.Manifest)
	}
	s.rows.LabelValues[6] = float32(math.Inf(-1))
	if _, err := s.rows.summarize(KindGraph, 5); err == nil || !strings.Contains(err.Error(), "row 3") {
		t.Errorf("an infinite value: %v", err)
	}
}

func TestClassNamesComeBackInOrder(t *testing.T) {
	s := tiny()[0]
	want := make([]string, s.manifest.Classes)
	for i := range want {
		want[i] = fmt.Sprintf("class <%d> ä", 9-i)
	}
	s.manifest.ClassNames = want
	if m, _ := manifestOf(t, s); !slices.Equal(m.ClassNames, want) {
		t.Errorf("%q", m.ClassNames)
	}
}

func TestFingerprintsFollowContentAlone(t *testing.T) {
	s := tiny()[1]
	base, _ := manifestOf(t, s)
	same := s
	same.manifest.Name, same.manifest.Input = "another", map[string]string{"path": "/elsewhere"}
	if m, _ := manifestOf(t, same); m.Fingerprint != base.Fingerprint || len(m.Fingerprint) != 64 {
		t.Errorf("name and input change the fingerprint")
	}
	other := tiny()[1]
	other.matrices[Input][0]++
	if m, _ := manifestOf(t, other); m.Fingerprint == base.Fingerprint {
		t.Errorf("features do not change the fingerprint")
	}
	other = tiny()[1]
	other.manifest.Edges++
	if m, _ := manifestOf(t, other); m.Fingerprint == base.Fingerprint {
		t.Errorf("edges do not change the fingerprint")
	}
}

// TestEveryFieldIsInTheFingerprintOrIsKnownNotToBe finds fields that were added and forgotten.
func TestEveryFieldIsInTheFingerprintOrIsKnownNotToBe(t *testing.T) {
	without := map[string]bool{"tool": true, "name": true, "input": true, "fingerprint": true, "index_size": true,
		"index_crc32c": true, "crc32c": true, "files.source": true}
	m, _ := manifestOf(t, tiny()[1])
	m.Columns = []Column{NewColumn(OfEdges, "edge_attr", Float32, 2)} // which only a graph has
	base := m.fingerprint(nil)
	seen := map[string]string{base: "the manifest as it is"}
	var visit func(path string, v reflect.Value)
	visit = func(path string, v reflect.Value) {
		for i := range v.NumField() {
			name, _, _ := strings.Cut(v.Type().Field(i).Tag.Get("json"), ",")
			field := v.Field(i)
			if name == "" {
				continue
			}
			name = path + name
			before := reflect.ValueOf(field.Interface())
			switch {
			case field.Kind() == reflect.Slice && field.Type().Elem().Kind() == reflect.Struct:
				visit(name+".", field.Index(0))
				field.Set(field.Slice(0, field.Len()-1))
			case field.Kind() == reflect.Slice:
				field.Set(reflect.ValueOf([]string{"feature"}))
			case field.Kind() == reflect.Map:
				field.Set(reflect.ValueOf(map[string]string{"a": "b"}))
			case field.CanInt():
				field.SetInt(field.Int() + 1)
			case field.CanUint():
				field.SetUint(field.Uint() + 1)
			case field.Kind() == reflect.Bool:
				field.SetBool(!field.Bool())
			default:
				field.SetString(field.String() + "1")
			}
			got := m.fingerprint(nil)
			field.Set(before)
			if without[name] != (got == base) {
				t.Errorf("%s: it changes the fingerprint: %v, want %v", name, got != base, !without[name])
			}
			if other := seen[got]; other != "" && !without[name] {
				t.Errorf("%s changes the fingerprint as %s does", name, other)
			}
			seen[got] = name
		}
	}
	visit("", reflect.ValueOf(m).Elem())
}

func TestOperatorsHaveFoldersOfTheirOwn(t *testing.T) {
	seen := map[string]string{}
	for _, name := range []string{"sym", "sym:reverse", "ppr:alpha=0.15", "ppr:alpha=0-15", "heat:t=3:noloops", "rw_2",
		"a.b"} {
		folder := MatrixFolder(MatrixID{name, 3})
		if before, taken := seen[folder]; taken {
			t.Errorf("%s and %s share %s", name, before, folder)
		}
		seen[folder] = name
		if got, k, ok := splitPart(PartPath(folder, 12)); !ok || got != folder || k != 12 ||
			strings.Contains(folder, ":") {
			t.Errorf("%s: %s, %d, %v", name, got, k, ok)
		}
	}
}

func FuzzManifest(f *testing.F) {
	for _, s := range append(tiny(), samples()...) {
		_, b := manifestOf(f, s)
		f.Add(b)
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		if len(b) > 16 {
			b = reseal(bytes.Clone(b)) // damage alone is found by the checksum
		}
		m, err := decodeManifest(b)
		if err != nil {
			if err.Error() == "" {
				t.Error("an error without words")
			}
			return
		}
		again, err := decodeManifest(m.encodeWithChecksum())
		if err != nil {
			t.Fatalf("written again it is %v", err)
		}
		if m.unknown, again.unknown = nil, nil; !reflect.DeepEqual(again, m) {
			t.Errorf("%+v became %+v", m, again)
		}
		for _, table := range m.tables() {
			for _, k := range []int{0, table.chunks / 2, table.chunks - 1} {
				if k >= 0 && k < table.chunks {
					if n, _ := table.dataBytes(k); n < 0 {
						t.Errorf("%s: chunk %d of %d bytes", table.folder, k, n)
					}
				}
			}
		}
	})
}
