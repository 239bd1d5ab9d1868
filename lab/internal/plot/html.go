package plot

import (
	"bytes"
	"fmt"
)

// Picture is an SVG with a caption.
type Picture struct {
	Caption string
	SVG     []byte
}

// Table is a table of a page.
type Table struct {
	Caption string
	Header  []string
	Rows    [][]string
}

// Section of a page.
type Section struct {
	Title    string
	Text     string // one paragraph
	Tables   []Table
	Pictures []Picture
}

// HTML makes one self-contained page: no script, no file beside it. A page of several
// sections has a list of contents, with all pictures and tables.
func HTML(title, intro string, sections []Section) []byte {
	var b bytes.Buffer
	fmt.Fprintf(&b, `<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>%s</title>
<style>
body{font-family:%s;max-width:1040px;margin:2em auto;padding:0 1em;line-height:1.45;color:#111}
svg{max-width:100%%;height:auto}
figure{margin:1.2em 0;page-break-inside:avoid}
figcaption,caption{font-size:.9em;color:#333;text-align:left;padding:.3em 0}
table{border-collapse:collapse;margin:1em 0;font-size:.9em}
td,th{border:1px solid #999;padding:.2em .6em;text-align:left}
td.n{text-align:right}
</style>
</head>
<body>
<h1>%s</h1>
<p>%s</p>
`, escape(title), fontFamily, escape(title), escape(intro))
	if len(sections) > 1 {
		contents(&b, sections)
	}
	for i, s := range sections {
		fmt.Fprintf(&b, "<h2 id=\"s%d\">%s</h2>\n<p>%s</p>\n", i, escape(s.Title), escape(s.Text))
		for k, t := range s.Tables {
			t.write(&b, fmt.Sprintf("s%dt%d", i, k))
		}
		for k, p := range s.Pictures {
			fmt.Fprintf(&b, "<figure id=\"s%dp%d\">\n%s<figcaption>%s</figcaption>\n</figure>\n", i, k, p.SVG, escape(p.Caption))
		}
	}
	b.WriteString("</body>\n</html>\n")
	return b.Bytes()
}

// contents writes links to the sections, their tables and pictures.
func contents(b *bytes.Buffer, sections []Section) {
	link := func(id, text string) { fmt.Fprintf(b, "<li><a href=\"#%s\">%s</a></li>\n", id, escape(text)) }
	b.WriteString("<nav>\n<h2>Contents</h2>\n<ul>\n")
	for i, s := range sections {
		fmt.Fprintf(b, "<li><a href=\"#s%d\">%s</a>\n<ul>\n", i, escape(s.Title))
		for k, t := range s.Tables {
			link(fmt.Sprintf("s%dt%d", i, k), t.Caption)
		}
		for k, p := range s.Pictures {
			link(fmt.Sprintf("s%dp%d", i, k), p.Caption)
		}
		b.WriteString("</ul></li>\n")
	}
	b.WriteString("</ul>\n</nav>\n")
}

func (t Table) write(b *bytes.Buffer, id string) {
	fmt.Fprintf(b, "<table id=\"%s\">\n<caption>%s</caption>\n<tr>", id, escape(t.Caption))
	for _, h := range t.Header {
		fmt.Fprintf(b, "<th>%s</th>", escape(h))
	}
	b.WriteString("</tr>\n")
	for _, row := range t.Rows {
		b.WriteString("<tr>")
		for _, cell := range row {
			class := ""
			if numeric(cell) {
				class = ` class="n"`
			}
			fmt.Fprintf(b, "<td%s>%s</td>", class, escape(cell))
		}
		b.WriteString("</tr>\n")
	}
	b.WriteString("</table>\n")
}

func numeric(s string) bool {
	for _, c := range s {
		if (c < '0' || c > '9') && c != '.' && c != '-' && c != '+' && c != ' ' && c != '%' {
			return false
		}
	}
	return s != ""
}
