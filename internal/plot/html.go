package plot

import (
	"bytes"
	_ "embed"
	"regexp"
	"sync"
	"text/template"
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

//go:embed page.html
var pageText string

// numeric matches a cell with a number, bound or range, which is set to the right.
var numeric = regexp.MustCompile(`^[<>]?[0-9.+ %K-]*[0-9][0-9.+ %K-]*$`)

// page is parsed when the first page is made: most commands make none.
var page = sync.OnceValue(func() *template.Template {
	return template.Must(template.New("page").Funcs(template.FuncMap{"escape": escape, "numeric": numeric.MatchString}).Parse(pageText))
})

// HTML makes one self-contained page: no script, no file beside it. A page of several
// sections has a list of contents, with all pictures and tables.
func HTML(title, intro string, sections []Section) []byte {
	var b bytes.Buffer
	// A buffer takes everything, and what the template asks for is there.
	_ = page().Execute(&b, struct {
		Title, Intro, Font string
		Sections           []Section
	}{title, intro, fontFamily, sections})
	return b.Bytes()
}
