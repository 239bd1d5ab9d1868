package modelcmd

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/trapeze-nic/trapeze/internal/option"
	"github.com/trapeze-nic/trapeze/lab/internal/profile"
	"github.com/trapeze-nic/trapeze/pipeline"
)

func usage(flag, value, allowed string) error {
	return &option.Error{Option: flag, Value: value, Allowed: allowed}
}

// between refuses a number that is out of range; what follows the range in words.
func between[T int | float64](flag string, value, low, high T, what string) error {
	if value >= low && value <= high {
		return nil
	}
	plain := func(v T) string { return strconv.FormatFloat(float64(v), 'f', -1, 64) }
	return usage(flag, fmt.Sprint(value), strings.TrimSpace(plain(low)+" to "+plain(high)+" "+what))
}

// builtIn loads a platform of any kind. A name that is not there is a mistake in the command,
// a file that cannot be used is not.
func builtIn[T any](flag, name string, of profile.Library[T]) (T, error) {
	p, err := of.Load(name)
	if errors.Is(err, profile.ErrUnknown) && !strings.HasSuffix(name, ".toml") {
		err = usage(flag, name, strings.Join(of.Names(), ", ")+", or a file ending in .toml")
	}
	return p, err
}

func loadProfile(flag, name string) (*profile.Profile, error) {
	return builtIn(flag, name, profile.Hosts)
}

// loadProfiles loads some platforms, at least one.
func loadProfiles(flag string, names []string) ([]*profile.Profile, error) {
	if len(names) == 0 {
		return nil, usage(flag, "", strings.Join(profile.Hosts.Names(), ", ")+", or files ending in .toml")
	}
	profiles := make([]*profile.Profile, len(names))
	for i, name := range names {
		var err error
		if profiles[i], err = loadProfile(flag, name); err != nil {
			return nil, err
		}
	}
	return profiles, nil
}

// checkPolicies refuses names that are not those of policies; there must be one.
func checkPolicies(flag string, names ...string) error {
	if len(names) == 0 {
		return usage(flag, "", strings.Join(pipeline.PolicyNames(), ", "))
	}
	for _, name := range names {
		if !slices.Contains(pipeline.PolicyNames(), name) {
			return usage(flag, name, strings.Join(pipeline.PolicyNames(), ", "))
		}
	}
	return nil
}

// openInput opens a file to read. Errors name the option.
func openInput(flag, name string) (*os.File, error) {
	if name == "" {
		return nil, usage(flag, "", "a file to read")
	}
	f, err := os.Open(name)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", flag, err)
	}
	info, err := f.Stat()
	if err == nil && info.IsDir() {
		err = fmt.Errorf("%s %s: %w", flag, name, unix.EISDIR)
	}
	if err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return f, nil
}
