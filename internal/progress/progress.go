// Package progress shows how far something is, if it takes long enough for
// a user to wonder.
package progress

import (
	"fmt"
	"io"
	"os"
	"time"

	"golang.org/x/term"
)

// Style of showing.
type Style int

const (
	// None shows nothing.
	None Style = iota
	// Bar redraws one line in place; for terminals.
	Bar
	// Plain writes a line a second; for logs.
	Plain
)

const (
	// timeout is the time that something may take before its progress is shown, and
	// the time between two lines; redraw is the time between two drawings in place.
	timeout, redraw = time.Second, 100 * time.Millisecond
	// defaultColumns is the width of a terminal that does not tell its own.
	defaultColumns = 80
)

// Meter shows the progress of one thing. It is used by one goroutine.
type Meter struct {
	w           io.Writer
	style       Style
	what        string
	steps       bool
	columns     int
	done, total int64
	start, next time.Time // next is when to show something again
	shown       bool
}

// New starts to measure something of total bytes; negative if that is not known.
func New(w io.Writer, style Style, what string, total int64) *Meter {
	now := time.Now()
	m := &Meter{w: w, style: style, what: what, total: total, columns: defaultColumns, start: now, next: now.Add(timeout)}
	if f, ok := w.(*os.File); ok && style == Bar {
		if columns, _, err := term.GetSize(int(f.Fd())); err == nil && columns > 0 {
			m.columns = columns
		}
	}
	return m
}

// NewSteps starts to count steps of a job of total steps.
func NewSteps(w io.Writer, style Style, what string, total int) *Meter {
	m := New(w, style, what, int64(total))
	m.steps = true
	return m
}

// Add says that n more bytes, or steps, are done.
func (m *Meter) Add(n int) {
	m.done += int64(n)
	if m.style == None {
		return
	}
	if now := time.Now(); !now.Before(m.next) {
		m.show(now)
	}
}

func (m *Meter) show(now time.Time) {
	m.shown = true
	if m.style == Plain {
		m.next = now.Add(timeout)
		fmt.Fprintln(m.w, m.text(now))
		return
	}
	m.next = now.Add(redraw)
	line := []rune(m.text(now)) // a line that is wrapped could not be redrawn in place
	fmt.Fprintf(m.w, "\r%s\x1b[K", string(line[:min(len(line), m.columns-1)]))
}

func (m *Meter) text(now time.Time) string {
	if m.steps {
		return fmt.Sprintf("%s: %d of %d", m.what, m.done, m.total)
	}
	rate := float64(m.done) / 1e6 / now.Sub(m.start).Seconds()
	if m.total > 0 {
		return fmt.Sprintf("%s: %.1f of %.1f MB (%d %%), %.1f MB/s", m.what, float64(m.done)/1e6, float64(m.total)/1e6, 100*m.done/m.total, rate)
	}
	return fmt.Sprintf("%s: %.1f MB, %.1f MB/s", m.what, float64(m.done)/1e6, rate)
}

// Stop ends the showing: a bar is wiped off, lines get a last one.
func (m *Meter) Stop() {
	if m.shown && m.style == Bar {
		fmt.Fprint(m.w, "\r\x1b[K")
	} else if m.shown {
		fmt.Fprintln(m.w, m.text(time.Now()))
	}
	m.shown, m.style = false, None
}
