package netmem

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
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
	file, err := pager.Duplicate(m.File)
	if err != nil {
		return nil, errors.Join(err, link.Close())
	}
	defer file.Close()
	p.cmd.ExtraFiles = []*os.File{theirs, m.Object.File(), file} // in the order of the pager's descriptors
	// Ctrl-C is for the application, which may still have something to write back.
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := p.cmd.Start(); err != nil {
		link.Close()
		return nil, fmt.Errorf("start %q: %w", o.Command[0], err)
	}
	go func() {
		p.state = p.cmd.Wait()
		close(p.exited)
	}()
	return p, nil
}

// ask sends a message, and waits for one of a kind.
func (p *mapProcess) ask(ctx context.Context, m pager.Message, kind pager.Kind) (pager.Message, error) {
	if err := p.link.Send(m, time.Now().Add(processTimeout)); err != nil {
		return pager.Message{}, p.lost(err)
	}
	// The mapping fails then, and the link is not needed any more.
	defer context.AfterFunc(ctx, func() { p.link.Close() })()
	answer, err := p.link.Receive(time.Time{})
	switch {
	case ctx.Err() != nil:
		return pager.Message{}, context.Cause(ctx)
	case err != nil:
		return pager.Message{}, p.lost(err)
	case answer.Kind == pager.KindFailed:
		return pager.Message{}, answer.Failure
	case answer.Kind != kind:
		return pager.Message{}, fmt.Errorf("%w: %q instead of %q", pager.ErrLink, answer.Kind, kind)
	}
	return answer, nil
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
