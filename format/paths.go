package format

import (
	"fmt"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/hopfeed/hopfeed/internal/vfs"
)

// Names in a directory.
const (
	manifestName    = "manifest.json"
	indexName       = "index.arrow"
	jobFolder       = ".job"
	topologyFolder  = "topology"
	weightsFolder   = "weights"
	nodesFolder     = "nodes"
	rowsFolder      = "rows"
	featuresFolder  = "features"
	maxOperatorName = 100
)

// checkOperatorName fails unless name is one that a folder can be named after: it starts with a letter and has no
// other characters than a-z, 0-9 and "._:=-".
func checkOperatorName(name string) error {
	ok := name != "" && len(name) <= maxOperatorName && name[0] >= 'a' && name[0] <= 'z'
	for _, c := range []byte(name) {
		ok = ok && (c >= 'a' && c <= 'z' || c >= '0' && c <= '9' || strings.IndexByte("._:=-", c) >= 0)
	}
	if !ok {
		return fmt.Errorf("%q cannot name an operator (a letter of a-z, then a-z, 0-9 and ._:=-, at most %d "+
			"characters)",
			name, maxOperatorName)
	}
	return nil
}

// matrixFolder is where the parts of a matrix lie. The operator's colons, which some systems do not allow in names,
// become pluses.
func matrixFolder(id MatrixID) string {
	return fmt.Sprintf("%s/%s/hop-%d", featuresFolder, strings.ReplaceAll(id.Operator, ":", "+"), id.Hop)
}

// MatrixOf is the matrix that a part, named as in the manifest, belongs to.
func (m *Manifest) MatrixOf(file string) (id MatrixID, ok bool) {
	folder, _, ok := splitPart(file)
	for _, id := range m.matrices() {
		if ok && matrixFolder(id) == folder {
			return id, true
		}
	}
	return id, false
}

// MaxParts is the largest number of parts of a table: the names have five digits, so that they sort as the rows do.
const MaxParts = 100_000

// PartPath is the path of part k of the table in a folder, relative to the directory.
func PartPath(folder string, k int) string { return fmt.Sprintf("%s/part-%05d.arrow", folder, k) }

// splitPart is the inverse of PartPath; ok is false if path does not name a part.
func splitPart(path string) (folder string, k int, ok bool) {
	slash := strings.LastIndexByte(path, '/')
	if slash < 0 {
		return "", 0, false
	}
	folder = path[:slash]
	digits := strings.TrimSuffix(strings.TrimPrefix(path[slash+1:], "part-"), ".arrow")
	k, err := strconv.Atoi(digits)
	return folder, k, err == nil && k >= 0 && k < MaxParts && path == PartPath(folder, k) && isTableFolder(folder)
}

// suffixNumber is the number after a prefix, without zeros in front.
func suffixNumber(s, prefix string) (int, bool) {
	digits, found := strings.CutPrefix(s, prefix)
	n, err := strconv.Atoi(digits)
	return n, found && err == nil && n >= 0 && strconv.Itoa(n) == digits
}

// Enclosing is the graph or store that a path lies in, or "" where there is none. A file or directory that is made
// there is one that the manifest does not list, which Verify finds bad.
func Enclosing(fsys vfs.FS, path string) (dir string, err error) {
	at, err := fsys.Resolve(path)
	if err != nil {
		return "", err
	}
	for at != filepath.Dir(at) {
		at = filepath.Dir(at)
		_, noManifest := fsys.Stat(filepath.Join(at, manifestName))
		_, noIndex := fsys.Stat(filepath.Join(at, indexName))
		if noManifest == nil && noIndex == nil {
			return at, nil
		}
	}
	return "", nil
}

// isTableFolder tells whether a graph or store may have parts in the folder.
func isTableFolder(folder string) bool {
	switch folder {
	case topologyFolder, weightsFolder, nodesFolder, rowsFolder:
		return true
	}
	names := strings.Split(folder, "/")
	if len(names) != 3 || names[0] != featuresFolder || !isOperatorFolder(names[1]) {
		return false
	}
	_, ok := suffixNumber(names[2], "hop-")
	return ok
}

func isOperatorFolder(name string) bool {
	return !strings.Contains(name, ":") && checkOperatorName(strings.ReplaceAll(name, "+", ":")) == nil
}

// isFolder tells whether a graph or store may have the folder.
func isFolder(folder string) bool {
	operator, isOperator := strings.CutPrefix(folder, featuresFolder+"/")
	return folder == featuresFolder || isOperator && isOperatorFolder(operator) || isTableFolder(folder)
}

// isClutter tells whether a file or folder of this name is one that file managers, file servers and editors make by
// themselves. No file of a graph or store has such a name.
func isClutter(name string, folder bool) bool {
	patterns := []string{".DS_Store", "._*", ".localized", "Icon\r", "Thumbs.db", "desktop.ini", ".directory", ".nfs*",
		".fuse_hidden*", "*~", ".*.sw[a-p]", ".#*", "#*#"}
	if folder {
		patterns = []string{".Spotlight-V100", ".Trashes", ".fseventsd", ".TemporaryItems", "__MACOSX", "@eaDir",
			"lost+found"}
	}
	return slices.ContainsFunc(patterns, func(pattern string) bool {
		match, _ := path.Match(pattern, name)
		return match
	})
}

// isFile tells whether a graph or store may have the file, complete or not.
func isFile(path string) bool {
	path = strings.TrimSuffix(path, vfs.TempSuffix)
	if path == manifestName || path == indexName {
		return true
	}
	_, _, ok := splitPart(path)
	return ok
}
