// Package hosts reads the file in which names of VIA hosts stand, which is like
// hosts(5): an address, then names.
//
//	# comment
//	02:00:00:00:00:01       alpha alpha.example
//	02:00:00:00:00:02/echo  beta-echo
//
// An address is six bytes in hexadecimal and, after a slash, a discriminator as Go
// escapes text, without spaces. Names are of letters, digits, dots, hyphens and
// underscores, and as good in capitals. A name with several addresses has them in the
// order of the file, and an address with several names is called by the first.
package hosts

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net"
	"regexp"
	"strconv"
	"strings"

	"github.com/trapeze-nic/trapeze/driver"
	"github.com/trapeze-nic/trapeze/internal/datasheet"
)

// Table is the content of a file. Its zero value is empty.
type Table struct {
	byName map[string][]driver.Address
	byHost map[driver.Address]string
	order  []driver.Address
}

// Limits of a file.
const (
	MaxLine  = 4096    // bytes
	MaxHosts = 1 << 16 // lines with an address
	MaxName  = 253     // bytes, as in the DNS (RFC 1035, 2.3.4)
)

// ErrFormat is wrapped by the errors of Parse and ParseHost that are about the text.
var ErrFormat = errors.New("bad entry")

var goodName = regexp.MustCompile(`^[A-Za-z0-9_]([A-Za-z0-9._-]*[A-Za-z0-9_])?$`)

// GoodName says that a host can have a name.
func GoodName(name string) bool { return len(name) <= MaxName && goodName.MatchString(name) }

// Parse reads a file. Its errors say in which line what is wrong.
func Parse(r io.Reader) (*Table, error) {
	t := &Table{byName: map[string][]driver.Address{}, byHost: map[driver.Address]string{}}
	lines := bufio.NewScanner(r)
	lines.Buffer(make([]byte, 0, 512), MaxLine)
	for n := 1; lines.Scan(); n++ {
		text, _, _ := strings.Cut(lines.Text(), "#")
		if err := t.add(strings.Fields(text)); err != nil {
			return nil, fmt.Errorf("line %d: %w", n, err)
		}
	}
	if errors.Is(lines.Err(), bufio.ErrTooLong) {
		return nil, fmt.Errorf("%w: a line of more than %d bytes", ErrFormat, MaxLine)
	}
	return t, lines.Err()
}

func (t *Table) add(fields []string) error {
	if len(fields) == 0 {
		return nil
	}
	h, err := ParseHost(fields[0])
	switch {
	case err != nil:
		return err
	case len(fields) == 1:
		return fmt.Errorf("%w: address %s has no name", ErrFormat, fields[0])
	case len(t.order) == MaxHosts:
		return fmt.Errorf("%w: more than %d hosts", ErrFormat, MaxHosts)
	}
	for _, name := range fields[1:] {
		if !GoodName(name) {
			return fmt.Errorf("%w: name %q", ErrFormat, name)
		}
	}
	t.order = append(t.order, h)
	for _, name := range fields[1:] {
		key := strings.ToLower(name)
		t.byName[key] = append(t.byName[key], h)
	}
	if _, ok := t.byHost[h]; !ok {
		t.byHost[h] = fields[1]
	}
	return nil
}

// ParseHost reads an address. Its discriminator may have Go's quotes around it.
func ParseHost(s string) (h driver.Address, err error) {
	mac, rest, named := strings.Cut(s, "/")
	hw, err := net.ParseMAC(mac)
	if err != nil || len(hw) != len(h.MAC) || strings.Count(mac, ":") != len(h.MAC)-1 {
		return h, fmt.Errorf("%w: address %q, want six bytes such as 02:00:00:00:00:01", ErrFormat, mac)
	}
	copy(h.MAC[:], hw)
	if named {
		h.Discriminator, err = unquote(rest)
	}
	return h, err
}

// unquote reads a discriminator.
func unquote(s string) (string, error) {
	if !strings.HasPrefix(s, `"`) {
		s = `"` + s + `"`
	}
	d, err := strconv.Unquote(s)
	if err != nil || len(d) > datasheet.MaxDiscriminator {
		return "", fmt.Errorf("%w: discriminator %q, want at most %d bytes", ErrFormat, s, datasheet.MaxDiscriminator)
	}
	return d, nil
}

// Split takes an address with the name of a host apart, as in "alpha:echo" or "alpha/echo".
// host is empty if s has six bytes in its place, and name if nothing is behind it.
func Split(s string) (host, name string, err error) {
	first := s
	if i := strings.IndexAny(s, ":/"); i >= 0 {
		first = s[:i]
		if len(first) == 2 && strings.Count(s, ":") >= len(datasheet.MAC{})-1 {
			return "", "", nil
		}
		name, err = unquote(s[i+1:])
	}
	if err == nil && !GoodName(first) {
		err = fmt.Errorf("%w: address %q, want HOST:NAME, where HOST is a name or six bytes such as 02:00:00:00:00:01", ErrFormat, s)
	}
	return first, name, err
}

// ByName returns the hosts that have a name.
func (t *Table) ByName(name string) []driver.Address { return t.byName[strings.ToLower(name)] }

// ByHost returns the first name of a host: of the address with its discriminator, else of
// the one without. It is empty if there is none.
func (t *Table) ByHost(h driver.Address) string {
	if name, ok := t.byHost[h]; ok {
		return name
	}
	return t.byHost[driver.Address{MAC: h.MAC}]
}

// All returns all hosts in the order of the file.
func (t *Table) All() []driver.Address { return t.order }
