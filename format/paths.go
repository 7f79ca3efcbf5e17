package format

import (
	"fmt"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/hopfeed/hopfeed/internal/vfs"
)

// Names in a directory.
const (
	manifestName   = "manifest.json"
	indexName      = "index.arrow"
	jobFolder      = ".job"
	topologyFolder = "topology"
	weightsFolder  = "weights"
	nodesFolder    = "nodes"
	rowsFolder     = "rows"
	featuresFolder = "features"
)

// Patterns of the paths of a graph or store: in the name of a folder, an operator has pluses for its colons.
const (
	operatorFolder = `[a-z][a-z0-9._+=-]*`
	tableFolders   = topologyFolder + "|" + weightsFolder + "|" + nodesFolder + "|" + rowsFolder + "|" +
		featuresFolder + "/" + operatorFolder + `/hop-(?:0|[1-9][0-9]{0,8})` + "|" + columnFolders
)

var (
	operatorNames = regexp.MustCompile(`^[a-z][a-z0-9._:=<-]*$`)
	isTableFolder = regexp.MustCompile("^(?:" + tableFolders + ")$").MatchString
	isFolder      = regexp.MustCompile("^(?:" + OfEdges + "|" + featuresFolder + "(?:/" + operatorFolder + ")?|" +
		tableFolders + ")$").MatchString
	partNames = regexp.MustCompile("^(" + tableFolders + `)/part-([0-9]{5})\.arrow$`)
)

// checkOperatorName fails unless a folder can be named after the operator.
func checkOperatorName(name string) error {
	if len(name) > 100 || !operatorNames.MatchString(name) {
		return fmt.Errorf("%q cannot name an operator (a letter of a-z, then a-z, 0-9 and ._:=<-, at most 100 characters)",
			name)
	}
	return nil
}

// MatrixFolder is where the parts of a matrix lie. In the operator's name, colons and less-than signs, which some
// systems do not allow in names, become pluses and minuses.
func MatrixFolder(id MatrixID) string {
	return fmt.Sprintf("%s/%s/hop-%d", featuresFolder, strings.NewReplacer(":", "+", "<", "-").Replace(id.Operator),
		id.Hop)
}

// MatrixOf is the matrix that a part, named as in the manifest, belongs to.
func (m *Manifest) MatrixOf(file string) (id MatrixID, ok bool) {
	folder, _, ok := splitPart(file)
	for _, id := range m.matrices() {
		if ok && MatrixFolder(id) == folder {
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
	found := partNames.FindStringSubmatch(path)
	if found == nil {
		return "", 0, false
	}
	k, err := strconv.Atoi(found[2])
	return found[1], k, err == nil
}

// Enclosing is the graph or store that a path lies in, or "" where there is none. A file or directory that is made
// there is one that the manifest does not list, which Verify finds bad.
func Enclosing(fsys vfs.FS, path string) (dir string, err error) {
	at, err := fsys.Resolve(path)
	if err != nil {
		return "", err
	}
	for inBucket := vfs.IsURL(at); at != filepath.Dir(at); {
		if at = filepath.Dir(at); inBucket && !vfs.IsURL(filepath.Dir(at)+"/") {
			break // a bucket is no graph or store
		}
		_, noManifest := fsys.Stat(filepath.Join(at, manifestName))
		_, noIndex := fsys.Stat(filepath.Join(at, indexName))
		if noManifest == nil && noIndex == nil {
			return at, nil
		}
	}
	return "", nil
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
	path = vfs.WithoutTemp(path)
	if path == manifestName || path == indexName {
		return true
	}
	_, _, ok := splitPart(path)
	return ok
}
