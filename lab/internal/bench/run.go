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
	"runtime"
	"strings"
	"syscall"
	"time"

	"github.com/trapeze-nic/trapeze/internal/pause"
)

// Result is one measurement of our NICs.
type Result struct {
	Source, Echo Side
	atEcho       bool
}

// Counted is the side that counts what arrived: the source, whose sends complete when they have, or
// the echo where sends complete without that, or where it is the echo that waits.
func (r *Result) Counted() *Side {
	if r.atEcho {
		return &r.Echo
	}
	return &r.Source
}

// SwitchRate is the number of times a second that the two processes were taken off their cores.
func (r *Result) SwitchRate() float64 { return r.Source.SwitchRate() + r.Echo.SwitchRate() }

// starting is the time in which processes come up and end, beside the time to measure for.
const starting = 30 * time.Second

// Run carries out one measurement of a valid task: the workers' processes are started, measure and end.
func Run(ctx context.Context, t Task) (Result, error) {
	limit := starting + 2*t.For + t.connecting()
	ctx, cancel := context.WithTimeoutCause(ctx, limit, fmt.Errorf("no result after %v", limit))
	defer cancel()
	r, err := t.run(ctx)
	if err = caused(ctx, err); err != nil {
		err = fmt.Errorf("%s of %d bytes over %s: %w", t.Test, t.Bytes, t.Wire, err)
	}
	return r, err
}

// core is where process i runs; negative: anywhere. Over UDP it is anywhere: a goroutine takes the datagrams, and
// on the only core of a process that polls it would wait 10 ms for the scheduler.
func (t *Task) core(i int) int {
	if len(t.Cores) == 0 || t.Wire == "udp" {
		return -1
	}
	return t.Cores[i%len(t.Cores)]
}

func (t *Task) run(ctx context.Context) (r Result, err error) {
	path, err := t.path()
	if err != nil {
		return r, err
	}
	defer path.remove()
	if path.served != nil {
		x := *t
		x.Garbage, x.Profiles = 0, ""
		server, err := startWorker(ctx, part{Task: x, Role: Server, Sockets: path.served, Core: -1})
		if err != nil {
			return r, err
		}
		defer server.stop()
	}
	if path.single {
		core := t.core(0)
		if t.Test == Idle {
			core = -1 // of two goroutines
		}
		both, err := startWorker(ctx, part{Task: *t, Role: Both, Address: path.source, Peer: path.echo, Core: core})
		if err == nil {
			r.Source, err = both.side()
		}
		return r, err
	}
	r.atEcho = t.Test == Frames || t.Test == Idle || t.Test == Bandwidth && t.Reliability == "unreliable" && !wires[t.Wire].socket
	var echo, source *process
	err = path.in(0, func() (err error) {
		echo, err = startWorker(ctx, part{Task: *t, Role: Echo, Address: path.echo, Core: t.core(0)})
		return err
	})
	if err != nil {
		return r, err
	}
	err = path.in(1, func() (err error) {
		source, err = startWorker(ctx, part{Task: *t, Role: Source, Address: path.source, Core: t.core(1)})
		return err
	})
	if err == nil {
		r.Source, err = source.side()
	}
	if err != nil || t.Test == Fetch && !wires[t.Wire].socket { // a server of pages would serve others
		echo.stop()
		return r, err
	}
	r.Echo, err = echo.side()
	return r, err
}

// Rounds calls f for about d, and at least so many times, until ctx ends.
func Rounds(ctx context.Context, d time.Duration, least int, f func() error) error {
	for end, i := time.Now().Add(d), 0; i < least || time.Now().Before(end); i++ {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		if err := f(); err != nil {
			return err
		}
	}
	return nil
}

// OnCore runs f on a thread of its own, which is pinned to core unless that is
// negative. Goroutines that f starts run elsewhere. An error after the end of ctx is its cause.
func OnCore(ctx context.Context, core int, f func() error) error {
	ended := make(chan error, 1)
	go func() {
		// Not unlocked: the thread ends with the goroutine, and no other one inherits
		// where it may run.
		runtime.LockOSThread()
		err := pin(0, core)
		if err == nil {
			err = f()
		}
		ended <- err
	}()
	return caused(ctx, <-ended)
}

// caused is err, or the cause of ctx's end if both have happened.
func caused(ctx context.Context, err error) error {
	if err != nil && ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return err
}

// lookPause is the pause between two looks for something that another process makes.
const lookPause = 5 * time.Millisecond

// await looks until done, or until ctx ends.
func await(ctx context.Context, done func() bool) error {
	for !done() {
		if err := pause.For(ctx, lookPause); err != nil {
			return err
		}
	}
	return nil
}

// Local says how much is measured on one core, and where.
type Local struct {
	For time.Duration `flag:"duration" default:"2s" range:"1ms..10m" help:"how long to measure, about, in all"`
	Pin bool          `flag:"pin" default:"true" help:"stay on the core that others use least"`
}

// Core is where it is measured; -1 for any.
func (l *Local) Core() int {
	if quiet := quietFirst(); l.Pin && len(quiet) > 0 {
		return quiet[0]
	}
	return -1
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
