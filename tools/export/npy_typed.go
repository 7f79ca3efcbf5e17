package export

import (
	"path/filepath"
	"slices"

	"github.com/hopfeed/hopfeed/format"
	"github.com/hopfeed/hopfeed/internal/vfs"
)

// The folders of a typed graph's arrays.
const (
	nodesFolder = "nodes" // a folder for each type below it
	edgesFolder = "edges" // and for each relation
)

// typedMeta is meta.json of a typed graph.
type typedMeta struct {
	ExportedBy string           `json:"exported_by"` // as npyMeta
	Name       string           `json:"name"`
	Types      map[string]int64 `json:"node_types"`
	Relations  [][]any          `json:"edge_types"` // source, name if it has one, destination, edges
	Target     string           `json:"target"`
	Directed   bool             `json:"directed"` // no relation is to get a reverse
}

// openTyped opens the parts of a typed graph that are exported, in the order of types.json. It returns those that were
// opened even if it fails.
func openTyped(fsys vfs.FS, dir string) (meta *typedMeta, parts []*npyExport, err error) {
	t, err := format.OpenTyped(fsys, dir)
	if err != nil {
		return nil, nil, err
	}
	meta = &typedMeta{ExportedBy: exporter, Name: t.Name, Types: map[string]int64{}, Target: t.Target, Directed: true}
	for _, n := range t.Types {
		meta.Types[n.Name] = n.Nodes
		d, err := t.OpenNodes(fsys, dir, n.Name)
		if err != nil {
			return nil, parts, err
		}
		parts = append(parts, &npyExport{dir: d, folder: filepath.Join(nodesFolder, n.Name), meta: true})
	}
	for _, r := range t.Relations {
		d, err := t.OpenRelation(fsys, dir, r)
		if err != nil {
			return nil, parts, err
		}
		if d.Manifest.Input[format.ReverseOf] != "" {
			meta.Directed = false
			if err := d.Close(); err != nil {
				return nil, parts, err
			}
			continue
		}
		parts = append(parts, &npyExport{dir: d, folder: filepath.Join(edgesFolder, r.String()), edges: true})
		entry := []any{r.Source, r.Name, r.Destination, r.Edges}
		if r.Name == "" {
			entry = slices.Delete(entry, 1, 2)
		}
		meta.Relations = append(meta.Relations, entry)
	}
	return meta, parts, nil
}
