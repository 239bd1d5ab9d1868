package telemetrycmd

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/trapeze-nic/trapeze/internal/telemetry"
)

// orders are those in which s shows NICs.
var orders = []struct {
	name string
	of   func(*sample) float64
}{
	{"sent", func(s *sample) float64 { return s.rates["bytes_sent"] }},
	{"received", func(s *sample) float64 { return s.rates["bytes_received"] }},
	{"messages", func(s *sample) float64 { return s.rates["messages_sent"] + s.rates["messages_received"] }},
	{"again", func(s *sample) float64 { return s.rates["frames_retransmitted"] }},
	{"queued", func(s *sample) float64 { return float64(s.queued[0] + s.queued[1]) }},
	{"PID", func(s *sample) float64 { return float64(s.nic.PID) }},
}

// screen is the state of top.
type screen struct {
	samples       []sample
	width, height int
	order         int
	upward        bool
	cursor        string // name of the NIC that is chosen
	held          bool   // the user chose it: rows keep their places, so that it does not run away
	inside        bool   // its endpoints are shown
	help          bool
}

// key does what a key is for. It returns false for the one that ends top.
func (m *screen) key(name string) bool {
	if m.help && name != "q" {
		name = "?" // any key leaves the help
	}
	switch name {
	case "q":
		return false
	case "?":
		m.help = !m.help
	case "esc":
		m.inside, m.held = false, m.inside
	case "enter":
		m.inside = len(m.samples) > 0
		m.held = m.inside
	case "s":
		m.order = (m.order + 1) % len(orders)
		m.sort()
	case "r":
		m.upward = !m.upward
		m.sort()
	case "up", "k":
		m.move(-1)
	case "down", "j":
		m.move(1)
	}
	return true
}

// move chooses the NIC above or below.
func (m *screen) move(by int) {
	if len(m.samples) > 0 && !m.inside {
		m.cursor, m.held = m.samples[min(max(m.chosen()+by, 0), len(m.samples)-1)].nic.name(), true
	}
}

// chosen is the place of the NIC that is chosen; -1 if it has gone.
func (m *screen) chosen() int {
	return slices.IndexFunc(m.samples, func(s sample) bool { return s.nic.name() == m.cursor })
}

// take shows what was found.
func (m *screen) take(list []sample) {
	places := map[string]int{} // below 0: new ones come behind
	for i, s := range m.samples {
		places[s.nic.name()] = i - len(m.samples)
	}
	m.samples = list
	if m.held && m.chosen() >= 0 {
		slices.SortStableFunc(list, func(a, b sample) int { return cmp.Compare(places[a.nic.name()], places[b.nic.name()]) })
		return
	}
	m.sort()
}

// sort puts all in order, and the cursor on the first.
func (m *screen) sort() {
	m.held, m.inside = false, false
	of := orders[m.order].of
	slices.SortStableFunc(m.samples, func(a, b sample) int {
		c := cmp.Compare(of(&b), of(&a))
		if m.upward {
			c = -c
		}
		return cmp.Or(c, cmp.Compare(a.nic.PID, b.nic.PID), cmp.Compare(a.nic.Port, b.nic.Port))
	})
	if len(m.samples) > 0 {
		m.cursor = m.samples[0].nic.name()
	}
}

// view is the whole screen.
func (m *screen) view() string {
	lines := strings.Split(m.table(), "\n")
	keys := "up/down choose  enter endpoints  s order: " + orders[m.order].name + "  r turn  ? help  q end"
	if m.inside || m.help {
		keys = "esc back  q end"
	}
	if m.height > 1 && len(lines) > m.height-1 {
		lines = lines[:m.height-1]
	}
	return strings.Join(append(lines, m.fit(keys)), "\n")
}

// table is the screen without the line of keys.
func (m *screen) table() string {
	lines := m.nicLines()
	switch {
	case m.help:
		_, text, _ := strings.Cut(help, "== top\n")
		text, _, _ = strings.Cut(text, "\n\nWith --once")
		lines = strings.Split(text, "\n")
	case m.inside:
		lines = m.endpointLines(&m.samples[m.chosen()])
	}
	for i := range lines {
		lines[i] = m.fit(lines[i])
	}
	return strings.Join(lines, "\n")
}

// fit cuts a line that is wider than the terminal.
func (m *screen) fit(line string) string {
	return cut(strings.TrimRight(telemetry.Printable(line), " "), m.width)
}

// cut cuts a text to so many columns.
func cut(text string, columns int) string {
	runes := []rune(text)
	return string(runes[:min(len(runes), max(columns, 1))])
}

// nicRow has 58 columns beside those of the program and the NIC.
const nicRow = "%s%-7s %-*s %6s %6s %5s %5s %7s %6s %6s %s"

func (m *screen) nicLines() []string {
	wide := len("PROGRAM")
	for _, s := range m.samples {
		wide = max(wide, utf8.RuneCountInString(s.nic.Program))
	}
	wide = min(wide, max(m.width-58-10, 10)) // the NIC has 10 columns at least
	lines := []string{fmt.Sprintf(nicRow, " ", "PID", wide, "PROGRAM", "SENT/s", "RECV/s", "MSG/s", "AGAIN", "QUEUED", "p50", "p99", "NIC")}
	for i, s := range m.samples {
		mark := " "
		if i == m.chosen() {
			mark = ">"
		}
		p50, p99 := latency(s.latency)
		queued := "-"
		if s.queued[0] >= 0 {
			queued = fmt.Sprintf("%d/%d", s.queued[0], s.queued[1])
		}
		lines = append(lines, fmt.Sprintf(nicRow, mark, fmt.Sprint(s.nic.PID), wide, cut(s.nic.Program, wide), amount(s.rates["bytes_sent"]),
			amount(s.rates["bytes_received"]), amount(s.rates["messages_sent"]+s.rates["messages_received"]),
			amount(s.rates["frames_retransmitted"]), queued, p50, p99, s.nic.Address))
	}
	if len(m.samples) == 0 {
		lines = append(lines, "no process of this host has a NIC open that this user may look at")
	}
	return lines
}

// latency is the median and the 99th percentile, or nothing.
func latency(l *telemetry.Latency) (p50, p99 string) {
	if l == nil {
		return "-", "-"
	}
	return scaled(float64(l.P50), "ns", "us", "ms", "s"), scaled(float64(l.P99), "ns", "us", "ms", "s")
}

const endpointLine = " %-6s %-14s %-20s %9s %9s %7s %7s %6s %6s"

// endpointLines are the rates of a NIC that are not zero, and its endpoints.
func (m *screen) endpointLines(s *sample) []string {
	lines := []string{fmt.Sprintf("%s  PID %d (%s)", s.nic.Address, s.nic.PID, s.nic.Program)}
	var rates []string
	for name, v := range s.rates {
		if v > 0 {
			rates = append(rates, name+" "+amount(v)+"/s")
		}
	}
	slices.Sort(rates)
	lines = append(lines, wrapped(rates, m.width)...)
	lines = append(lines, policyLines(s)...)
	lines = append(lines, fmt.Sprintf(endpointLine, "VI", "KIND", "RELIABILITY", "SENDS/s", "RECVS/s", "SENDQ", "RECVQ", "p50", "p99"))
	for i := range s.rows {
		e := &s.rows[i]
		p50, p99 := latency(e.Latency)
		lines = append(lines, fmt.Sprintf(endpointLine, fmt.Sprint(e.Number), e.Kind, e.Reliability,
			amount(e.Sends), amount(e.Receives), fmt.Sprint(e.SendQueued()), fmt.Sprint(e.RecvQueued()), p50, p99))
	}
	return lines
}

// policyLines say which policy moves frames, and how often it decides where the host does.
func policyLines(s *sample) []string {
	p := s.policy
	if p == nil {
		return nil
	}
	line := fmt.Sprintf("policy at the %s: send %s, receive %s", p.At, direction(p.Send), direction(p.Receive))
	for _, name := range slices.Sorted(maps.Keys(s.decisions)) {
		line += "  " + name + " " + amount(s.decisions[name]) + "/s"
	}
	return []string{line}
}

// direction names the policy of one direction, with its smallest pulse if it has one.
func direction(d telemetry.Direction) string {
	if d.MinPulse == 0 {
		return d.Policy
	}
	return fmt.Sprintf("%s (at least %d B)", d.Policy, d.MinPulse)
}

// wrapped puts as many words into a line as it has room for.
func wrapped(words []string, width int) (lines []string) {
	line := ""
	for _, w := range words {
		if line != "" && len(line)+2+len(w) > width {
			lines, line = append(lines, line), ""
		}
		line += "  " + w
	}
	if line != "" {
		lines = append(lines, line)
	}
	return lines
}
