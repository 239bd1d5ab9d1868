package firmware_test

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/trapeze-nic/trapeze/ci/kit/clangtest"
	"github.com/trapeze-nic/trapeze/ci/kit/must"
	"github.com/trapeze-nic/trapeze/ci/kit/should"
	firmware "github.com/trapeze-nic/trapeze/firmware-loader"
	"github.com/trapeze-nic/trapeze/firmware-loader/internal/elfimage"
	"github.com/trapeze-nic/trapeze/internal/abi"
)

// compile runs clang, if there is one with a BPF target, and returns the object.
func compile(t *testing.T, source string, flags ...string) []byte {
	t.Helper()
	return clangtest.Object(t, source, append(flags, "-Iinternal/images/c")...)
}

// TestClangNow parses what the clang of this machine makes.
func TestClangNow(t *testing.T) {
	for name, flags := range map[string][]string{
		"second level": {"-O2", "-g", "-target", "bpf"},
		"third level":  {"-O3", "-g", "-target", "bpf"},
		"v3":           {"-O2", "-g", "-target", "bpf", "-mcpu=v3"},
		"bpfel":        {"-O2", "-g", "-target", "bpfel"},
	} {
		t.Run(name, func(t *testing.T) { checkEverything(t, compile(t, "testdata/everything.c", flags...)) })
	}
}

// TestPage: the program of docs/control-programs.md is taken, and refused for the reason that stands there.
func TestPage(t *testing.T) {
	page := must.Get(os.ReadFile("../docs/control-programs.md"))(t)
	_, source, _ := strings.Cut(string(page), "```c\n")
	source, _, _ = strings.Cut(source, "```")
	build := func(text string) error {
		path := filepath.Join(t.TempDir(), "ports.c")
		must.OK(t, os.WriteFile(path, []byte(text), 0o600))
		spec, err := firmware.Build(compile(t, path, "-O2", "-g", "-target", "bpf"), firmware.Meta{})
		if err != nil {
			return err
		}
		for _, v := range spec.Check() {
			if v.Err != nil {
				return v.Err
			}
		}
		return nil
	}
	should.OK(t, build(source))
	for before, change := range map[string]struct{ after, says string }{
		"\tif (p + 38 > (u8 *)TRAPEZE_END(f))\n\t\treturn TRAPEZE_PASS;\n": {"", "access out of bounds"},
		"if (count)\n": {"if (one)\n", "pointer may be null: the answer of the lookup was not compared with null"},
	} {
		if !strings.Contains(source, before) || !strings.Contains(string(page), change.says) {
			t.Errorf("the page lacks %q or %q", before, change.says)
		} else if err := build(strings.Replace(source, before, change.after, 1)); err == nil || !strings.Contains(err.Error(), change.says) {
			t.Errorf("without %q: %v", before, err)
		}
	}
}

// TestClangRefused: what clang makes of sources with something that a NIC does
// not have.
func TestClangRefused(t *testing.T) {
	const hook = `TRAPEZE_HOOK("pulse/tx") u64 f(struct trapeze_pulse *p) `
	for name, c := range map[string]struct {
		source string
		flags  []string
		reason error
		says   string
	}{
		"big endian":           {hook + `{ return p->arrived; }`, []string{"-target", "bpfeb"}, elfimage.ErrFormat, "bpfel"},
		"a call":               {`static __attribute__((noinline)) u64 g(u64 n) { __asm__ volatile(""); return n * n; } ` + hook + `{ return g(p->arrived); }`, nil, elfimage.ErrUnsupported, "always_inline"},
		"no such hook":         {`TRAPEZE_HOOK("pulse/up") u64 f(struct trapeze_pulse *p) { return p->arrived; }`, nil, elfimage.ErrUnsupported, "filter/rx"},
		"no hook":              {`u64 f(struct trapeze_pulse *p) { return p->arrived; }`, nil, elfimage.ErrUnsupported, ".text"},
		"two at a hook":        {hook + `{ return 1; } TRAPEZE_HOOK("pulse/tx") u64 g(struct trapeze_pulse *p) { return 2; }`, nil, elfimage.ErrUnsupported, "one function a section"},
		"an undefined name":    {`extern u32 elsewhere; ` + hook + `{ return elsewhere; }`, nil, elfimage.ErrUnsupported, "elsewhere"},
		"a table of addresses": {`u32 a, b; u32 *volatile table[] = {&a, &b}; ` + hook + `{ return *table[p->queued & 1]; }`, nil, elfimage.ErrUnsupported, "addresses in initial contents"},
		"a huge variable":      {`u8 buffer[70000]; ` + hook + `{ return buffer[p->queued & 1023]; }`, nil, elfimage.ErrLimit, "65536"},
		"no types for maps":    {`struct { TRAPEZE_UINT(type, TRAPEZE_HASH); TRAPEZE_TYPE(key, u32); TRAPEZE_TYPE(value, u32); TRAPEZE_UINT(max_entries, 4); } m TRAPEZE_MAP; ` + hook + `{ u32 k = 1; return trapeze_lookup(&m, &k) != 0; }`, []string{"-g0"}, elfimage.ErrMalformed, "BTF"},
		"another kind of map":  {`struct { TRAPEZE_UINT(type, 27); TRAPEZE_UINT(max_entries, 4096); } m TRAPEZE_MAP; ` + hook + `{ u32 k = 1; return trapeze_lookup(&m, &k) != 0; }`, nil, nil, "type"},
		"a kernel's structure": {`struct sk_buff { u32 len; } __attribute__((preserve_access_index)); ` + hook + `{ return ((struct sk_buff *)(long)p->queued)->len; }`, nil, elfimage.ErrUnsupported, "CO-RE"},
		"no name":              {hook + `{ return p->arrived; } /* no note */`, nil, firmware.ErrNote, "fw build"},
	} {
		t.Run(name, func(t *testing.T) {
			source := filepath.Join(t.TempDir(), "source.c")
			text := "#include \"trapeze.h\"\n"
			if !strings.Contains(c.source, "no note") {
				text += "TRAPEZE_IMAGE(\"source\", \"1\");\n"
			}
			must.OK(t, os.WriteFile(source, []byte(text+c.source+"\n"), 0o600))
			s, err := firmware.Parse(compile(t, source, append([]string{"-O2", "-g", "-target", "bpf"}, c.flags...)...))
			if err == nil || s != nil || c.reason != nil && !errors.Is(err, c.reason) || !strings.Contains(err.Error(), c.says) {
				t.Errorf("%v; want %v that says %q", err, c.reason, c.says)
			}
		})
	}
}

// TestRefusalNamesTheLine: what the checker refuses has a line in the C source.
func TestRefusalNamesTheLine(t *testing.T) {
	source := filepath.Join(t.TempDir(), "endless.c")
	text := `#include "trapeze.h"
TRAPEZE_IMAGE("endless", "1");
TRAPEZE_HOOK("filter/rx") u64 f(struct trapeze_frame *f)
{
	u8 *data = TRAPEZE_DATA(f);

	return data[12]; /* not compared with the end */
}
`
	must.OK(t, os.WriteFile(source, []byte(text), 0o600))
	s := must.Get(firmware.Build(compile(t, source, "-O2", "-g", "-target", "bpf"), firmware.Meta{}))(t)
	verdicts := s.Check()
	if len(verdicts) != 1 || verdicts[0].Err == nil || !strings.Contains(verdicts[0].Err.Error(), "endless.c:7: return data[12];") {
		t.Errorf("%+v", verdicts)
	}
}

// TestOldMaps: definitions of maps as they were before type information.
func TestOldMaps(t *testing.T) {
	source := filepath.Join(t.TempDir(), "old.c")
	text := `#include "trapeze.h"
TRAPEZE_IMAGE("old", "1");
struct { u32 type, key, value, entries, flags; } seen __attribute__((section("maps"), used)) = {TRAPEZE_HASH, 4, 8, 10, 0};
TRAPEZE_HOOK("pulse/rx") u64 f(struct trapeze_pulse *p)
{
	u32 key = p->queued;

	return trapeze_lookup(&seen, &key) ? 0 : p->arrived;
}
`
	must.OK(t, os.WriteFile(source, []byte(text), 0o600))
	s := parse(t, compile(t, source, "-O2", "-target", "bpf"))
	want := abi.Map{Name: "seen", Type: abi.MapHash, Key: 4, Value: 8, Entries: 10}
	should.Hold(t, len(s.Maps) == 1 && cmp.Equal(s.Maps[0], want), "maps %+v", s.Maps)
	for _, v := range s.Check() {
		should.OK(t, v.Err)
	}
}
