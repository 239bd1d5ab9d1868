package telemetry

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"

	"github.com/trapeze-nic/trapeze/internal/runtimedir"
)

// Where sockets are, by DPDK's rules (lib/eal/linux/eal.c, eal_create_runtime_dir, and
// lib/telemetry/telemetry.c): RUNTIME/dpdk/PREFIX/dpdk_telemetry.v2, and with :1, :2 and so on
// behind it for further processes. But where DPDK has /tmp, which belongs to all users, RUNTIME is a
// folder there.
const (
	folderName    = "dpdk"
	socketName    = "dpdk_telemetry.v2"
	defaultPrefix = "trapeze"
	// Variable is that of the environment which says with which prefix a process shows its
	// NICs, or "off".
	Variable = "TRAPEZE_TELEMETRY"
)

// prefixes are the names of folders that can be a prefix.
var prefixes = regexp.MustCompile(`^[A-Za-z0-9_][A-Za-z0-9_.-]{0,31}$`)

// Prefix is the prefix that this process is to use, and whether it is to serve at all. A prefix
// that cannot be is off.
func Prefix() (prefix string, on bool) {
	switch p := os.Getenv(Variable); {
	case p == "":
		return defaultPrefix, true
	case p == "off":
		return "", false
	default:
		return p, prefixes.MatchString(p)
	}
}

// numbered is the path of the socket of a process of a prefix, counted from 0.
func numbered(folder string, i int) string {
	path := filepath.Join(folder, socketName)
	if i > 0 {
		path += ":" + strconv.Itoa(i)
	}
	return path
}

// Find returns the paths of the telemetry sockets of this host that this process can see, in
// order. Programs of others have some, and programs that were killed leave theirs.
func Find() []string {
	folders := []string{"/run", "/var/run", runtimedir.Root(), os.Getenv("XDG_RUNTIME_DIR"), "/tmp", "/tmp/trapeze-*", "/run/user/*"}
	var found []string
	seen := map[string]bool{}
	for _, folder := range folders {
		if folder == "" {
			continue
		}
		// The pattern is well formed: bad ones are the only error of Glob.
		list, _ := filepath.Glob(filepath.Join(folder, folderName, "*", socketName+"*"))
		for _, path := range list {
			real, err := filepath.EvalSymlinks(path)
			if err != nil || seen[real] {
				continue
			}
			seen[real] = true
			found = append(found, real)
		}
	}
	slices.Sort(found)
	return found
}

// secrets are options of an address that others must not read.
var secrets = regexp.MustCompile(`([?&]secret=)[^&]*`)

// Public is an address without the secrets in it.
func Public(address string) string { return secrets.ReplaceAllString(address, "${1}***") }
