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

// arrayHints say what to do with a file %[1]s that may hold the array %[2]s, by its ending.
var arrayHints = [][2]string{
	{".npy", "rename it to %[2]s if it is that array"},
	{".npz", "save its array as %[2]s by numpy.save"},
	{".pt", "save it as %[2]s by numpy.save(%[2]q, torch.load(%[1]q).numpy())"},
	{".pth", "save it as %[2]s by numpy.save(%[2]q, torch.load(%[1]q).numpy())"},
	{".csv", "save its array as %[2]s by numpy.save"},
	{".txt", "save its array as %[2]s by numpy.save"},
}

// arrayHint names a file of a folder that seems to hold an array, and says how import reads it; "" if there is none.
func arrayHint(files map[string]bool, wanted string) string {
	for _, stem := range customaryArrays[wanted] {
		for _, hint := range arrayHints {
			if name := stem + hint[0]; files[name] && name != wanted {
				return fmt.Sprintf("; %[1]s is there: "+hint[1], name, wanted)
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
