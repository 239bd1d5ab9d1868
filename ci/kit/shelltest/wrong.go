package shelltest

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/trapeze-nic/trapeze/ci/kit/should"
)

const exitDevice = 3

// wrongValues are no values of flags of these types.
var wrongValues = map[string][]string{
	"int": {"x", "-1"}, "uint": {"x", "-1"}, "uint16": {"x", "70000"}, "uint32": {"x", "-1"}, "uint64": {"x", "-1"},
	"duration": {"x", "-1s"}, "bytes": {"x", "-1"}, "float64": {"x", "NaN"}, "bool": {"x"},
}

// wrongWords are wrong for flags of these names, with the code that says so.
var wrongWords = map[string]struct {
	value string
	code  int
}{
	"device": {"nonsense:", exitDevice}, "peer": {"nonsense:", exitDevice},
	"policy": {"nonsense", exitUsage}, "to": {"nonsense", exitUsage}, "listen": {"1:nonsense", exitUsage}, "filter": {"((", exitUsage},
	"image": {"/nonexistent/x", exitFailure}, "read": {"/nonexistent/x", exitFailure}, "input": {"/nonexistent/x", exitFailure},
	"load": {"/nonexistent/x", exitFailure}, "published": {"/nonexistent/x", exitFailure}, "log": {"/nonexistent/x", exitFailure},
}

// arguments are those of a command that must be given.
var arguments = regexp.MustCompile(` [A-Z]+\b`)

// needs matches what is said of flags that are missing.
var needs = regexp.MustCompile(`--[a-z]+ (is required: |was given 1 times: give it )`)

// TestWrongCalls gives every command what it does not take: arguments too many, and each flag a value
// that is wrong. The exit code tells a call that can never be right from a device, and those from a
// file that is not there. Commands get a device that opens; that they need other flags too is said
// first.
func (p Program) TestWrongCalls(t *testing.T) {
	wrong := func(code int, args ...string) {
		t.Helper()
		o := p.Run(t, args...)
		if o.Code == exitUsage && needs.MatchString(o.Stderr) {
			return
		}
		should.Hold(t, o.Code == code && strings.Count(o.Stderr, "\n") == 1 && o.Stdout == "", "%s %q: %+v, want exit code %d", p.Name, args, o, code)
	}
	p.Tree(t, func(path []string, d Described) {
		if len(path) == 0 || len(d.Commands) > 0 && d.Flags == nil || slices.Contains(cobras, path[0]) {
			return
		}
		call := slices.Clone(path)
		if !strings.Contains(d.Usage, "...") && len(d.Commands) == 0 {
			wrong(exitUsage, append(slices.Clone(call), "a", "b", "c", "d")...)
		}
		usage, _, _ := strings.Cut(strings.TrimPrefix(d.Usage, d.Command), "[")
		for range arguments.FindAllString(regexp.MustCompile(`--\S+ \S+`).ReplaceAllString(usage, ""), -1) {
			call = append(call, "image:amp")
		}
		for _, f := range d.Flags {
			if f.Name == "device" {
				call = append(call, "--device=emu:?wire=mem:wrong-calls")
			}
		}
		for _, f := range d.Flags {
			values, code := wrongValues[f.Type], exitUsage
			if w, ok := wrongWords[f.Name]; ok {
				values, code = []string{w.value}, w.code
			}
			for _, v := range values {
				args := slices.DeleteFunc(slices.Clone(call), func(a string) bool { return strings.HasPrefix(a, "--"+f.Name+"=") })
				wrong(code, append(args, fmt.Sprintf("--%s=%s", f.Name, v))...)
			}
		}
	})
}
