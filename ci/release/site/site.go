package main

import (
	"bytes"
	_ "embed"
	"encoding/json"
	"fmt"
	"html/template"
	"io/fs"
	"net/url"
	"path"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/yuin/goldmark"
	"github.com/yuin/goldmark/ast"
	"github.com/yuin/goldmark/extension"
	"github.com/yuin/goldmark/parser"
	"github.com/yuin/goldmark/text"
)

// start are the documents that the site begins with; those that they link to come along.
var start = []string{"README.md", "docs/README.md"}

//go:embed page.html
var pageText string

//go:embed search.js
var searchScript string

var pageTemplate = template.Must(template.New("page").Parse(pageText))

// site has the files of a site while it is made.
type site struct {
	sources fs.FS
	files   map[string][]byte // by path
	queue   []string          // sources without a page yet
	queued  []string
	index   []entry
}

// entry is a section of a page, as search.js reads it.
type entry struct {
	URL   string `json:"url"`
	Title string `json:"title"`
	Text  string `json:"text"`
}

// make makes a page of each document, and of each file and folder that one links to.
func (s *site) make() error {
	for _, name := range start {
		s.want(name)
	}
	for len(s.queue) > 0 {
		name := s.queue[0]
		s.queue = s.queue[1:]
		if err := s.add(name); err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
	}
	list, err := json.Marshal(s.index)
	if err != nil {
		return err
	}
	s.files["search.js"] = []byte("const sections = " + string(list) + ";\n" + searchScript)
	s.files["index.html"] = s.files["README.html"]
	return nil
}

// want has a source come into the site.
func (s *site) want(name string) {
	if !slices.Contains(s.queued, name) {
		s.queued = append(s.queued, name)
		s.queue = append(s.queue, name)
	}
}

// target is the file of the site for a source.
func (s *site) target(name string) string {
	info, err := fs.Stat(s.sources, name)
	switch {
	case err == nil && info.IsDir():
		return path.Join(name, "folder.html")
	case path.Ext(name) == ".md":
		return strings.TrimSuffix(name, ".md") + ".html"
	case slices.Contains([]string{".svg", ".png", ".jpg"}, path.Ext(name)):
		return name
	}
	return name + ".html"
}

func (s *site) add(name string) error {
	info, err := fs.Stat(s.sources, name)
	if err != nil {
		return err
	}
	if info.IsDir() {
		return s.addFolder(name)
	}
	b, err := fs.ReadFile(s.sources, name)
	if err != nil {
		return err
	}
	switch {
	case path.Ext(name) == ".md":
		return s.addDocument(name, b)
	case s.target(name) == name:
		s.files[name] = b
		return nil
	case !utf8.Valid(b):
		return fmt.Errorf("it is neither text nor a picture")
	}
	return s.addPage(name, name, template.HTML("<pre>"+template.HTMLEscapeString(string(b))+"</pre>"))
}

// addFolder makes a page with the files of a folder. Those that nothing else links to have no link.
func (s *site) addFolder(name string) error {
	entries, err := fs.ReadDir(s.sources, name)
	if err != nil {
		return err
	}
	var out strings.Builder
	out.WriteString("<h1>" + template.HTMLEscapeString(name) + "</h1>\n<ul>\n")
	for _, e := range entries {
		text := template.HTMLEscapeString(e.Name())
		if path.Ext(e.Name()) == ".md" {
			s.want(path.Join(name, e.Name()))
			text = `<a href="` + strings.TrimSuffix(text, ".md") + `.html">` + text + "</a>"
		}
		out.WriteString("<li>" + text + "</li>\n")
	}
	out.WriteString("</ul>\n")
	return s.addPage(name, name, template.HTML(out.String()))
}

// addDocument makes a page of Markdown.
func (s *site) addDocument(name string, source []byte) error {
	md := goldmark.New(goldmark.WithExtensions(extension.GFM), goldmark.WithParserOptions(parser.WithAutoHeadingID()))
	tree := md.Parser().Parse(text.NewReader(source), parser.WithContext(parser.NewContext(parser.WithIDs(&anchors{}))))
	page, title, last := s.target(name), name, -1
	err := ast.Walk(tree, func(n ast.Node, entering bool) (ast.WalkStatus, error) {
		if !entering {
			return ast.WalkContinue, nil
		}
		switch n := n.(type) {
		case *ast.Link:
			n.Destination = s.link(name, n.Destination)
		case *ast.Image:
			n.Destination = s.link(name, n.Destination)
		case *ast.Heading:
			id, _ := n.AttributeString("id")
			anchor, _ := id.([]byte)
			words := plain(n, source)
			if n.Level == 1 {
				title = words
			}
			s.index = append(s.index, entry{URL: page + "#" + string(anchor), Title: words})
			last = len(s.index) - 1
		case *ast.Text:
			if last >= 0 {
				s.index[last].Text += string(n.Segment.Value(source)) + " "
			}
		}
		return ast.WalkContinue, nil
	})
	if err != nil {
		return err
	}
	var out bytes.Buffer
	if err := md.Renderer().Render(&out, source, tree); err != nil {
		return err
	}
	return s.addPage(name, title, template.HTML(out.String()))
}

// plain is the text below a node.
func plain(n ast.Node, source []byte) string {
	var out strings.Builder
	for c := n.FirstChild(); c != nil; c = c.NextSibling() {
		if t, ok := c.(*ast.Text); ok {
			out.Write(t.Segment.Value(source))
		} else {
			out.WriteString(plain(c, source))
		}
	}
	return out.String()
}

// link turns a link of a document into one of its page, and has its target come into the site.
// Links that lead out of it stay; check finds those that lead nowhere.
func (s *site) link(from string, destination []byte) []byte {
	u, err := url.Parse(string(destination))
	if err != nil || u.Scheme != "" || u.Host != "" || u.Path == "" {
		return destination
	}
	to := path.Join(path.Dir(from), u.Path)
	if _, err := fs.Stat(s.sources, to); err != nil {
		return destination
	}
	s.want(to)
	u.Path = relative(s.target(from), s.target(to))
	return []byte(u.String())
}

// relative is the way from one file of the site to another.
func relative(from, to string) string { return strings.Repeat("../", strings.Count(from, "/")) + to }

// addPage puts the content of a page between what all pages have.
func (s *site) addPage(name, title string, content template.HTML) error {
	page := s.target(name)
	var out bytes.Buffer
	err := pageTemplate.Execute(&out, struct {
		Title   string
		Top     string
		Content template.HTML
	}{title, strings.Repeat("../", strings.Count(page, "/")), content})
	s.files[page] = out.Bytes()
	return err
}

// anchors names headings as the links in our documents do: in lower case, with hyphens for blanks
// and without punctuation; a second one of the same name has -1 behind it.
type anchors struct{ seen map[string]int }

func (a *anchors) Generate(value []byte, _ ast.NodeKind) []byte {
	name := strings.Map(func(r rune) rune {
		switch {
		case r == ' ':
			return '-'
		case r >= 'a' && r <= 'z', r >= '0' && r <= '9', r == '-', r == '_':
			return r
		}
		return -1
	}, strings.ToLower(string(value)))
	if a.seen == nil {
		a.seen = map[string]int{}
	}
	n := a.seen[name]
	a.seen[name]++
	if n > 0 {
		name = fmt.Sprintf("%s-%d", name, n)
	}
	return []byte(name)
}

func (a *anchors) Put([]byte) {}
