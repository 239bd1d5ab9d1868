package agent

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"net"
	"os"
	"os/user"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/pelletier/go-toml/v2"

	"github.com/trapeze-nic/trapeze/emulator"
	"github.com/trapeze-nic/trapeze/internal/agentlink"
	"github.com/trapeze-nic/trapeze/internal/command"
	"github.com/trapeze-nic/trapeze/internal/datasheet"
	"github.com/trapeze-nic/trapeze/internal/option"
	"github.com/trapeze-nic/trapeze/internal/speed"
	"github.com/trapeze-nic/trapeze/internal/unixsocket"
)

// ConfigError says what is wrong with the agent's file, and where.
type ConfigError struct {
	File  string
	Line  int    // of what is no TOML; else 0
	Field string // such as grant[0].rate
	Err   error
}

func (e *ConfigError) Error() string {
	at := e.File
	if e.Line > 0 {
		at += ":" + strconv.Itoa(e.Line)
	}
	if e.Field != "" {
		at += ": " + e.Field
	}
	return at + ": " + e.Err.Error()
}

// Unwrap returns Err.
func (e *ConfigError) Unwrap() error { return e.Err }

// Config is the agent's file.
type Config struct {
	Socket string `toml:"socket"`
	Mode   fs.FileMode
	GID    int    // of the socket; -1 for that of the process
	Claims string `toml:"claims"` // folder
	NICs   []NIC
	Grants []*Grant
}

// NIC is one that the agent owns.
type NIC struct {
	Name    string `json:"name"`
	Address string `json:"address" toml:"address"`
}

// Grant says who may have what. A client has to be one of each of users, groups and control groups
// that are stated.
type Grant struct {
	Name    string   `json:"name" toml:"name"`
	Who     string   `json:"who"` // as the file has it
	Users   []string `json:"-" toml:"users"`
	Groups  []string `json:"-" toml:"groups"`
	Cgroups []string `json:"-" toml:"cgroups"`
	UIDs    []uint32 `json:"-"` // nil: any, if Any is set
	GIDs    []uint32 `json:"-"`
	Any     bool     `json:"-"` // users is ["*"]
	NICs    []string `json:"nics" toml:"nics" help:"null for all"`
	// Clients bounds the NICs that one user has by this grant at a time.
	Clients int    `json:"clients" toml:"clients" range:"1..256" default:"16"`
	VIs     uint32 `json:"vis" toml:"vis" range:"1..16383" default:"64"`
	Memory  uint64 `json:"memory" help:"bytes; 0 for no limit"`
	Rate    int64  `json:"rate" help:"bytes per second through the agent; 0 for no limit"`
	Share   int    `json:"share" toml:"share" range:"1..1000" default:"1"` // weight of a client among those that send
	// Stations are those that a client may be: the first Bits bits count. None: any that is
	// locally administered.
	Stations []stations `json:"stations" toml:"stations" help:"null for locally administered ones"`
	Rings    bool       `json:"rings" toml:"rings" default:"true"`
	Channels bool       `json:"channels" toml:"channels" default:"true"`
	Frames   bool       `json:"frames" toml:"frames"`
	Direct   bool       `json:"direct" toml:"direct"`
	// Claimed is for programs with a claim only. Claim is the name of the claim that narrows the grant.
	Claimed bool   `json:"claimed" toml:"claimed"`
	Claim   string `json:"-"`
}

// stations are those whose first bits are those of a station.
type stations struct {
	mac  datasheet.MAC
	bits int
}

// String has the form of the file.
func (s stations) String() string               { return fmt.Sprintf("%v/%d", s.mac, s.bits) }
func (s stations) MarshalText() ([]byte, error) { return []byte(s.String()), nil }

// The bounds of a grant. A NIC has room for maxClients, each of which has 512 KiB in common with the agent.
const (
	maxFile    = 1 << 20
	maxClients = 256
	maxVIs     = 1<<14 - 1
)

var nicNames = regexp.MustCompile(`^[A-Za-z0-9_][A-Za-z0-9_.-]{0,31}$`)

// Load reads the agent's file. Errors are *ConfigError.
func Load(file string) (*Config, error) {
	text, err := os.ReadFile(file)
	if err == nil && len(text) > maxFile {
		err = fmt.Errorf("it has %d bytes, at most %d", len(text), maxFile)
	}
	if err != nil {
		return nil, &ConfigError{File: file, Err: err}
	}
	return Parse(file, text)
}

// Parse reads the text of the agent's file. Errors are *ConfigError.
func Parse(file string, text []byte) (*Config, error) {
	var keys map[string]any
	if err := toml.Unmarshal(text, &keys); err != nil {
		e := &ConfigError{File: file, Err: errors.New(strings.TrimPrefix(err.Error(), "toml: "))}
		if bad, ok := errors.AsType[*toml.DecodeError](err); ok {
			e.Line, _ = bad.Position()
		}
		return nil, e
	}
	r := &reader{file: file}
	c := r.config(keys)
	if r.err != nil {
		return nil, r.err
	}
	return c, nil
}

// reader keeps the first error.
type reader struct {
	file string
	err  *ConfigError
}

// bad notes what is wrong with a field.
func (r *reader) bad(field, format string, a ...any) {
	if r.err == nil {
		r.err = &ConfigError{File: r.file, Field: field, Err: fmt.Errorf(format, a...)}
	}
}

// decode reads a table, whose keys stand under others, into structs.
func (r *reader) decode(under string, table map[string]any, into ...any) {
	values := map[string][]string{}
	for _, key := range slices.Sorted(maps.Keys(table)) {
		list, several := table[key].([]any)
		if !several {
			list = []any{table[key]}
		}
		if len(list) == 0 {
			r.bad(under+key, "it is empty: leave it out, or name some")
		}
		for _, v := range list {
			switch v.(type) {
			case map[string]any, []any:
				r.bad(under+key, "such a value cannot stand there")
			}
			values[key] = append(values[key], fmt.Sprint(v))
		}
	}
	err := option.Decode("toml", values, into...)
	if unknown, ok := errors.AsType[*option.UnknownError](err); ok {
		r.bad(under+unknown.Key, "there is no such key; %s", unknown.Hint())
	} else if bad, ok := errors.AsType[*option.KeyError](err); ok {
		r.bad(under+bad.Key, "%q: %w", bad.Value, bad.Err)
	}
}

func (r *reader) config(keys map[string]any) *Config {
	nics, _ := keys["nic"].(map[string]any)
	grants, _ := keys["grant"].([]any)
	delete(keys, "nic")
	delete(keys, "grant")
	c := &Config{Socket: agentlink.DefaultSocket, GID: -1, Claims: agentlink.DefaultClaims}
	var socket struct {
		Mode  string `toml:"mode" default:"0660"`
		Group string `toml:"group"`
	}
	r.decode("", keys, c, &socket)
	if !filepath.IsAbs(c.Claims) {
		r.bad("claims", "%q is no absolute path", c.Claims)
	}
	if err := unixsocket.CheckPath(c.Socket); err != nil {
		r.bad("socket", "%w", err)
	}
	mode, err := strconv.ParseUint(socket.Mode, 8, 9)
	if err != nil {
		r.bad("mode", "%q is not octal permissions such as \"0660\"", socket.Mode)
	}
	c.Mode = fs.FileMode(mode)
	if socket.Group != "" {
		gid, err := groupID(socket.Group)
		if err != nil {
			r.bad("group", "%w", err)
		}
		c.GID = int(gid)
	}
	for _, name := range slices.Sorted(maps.Keys(nics)) {
		n := NIC{Name: name}
		table, _ := nics[name].(map[string]any)
		r.decode("nic."+name+".", table, &n)
		scheme, _, _ := strings.Cut(n.Address, ":")
		switch {
		case !nicNames.MatchString(name):
			r.bad("nic."+name+".address", "name %q: it has 1 to 32 letters, digits, dots, dashes and underscores", name)
		case scheme != "eth" && scheme != "emu":
			r.bad("nic."+name+".address", "%q is no port: give that of an Ethernet NIC, as eth:eth0 or eth:pci:0000:03:00.0, or a wire, as emu:?wire=udp://0.0.0.0:9000&peer=HOST:9000", n.Address)
		default:
			if err := emulator.CheckWire(n.Address); err != nil {
				r.bad("nic."+name+".address", "%w", &command.DeviceError{Err: err})
			}
		}
		c.NICs = append(c.NICs, n)
	}
	if len(c.NICs) == 0 {
		r.bad("nic", "there is none: add [nic.NAME] with address = \"eth:eth0\"")
	}
	for i := range grants {
		table, _ := grants[i].(map[string]any)
		c.Grants = append(c.Grants, r.grant(c, i, table))
	}
	if len(c.Grants) == 0 {
		r.bad("grant", "there is none, and no program may open a NIC: add [[grant]] with users")
	}
	return c
}

func (r *reader) grant(c *Config, i int, table map[string]any) *Grant {
	under := fmt.Sprintf("grant[%d].", i)
	bad := func(key, format string, a ...any) { r.bad(under+key, format, a...) }
	g := &Grant{Name: under[:len(under)-1]}
	var limits struct {
		Memory option.Bytes `toml:"memory" range:"4K.."`
		Rate   speed.Rate   `toml:"rate"`
	}
	r.decode(under, table, g, &limits)
	g.Memory, g.Rate = uint64(limits.Memory), int64(limits.Rate)
	for _, kind := range []struct {
		what  string
		names []string
	}{{"users ", g.Users}, {"groups ", g.Groups}, {"cgroups ", g.Cgroups}} {
		if len(kind.names) > 0 {
			g.Who += " and " + kind.what + strings.Join(kind.names, ", ")
		}
	}
	if g.Claimed {
		g.Who += ", with a claim"
	}
	g.Who = strings.TrimPrefix(g.Who, " and ")
	g.Any = slices.Equal(g.Users, []string{"*"})
	if len(g.Users)+len(g.Groups)+len(g.Cgroups) == 0 {
		bad("users", "it is missing, and so are groups and cgroups: name some, or users = [\"*\"] for all")
	}
	if !g.Any {
		g.UIDs = parseAll(g.Users, userID, func(err error) { bad("users", "%w", err) })
	}
	g.GIDs = parseAll(g.Groups, groupID, func(err error) { bad("groups", "%w", err) })
	for _, path := range g.Cgroups {
		if !strings.HasPrefix(path, "/") {
			bad("cgroups", "%q does not begin with a slash", path)
		}
	}
	for _, name := range g.NICs {
		if !slices.ContainsFunc(c.NICs, func(n NIC) bool { return n.Name == name }) {
			bad("nics", "%q is no NIC of this file", name)
		}
	}
	limited := g.Rate != 0 || !g.Rings || !g.Channels
	if _, given := table["direct"]; !given {
		g.Direct = !limited
	}
	if g.Direct && limited {
		bad("direct", "frames that do not pass the agent cannot be limited: leave out direct, or rate, rings and channels")
	}
	return g
}

// parseAll reads each text of a list.
func parseAll(texts []string, parse func(string) (uint32, error), bad func(error)) (list []uint32) {
	for _, text := range texts {
		v, err := parse(text)
		if err != nil {
			bad(err)
		}
		list = append(list, v)
	}
	return list
}

// userID finds a user by name or number.
func userID(name string) (uint32, error) {
	if n, err := strconv.ParseUint(name, 10, 32); err == nil {
		return uint32(n), nil
	}
	u, err := user.Lookup(name)
	if err != nil {
		return 0, fmt.Errorf("%q is no user of this host", name)
	}
	n, err := strconv.ParseUint(u.Uid, 10, 32)
	return uint32(n), err
}

// groupID finds a group by name or number.
func groupID(name string) (uint32, error) {
	if n, err := strconv.ParseUint(name, 10, 32); err == nil {
		return uint32(n), nil
	}
	g, err := user.LookupGroup(name)
	if err != nil {
		return 0, fmt.Errorf("%q is no group of this host", name)
	}
	n, err := strconv.ParseUint(g.Gid, 10, 32)
	return uint32(n), err
}

// UnmarshalText reads 02:00:00:00:00:01, or 02:00:00:00:01:00/40.
func (s *stations) UnmarshalText(text []byte) error {
	address, bits, given := strings.Cut(string(text), "/")
	s.bits = 8 * len(s.mac)
	mac, err := net.ParseMAC(address)
	if err == nil && len(mac) == len(s.mac) {
		s.mac = datasheet.MAC(mac)
		if given {
			s.bits, err = strconv.Atoi(bits)
		}
	}
	if err != nil || len(mac) != len(s.mac) || s.mac.IsMulticast() || s.bits < 8 || s.bits > 8*len(s.mac) {
		return fmt.Errorf("%q is not a station such as 02:00:00:00:00:01, or a range such as 02:00:00:00:01:00/40", text)
	}
	return nil
}
