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

// WorkerCommand is the hidden command with which the program starts itself as a
// worker.
const WorkerCommand = "bench-worker"

// readyLine holds what a worker prints once its peer may start.
const readyLine = "ready"

// job holds what a worker does: one of these. It crosses to it as JSON.
type job struct {
	Messages *Spec       `json:"messages,omitempty"`
	Idle     *idleSpec   `json:"idle,omitempty"`
	Frames   *frames     `json:"frames,omitempty"`
	Socket   *socketSide `json:"socket,omitempty"`
	Fetch    *fetchSide  `json:"fetch,omitempty"`
	Server   *served     `json:"server,omitempty"`
}

// RunWorker is the worker's whole life: a job as JSON from r; to w what its peer has to
// know before it starts, a line, and its result as JSON.
func RunWorker(ctx context.Context, r io.Reader, w io.Writer) error {
	var j job
	d := json.NewDecoder(io.LimitReader(r, 1<<16))
	d.DisallowUnknownFields()
	if err := d.Decode(&j); err != nil {
		return fmt.Errorf("%w: %w", ErrSpec, err)
	}
	switch {
	case j.Messages != nil:
		side, err := Work(ctx, *j.Messages, func() { fmt.Fprintln(w, readyLine) })
		if err != nil {
			return err
		}
		return json.NewEncoder(w).Encode(side)
	case j.Idle != nil:
		return j.Idle.run(ctx, w)
	case j.Frames != nil:
		return j.Frames.run(ctx, w)
	case j.Socket != nil:
		return j.Socket.run(ctx, w)
	case j.Fetch != nil:
		return j.Fetch.run(ctx, w)
	case j.Server != nil:
		return j.Server.run(ctx, w)
	}
	return fmt.Errorf("%w: a worker without a job", ErrSpec)
}

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
	// A program of ours that is killed takes its children along.
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	p.cmd.Stdin, p.cmd.Stderr = stdin, &p.errors
	out, err := p.cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	p.out = bufio.NewReader(out)
	if err := p.cmd.Start(); err != nil {
		return nil, err
	}
	return p, nil
}

// startWorker starts this program again for a job.
func startWorker(ctx context.Context, j job) (*process, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	text, err := json.Marshal(j)
	if err != nil {
		return nil, err
	}
	return start(ctx, bytes.NewReader(text), self, WorkerCommand)
}

// startReady starts a worker and waits until it is ready; what names it in errors.
func startReady(ctx context.Context, j job, what string) (*process, error) {
	p, err := startWorker(ctx, j)
	if err != nil {
		return nil, err
	}
	line, err := p.out.ReadString('\n')
	if err != nil || strings.TrimSpace(line) != readyLine {
		return nil, errors.Join(fmt.Errorf("the %s does not come up", what), p.end())
	}
	return p, nil
}

// result waits for what a worker has found.
func result[T any](p *process) (v T, err error) {
	b, err := p.output()
	if err != nil {
		return v, err
	}
	return v, json.Unmarshal(b, &v)
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

// Result is one measurement of ours.
type Result struct {
	Source, Echo Side
	unreliable   bool
}

// Stream is the side that counts what arrived: the source, whose sends complete when
// they have, or the echo where sends complete without that.
func (r *Result) Stream() *Side {
	if r.unreliable {
		return &r.Echo
	}
	return &r.Source
}

// SwitchRate is the number of times a second that the two processes were taken off their cores.
func (r *Result) SwitchRate() float64 { return r.Source.SwitchRate() + r.Echo.SwitchRate() }

// Run carries out one measurement: the workers' processes are started, measure and
// end. limit bounds it.
func Run(ctx context.Context, t Task) (Result, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, t.limit(), fmt.Errorf("%s of %d bytes over %s: no result after %v", t.Spec.Test, t.Spec.Bytes, t.Wire, t.limit()))
	defer cancel()
	r, err := t.run(ctx)
	return r, caused(ctx, err)
}

func (t *Task) run(ctx context.Context) (r Result, err error) {
	r.unreliable = t.Spec.Reliability == "unreliable" && t.Spec.Test == Bandwidth && t.Wire != "memory"
	path, err := t.path()
	if err != nil {
		return r, err
	}
	defer path.remove()
	if path.server != nil {
		server, err := startReady(ctx, job{Server: path.server}, "server of the NICs")
		if err != nil {
			return r, err
		}
		defer server.stop()
	}
	part := func(role Role, address string, core int) job {
		spec := t.Spec
		spec.Role, spec.Address, spec.Core = role, address, t.core(core)
		return job{Messages: &spec}
	}
	if path.single {
		both := part(Both, path.source, 0)
		both.Messages.Peer = path.echo
		p, err := startReady(ctx, both, string(Both))
		if err != nil {
			return r, err
		}
		r.Source, err = result[Side](p)
		return r, err
	}
	var echo, source *process
	err = path.in(0, func() (err error) {
		echo, err = startReady(ctx, part(Echo, path.echo, 0), string(Echo))
		return err
	})
	if err != nil {
		return r, err
	}
	err = path.in(1, func() (err error) {
		source, err = startReady(ctx, part(Source, path.source, 1), string(Source))
		return err
	})
	if err == nil {
		r.Source, err = result[Side](source)
	}
	if err != nil {
		echo.stop()
		return r, err
	}
	r.Echo, err = result[Side](echo)
	return r, err
}
