package table_test

import (
	"strings"
	"testing"

	"github.com/trapeze-nic/trapeze/lab/internal/profile"
	"github.com/trapeze-nic/trapeze/lab/internal/table"
)

type inner struct {
	Rate   float64 `json:"rate_mb_s,omitempty"`
	hidden int
	Left   int `json:"-"`
}

type report struct {
	Name string `json:"name"`
	inner2
	Bus inner `json:"bus"`
}

type inner2 struct {
	Latency profile.Time `json:"latency_us"`
	Lost    *bool        `json:"lost"`
}

func TestWrite(t *testing.T) {
	var b strings.Builder
	all := []report{{"alcor", inner2{1_500_000, new(true)}, inner{132.126, 1, 2}}, {"p6", inner2{}, inner{}}}
	if err := table.Write(&b, all); err != nil {
		t.Fatal(err)
	}
	const want = "" +
		"   name  latency_us  lost  bus.rate_mb_s\n" +
		"  alcor       1.500  true         132.13\n" +
		"     p6       0.000     -           0.00\n"
	if b.String() != want {
		t.Errorf("%s\nwant\n%s", b.String(), want)
	}
	b.Reset()
	if err := table.Write(&b, []report{}); err != nil || strings.Count(b.String(), "\n") != 1 {
		t.Errorf("of none: %q, %v", b.String(), err)
	}
}
