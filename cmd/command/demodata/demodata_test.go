package demodata

import (
	"encoding/json"
	"io"
	"path"
	"testing"

	"github.com/hopfeed/hopfeed/internal/vfs"
)

func TestEachGraphIsCarriedWhole(t *testing.T) {
	for _, c := range []struct {
		graph string
		nodes int
		feat  string
	}{
		{"amazon_photo", 7650, "node_feat.npz"},
		{"gamora_csa8", 456, "node_feat.npy"},
		{"gamora_csa32", 7968, "node_feat.npy"},
	} {
		t.Run(c.graph, func(t *testing.T) {
			disk := vfs.NewMem()
			if err := Unpack(disk, "/demo", c.graph); err != nil {
				t.Fatal(err)
			}
			for _, name := range []string{"edge_index.npy", c.feat, "node_label.npy", "splits.npy"} {
				if info, err := disk.Stat(path.Join("/demo", name)); err != nil || info.Size() < int64(c.nodes) {
					t.Errorf("%s: %v, %v", name, info, err)
				}
			}
			f, err := disk.Open("/demo/meta.json")
			if err != nil {
				t.Fatal(err)
			}
			defer f.Close()
			text, err := io.ReadAll(io.NewSectionReader(f, 0, 1<<20))
			if err != nil {
				t.Fatal(err)
			}
			var meta struct {
				Name    string `json:"name"`
				Nodes   int    `json:"num_nodes"`
				Licence string `json:"licence"`
			}
			if err := json.Unmarshal(text, &meta); err != nil {
				t.Fatal(err)
			}
			if meta.Name != c.graph || meta.Nodes != c.nodes || meta.Licence == "" {
				t.Errorf("meta.json says %+v", meta)
			}
		})
	}
}

func TestAGraphThatIsNotCarriedIsAnError(t *testing.T) {
	if err := Unpack(vfs.NewMem(), "/demo", "karate"); err == nil {
		t.Error("unpacked")
	}
}
