package format

import (
	"fmt"
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

// checkOperatorName fails unless name is one that a folder can be named after:
// it starts with a letter and has no other characters than a-z, 0-9 and "._:=-".
func checkOperatorName(name string) error {
	ok := name != "" && len(name) <= maxOperatorName && name[0] >= 'a' && name[0] <= 'z'
	for _, c := range []byte(name) {
		ok = ok && (c >= 'a' && c <= 'z' || c >= '0' && c <= '9' || strings.IndexByte("._:=-", c) >= 0)
	}
	if !ok {
		return fmt.Errorf("%q cannot name an operator (a-z, 0-9 and ._:=- after a letter, %d characters)", name, maxOperatorName)
	}
	return nil
}

// matrixFolder is where the parts of a matrix lie. The operator's colons, which
// some systems do not allow in names, become pluses.
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

func partPath(folder string, k int) string { return fmt.Sprintf("%s/part-%d.arrow", folder, k) }

// splitPart takes the path of a part apart; ok is false where it is none.
func splitPart(path string) (folder string, k int, ok bool) {
	slash := strings.LastIndexByte(path, '/')
	if slash < 0 {
		return "", 0, false
	}
	folder = path[:slash]
	k, ok = suffixNumber(strings.TrimSuffix(path[slash+1:], ".arrow"), "part-")
	return folder, k, ok && path == partPath(folder, k) && isTableFolder(folder)
}

// suffixNumber reads the number after a prefix.
func suffixNumber(s, prefix string) (int, bool) {
	digits, found := strings.CutPrefix(s, prefix)
	n, err := strconv.Atoi(digits)
	return n, found && err == nil && n >= 0 && strconv.Itoa(n) == digits
}

// isTableFolder tells whether a directory of ours may have parts in the folder.
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

// isFolder tells whether a directory of ours may have the folder.
func isFolder(folder string) bool {
	operator, isOperator := strings.CutPrefix(folder, featuresFolder+"/")
	return folder == featuresFolder || isOperator && isOperatorFolder(operator) || isTableFolder(folder)
}

// isFile tells whether a directory of ours may have the file, finished or not.
func isFile(path string) bool {
	path = strings.TrimSuffix(path, vfs.TempSuffix)
	if path == manifestName || path == indexName {
		return true
	}
	_, _, ok := splitPart(path)
	return ok
}
