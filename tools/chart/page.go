package chart

import (
	"fmt"
	"strings"
)

// Page is an HTML page with figures and tables, which needs no other file. Texts are escaped.
type Page struct {
	title string
	body  strings.Builder
}

// escape makes text of a page; it leaves quotes as they are, since no text is within an attribute.
var escape = strings.NewReplacer("&", "&amp;", "<", "&lt;", ">", "&gt;").Replace

// NewPage begins a page.
func NewPage(title string) *Page {
	p := &Page{title: title}
	p.element("h1", title)
	return p
}

// element adds an element with text; its tag may have attributes.
func (p *Page) element(tag, text string) {
	name, _, _ := strings.Cut(tag, " ")
	fmt.Fprintf(&p.body, "<%s>%s</%s>\n", tag, escape(text), name)
}

// Heading adds a heading.
func (p *Page) Heading(text string) { p.element("h2", text) }

// Text adds a paragraph.
func (p *Page) Text(text string) { p.element("p", text) }

// Note adds a paragraph in small letters of the sentences that are not empty.
func (p *Page) Note(sentences ...string) {
	if text := strings.Join(strings.Fields(strings.Join(sentences, " ")), " "); text != "" {
		p.element(`p class="note"`, text)
	}
}

// Figure adds a figure.
func (p *Page) Figure(f *Figure) { p.body.WriteString(string(f.HTML()) + "\n") }

// Table is a table of a page.
type Table struct {
	Columns []string
	Texts   int // leading columns that are aligned to the left; the others are numbers
	Rows    []TableRow
}

// TableRow is a row of a Table.
type TableRow struct {
	Cells  []string
	Color  string // of a square before the first cell; "": none
	Chosen bool   // in bold
}

// Add adds a row of cells.
func (t *Table) Add(cells ...string) { t.Rows = append(t.Rows, TableRow{Cells: cells}) }

// Table adds a table.
func (p *Page) Table(t *Table) {
	cells := func(tag, color string, texts []string) {
		for i, text := range texts {
			class, square := "", ""
			if i >= t.Texts {
				class = ` class="n"`
			}
			if i == 0 && color != "" {
				square = `<span class="swatch" style="background:` + color + `"></span>`
			}
			fmt.Fprintf(&p.body, "<%s%s>%s%s</%s>", tag, class, square, escape(text), tag)
		}
		p.body.WriteString("</tr>\n")
	}
	p.body.WriteString(`<div class="scroll"><table>` + "\n<tr>")
	cells("th", "", t.Columns)
	for _, row := range t.Rows {
		p.body.WriteString(map[bool]string{true: `<tr class="chosen">`, false: "<tr>"}[row.Chosen])
		cells("td", row.Color, row.Cells)
	}
	p.body.WriteString("</table></div>\n")
}

// Details adds a table that shows when the reader opens it.
func (p *Page) Details(summary string, t *Table) {
	p.body.WriteString("<details>")
	p.element("summary", summary)
	p.Table(t)
	p.body.WriteString("</details>\n")
}

// File returns the page.
func (p *Page) File() []byte {
	return fmt.Appendf(nil, `<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>%s</title>
<style>%s</style>
</head>
<body>
%s</body>
</html>
`, escape(p.title), style, p.body.String())
}
