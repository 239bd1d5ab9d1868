package command_test

import (
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/trapeze-nic/trapeze/internal/command"
)

type counts struct {
	Sent   uint64  `json:"sent"`
	Share  float64 `json:"share"`
	hidden struct{ x any }
}

type port struct {
	*counts
	Name  string   `json:"name"`
	Words []string `json:"words"`
	Level *int     `json:"level"`
	Left  any      `json:"-"`
}

type report struct {
	Ports    []port             `json:"ports"`
	None     *counts            `json:"none"`
	Nested   struct{ A counts } `json:"nested"`
	Deep     []struct{ In []counts }
	Counters map[string]uint64 `json:"counters"`
	At       netip.Addr        `json:"at"`
	Took     time.Duration     `json:"took"`
	Any      any               `json:"any"`
}

// TestText: each key that JSON has stands there, once, in lines and tables; what is empty is left out.
func TestText(t *testing.T) {
	r := report{Ports: []port{{&counts{1, 0.12345, struct{ x any }{}}, "a", []string{"x", "y"}, nil, 7}, {&counts{2, 3, struct{ x any }{}}, "b", nil, new(int), nil}},
		Counters: map[string]uint64{"zero": 0, "two": 2, "one": 1}, At: netip.MustParseAddr("192.0.2.1"), Took: time.Second, Any: counts{Sent: 9}}
	r.Deep = append(r.Deep, struct{ In []counts }{[]counts{{Sent: 4}}})
	want := `ports
  sent  share  name  words  level
  1     0.123  a     x,y    -
  2     3      b     -      0
nested
  A
    sent   0
    share  0
Deep 0
  In
    sent  share
    4     0
counters
  one  1
  two  2
at     192.0.2.1
took   1s
any
  sent   9
  share  0
`
	var b strings.Builder
	if err := command.Text(&b, r); err != nil || b.String() != want {
		t.Errorf("%v\n%s", err, b.String())
	}
	b.Reset()
	if err := command.Text(&b, []counts{{Sent: 5}}); err != nil || b.String() != "sent  share\n5     0\n" {
		t.Errorf("%v\n%s", err, b.String())
	}
}

// TestTags: fields are left out, counted or put beside the others as their tags say, and so is what JSON leaves out.
func TestTags(t *testing.T) {
	type side struct {
		Bytes int  `json:"bytes"`
		Lost  *int `json:"lost,omitempty"`
	}
	type row struct {
		Name   string   `json:"name"`
		Source string   `json:"source" text:"-"`
		None   string   `json:"none,omitempty"`
		Some   float64  `json:"some,omitempty"`
		All    []counts `json:"all" text:"count"`
		Side   side     `json:"side" text:"flat"`
	}
	rows := []row{{Name: "a", Source: "x", All: make([]counts, 3), Side: side{Bytes: 7}}, {Name: "b", Some: 0.012345}}
	var b strings.Builder
	if err := command.Text(&b, rows); err != nil || b.String() != "name  some     all  side.bytes\na     -        3    7\nb     0.01235  0    0\n" {
		t.Errorf("%v\n%s", err, b.String())
	}
	b.Reset()
	if err := command.Text(&b, rows[0]); err != nil || b.String() != "name        a\nall         3\nside.bytes  7\n" {
		t.Errorf("%v\n%s", err, b.String())
	}
	if got := command.Word(rows[0].Side.Lost) + command.Word(2.5); got != "-2.5" {
		t.Error(got)
	}
}
