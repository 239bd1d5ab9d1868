package fwcmd

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"strings"

	"github.com/trapeze-nic/trapeze/driver"
	"github.com/trapeze-nic/trapeze/firmware-loader/load"
	"github.com/trapeze-nic/trapeze/internal/datasheet"
	"github.com/trapeze-nic/trapeze/internal/option"
	"github.com/trapeze-nic/trapeze/internal/telemetry"
)

// ErrOtherImage: the NIC does not run the image whose maps were asked for.
var ErrOtherImage = errors.New("the NIC runs another image")

// Entry is an entry of a map.
type Entry = telemetry.MapEntry

// OpenMap opens a map of a NIC by its name in an image, which must be the one that
// runs: s is the NIC's status.
func OpenMap(nic *driver.NIC, img *Image, name string, s load.Status) (*driver.ProgramMap, error) {
	if s.Digest != img.spec.Digest {
		p := s.Describe()
		return nil, fmt.Errorf("%s: %w: %s, digest %s; the image has digest %x", img.file, ErrOtherImage, &p, p.Digest, img.spec.Digest)
	}
	var names []string
	for i, m := range img.spec.Maps {
		if m.Name == name {
			return nic.ProgramMap(img.spec.Maps, i)
		}
		names = append(names, m.Name)
	}
	if names == nil {
		return nil, fmt.Errorf("%s: %w: it has none", img.file, load.ErrMap)
	}
	return nil, &option.Error{Option: "map", Value: name, Allowed: strings.Join(names, ", ")}
}

// operation is something to do with a map.
type operation struct {
	name       string
	key, value []byte
}

// operations and how many arguments they take.
var operands = map[string]int{"list": 0, "get": 1, "set": 2, "delete": 1}

const operationHelp = "list, get KEY, set KEY VALUE, delete KEY"

// parseOperations reads what is to be done; nothing is list.
func parseOperations(args []string) (all []operation, err error) {
	if len(args) == 0 {
		return []operation{{name: "list"}}, nil
	}
	for len(args) > 0 {
		n, ok := operands[args[0]]
		if !ok || len(args) <= n {
			return nil, &option.Error{Option: "operation", Value: args[0], Allowed: operationHelp}
		}
		o := operation{name: args[0]}
		for i, to := range []*[]byte{&o.key, &o.value}[:n] {
			if *to, err = parseHex(args[1+i]); err != nil {
				return nil, err
			}
		}
		all, args = append(all, o), args[1+n:]
	}
	return all, nil
}

// parseHex reads bytes in the order of memory.
func parseHex(s string) ([]byte, error) {
	b, err := hex.DecodeString(strings.TrimPrefix(s, "0x"))
	if err != nil {
		return nil, &option.Error{Option: "bytes", Value: s, Allowed: "an even number of hexadecimal digits, in the order of memory"}
	}
	return b, nil
}

// do carries an operation out and returns the entries that it shows.
func (o operation) do(m *driver.ProgramMap) ([]Entry, error) {
	switch o.name {
	case "get":
		value := make([]byte, m.Spec().Value)
		if err := m.Lookup(o.key, value); err != nil {
			return nil, err
		}
		return []Entry{entry(o.key, value)}, nil
	case "set":
		return nil, m.Update(o.key, o.value, datasheet.MailboxAny)
	case "delete":
		return nil, m.Delete(o.key)
	}
	return ReadMap(m)
}

// ReadMap lists a map. Errors are those of driver.ProgramMap.Each.
func ReadMap(m *driver.ProgramMap) ([]Entry, error) {
	all := []Entry{}
	err := m.Each(func(key, value []byte) bool {
		all = append(all, entry(key, value))
		return true
	})
	return all, err
}

func entry(key, value []byte) Entry {
	return Entry{Key: fmt.Sprintf("%x", key), Value: fmt.Sprintf("%x", value)}
}

// Setting is an entry of a map that is to be set.
type Setting struct {
	Map string
	set operation
}

// ParseSetting reads MAP:KEY=VALUE. Errors wrap option.ErrBad.
func ParseSetting(s string) (Setting, error) {
	name, rest, ok := strings.Cut(s, ":")
	key, value, ok2 := strings.Cut(rest, "=")
	if !ok || !ok2 || name == "" {
		return Setting{}, &option.Error{Option: "--map", Value: s, Allowed: "MAP:KEY=VALUE"}
	}
	all, err := parseOperations([]string{"set", key, value})
	if err != nil {
		return Setting{}, err
	}
	return Setting{name, all[0]}, nil
}

// Apply sets the entry.
func (s Setting) Apply(m *driver.ProgramMap) error {
	_, err := s.set.do(m)
	return err
}

// mapReport is the JSON output of map.
type mapReport struct {
	Device  string      `json:"device"`
	Image   string      `json:"image"`
	Map     shownMap    `json:"map"`
	Results []mapResult `json:"results"`
}

type mapResult struct {
	Operation string  `json:"operation"`
	Entries   []Entry `json:"entries"`
}

func (x *commands) maps(ctx context.Context, f *deviceFlags, args []string) error {
	operations, err := parseOperations(args[2:])
	if err != nil {
		return err
	}
	img, err := Open(args[0])
	if err != nil {
		return err
	}
	r := mapReport{Image: args[0]}
	if err := x.with(ctx, f, nil, func(_ context.Context, nic *driver.NIC) error {
		r.Device = nic.Address()
		return r.fill(nic, img, args[1], operations)
	}); err != nil {
		return err
	}
	w := x.Stdout
	if x.JSON {
		return x.PrintJSON(r)
	}
	for _, result := range r.Results {
		if result.Operation == "list" && len(result.Entries) == 0 {
			x.Note("map %s is empty", r.Map.Name)
		}
		for _, e := range result.Entries {
			if _, err := fmt.Fprintf(w, "%s %s\n", e.Key, e.Value); err != nil {
				return err
			}
		}
	}
	return nil
}

// fill does the operations.
func (r *mapReport) fill(nic *driver.NIC, img *Image, name string, operations []operation) error {
	s, err := nic.ProgramStatus()
	if err != nil {
		return err
	}
	m, err := OpenMap(nic, img, name, s)
	if err != nil {
		return err
	}
	if r.Map, err = showMap(m.Spec()); err != nil {
		return err
	}
	for _, o := range operations {
		entries, err := o.do(m)
		if err != nil {
			return fmt.Errorf("%s: %w", o.name, err)
		}
		if entries == nil {
			entries = []Entry{}
		}
		r.Results = append(r.Results, mapResult{o.name, entries})
	}
	return nil
}
