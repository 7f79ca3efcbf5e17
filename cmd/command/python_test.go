package command

import (
	"fmt"
	"io"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/hopfeed/hopfeed/internal/vfs"
)

const pythonModule = "../../tools/python/hopfeed/_commands.py"

// TestThePythonFunctionsAreThoseOfTheCommands compares _commands.py, a function for each verb, with the commands and
// their flags; HOPFEED_WRITE_DOCS=1 writes it anew.
func TestThePythonFunctionsAreThoseOfTheCommands(t *testing.T) {
	module := pythonFunctions(t)
	if os.Getenv("HOPFEED_WRITE_DOCS") != "" {
		if err := os.WriteFile(pythonModule, []byte(module), 0o666); err != nil {
			t.Fatal(err)
		}
	}
	written, err := os.ReadFile(pythonModule)
	if err != nil {
		t.Fatal(err)
	}
	if string(written) != module {
		t.Errorf("%s differs from the commands: run HOPFEED_WRITE_DOCS=1 go test ./cmd/command "+
			"-run TestThePythonFunctions", pythonModule)
	}
}

const pythonIntroduction = `"""The commands as functions. A Go test generates this file from their flags: TestThePythonFunctionsAreThoseOfTheCommands."""

from __future__ import annotations

from typing import Any, Literal, Sequence, Union

from ._call import call
from ._dataset import Dataset
from ._progress import Progress
from ._types import Memory, Path

Data = Union[Path, Dataset]
`

// notInPython are verbs that the package has in another way, or not at all.
var notInPython = []string{"demo", "plan", "bench", "version", "completion", "help"}

func pythonFunctions(t *testing.T) string {
	var out strings.Builder
	out.WriteString(pythonIntroduction)
	root := newRoot(&app{fs: vfs.OS(), stdout: io.Discard, stderr: io.Discard}, "")
	for _, verb := range root.Commands() {
		switch {
		case slices.Contains(notInPython, verb.Name()):
		case verb.Name() == "import":
			for _, format := range verb.Commands() {
				writePython(t, &out, format, []string{"import", format.Name()})
			}
		default:
			writePython(t, &out, verb, []string{verb.Name()})
		}
	}
	return out.String()
}

// pythonArguments are the names of what is given without a flag.
var pythonArguments = map[string]string{"SRC": "source", "GRAPH": "graph", "STORE": "store", "GRAPH|STORE": "data",
	"STORE|GRAPH": "data", "RUN...": "runs"}

// pythonPositional says what these arguments are.
var pythonPositional = map[string]string{"source": "the file or folder to import", "graph": "a graph, or its path",
	"store": "a store, or its path", "data": "a graph or store, or its path", "runs": "run folders of trainings",
	"kind": "of the graph"}

// pythonPaths are flags that take a path; one that is read has to be there.
var pythonPaths = map[string]bool{"output": false, "scratch": false, "cache-dir": false, "run": false, "graph": true,
	"checkpoint": true,
	"config":     true, "splits": true, "space": true, "grid": true, "partition-file": true,
	"node-file": true, "from": true,
	"from-graph": true, "changed-since": true, "edges": true, "nodes": true, "remove-edges": true}

// writePython writes the function of a command.
func writePython(t *testing.T, out *strings.Builder, c *cobra.Command, words []string) {
	var required, optional, doc, positional, read []string
	result := "dict[str, Any]"
	skip := false
	for _, word := range strings.Fields(c.Use)[1:] {
		word = strings.Trim(word, "[]")
		name, alternatives := pythonArguments[word], strings.Split(word, "|")
		value := skip
		skip = strings.HasPrefix(word, "-")
		switch {
		case skip || value: // a flag and its value
			continue
		case name == "runs":
			required, positional = append(required, "runs: Sequence[Path]"), append(positional, name)
		case name == "source":
			required, positional = append(required, "source: Path"), append(positional, name)
		case name != "":
			required, positional = append(required, name+": Data"), append(positional, name)
		case len(alternatives) > 1:
			required, positional = append(required, "kind: "+literal(alternatives)), append(positional, "kind")
		default:
			words = append(words, word)
		}
		if name != "" && name != "runs" {
			read = append(read, name)
		}
	}
	all := pflag.NewFlagSet("", pflag.ContinueOnError)
	all.SortFlags = false
	for _, set := range []*pflag.FlagSet{c.LocalNonPersistentFlags(), c.InheritedFlags()} {
		set.SortFlags = false
		set.VisitAll(func(f *pflag.Flag) { all.AddFlag(f) })
	}
	draws := all.Lookup("runs") != nil || slices.Contains([]string{"generate", "propagate", "sample"}, words[0])
	all.VisitAll(func(f *pflag.Flag) {
		switch f.Name {
		case "help", helpAllFlag, "version", "json", "quiet", "verbose", "emulate", "names":
			return
		case "seed":
			if !draws {
				return
			}
		}
		name := pythonName(c, f.Name)
		kind := pythonType(t, f)
		reads, isPath := pythonPaths[f.Name]
		if isPath && f.Value.Type() == "string" {
			kind = "Path"
			if reads {
				read = append(read, name)
			}
		}
		if f.Annotations[cobra.BashCompOneRequiredFlag] != nil {
			required = append(required, name+": "+kind)
		} else {
			if kind != "Memory" { // which may be None
				kind += " | None"
			}
			optional = append(optional, name+": "+kind+" = None")
		}
		doc = append(doc, wrapPython(":param "+name+": "+pythonUsage(c, f)))
	})
	optional = append(optional, "progress: Progress = True")
	returns := "the keys that the command prints with --json (docs/json.md)"
	if words[0] == "import" || words[0] == "generate" {
		result, returns = "Dataset", "the graph"
	}
	for i, parameter := range required {
		if name, _, _ := strings.Cut(parameter, ":"); slices.Contains(positional, name) {
			doc = slices.Insert(doc, i, wrapPython(":param "+name+": "+pythonPositional[name]))
		}
	}
	doc = append(doc, wrapPython(":param progress: bars of tqdm, where that is installed, or a function that is called "+
		"with the state of the work"), wrapPython(":return: "+returns))
	fmt.Fprintf(out, "\n\ndef %s(\n", strings.Join(words, "_"))
	for _, parameter := range append(append(required, "*"), optional...) {
		fmt.Fprintf(out, "    %s,\n", parameter)
	}
	fmt.Fprintf(out, ") -> %s:\n    \"\"\"%s. ``hopfeed %s --help`` says more.\n\n%s\n    \"\"\"\n", result, c.Short,
		strings.Join(words, " "), strings.Join(doc, "\n"))
	line := fmt.Sprintf("call(%s, %s, locals(), %s)", pythonList(words), pythonList(positional), pythonList(read))
	if result == "Dataset" {
		fmt.Fprintf(out, "    %s\n    return Dataset(output)\n", line)
	} else {
		fmt.Fprintf(out, "    return %s\n", line)
	}
}

// pythonLiterals are the values of flags that check them later.
var pythonLiterals = map[string][]string{"dtype": {"float32", "float16", "bfloat16"}, "self-loops": {"keep", "drop"},
	"duplicates": {"merge", "sum", "keep"}, "labels-as": {"auto", "classes", "multi", "values"},
	"header": {"yes", "no"}, "seeds": {"train", "valid", "test", "rest", "all"}}

// pythonName is how Python names a flag of a command: split is the name of a part there, and split_index its number.
func pythonName(c *cobra.Command, flag string) string {
	switch {
	case flag == "from":
		return "from_"
	case flag == "split":
		return "split_index"
	case flag == "seeds", flag == "rows" && c.Name() != "propagate":
		return "split"
	}
	return strings.ReplaceAll(flag, "-", "_")
}

func pythonType(t *testing.T, f *pflag.Flag) string {
	if allowed := slices.Concat(f.Annotations[allowedValues], pythonLiterals[f.Name]); len(allowed) > 0 {
		if at := slices.Index(allowed, "valid"); at >= 0 {
			allowed = slices.Insert(allowed, at, "val")
		}
		return literal(allowed)
	}
	kind, ok := map[string]string{"int": "int", "int64": "int", "uint64": "int", "number": "int", "float64": "float",
		"float": "float", "factor": "float", "bool": "bool", "string": "str", "stringSlice": "str | Sequence[str]",
		"intSlice": "int | Sequence[int]", "float64Slice": "Sequence[float]", "duration": "str | float",
		"size": "Memory", "numbers": "int | str", "time or number": "int | str"}[f.Value.Type()]
	if !ok {
		t.Errorf("--%s: there is no type of Python for %s", f.Name, f.Value.Type())
	}
	return kind
}

func literal(values []string) string { return "Literal[\"" + strings.Join(values, `", "`) + "\"]" }

func pythonList(names []string) string {
	if len(names) == 0 {
		return "[]"
	}
	return "[\"" + strings.Join(names, `", "`) + "\"]"
}

// pythonUsage is the help of a flag, with the names that Python has.
func pythonUsage(c *cobra.Command, f *pflag.Flag) string {
	_, usage := pflag.UnquoteUsage(f)
	usage = regexp.MustCompile(`--([a-z][a-z-]*[a-z])`).ReplaceAllStringFunc(usage, func(flag string) string {
		return "``" + pythonName(c, strings.TrimPrefix(flag, "--")) + "``"
	})
	usage = strings.NewReplacer("\\", "\\\\", "train, valid, ", "train, val, ", "test, valid,", "test, val,").
		Replace(usage)
	switch f.Value.Type() {
	case "size":
		usage += `; bytes, or a text such as "8GiB"`
	case "duration":
		usage += `; seconds, or a text such as "90s"`
	}
	standard := strings.Trim(f.DefValue, "[]")
	if !slices.Contains([]string{"", "0", "false", "0 B", "0s"}, standard) && !strings.Contains(usage, "(default") {
		usage += " (default " + standard + ")"
	}
	return usage
}

// wrapPython breaks a line of a docstring at 120 columns.
func wrapPython(text string) string {
	var lines []string
	line := "   "
	for _, word := range strings.Fields(text) {
		if len(line)+1+len(word) > 120 {
			lines, line = append(lines, line), "       "
		}
		line += " " + word
	}
	return strings.Join(append(lines, line), "\n")
}
