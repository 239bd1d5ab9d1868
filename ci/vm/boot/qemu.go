package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/trapeze-nic/trapeze/ci/kit/qmp"
)

// Lines of a guest's console that are meant for this program begin with these:
// how the tests ended, and a command for QEMU's monitor.
const (
	exitMarker    = "TRAPEZE-GUEST-EXIT "
	monitorMarker = "TRAPEZE-MONITOR "
)

// The loader and the libraries of a Debian root.
const (
	loader    = "lib64/ld-linux-x86-64.so.2"
	libraries = "usr/lib/x86_64-linux-gnu"
)

// command is QEMU's command line. It runs from the Debian root without chroot:
// that root's loader starts it, and finds that root's libraries.
func (s scenario) command(p places, image, monitor string) []string {
	in := func(path string) string { return filepath.Join(p.root, path) }
	kernel := p.own
	if s.stock {
		kernel = p.stock
	}
	args := []string{
		in(loader), "--library-path", in(libraries), in("usr/bin/qemu-system-x86_64"),
		"-L", in("usr/share/qemu"), "-L", in("usr/share/seabios"),
		// RAM that another process, such as a vfio-user server, can share.
		"-machine", "q35,kernel-irqchip=split,memory-backend=mem",
		"-object", "memory-backend-memfd,id=mem,size=512M,share=on", "-m", "512", "-smp", "2",
		// Always emulated: a host may have /dev/kvm and still not run a guest.
		"-accel", "tcg", "-cpu", "max",
		"-nodefaults", "-nographic", "-serial", "stdio", "-no-reboot",
		"-qmp", "unix:" + monitor + ",server=on,wait=off",
		"-kernel", filepath.Join(kernel, "bzImage"), "-initrd", image,
	}
	// An emulated processor on a busy machine may be too slow for the kernel's
	// check of its timer, which panics then.
	line := "console=ttyS0 quiet panic=-1 no_timer_check"
	if s.iommu {
		args = append(args, "-device", "intel-iommu,intremap=on,caching-mode=on")
		line += " intel_iommu=on"
	}
	for _, n := range s.netdevs {
		args = append(args, "-netdev", n)
	}
	for _, d := range append(slices.Clone(s.devices), nicDevices(sockets(p, s))...) {
		args = append(args, "-device", d)
	}
	if s.append != "" {
		line += " " + s.append
	}
	return append(args, "-append", line)
}

// lastWords is the time that a guest may take to say what it was doing when its time
// was up.
const lastWords = 20 * time.Second

// boot runs a guest to its end and prints what it prints.
func boot(ctx context.Context, p places, s scenario, image string, limit time.Duration, out io.Writer) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	stop, err := startNICs(ctx, p, s, out)
	if err != nil {
		return fmt.Errorf("NICs: %w", err)
	}
	defer stop()
	monitor := image + ".monitor"
	args := s.command(p, image, monitor)
	cmd := exec.CommandContext(ctx, args[0], args[1:]...)
	cmd.WaitDelay = 5 * time.Second
	console, err := cmd.StdoutPipe()
	if err != nil {
		return err
	}
	keyboard, err := cmd.StdinPipe()
	if err != nil {
		return err
	}
	cmd.Stderr = &prefixed{out: out, prefix: "[" + s.name + "] QEMU: "} // such as why a device wants a reset
	if err := cmd.Start(); err != nil {
		return err
	}
	overdue := time.AfterFunc(limit, func() {
		fmt.Fprintln(keyboard) // the guest's init takes it for the end of its time
		time.AfterFunc(lastWords, cancel)
	})
	code, found, rerr := follow(console, "["+s.name+"] ", out, func(command string) (string, error) { return order(ctx, monitor, command) })
	late := !overdue.Stop()
	if rerr != nil {
		cancel() // the console is not read any more
		return errors.Join(fmt.Errorf("console: %w", rerr), cmd.Wait())
	}
	werr := cmd.Wait()
	switch {
	case late:
		return fmt.Errorf("the guest did not end within %v", limit)
	case ctx.Err() != nil:
		return ctx.Err()
	case werr != nil:
		return fmt.Errorf("QEMU: %w", werr)
	case !found:
		return errors.New("the guest ended without saying how its tests went")
	case code != 0:
		return errors.New("tests failed in the guest")
	}
	return nil
}

// follow copies a console, line by line with a prefix, passes on what is meant
// for the monitor, and returns what the guest said last about its tests.
func follow(console io.Reader, prefix string, out io.Writer, order func(string) (string, error)) (code int, found bool, err error) {
	lines := bufio.NewReader(console)
	for {
		line, err := lines.ReadString('\n')
		line = strings.Map(printable, terminal.ReplaceAllString(line, ""))
		if line != "" {
			fmt.Fprintf(out, "%s%s\n", prefix, line)
		}
		if rest, ok := strings.CutPrefix(line, exitMarker); ok {
			n, err := strconv.Atoi(rest)
			if err != nil {
				return 0, false, fmt.Errorf("%q: %w", line, err)
			}
			code, found = n, true
		}
		if rest, ok := strings.CutPrefix(line, monitorMarker); ok {
			answer, err := order(rest)
			if err != nil {
				return 0, false, fmt.Errorf("%q: %w", line, err)
			}
			fmt.Fprintf(out, "%sQEMU: %s\n", prefix, answer)
		}
		if errors.Is(err, io.EOF) {
			return code, found, nil
		}
		if err != nil {
			return code, found, err
		}
	}
}

// monitorLimit is the time that QEMU may take to answer.
const monitorLimit = 5 * time.Second

// order gives QEMU's monitor a command for people, over the protocol for
// machines (QEMU documentation, QMP), and returns what it answers.
func order(ctx context.Context, monitor, command string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, monitorLimit)
	defer cancel()
	var d net.Dialer
	c, err := d.DialContext(ctx, "unix", monitor)
	if err != nil {
		return "", err
	}
	defer c.Close()
	answer, err := qmp.New(c).Execute(ctx, "human-monitor-command", map[string]string{"command-line": command})
	return string(answer), err
}

// terminal matches what firmware and kernel send to terminals: escape sequences (ECMA-48,
// 5.3 and 5.4).
var terminal = regexp.MustCompile("\x1b(\\[[0-?]*[ -/]*[@-~]|[ -/]*[0-Z\\\\-~])")

// printable drops line ends and other control characters.
func printable(r rune) rune {
	if r < ' ' && r != '\t' {
		return -1
	}
	return r
}
