// Package progress shows how far something is, if it takes long enough for
// a user to wonder.
package progress

import (
	"fmt"
	"io"
	"time"

	"github.com/schollz/progressbar/v3"
)

// Style of showing.
type Style int

const (
	// None shows nothing.
	None Style = iota
	// Bar draws a bar that is redrawn in place; for terminals.
	Bar
	// Plain writes a line a second; for logs.
	Plain
)

// timeout is the time that something may take before its progress is shown, and
// the time between two lines.
const timeout = time.Second

const (
	// barWidth is the width of the bar itself in columns.
	barWidth = 16
	// barColumns is the most that a bar line takes beside the name of what it is
	// about: percentage, bar, amounts, rate, times of hours.
	barColumns = barWidth + 54
	// shortestName is the least that a name is cut to.
	shortestName = 8
)

// Fit returns style and what for a terminal of so many columns, zero for an
// unknown number. A bar whose line is wrapped cannot be redrawn in place: the
// name is cut, and if that does not do, there are lines instead.
func Fit(style Style, what string, columns int) (Style, string) {
	name := []rune(what)
	room := columns - barColumns
	switch {
	case style != Bar || columns <= 0 || len(name) <= room:
		return style, what
	case room < shortestName:
		return Plain, what
	}
	return style, string(name[:room-1]) + "…"
}

// Meter shows the progress of one thing. It is used by one goroutine.
type Meter struct {
	w          io.Writer
	style      Style
	what       string
	steps      bool
	done       int64
	total      int64
	start      time.Time
	next       time.Time // when to show something again
	bar        *progressbar.ProgressBar
	showedLine bool
}

// New starts to measure something of total bytes; negative if that is not known.
func New(w io.Writer, style Style, what string, total int64) *Meter {
	now := time.Now()
	return &Meter{w: w, style: style, what: what, total: total, start: now, next: now.Add(timeout)}
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
	if m.bar != nil {
		// Errors of drawing are not worth stopping for.
		_ = m.bar.Add(n)
		return
	}
	now := time.Now()
	if now.Before(m.next) {
		return
	}
	m.next = now.Add(timeout)
	if m.style == Bar {
		m.bar = m.newBar()
		_ = m.bar.Set64(m.done)
		return
	}
	m.showedLine = true
	m.line(now)
}

func (m *Meter) newBar() *progressbar.ProgressBar {
	return progressbar.NewOptions64(m.total,
		progressbar.OptionShowCount(),
		progressbar.OptionSetWriter(m.w),
		progressbar.OptionSetDescription(m.what),
		progressbar.OptionShowBytes(!m.steps),
		// Steps differ too much in length to foretell anything.
		progressbar.OptionSetPredictTime(!m.steps),
		progressbar.OptionSetElapsedTime(!m.steps),
		progressbar.OptionSetWidth(barWidth),
		progressbar.OptionThrottle(100*time.Millisecond),
		progressbar.OptionClearOnFinish(),
		// Drawn by Add alone, not by a goroutine as well.
		progressbar.OptionSetSpinnerChangeInterval(0),
	)
}

func (m *Meter) line(now time.Time) {
	if m.steps {
		fmt.Fprintf(m.w, "%s: %d of %d\n", m.what, m.done, m.total)
		return
	}
	rate := float64(m.done) / 1e6 / now.Sub(m.start).Seconds()
	if m.total > 0 {
		fmt.Fprintf(m.w, "%s: %.1f of %.1f MB (%d %%), %.1f MB/s\n", m.what,
			float64(m.done)/1e6, float64(m.total)/1e6, 100*m.done/m.total, rate)
		return
	}
	fmt.Fprintf(m.w, "%s: %.1f MB, %.1f MB/s\n", m.what, float64(m.done)/1e6, rate)
}

// Stop ends the showing: a bar is wiped off, lines get a last one.
func (m *Meter) Stop() {
	switch {
	case m.bar != nil:
		_ = m.bar.Clear()
		m.bar = nil
		m.style = None
	case m.showedLine:
		m.line(time.Now())
		m.showedLine = false
		m.style = None
	}
}
