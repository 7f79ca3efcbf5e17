package lint

import (
	"io/fs"
	"os"
	"path"
	"regexp"
	"strings"
	"testing"
	"unicode"
	"unicode/utf8"
)

// proseColumns is how long a line of prose may be. Tables, code, headings, pictures and
// words that cannot be broken may be longer.
const proseColumns = 100

// longProse is the numbers of the lines of a Markdown text that are too long.
func longProse(text string) (numbers []int) {
	code := false
	for i, line := range strings.Split(text, "\n") {
		trimmed := strings.TrimSpace(line)
		if strings.HasPrefix(trimmed, "```") {
			code = !code
			continue
		}
		free := code || strings.IndexAny(trimmed, "|#!") == 0 || strings.HasPrefix(line, "    ")
		words := strings.Fields(strings.TrimLeft(trimmed, "-* "))
		if !free && utf8.RuneCountInString(line) > proseColumns && len(words) > 1 {
			numbers = append(numbers, i+1)
		}
	}
	return numbers
}

// eachFile calls do with the name and text of each file of the project with a suffix.
func eachFile(t *testing.T, suffix string, do func(name, text string)) {
	files := 0
	root := os.DirFS("../..")
	err := fs.WalkDir(root, ".", func(name string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() && name != "." && strings.HasPrefix(d.Name(), ".") {
			return fs.SkipDir
		}
		if d.IsDir() || !strings.HasSuffix(name, suffix) {
			return nil
		}
		text, err := fs.ReadFile(root, name)
		files++
		do(name, string(text))
		return err
	})
	if err != nil || files < 5 {
		t.Fatal(files, err)
	}
}

func TestLinesOfProseAreShort(t *testing.T) {
	eachFile(t, ".md", func(name, text string) {
		for _, n := range longProse(text) {
			t.Errorf("%s:%d: more than %d columns", name, n, proseColumns)
		}
	})
}

// goColumns is how long a line of Go may be, but for generated code, output of examples, and text in backquotes.
const goColumns = 120

func TestLinesOfGoAreShort(t *testing.T) {
	eachFile(t, ".go", func(name, text string) {
		if strings.HasPrefix(text, "// Code generated") || strings.HasSuffix(name, "example_test.go") {
			return
		}
		for i, line := range strings.Split(text, "\n") {
			if utf8.RuneCountInString(line) > goColumns && !strings.Contains(line, "`") {
				t.Errorf("%s:%d: more than %d columns", name, i+1, goColumns)
			}
		}
	})
}

// TestLinksLeadSomewhere follows the links of all pages to files and headings of the project.
func TestLinksLeadSomewhere(t *testing.T) {
	root := os.DirFS("../..")
	links := regexp.MustCompile(`\]\(([^)\s#]*)(?:#([^)\s]*))?\)`)
	err := fs.WalkDir(root, ".", func(name string, d fs.DirEntry, err error) error {
		if err != nil || !strings.HasSuffix(name, ".md") || strings.HasPrefix(name, ".") {
			return err
		}
		text, err := fs.ReadFile(root, name)
		for _, link := range links.FindAllStringSubmatch(string(text), -1) {
			to := name
			if strings.Contains(link[1], "://") {
				continue
			} else if link[1] != "" {
				to = path.Join(path.Dir(name), link[1])
			}
			if _, err := fs.Stat(root, to); err != nil {
				t.Errorf("%s links to %s, which is not there", name, to)
			} else if link[2] != "" {
				if page, err := fs.ReadFile(root, to); err != nil || !headings(string(page))[link[2]] {
					t.Errorf("%s links to the heading #%s, which %s does not have", name, link[2], to)
				}
			}
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
}

// headings are the names by which links lead to the headings of a page.
func headings(page string) map[string]bool {
	names, code := map[string]bool{}, false
	for line := range strings.Lines(page) {
		if strings.HasPrefix(line, "```") {
			code = !code
		} else if title := strings.TrimLeft(line, "#"); !code && title != line {
			keep := func(r rune) rune {
				switch {
				case r == ' ':
					return '-'
				case unicode.IsLetter(r), unicode.IsDigit(r), r == '-', r == '_':
					return unicode.ToLower(r)
				}
				return -1
			}
			names[strings.Map(keep, strings.TrimSpace(title))] = true
		}
	}
	return names
}

func TestLongProseIsFound(t *testing.T) {
	long := strings.Repeat("word ", 21)
	text := long + "\n| " + long + "\n```\n" + long + "\n```\n# " + long + "\n- " + long + "\nhttps://" +
		strings.Repeat("x", 120)
	if got := longProse(text); len(got) != 2 || got[0] != 1 || got[1] != 7 {
		t.Errorf("%v", got)
	}
}
