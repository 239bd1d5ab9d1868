package emulator

import (
	"os"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/trapeze-nic/trapeze/ci/kit/must"
	"github.com/trapeze-nic/trapeze/ci/kit/should"
	"github.com/trapeze-nic/trapeze/engine"
	"github.com/trapeze-nic/trapeze/vfio"
)

// optionPage has the table of options.
const optionPage = "../docs/addresses.md"

// optionRow is a row of that table.
type optionRow struct{ names, values, standard []string }

var code = regexp.MustCompile("`([^`]+)`")

// words are what stands in backticks.
func words(s string) (all []string) {
	for _, m := range code.FindAllStringSubmatch(s, -1) {
		all = append(all, m[1])
	}
	return all
}

func readOptionTable(t *testing.T) (rows []optionRow) {
	b := must.Get(os.ReadFile(optionPage))(t)
	_, table, found := strings.Cut(string(b), "\n| Option | Values | Default |")
	must.Be(t, found, true, "docs/addresses.md has no table of options")
	for i, line := range strings.Split(table, "\n") {
		cells := strings.Split(line, "|")
		switch {
		case i < 2: // the rest of the header
		case len(cells) < 6:
			return rows
		default:
			rows = append(rows, optionRow{words(cells[1]), words(cells[2]), words(cells[3])})
		}
	}
	return rows
}

// TestOptionsOfPage: the page's table has the options that addresses can have, no
// others, and values that are accepted; its defaults change nothing.
func TestOptionsOfPage(t *testing.T) {
	places := strings.NewReplacer("NAME", "n", "HOST:PORT", "127.0.0.1:9", "PATH", "/x", "TEXT", "x")
	bases := []string{"emu:", "emu:?wire=udp://127.0.0.1:0", "emu:?wire=shm:/x", "emu:?wire=memif:/x&role=client", "emu:?wire=pci:0000:03:00.0", "emu:?wire=agent:"}
	// parse parses the address with the option, on the first wire that has it.
	parse := func(name, value string) (with, without *settings) {
		for _, base := range bases {
			a, err := vfio.ParseAddress(base)
			must.OK(t, err)
			if without, err = parseSettings(a); err != nil {
				t.Fatal(err)
			}
			a.Options.Set(name, value)
			if strings.HasPrefix(value, "memif:") {
				a.Options.Set("role", "client")
			}
			if with, err = parseSettings(a); err == nil {
				return with, without
			}
		}
		return nil, nil
	}
	var names []string
	for _, row := range readOptionTable(t) {
		names = append(names, row.names...)
		for _, name := range row.names {
			for _, v := range append(row.values, row.standard...) {
				if name == "key" {
					continue // it is a file that is read
				}
				if with, _ := parse(name, places.Replace(v)); with == nil {
					t.Errorf("%s=%s is refused", name, v)
				}
			}
			if len(row.standard) == 0 {
				continue
			}
			with, without := parse(name, row.standard[0])
			if with == nil {
				continue
			}
			for _, s := range []*settings{with, without} {
				o := s.device()
				s.name, s.General.Wire = "", ""
				s.General.VIs, s.General.CQs, s.General.Regions = o.Limits.Endpoints, o.Limits.CQs, o.Limits.Regions
				s.General.SRAM, s.General.Buffers = max(s.General.SRAM, defaultSRAM), max(s.General.Buffers, engine.DefaultBuffers)
			}
			if !reflect.DeepEqual(with, without) {
				t.Errorf("%s=%s is not the default: %+v, without it %+v", name, row.standard[0], with, without)
			}
		}
	}
	slices.Sort(names)
	should.Same(t, names, slices.Sorted(slices.Values(OptionNames())), "the page has the options, addresses")
}
