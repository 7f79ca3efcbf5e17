package command

import (
	"encoding"
	"encoding/json"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/hopfeed/hopfeed/format"
	"github.com/hopfeed/hopfeed/tools/bench"
	"github.com/hopfeed/hopfeed/tools/report"
)

// jsonResults names what each command prints with --json, by a value of its type.
var jsonResults = []struct {
	command string
	value   any
}{
	{"import, generate", imported{}},
	{"import --names", columnNames{}},
	{"update", updated{}},
	{"export", exported{}},
	{"propagate", propagated{}},
	{"status", status{}},
	{"repair", repaired{}},
	{"inspect", inspected{}},
	{"inspect of a typed graph", inspectedTyped{}},
	{"verify", verified{}},
	{"plan", planned{}},
	{"train", trained{}},
	{"evaluate", evaluated{}},
	{"predict", predicted{}},
	{"report", reported{}},
	{"tune", report.Tuning{}},
	{"sample", bench.Samples{}},
	{"devices", devicesResult{}},
	{"version", versionResult{}},
	{"demo", demo{}},
	{"bench load, an object a line", bench.LoadTable{}},
	{"bench propagate, an object a line", bench.PropagateTable{}},
}

const jsonPage = "../../docs/json.md"

// TestTheJSONPageIsThatOfTheTypes compares docs/json.md with the types that commands print; HOPFEED_WRITE_DOCS=1
// writes it anew.
func TestTheJSONPageIsThatOfTheTypes(t *testing.T) {
	page := jsonReference(t)
	if os.Getenv("HOPFEED_WRITE_DOCS") != "" {
		if err := os.WriteFile(jsonPage, []byte(page), 0o666); err != nil {
			t.Fatal(err)
		}
	}
	written, err := os.ReadFile(jsonPage)
	if err != nil {
		t.Fatal(err)
	}
	if string(written) != page {
		t.Errorf("%s differs from the types: run HOPFEED_WRITE_DOCS=1 go test ./cmd/command -run TestTheJSONPage",
			jsonPage)
	}
}

const jsonIntroduction = `# JSON keys

Each command prints these keys with ` + "`--json`" + `: one object on stdout, logs on stderr. A test generates
this page from the types of the results. A type with [] is a list, with {} an object by name, and
with ? may be null or left out. Metrics are fractions of 1. Keys name their units. Types that begin
with a capital letter are [objects](#objects).
`

func jsonReference(t *testing.T) string {
	r := &jsonTypes{t: t, comments: map[string]map[string]string{}, uses: map[reflect.Type]int{}}
	r.counting = true
	r.page()
	r.counting = false
	return r.page()
}

func (r *jsonTypes) page() string {
	r.names, r.queue = map[string]reflect.Type{}, nil
	var page strings.Builder
	page.WriteString(jsonIntroduction)
	for _, result := range jsonResults {
		of := element(reflect.TypeOf(result.value))
		r.use(of)
		fmt.Fprintf(&page, "\n## %s\n\n%s", result.command, r.table(of))
	}
	page.WriteString("\n## Objects\n")
	for i := 0; i < len(r.queue); i++ {
		fmt.Fprintf(&page, "\n### %s\n\n%s", r.name(r.queue[i]), r.table(r.queue[i]))
	}
	return page.String()
}

// jsonTypes describes the fields of types by reflection, and their meaning by the comments in their source.
type jsonTypes struct {
	t        *testing.T
	comments map[string]map[string]string // package -> "Type.Field" -> comment
	counting bool                         // on the first pass, which finds how often a type is used
	uses     map[reflect.Type]int
	names    map[string]reflect.Type
	queue    []reflect.Type // types that have sections of their own
}

func (r *jsonTypes) use(of reflect.Type) {
	if r.counting {
		r.uses[of]++
	}
}

// element is the type of what a pointer or a list leads to.
func element(of reflect.Type) reflect.Type {
	for of.Kind() == reflect.Slice || of.Kind() == reflect.Pointer {
		of = of.Elem()
	}
	return of
}

// table is a line for each key of a struct.
func (r *jsonTypes) table(of reflect.Type) string {
	return "|key|type|meaning|\n|---|---|---|\n" + r.rows(of, of.PkgPath(), of.Name(), "")
}

// rows are the rows of a struct; a nested struct without a name adds its own. Its place in source is package and name.
func (r *jsonTypes) rows(of reflect.Type, pkg, place, prefix string) string {
	var rows strings.Builder
	for i := range of.NumField() {
		field := of.Field(i)
		key, options, _ := strings.Cut(field.Tag.Get("json"), ",")
		if field.Anonymous && key == "" {
			inner := element(field.Type)
			if inner == reflect.TypeFor[format.Manifest]() {
				rows.WriteString("|all of the [manifest](format.md#manifest)|||\n")
				continue
			}
			r.use(inner)
			if r.counting || r.uses[inner] == 1 {
				rows.WriteString(r.rows(inner, inner.PkgPath(), inner.Name(), prefix))
			} else {
				fmt.Fprintf(&rows, "|all of %s|||\n", strings.TrimSuffix(r.typeName(field.Type), "?"))
			}
			continue
		}
		if !field.IsExported() || key == "-" {
			continue
		}
		if key == "" {
			key = field.Name
		}
		name := r.typeName(field.Type)
		if strings.Contains(options, "omit") && !strings.HasSuffix(name, "?") {
			name += "?"
		}
		meaning := withKeys(of, r.comment(pkg, place+"."+field.Name))
		meaning = verb.ReplaceAllString(strings.TrimPrefix(strings.TrimPrefix(meaning, key+": "), key+" "), "")
		fmt.Fprintf(&rows, "|`%s%s`|%s|%s|\n", prefix, key, name, meaning)
		if inner := element(field.Type); inner.Kind() == reflect.Struct && inner.Name() == "" {
			rows.WriteString(r.rows(inner, pkg, place+"."+field.Name, prefix+key+"."))
		}
	}
	return rows.String()
}

// verb begins a comment whose subject is the field.
var verb = regexp.MustCompile(`^(says|tells that|tells|reports that|reports|counts|is|are|has) `)

var word = regexp.MustCompile(`\b[A-Z]\w+`)

// withKeys is a comment on a field of a struct, with the keys of its fields in place of their names.
func withKeys(of reflect.Type, comment string) string {
	return word.ReplaceAllStringFunc(comment, func(name string) string {
		field, there := of.FieldByName(name)
		if key, _, _ := strings.Cut(field.Tag.Get("json"), ","); there && key != "" {
			return key
		}
		return name
	})
}

var (
	jsonMarshaler = reflect.TypeFor[json.Marshaler]()
	textMarshaler = reflect.TypeFor[encoding.TextMarshaler]()
)

func (r *jsonTypes) typeName(of reflect.Type) string {
	switch {
	case of.Implements(textMarshaler):
		return "string"
	case of.Implements(jsonMarshaler) && of.Kind() != reflect.Struct:
		return "value"
	}
	switch of.Kind() {
	case reflect.Pointer:
		return strings.TrimSuffix(r.typeName(of.Elem()), "?") + "?"
	case reflect.Slice, reflect.Array:
		return "[]" + r.typeName(of.Elem())
	case reflect.Map:
		return "{}" + r.typeName(of.Elem())
	case reflect.Interface:
		return "value"
	case reflect.Struct:
		if of.Name() == "" {
			return "object"
		}
		for _, result := range jsonResults {
			if of == element(reflect.TypeOf(result.value)) {
				return "[" + result.command + "](#" + result.command + ")"
			}
		}
		name := r.name(of)
		r.use(of)
		if !slices.Contains(r.queue, of) {
			r.queue = append(r.queue, of)
		}
		return "[" + name + "](#" + strings.ToLower(name) + ")"
	case reflect.Float32, reflect.Float64:
		return "number"
	case reflect.Bool, reflect.String:
		return of.Kind().String()
	}
	return "int"
}

// name is that of a type, with the package before it where another type or a command has the same.
func (r *jsonTypes) name(of reflect.Type) string {
	name := strings.ToUpper(of.Name()[:1]) + of.Name()[1:]
	other, there := r.names[name]
	for _, result := range jsonResults {
		there = there || strings.EqualFold(name, result.command)
	}
	if there && other != of {
		name = strings.ToUpper(path.Base(of.PkgPath())[:1]) + path.Base(of.PkgPath())[1:] + name
	}
	r.names[name] = of
	return name
}

// comment is the first sentence of what stands above or beside a field.
func (r *jsonTypes) comment(pkg, field string) string {
	const module = "github.com/hopfeed/hopfeed"
	folder, ours := ".", true
	if pkg != "main" && pkg != module+"/cmd/command" {
		if folder, ours = strings.CutPrefix(pkg, module+"/"); !ours {
			return ""
		}
		folder = "../../" + folder
	}
	if r.comments[pkg] == nil {
		r.comments[pkg] = r.parse(folder)
	}
	text := strings.Join(strings.Fields(r.comments[pkg][field]), " ")
	if i := strings.Index(text, ". "); i >= 0 {
		text = text[:i]
	}
	return strings.ReplaceAll(strings.TrimSuffix(text, "."), "|", "\\|")
}

func (r *jsonTypes) parse(folder string) map[string]string {
	comments := map[string]string{}
	var fields func(place string, of ast.Expr)
	fields = func(place string, of ast.Expr) {
		switch of := of.(type) {
		case *ast.ArrayType:
			fields(place, of.Elt)
		case *ast.StarExpr:
			fields(place, of.X)
		case *ast.StructType:
			for _, field := range of.Fields.List {
				for _, name := range field.Names {
					comments[place+"."+name.Name] = field.Doc.Text() + field.Comment.Text()
					fields(place+"."+name.Name, field.Type)
				}
			}
		}
	}
	entries, err := fs.Glob(os.DirFS(folder), "*.go")
	if err != nil {
		r.t.Fatal(err)
	}
	for _, entry := range entries {
		if strings.HasSuffix(entry, "_test.go") {
			continue
		}
		file, err := parser.ParseFile(token.NewFileSet(), path.Join(folder, entry), nil,
			parser.ParseComments|parser.SkipObjectResolution)
		if err != nil {
			r.t.Fatal(err)
		}
		for _, declaration := range file.Decls {
			if types, is := declaration.(*ast.GenDecl); is && types.Tok == token.TYPE {
				for _, spec := range types.Specs {
					fields(spec.(*ast.TypeSpec).Name.Name, spec.(*ast.TypeSpec).Type)
				}
			}
		}
	}
	return comments
}
