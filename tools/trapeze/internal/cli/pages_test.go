package cli_test

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/trapeze-nic/trapeze/tools/internal/shell"
)

var (
	shellBlock = regexp.MustCompile("(?ms)^```sh\n(.*?)^```$")
	// shellWord is a word of a command, or what ends the command.
	shellWord = regexp.MustCompile(`(?:'[^']*'|"[^"]*"|[^\s'"|&;>#])+|[|&;>#]`)
)

// TestCommandsOfPages: each trapeze that a page shows names a command, and has the flags and the number
// of arguments that the command takes. None runs: a last flag is wrong.
func TestCommandsOfPages(t *testing.T) {
	const root = "../../../../"
	pages, err := filepath.Glob(root + "docs/*.md")
	if err != nil {
		t.Fatal(err)
	}
	found := 0
	for _, page := range append(pages, root+"README.md", root+"vipl/README.md") {
		text, err := os.ReadFile(page)
		if err != nil {
			t.Fatal(err)
		}
		for _, block := range shellBlock.FindAllStringSubmatch(string(text), -1) {
			for line := range strings.Lines(strings.ReplaceAll(block[1], "\\\n", " ")) {
				words := shellWord.FindAllString(strings.TrimPrefix(line, "sudo "), -1)
				if len(words) == 0 || words[0] != "trapeze" {
					continue
				}
				var args []string
				for _, w := range words[1:] {
					if strings.Contains("|&;>#", w) {
						break
					}
					if !strings.HasPrefix(w, "$") { // several words
						args = append(args, strings.Trim(w, `'"`))
					}
				}
				found++
				o := run(t, append(slices.Clone(args), "--progress", "wrong")...)
				if o.code != shell.ExitUsage || !strings.Contains(o.stderr, "progress") {
					t.Errorf("%s: %q: %s", filepath.Base(page), args, o.stderr)
				}
			}
		}
	}
	if found < 50 {
		t.Errorf("%d commands were found", found)
	}
}
