package lint

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// TestResultsSayWhereTheirDataComeFrom finds the data sets that published configurations import, and each in the table
// of
// data sets, with its origin and licence.
func TestResultsSayWhereTheirDataComeFrom(t *testing.T) {
	folder := filepath.Join("..", "..", "docs", "results")
	page, err := os.ReadFile(filepath.Join(folder, "README.md"))
	if err != nil {
		t.Fatal(err)
	}
	_, data, found := strings.Cut(string(page), "\n## Data\n")
	configs, err := filepath.Glob(filepath.Join(folder, "*.yaml"))
	if err != nil || !found || len(configs) < 10 {
		t.Fatal(err, found, configs)
	}
	imports := regexp.MustCompile(`hopfeed import \w+ (\S+) -o`)
	for _, config := range append(configs, filepath.Join(folder, "README.md")) {
		text, err := os.ReadFile(config)
		if err != nil {
			t.Fatal(err)
		}
		for _, source := range imports.FindAllStringSubmatch(string(text), -1) {
			name, within := strings.CutPrefix(source[1], "DATA/")
			row := regexp.MustCompile(`(?m)^\| (\w+, )*` + regexp.QuoteMeta(name) + `(, \w+)* \| [^|]+ \| [^|]+ \| ` +
				`[^|]+ \|$`)
			if !within || !row.MatchString(data) {
				t.Errorf("%s imports %s: the page does not say where that is from", filepath.Base(config),
					source[1])
			}
		}
	}
}
