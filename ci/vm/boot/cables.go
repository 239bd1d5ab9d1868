package main

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"syscall"
	"time"
)

// A cable is a -netdev dgram of QEMU, which sends each frame in a datagram of its own: a
// UDP wire of ours (SPEC.md 8.11) is its other end.

const (
	// cableBytes is the size of the file that goes over a cable. Emulated processors send
	// some MB a second.
	cableBytes = 2 << 20
	// farLimit is the time that a far end may take to end after its guest has.
	farLimit = 20 * time.Second
)

// cableFile is where the guest has the file for a cable.
func cableFile(i int) string { return "cables/" + strconv.Itoa(i) }

// farEnds are the programs at the other ends of a guest's cables.
type farEnds []farEnd

type farEnd struct {
	command        *exec.Cmd
	ended          chan error
	sent, received string // files
}

// startFarEnds makes the file for each cable, adds QEMU's side of the cables to a scenario,
// and starts a program at the end of each that waits for the file.
func startFarEnds(ctx context.Context, p places, s *scenario, out io.Writer) (f farEnds, err error) {
	defer func() {
		if err != nil {
			f.stop()
		}
	}()
	for i := range s.cables {
		sent := filepath.Join(p.scratch, s.name+cableFile(i))
		content := make([]byte, cableBytes)
		_, _ = rand.Read(content) // it does not fail
		if err := errors.Join(os.MkdirAll(filepath.Dir(sent), 0o700), os.WriteFile(sent, content, 0o600)); err != nil {
			return f, err
		}
		guest, port, err := freePorts()
		if err != nil {
			return f, err
		}
		const host = "127.0.0.1"
		s.netdevs = append(s.netdevs, fmt.Sprintf("dgram,id=cable%d,local.type=inet,local.host=%s,local.port=%d,remote.type=inet,remote.host=%s,remote.port=%d",
			i, host, guest, host, port))
		far := farEnd{ended: make(chan error, 1), sent: sent, received: sent + ".received"}
		cmd := exec.CommandContext(ctx, p.trapeze, "recv", "--output", far.received,
			"--device", fmt.Sprintf("emu:?wire=udp://%s:%d&peer=%s:%d", host, port, host, guest))
		cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) }
		cmd.WaitDelay = farLimit
		cmd.Stderr = &prefixed{out: out, prefix: fmt.Sprintf("[%s] cable %d: ", s.name, i)}
		if err := cmd.Start(); err != nil {
			return f, err
		}
		far.command = cmd
		go func() { far.ended <- cmd.Wait() }()
		f = append(f, far)
	}
	return f, nil
}

// freePorts finds two free UDP ports.
func freePorts() (a, b int, err error) {
	for _, port := range []*int{&a, &b} {
		c, err := net.ListenUDP("udp4", &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1)})
		if err != nil {
			return 0, 0, err
		}
		defer c.Close() // after the other one was found
		local, ok := c.LocalAddr().(*net.UDPAddr)
		if !ok {
			return 0, 0, fmt.Errorf("address %v", c.LocalAddr())
		}
		*port = local.Port
	}
	return a, b, nil
}

// check waits until the far ends have ended, and compares the files.
func (f farEnds) check() error {
	for i, far := range f {
		select {
		case err := <-far.ended:
			far.ended <- nil // for stop
			if err != nil {
				return fmt.Errorf("far end of cable %d: %w", i, err)
			}
		case <-time.After(farLimit):
			return fmt.Errorf("far end of cable %d: no file has come", i)
		}
		sent, serr := os.ReadFile(far.sent)
		received, rerr := os.ReadFile(far.received)
		if err := errors.Join(serr, rerr); err != nil {
			return err
		}
		if !bytes.Equal(sent, received) {
			return fmt.Errorf("cable %d: a file of %d bytes came as another of %d", i, len(sent), len(received))
		}
	}
	return nil
}

// stop ends the far ends that still wait.
func (f farEnds) stop() {
	for _, far := range f {
		_ = far.command.Process.Signal(syscall.SIGTERM) // it may have ended
		<-far.ended
	}
}
