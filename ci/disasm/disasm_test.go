package main

import (
	"fmt"
	"maps"
	"os"
	"strings"
	"testing"

	"github.com/trapeze-nic/trapeze/ci/kit/must"
	"github.com/trapeze-nic/trapeze/ci/kit/should"
	"github.com/trapeze-nic/trapeze/ci/kit/soak"
)

// TestRun checks the accessors as they are built from this tree.
func TestRun(t *testing.T) {
	soak.NeedBuilds(t)
	// The test cache knows which files a test has opened, and not what it has
	// built.
	for _, name := range []string{"internal/mmio/mmio_amd64.s", "internal/mmio/mmio_arm64.s", "internal/atomicmem/atomicmem_amd64.s", "internal/atomicmem/atomicmem_arm64.s"} {
		must.Get(os.ReadFile("../../" + name))(t)
	}
	var out strings.Builder
	must.OK(t, run(t.Context(), []string{"-v"}, &out))
	for _, want := range []string{"amd64: 18 functions checked, 0 problems", "arm64: 18 functions checked, 0 problems", "dmb oshst"} {
		should.Contain(t, out.String(), want, "output lacks")
	}
}

func TestRunArguments(t *testing.T) {
	for _, args := range [][]string{{"-no-such-flag"}, {"stray"}} {
		err := run(t.Context(), args, new(strings.Builder))
		should.Hold(t, err != nil, "run(%q) succeeds", args)
	}
}

// good is a program that keeps all rules of an architecture.
func good(a architecture) map[string][]string {
	f := map[string][]string{}
	for _, r := range a.rules {
		f[r.full()] = strings.Split(r.code, "; ")
	}
	return f
}

func TestCheck(t *testing.T) {
	const (
		write32 = module + "internal/mmio.Write32"
		read8   = module + "internal/mmio.Read8"
		release = module + "internal/atomicmem.Store32"
		barrier = module + "internal/mmio.ToDevice"
	)
	tests := []struct {
		name, arch, symbol, code string
		want                     string // part of the one problem; none if empty
	}{
		{name: "as it should be", arch: "amd64"},
		{name: "as it should be", arch: "arm64"},
		{"locked exchange", "amd64", write32 + assembly, "mov 0x8(%rsp),%rax; mov 0x10(%rsp),%ebx; xchg %ebx,(%rax); retq", "Write32"},
		{"stored twice", "amd64", write32 + assembly, "mov 0x8(%rsp),%rax; mov 0x10(%rsp),%ebx; mov %ebx,(%rax); mov %ebx,(%rax); retq", "Write32"},
		{"stored never", "amd64", write32 + assembly, "mov 0x8(%rsp),%rax; mov 0x10(%rsp),%ebx; retq", "Write32"},
		{"too wide", "amd64", read8 + assembly, "mov 0x8(%rsp),%rax; mov (%rax),%ebx; mov %bl,0x10(%rsp); retq", "Read8"},
		{"other register", "amd64", read8 + assembly, "mov 0x8(%rsp),%rax; movzbl (%rax),%ebx; mov %cl,0x10(%rsp); retq", "Read8"},
		{"barrier missing", "arm64", barrier + assembly, "ret", "ToDevice"},
		{"wrong barrier", "arm64", barrier + assembly, "dmb oshld; ret", "ToDevice"},
		{"stored behind the release", "amd64", probed + "publish64", "mov 0x8(%rax),%rdx; mov %rcx,(%rbx); mov %rcx,(%rax); mov %rdx,%rax; retq", "publish64"},
		{"no release", "arm64", release + assembly, "ldr x0, [sp,#8]; ldr w1, [sp,#16]; str w1, [x0]; ret", "Store32"},
		{"exclusive store", "arm64", write32 + assembly, "ldr x0, [sp,#8]; ldr w1, [sp,#16]; stlxr w2, w1, [x0]; ret", "Write32"},
		{"wrapper touches the pointer", "amd64", write32, "mov (%rax),%ecx; callq 0x48acc0; retq", "access to memory"},
		{"wrapper touches a global", "amd64", write32, "mov 0xd0a0b(%rip),%rcx; retq", "access to memory"},
		{"wrapper locks", "amd64", write32, "lock xadd %ecx,(%rsp); retq", "locked"},
		{"wrapper touches the pointer", "arm64", write32, "ldr w2, [x0]; bl .+0x40; ret", "access to memory"},
		{"wrapper locks", "arm64", write32, "ldaxr w2, [sp]; ret", "locked"},
		{"wrapper is plain", "amd64", read8, "push %rbp; mov %rax,(%rsp); callq 0x48acc0; mov %fs:0xfffffff8,%r14; movzbl 0x8(%rsp),%eax; retq", ""},
		{"wrapper is plain", "arm64", read8, "str x30, [sp,#-32]!; stp x0, x1, [sp,#8]; bl .+0x40; ldrb w0, [sp,#16]; ldr x30, [sp],#32; ret", ""},
	}
	for _, tt := range tests {
		t.Run(tt.arch+"/"+tt.name, func(t *testing.T) {
			a := byName(t, tt.arch)
			program := good(a)
			if tt.symbol != "" {
				program[tt.symbol] = strings.Split(tt.code, "; ")
			}
			problems := a.check(program)
			if tt.want == "" {
				must.Be(t, len(problems), 0, "problems: %v", problems)
				return
			}
			must.Hold(t, len(problems) == 1 && strings.Contains(problems[0].Error(), tt.want), "problems %v, want one about %q", problems, tt.want)
		})
	}
}

func TestCheckMissing(t *testing.T) {
	for _, a := range architectures {
		full := good(a)
		for symbol := range full {
			program := maps.Clone(full)
			delete(program, symbol)
			should.Be(t, len(a.check(program)), 1, "%s without %s: problems", a.name, symbol)
		}
	}
}

func byName(t *testing.T, name string) architecture {
	t.Helper()
	for _, a := range architectures {
		if a.name == name {
			return a
		}
	}
	t.Fatalf("no architecture %s", name)
	return architecture{}
}

func TestParseListing(t *testing.T) {
	text := "TEXT a.F.abi0(SB) /src/f.s\n" +
		"  f.s:7\t0x10\t\t488b442408\t\tMOVQ 0x8(SP), AX                     // mov 0x8(%rsp),%rax\t\n" +
		"  f.s:8\t0x15\t\tc3\t\t\tRET                                  // retq\t\t\t\n" +
		"  f.s:8\t0x16\t\t00000000\t\t?\t\t\t\t\n\n" +
		"TEXT a.G(SB) <autogenerated>\n"
	got := must.Get(parseListing(strings.NewReader(text)))(t)
	should.Be(t, fmt.Sprintf("%q", got), `map["a.F.abi0":["mov 0x8(%rsp),%rax" "retq"] "a.G":[]]`)
	for _, bad := range []string{
		"TEXT without symbol\n",
		"TEXT a.F(SB) f.s\n  f.s:7\t0x10\t\tc3\t\t\tRET\t\n",
		"  f.s:7\t0x10\t\tc3\t\t\tRET // retq\t\n",
	} {
		_, err := parseListing(strings.NewReader(bad))
		should.Hold(t, err != nil, "%q is accepted", bad)
	}
}
