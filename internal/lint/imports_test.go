// Package lint checks the house rules of the source tree that no compiler knows.
package lint

import (
	"fmt"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
)

const module = "github.com/hopfeed/hopfeed"

// mayImport is the table of docs/architecture.md: which top-level folder may
// import which others. Each may import its own packages.
var mayImport = map[string][]string{
	"internal":  {},
	"format":    {"internal"},
	"chunk":     {"internal"},
	"gds":       {"internal"},
	"preprop":   {"format", "gds", "internal"},
	"loader":    {"chunk", "gds", "format", "internal"},
	"placement": {"format", "gds", "internal"},
	"trainer":   {"loader", "chunk", "gds", "internal"},
	"tools":     {"internal", "format", "chunk", "gds", "preprop", "loader", "placement", "trainer"},
	"cmd":       {"internal", "format", "chunk", "gds", "preprop", "loader", "placement", "trainer", "tools"},
}

// violation says what is wrong with an import in file (slashes, relative to the
// module), or "". Tests are held to the table too, but may open files themselves.
func violation(file, imported string) string {
	from, _, nested := strings.Cut(file, "/")
	if !nested {
		return "no package belongs in the module's root"
	}
	may, known := mayImport[from]
	if !known {
		return "the table of top-level folders does not know this one"
	}
	if imported == "os" && from != "cmd" && !strings.HasPrefix(file, "internal/vfs/") &&
		!strings.HasSuffix(file, "_test.go") {
		return "all file access goes through internal/vfs"
	}
	if imported == module+"/trainer" && strings.HasPrefix(file, "tools/session/") &&
		!strings.HasSuffix(file, "_test.go") {
		return "a session is also for those who compute without the trainer: see session.Model"
	}
	rest, ours := strings.CutPrefix(imported, module+"/")
	if to, _, _ := strings.Cut(rest, "/"); ours && to != from && !slices.Contains(may, to) {
		return fmt.Sprintf("%s may import %v, not %s", from, may, to)
	}
	return ""
}

func TestImportsPointDownward(t *testing.T) {
	root := os.DirFS("../..")
	files := 0
	err := fs.WalkDir(root, ".", func(name string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() {
			base := d.Name()
			if name != "." && (base == "testdata" || base[0] == '.' || base[0] == '_') {
				return fs.SkipDir
			}
			if _, err := fs.Stat(root, path.Join(name, "go.mod")); name != "." && err == nil {
				return fs.SkipDir // a module of its own
			}
			return nil
		}
		if !strings.HasSuffix(name, ".go") {
			return nil
		}
		src, err := fs.ReadFile(root, name)
		if err != nil {
			return err
		}
		fset := token.NewFileSet()
		f, err := parser.ParseFile(fset, name, src, parser.ImportsOnly)
		if err != nil {
			return err
		}
		files++
		if !strings.HasSuffix(name, "_test.go") && !strings.HasPrefix(name, "internal/vfs/") &&
			strings.Contains(string(src), ".RemoveAll(") {
			t.Errorf("%s removes a tree, in which a user may have files: name what is removed (internal/folder)", name)
		}
		for _, spec := range f.Imports {
			imported, err := strconv.Unquote(spec.Path.Value)
			if err != nil {
				return err
			}
			if why := violation(name, imported); why != "" {
				t.Errorf("%s imports %q: %s", fset.Position(spec.Pos()), imported, why)
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if files < 20 {
		t.Errorf("only %d source files found: is the test looking at the module?", files)
	}
}

// TestTheArchitecturePageShowsPackagesAndArrows compares the drawing and the table of docs/architecture.md with the
// code.
func TestTheArchitecturePageShowsPackagesAndArrows(t *testing.T) {
	root := os.DirFS("../..")
	page, err := fs.ReadFile(root, "docs/architecture.md")
	if err != nil {
		t.Fatal(err)
	}
	for folder, may := range mayImport {
		below := strings.Join(slices.DeleteFunc(slices.Clone(may),
			func(name string) bool { return name == "internal" }), ", ")
		if folder != "tools" && folder != "cmd" && below != "" &&
			!strings.Contains(string(page), folder+" ──▶ "+below+" ") &&
			!strings.Contains(string(page), folder+" ──▶ "+below+"\n") {
			t.Errorf("the drawing lacks %s ──▶ %s", folder, below)
		}
	}
	named := map[string]bool{}
	for _, match := range regexp.MustCompile("`([a-z0-9/]+)`").FindAllStringSubmatch(string(page), -1) {
		named[match[1]] = true
	}
	err = fs.WalkDir(root, ".", func(name string, d fs.DirEntry, err error) error {
		if err != nil || !d.IsDir() || name == "." {
			return err
		}
		_, err = fs.Stat(root, path.Join(name, "go.mod"))
		if base := d.Name(); base == "testdata" || base == "demodata" || base[0] == '.' || base[0] == '_' ||
			err == nil {
			return fs.SkipDir
		}
		files, err := fs.Glob(root, path.Join(name, "*.go"))
		if len(files) > 0 && !named[name] && !strings.Contains(name, "/internal/") {
			t.Errorf("the table of packages lacks `%s`: say in docs/architecture.md what it holds", name)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
}

func TestTheImportRuleKnowsRightFromWrong(t *testing.T) {
	for _, c := range []struct {
		name, file, imported string
		allowed              bool
	}{
		{"the loader reads formats", "loader/open.go", module + "/format", true},
		{"the loader never imports placement", "loader/open.go", module + "/placement", false},
		{"a nested package is held to its folder's row", "loader/sampling/labor.go", module + "/placement", false},
		{"trainers see batches, never files", "trainer/fit.go", module + "/format", false},
		{"leaves import each other", "internal/vfs/os.go", module + "/internal/units", true},
		{"leaves import nothing above", "internal/vfs/os.go", module + "/format", false},
		{"a folder imports itself", "gds/host/device.go", module + "/gds", true},
		{"tools do not import the command", "tools/npy/x.go", module + "/cmd/hopfeed", false},
		{"sessions do not know the trainer", "tools/session/plan.go", module + "/trainer", false},
		{"other tools train", "tools/bench/ablation.go", module + "/trainer", true},
		{"the command imports all", "cmd/hopfeed/main.go", module + "/placement", true},
		{"tests are held to the table", "chunk/plan_test.go", module + "/loader", false},
		{"other modules are no matter of the table", "chunk/plan.go", "gonum.org/v1/gonum/stat", true},
		{"files are opened through vfs", "format/reader.go", "os", false},
		{"vfs opens files", "internal/vfs/os.go", "os", true},
		{"tests may open files", "format/reader_test.go", "os", true},
		{"a new top-level folder needs a row", "extra/x.go", "fmt", false},
		{"the root holds no package", "doc.go", "fmt", false},
	} {
		t.Run(c.name, func(t *testing.T) {
			if why := violation(c.file, c.imported); (why == "") != c.allowed {
				t.Errorf("%s importing %s: allowed should be %t, got %q", c.file, c.imported, c.allowed, why)
			}
		})
	}
}
