package ingest

import (
	"path/filepath"
	"slices"
	"strings"

	"github.com/hopfeed/hopfeed/internal/units"
	"github.com/hopfeed/hopfeed/internal/vfs"
)

// unnamed is the name of a data set that is at the root of a file system.
const unnamed = "graph"

// nameOf names the data set at path if it has no name of its own: by its folder, or by its file without endings. A file
// that has the name of a part of a layout, such as edges.csv, is named by its folder. The directory that the path leads
// to does not count, but for its last name.
func nameOf(fsys vfs.FS, path string) string {
	for {
		name := filepath.Base(path)
		if name == "." || name == ".." {
			resolved, err := fsys.Resolve(path)
			if err != nil {
				return unnamed
			}
			path, name = resolved, filepath.Base(resolved)
		}
		if name == string(filepath.Separator) {
			return unnamed
		}
		for _, ending := range []string{".gz", ".zst", ".csv", ".tsv", ".txt", ".mtx", ".parquet"} {
			if stem := strings.TrimSuffix(name, ending); stem != "" {
				name = stem
			}
		}
		if !slices.Contains([]string{"edges", "edge"}, name) {
			return units.Printable(name)
		}
		path = filepath.Dir(path)
	}
}
