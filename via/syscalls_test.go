package via_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"runtime"
	"testing"
	"time"

	"github.com/trapeze-nic/trapeze/ci/kit/must"
	"github.com/trapeze-nic/trapeze/conform"
	"github.com/trapeze-nic/trapeze/via"
	"golang.org/x/sys/unix"
)

// The test that the data path makes no system call runs this test binary again
// as a child, under ptrace, and counts the system calls of the one thread that
// drives both NICs. The child marks what to count with system calls that do not
// exist.
const (
	syscallChild  = "VIA_TEST_SYSCALL_CHILD"
	markerSyscall = 0x7250
	markerBegin   = 1
	markerEnd     = 2

	// A section is short against the 10 ms after which Go's scheduler takes a
	// goroutine off its thread, also with the race detector.
	countedSections = 400
	countedRounds   = 10
)

// Children of TestNoSystemCall: what they run.
const (
	childInNIC  = "policy in the NIC"
	childAtHost = "policy at the host"
)

func init() {
	if os.Getenv(syscallChild) != "" {
		runtime.LockOSThread() // main goroutine, main thread: the one that is traced
	}
}

func marker(which uintptr) { _, _, _ = unix.RawSyscall(markerSyscall, which, 0, 0) }

// runSyscallChild is the child. The first section makes one system call on
// purpose, to show that they are seen; each other one sends the same messages.
func runSyscallChild() int {
	if os.Getenv(syscallChild) == childAtHost {
		if err := runHostChild(); err != nil {
			fmt.Fprintln(os.Stderr, "child:", err)
			return 1
		}
		return 0
	}
	p, err := newSyscallTraffic(via.Options{})
	if err != nil {
		fmt.Fprintln(os.Stderr, "child:", err)
		return 1
	}
	rounds := func(n int) {
		for range n {
			if err := p.round(); err != nil {
				fmt.Fprintln(os.Stderr, "child:", err)
				os.Exit(1)
			}
		}
	}
	rounds(200)
	marker(markerBegin)
	unix.Getppid()
	marker(markerEnd)
	for range countedSections {
		marker(markerBegin)
		rounds(countedRounds)
		marker(markerEnd)
	}
	return 0
}

// runHostChild makes the host decide how frames move. It posts between sections,
// which may wake the goroutine that takes part in that; in a section it polls
// until the message is there. On one processor and without preemption that
// goroutine has no part in it.
func runHostChild() error {
	p, err := newSyscallTraffic(via.Options{Policy: via.Policy{Name: "static", At: via.AtHost, Deadline: conform.Timeout}})
	if err != nil {
		return err
	}
	marker(markerBegin)
	unix.Getppid()
	marker(markerEnd)
	for range countedSections {
		before, err := p.x.NIC.Policy()
		if err != nil {
			return err
		}
		if err := p.post(p.x, p.y, 20000); err != nil {
			return err
		}
		marker(markerBegin)
		err = p.takeBoth(p.x, p.y)
		marker(markerEnd)
		if err != nil {
			return err
		}
		after, err := p.x.NIC.Policy()
		if err != nil {
			return err
		}
		if after.Pump.Pulses-before.Pump.Pulses < 10 {
			return fmt.Errorf("%d pulses for 20000 bytes", after.Pump.Pulses-before.Pump.Pulses)
		}
	}
	return nil
}

// syscallTraffic bounces messages of several sizes, like pingPong, but reports
// errors without a testing.TB.
type syscallTraffic struct{ x, y *conform.End }

func newSyscallTraffic(opts via.Options) (*syscallTraffic, error) {
	ctx, cancel := context.WithTimeout(context.Background(), conform.Timeout)
	defer cancel()
	address := "emu:?wire=" + memoryWire()
	var ends [2]*conform.End
	for i := range ends {
		nic, err := via.Open(ctx, address, opts)
		if err != nil {
			return nil, err
		}
		vi, err := nic.CreateVI(ctx, via.VIAttributes{}, nil, nil)
		if err != nil {
			return nil, err
		}
		if ends[i], err = conform.Equip(ctx, nic, vi, 32<<10, 1); err != nil {
			return nil, err
		}
	}
	t := &syscallTraffic{ends[0], ends[1]}
	return t, conform.ConnectVIs(ctx, t.x.VI, t.y.VI, "syscalls")
}

// round sends one message of each size both ways.
func (t *syscallTraffic) round() error {
	for _, size := range []int{0, 64, 4096, 20000} {
		for _, e := range [][2]*conform.End{{t.x, t.y}, {t.y, t.x}} {
			from, to := e[0], e[1]
			if err := t.post(from, to, size); err != nil {
				return err
			}
			if _, err := take(to.VI.RecvDone); err != nil {
				return err
			}
			if _, err := take(from.VI.SendDone); err != nil {
				return err
			}
		}
	}
	return nil
}

func (t *syscallTraffic) post(from, to *conform.End, size int) error {
	s, r := from.Send[0], to.Recv[0]
	s.Prepare()
	r.Prepare()
	return errors.Join(from.Memory.AddTo(s, 0, size), to.Memory.AddTo(r, 0, size), to.VI.PostRecv(r), from.VI.PostSend(s))
}

// takeBoth polls both ends until the message has arrived and left.
func (t *syscallTraffic) takeBoth(from, to *conform.End) error {
	for _, e := range []struct {
		done func() (*via.Descriptor, error)
		peer *via.NIC
	}{{to.VI.RecvDone, from.NIC}, {from.VI.SendDone, to.NIC}} {
		for {
			_, err := e.done()
			if err == nil {
				break
			}
			if err != via.ErrNotDone {
				return err
			}
			e.peer.Poll()
		}
	}
	return nil
}

// TestNoSystemCall counts the system calls in each section of the child. Go's
// runtime may make some of its own now and then, for its scheduler; ours, if
// there were any, would be in every section, as all sections do the same.
func TestNoSystemCall(t *testing.T) {
	for _, child := range []string{childInNIC, childAtHost} {
		t.Run(child, func(t *testing.T) { testNoSystemCall(t, child) })
	}
}

func testNoSystemCall(t *testing.T, kind string) {
	// Who traces is a thread, not a process.
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	exe := must.Get(os.Executable())(t)
	// Without asynchronous preemption and garbage collection the runtime has less
	// to do on the thread.
	env := append(os.Environ(), syscallChild+"="+kind, "GODEBUG=asyncpreemptoff=1", "GOGC=off")
	if kind == childAtHost {
		env = append(env, "GOMAXPROCS=1")
	}
	child, err := os.StartProcess(exe, []string{exe}, &os.ProcAttr{
		Env:   env,
		Files: []*os.File{nil, os.Stdout, os.Stderr},
		Sys:   &unix.SysProcAttr{Ptrace: true, Pdeathsig: unix.SIGKILL},
	})
	if errors.Is(err, unix.EPERM) || errors.Is(err, unix.EACCES) || errors.Is(err, unix.ENOSYS) {
		t.Skipf("system calls cannot be counted: ptrace is not permitted here: %v", err)
	}
	must.OK(t, err)
	defer func() {
		_ = child.Kill()
		_ = child.Release()
	}()
	sections := must.Get(countSyscalls(child.Pid))(t)
	must.Be(t, len(sections), 1+countedSections, "the child ran sections")
	if len(sections[0]) == 0 {
		t.Fatal("a system call made on purpose was not seen")
	}
	least, clean := sections[1], 0
	for _, s := range sections[1:] {
		if len(s) < len(least) {
			least = s
		}
		if len(s) == 0 {
			clean++
		}
	}
	if len(least) > 0 {
		t.Errorf("%d rounds made at least %d system calls, numbers %v", countedRounds, len(least), least)
	}
	t.Logf("%d of %d sections without any system call", clean, countedSections)
}

// countSyscalls runs a stopped child to its end, and returns the numbers of the
// system calls that its first thread made in each section.
func countSyscalls(pid int) ([][]uint64, error) {
	deadline := time.Now().Add(conform.Timeout)
	var status unix.WaitStatus
	if _, err := unix.Wait4(pid, &status, 0, nil); err != nil {
		return nil, fmt.Errorf("wait for the child: %w", err)
	}
	// A stop for a system call is told from other stops by a bit.
	const sysgood = unix.SIGTRAP | 0x80
	if err := unix.PtraceSetOptions(pid, unix.PTRACE_O_TRACESYSGOOD|unix.PTRACE_O_EXITKILL); err != nil {
		return nil, fmt.Errorf("trace the child: %w", err)
	}
	var sections [][]uint64
	counting, entered, signal := false, false, 0
	for time.Now().Before(deadline) {
		if err := unix.PtraceSyscall(pid, signal); err != nil {
			return nil, fmt.Errorf("go on with the child: %w", err)
		}
		if _, err := unix.Wait4(pid, &status, 0, nil); err != nil {
			return nil, fmt.Errorf("wait for the child: %w", err)
		}
		switch {
		case status.Exited() && status.ExitStatus() == 0:
			return sections, nil
		case !status.Stopped():
			return nil, fmt.Errorf("the child ended: %#x", int(status))
		case status.StopSignal() != sysgood:
			signal = int(status.StopSignal())
			continue
		}
		signal = 0
		if entered = !entered; !entered {
			continue
		}
		var regs unix.PtraceRegs
		if err := unix.PtraceGetRegs(pid, &regs); err != nil {
			return nil, fmt.Errorf("read registers: %w", err)
		}
		number, argument := syscallOf(&regs)
		switch {
		case number == markerSyscall && argument == markerBegin:
			counting, sections = true, append(sections, nil)
		case number == markerSyscall && argument == markerEnd:
			counting = false
		case counting:
			last := &sections[len(sections)-1]
			*last = append(*last, number)
		}
	}
	return nil, errors.New("the child takes too long")
}
