package fwcmd

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
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

// openMap opens a map of a NIC by its name in an image, which must be the one that
// runs: s is the NIC's status.
func openMap(nic *driver.NIC, img *Image, name string, s load.Status) (*driver.ProgramMap, error) {
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

// operands are the operations, with how many arguments they take.
var operands = map[string]int{"list": 0, "get": 1, "set": 2, "delete": 1}

const operationHelp = "list, get KEY, set KEY VALUE, delete KEY"

// parseOperation reads what is to be done; nothing is list.
func parseOperation(args []string) (o operation, err error) {
	if len(args) == 0 {
		args = []string{"list"}
	}
	n, ok := operands[args[0]]
	if !ok || len(args) != 1+n {
		return o, &option.Error{Option: "operation", Value: args[0], Allowed: operationHelp}
	}
	o.name = args[0]
	for i, to := range []*[]byte{&o.key, &o.value}[:n] {
		if *to, err = parseHex(args[1+i]); err != nil {
			return o, err
		}
	}
	return o, nil
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
		return []Entry{}, m.Update(o.key, o.value, datasheet.MailboxAny)
	case "delete":
		return []Entry{}, m.Delete(o.key)
	}
	return readMap(m)
}

// readMap lists a map. Errors are those of driver.ProgramMap.Each.
func readMap(m *driver.ProgramMap) ([]Entry, error) {
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

// parseSetting reads MAP:KEY=VALUE, an entry that is to be set.
func parseSetting(s string) (name string, set operation, err error) {
	name, rest, ok := strings.Cut(s, ":")
	key, value, ok2 := strings.Cut(rest, "=")
	if !ok || !ok2 || name == "" {
		return "", set, &option.Error{Option: "--map", Value: s, Allowed: "MAP:KEY=VALUE"}
	}
	set, err = parseOperation([]string{"set", key, value})
	return name, set, err
}

// mapReport is the JSON output of map.
type mapReport struct {
	Device  string   `json:"device"`
	Image   string   `json:"image"`
	Map     shownMap `json:"map"`
	Entries []Entry  `json:"entries"`
}

func (x *commands) maps(ctx context.Context, f *deviceFlags, args []string) error {
	o, err := parseOperation(args[2:])
	if err != nil {
		return err
	}
	img, err := Open(args[0])
	if err != nil {
		return err
	}
	r := mapReport{Image: args[0]}
	if err := x.with(ctx, f, nil, func(_ context.Context, nic *driver.NIC) error {
		s, err := nic.ProgramStatus()
		if err != nil {
			return err
		}
		m, err := openMap(nic, img, args[1], s)
		if err != nil {
			return err
		}
		r.Device = nic.Address()
		if r.Map, err = showMap(m.Spec()); err != nil {
			return err
		}
		if r.Entries, err = o.do(m); err != nil {
			return fmt.Errorf("%s: %w", o.name, err)
		}
		return nil
	}); err != nil {
		return err
	}
	return x.Print(r, func(w io.Writer) error {
		for _, e := range r.Entries {
			if _, err := fmt.Fprintf(w, "%s %s\n", e.Key, e.Value); err != nil {
				return err
			}
		}
		return nil
	})
}
