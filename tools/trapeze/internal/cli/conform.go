package cli

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"regexp"
	"regexp/syntax"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/jstemmer/go-junit-report/v2/junit"

	"github.com/trapeze-nic/trapeze/conform"
	"github.com/trapeze-nic/trapeze/emulator"
	"github.com/trapeze-nic/trapeze/internal/cmdtable"
	"github.com/trapeze-nic/trapeze/internal/command"
	"github.com/trapeze-nic/trapeze/internal/option"
	"github.com/trapeze-nic/trapeze/internal/outfile"
	"github.com/trapeze-nic/trapeze/internal/progress"
	"github.com/trapeze-nic/trapeze/tools/trapeze/internal/peer"
	"github.com/trapeze-nic/trapeze/vfio"
	"github.com/trapeze-nic/trapeze/via"
)

// conformReport is the JSON output of conform.
type conformReport struct {
	Device  string         `json:"device"`
	Peer    string         `json:"peer"`
	Passed  int            `json:"passed"`
	Failed  int            `json:"failed"`
	Skipped int            `json:"skipped"`
	Seconds float64        `json:"seconds"`
	Checks  []conformCheck `json:"checks"`
	// Incomplete says why it ended before all checks had run.
	Incomplete string `json:"incomplete,omitempty"`
}

// Results of a check. One that is only listed, or was not reached, has none.
const (
	passed  = "passed"
	failed  = "failed"
	skipped = "skipped"
)

// sections are those of VIA, and those of what VIA does not have.
var sections = conform.All(nil).Sections()

type conformCheck struct {
	Section  string   `json:"section"`
	Name     string   `json:"name"`
	Result   string   `json:"result,omitempty" help:"passed, failed or skipped; none with --list"`
	Seconds  float64  `json:"seconds"`
	Messages []string `json:"messages,omitempty"`
}

type conformFlags struct {
	Device   string        `flag:"device" help:"address of one NIC (default two in this process)"`
	Peer     string        `flag:"peer" help:"address of the NIC at the other end of the wire"`
	List     bool          `flag:"list" help:"list the checks instead of running them"`
	Sections []string      `flag:"section" help:"run the checks of this section; give it again for another one"`
	Pattern  string        `flag:"run" help:"run the checks whose SECTION/NAME matches this regular expression"`
	JUnit    string        `flag:"junit" help:"also write the results to this file, as JUnit XML"`
	Limit    time.Duration `flag:"timeout" default:"5m" range:"1s.." help:"how long each check may take, 1s or more"`
	cmdtable.Force
	eagerFlag
}

// choose returns the checks that the flags ask for.
func (f *conformFlags) choose() ([]conform.Check, error) {
	for _, s := range f.Sections {
		if !slices.Contains(sections, s) {
			return nil, &option.Error{Option: "--section", Value: s, Allowed: strings.Join(sections, ", ")}
		}
	}
	pattern, err := regexp.Compile(f.Pattern)
	if err != nil {
		allowed := "a regular expression"
		if bad := (*syntax.Error)(nil); errors.As(err, &bad) {
			allowed += fmt.Sprintf("; %s in %s", bad.Code, bad.Expr)
		}
		return nil, &option.Error{Option: "--run", Value: f.Pattern, Allowed: allowed}
	}
	var chosen []conform.Check
	for _, c := range conform.All(f.openFiltered) {
		if (len(f.Sections) == 0 || slices.Contains(f.Sections, c.Section)) && pattern.MatchString(c.String()) {
			chosen = append(chosen, c)
		}
	}
	if len(chosen) == 0 {
		return nil, option.Errorf("no check is called so: see 'trapeze conform --list'")
	}
	return chosen, nil
}

// check refuses flags that do not go together.
func (f *conformFlags) check() error {
	switch {
	case f.Device != "" && f.Peer == "":
		return &option.Error{Option: "--peer", Allowed: "the address of a NIC on the same wire as --device"}
	case f.Peer != "" && f.Device == "":
		return &option.Error{Option: "--device", Allowed: "the address of a NIC on the same wire as --peer"}
	case f.List && f.JUnit != "":
		return option.Errorf("--list runs nothing, so that there is nothing for --junit")
	case f.JUnit != "":
		if err := outfile.Check(f.JUnit, f.Force.Force); err != nil {
			return outfile.Explain("--junit", err)
		}
	}
	for i, address := range []string{f.Device, f.Peer} {
		if address == "" {
			continue
		}
		if err := peer.CheckDevice(address); err != nil {
			return err
		}
		// Such an end only answers, and a check that it begins would wait until its time is up.
		a, err := vfio.ParseAddress(address)
		if err == nil && strings.HasPrefix(a.Options.Get("wire"), "udp:") && !a.Options.Has("peer") {
			return &option.Error{Option: []string{"--device", "--peer"}[i], Value: address, Allowed: "with peer=HOST:PORT: either end begins checks, and must know the other"}
		}
	}
	return nil
}

// open opens the two NICs.
func (f *conformFlags) open(ctx context.Context) (a, b *via.NIC, err error) {
	if f.Device == "" {
		return openPair(ctx, f.options(via.Options{}))
	}
	if a, err = peer.Open(ctx, f.Device, f.options(via.Options{})); err != nil {
		return nil, nil, err
	}
	if b, err = peer.Open(ctx, f.Peer, f.options(via.Options{})); err != nil {
		return nil, nil, errors.Join(err, a.Close())
	}
	return a, b, nil
}

// openFor opens them for a check, which has them closed.
func (f *conformFlags) openFor(t conform.T) (a, b *via.NIC) {
	a, b, err := f.open(conform.Context(t))
	if err != nil {
		t.Fatal(err)
	}
	closeAfter(t, a, b)
	return a, b
}

// closeAfter closes NICs at the end of a check that may have closed them.
func closeAfter(t conform.T, nics ...*via.NIC) {
	t.Cleanup(func() {
		for _, nic := range nics {
			if err := nic.Close(); err != nil && !errors.Is(err, via.ErrClosed) {
				t.Error(err)
			}
		}
	})
}

// openFiltered opens them for a check, the second one with a filter on its wire.
func (f *conformFlags) openFiltered(t conform.T, filter conform.Filter) (a, b *via.NIC) {
	ctx, device, other := conform.Context(t), f.Device, f.Peer
	if device == "" {
		device, other = "emu:?wire=mem:conform-faults", "emu:?wire=mem:conform-faults"
	}
	if !strings.HasPrefix(other, emulator.Scheme+":") && !strings.HasPrefix(other, emulator.EthernetScheme+":") {
		t.Skip("faults are made at the wire of the peer, which has to be emulated: give an emu: or eth: device as --peer")
	}
	a, err := peer.Open(ctx, device, f.options(via.Options{}))
	if err != nil {
		t.Fatal(err)
	}
	closeAfter(t, a)
	d, err := emulator.OpenFiltered(ctx, other, filter)
	if err != nil {
		t.Fatal(err)
	}
	if b, err = peer.OpenDevice(ctx, d, f.options(via.Options{})); err != nil {
		t.Fatal(err)
	}
	closeAfter(t, b)
	return a, b
}

func (p *program) conform(ctx context.Context, f *conformFlags, _ []string) error {
	checks, err := f.choose()
	if err != nil {
		return err
	}
	if err := f.check(); err != nil {
		return err
	}
	r := conformReport{Device: f.Device, Peer: f.Peer, Checks: []conformCheck{}}
	if f.List {
		for _, c := range checks {
			r.Checks = append(r.Checks, conformCheck{Section: c.Section, Name: c.Name})
		}
		return p.Print(r, func(w io.Writer) error {
			for _, c := range checks {
				fmt.Fprintln(w, c)
			}
			return nil
		})
	}
	// What cannot be opened is no finding of the first check.
	a, b, err := f.open(ctx)
	if err != nil {
		return err
	}
	if err := errors.Join(a.Close(), b.Close()); err != nil {
		return &command.DeviceError{Err: err}
	}
	start := time.Now()
	unreached := p.runChecks(ctx, f, checks, &r)
	r.Seconds = time.Since(start).Seconds()
	if cause := context.Cause(ctx); cause != nil {
		r.Incomplete = cause.Error()
		return errors.Join(cause, p.printConform(&r))
	}
	if f.JUnit != "" {
		if err := writeJUnit(f.JUnit, f.Force.Force, &r); err != nil {
			return err
		}
	}
	err = p.printConform(&r)
	switch {
	case err != nil || r.Failed == 0:
		return err
	case unreached > 0:
		return fmt.Errorf("%d of %d checks failed; the last did not end, and %d were not run", r.Failed, len(checks), unreached)
	}
	return fmt.Errorf("%d of %d checks failed", r.Failed, len(checks))
}

// printConform prints the report: as JSON, or the sums below the lines of the checks.
func (p *program) printConform(r *conformReport) error {
	return p.Print(r, func(w io.Writer) error {
		_, err := fmt.Fprintf(w, "\n%d passed, %d failed, %d skipped in %.1f s\n", r.Passed, r.Failed, r.Skipped, r.Seconds)
		if r.Incomplete != "" && err == nil {
			_, err = fmt.Fprintf(w, "Incomplete, it ended early: %s\n", r.Incomplete)
		}
		return err
	})
}

// runChecks runs the checks and prints each that has ended, and returns how many it
// has not run because one does not end.
func (p *program) runChecks(ctx context.Context, f *conformFlags, checks []conform.Check, r *conformReport) (unreached int) {
	var meter *progress.Meter // where no lines show how far it is
	if p.JSON {
		meter = p.Steps("checking", len(checks))
		defer meter.Stop()
	}
	on, off := p.Emphasis()
	section := ""
	for i, c := range checks {
		o := c.Run(ctx, f.Limit, f.openFor)
		if ctx.Err() != nil {
			return 0
		}
		done := conformCheck{c.Section, c.Name, passed, o.Took.Seconds(), o.Messages}
		switch {
		case o.Failed:
			done.Result = failed
			r.Failed++
		case o.Skipped:
			done.Result = skipped
			r.Skipped++
		default:
			r.Passed++
		}
		r.Checks = append(r.Checks, done)
		if meter != nil {
			meter.Add(1)
		} else {
			if c.Section != section {
				section = c.Section
				fmt.Fprintf(p.Stdout, "%s%s%s\n", on, section, off)
			}
			fmt.Fprintf(p.Stdout, "  %-8s%-40s%8.2f s\n", done.Result, c.Name, done.Seconds)
			for _, m := range done.Messages {
				fmt.Fprintf(p.Stdout, "          %s\n", strings.ReplaceAll(m, "\n", "\n          "))
			}
		}
		if o.Stuck {
			return len(checks) - i - 1
		}
	}
	return 0
}

// writeJUnit writes a report as the XML that build servers read: a suite for each
// section.
func writeJUnit(path string, force bool, r *conformReport) error {
	all := junit.Testsuites{Name: "trapeze conform", Time: seconds(r.Seconds)}
	for _, section := range sections {
		suite := junit.Testsuite{Name: section, ID: len(all.Suites)}
		sum := 0.0
		for _, c := range r.Checks {
			if c.Section != section {
				continue
			}
			sum += c.Seconds
			test := junit.Testcase{Name: c.Name, Classname: "via." + section, Time: seconds(c.Seconds)}
			text := printable(strings.Join(c.Messages, "\n"))
			switch c.Result {
			case failed:
				test.Failure = &junit.Result{Message: "failed", Data: text}
			case skipped:
				test.Skipped = &junit.Result{Message: text}
			}
			suite.AddTestcase(test)
		}
		suite.Time = seconds(sum)
		if suite.Tests > 0 {
			all.AddSuite(suite)
		}
	}
	var b bytes.Buffer
	if err := all.WriteXML(&b); err != nil {
		return err
	}
	return outfile.Explain("--junit", outfile.Write(path, 0o644, force, b.Bytes()))
}

func seconds(s float64) string { return strconv.FormatFloat(s, 'f', 3, 64) }

// printable replaces characters that XML does not have.
func printable(s string) string {
	return strings.Map(func(r rune) rune {
		if r < ' ' && r != '\t' && r != '\n' {
			return '\ufffd'
		}
		return r
	}, s)
}
