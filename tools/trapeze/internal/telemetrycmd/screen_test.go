package telemetrycmd

import (
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/trapeze-nic/trapeze/ci/kit/leaktest"
	"github.com/trapeze-nic/trapeze/ci/kit/should"
	"github.com/trapeze-nic/trapeze/internal/telemetry"
)

func TestMain(m *testing.M) { leaktest.Main(m) }

// shown is a screen of two NICs; the second sends more and is measured.
func shown(t *testing.T) *screen {
	t.Helper()
	m := &screen{width: 80, height: 24}
	nic := func(pid int, sent float64, address string) sample {
		return sample{nic: &NIC{Owner: Owner{PID: pid, Program: "trapeze ping --long"}, Address: address, MAC: address}, queued: [2]int{3, 4},
			rates: map[string]float64{"bytes_sent": sent, "frames_retransmitted": 2},
			rows:  []endpointRow{{Endpoint: telemetry.Endpoint{Number: 9, Kind: "VI", Reliability: "reliable delivery", SendPosted: 5, SendTaken: 2}, Sends: 1234}}}
	}
	a, b := nic(11, 100, "pci:0000:03:00.0"), nic(22, 5e6, "emu:?wire=shm:/run/a/very/long/path/that/no/terminal/of/80/columns/has/room/for")
	a.policy = &policy{Policy: telemetry.Policy{At: "host", Send: telemetry.Direction{Policy: "amp", MinPulse: 512}, Receive: telemetry.Direction{Policy: "auto"}}}
	a.decisions = map[string]float64{"pulses": 4321}
	b.policy, b.decisions = a.policy, a.decisions
	b.latency = &telemetry.Latency{P50: 1500, P99: 22_000}
	m.take([]sample{a, b})
	return m
}

func press(m *screen, keys ...string) (goesOn bool) {
	for _, k := range keys {
		goesOn = m.key(k)
	}
	return goesOn
}

// order is the PIDs of a screen from the top down.
func order(m *screen) (pids string) {
	for _, line := range strings.Split(m.view(), "\n") {
		for _, pid := range []string{"11", "22"} {
			if strings.HasPrefix(strings.TrimLeft(line, " >"), pid+" ") {
				pids += pid + " "
			}
		}
	}
	return pids
}

// TestScreen: NICs in the order that was asked for, endpoints of the one that is chosen.
func TestScreen(t *testing.T) {
	m := shown(t)
	if got := order(m); got != "22 11 " || !strings.Contains(m.view(), " 1.5us   22us emu:?wire=") || !strings.Contains(m.view(), "3/4") {
		t.Errorf("%q:\n%s", got, m.view())
	}
	press(m, "r")
	should.Be(t, order(m), "11 22 ", "turned round")
	press(m, "r", "s", "s", "s", "s", "s") // by PID
	if got := order(m); got != "22 11 " || !strings.Contains(m.view(), "order: PID") {
		t.Errorf("by PID: %q\n%s", got, m.view())
	}
	press(m, "j", "enter")
	if v := m.view(); !strings.Contains(v, "1.23k") || !strings.Contains(v, "reliable delivery") || !strings.Contains(v, "amp (at least 512 B), receive auto  pulses 4.32k/s") || !strings.Contains(v, "frames_retransmitted") {
		t.Errorf("endpoints:\n%s", v)
	}
	press(m, "esc")
	if v := m.view(); strings.Contains(v, "SENDS/s") {
		t.Errorf("not back:\n%s", v)
	}
	should.Hold(t, !press(m, "q"), "q does not end it")
}

// TestScreenStands: rows come in order while none is chosen, and the cursor stays on the first; they keep
// their places once one is, until another order is asked for.
func TestScreenStands(t *testing.T) {
	m := shown(t)
	next := func(sent ...float64) {
		list := slices.Clone(m.samples)
		for i := range list {
			list[i].rates = map[string]float64{"bytes_sent": sent[i]}
		}
		slices.Reverse(list)
		m.take(list)
	}
	check := func(when, rows, chosen string) {
		t.Helper()
		got := order(m)
		should.Hold(t, got == rows && strings.Contains(m.view(), ">"+chosen+" "), "%s: %q\n%s", when, got, m.view())
	}
	next(1, 2)
	check("none chosen", "11 22 ", "11")
	press(m, "down")
	next(1, 2)
	check("chosen", "11 22 ", "22")
	press(m, "enter", "esc")
	next(1, 2)
	check("looked into", "11 22 ", "22")
	press(m, "esc")
	next(1, 2)
	check("given up", "22 11 ", "22")
}

// TestScreenHelp: ? shows what the keys and columns are, and any key goes back.
func TestScreenHelp(t *testing.T) {
	m := shown(t)
	rows := m.view()
	press(m, "?")
	if v := m.view(); !strings.Contains(v, "the order turned round") || !strings.Contains(v, "AGAIN") || strings.Contains(v, "PROGRAM") || strings.Contains(v, "==") {
		t.Errorf("help:\n%s", v)
	}
	should.Hold(t, press(m, "esc") && m.view() == rows, "not back:\n%s", m.view())
}

// TestScreenPrograms: a program has its whole name where there is room for it, and leaves some to the NIC.
func TestScreenPrograms(t *testing.T) {
	for width, want := range map[int]string{60: "trapeze pi ", 80: "trapeze ping    ", 90: "trapeze ping --long  "} {
		m := shown(t)
		m.width = width
		should.Contain(t, m.view(), "11      "+want, "%d columns", width)
	}
}

// TestAmount: what is written has the width of its column, also where it is rounded up.
func TestAmount(t *testing.T) {
	for v, want := range map[float64]string{0: "0", 12.4: "12", 999.4: "999", 999.6: "1k", 1234: "1.23k", 999_400: "999k", 999_600: "1M", 5e9: "5G", 2e12: "2T"} {
		should.Be(t, amount(v), want, "%v", v)
	}
	for ns, want := range map[int64]string{250: "250ns", 999_700: "1ms", 171_966_463: "172ms", 68e9: "68s"} {
		got, _ := latency(&telemetry.Latency{P50: ns})
		should.Hold(t, got == want, "%d ns: %q, want %q", ns, got, want)
	}
}

// TestScreenGone: the NIC whose endpoints are shown goes, and then all do.
func TestScreenGone(t *testing.T) {
	m := shown(t)
	press(m, "down", "enter")
	m.take([]sample{m.samples[0]})
	got := order(m)
	should.Hold(t, !m.inside && got != "", "%q:\n%s", got, m.view())
	press(m, "enter")
	m.take(nil)
	press(m, "enter", "down", "s")
	should.Contain(t, m.view(), "no process of this host")
}

// TestScreenWidths: no line is wider than the terminal, none is coloured, and the screen is no
// higher.
func TestScreenWidths(t *testing.T) {
	for _, size := range []struct{ width, height int }{{1, 1}, {20, 5}, {80, 3}, {80, 24}, {300, 100}} {
		for _, keys := range [][]string{nil, {"enter"}} {
			m := shown(t)
			m.width, m.height = size.width, size.height
			press(m, keys...)
			lines := strings.Split(m.view(), "\n")
			for _, line := range lines {
				should.Hold(t, utf8.RuneCountInString(line) <= size.width && !strings.Contains(line, "\x1b"), "%+v: %q", size, line)
			}
			if len(lines) > max(size.height, 2) && size.height > 1 {
				t.Errorf("%+v: %d lines", size, len(lines))
			}
		}
	}
}
