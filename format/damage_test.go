package format

import (
	"bytes"
	"context"
	"errors"
	"io"
	"io/fs"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/hopfeed/hopfeed/internal/dtype"
	"github.com/hopfeed/hopfeed/internal/progress"
	"github.com/hopfeed/hopfeed/internal/vfs"
)

// damaged is a disk with one damaged file.
type damaged struct {
	vfs.FS
	path   string
	flip   int64 // byte with a wrong bit, or -1
	bit    uint
	length int64 // of the file, or -1: as it is
	hidden bool  // Stat and Size tell nothing of the length
	// passing tells that the wrong bit is in a cache, which drops it when it is doubted.
	passing bool
}

type damagedFile struct {
	vfs.File
	d *damaged
}

type shorterInfo struct {
	fs.FileInfo
	size int64
}

func (i shorterInfo) Size() int64 { return i.size }

func (d *damaged) Stat(path string) (fs.FileInfo, error) {
	info, err := d.FS.Stat(path)
	if err == nil && path == d.path && d.length >= 0 && !d.hidden {
		info = shorterInfo{info, d.length}
	}
	return info, err
}

func (d *damaged) Open(path string) (vfs.File, error) {
	f, err := d.FS.Open(path)
	if err == nil && path == d.path {
		f = &damagedFile{f, d}
	}
	return f, err
}

func (f *damagedFile) ReadAt(p []byte, off int64) (int, error) {
	if f.d.length >= 0 && off+int64(len(p)) > f.d.length {
		p = p[:max(0, f.d.length-off)]
		n, _ := f.File.ReadAt(p, off)
		return n, io.EOF
	}
	n, err := f.File.ReadAt(p, off)
	if at := f.d.flip - off; f.d.flip >= 0 && at >= 0 && at < int64(n) {
		p[at] ^= 1 << f.d.bit
	}
	return n, err
}

func (f *damagedFile) Doubt(off, bytes int64) bool {
	if f.d.passing && off <= f.d.flip && f.d.flip < off+bytes {
		f.d.flip = -1
	}
	return f.d.passing
}

// filesOf lists all files below a directory.
func filesOf(t testing.TB, fsys vfs.FS, dir string) []string {
	t.Helper()
	found, err := listContents(fsys, dir)
	if err != nil {
		t.Fatal(err)
	}
	var out []string
	for _, path := range slices.Concat(found.files, found.foreign) {
		out = append(out, filepath.Join(dir, filepath.FromSlash(path)))
	}
	return out
}

func sizeOf(t testing.TB, fsys vfs.FS, path string) int64 {
	t.Helper()
	info, err := fsys.Stat(path)
	if err != nil {
		t.Fatal(err)
	}
	return info.Size()
}

// tiny are a graph and a store with as few bytes as can be.
func tiny() []sample {
	return []sample{
		makeGraph("graph", 5, 2, 3, Float32, true, columns{1, 1, true}),
		makeStore("store", [4]int64{2, 1, 1, 1}, 2, 2, Float16, columns{1, 1, true}, Operator{Name: "sym", Hops: 1}),
	}
}

// telling are the positions of a file that differ in what they mean: all of them,
// but of long runs of zeros only the ends and a few between.
func telling(t testing.TB, fsys vfs.FS, path string) []int64 {
	t.Helper()
	b, err := readFile(fsys, path, sizeOf(t, fsys, path))
	if err != nil {
		t.Fatal(err)
	}
	var out []int64
	for i := 0; i < len(b); {
		end := i + 1
		if b[i] == 0 {
			for end < len(b) && b[end] == 0 {
				end++
			}
		}
		for k := i; k < end; k++ {
			if end-i < 16 || k == i || k == end-1 || k%1021 == 0 {
				out = append(out, int64(k))
			}
		}
		i = end
	}
	return out
}

func TestEveryFlippedBitIsFound(t *testing.T) {
	for _, s := range tiny() {
		fsys, dir := s.mustWrite(t)
		for _, path := range filesOf(t, fsys, dir) {
			list := path == filepath.Join(dir, manifestName) || path == filepath.Join(dir, indexName)
			for at, i := range telling(t, fsys, path) {
				// Verify reads these two files as OpenAny does, for which the next test flips every byte.
				if list && at%8 > 0 {
					continue
				}
				bad := &damaged{FS: fsys, path: path, flip: i, bit: uint(i % 8), length: -1}
				r, err := Verify(context.Background(), bad, dir, 1, progress.Silent)
				if err != nil {
					t.Fatalf("%s: byte %d of %s: %v", s.name, i, path, err)
				}
				if len(r.Bad) == 0 || r.Bad[0].File != path {
					t.Fatalf("%s: byte %d of %s: found %v", s.name, i, path, r.Bad)
				}
			}
		}
	}
}

func TestAFlippedBitOfAnyByteOfManifestAndIndexKeepsADirectoryFromOpening(t *testing.T) {
	for _, s := range tiny() {
		fsys, dir := s.mustWrite(t)
		for _, name := range []string{manifestName, indexName} {
			path := filepath.Join(dir, name)
			for _, i := range telling(t, fsys, path) {
				bad := &damaged{FS: fsys, path: path, flip: i, bit: uint(i % 8), length: -1}
				if _, err := OpenAny(bad, dir); !errors.Is(err, ErrCorrupt) ||
					!strings.HasPrefix(err.Error(), path+": corrupt: ") {
					t.Fatalf("%s: bit %d of byte %d of %s: %v", s.name, i%8, i, name, err)
				}
			}
		}
	}
}

func TestEveryShortenedFileIsFound(t *testing.T) {
	for _, s := range tiny() {
		fsys, dir := s.mustWrite(t)
		for _, path := range filesOf(t, fsys, dir) {
			size := sizeOf(t, fsys, path)
			step := max(1, size/128)
			for length := int64(0); length < size; length++ {
				if length%step != 0 && length%4096 > 1 && size-length > 32 {
					continue
				}
				bad := &damaged{FS: fsys, path: path, flip: -1, length: length, hidden: length%2 == 0}
				r := verify(t, bad, dir)
				if len(r.Bad) == 0 || r.Bad[0].File != path {
					t.Fatalf("%s: %s of %d bytes has %d (hidden: %v): found %v", s.name, path, size, length, bad.hidden,
						r.Bad)
				}
			}
		}
	}
}

func TestReadersRefuseWhatIsDamagedUnderThem(t *testing.T) {
	ctx := context.Background()
	for _, s := range samples() {
		fsys, dir := s.mustWrite(t)
		if len(s.matrices) == 0 || s.layout.rows() == 0 {
			continue
		}
		bad := &damaged{FS: fsys, flip: -1, length: -1, hidden: true}
		d, err := OpenAny(bad, dir)
		if err != nil {
			t.Fatal(err)
		}
		m, err := d.Matrix(Input)
		if err != nil {
			t.Fatal(err)
		}
		k := m.Chunks() - 1
		e := m.Extent(k)
		dst := make([]byte, e.Length)
		want := func(what string, err error, path string, chunk int) {
			t.Helper()
			var c *CorruptError
			if !errors.As(err, &c) || !errors.Is(err, ErrCorrupt) || c.File != path || c.Chunk != chunk ||
				c.Reason == "" {
				t.Errorf("%s: %s: %v", s.name, what, err)
			}
		}
		bad.path = filepath.Join(dir, filepath.FromSlash(e.File))
		bad.flip = e.Offset + e.Length - 1
		want("a flipped bit", m.ReadChunk(k, dst), bad.path, e.Chunk)
		want("a wrong chunk", m.CheckChunk(k, make([]byte, e.Length)), bad.path, e.Chunk)
		want("a short chunk", m.CheckChunk(k, nil), bad.path, e.Chunk)
		d.Close()
		bad.flip, bad.length = -1, e.Offset+1
		if d, err = OpenAny(bad, dir); err != nil {
			t.Fatal(err)
		}
		if m, err = d.Matrix(Input); err != nil {
			t.Fatal(err)
		}
		want("a short file", m.ReadChunk(k, dst), bad.path, e.Chunk)
		if err := m.ReadChunk(k, append(dst, 0)); err == nil || errors.Is(err, ErrCorrupt) {
			t.Errorf("%s: a buffer that does not fit: %v", s.name, err)
		}
		for _, table := range d.tables {
			p := table.parts[0]
			bad.path, bad.length = d.filePath(p.file), 5
			switch table.folder {
			case topologyFolder, weightsFolder:
				_, err := d.Topology(ctx, 2)
				want("a short topology", err, bad.path, 0)
			case rowsFolder, nodesFolder:
				_, err := d.Rows(ctx)
				want("a short row table", err, bad.path, 0)
				want("a short row table, visited", d.VisitRows(ctx, func(*RowTable, int64) {}), bad.path, 0)
				if first := d.Layout().Regions[0]; d.Manifest.Labels == 1 && !d.Manifest.LabelValues && first.Rows > 0 {
					want("a short row table's labels", d.ReadLabels(ctx, first, make([]int32, first.Rows)), bad.path, 0)
				}
			}
		}
		if err := m.Close(); err != nil {
			t.Error(err)
		}
		if err := m.ReadChunk(k, dst); !errors.Is(err, fs.ErrClosed) {
			t.Errorf("%s: after Close: %v", s.name, err)
		}
	}
}

func TestMissingAndUnlistedFilesAreNamed(t *testing.T) {
	for _, s := range tiny() {
		fsys, dir := s.mustWrite(t)
		for _, path := range filesOf(t, fsys, dir) {
			clone := fsys.CrashClone()
			if err := clone.Remove(path); err != nil {
				t.Fatal(err)
			}
			_, openErr := OpenAny(clone, dir)
			if filepath.Base(path) == manifestName {
				_, err := Verify(context.Background(), clone, dir, 1, progress.Silent)
				if !errors.Is(err, ErrIncomplete) || !errors.Is(openErr, ErrIncomplete) {
					t.Errorf("%s: without a manifest: %v and %v", s.name, err, openErr)
				}
				continue
			}
			if r := verify(t, clone, dir); len(r.Bad) != 1 || r.Bad[0].File != path ||
				r.Bad[0].Reason != "the file is missing" {
				t.Errorf("%s: without %s: %v", s.name, path, r.Bad)
			}
			if !errors.Is(openErr, ErrCorrupt) || !strings.Contains(openErr.Error(), path) {
				t.Errorf("%s: without %s: %v", s.name, path, openErr)
			}
		}
		for _, name := range []string{"notes.txt", PartPath("features/x/hop-0", 99), PartPath("features/x/hop-0", 0) +
			".tmp", PartPath("topology", 1), "features/readme", ".hidden",
			"features/x/hop-0/.DS_Store.arrow", "rows/backup~/a", "Thumbs.db/a", "lost+found.tmp"} {
			clone := fsys.CrashClone()
			path := filepath.Join(dir, name)
			if err := clone.MkdirAll(filepath.Dir(path)); err != nil {
				t.Fatal(err)
			}
			put(t, clone, path, "hello")
			if r := verify(t, clone, dir); len(r.Bad) != 1 || r.Bad[0].File != path {
				if name = filepath.Dir(path); name == dir || len(r.Bad) != 1 || r.Bad[0].File != name {
					t.Errorf("%s: with %s: %v", s.name, path, r.Bad)
				}
			}
		}
		for _, name := range []string{".DS_Store", "features/.DS_Store", "features/x/hop-0/.DS_Store",
			"._manifest.json", "Thumbs.db", "features/x/desktop.ini", ".nfs000000000001",
			"manifest.json~", ".manifest.json.swp", "#manifest.json#", ".Spotlight-V100/store",
			"features/x/hop-0/@eaDir/a"} {
			clone := fsys.CrashClone()
			path := filepath.Join(dir, name)
			if err := clone.MkdirAll(filepath.Dir(path)); err != nil {
				t.Fatal(err)
			}
			put(t, clone, path, "hello")
			r := verify(t, clone, dir)
			if len(r.Bad) != 0 || len(r.Notes) != 1 || !strings.HasPrefix(path, r.Notes[0].File) ||
				!strings.Contains(r.Notes[0].Reason, "nothing reads it") {
				t.Errorf("%s: with %s: bad %v, notes %v", s.name, name, r.Bad, r.Notes)
			}
			if d, err := OpenAny(clone, dir); err != nil {
				t.Errorf("%s: with %s: %v", s.name, name, err)
			} else if err := d.Close(); err != nil {
				t.Error(err)
			}
		}
		if r := verify(t, fsys, dir); r.Notes == nil || len(r.Notes) > 0 {
			t.Errorf("%s: notes %v", s.name, r.Notes)
		}
	}
}

func put(t testing.TB, fsys vfs.FS, path, content string) {
	t.Helper()
	if err := vfs.WriteFile(fsys, path, []byte(content)); err != nil {
		t.Fatal(err)
	}
}

func TestDamageInSeveralFilesIsFoundAtOnce(t *testing.T) {
	s := makeStore("store", [4]int64{8, 4, 4, 4}, 2, 2, Float32, columns{1, 1, false}, Operator{Name: "sym", Hops: 2})
	fsys, dir := s.mustWrite(t)
	var bad vfs.FS = fsys
	paths := []string{PartPath("features/sym/hop-1", 0), PartPath("features/sym/hop-2", 0), PartPath("rows", 0)}
	for i, name := range paths {
		bad = &damaged{FS: bad, path: filepath.Join(dir, name), flip: 8192 * int64(i+1), length: -1}
	}
	r := verify(t, bad, dir)
	if len(r.Bad) != 3 {
		t.Fatalf("found %v", r.Bad)
	}
	for i, b := range r.Bad {
		if b.File != filepath.Join(dir, paths[i]) || b.Chunk != i {
			t.Errorf("found %v", b)
		}
	}
}

func TestVerifyCountsWhatItReads(t *testing.T) {
	for _, s := range samples() {
		fsys, dir := s.mustWrite(t)
		r := verify(t, fsys, dir)
		total := int64(0)
		files := filesOf(t, fsys, dir)
		for _, path := range files {
			total += sizeOf(t, fsys, path)
		}
		if r.Bytes != total || r.Files != len(files) {
			t.Errorf("%s: %d bytes in %d files, want %d in %d", s.name, r.Bytes, r.Files, total, len(files))
		}
	}
}

// TestWrongValuesWithRightChecksumsAreFound writes past the writer's checks.
func TestWrongValuesWithRightChecksumsAreFound(t *testing.T) {
	offsets := func(v ...int64) []byte { return dtype.BytesOf(v) }
	ids := func(v ...uint32) []byte { return dtype.BytesOf(v) }
	for name, c := range map[string]struct{ offsets, neighbors []byte }{
		"offsets do not start at 0":   {offsets(1, 1, 2, 3), ids(0, 1, 2)},
		"offsets end too early":       {offsets(0, 1, 2, 2), ids(0, 1, 2)},
		"offsets end too late":        {offsets(0, 1, 2, 1<<62), ids(0, 1, 2)},
		"offsets go back":             {offsets(0, 2, 1, 3), ids(0, 1, 2)},
		"offsets go below zero":       {offsets(0, -1, 1, 3), ids(0, 1, 2)},
		"a neighbour beyond":          {offsets(0, 1, 2, 3), ids(0, 1, 3)},
		"neighbours that do not rise": {offsets(0, 0, 3, 3), ids(0, 2, 1)},
	} {
		fsys := vfs.NewMem()
		w, err := Create(fsys, "/d", Layout{Regions: Regions([]RegionSize{{RegionAll, 3}}, 2), ChunkRows: 2,
			DType: Float32}, CreateOptions{})
		if err != nil {
			t.Fatal(err)
		}
		w.topology, w.rows = &topologySize{nodes: 3, edges: 3}, &rowSummary{}
		if err := w.writeSingleBatch(topologyTable(3, 3), func(out io.Writer) error {
			_, err := out.Write(slices.Concat(c.offsets, c.neighbors))
			return err
		}); err != nil {
			t.Fatal(err)
		}
		if err := w.Publish(&Manifest{}); err != nil {
			t.Fatal(err)
		}
		if r := verify(t, fsys, "/d"); len(r.Bad) != 1 || r.Bad[0].File != PartPath("/d/topology", 0) {
			t.Errorf("%s: found %v", name, r.Bad)
		}
		d, err := OpenGraph(fsys, "/d")
		if err != nil {
			t.Fatal(err)
		}
		if _, err := d.Topology(context.Background(), 1); !errors.Is(err, ErrCorrupt) {
			t.Errorf("%s: %v", name, err)
		}
	}

	good := makeStore("store", [4]int64{4, 3, 3, 3}, 0, 2, Float32, columns{1, 2, true})
	for name, c := range map[string]struct {
		chunk  int
		change func(t *RowTable)
	}{
		"a label beyond":              {5, func(t *RowTable) { t.Labels[9] = 5 }},
		"a label below":               {0, func(t *RowTable) { t.Labels[1] = -2 }},
		"a split beyond":              {1, func(t *RowTable) { t.Splits[2*3] = 4 }},
		"a node beyond":               {6, func(t *RowTable) { t.NodeID[11] = 1000 }},
		"a node twice":                {7, func(t *RowTable) { t.NodeID[12] = t.NodeID[0] }},
		"training rows by node":       {0, func(t *RowTable) { t.NodeID[0], t.NodeID[1] = t.NodeID[1], t.NodeID[0] }},
		"validation rows in disorder": {2, func(t *RowTable) { t.NodeID[4], t.NodeID[5] = t.NodeID[5], t.NodeID[4] }},
		"a row in another region":     {3, func(t *RowTable) { t.Splits[2*6+1] = SplitTrain }},
		"names that are no UTF-8":     {0, func(t *RowTable) { t.OrigID[0] = "\xff" }},
	} {
		rows := *good.rows
		rows.NodeID, rows.Labels, rows.Splits, rows.OrigID = slices.Clone(rows.NodeID), slices.Clone(rows.Labels),
			slices.Clone(rows.Splits), slices.Clone(rows.OrigID)
		c.change(&rows)
		fsys := vfs.NewMem()
		w, err := Create(fsys, "/d", good.layout, CreateOptions{})
		if err != nil {
			t.Fatal(err)
		}
		if w.rows, err = good.rows.summarize(KindStore, good.layout.rows()); err != nil {
			t.Fatal(err)
		}
		table := w.rows.columns.table(good.layout)
		p, err := w.startTable(table, 100)
		if err != nil {
			t.Fatal(err)
		}
		for k := range table.chunks {
			first, n := good.layout.chunk(k)
			if err := p.writeChunk(int64(n), rows.buffers(first, n)...); err != nil {
				t.Fatal(err)
			}
		}
		if err := p.close(); err != nil {
			t.Fatal(err)
		}
		m := good.manifest
		if err := w.Publish(&m); err != nil {
			t.Fatal(err)
		}
		if r := verify(t, fsys, "/d"); len(r.Bad) != 1 || r.Bad[0].File != PartPath("/d/rows", 0) ||
			r.Bad[0].Chunk != c.chunk {
			t.Errorf("%s: found %v", name, r.Bad)
		}
	}
}

func TestAnArrowFileThatSaysOtherThanTheIndexIsFound(t *testing.T) {
	s := makeStore("store", [4]int64{4, 3, 3, 3}, 2, 2, Float16, columns{1, 2, false})
	wrong := map[string]func(t *table){
		"another type": func(t *table) {
			*t = matrixTable(MatrixFolder(Input), Layout{Regions: s.layout.Regions, ChunkRows: 2, Features: 2, DType: BFloat16})
		},
		"another width": func(t *table) {
			*t = matrixTable(MatrixFolder(Input), Layout{Regions: s.layout.Regions, ChunkRows: 2, Features: 1, DType: Float32})
		},
		"another name": func(t *table) { f := t.schema.Field(0); f.Name = "x"; t.schema = newSchema(f) },
	}
	for name, change := range wrong {
		fsys := vfs.NewMem()
		w, err := Create(fsys, "/d", s.layout, CreateOptions{})
		if err != nil {
			t.Fatal(err)
		}
		if err := w.Rows(s.rows); err != nil {
			t.Fatal(err)
		}
		table := matrixTable(MatrixFolder(Input), s.layout)
		change(&table)
		p, err := w.startTable(table, 100)
		if err != nil {
			t.Fatal(err)
		}
		for k := range table.chunks {
			_, n := s.layout.chunk(k)
			if err := p.writeChunk(int64(n), bytes.Repeat([]byte{1}, n*4)); err != nil {
				t.Fatal(err)
			}
		}
		if err := p.close(); err != nil {
			t.Fatal(err)
		}
		m := s.manifest
		if err := w.Publish(&m); err != nil {
			t.Fatal(err)
		}
		if r := verify(t, fsys, "/d"); len(r.Bad) != 1 || r.Bad[0].File != PartPath("/d/features/x/hop-0", 0) {
			t.Errorf("%s: found %v", name, r.Bad)
		}
	}
}

func TestDamageOfAPartTellsWhatToDo(t *testing.T) {
	for _, s := range samples() {
		fsys, dir := s.mustWrite(t)
		d, err := OpenAny(fsys, dir)
		if err != nil {
			t.Fatal(err)
		}
		remedy := map[string]string{KindGraph: "import it again", KindStore: "hopfeed repair"}[d.Manifest.Kind]
		path := dir + "/" + d.Manifest.Files[0].Path
		put(t, fsys, path, "short")
		if _, err := OpenAny(fsys, dir); !errors.Is(err, ErrCorrupt) || strings.Count(err.Error(), remedy) != 1 {
			t.Errorf("%s: %v, want %q", s.name, err, remedy)
		}
		if r := verify(t, fsys, dir); !strings.Contains(r.Remedy, remedy) {
			t.Errorf("%s: verify says %q, want %q", s.name, r.Remedy, remedy)
		}
		put(t, fsys, dir+"/index.arrow", "short")
		if _, err := OpenAny(fsys, dir); !errors.Is(err, ErrCorrupt) ||
			strings.Contains(err.Error(), "hopfeed repair") || strings.Count(err.Error(), "--force") != 1 {
			t.Errorf("%s: with a damaged index: %v", s.name, err)
		}
	}
}
