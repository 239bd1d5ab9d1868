package main

import (
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"
)

// results are the links that the search has put into a page.
var results = regexp.MustCompile(`(?s)<ul id="found"( hidden="")?>(.*?)</ul>`)

// TestSearch has Chromium open pages of this repository's site from the disk, with words to search for.
func TestSearch(t *testing.T) {
	chromium, err := exec.LookPath("chromium")
	if err != nil {
		if os.Getenv("TRAPEZE_REQUIRE_CHROMIUM") != "" {
			t.Fatal(err)
		}
		t.Skip("chromium is missing: on Debian, apt-get install chromium")
	}
	out := filepath.Join(t.TempDir(), "site")
	if err := run("../../..", out); err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct{ page, words, finds string }{
		{"index.html", "life of a message", `<a href="ARCHITECTURE.html#the-life-of-a-message">The life of a message</a>`},
		{"docs/guide.html", "LIFE  of a Message", `<a href="../ARCHITECTURE.html#the-life-of-a-message">`},
		{"index.html", "doorbell zebra", "Nothing has all these words."},
		{"index.html", "<b>", ""},
		{"index.html", "", ""},
	} {
		page := url.URL{Scheme: "file", Path: filepath.Join(out, tt.page), RawQuery: url.Values{"q": {tt.words}}.Encode()}
		args := []string{"--headless", "--disable-gpu", "--user-data-dir=" + t.TempDir(), "--dump-dom", page.String()}
		if os.Geteuid() == 0 {
			args = append(args, "--no-sandbox") // Chromium refuses root otherwise
		}
		cmd := exec.CommandContext(t.Context(), chromium, args...)
		cmd.WaitDelay = time.Second
		dom, err := cmd.Output()
		if err != nil {
			t.Fatalf("%s: %v", page.String(), err)
		}
		found := results.FindStringSubmatch(string(dom))
		switch {
		case found == nil:
			t.Errorf("%s has no results: %s", tt.page, dom)
		case (found[1] != "") != (tt.words == ""):
			t.Errorf("%s, %q: the results are hidden: %q", tt.page, tt.words, found[1])
		case !strings.Contains(found[2], tt.finds) || strings.Contains(found[2], "<b>"):
			t.Errorf("%s, %q finds %s, want %s", tt.page, tt.words, found[2], tt.finds)
		case tt.finds == "" && tt.words == "" && found[2] != "":
			t.Errorf("%s finds %s of nothing", tt.page, found[2])
		}
	}
}
