package qtest

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/trapeze-nic/trapeze/ci/kit/qmp"
	"github.com/trapeze-nic/trapeze/internal/memfile"
)

// ExitError says that QEMU's process has ended.
type ExitError struct {
	// Err is its error: an *exec.ExitError, or nil for an end without an error.
	Err error
	// Stderr is the beginning of what QEMU complained about.
	Stderr string
}

func (e *ExitError) Error() string {
	how := "QEMU has ended"
	if e.Err != nil {
		how += ": " + e.Err.Error()
	}
	if e.Stderr != "" {
		how += ": " + e.Stderr
	}
	return how
}

func (e *ExitError) Unwrap() error { return e.Err }

// process is QEMU's process.
type process struct {
	cmd        *exec.Cmd
	complaints beginning
	done       chan struct{}
	exit       *ExitError // when done is closed
}

// run starts cmd, which dies with this process. When it has ended, and was waited for,
// over is called.
func run(cmd *exec.Cmd, over func(*ExitError)) (*process, error) {
	p := &process{cmd: cmd, done: make(chan struct{})}
	cmd.Stderr = &p.complaints
	cmd.WaitDelay = time.Second
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	started := make(chan error)
	go func() {
		// The signal comes when the thread ends that has started the process
		// (prctl(2), PR_SET_PDEATHSIG): so this one stays.
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		err := cmd.Start()
		started <- err
		if err != nil {
			return
		}
		err = cmd.Wait()
		p.exit = &ExitError{Err: err, Stderr: strings.TrimSpace(p.complaints.String())}
		close(p.done)
		over(p.exit)
	}()
	if err := <-started; err != nil {
		return nil, err
	}
	return p, nil
}

// kill ends the process and waits until it is gone, and with it all its DMA.
func (p *process) kill() {
	_ = p.cmd.Process.Kill() // it may have ended
	<-p.done
}

// explain returns how the process ended instead of err, if err says that a connection
// to it is at its end: that is so shortly before the process is waited for.
func (p *process) explain(err error) error {
	if !errors.Is(err, io.EOF) && !errors.Is(err, unix.EPIPE) && !errors.Is(err, unix.ECONNRESET) {
		return err
	}
	select {
	case <-p.done:
		return p.exit
	case <-time.After(time.Second):
		return err
	}
}

// beginning keeps the first 4 KiB of what is written.
type beginning struct{ bytes.Buffer }

func (b *beginning) Write(p []byte) (int, error) {
	b.Buffer.Write(p[:min(len(p), max(0, 4096-b.Len()))])
	return len(p), nil
}

// launch starts QEMU with all that it inherits, and speaks with it from then on.
func (m *Machine) launch(o Options) (err error) {
	var files []*os.File // that QEMU gets, from descriptor 3 on
	defer func() {
		for _, f := range files {
			err = errors.Join(err, f.Close())
		}
	}()
	give := func(f *os.File) (fd int) {
		files = append(files, f)
		return 2 + len(files)
	}
	qtest, theirs, err := connected()
	if err != nil {
		return err
	}
	m.link = newLink(qtest, m.timeout)
	qtestFD := give(theirs)
	if m.monitor, theirs, err = connected(); err != nil {
		return err
	}
	m.qmp = qmp.New(m.monitor)
	monitorFD := give(theirs)
	ram, err := duplicates([]int{m.ram.FD()})
	if err != nil {
		return err
	}
	ramFD := give(os.NewFile(uintptr(ram[0]), "ram"))
	bios, err := firmware()
	if err != nil {
		return err
	}
	args := arguments(qtestFD, monitorFD, ramFD, give(bios), m.ram.Size())
	for i, d := range o.Devices {
		wire, file, err := newWire()
		if err != nil {
			return err
		}
		m.wires = append(m.wires, wire)
		args = append(args, deviceArguments(i, d, give(file))...)
	}
	cmd := exec.Command(o.QEMU[0], append(o.QEMU[1:len(o.QEMU):len(o.QEMU)], args...)...)
	cmd.ExtraFiles = files
	if m.process, err = run(cmd, func(e *ExitError) { m.link.fail(e) }); err != nil {
		return err
	}
	m.link.explain = m.process.explain
	return nil
}

// arguments are QEMU's, apart from its devices. The accelerator is one that is in every
// build; it has nothing to do.
func arguments(qtest, monitor, ram, bios int, size uint64) []string {
	return []string{
		"-machine", "q35,memory-backend=mem", "-accel", "tcg",
		"-object", fmt.Sprintf("memory-backend-file,id=mem,share=on,mem-path=/proc/self/fd/%d,size=%d", ram, size),
		"-m", fmt.Sprintf("%dM", size>>20),
		"-bios", fmt.Sprintf("/proc/self/fd/%d", bios),
		"-device", "intel-iommu,intremap=off,aw-bits=39",
		"-nodefaults", "-display", "none", "-no-user-config",
		"-chardev", fmt.Sprintf("socket,id=qtest,fd=%d", qtest), "-qtest", "chardev:qtest", "-qtest-log", "none",
		"-chardev", fmt.Sprintf("socket,id=monitor,fd=%d", monitor), "-mon", "chardev=monitor,mode=control",
	}
}

// firmwareSize is the smallest that a PC takes: its end is at 4 GiB, and the processor
// starts 16 bytes before.
const firmwareSize = 64 << 10

// firmware makes a file of instructions that put the processor to sleep.
func firmware() (*os.File, error) {
	b := bytes.Repeat([]byte{0xf4}, firmwareSize)             // hlt
	copy(b[firmwareSize-16:], []byte{0xfa, 0xf4, 0xeb, 0xfd}) // cli; hlt; jmp to the hlt
	fd, err := memfile.Create("firmware", firmwareSize, memfile.Options{})
	if err != nil {
		return nil, err
	}
	f := os.NewFile(uintptr(fd), "firmware")
	if _, err := f.Write(b); err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return f, nil
}

// newWire makes the socket of a device's network side: QEMU gets it, and it is kept
// here to connect it.
func newWire() (*net.UDPConn, *os.File, error) {
	c, err := net.ListenUDP("udp4", &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1)})
	if err != nil {
		return nil, nil, err
	}
	f, err := c.File()
	if err != nil {
		return nil, nil, errors.Join(err, c.Close())
	}
	return c, f, nil
}
