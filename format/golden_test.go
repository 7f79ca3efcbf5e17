package format

import (
	"bytes"
	"flag"
	"fmt"
	"path/filepath"
	"testing"

	"github.com/hopfeed/hopfeed/internal/vfs"
)

var update = flag.Bool("update", false, "write the golden directories of this format version anew")

// golden are the directories below testdata/v2. Their numbers are spelled out,
// so that no other code has a say in them.
func golden() []sample {
	x := bytes.Repeat([]byte{0, 0x3c, 0, 0x40, 0, 0xc2}, 5) // 1, 2, -3 in each row, as float16
	labels := []int32{0, 1, -1, 2, 1}
	splits := []uint8{1, 0, 2, 1, 0, 3, 3, 2, 1, 0}
	names := []string{"p0", "p1", "", "p3", "π"}
	graph := sample{
		name:     "graph",
		layout:   Layout{Regions: Regions([]RegionSize{{RegionAll, 5}}, 2), ChunkRows: 2, Features: 3, DType: Float16},
		manifest: Manifest{Name: "golden", Classes: 3, Directed: true, Input: map[string]string{"importer": "npy"}},
		topology: &CSC{Offsets: []int64{0, 2, 3, 3, 5, 6}, Neighbors: []uint32{1, 4, 0, 2, 2, 3},
			Weights: []float32{1, 0.5, 2, 1, 3, 0.25}},
		rows:     &RowTable{Rows: 5, Labels: labels, Splits: splits, NumSplits: 2, OrigID: names},
		matrices: map[MatrixID][]byte{Input: x},
	}
	store := sample{
		name: "store",
		layout: Layout{Regions: Regions([]RegionSize{{RegionTrain, 2}, {RegionValid, 1}, {RegionTest, 1},
			{RegionRest, 0}}, 1), ChunkRows: 1, Features: 3, DType: BFloat16},
		manifest: Manifest{Name: "golden", Nodes: 5, Edges: 6, Classes: 3, RowSet: RowsLabeled, Seed: 1,
			Operators: []Operator{{Name: "sym", Hops: 1}}, Input: map[string]string{"graph": "0123"}},
		rows: &RowTable{Rows: 4, NodeID: []uint32{0, 4, 1, 2}, Labels: []int32{0, 1, 1, -1}, NumSplits: 1,
			Splits: []uint8{1, 1, 2, 3}},
		matrices: map[MatrixID][]byte{Input: x[:24], {"sym", 1}: x[2:26]},
	}
	if TrainKey(1, 0) > TrainKey(1, 4) {
		store.rows.NodeID[0], store.rows.NodeID[1] = 4, 0
	}
	return []sample{graph, store}
}

// fingerprints belong to the golden directories; .ci/check_format.py finds the same.
var fingerprints = map[string]string{
	"graph": "dff383772c0bf351d259b3cbf9010a1d081e9e9f3ea992a8f14027cff855f4ae",
	"store": "8a7d1049fef6e2679dce813c500e7d7efaada8ff7d313a0dd4fb0e1ae95367f0",
}

func TestGoldenDirectoriesOpenAndAreWrittenTheSame(t *testing.T) {
	for _, s := range golden() {
		dir := filepath.Join("testdata", fmt.Sprint("v", Version), s.name)
		if *update {
			if _, err := s.write(vfs.OS(), dir, CreateOptions{Force: true}); err != nil {
				t.Fatal(err)
			}
		}
		s.compare(t, vfs.OS(), dir)
		if m, err := readManifest(vfs.OS(), dir); err != nil || m.Fingerprint != fingerprints[s.name] {
			t.Errorf("%s: its fingerprint is %s (%v), want %s", s.name, m.Fingerprint, err, fingerprints[s.name])
		}
		if r := verify(t, vfs.OS(), dir); len(r.Bad) > 0 {
			t.Errorf("%s: found damaged: %v", s.name, r.Bad)
		}
		want, wantBytes := readAll(t, vfs.OS(), dir)
		disk, _ := s.mustWrite(t)
		got, gotBytes := readAll(t, disk, "/d")
		if got.Tool != want.Tool { // which may change; nothing else may
			got.Tool = want.Tool
			gotBytes[manifestName] = string(got.encodeWithChecksum())
		}
		for name, b := range gotBytes {
			if wantBytes[name] != b {
				t.Errorf("%s: %s is not what it was", s.name, name)
			}
		}
		if len(gotBytes) != len(wantBytes) {
			t.Errorf("%s: %d files, want %d", s.name, len(gotBytes), len(wantBytes))
		}
	}
}

// readAll reads the manifest, and every file by its path.
func readAll(t *testing.T, fsys vfs.FS, dir string) (*Manifest, map[string]string) {
	t.Helper()
	m, err := readManifest(fsys, dir)
	if err != nil {
		t.Fatal(err)
	}
	out := map[string]string{}
	for _, path := range filesOf(t, fsys, dir) {
		b, err := readFile(fsys, path, sizeOf(t, fsys, path))
		if err != nil {
			t.Fatal(err)
		}
		rel, err := filepath.Rel(dir, path)
		if err != nil {
			t.Fatal(err)
		}
		out[filepath.ToSlash(rel)] = string(b)
	}
	return m, out
}
