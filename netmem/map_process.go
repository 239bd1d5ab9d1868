package netmem

import (
	"errors"
	"fmt"
	"io"
	"os/exec"
	"syscall"
	"time"

	"github.com/trapeze-nic/trapeze/netmem/internal/pager"
)

// processTimeout limits the mapper's wait for what its processes do at once.
const processTimeout = 10 * time.Second

type mapProcess struct {
	cmd    *exec.Cmd
	link   *pager.Link
	exited chan struct{}
	state  error // of the process, when it has exited
}

// startProcess starts the command of o with a link and the memory.
func startProcess(o MapOptions, m *pager.Memory) (*mapProcess, error) {
	link, theirs, err := pager.NewLinks()
	if err != nil {
		return nil, err
	}
	defer theirs.Close()
	p := &mapProcess{cmd: exec.Command(o.Command[0], o.Command[1:]...), link: link, exited: make(chan struct{})}
	p.cmd.Stderr = o.Stderr
	if err := pager.Start(p.cmd, int(theirs.Fd()), int(m.Object.File().Fd()), m.File); err != nil { // in the order of the pager's descriptors
		link.Close()
		return nil, fmt.Errorf("start %q: %w", o.Command[0], err)
	}
	go func() {
		p.state = p.cmd.Wait()
		close(p.exited)
	}()
	return p, nil
}

// lost is why there is nothing to be read from the process's link, or written to it.
func (p *mapProcess) lost(err error) error {
	if !errors.Is(err, io.EOF) && !errors.Is(err, syscall.EPIPE) {
		return err
	}
	select {
	case <-p.exited:
		if p.state != nil {
			return fmt.Errorf("%w: %w", ErrPagerDied, p.state)
		}
	case <-time.After(processTimeout):
	}
	return ErrPagerDied
}

// close ends the process, which may do what it still has to.
func (p *mapProcess) close(timeout time.Duration) {
	p.link.Close()
	select {
	case <-p.exited:
	case <-time.After(timeout):
		_ = p.cmd.Process.Kill() // or it has just exited
		<-p.exited
	}
}
