package format

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"hash/crc32"
	"reflect"
	"strings"
	"testing"
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
	copy(b[digits:], hex32(crc32.Checksum(b, castagnoli)))
	return b
}

func TestManifestsAreReadAsWritten(t *testing.T) {
	for _, s := range samples() {
		m, b := manifestOf(t, s)
		again, err := decodeManifest(bytes.Clone(b))
		if err != nil {
			t.Fatalf("%s: %v", s.name, err)
		}
		if !reflect.DeepEqual(again, m) || !bytes.Equal(again.seal(), b) {
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
	newer := bytes.Replace(b, []byte(`"format": 1,`), []byte(`"format": 2, "new": [7],`), 1)
	if _, err := decodeManifest(newer); err == nil || errors.Is(err, ErrVersion) {
		t.Errorf("with a wrong checksum: %v", err)
	}
	if _, err := decodeManifest(reseal(newer)); !errors.Is(err, ErrVersion) || !strings.Contains(err.Error(), "2 (this program reads 1)") {
		t.Errorf("with a right checksum: %v", err)
	}
}

func TestManifestsWrittenOtherwiseAreRefused(t *testing.T) {
	_, b := manifestOf(t, tiny()[1])
	for name, change := range map[string][2]string{
		"another key":            {`"kind":`, `"sort":`},
		"one more key":           {`"kind":`, `"a": 1, "kind":`},
		"a key twice":            {`"kind":`, `"kind": "store",  "kind":`},
		"other spaces":           {`"kind": `, `"kind":  `},
		"other digits":           {`"chunk_rows": 2,`, `"chunk_rows": 2e0,`},
		"a fraction":             {`"chunk_rows": 2,`, `"chunk_rows": 2.5,`},
		"no input":               {`"input": {},`, `"input": null,`},
		"a zero that is implied": {`"row_set"`, `"split": 0, "row_set"`},
		"capital checksums":      {`"index_crc32c": "`, `"index_crc32c": "A`},
	} {
		changed := bytes.Replace(bytes.Clone(b), []byte(change[0]), []byte(change[1]), 1)
		if bytes.Equal(changed, b) {
			t.Fatalf("%s: nothing is changed", name)
		}
		if _, err := decodeManifest(reseal(changed)); err == nil {
			t.Errorf("%s: no error", name)
		}
	}
}

func TestManifestsThatContradictThemselvesAreRefused(t *testing.T) {
	file := func(m *Manifest, path string) *FileEntry {
		i, ok := m.find(path)
		if !ok {
			t.Fatalf("no %s", path)
		}
		return &m.Files[i]
	}
	for name, change := range map[string]func(m *Manifest){
		"another kind":               func(m *Manifest) { m.Kind = KindGraph },
		"no kind":                    func(m *Manifest) { m.Kind = "" },
		"nodes below zero":           func(m *Manifest) { m.Nodes = -1 },
		"too many nodes":             func(m *Manifest) { m.Nodes = 1 << 32 },
		"fewer nodes than rows":      func(m *Manifest) { m.Nodes = 4 },
		"too many edges":             func(m *Manifest) { m.Edges = 1 << 62 },
		"rows of another number":     func(m *Manifest) { m.Rows = 4 },
		"features below zero":        func(m *Manifest) { m.Features = -1 },
		"features beyond all":        func(m *Manifest) { m.Features = 1 << 62 },
		"an unknown type":            func(m *Manifest) { m.DType = "float64" },
		"integers":                   func(m *Manifest) { m.DType = "int32" },
		"a chunk of no rows":         func(m *Manifest) { m.ChunkRows = 0 },
		"chunks of another size":     func(m *Manifest) { m.ChunkRows = 1 },
		"huge chunks":                func(m *Manifest) { m.ChunkRows = 1 << 60 },
		"huge regions":               func(m *Manifest) { m.Regions[0].Rows = 1 << 62 },
		"overlapping regions":        func(m *Manifest) { m.Regions[1].FirstRow-- },
		"regions of another order":   func(m *Manifest) { m.Regions[0], m.Regions[1] = m.Regions[1], m.Regions[0] },
		"no regions":                 func(m *Manifest) { m.Regions = []Region{} },
		"more label columns":         func(m *Manifest) { m.Labels = 1 << 40 },
		"classes below zero":         func(m *Manifest) { m.Classes = -1 },
		"splits below zero":          func(m *Manifest) { m.Splits = -1 },
		"a path that goes up":        func(m *Manifest) { file(m, "rows/part-0.arrow").Path = "rows/../../part-0.arrow" },
		"an absolute path":           func(m *Manifest) { file(m, "rows/part-0.arrow").Path = "/rows/part-0.arrow" },
		"a part twice":               func(m *Manifest) { m.Files = append(m.Files, m.Files[len(m.Files)-1]) },
		"a part that does not start": func(m *Manifest) { file(m, "rows/part-0.arrow").Path = "rows/part-1.arrow" },
		"a topology in a store": func(m *Manifest) {
			m.Files = append(m.Files, FileEntry{Path: "topology/part-0.arrow", Size: 1, CRC32C: "00000000"})
		},
		"a missing hop": func(m *Manifest) { m.Operators[0].Hops = 2 },
		"more hops than files": func(m *Manifest) {
			for i := range 1000 {
				m.Operators = append(m.Operators, Operator{fmt.Sprintf("sym%d", i), MaxHops})
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
		if _, err := decodeManifest(m.seal()); err == nil || strings.Contains(err.Error(), "\n") {
			t.Errorf("%s: %v", name, err)
		}
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

func TestOperatorsHaveFoldersOfTheirOwn(t *testing.T) {
	seen := map[string]string{}
	for _, name := range []string{"sym", "sym:reverse", "ppr:alpha=0.15", "ppr:alpha=0-15", "heat:t=3:noloops", "rw_2", "a.b"} {
		folder := matrixFolder(MatrixID{name, 3})
		if before, taken := seen[folder]; taken {
			t.Errorf("%s and %s share %s", name, before, folder)
		}
		seen[folder] = name
		if got, k, ok := splitPart(partPath(folder, 12)); !ok || got != folder || k != 12 || strings.Contains(folder, ":") {
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
		if !bytes.Equal(m.seal(), b) {
			t.Error("another encoding is accepted")
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
