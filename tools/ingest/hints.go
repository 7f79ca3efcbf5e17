package ingest

import (
	"fmt"
	"path/filepath"
	"slices"
	"strings"

	"github.com/hopfeed/hopfeed/internal/vfs"
)

// customaryArrays are names that others give the arrays of the npy layout, PyTorch Geometric first.
var customaryArrays = map[string][]string{
	"edge_index.npy": {"edge_index", "edges", "edge_list", "edgelist"},
	"node_feat.npy":  {"x", "feat", "feats", "features", "node_features", "node_feats", "attr_matrix"},
	"node_label.npy": {"y", "label", "labels", "node_labels", "targets"},
}

// arrayHint names a file of a folder that seems to hold an array, and says how import reads it; "" if there is none.
func arrayHint(files map[string]bool, wanted string) string {
	for _, stem := range customaryArrays[wanted] {
		for _, ending := range []string{".npy", ".npz", ".pt", ".pth", ".csv", ".txt"} {
			name := stem + ending
			switch {
			case !files[name] || name == wanted:
			case ending == ".npy":
				return fmt.Sprintf("; %s is there: rename it to %s if it is that array", name, wanted)
			case ending == ".pt" || ending == ".pth":
				return fmt.Sprintf("; %s is there: save it as %s by numpy.save(%q, torch.load(%q).numpy())",
					name, wanted, wanted, name)
			default:
				return fmt.Sprintf("; %s is there: save its array as %s by numpy.save", name, wanted)
			}
		}
	}
	return ""
}

// ogbRootHint names the root folder of a data set near one that has no folder raw; "" if there is none.
func ogbRootHint(fsys vfs.FS, dir string) string {
	hasRaw := func(dir string) bool {
		info, err := fsys.Stat(filepath.Join(dir, "raw"))
		return err == nil && info.IsDir()
	}
	dir = filepath.Clean(dir)
	if base := filepath.Base(dir); (base == "raw" || base == "split" || base == "processed") &&
		hasRaw(filepath.Dir(dir)) {
		return "; its parent folder " + filepath.Dir(dir) + " has one: give that"
	}
	var roots []string
	entries, _ := fsys.ReadDir(dir)
	for _, e := range entries {
		if at := filepath.Join(dir, e.Name()); hasRaw(at) {
			roots = append(roots, at)
		}
	}
	if slices.Sort(roots); len(roots) == 0 {
		return ""
	}
	return "; " + strings.Join(roots[:min(3, len(roots))], ", ") + " has one: give that"
}
