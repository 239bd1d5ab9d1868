package bench

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"time"
)

// process is a program that runs beside us: a worker or a part of a peer.
type process struct {
	cmd    *exec.Cmd
	name   string
	out    *bufio.Reader
	errors bytes.Buffer
}

// dying is the time that a process has to end after it was asked to.
const dying = 5 * time.Second

// start starts a program that is asked to end when ctx does, and killed if it does
// not. Its error output is kept.
func start(ctx context.Context, stdin io.Reader, name string, args ...string) (*process, error) {
	p := &process{cmd: exec.CommandContext(ctx, name, args...), name: name}
	p.cmd.Cancel = func() error { return p.cmd.Process.Signal(syscall.SIGTERM) }
	p.cmd.WaitDelay = dying
	// The kernel kills it if we are killed.
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	p.cmd.Stdin, p.cmd.Stderr = stdin, &p.errors
	out, err := p.cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	p.out = bufio.NewReader(out)
	return p, p.cmd.Start()
}

// startWorker starts this program again for a part of a measurement, and waits until it is ready.
func startWorker(ctx context.Context, p part) (*process, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	text, err := json.Marshal(p)
	if err != nil {
		return nil, err
	}
	w, err := start(ctx, bytes.NewReader(text), self, WorkerCommand)
	if err != nil {
		return nil, err
	}
	line, err := w.out.ReadString('\n')
	if err != nil || strings.TrimSpace(line) != readyLine {
		return nil, errors.Join(fmt.Errorf("the process (%s) does not come up", p.Role), w.end())
	}
	return w, nil
}

// side waits for what a worker has found.
func (p *process) side() (s Side, err error) {
	b, err := p.output()
	if err != nil {
		return s, err
	}
	return s, json.Unmarshal(b, &s)
}

// output is all that a program prints until it ends.
func (p *process) output() ([]byte, error) {
	b, err := io.ReadAll(io.LimitReader(p.out, 64<<20))
	if end := p.end(); end != nil {
		return nil, end
	}
	return b, err
}

// end waits for the process and returns what it had to say if it failed.
func (p *process) end() error {
	_, _ = io.Copy(io.Discard, p.out)
	err := p.cmd.Wait()
	if err == nil {
		return nil
	}
	if said := strings.TrimSpace(p.errors.String()); said != "" {
		lines := strings.Split(said, "\n")
		return fmt.Errorf("%s: %w: %s", p.name, err, lines[len(lines)-1])
	}
	return fmt.Errorf("%s: %w", p.name, err)
}

// stop asks the process to end and waits for it.
func (p *process) stop() {
	_ = p.cmd.Process.Signal(syscall.SIGTERM)
	killed := time.AfterFunc(dying, func() { _ = p.cmd.Process.Kill() })
	defer killed.Stop()
	// That it was told to end is no error of the measurement.
	_ = p.end()
}
