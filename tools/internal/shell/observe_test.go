package shell_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/spf13/cobra"

	"github.com/trapeze-nic/trapeze/ci/kit/leaktest"
	"github.com/trapeze-nic/trapeze/ci/kit/must"
	"github.com/trapeze-nic/trapeze/ci/kit/outputtest"
	"github.com/trapeze-nic/trapeze/internal/command"
	"github.com/trapeze-nic/trapeze/tools/internal/shell"
)

func TestMain(m *testing.M) { leaktest.Main(m) }

// program makes a command that calls run.
func program(run func(ctx context.Context) error) *shell.Program {
	return &shell.Program{Name: "test", Commands: func(*command.Env) []*cobra.Command {
		return []*cobra.Command{{Use: "wait", RunE: func(c *cobra.Command, _ []string) error { return run(c.Context()) }}}
	}}
}

// TestLogFlags: a command logs what it logs by itself, or from the level that the user has named,
// in the format that the user has named.
func TestLogFlags(t *testing.T) {
	p := program(func(ctx context.Context) error {
		command.Logger(ctx, command.Quiet).Error("quiet")
		command.Logger(ctx, slog.LevelWarn).Warn("usual", "nic", "emu:")
		command.Logger(ctx, slog.LevelWarn).Info("more")
		return nil
	})
	for args, want := range map[string]string{
		"": "usual", "--log-level error": "quiet", "--log-level info": "quiet usual more", "--log-level debug": "begins quiet usual more",
		"--log-format json": "usual", "--log-format json --log-level warn": "quiet usual",
	} {
		var out, log bytes.Buffer
		if code := p.Run(t.Context(), append([]string{"wait"}, strings.Fields(args)...), strings.NewReader(""), &out, &log); code != 0 || out.Len() > 0 {
			t.Errorf("%s: %d, %q", args, code, out.String())
		}
		lines := strings.Split(strings.TrimSuffix(log.String(), "\n"), "\n")
		for i, word := range strings.Fields(want) {
			if len(lines) != len(strings.Fields(want)) || !strings.Contains(lines[i], word) {
				t.Errorf("%q: %q, want %s", args, lines, want)
				break
			}
			var line map[string]any
			if err := json.Unmarshal([]byte(lines[i]), &line); (err == nil) != strings.Contains(args, "json") {
				t.Errorf("%q: %q", args, lines[i])
			}
		}
	}
}

// TestPrintable: what others have named reaches no terminal as a command, wherever it is printed. What
// is no text is left as it is.
func TestPrintable(t *testing.T) {
	const evil, tame = "\x1b]0;x\x07\x1b[2J\r\u009b1mé\x1b[31m", "?]0;x??[2J??1mé?[31m"
	for _, x := range []struct {
		run         func(e *command.Env) error
		out, stderr string
	}{
		{func(e *command.Env) error {
			_, err := fmt.Fprintf(e.Stdout, "\x1b[1mbold\x1b[0m\t%s\n", evil)
			return err
		}, "\x1b[1mbold\x1b[0m\t" + tame + "\n", ""},
		{func(e *command.Env) error { _, err := io.WriteString(e.Bytes, evil); return err }, evil, ""},
		{func(e *command.Env) error { e.Note("%s", evil); return nil }, "", tame + "\n"},
		{func(*command.Env) error { return errors.New(evil + "\nmore") }, "", "test: " + tame + "; more\n"},
		{func(e *command.Env) error { return e.PrintJSON([]string{evil}) }, "[\n  \"\\u001b]0;x\\u0007\\u001b[2J\\r?1mé\\u001b[31m\"\n]\n", ""},
	} {
		var out, log bytes.Buffer
		(&shell.Program{Name: "test", Commands: func(e *command.Env) []*cobra.Command {
			return []*cobra.Command{{Use: "say", RunE: func(*cobra.Command, []string) error { return x.run(e) }}}
		}}).Run(t.Context(), []string{"say"}, strings.NewReader(""), &out, &log)
		if out.String() != x.out || log.String() != x.stderr {
			t.Errorf("%q, %q, want %q, %q", out.String(), log.String(), x.out, x.stderr)
		}
	}
}

// TestObserveRefused: flags that cannot be are refused before the command runs.
func TestObserveRefused(t *testing.T) {
	p := program(func(context.Context) error { t.Error("it runs"); return nil })
	for args, says := range map[string]string{
		"--log-format xml": "text or json", "--log-level loud": "debug, info", "--pprof 6060": "HOST:PORT", "--pprof 0.0.0.0:0": "127.0.0.1", "--pprof [::]:0": "127.0.0.1",
	} {
		var out, log bytes.Buffer
		if code := p.Run(t.Context(), append([]string{"wait"}, strings.Fields(args)...), strings.NewReader(""), &out, &log); code != shell.ExitUsage || !strings.Contains(log.String(), says) {
			t.Errorf("%s: %d, %q", args, code, log.String())
		}
	}
}

// TestPprof: profiles are there while the command runs, for the host itself, and by its addresses
// only.
func TestPprof(t *testing.T) {
	leaktest.Check(t)
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	var log outputtest.Buffer
	done := make(chan int)
	go func() {
		done <- program(func(ctx context.Context) error { <-ctx.Done(); return nil }).Run(ctx,
			[]string{"wait", "--pprof", "localhost:0"}, strings.NewReader(""), io.Discard, &log)
	}()
	where := regexp.MustCompile(`http://127\.0\.0\.1:\d+/debug/pprof/`)
	for end := time.Now().Add(time.Minute); where.FindString(log.String()) == ""; time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("%q", log.String())
		}
	}
	url := where.FindString(log.String())
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	get := func(path, host string) (int, string) {
		t.Helper()
		request := must.Get(http.NewRequestWithContext(t.Context(), http.MethodGet, url+path, nil))(t)
		if host != "" {
			request.Host = host
		}
		reply := must.Get(client.Do(request))(t)
		defer reply.Body.Close()
		body := must.Get(io.ReadAll(reply.Body))(t)
		return reply.StatusCode, string(body)
	}
	if code, body := get("goroutine?debug=1", ""); code != http.StatusOK || !strings.Contains(body, "goroutine profile") {
		t.Errorf("%d, %.200q", code, body)
	}
	if code, body := get("trace?seconds=0.1", ""); code != http.StatusOK || !strings.HasPrefix(body, "go 1.") {
		t.Errorf("%d, %.20q", code, body)
	}
	if code, _ := get("", "evil.example:80"); code != http.StatusMisdirectedRequest {
		t.Errorf("by the name of another: %d", code)
	}
	stop()
	if code := <-done; code != 0 {
		t.Error(fmt.Sprint(code, log.String()))
	}
}
