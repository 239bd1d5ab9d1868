package hosts_test

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/trapeze-nic/trapeze/ci/kit/must"
	"github.com/trapeze-nic/trapeze/ci/kit/should"
	"github.com/trapeze-nic/trapeze/driver"
	"github.com/trapeze-nic/trapeze/internal/datasheet"
	"github.com/trapeze-nic/trapeze/via/internal/hosts"
)

var one, two = datasheet.MAC{2, 0, 0, 0, 0, 1}, datasheet.MAC{2, 0, 0, 0, 0, 2}

func TestParse(t *testing.T) {
	table := must.Get(hosts.Parse(strings.NewReader(`
# who is where
02:00:00:00:00:01	alpha Alpha.Example # the first
02:00:00:00:00:02/echo beta both
02:00:00:00:00:02/\x00\"	odd both
02:00:00:00:00:01 alpha2
`)))(t)
	alpha, echo, odd := driver.Address{MAC: one}, driver.Address{MAC: two, Discriminator: "echo"}, driver.Address{MAC: two, Discriminator: "\x00\""}
	for name, want := range map[string][]driver.Address{
		"alpha": {alpha}, "ALPHA.example": {alpha}, "both": {echo, odd}, "Odd": {odd}, "gamma": nil, "": nil,
	} {
		should.Same(t, table.ByName(name), want, "%q", name)
	}
	for h, want := range map[driver.Address]string{
		alpha: "alpha", {MAC: one, Discriminator: "any"}: "alpha", echo: "beta", odd: "odd", {MAC: two}: "", {}: "",
	} {
		should.Be(t, table.ByHost(h), want, "%v", h)
	}
	if got := table.All(); len(got) != 4 || got[0] != alpha {
		t.Errorf("all: %v", got)
	}
}

func TestParseRefuses(t *testing.T) {
	for name, text := range map[string]string{
		"no address":            "alpha\n",
		"no name":               "02:00:00:00:00:01\n",
		"short address":         "02:00:00:00:01 alpha\n",
		"long address":          "02:00:00:00:00:01:02:03 alpha\n",
		"dots":                  "0200.0000.0001 alpha\n",
		"bad name":              "02:00:00:00:00:01 al/pha\n",
		"name that ends badly":  "02:00:00:00:00:01 alpha-\n",
		"long name":             "02:00:00:00:00:01 " + strings.Repeat("a", hosts.MaxName+1),
		"long discriminator":    "02:00:00:00:00:01/" + strings.Repeat("d", datasheet.MaxDiscriminator+1) + " alpha\n",
		"bad escape":            `02:00:00:00:00:01/\q alpha`,
		"quote":                 `02:00:00:00:00:01/" alpha`,
		"long line":             "#" + strings.Repeat("x", hosts.MaxLine),
		"too many":              strings.Repeat("02:00:00:00:00:01 a\n", hosts.MaxHosts+1),
		"good before, bad last": "02:00:00:00:00:01 alpha\n\nbeta",
	} {
		if table, err := hosts.Parse(strings.NewReader(text)); table != nil || !errors.Is(err, hosts.ErrFormat) {
			t.Errorf("%s: %v", name, err)
		}
	}
	_, err := hosts.Parse(strings.NewReader("02:00:00:00:00:01 alpha\n\nbeta"))
	if err == nil || !strings.Contains(err.Error(), "line 3") {
		t.Errorf("the line is not named: %v", err)
	}
}

// FuzzParse: whatever a file holds, what it says of names and of hosts agrees.
func FuzzParse(f *testing.F) {
	f.Add("02:00:00:00:00:01 alpha\n")
	f.Add("02:00:00:00:00:01/a\\x00b alpha # beta\n\n#\n")
	f.Add("02:00:00:00:00:01/ x\r\n02:00:00:00:00:02 X")
	f.Fuzz(func(t *testing.T, text string) {
		table, err := hosts.Parse(strings.NewReader(text))
		if err != nil {
			return
		}
		for _, h := range table.All() {
			name := table.ByHost(h)
			if name == "" || !slices.Contains(table.ByName(name), h) || len(h.Discriminator) > datasheet.MaxDiscriminator {
				t.Fatalf("%+v is called %q, which is %v", h, name, table.ByName(name))
			}
		}
	})
}
