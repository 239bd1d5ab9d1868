package qtest_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/trapeze-nic/trapeze/ci/kit/leaktest"
	"github.com/trapeze-nic/trapeze/ci/kit/must"
	"github.com/trapeze-nic/trapeze/ci/kit/qtest"
	"github.com/trapeze-nic/trapeze/ci/kit/should"
	"github.com/trapeze-nic/trapeze/vfio"
)

// fakeVariable has this program speak in QEMU's place: well until it is asked for a
// register for the first time, and then as the variable says.
const fakeVariable = "TRAPEZE_FAKE_QEMU"

func fake(how string) {
	c := os.NewFile(3, "qtest")
	lines := bufio.NewScanner(c)
	for lines.Scan() {
		if !strings.HasPrefix(lines.Text(), "read") {
			fmt.Fprintln(c, "OK")
			continue
		}
		switch how {
		case "garbage":
			fmt.Fprintln(c, "hello")
		case "empty":
			fmt.Fprintln(c, "OK")
		case "wide":
			fmt.Fprintln(c, "OK 0x100000000")
		case "refuse":
			fmt.Fprintln(c, "FAIL not today")
		case "endless":
			b := []byte(strings.Repeat("O", 4096))
			for {
				if _, err := c.Write(b); err != nil {
					return
				}
			}
		case "interrupts":
			for {
				if _, err := fmt.Fprintln(c, "IRQ raise 1"); err != nil {
					return
				}
			}
		case "half":
			fmt.Fprint(c, "OK 0x0000")
		case "silent":
		case "complain":
			fmt.Fprint(os.Stderr, "there is a hole in my bucket\n")
			os.Exit(3)
		}
	}
}

func startFake(t *testing.T, how string) *qtest.Machine {
	t.Helper()
	program := must.Get(os.Executable())(t)
	m := must.Get(qtest.Start(t.Context(), qtest.Options{
		Devices: []string{"igb"}, QEMU: []string{"env", fakeVariable + "=" + how, program}, Timeout: time.Second,
	}))(t)
	t.Cleanup(func() { should.OK(t, m.Close()) })
	return m
}

// TestBadAnswers: whatever speaks in QEMU's place, there is a typed error in time.
func TestBadAnswers(t *testing.T) {
	leaktest.Check(t)
	garbage := func(err error) bool { return errors.Is(err, qtest.ErrGarbage) }
	late := func(err error) bool { return errors.Is(err, os.ErrDeadlineExceeded) }
	for how, right := range map[string]func(error) bool{
		"garbage": garbage, "empty": garbage, "wide": garbage, "endless": garbage,
		"half": late, "silent": late, "interrupts": late,
		"refuse": func(err error) bool {
			var refusal *qtest.AnswerError
			return errors.As(err, &refusal) && refusal.Answer == "not today"
		},
		"complain": func(err error) bool {
			var exit *qtest.ExitError
			var code *exec.ExitError
			return errors.As(err, &exit) && strings.Contains(exit.Stderr, "bucket") && errors.As(err, &code) && code.ExitCode() == 3
		},
	} {
		t.Run(how, func(t *testing.T) {
			m := startFake(t, how)
			_, err := m.Open(0)
			var typed *vfio.Error
			should.Hold(t, right(err) && errors.As(err, &typed), "open: %v", err)
			should.Be(t, errors.Is(err, vfio.ErrDeviceGone), (how != "refuse"), "the device is gone: after %v", err)
			if how != "refuse" {
				_, again := m.Open(0)
				should.Hold(t, right(again), "later: %v", again)
			}
		})
	}
}

func TestStartErrors(t *testing.T) {
	leaktest.Check(t)
	over, cancel := context.WithCancel(t.Context())
	cancel()
	igb := []string{"igb"}
	for name, c := range map[string]struct {
		ctx     context.Context
		options qtest.Options
		want    error
	}{
		"no device":    {t.Context(), qtest.Options{}, nil},
		"many devices": {t.Context(), qtest.Options{Devices: make([]string, qtest.MaxDevices+1)}, nil},
		"odd RAM":      {t.Context(), qtest.Options{Devices: igb, RAM: 4096}, nil},
		"much RAM":     {t.Context(), qtest.Options{Devices: igb, RAM: 1 << 40}, nil},
		"no timeout":   {t.Context(), qtest.Options{Devices: igb, Timeout: -1}, nil},
		"no program":   {t.Context(), qtest.Options{Devices: igb, QEMU: []string{"there-is-no-such-program"}}, exec.ErrNotFound},
		"no file":      {t.Context(), qtest.Options{Devices: igb, QEMU: []string{"/no/such/file"}}, os.ErrNotExist},
		"over":         {over, qtest.Options{Devices: igb, QEMU: []string{"sh", "-c", "exec sleep 1000"}}, context.Canceled},
	} {
		t.Run(name, func(t *testing.T) {
			m, err := qtest.Start(c.ctx, c.options)
			if err == nil {
				t.Error(m.Close())
			}
			var typed *vfio.Error
			if !errors.As(err, &typed) || c.want != nil && !errors.Is(err, c.want) {
				t.Errorf("%v, want %v in a *vfio.Error", err, c.want)
			}
		})
	}
}

// TestProgramThatEnds: what the program complained about is in the error.
func TestProgramThatEnds(t *testing.T) {
	leaktest.Check(t)
	_, err := qtest.Start(t.Context(), qtest.Options{Devices: []string{"igb"}, QEMU: []string{"sh", "-c", "echo no such model >&2; exit 1"}})
	var exit *qtest.ExitError
	should.Hold(t, errors.As(err, &exit) && exit.Stderr == "no such model", "%+v", err)
}
