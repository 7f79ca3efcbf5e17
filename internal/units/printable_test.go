package units

import "testing"

func TestPrintableEscapesWhatATerminalWouldObey(t *testing.T) {
	for _, c := range [][2]string{
		{"", ""}, {"cora", "cora"}, {"größe 世界.csv", "größe 世界.csv"}, {`a\b "c"`, `a\b "c"`},
		{"\x1b[31mred\x1b[0m", `\x1b[31mred\x1b[0m`}, {"two\nlines\tand\r", `two\nlines\tand\r`},
		{"\x00\x7f\u009b", `\x00\x7f\u009b`},
		{"\u202egpj.exe", `\u202egpj.exe`}, {"a\xff\xfeb", `a\xff\xfeb`}, {"\ufffd", "\ufffd"},
		{"a\u2028b", `a\u2028b`}, {"\U000e0041", `\U000e0041`},
	} {
		got := Printable(c[0])
		if got != c[1] {
			t.Errorf("%q is printed as %q, want %q", c[0], got, c[1])
		}
		if again := Printable(got); again != got {
			t.Errorf("%q is escaped twice: %q", c[0], again)
		}
	}
	if got, want := PrintableLines("a\tb\x1b\n\r"), "a\tb\\x1b\n\\r"; got != want {
		t.Errorf("lines are printed as %q, want %q", got, want)
	}
}
