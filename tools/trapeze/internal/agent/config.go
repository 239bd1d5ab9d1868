package agent

import (
	"cmp"
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

	"github.com/trapeze-nic/trapeze/emulator"
	"github.com/trapeze-nic/trapeze/internal/agentlink"
	"github.com/trapeze-nic/trapeze/internal/command"
	"github.com/trapeze-nic/trapeze/internal/datasheet"
	"github.com/trapeze-nic/trapeze/internal/option"
	"github.com/trapeze-nic/trapeze/internal/speed"
	"github.com/trapeze-nic/trapeze/internal/strict"
	"github.com/trapeze-nic/trapeze/internal/unixsocket"
	"github.com/trapeze-nic/trapeze/tools/trapeze/internal/stricttoml"
)

// ConfigError says what is wrong with the agent's file, and where.
type ConfigError struct {
	File  string
	Line  int    // 0: not known
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
	Socket string
	Mode   fs.FileMode
	GID    int    // of the socket; -1 for that of the process
	Claims string // folder
	NICs   []NIC
	Grants []*Grant
}

// NIC is one that the agent owns.
type NIC struct {
	Name    string `json:"name"`
	Address string `json:"address"`
}

// Grant says who may have what. A client has to be one of each of users, groups and control groups
// that are stated.
type Grant struct {
	Name    string   `json:"name"`
	Who     string   `json:"who"` // as the file has it
	UIDs    []uint32 `json:"-"`   // nil: any, if Any is set
	GIDs    []uint32 `json:"-"`
	Cgroups []string `json:"-"`
	Any     bool     `json:"-"` // users is ["*"]
	NICs    []string `json:"nics" help:"null for all"`
	// Clients bounds the NICs that one user has by this grant at a time.
	Clients int    `json:"clients"`
	VIs     uint32 `json:"vis"`
	Memory  uint64 `json:"memory" help:"bytes; 0 for no limit"`
	Rate    int64  `json:"rate" help:"bytes per second through the agent; 0 for no limit"`
	Share   int    `json:"share"` // weight of a client among those that send
	// Stations are those that a client may be: the first Bits bits count. None: any that is
	// locally administered.
	Stations []stations `json:"stations" help:"null for locally administered ones"`
	Rings    bool       `json:"rings"`
	Channels bool       `json:"channels"`
	Frames   bool       `json:"frames"`
	Direct   bool       `json:"direct"`
	// Claimed is for programs with a claim only. Claim is the name of the claim that narrows the grant.
	Claimed bool   `json:"claimed"`
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

type rawConfig struct {
	Socket string            `toml:"socket"`
	Mode   string            `toml:"mode"`
	Group  string            `toml:"group"`
	Claims string            `toml:"claims"`
	NIC    map[string]rawNIC `toml:"nic"`
	Grant  []rawGrant        `toml:"grant"`
}

type rawNIC struct {
	Address string `toml:"address"`
}

type rawGrant struct {
	Name     string   `toml:"name"`
	Users    []string `toml:"users"`
	Groups   []string `toml:"groups"`
	Cgroups  []string `toml:"cgroups"`
	NICs     []string `toml:"nics"`
	Clients  *int     `toml:"clients"`
	VIs      *int     `toml:"vis"`
	Memory   *string  `toml:"memory"`
	Rate     *string  `toml:"rate"`
	Share    *int     `toml:"share"`
	Stations []string `toml:"stations"`
	Rings    *bool    `toml:"rings"`
	Channels *bool    `toml:"channels"`
	Frames   *bool    `toml:"frames"`
	Direct   *bool    `toml:"direct"`
	Claimed  bool     `toml:"claimed"`
}

// The defaults and bounds of a grant. A NIC has room for maxClients, each of which has 512 KiB in
// common with the agent.
const (
	maxFile        = 1 << 20
	maxClients     = 256
	defaultClients = 16
	defaultVIs     = 64
	maxVIs         = 1<<14 - 1
	maxShare       = 1000
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
	var raw rawConfig
	var bad *strict.Error
	if errors.As(stricttoml.Decode(text, &raw), &bad) {
		return nil, &ConfigError{file, bad.Line, bad.Key, bad.Err}
	}
	r := &reader{file: file, text: text}
	c := r.config(&raw)
	if r.err != nil {
		return nil, r.err
	}
	return c, nil
}

// reader keeps the first error.
type reader struct {
	file string
	text []byte
	err  *ConfigError
}

// bad notes what is wrong with a field of table number n of its kind.
func (r *reader) bad(table string, n int, key, format string, a ...any) {
	if r.err != nil {
		return
	}
	field := key
	if table == "grant" {
		field = fmt.Sprintf("grant[%d].%s", n, key)
	} else if table != "" {
		field = table + "." + key
	}
	r.err = &ConfigError{r.file, r.line(table, n, key), field, fmt.Errorf(format, a...)}
}

// line finds a key; that of its table if the key is not there, 0 if neither is.
func (r *reader) line(table string, n int, key string) (at int) {
	inside := table == ""
	for i, line := range strings.Split(string(r.text), "\n") {
		line = strings.TrimSpace(line)
		if strings.HasPrefix(line, "[") {
			inside = false
			if strings.Trim(line, "[] ") == table {
				if inside = n == 0; inside {
					at = i + 1
				}
				n--
			}
		}
		if name, _, ok := strings.Cut(line, "="); inside && ok && strings.Trim(name, ` "`) == key {
			return i + 1
		}
	}
	return at
}

func (r *reader) config(raw *rawConfig) *Config {
	c := &Config{Socket: raw.Socket, Mode: 0o660, GID: -1, Claims: cmp.Or(raw.Claims, agentlink.DefaultClaims)}
	if !filepath.IsAbs(c.Claims) {
		r.bad("", 0, "claims", "%q is no absolute path", c.Claims)
	}
	if c.Socket == "" {
		c.Socket = agentlink.DefaultSocket
	}
	if err := unixsocket.CheckPath(c.Socket); err != nil {
		r.bad("", 0, "socket", "%w", err)
	}
	if raw.Mode != "" {
		mode, err := strconv.ParseUint(raw.Mode, 8, 9)
		if err != nil {
			r.bad("", 0, "mode", "%q is not octal permissions such as \"0660\"", raw.Mode)
		}
		c.Mode = fs.FileMode(mode)
	}
	if raw.Group != "" {
		gid, err := groupID(raw.Group)
		if err != nil {
			r.bad("", 0, "group", "%w", err)
		}
		c.GID = int(gid)
	}
	for _, name := range slices.Sorted(maps.Keys(raw.NIC)) {
		n := NIC{name, raw.NIC[name].Address}
		scheme, _, _ := strings.Cut(n.Address, ":")
		switch {
		case !nicNames.MatchString(name):
			r.bad("nic."+name, 0, "address", "name %q: it has 1 to 32 letters, digits, dots, dashes and underscores", name)
		case scheme != "eth" && scheme != "emu":
			r.bad("nic."+name, 0, "address", "%q is no port: give that of an Ethernet NIC, as eth:eth0 or eth:pci:0000:03:00.0, or a wire, as emu:?wire=udp://0.0.0.0:9000&peer=HOST:9000", n.Address)
		default:
			if err := emulator.CheckWire(n.Address); err != nil {
				r.bad("nic."+name, 0, "address", "%w", &command.DeviceError{Err: err})
			}
		}
		c.NICs = append(c.NICs, n)
	}
	if len(c.NICs) == 0 {
		r.bad("", 0, "nic", "there is none: add [nic.NAME] with address = \"eth:eth0\"")
	}
	for i := range raw.Grant {
		c.Grants = append(c.Grants, r.grant(c, i, &raw.Grant[i]))
	}
	if len(c.Grants) == 0 {
		r.bad("", 0, "grant", "there is none, and no program may open a NIC: add [[grant]] with users")
	}
	return c
}

func (r *reader) grant(c *Config, i int, raw *rawGrant) *Grant {
	bad := func(key, format string, a ...any) { r.bad("grant", i, key, format, a...) }
	g := &Grant{Name: raw.Name, Cgroups: raw.Cgroups, NICs: raw.NICs, Clients: defaultClients, VIs: defaultVIs, Share: 1, Claimed: raw.Claimed}
	if g.Name == "" {
		g.Name = fmt.Sprintf("grant[%d]", i)
	}
	for _, kind := range []struct {
		what  string
		names []string
	}{{"users ", raw.Users}, {"groups ", raw.Groups}, {"cgroups ", raw.Cgroups}} {
		if len(kind.names) > 0 {
			g.Who += " and " + kind.what + strings.Join(kind.names, ", ")
		}
	}
	if g.Claimed {
		g.Who += ", with a claim"
	}
	g.Who = strings.TrimPrefix(g.Who, " and ")
	g.Any = slices.Equal(raw.Users, []string{"*"})
	if len(raw.Users)+len(raw.Groups)+len(raw.Cgroups) == 0 {
		bad("users", "it is missing, and so are groups and cgroups: name some, or users = [\"*\"] for all")
	}
	for _, name := range raw.Users {
		if g.Any {
			break
		}
		id, err := userID(name)
		if err != nil {
			bad("users", "%w", err)
		}
		g.UIDs = append(g.UIDs, id)
	}
	for _, name := range raw.Groups {
		id, err := groupID(name)
		if err != nil {
			bad("groups", "%w", err)
		}
		g.GIDs = append(g.GIDs, id)
	}
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
	number := func(key string, v *int, low, high, otherwise int) int {
		if v == nil {
			return otherwise
		}
		if *v < low || *v > high {
			bad(key, "%d is not in %d..%d", *v, low, high)
		}
		return *v
	}
	g.Clients = number("clients", raw.Clients, 1, maxClients, defaultClients)
	g.VIs = uint32(number("vis", raw.VIs, 1, maxVIs, defaultVIs))
	g.Share = number("share", raw.Share, 1, maxShare, 1)
	if raw.Memory != nil {
		n, err := option.ParseBytes(*raw.Memory)
		if err != nil || n < datasheet.PageSize {
			bad("memory", "%q is not a number of bytes such as 256M, %d at least", *raw.Memory, datasheet.PageSize)
		}
		g.Memory = uint64(n)
	}
	if raw.Rate != nil {
		n, err := speed.ParseRate(*raw.Rate)
		if err != nil {
			bad("rate", "%q: %w", *raw.Rate, err)
		}
		g.Rate = n
	}
	for _, text := range raw.Stations {
		s, err := parseStations(text)
		if err != nil {
			bad("stations", "%w", err)
		}
		g.Stations = append(g.Stations, s)
	}
	g.Rings, g.Channels, g.Frames = isOr(raw.Rings, true), isOr(raw.Channels, true), isOr(raw.Frames, false)
	limited := g.Rate != 0 || !g.Rings || !g.Channels
	g.Direct = isOr(raw.Direct, !limited)
	if g.Direct && limited {
		bad("direct", "frames that do not pass the agent cannot be limited: leave out direct, or rate, rings and channels")
	}
	return g
}

func isOr(v *bool, otherwise bool) bool {
	if v == nil {
		return otherwise
	}
	return *v
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

// parseStations reads 02:00:00:00:00:01, or 02:00:00:00:01:00/40.
func parseStations(text string) (s stations, err error) {
	address, bits, given := strings.Cut(text, "/")
	s.bits = 8 * len(s.mac)
	mac, err := net.ParseMAC(address)
	if err == nil && len(mac) == len(s.mac) {
		s.mac = datasheet.MAC(mac)
		if given {
			s.bits, err = strconv.Atoi(bits)
		}
	}
	if err != nil || len(mac) != len(s.mac) || s.mac.IsMulticast() || s.bits < 8 || s.bits > 8*len(s.mac) {
		return s, fmt.Errorf("%q is not a station such as 02:00:00:00:00:01, or a range such as 02:00:00:00:01:00/40", text)
	}
	return s, nil
}
