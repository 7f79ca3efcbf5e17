package format

import (
	"bytes"
	"context"
	"errors"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/hopfeed/hopfeed/internal/progress"
	"github.com/hopfeed/hopfeed/internal/vfs"
)

// writeExternal puts the features of a graph into files of their own, one for each number of rows, behind headers of
// 10 bytes, and refers to them. It returns the rows that check saw.
func (s *sample) writeExternal(fsys vfs.FS, dir, data string, rows ...int64) ([]byte, error) {
	if err := fsys.MkdirAll(data); err != nil {
		return nil, err
	}
	var files []SourceFile
	left := s.matrices[Input]
	for k, n := range rows {
		path := filepath.Join(data, string(rune('a'+k)))
		f, err := fsys.Create(path)
		if err != nil {
			return nil, err
		}
		bytes := n * s.layout.rowBytes()
		if _, err := f.Write(append([]byte("ten bytes!"), left[:bytes]...)); err != nil {
			return nil, err
		}
		if err := f.Commit(); err != nil {
			return nil, err
		}
		left = left[bytes:]
		files = append(files, SourceFile{path, 10, n})
	}
	w, err := Create(fsys, dir, s.layout, CreateOptions{})
	if err != nil {
		return nil, err
	}
	defer w.Abort()
	if err := errors.Join(w.Topology(s.topology), w.Rows(s.rows)); err != nil {
		return nil, err
	}
	var mu sync.Mutex
	seen := make([]byte, len(s.matrices[Input]))
	if err := w.UseSources(context.Background(), files, 2, func(firstRow int64, data []byte) error {
		mu.Lock()
		defer mu.Unlock()
		copy(seen[firstRow*s.layout.rowBytes():], data)
		return nil
	}); err != nil {
		return nil, err
	}
	m := s.manifest
	return seen, w.Publish(&m)
}

func externals() []sample {
	return []sample{
		makeGraph("float32", 23, 3, 4, Float32, true, columns{1, 1, true}),
		makeGraph("float16", 23, 5, 4, Float16, false, columns{0, 0, false}),
	}
}

func TestFeaturesLeftElsewhereAreReadAndChecked(t *testing.T) {
	for _, s := range externals() {
		for _, rows := range [][]int64{{23}, {8, 15}, {4, 4, 12, 3}} {
			fsys := vfs.NewMem()
			seen, err := s.writeExternal(fsys, "/all/graph", "/all/data", rows...)
			if err != nil {
				t.Fatal(err)
			}
			if !bytes.Equal(seen, s.matrices[Input]) {
				t.Errorf("%s: other rows were checked than are stored", s.name)
			}
			s.compare(t, fsys, "/all/graph")
			if r := verify(t, fsys, "/all/graph"); len(r.Bad) > 0 {
				t.Errorf("%s: found damaged: %v", s.name, r.Bad)
			}
			for _, path := range filesOf(t, fsys, "/all/graph") {
				if strings.Contains(path, "features") {
					t.Errorf("%s: features were copied to %s", s.name, path)
				}
			}
			d, err := OpenGraph(fsys, "/all/graph")
			if err != nil {
				t.Fatal(err)
			}
			entry := d.Manifest.Files[0]
			if entry.Path != PartPath("features/x/hop-0", 0) || entry.Source != "../data/a" || entry.Offset != 10 ||
				entry.Size != 10+rows[0]*s.layout.rowBytes() {
				t.Errorf("%s: the manifest has %+v", s.name, entry)
			}
			m, err := d.Matrix(Input)
			if err != nil {
				t.Fatal(err)
			}
			e := m.Extent(1)
			want := Extent{"/all/data/a", 1, 10 + 4*s.layout.rowBytes(), 4 * s.layout.rowBytes(), e.CRC32C}
			if len(rows) == 4 {
				want.File, want.Chunk, want.Offset = "/all/data/b", 0, 10
			}
			if e != want {
				t.Errorf("%s: chunk 1 is at %+v, want %+v", s.name, e, want)
			}
			if err := m.CheckChunk(1, s.matrices[Input][4*s.layout.rowBytes():8*s.layout.rowBytes()]); err != nil {
				t.Error(err)
			}
			d.Close()

			// What moves together stays together, and is the same.
			if err := fsys.Rename("/all", "/moved"); err != nil {
				t.Fatal(err)
			}
			s.compare(t, fsys, "/moved/graph")
			if r := verify(t, fsys, "/moved/graph"); len(r.Bad) > 0 {
				t.Errorf("%s: found damaged after moving: %v", s.name, r.Bad)
			}
			if _, err := s.writeExternal(fsys, "/moved/deep/er/graph", "/elsewhere", rows...); err != nil {
				t.Fatal(err)
			}
			other, err := OpenGraph(fsys, "/moved/deep/er/graph")
			if err != nil {
				t.Fatal(err)
			}
			if other.Manifest.Fingerprint != d.Manifest.Fingerprint {
				t.Errorf("%s: the fingerprint depends on where features are", s.name)
			}
		}
	}
}

func TestEveryFlippedBitOfFeaturesLeftElsewhereIsFound(t *testing.T) {
	s := externals()[0]
	fsys := vfs.NewMem()
	if _, err := s.writeExternal(fsys, "/graph", "/data", 8, 15); err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{"/graph/manifest.json", "/graph/index.arrow", "/data/a", "/data/b"} {
		for _, i := range telling(t, fsys, path) {
			bad := &damaged{FS: fsys, path: path, flip: i, bit: uint(i % 8), length: -1}
			r, err := Verify(context.Background(), bad, "/graph", 1, progress.Silent)
			if err != nil {
				t.Fatalf("byte %d of %s: %v", i, path, err)
			}
			if len(r.Bad) == 0 || r.Bad[0].File != path ||
				strings.Contains(r.Bad[0].Reason, "put it back") != strings.HasPrefix(path, "/data") {
				t.Fatalf("byte %d of %s: found %v", i, path, r.Bad)
			}
		}
	}
	rowBytes := s.layout.rowBytes()
	for at := int64(10); at < 10+15*rowBytes; at++ {
		d, err := OpenGraph(&damaged{FS: fsys, path: "/data/b", flip: at, length: -1}, "/graph")
		if err != nil {
			t.Fatal(err)
		}
		m, err := d.Matrix(Input)
		if err != nil {
			t.Fatal(err)
		}
		for k := range m.Chunks() {
			_, rows := m.ChunkRowRange(k)
			err := m.ReadChunk(k, make([]byte, int64(rows)*rowBytes))
			if hit := k == 2+int((at-10)/(4*rowBytes)); hit != errors.Is(err, ErrCorrupt) || hit &&
				!strings.HasPrefix(err.Error(), "/data/b: chunk ") {
				t.Fatalf("byte %d: chunk %d: %v", at, k, err)
			}
		}
		d.Close()
	}
}

func TestFeaturesThatAreNotWhereTheyWereAreNamed(t *testing.T) {
	s := externals()[0]
	fsys := vfs.NewMem()
	if _, err := s.writeExternal(fsys, "/graph", "/data", 23); err != nil {
		t.Fatal(err)
	}
	whole, err := readFile(fsys, "/data/a", sizeOf(t, fsys, "/data/a"))
	if err != nil {
		t.Fatal(err)
	}
	const todo = " (features were left in this file: put it back as it was, or import again)"
	for name, c := range map[string]struct {
		change func(clone *vfs.Mem) error
		reason string
	}{
		"missing": {func(clone *vfs.Mem) error { return clone.Remove("/data/a") }, "the file is missing"},
		"a folder": {func(clone *vfs.Mem) error {
			return errors.Join(clone.Remove("/data/a"), clone.MkdirAll("/data/a"))
		}, "it is not a regular file"},
		"shorter": {func(clone *vfs.Mem) error { put(t, clone, "/data/a", string(whole[1:])); return nil },
			"the file has 285 bytes, not the 286 that the manifest gives"},
		"longer": {func(clone *vfs.Mem) error { put(t, clone, "/data/a", string(whole)+"x"); return nil },
			"the file has 287 bytes, not the 286 that the manifest gives"},
	} {
		clone := fsys.CrashClone()
		if err := c.change(clone); err != nil {
			t.Fatal(err)
		}
		want := CorruptError{"/data/a", -1, c.reason + todo}
		var found *CorruptError
		if _, err := OpenGraph(clone, "/graph"); !errors.As(err, &found) || *found != want {
			t.Errorf("%s: %v", name, err)
		}
		if r := verify(t, clone, "/graph"); len(r.Bad) != 1 || r.Bad[0] != want {
			t.Errorf("%s: found %v", name, r.Bad)
		}
	}

	bad := &damaged{FS: fsys, path: "/data/a", flip: -1, length: -1, hidden: true}
	d, err := OpenGraph(bad, "/graph")
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	m, err := d.Matrix(Input)
	if err != nil {
		t.Fatal(err)
	}
	bad.length = 260
	if err := m.ReadChunk(5, make([]byte, 3*12)); !errors.Is(err, ErrCorrupt) ||
		err.Error() != "/data/a: chunk 5: corrupt: the file ends at byte 260"+todo {
		t.Errorf("cut off while open: %v", err)
	}

	if err := fsys.MkdirAll("/graph/features/x/hop-0"); err != nil {
		t.Fatal(err)
	}
	put(t, fsys, PartPath("/graph/features/x/hop-0", 0), string(whole))
	if r := verify(t, fsys, "/graph"); len(r.Bad) != 1 || r.Bad[0].File != PartPath("/graph/features/x/hop-0", 0) {
		t.Errorf("a file in the place of what is elsewhere: found %v", r.Bad)
	}
}

func TestAGraphBehindALinkFindsItsFeatures(t *testing.T) {
	s := externals()[0]
	root := t.TempDir()
	graph, data := filepath.Join(root, "graphs", "one"), filepath.Join(root, "data")
	if err := os.Mkdir(filepath.Dir(graph), 0o755); err != nil {
		t.Fatal(err)
	}
	if _, err := s.writeExternal(vfs.OS(), graph, data, 23); err != nil {
		t.Fatal(err)
	}
	link := filepath.Join(root, "link")
	if err := os.Symlink(graph, link); err != nil {
		t.Fatal(err)
	}
	s.compare(t, vfs.OS(), link)
}

func TestFeaturesThatCannotBeLeftElsewhereAreRefused(t *testing.T) {
	s := externals()[0]
	for name, c := range map[string]struct{ rows []int64 }{
		"a chunk over two files": {[]int64{7, 16}},
		"too few rows":           {[]int64{22}},
		"a file of no rows":      {[]int64{0, 23}},
		"nothing after the end":  {[]int64{23, 0}},
	} {
		fsys := vfs.NewMem()
		if _, err := s.writeExternal(fsys, "/graph", "/data", c.rows...); err == nil || errors.Is(err, ErrCorrupt) {
			t.Errorf("%s: %v", name, err)
		}
		if _, err := fsys.Stat("/graph"); err == nil {
			t.Errorf("%s: something is left", name)
		}
		if _, err := fsys.Stat("/data/a"); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	ctx, never := context.Background(), func(int64, []byte) error { return nil }
	fsys := vfs.NewMem()
	w, err := Create(fsys, "/graph", s.layout, CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if err := w.UseSources(ctx, []SourceFile{{"/none", 0, 23}}, 1, never); err == nil {
		t.Error("a file that is not there")
	}
	if err := w.UseSources(ctx, []SourceFile{{"/none", 0, 23}}, 1, never); err == nil {
		t.Error("features twice")
	}
	w.Abort()
	put(t, fsys, "/short", strings.Repeat("x", 23*12))
	for _, offset := range []int64{-1, 1, math.MaxInt64} {
		if w, err = Create(fsys, "/graph", s.layout, CreateOptions{}); err != nil {
			t.Fatal(err)
		}
		if err := w.UseSources(ctx, []SourceFile{{"/short", offset, 23}}, 1, never); err == nil {
			t.Errorf("rows from byte %d on", offset)
		}
		w.Abort()
	}
	if w, err = Create(fsys, "/graph", s.layout, CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	refused := errors.New("refused")
	if err := w.UseSources(ctx, []SourceFile{{"/short", 0, 23}}, 1, func(int64, []byte) error {
		return refused
	}); !errors.Is(err, refused) {
		t.Errorf("rows that are refused: %v", err)
	}
	w.Abort()
	store := tiny()[1]
	if w, err = Create(fsys, "/store", store.layout, CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	defer w.Abort()
	if err := w.UseSources(ctx, []SourceFile{{"/short", 0, 5}}, 1, never); err == nil {
		t.Error("features of a store")
	}
}

func TestSourcesThatContradictTheManifestAreRefused(t *testing.T) {
	for name, change := range map[string]func(m *Manifest){
		"an offset without a source": func(m *Manifest) { m.Files[0].Source = "" },
		"an offset below zero":       func(m *Manifest) { m.Files[0].Offset = -1 },
		"an offset beyond the end":   func(m *Manifest) { m.Files[0].Offset = m.Files[0].Size + 1 },
		"a name that is no text":     func(m *Manifest) { m.Files[0].Source = "a\xffb" },
		"a topology elsewhere":       func(m *Manifest) { m.Files[len(m.Files)-1].Source = "/data/a" },
	} {
		s := makeGraph("graph", 23, 3, 4, Float32, false, columns{})
		fsys := vfs.NewMem()
		if _, err := s.writeExternal(fsys, "/graph", "/data", 23); err != nil {
			t.Fatal(err)
		}
		m, err := readManifest(fsys, "/graph")
		if err != nil {
			t.Fatal(err)
		}
		if change(m); m.check() == nil {
			t.Error(name)
		}
	}
	s := externals()[0]
	fsys := vfs.NewMem()
	if _, err := s.writeExternal(fsys, "/graph", "/data", 8, 15); err != nil {
		t.Fatal(err)
	}
	m, err := readManifest(fsys, "/graph")
	if err != nil {
		t.Fatal(err)
	}
	index, err := readIndex(fsys, "/graph/"+indexName, m)
	if err != nil {
		t.Fatal(err)
	}
	for name, change := range map[string]func(r *indexRow){
		"a gap":      func(r *indexRow) { r.Offset++ },
		"an overlap": func(r *indexRow) { r.Offset-- },
	} {
		for i := range 5 { // of features; longer files have page-sized gaps
			rows := slices.Clone(index)
			change(&rows[i])
			b, err := encodeIndex(rows)
			if err != nil {
				t.Fatal(err)
			}
			if _, err := decodeIndex(b, m.Files); err == nil {
				t.Errorf("%s before extent %d", name, i)
			}
		}
	}
}
