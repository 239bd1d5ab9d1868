package checker_test

import (
	"errors"
	"fmt"
	"os"
	"regexp"
	"strings"
	"sync"
	"testing"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"github.com/cilium/ebpf/features"
	"golang.org/x/sys/unix"

	"github.com/trapeze-nic/trapeze/ci/kit/must"
	"github.com/trapeze-nic/trapeze/ci/kit/should"
	"github.com/trapeze-nic/trapeze/internal/abi"
)

// requireBPF, set to 1, turns the skip of tests that need the kernel's BPF into a
// failure.
const requireBPF = "TRAPEZE_REQUIRE_BPF"

// The verifiers of older kernels know less of numbers than ours, which follows that of
// this version.
const kernelMajor, kernelMinor = 6, 18

// errOldKernel: the comparison would be with a verifier of other rules.
var errOldKernel = fmt.Errorf("the kernel's verifier knows less of numbers than that of %d.%d with its updates", kernelMajor, kernelMinor)

// probes are programs that some verifiers accept only since an update within the same
// version: they read R4, which nothing was written to, where no run gets to.
func probes() []asm.Instructions {
	load := asm.LoadMem(asm.R2, asm.R1, abi.FrameInterface, asm.Word)
	never := asm.Instructions{asm.Mov.Reg(asm.R0, asm.R4).WithSymbol("never"), asm.Return()}
	return []asm.Instructions{
		join(asm.Instructions{load, asm.HostTo(asm.BE, asm.R2, asm.Half), asm.JGT.Imm(asm.R2, 0xffff, "never")}, exitWith(0), never),
		join(asm.Instructions{
			load, asm.Mov.Reg32(asm.R3, asm.R2), asm.Sub.Imm32(asm.R3, 1),
			asm.JGT.Imm32(asm.R3, 63, "out"), asm.JGT.Imm(asm.R2, 64, "never"),
		}, leave(0), never),
	}
}

// permitted says once whether this process may load BPF programs that show anything.
var permitted = sync.OnceValue(func() error {
	var name unix.Utsname
	if err := unix.Uname(&name); err != nil {
		return err
	}
	var major, minor int
	if _, err := fmt.Sscanf(unix.ByteSliceToString(name.Release[:]), "%d.%d", &major, &minor); err != nil {
		return err
	}
	if err := features.HaveProgramType(ebpf.XDP); err != nil {
		return err
	}
	if major < kernelMajor || major == kernelMajor && minor < kernelMinor {
		return errOldKernel
	}
	for _, code := range probes() {
		loaded, err := ebpf.NewProgram(&ebpf.ProgramSpec{Type: ebpf.XDP, License: "GPL", Instructions: code})
		if err != nil {
			return fmt.Errorf("%w: %w", errOldKernel, err)
		}
		loaded.Close()
	}
	return nil
})

// kernel loads programs into the Linux kernel, whose verifier judges them.
type kernel struct {
	tb   testing.TB
	maps []*ebpf.Map
}

// newKernel skips the test where BPF is not permitted.
func newKernel(tb testing.TB, maps []abi.Map) *kernel {
	tb.Helper()
	if err := permitted(); err != nil {
		notPermitted := errors.Is(err, unix.EPERM) || errors.Is(err, unix.ENOSYS) || errors.Is(err, errOldKernel)
		must.Hold(tb, notPermitted && os.Getenv(requireBPF) != "1", "the kernel cannot be asked: %v", err)
		tb.Skipf("the kernel cannot be asked: %v (%s=1 makes this a failure)", err, requireBPF)
	}
	k := &kernel{tb: tb}
	for _, m := range maps {
		made := must.Get(ebpf.NewMap(&ebpf.MapSpec{
			Type: ebpf.MapType(m.Type), KeySize: m.Key, ValueSize: m.Value, MaxEntries: m.Entries, Flags: m.Flags,
		}))(tb)
		tb.Cleanup(func() { made.Close() })
		k.maps = append(k.maps, made)
	}
	return k
}

// load asks the kernel whether it accepts a program. Its maps are those of k.
func (k *kernel) load(p abi.Program, log bool) error {
	spec := ebpf.ProgramSpec{Type: ebpf.XDP, License: "GPL", Instructions: make(asm.Instructions, len(p.Instructions))}
	if p.Hook.IsPulse() {
		// A program whose context is a buffer of numbers. It has to say that it
		// may sleep.
		spec.Type, spec.Flags = ebpf.Syscall, unix.BPF_F_SLEEPABLE
	}
	copy(spec.Instructions, p.Instructions)
	encodeAtomics(spec.Instructions)
	for i := range spec.Instructions {
		if ins := &spec.Instructions[i]; ins.IsLoadFromMap() {
			*ins = ins.WithReference("")
			fd := -1
			if index := uint32(ins.Constant); index < uint32(len(k.maps)) {
				fd = k.maps[index].FD()
			}
			ins.Constant = ins.Constant&^0xffffffff | int64(uint32(fd))
		}
	}
	options := ebpf.ProgramOptions{LogDisabled: !log, LogSizeStart: 1 << 16}
	loaded, err := ebpf.NewProgramWithOptions(&spec, options)
	if err == nil {
		return loaded.Close()
	}
	return err
}

// why returns the end of what the kernel's verifier says about a program.
func (k *kernel) why(p abi.Program) string {
	err := k.load(p, true)
	if err == nil {
		return "accepted"
	}
	var verdict *ebpf.VerifierError
	if !errors.As(err, &verdict) {
		return err.Error()
	}
	log := verdict.Log
	if len(log) > 60 {
		log = append([]string{"..."}, log[len(log)-60:]...)
	}
	return fmt.Sprintf("%v\n%s", verdict.Cause, strings.Join(log, "\n"))
}

// differences are the programs that the kernel refuses and the checker accepts, by
// the kernel's error number or by what its verifier says, with the reason why that is
// right.
var differences = []struct {
	number error
	says   *regexp.Regexp
	why    string
}{
	{
		number: unix.E2BIG,
		why: "The kernel gives up after a million instructions that it has followed. It compares paths at fewer " +
			"places than we do, and so follows some twice that we do not.",
	},
	{
		says: regexp.MustCompile("verifier bug: REG INVARIANTS VIOLATION"),
		why: "On a branch that is never taken, such as where a register is less than itself, the bounds that the " +
			"kernel works out contradict each other. It says that this is its bug, and goes on with numbers that do not exist.",
	},
}

// listed reports whether it is one of those that the kernel refuses a program with an
// error.
func (k *kernel) listed(p abi.Program, err error) bool {
	for _, d := range differences {
		if d.number != nil && errors.Is(err, d.number) || d.says != nil && d.says.MatchString(k.why(p)) {
			k.tb.Logf("the kernel refuses what we accept: %v. %s", err, d.why)
			return true
		}
	}
	return false
}

func TestKernelAcceptsSamples(t *testing.T) {
	k := newKernel(t, testMaps())
	for _, s := range samples() {
		p := link(t, s.hook, s.code)
		if err := k.load(p, false); err != nil {
			t.Errorf("%s: %s", s.name, k.why(p))
		}
	}
}

// TestKernelSeesAtomics: what the kernel is asked about is the program that was meant.
// An addition leaves R2 as it is, the same with a fetch does not.
func TestKernelSeesAtomics(t *testing.T) {
	k := newKernel(t, testMaps())
	for op, accepted := range map[asm.AtomicOp]bool{asm.AddAtomic: true, asm.FetchAdd: false, asm.Xchg: false} {
		p := link(t, abi.FilterRx, answer(
			asm.LoadMapValue(asm.R6, globals, 0), asm.Mov.Imm(asm.R2, 0), op.Mem(asm.R6, asm.R2, asm.DWord, 0),
			asm.Add.Reg(asm.R6, asm.R2), asm.LoadMem(asm.R3, asm.R6, 0, asm.Byte)))
		err := k.load(p, false)
		should.Hold(t, (err == nil) == accepted, "%v: %v", op, err)
	}
}
