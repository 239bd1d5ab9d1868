package main

import (
	"regexp"
	"strings"
)

// assembly ends the symbols of functions written in assembly; the symbol
// without it is called by Go code, and passes the arguments on.
const assembly = ".abi0"

// rule gives the whole code of a function, in GNU notation, with ADDRESS for where a
// jump leads, which depends on the rest of the program. The accessors are so
// short that nothing less says as much: one access through the pointer that was
// given, plain and of the right width, nothing else in memory but arguments and
// result, and the value on its way between them. To change an accessor is to
// change its rule.
type rule struct {
	symbol string // without the module's path, or of the probe itself
	code   string
}

// probed begins the symbols of functions of the probe, which are Go: they show what the compiler makes of
// an accessor that is Go, too.
const probed = "main."

// full is the symbol of the function in the program.
func (r rule) full() string {
	if strings.HasPrefix(r.symbol, probed) {
		return r.symbol
	}
	return module + r.symbol + assembly
}

// architecture says how to read its instructions.
type architecture struct {
	name  string
	rules []rule
	// memory matches operands in memory: where they are.
	memory *regexp.Regexp
	// own matches the memory that the way into assembly may touch: the stack
	// and, on amd64, the pointer to the goroutine.
	own *regexp.Regexp
	// locked matches instructions that lock the bus or retry.
	locked *regexp.Regexp
}

var architectures = []architecture{
	{
		name:   "amd64",
		memory: regexp.MustCompile(`%[c-gs]s:|\([^)]*\)`),
		own:    regexp.MustCompile(`^(%fs:|\(%rsp\))$`),
		locked: regexp.MustCompile(`^(lock|rep|xacquire|xrelease|xchg|cmpxchg|xadd|mfence)`),
		rules: []rule{
			{"internal/mmio.Read8", "mov 0x8(%rsp),%rax; movzbl (%rax),%ebx; mov %bl,0x10(%rsp); retq"},
			{"internal/mmio.Read16", "mov 0x8(%rsp),%rax; movzwl (%rax),%ebx; mov %bx,0x10(%rsp); retq"},
			{"internal/mmio.Read32", "mov 0x8(%rsp),%rax; mov (%rax),%ebx; mov %ebx,0x10(%rsp); retq"},
			{"internal/mmio.Read64", "mov 0x8(%rsp),%rax; mov (%rax),%rbx; mov %rbx,0x10(%rsp); retq"},
			{"internal/mmio.Write8", "mov 0x8(%rsp),%rax; movzbl 0x10(%rsp),%ebx; mov %bl,(%rax); retq"},
			{"internal/mmio.Write16", "mov 0x8(%rsp),%rax; movzwl 0x10(%rsp),%ebx; mov %bx,(%rax); retq"},
			{"internal/mmio.Write32", "mov 0x8(%rsp),%rax; mov 0x10(%rsp),%ebx; mov %ebx,(%rax); retq"},
			{"internal/mmio.Write64", "mov 0x8(%rsp),%rax; mov 0x10(%rsp),%rbx; mov %rbx,(%rax); retq"},
			{"internal/mmio.WriteBlocks", "mov 0x8(%rsp),%rax; mov 0x10(%rsp),%rbx; mov 0x18(%rsp),%rcx; movdqu (%rbx),%xmm0; movdqu 0x10(%rbx),%xmm1; movdqu 0x20(%rbx),%xmm2; movdqu 0x30(%rbx),%xmm3; movdqu %xmm0,(%rax); movdqu %xmm1,0x10(%rax); movdqu %xmm2,0x20(%rax); movdqu %xmm3,0x30(%rax); add $0x40,%rax; add $0x40,%rbx; dec %rcx; jne ADDRESS; retq"},
			{"internal/mmio.PushBlock", "mov 0x8(%rsp),%rax; mov 0x10(%rsp),%rbx; mov 0x18(%rsp),%rcx; movzbl 0x20(%rsp),%edx; movdqu (%rbx),%xmm0; movdqu 0x10(%rbx),%xmm1; movdqu 0x20(%rbx),%xmm2; movdqu 0x30(%rbx),%xmm3; movdqu %xmm0,(%rax); movdqu %xmm1,0x10(%rax); movdqu %xmm2,0x20(%rax); movdqu %xmm3,0x30(%rax); sfence; mov %dl,(%rcx); retq"},
			{"internal/mmio.ToDevice", "retq"},
			{"internal/mmio.FromDevice", "retq"},
			{"internal/mmio.FlushWriteCombining", "sfence; retq"},
			// atomicmem's stores are Go here: the load and the store before them stay there.
			{probed + "publish32", "mov 0x4(%rax),%edx; mov %ecx,(%rax); nop; mov %ecx,(%rbx); mov %edx,%eax; retq"},
			{probed + "publish64", "mov 0x8(%rax),%rdx; mov %rcx,(%rax); nop; mov %rcx,(%rbx); mov %rdx,%rax; retq"},
			{"internal/atomicmem.LoadBarrier", "retq"},
			{"internal/atomicmem.Fetch", "mov 0x8(%rsp),%rax; prefetcht0 (%rax); prefetcht0 0x40(%rax); retq"},
			// The disassembler does not know CLDEMOTE (%rax), 0f 1c 00: it skips 0f and
			// takes the rest for sbb.
			{"internal/atomicmem.Demote", "mov 0x8(%rsp),%rax; mov 0x10(%rsp),%rcx; sbb $0x0,%al; add $0x40,%rax; dec %rcx; jne ADDRESS; retq"},
		},
	},
	{
		name:   "arm64",
		memory: regexp.MustCompile(`\[[a-z0-9]+`),
		own:    regexp.MustCompile(`^\[sp$`),
		locked: regexp.MustCompile(`^(ld[a-z]*x[rp]|st[a-z]*x[rp]|cas|swp|ld(add|clr|eor|set|[su]max|[su]min))`),
		rules: []rule{
			{"internal/mmio.Read8", "ldr x0, [sp,#8]; ldrb w1, [x0]; strb w1, [sp,#16]; ret"},
			{"internal/mmio.Read16", "ldr x0, [sp,#8]; ldrh w1, [x0]; strh w1, [sp,#16]; ret"},
			{"internal/mmio.Read32", "ldr x0, [sp,#8]; ldr w1, [x0]; str w1, [sp,#16]; ret"},
			{"internal/mmio.Read64", "ldr x0, [sp,#8]; ldr x1, [x0]; str x1, [sp,#16]; ret"},
			{"internal/mmio.Write8", "ldr x0, [sp,#8]; ldrb w1, [sp,#16]; strb w1, [x0]; ret"},
			{"internal/mmio.Write16", "ldr x0, [sp,#8]; ldrh w1, [sp,#16]; strh w1, [x0]; ret"},
			{"internal/mmio.Write32", "ldr x0, [sp,#8]; ldr w1, [sp,#16]; str w1, [x0]; ret"},
			{"internal/mmio.Write64", "ldr x0, [sp,#8]; ldr x1, [sp,#16]; str x1, [x0]; ret"},
			{"internal/mmio.WriteBlocks", "ldr x0, [sp,#8]; ldr x1, [sp,#16]; ldr x2, [sp,#24]; ld1 {v0.16b-v3.16b}, [x1],#64; st1 {v0.16b-v3.16b}, [x0],#64; subs x2, x2, #0x1; b.ne ADDRESS; ret"},
			{"internal/mmio.PushBlock", "ldr x0, [sp,#8]; ldr x1, [sp,#16]; ldr x2, [sp,#24]; ldrb w3, [sp,#32]; ld1 {v0.16b-v3.16b}, [x1]; st1 {v0.16b-v3.16b}, [x0]; dsb st; strb w3, [x2]; ret"},
			{"internal/mmio.ToDevice", "dmb oshst; ret"},
			{"internal/mmio.FromDevice", "dmb oshld; ret"},
			{"internal/mmio.FlushWriteCombining", "dsb st; ret"},
			{"internal/atomicmem.Store32", "ldr x0, [sp,#8]; ldr w1, [sp,#16]; stlr w1, [x0]; ret"},
			{"internal/atomicmem.Store64", "ldr x0, [sp,#8]; ldr x1, [sp,#16]; stlr x1, [x0]; ret"},
			{"internal/atomicmem.LoadBarrier", "dmb ishld; ret"},
			{"internal/atomicmem.Fetch", "ldr x0, [sp,#8]; prfm pldl1keep, [x0]; prfm pldl1keep, [x0,#64]; ret"},
			{"internal/atomicmem.Demote", "ret"},
		},
	},
}
