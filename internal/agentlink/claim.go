package agentlink

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"

	"github.com/trapeze-nic/trapeze/internal/outfile"
	"github.com/trapeze-nic/trapeze/internal/strict"
)

// DefaultClaims is the folder in which the agent of a host looks for claims.
const DefaultClaims = "/run/trapeze-claims"

// Limits of claims: of their number, of a file in bytes, and of the control groups of one.
const (
	maxClaims       = 4096
	maxClaimName    = 100
	maxClaimFile    = 256 << 10
	maxClaimCgroups = 2048
)

// Claim narrows what programs in some control groups get of a NIC. It grants nothing: the agent's
// file does. Zero leaves a limit as it is in the file.
type Claim struct {
	NIC     string   `json:"nic"`
	Cgroups []string `json:"cgroups"` // of version 2, as /proc/PID/cgroup has them
	VIs     uint32   `json:"vis,omitempty"`
	Memory  uint64   `json:"memory,omitempty"` // bytes that may be registered
	Rate    int64    `json:"rate,omitempty"`   // bytes per second that are sent
}

// ErrClaim is wrapped by errors about a claim that cannot be used. They name the file and the field.
var ErrClaim = errors.New("bad claim")

// claimName matches the names of claims, of up to maxClaimName bytes. A bound in the pattern would be compiled as
// that many copies whenever a program starts.
var claimName = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9-]*$`)

func isClaimName(name string) bool { return len(name) <= maxClaimName && claimName.MatchString(name) }

func (c *Claim) check() error {
	bad := func(field, format string, a ...any) error {
		return fmt.Errorf("%w: %s: %s", ErrClaim, field, fmt.Sprintf(format, a...))
	}
	switch {
	case c.NIC == "":
		return bad("nic", "it is missing")
	case len(c.Cgroups) > maxClaimCgroups:
		return bad("cgroups", "there are %d, at most %d", len(c.Cgroups), maxClaimCgroups)
	case c.Rate < 0:
		return bad("rate", "%d is less than nothing", c.Rate)
	}
	for _, path := range c.Cgroups {
		// The root has all programs of the host.
		if !strings.HasPrefix(path, "/") || path == "/" || filepath.Clean(path) != path {
			return bad("cgroups", "%.300q is no path of a control group", path)
		}
	}
	return nil
}

// ParseClaim reads a claim. Its errors wrap ErrClaim.
func ParseClaim(text []byte) (c Claim, err error) {
	if len(text) > maxClaimFile {
		return c, fmt.Errorf("%w: it has %d bytes, at most %d", ErrClaim, len(text), maxClaimFile)
	}
	if err := strict.JSON(text, &c); err != nil {
		return Claim{}, fmt.Errorf("%w: %w", ErrClaim, err)
	}
	if err := c.check(); err != nil {
		return Claim{}, err
	}
	return c, nil
}

// ReadClaims reads the claims of a folder, by their names. A folder that is not there has none. With
// an error come those that could be read; a folder that others may write to has none of those.
func ReadClaims(folder string) (claims map[string]Claim, err error) {
	// The folder is opened once: another may take its place between the check and the reading.
	root, err := os.OpenRoot(folder)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil, nil
	case err != nil:
		return nil, err
	}
	defer root.Close()
	info, err := root.Stat(".")
	if err != nil {
		return nil, err
	}
	if st := info.Sys().(*syscall.Stat_t); st.Mode&0o022 != 0 || st.Uid != 0 && int(st.Uid) != os.Geteuid() {
		return nil, fmt.Errorf("%w: folder %s: others than root and this user may write to it", ErrClaim, folder)
	}
	entries, err := fs.ReadDir(root.FS(), ".")
	if err != nil {
		return nil, err
	}
	claims = map[string]Claim{}
	for _, e := range entries {
		name, ours := strings.CutSuffix(e.Name(), ".json")
		if !ours || !isClaimName(name) {
			continue
		}
		if len(claims) == maxClaims {
			return claims, errors.Join(err, fmt.Errorf("%w: folder %s: more than %d claims", ErrClaim, folder, maxClaims))
		}
		text, e := root.ReadFile(name + ".json")
		if errors.Is(e, fs.ErrNotExist) {
			continue // it was withdrawn just now
		}
		c := Claim{}
		if e == nil {
			c, e = ParseClaim(text)
		}
		if e != nil {
			err = errors.Join(err, fmt.Errorf("%s: %w", claimPath(folder, name), e))
			continue
		}
		claims[name] = c
	}
	return claims, err
}

func claimPath(folder, name string) string { return filepath.Join(folder, name+".json") }

// WriteClaim writes a claim into a folder, which it makes, in the place of one of that name. Its
// errors wrap ErrClaim if the claim is bad.
func WriteClaim(folder, name string, c Claim) error {
	if !isClaimName(name) {
		return fmt.Errorf("%w: name %.200q", ErrClaim, name)
	}
	if err := c.check(); err != nil {
		return err
	}
	text, err := json.Marshal(c)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(folder, 0o755); err != nil {
		return err
	}
	return outfile.Replace(claimPath(folder, name), 0o600, append(text, '\n'))
}

// WithdrawClaim removes a claim, which need not be there.
func WithdrawClaim(folder, name string) error {
	if err := os.Remove(claimPath(folder, name)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}
