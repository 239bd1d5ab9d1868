package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os/exec"
	"path/filepath"
	"strconv"
	"syscall"
	"time"
)

// nicsLimit is the time that the NICs may take to be ready, and to end.
const nicsLimit = time.Minute

// sockets are where a scenario's NICs are served.
func sockets(p places, s scenario) (list []string) {
	for i := range s.nics {
		list = append(list, filepath.Join(p.scratch, s.name+"-nic"+strconv.Itoa(i)))
	}
	return list
}

// replyLimit limits QEMU's wait for a NIC's answer (x-msg-timeout, in ms). With its own 5
// s it gives a NIC up for good where this machine runs neither for so long: then it finds that
// the time is up before the answer has come. A guest has a time limit of its own.
const replyLimit = 2 * time.Minute

// slowPort keeps a port at 5 GT/s. After a bus reset Linux waits for a faster
// port to say that its link is up (drivers/pci/pci.c,
// pci_bridge_wait_for_secondary_bus), which QEMU's does not for this device.
const slowPort = "x-speed=5"

// nicDevices are QEMU's devices for NICs at sockets.
func nicDevices(sockets []string) (devices []string) {
	for i, path := range sockets {
		port := "nic-port" + strconv.Itoa(i)
		devices = append(devices, fmt.Sprintf("pcie-root-port,id=%s,chassis=%d,addr=%d,%s", port, 20+i, 16+i, slowPort))
		// %q is JSON here: paths of folders for temporary files have no special characters.
		devices = append(devices, fmt.Sprintf(`{"driver":"vfio-user-pci","bus":%q,"socket":{"type":"unix","path":%q},"x-msg-timeout":%d}`,
			port, path, replyLimit.Milliseconds()))
	}
	return devices
}

// startNICs runs the emulated NICs of a scenario in a process of their own. stop
// ends it, and says on out how it ended if that was not in order.
func startNICs(ctx context.Context, p places, s scenario, out io.Writer) (stop func(), err error) {
	if s.nics == 0 {
		return func() {}, nil
	}
	args := []string{"emulate", "--json"}
	for _, path := range sockets(p, s) {
		args = append(args, "--socket", path)
	}
	cmd := exec.CommandContext(ctx, p.trapeze, args...)
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) }
	cmd.WaitDelay = nicsLimit
	cmd.Stderr = &prefixed{out: out, prefix: "[" + s.name + "] NICs: "}
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	// It prints one object when it is ready.
	ready := make(chan error, 1)
	go func() { ready <- json.NewDecoder(stdout).Decode(&struct{}{}) }()
	select {
	case err = <-ready:
	case <-time.After(nicsLimit):
		err = errors.New("not ready in time")
	}
	stop = func() {
		_ = cmd.Process.Signal(syscall.SIGTERM)
		if err := cmd.Wait(); err != nil && ctx.Err() == nil {
			fmt.Fprintf(out, "[%s] NICs: %v\n", s.name, err)
		}
	}
	if err != nil {
		stop()
		return nil, err
	}
	return stop, nil
}

// prefixed marks the lines of another program.
type prefixed struct {
	out    io.Writer
	prefix string
	rest   []byte
}

func (p *prefixed) Write(b []byte) (int, error) {
	p.rest = append(p.rest, b...)
	for {
		n, line, err := bufio.ScanLines(p.rest, false)
		if n == 0 || err != nil {
			return len(b), err
		}
		p.rest = p.rest[n:]
		if _, err := fmt.Fprintf(p.out, "%s%s\n", p.prefix, line); err != nil {
			return 0, err
		}
	}
}
