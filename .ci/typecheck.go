// Typecheck checks the types of all packages and their tests for other systems and processors, from their sources: code
// of ours, and the declarations of all that it uses. To compile as much takes ten times as long.
//
//	go run .ci/typecheck.go GOOS/GOARCH...
package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"go/types"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// listed is a package as go list describes it.
type listed struct {
	ImportPath, Dir string
	GoFiles         []string
	ImportMap       map[string]string // what an import in its files means, if it is not the path itself
	Module          *struct{ Main bool }
	Error           *struct{ Err string }
}

func main() {
	for _, target := range os.Args[1:] {
		packages, err := check(target)
		if err != nil {
			fmt.Fprintf(os.Stderr, "typecheck: %s: %v\n", target, err)
			os.Exit(1)
		}
		fmt.Printf("%s: the types of %d packages are right, their tests' too\n", target, packages)
	}
}

// check returns how many packages of ours it has checked.
func check(target string) (ours int, err error) {
	system, processor, _ := strings.Cut(target, "/")
	sizes := types.SizesFor("gc", processor)
	if sizes == nil {
		return 0, errors.New("want GOOS/GOARCH")
	}
	list := exec.Command("go", "list", "-deps", "-test", "-json=ImportPath,Dir,GoFiles,ImportMap,Module,Error", "./...")
	list.Env = append(os.Environ(), "GOOS="+system, "GOARCH="+processor, "CGO_ENABLED=0")
	list.Stderr = os.Stderr
	stdout, err := list.StdoutPipe()
	if err == nil {
		err = list.Start()
	}
	if err != nil {
		return 0, err
	}
	known, files, wrong := map[string]*types.Package{"unsafe": types.Unsafe}, token.NewFileSet(), 0
	for d := json.NewDecoder(stdout); ; { // a package comes after its imports
		var p listed
		if err := d.Decode(&p); err == io.EOF {
			break
		} else if err != nil {
			return 0, err
		}
		if p.Error != nil {
			return 0, errors.New(p.Error.Err)
		}
		if p.ImportPath == "unsafe" || strings.HasSuffix(p.ImportPath, ".test") { // the main program of tests
			continue
		}
		var parsed []*ast.File
		for _, name := range p.GoFiles {
			file, err := parser.ParseFile(files, filepath.Join(p.Dir, name), nil, parser.SkipObjectResolution)
			if err != nil {
				return 0, err
			}
			parsed = append(parsed, file)
		}
		own := p.Module != nil && p.Module.Main
		if own {
			ours++
		}
		config := types.Config{Sizes: sizes, IgnoreFuncBodies: !own, Importer: importer(func(path string) (*types.Package, error) {
			if mapped, ok := p.ImportMap[path]; ok {
				path = mapped
			}
			if known[path] == nil {
				return nil, fmt.Errorf("%s imports %s, which go list has not listed before it", p.ImportPath, path)
			}
			return known[path], nil
		}), Error: func(err error) {
			wrong++
			fmt.Fprintln(os.Stderr, err)
		}}
		path, _, _ := strings.Cut(p.ImportPath, " [") // of a test
		known[p.ImportPath], _ = config.Check(path, files, parsed, nil)
	}
	if err := list.Wait(); err != nil {
		return 0, err
	}
	if wrong > 0 || ours < 50 {
		return 0, fmt.Errorf("%d errors in %d packages", wrong, ours)
	}
	return ours, nil
}

type importer func(path string) (*types.Package, error)

func (i importer) Import(path string) (*types.Package, error) { return i(path) }
