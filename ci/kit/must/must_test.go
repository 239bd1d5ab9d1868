package must_test

import (
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"

	"github.com/trapeze-nic/trapeze/ci/kit/must"
	"github.com/trapeze-nic/trapeze/ci/kit/should"
)

// recorder takes what a test says. A Fatal does not end it.
type recorder struct{ ended, failed string }

func (r *recorder) Helper()          {}
func (r *recorder) Error(say ...any) { r.failed = strings.TrimSpace(fmt.Sprintln(say...)) }
func (r *recorder) Fatal(say ...any) { r.ended = strings.TrimSpace(fmt.Sprintln(say...)) }

// TestClaims makes claims that hold, of which a test hears nothing, and such that do not.
func TestClaims(t *testing.T) {
	wrapped := fmt.Errorf("read: %w", io.EOF)
	for _, c := range []struct {
		does        func(r *recorder, wrong bool)
		ended, said string // for a wrong claim
	}{
		{func(r *recorder, wrong bool) { must.Hold(r, !wrong, "%d is odd", 4) }, "4 is odd", ""},
		{func(r *recorder, wrong bool) { should.Hold(r, !wrong, "%d is odd", 4) }, "", "4 is odd"},
		{func(r *recorder, wrong bool) { must.OK(r, failing(wrong)) }, "EOF", ""},
		{func(r *recorder, wrong bool) { must.OK(r, failing(wrong), "round %d", 3) }, "round 3: EOF", ""},
		{func(r *recorder, wrong bool) { should.Say(r, io.EOF, map[bool]string{false: "EO", true: "OE"}[wrong]) }, "",
			"EOF, want \"OE\""},
		{func(r *recorder, wrong bool) {
			should.Explain(1, map[bool]error{false: io.EOF}[wrong])(r, "EOF", "read")
		}, "",
			"read: <nil>, want \"EOF\""},
		{func(r *recorder, wrong bool) { must.Get(1, failing(wrong))(r) }, "EOF", ""},
		{func(r *recorder, wrong bool) { must.Two(1, 2, failing(wrong))(r) }, "EOF", ""},
		{func(r *recorder, wrong bool) { must.Be(r, wrong, false, "round %d", 3) }, "round 3: true, want false", ""},
		{func(r *recorder, wrong bool) { must.Give(1, failing(wrong))(r, 1) }, "1, want 1 EOF", ""},
		{func(r *recorder, wrong bool) { must.Give(wrong, nil)(r, false) }, "true, want false <nil>", ""},
		{func(r *recorder, wrong bool) { must.Same(r, []bool{true, wrong}, []bool{true, false}) },
			"[true], want [false]: from element 1 on, of 2 and 2", ""},
		{func(r *recorder, wrong bool) { should.OK(r, failing(wrong)) }, "", "EOF"},
		{func(r *recorder, wrong bool) { should.Be(r, wrong, false) }, "", "true, want false"},
		{func(r *recorder, wrong bool) { should.Give(1, failing(wrong))(r, 1) }, "", "1, want 1 EOF"},
		{func(r *recorder, wrong bool) { should.Give(wrong, nil)(r, false, "a") }, "", "a: true, want false <nil>"},
		{func(r *recorder, wrong bool) {
			should.Same(r, make([]byte, 20), make([]byte, 20+len(fmt.Sprint(wrong))-5))
		}, "",
			"[0], want []: from element 19 on, of 20 and 19"},
		{func(r *recorder, wrong bool) {
			should.Contain(r, "text", map[bool]string{false: "ex", true: "none"}[wrong])
		}, "",
			"\"none\" is not in\ntext"},
		{func(r *recorder, wrong bool) {
			should.Fail(r, wrapped, map[bool]error{false: io.EOF, true: io.ErrNoProgress}[wrong])
		}, "",
			"read: EOF, want multiple Read calls return no data or error"},
		{func(r *recorder, wrong bool) {
			should.Refuse(1, wrapped)(r, map[bool]error{false: io.EOF, true: errors.ErrUnsupported}[wrong])
		}, "",
			"read: EOF, want unsupported operation"},
	} {
		var r recorder
		if c.does(&r, false); r != (recorder{}) {
			t.Errorf("%+v for a claim that holds", r)
		}
		if c.does(&r, true); r != (recorder{c.ended, c.said}) {
			t.Errorf("%+v, want %q, %q", r, c.ended, c.said)
		}
	}
}

func failing(wrong bool) error {
	if wrong {
		return io.EOF
	}
	return nil
}
