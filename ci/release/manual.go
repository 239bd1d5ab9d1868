package main

import (
	"bytes"
	"cmp"
	"compress/gzip"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"runtime"
	"strings"

	"github.com/cpuguy83/go-md2man/v2/md2man"
)

// help is the JSON of "help COMMAND --json".
type help struct {
	Command, Usage, Summary, Description, Examples string
	Flags                                          []struct{ Name, Shorthand, Type, Default, Usage string }
	Commands                                       []struct{ Name, Summary string }
}

// document has the programs that this machine runs write what is documentation: a manual page for
// each command, and the scripts of completion.
func (r *release) document(ctx context.Context) error {
	for _, name := range programs {
		if err := r.manual(ctx, name, nil, ""); err != nil {
			return err
		}
		if err := r.completion(ctx, name); err != nil {
			return err
		}
	}
	return r.agentFile()
}

// completions are where each shell looks for the script of a program, whose name is put in.
var completions = map[string]string{
	"bash": "usr/share/bash-completion/completions/%s",
	"zsh":  "usr/share/zsh/vendor-completions/_%s",
	"fish": "usr/share/fish/vendor_completions.d/%s.fish",
}

func (r *release) completion(ctx context.Context, name string) error {
	for shell, path := range completions {
		script, err := command(ctx, r.build, nil, r.program(runtime.GOARCH, name), "completion", shell)
		if err != nil {
			return err
		}
		if err := writeFile(filepath.Join(r.documents(name), fmt.Sprintf(path, name)), []byte(script+"\n"), 0o644); err != nil {
			return err
		}
	}
	return nil
}

// documents is the root of what all architectures of a program's package have.
func (r *release) documents(name string) string { return filepath.Join(r.build, "documents", name) }

// manual writes the pages of a command, whose path without the program is given, and of those below.
func (r *release) manual(ctx context.Context, program string, path []string, exitCodes string) error {
	describe := func(args ...string) (h help, err error) {
		text, err := command(ctx, r.build, nil, r.program(runtime.GOARCH, program), append(append([]string{"help"}, args...), "--json")...)
		if err != nil {
			return h, err
		}
		return h, json.Unmarshal([]byte(text), &h)
	}
	h, err := describe(path...)
	if err != nil {
		return err
	}
	if exitCodes == "" {
		codes, err := describe("exit-codes")
		if err != nil {
			return err
		}
		exitCodes = codes.Description
	}
	if err := r.page(program, strings.ReplaceAll(h.Command, " ", "-"), 1, h.Summary, r.markdown(h, exitCodes)); err != nil {
		return err
	}
	for _, c := range h.Commands {
		if c.Name == "help" || c.Name == "exit-codes" {
			continue
		}
		if err := r.manual(ctx, program, append(path[:len(path):len(path)], c.Name), exitCodes); err != nil {
			return err
		}
	}
	return nil
}

// page writes a page of the manual, the first section of which is NAME.
func (r *release) page(program, name string, section int, summary, markdown string) error {
	title := fmt.Sprintf("%% %s %d \"%s\" \"trapeze %s\" \"Trapeze\"\n\n# NAME\n\n%s - %s\n\n",
		strings.ToUpper(name), section, r.date.Format("2006-01-02"), r.version, name, escaped(summary))
	path := filepath.Join(r.documents(program), fmt.Sprintf("usr/share/man/man%d/%s.%[1]d.gz", section, name))
	return writePacked(path, md2man.Render([]byte(title+markdown)))
}

// keys are the rows of the table of docs/agent.md, whose head has no code; links lead to other documents.
var (
	keys  = regexp.MustCompile("(?m)^\\| (.*`.*) \\| (.*) \\| ?(.*?) ?\\|$")
	links = regexp.MustCompile(`\[([^]]*)\]\([^)]*\)`)
)

// agentFile writes the page of the agent's file: the section of docs/agent.md about it, and the example.
func (r *release) agentFile() error {
	text, err := os.ReadFile(filepath.Join(r.source, "docs/agent.md"))
	example, eerr := os.ReadFile(filepath.Join(r.source, "examples/agent.toml"))
	if err = cmp.Or(err, eerr); err != nil {
		return err
	}
	_, section, _ := strings.Cut(string(text), "\n## The file\n")
	section, _, _ = strings.Cut(section, "\n## ")
	_, section, found := strings.Cut(section, "\n|---|---|---|\n")
	if !found {
		return errors.New(`docs/agent.md has no section "The file" with a table of three columns`)
	}
	section = keys.ReplaceAllString(links.ReplaceAllString(section, "$1"), "$1\n:   $2. Unless given: $3\n")
	section = strings.ReplaceAll(section, " Unless given: \n", "\n")
	return r.page("trapeze", "agent.toml", 5, "what trapeze agent owns, and who may have a share of it",
		"# DESCRIPTION\n\nThe agent reads /etc/trapeze/agent.toml, in TOML.\n\n"+section+"\n# EXAMPLES\n\n```\n"+string(example)+"```\n\n# SEE ALSO\n\n**trapeze-agent**(1)\n")
}

// special are the characters that Markdown would take for its own.
var special = regexp.MustCompile("([\\\\`*_\\[\\]<>#&|~])")

func escaped(text string) string { return special.ReplaceAllString(text, `\$1`) }

// blocks turns the text of a help into Markdown: lines that are indented stay as they are.
func blocks(text string) string {
	var out strings.Builder
	code := false
	for line := range strings.Lines(text) {
		line = strings.TrimRight(line, "\n")
		indented := strings.HasPrefix(line, "  ")
		if indented && !code || !indented && code && line != "" {
			out.WriteString("\n")
		}
		if line != "" {
			code = indented
		}
		if indented {
			out.WriteString("    " + strings.TrimPrefix(line, "  ") + "\n")
		} else {
			out.WriteString(escaped(line) + "\n")
		}
	}
	return out.String()
}

// markdown is the page of a command.
func (r *release) markdown(h help, exitCodes string) string {
	var out strings.Builder
	page := strings.ReplaceAll(h.Command, " ", "-")
	fmt.Fprintf(&out, "# SYNOPSIS\n\n**%s**\n\n# DESCRIPTION\n\n%s\n", escaped(h.Usage), blocks(h.Description))
	if len(h.Commands) > 0 {
		out.WriteString("# COMMANDS\n\n")
		for _, c := range h.Commands {
			fmt.Fprintf(&out, "**%s**\n:   %s\n\n", escaped(c.Name), escaped(c.Summary))
		}
	}
	out.WriteString("# OPTIONS\n\n")
	for _, f := range h.Flags {
		name := "--" + f.Name
		if f.Shorthand != "" {
			name = "-" + f.Shorthand + ", " + name
		}
		if f.Type != "bool" {
			name += " " + f.Type
			if f.Default != "" && f.Default != "[]" {
				name += " (" + f.Default + ")"
			}
		}
		fmt.Fprintf(&out, "**%s**\n:   %s\n\n", escaped(name), escaped(f.Usage))
	}
	if h.Examples != "" {
		out.WriteString("# EXAMPLES\n\n" + blocks(h.Examples) + "\n")
	}
	_, codes, _ := strings.Cut(exitCodes, "\n")
	out.WriteString("# EXIT STATUS\n\n" + blocks(codes) + "\n")
	if above, _, below := strings.Cut(page, "-"); below && page != "trapeze-lab" {
		if strings.HasPrefix(page, "trapeze-lab-") {
			above = "trapeze-lab"
		}
		out.WriteString("# SEE ALSO\n\n**" + above + "**(1)\n")
	}
	return out.String()
}

// writePacked writes a file as gzip makes it smallest.
func writePacked(path string, content []byte) error {
	var packed bytes.Buffer
	gz, err := gzip.NewWriterLevel(&packed, gzip.BestCompression)
	if err != nil {
		return err
	}
	_, err = gz.Write(content)
	return cmp.Or(err, gz.Close(), writeFile(path, packed.Bytes(), 0o644))
}

func writeFile(path string, content []byte, mode os.FileMode) error {
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return err
	}
	return os.WriteFile(path, content, mode)
}
