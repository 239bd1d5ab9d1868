package report_test

import (
	"bytes"
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/trapeze-nic/trapeze/internal/option"
	"github.com/trapeze-nic/trapeze/lab/internal/profile"
	"github.com/trapeze-nic/trapeze/lab/internal/published"
	"github.com/trapeze-nic/trapeze/lab/internal/report"
	"github.com/trapeze-nic/trapeze/pipeline"
)

func TestPageIsCompleteAndRepeatable(t *testing.T) {
	p, err := profile.Hosts.Load("p6-natoma")
	if err != nil {
		t.Fatal(err)
	}
	rows, err := published.Read(strings.NewReader(published.Columns+"\nr1,s,q,c,59,MB/s,,stream bandwidth,alcor,store-and-forward,8192,,,,\n"+
		"r2,s,quantity,,50,MB/s,>,stream bandwidth,alcor,store-and-forward,8192,,,,\n"), "r.csv")
	if err != nil {
		t.Fatal(err)
	}
	steps := 0
	o := report.PageOptions{Profiles: []*profile.Profile{p}, Published: rows, Progress: func() error { steps++; return nil }}
	page, err := report.Page(context.Background(), o)
	if err != nil {
		t.Fatal(err)
	}
	if n := bytes.Count(page, []byte("<svg ")); n != report.PageSteps(o) || n != steps {
		t.Errorf("%d pictures, %d steps, %d announced", n, steps, report.PageSteps(o))
	}
	for _, want := range []string{"<td>r1</td>", `<td>quantity</td><td class="n">&gt;50</td>`} {
		if !bytes.Contains(page, []byte(want)) {
			t.Errorf("the page has no %s", want)
		}
	}
	again, err := report.Page(context.Background(), o)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(page, again) {
		t.Error("two pages differ")
	}
	stop := errors.New("stop")
	o.Progress = func() error { return stop }
	if _, err := report.Page(context.Background(), o); !errors.Is(err, stop) {
		t.Errorf("progress failed, the page gives %v", err)
	}
}

func TestBadCases(t *testing.T) {
	p, err := profile.Hosts.Load("alcor")
	if err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		c    report.Case
		want error
		says string
	}{
		"threshold above the frame": {report.Case{Profile: p, Policy: "amp", Payload: 100, Count: 1, MinPulseSend: 101}, option.ErrBad, "--minpulse-send"},
		"negative threshold":        {report.Case{Profile: p, Policy: "amp", Payload: 100, Count: 1, MinPulseReceive: -1}, option.ErrBad, "--minpulse-recv"},
		"zero-length frame":         {report.Case{Profile: p, Policy: "amp", Count: 1}, option.ErrBad, "--payload"},
		"no frames":                 {report.Case{Profile: p, Policy: "amp", Payload: 100}, option.ErrBad, "count"},
		"unknown policy":            {report.Case{Profile: p, Policy: "best", Payload: 100, Count: 1}, pipeline.ErrUnknownPolicy, "store-and-forward"},
		"optimal of a huge frame":   {report.Case{Profile: p, Policy: "optimal", Payload: 1 << 22, Count: 1}, option.ErrBad, "1048576"},
	} {
		if _, err := c.c.Measure(context.Background()); !errors.Is(err, c.want) || !strings.Contains(err.Error(), c.says) {
			t.Errorf("%s: %v", name, err)
		}
	}
}
