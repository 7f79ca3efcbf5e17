// Package units reads and prints sizes and rates as people write them.
package units

import (
	"fmt"
	"math"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"
)

// Bytes is a number of bytes. As a flag it reads "1.5GiB", "200MB" or "4096".
type Bytes int64

var byteUnits = []struct {
	suffix string
	size   float64
}{
	{"TiB", 1 << 40}, {"GiB", 1 << 30}, {"MiB", 1 << 20}, {"KiB", 1 << 10},
	{"TB", 1e12}, {"GB", 1e9}, {"MB", 1e6}, {"kB", 1e3}, {"KB", 1e3},
	{"T", 1 << 40}, {"G", 1 << 30}, {"M", 1 << 20}, {"K", 1 << 10}, {"B", 1},
}

// ParseBytes reads a size. Units without "i" and with "B" are decimal, the others binary.
func ParseBytes(s string) (Bytes, error) {
	number, scale := strings.TrimSpace(s), 1.0
	for _, u := range byteUnits {
		if rest, ok := strings.CutSuffix(number, u.suffix); ok {
			number, scale = strings.TrimSpace(rest), u.size
			break
		}
	}
	v, err := strconv.ParseFloat(number, 64)
	if err != nil || v < 0 || math.IsNaN(v) || v*scale >= math.MaxInt64 {
		return 0, fmt.Errorf("%q is no size (write 4096, 512MiB, 1.5GiB or 2GB)", s)
	}
	return Bytes(v * scale), nil
}

// String prints with a binary unit and three digits, or all of the whole number.
func (b Bytes) String() string {
	for _, u := range byteUnits[:4] {
		if v := float64(b) / u.size; v >= 1 {
			return strconv.FormatFloat(v, 'g', max(3, len(strconv.Itoa(int(math.Round(v))))), 64) + " " + u.suffix
		}
	}
	return strconv.FormatInt(int64(b), 10) + " B"
}

// AtLeast is the least size of b or more that is itself when it is read as it prints: for
// messages that say what to ask for.
func AtLeast(b Bytes) Bytes {
	for more := b; ; more += more/1000 + 1 {
		if read, err := ParseBytes(more.String()); err != nil || read >= b {
			return more
		}
	}
}

// Set and Type make Bytes a flag value.
func (b *Bytes) Set(s string) (err error) {
	*b, err = ParseBytes(s)
	return err
}

func (b *Bytes) Type() string { return "size" }

// Rate is a number of bytes a second. As a flag it reads "12GiB/s".
type Rate int64

// ParseRate reads a size and "/s".
func ParseRate(s string) (Rate, error) {
	size, ok := strings.CutSuffix(strings.TrimSpace(s), "/s")
	b, err := ParseBytes(size)
	if !ok || err != nil {
		return 0, fmt.Errorf("%q is no rate (write 500MB/s or 12GiB/s)", s)
	}
	return Rate(b), nil
}

func (r Rate) String() string { return Bytes(r).String() + "/s" }

// Set and Type make Rate a flag value.
func (r *Rate) Set(s string) (err error) {
	*r, err = ParseRate(s)
	return err
}

func (r *Rate) Type() string { return "rate" }

// Count is a number of things, in words.
func Count(n int64, thing string) string {
	switch {
	case n == 1:
		return "1 " + thing
	case strings.HasSuffix(thing, "s"), strings.HasSuffix(thing, "tch"):
		thing += "e"
	}
	return fmt.Sprintf("%d %ss", n, thing)
}

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
