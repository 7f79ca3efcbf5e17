package units

import (
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"
)

// Printable is a text from outside (the name of a file or of a data set, an id) as it may be shown on a terminal, on
// one line: what cannot be printed is written as Go does in strings: \n, \x1b, \u202e, and \xff for bytes that are no
// UTF-8. Printable text stays as it is, so nothing is escaped twice.
func Printable(s string) string { return escape(s, "") }

// PrintableLines is Printable for text of several lines and columns, which keeps line feeds and tabs.
func PrintableLines(s string) string { return escape(s, "\n\t") }

func escape(s, but string) string {
	var b strings.Builder
	for i := 0; i < len(s); {
		r, n := utf8.DecodeRuneInString(s[i:])
		broken := r == utf8.RuneError && n == 1
		if !broken && (unicode.IsPrint(r) || strings.ContainsRune(but, r)) {
			b.WriteString(s[i : i+n])
		} else {
			quoted := strconv.Quote(s[i : i+n])
			b.WriteString(quoted[1 : len(quoted)-1])
		}
		i += n
	}
	return b.String()
}
