package lint

import (
	"io/fs"
	"os"
	"strings"
	"testing"
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
		free := code || strings.HasPrefix(trimmed, "|") || strings.HasPrefix(trimmed, "#") || strings.HasPrefix(trimmed, "!") || strings.HasPrefix(line, "    ")
		if !free && utf8.RuneCountInString(line) > proseColumns && len(strings.Fields(strings.TrimLeft(trimmed, "-* "))) > 1 {
			numbers = append(numbers, i+1)
		}
	}
	return numbers
}

func TestLinesOfProseAreShort(t *testing.T) {
	files := 0
	root := os.DirFS("../..")
	err := fs.WalkDir(root, ".", func(name string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() && name != "." && strings.HasPrefix(d.Name(), ".") {
			return fs.SkipDir
		}
		if d.IsDir() || !strings.HasSuffix(name, ".md") {
			return nil
		}
		text, err := fs.ReadFile(root, name)
		if err != nil {
			return err
		}
		files++
		for _, n := range longProse(string(text)) {
			t.Errorf("%s:%d: more than %d columns", name, n, proseColumns)
		}
		return nil
	})
	if err != nil || files < 5 {
		t.Fatal(files, err)
	}
}

func TestLongProseIsFound(t *testing.T) {
	long := strings.Repeat("word ", 21)
	text := long + "\n| " + long + "\n```\n" + long + "\n```\n# " + long + "\n- " + long + "\nhttps://" + strings.Repeat("x", 120)
	if got := longProse(text); len(got) != 2 || got[0] != 1 || got[1] != 7 {
		t.Errorf("%v", got)
	}
}
