package telemetrycmd

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"
	"golang.org/x/term"

	"github.com/trapeze-nic/trapeze/internal/command"
	"github.com/trapeze-nic/trapeze/internal/option"
	"github.com/trapeze-nic/trapeze/internal/pause"
)

type topFlags struct {
	Interval time.Duration `flag:"interval,i" default:"1s" range:"50ms..1h" help:"time from one look to the next"`
	Once     bool          `flag:"once" help:"print one screen, and end"`
}

func (x *commands) top(ctx context.Context, f *topFlags, _ []string) error {
	if x.JSON {
		return option.Errorf("top has no JSON: 'trapeze ps --json' and 'trapeze stats --json' have the figures")
	}
	s := &sampler{}
	defer s.close()
	m := &screen{width: 80}
	if f.Once {
		m.take(s.next(ctx, nil))
		if err := pause.For(ctx, f.Interval); err != nil {
			return err
		}
		m.take(s.next(ctx, nil))
		_, err := fmt.Fprintln(x.Stdout, m.table())
		return err
	}
	keyboard, ok := x.Stdin.(*os.File)
	if !ok || !command.IsTerminal(keyboard) || !command.IsTerminal(os.Stdout) {
		return option.Errorf("top needs a terminal: use --once")
	}
	return watch(ctx, m, s, f.Interval, keyboard, os.Stdout)
}

const (
	// enterScreen makes the terminal show another screen, without a cursor and without going on in the next line
	// where a line is too wide. leaveScreen undoes that.
	enterScreen = "\x1b[?1049h\x1b[?25l\x1b[?7l"
	leaveScreen = "\x1b[?7h\x1b[?25h\x1b[?1049l"
	// keyPause bounds how long the keyboard is waited for after the end.
	keyPause = 50 * time.Millisecond
)

// watch shows the screen until the user or ctx ends it. The terminal is then as it was.
func watch(ctx context.Context, m *screen, s *sampler, interval time.Duration, keyboard, terminal *os.File) (err error) {
	before, err := term.MakeRaw(int(keyboard.Fd()))
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(ctx)
	keys, found := make(chan string), make(chan []sample, 1)
	var helping sync.WaitGroup
	defer func() {
		cancel()
		helping.Wait()
		_, e := io.WriteString(terminal, leaveScreen)
		err = errors.Join(err, e, term.Restore(int(keyboard.Fd()), before))
	}()
	helping.Go(func() { readKeys(ctx, keyboard, keys) })
	look := func() {
		chosen := map[string]bool{m.cursor: m.inside}
		helping.Go(func() { found <- s.next(ctx, chosen) })
	}
	if _, err := io.WriteString(terminal, enterScreen); err != nil {
		return err
	}
	look()
	var next <-chan time.Time
	for {
		if m.width, m.height, err = term.GetSize(int(terminal.Fd())); err != nil {
			return err
		}
		m.width = cmp.Or(m.width, 80) // a serial line does not tell its width
		lines := strings.ReplaceAll(m.view(), "\n", "\x1b[K\r\n")
		if _, err := io.WriteString(terminal, "\x1b[H"+lines+"\x1b[J"); err != nil {
			return err
		}
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case k := <-keys:
			if !m.key(k) {
				return nil
			}
		case list := <-found:
			m.take(list)
			next = time.After(interval)
		case <-next:
			look()
		}
	}
}

// keyNames are those of bytes that a terminal sends for keys without a letter.
var keyNames = []struct{ bytes, name string }{
	{"\x1b[A", "up"}, {"\x1bOA", "up"}, {"\x1b[B", "down"}, {"\x1bOB", "down"}, {"\x1b[C", "enter"}, {"\x1bOC", "enter"},
	{"\x1b[D", "esc"}, {"\x1bOD", "esc"}, {"\x1b", "esc"}, {"\x7f", "esc"}, {"\r", "enter"}, {"\x03", "q"},
}

// readKeys says which keys are pressed, until ctx ends or the keyboard has gone.
func readKeys(ctx context.Context, keyboard *os.File, keys chan<- string) {
	var buf [64]byte
	for ctx.Err() == nil {
		ready := []unix.PollFd{{Fd: int32(keyboard.Fd()), Events: unix.POLLIN}}
		if n, err := unix.Poll(ready, int(keyPause.Milliseconds())); n == 0 || errors.Is(err, unix.EINTR) {
			continue
		}
		n, err := keyboard.Read(buf[:])
		if err != nil {
			return
		}
		for left := buf[:n]; len(left) > 0; {
			name, size := string(left[:1]), 1
			for _, k := range keyNames {
				if bytes.HasPrefix(left, []byte(k.bytes)) {
					name, size = k.name, len(k.bytes)
					break
				}
			}
			left = left[size:]
			select {
			case keys <- name:
			case <-ctx.Done():
				return
			}
		}
	}
}
