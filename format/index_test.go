package format

import (
	"encoding/binary"
	"slices"
	"testing"

	"github.com/hopfeed/hopfeed/internal/arrowfile"
)

// indexOf is a published index with its manifest.
func indexOf(t testing.TB, s sample) (*Manifest, []indexRow) {
	t.Helper()
	fsys, dir := s.mustWrite(t)
	m, err := readManifest(fsys, dir)
	if err != nil {
		t.Fatal(err)
	}
	index, err := readIndex(fsys, dir+"/"+indexName, m)
	if err != nil {
		t.Fatal(err)
	}
	return m, index
}

func TestIndexesAreReadAsWritten(t *testing.T) {
	for _, s := range samples() {
		m, index := indexOf(t, s)
		b, err := encodeIndex(index)
		if err != nil {
			t.Fatal(err)
		}
		again, err := decodeIndex(b, m.Files)
		if err != nil || !slices.Equal(again, index) {
			t.Errorf("%s: %v became %v, %v", s.name, index, again, err)
		}
	}
}

func TestIndexesThatCannotBeAreRefused(t *testing.T) {
	for name, change := range map[string]func(index []indexRow) []indexRow{
		"a file beyond":      func(x []indexRow) []indexRow { x[len(x)-1].file = 99; return x },
		"files in disorder":  func(x []indexRow) []indexRow { slices.Reverse(x); return x },
		"a row twice":        func(x []indexRow) []indexRow { return slices.Insert(x, 0, x[0]) },
		"a missing row":      func(x []indexRow) []indexRow { return x[1:] },
		"a missing last row": func(x []indexRow) []indexRow { return x[:len(x)-1] },
		"no rows":            func(x []indexRow) []indexRow { return nil },
		"an odd offset":      func(x []indexRow) []indexRow { x[0].Offset++; return x },
		"an offset beyond":   func(x []indexRow) []indexRow { x[0].Offset = 1 << 40; return x },
		"an offset below":    func(x []indexRow) []indexRow { x[0].Offset = -4096; return x },
		"a length of zero":   func(x []indexRow) []indexRow { x[0].Length = 0; return x },
		"a length below":     func(x []indexRow) []indexRow { x[0].Length = -1; return x },
		"a length beyond":    func(x []indexRow) []indexRow { x[0].Length = 1 << 62; return x },
		"a shorter chunk":    func(x []indexRow) []indexRow { x[0].Length--; return x },
		"a longer chunk":     func(x []indexRow) []indexRow { x[0].Length++; return x },
	} {
		m, index := indexOf(t, tiny()[1])
		b, err := encodeIndex(change(index))
		if err != nil {
			t.Fatal(err)
		}
		if decoded, err := decodeIndex(b, m.Files); err == nil {
			if _, err := findParts(m, decoded); err == nil {
				t.Errorf("%s: no error", name)
			}
		}
	}
}

// FuzzIndex takes rows of an index, each of 24 bytes. (The Arrow file around them is fuzzed where it is read.)
func FuzzIndex(f *testing.F) {
	var manifests []*Manifest
	for i, s := range append(tiny(), samples()...) {
		m, index := indexOf(f, s)
		var b []byte
		for _, r := range index {
			b = binary.LittleEndian.AppendUint32(b, r.file)
			b = binary.LittleEndian.AppendUint32(b, r.CRC32C)
			b = binary.LittleEndian.AppendUint64(b, uint64(r.Offset))
			b = binary.LittleEndian.AppendUint64(b, uint64(r.Length))
		}
		manifests = append(manifests, m)
		f.Add(b, uint8(i))
	}
	f.Fuzz(func(t *testing.T, b []byte, i uint8) {
		m := manifests[int(i)%len(manifests)]
		var rows []indexRow
		for ; len(b) >= 24; b = b[24:] {
			rows = append(rows, indexRow{binary.LittleEndian.Uint32(b),
				arrowfile.Extent{CRC32C: binary.LittleEndian.Uint32(b[4:]),
					Offset: int64(binary.LittleEndian.Uint64(b[8:])),
					Length: int64(binary.LittleEndian.Uint64(b[16:]))}})
		}
		encoded, err := encodeIndex(rows)
		if err != nil {
			t.Fatal(err)
		}
		index, err := decodeIndex(encoded, m.Files)
		if err != nil {
			return
		}
		for _, r := range index {
			if size := m.Files[r.file].Size; r.Offset < 0 || r.Length <= 0 || r.Offset+r.Length > size {
				t.Fatalf("%+v in a file of %d bytes", r, size)
			}
		}
		tables, err := findParts(m, index)
		if err != nil {
			return
		}
		for _, table := range tables {
			for k := range table.chunks {
				p := table.parts[table.partOf(k)]
				if k < p.firstChunk || k >= p.firstChunk+p.chunks() ||
					p.extentStarts[k-p.firstChunk] >= p.extentStarts[k-p.firstChunk+1] {
					t.Fatalf("%s: chunk %d is in the wrong part", table.folder, k)
				}
			}
		}
	})
}
