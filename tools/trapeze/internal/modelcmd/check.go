package modelcmd

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/trapeze-nic/trapeze/pipeline"
	"github.com/trapeze-nic/trapeze/pipeline/profile"
)

// ErrUsage: a flag or argument cannot be used; scripts tell it from a failure by
// the exit code that main gives it.
var ErrUsage = errors.New("bad option")

// UsageError names an option and its range.
type UsageError struct{ Option, Value, Allowed string }

func (e *UsageError) Error() string {
	return fmt.Sprintf("%s %s: %v (allowed: %s)", e.Option, e.Value, ErrUsage, e.Allowed)
}

// Unwrap returns ErrUsage.
func (e *UsageError) Unwrap() error { return ErrUsage }

func usage(option, value, allowed string) error {
	if value == "" {
		value = `""`
	}
	return &UsageError{Option: option, Value: value, Allowed: allowed}
}

// between refuses a number that is out of range; what follows the range in words.
func between[T int | float64](option string, value, low, high T, what string) error {
	if value >= low && value <= high {
		return nil
	}
	plain := func(v T) string { return strconv.FormatFloat(float64(v), 'f', -1, 64) }
	return usage(option, fmt.Sprint(value), strings.TrimSpace(plain(low)+" to "+plain(high)+" "+what))
}

// loadProfile loads a platform. A name that is not there is a mistake in the command,
// a file that cannot be used is not.
func loadProfile(option, name string) (*profile.Profile, error) {
	p, err := profile.Load(name)
	if errors.Is(err, profile.ErrUnknown) && !strings.HasSuffix(name, ".toml") {
		return nil, usage(option, name, strings.Join(profile.Names(), ", ")+", or a file ending in .toml")
	}
	return p, err
}

// loadProfiles loads some platforms, at least one.
func loadProfiles(option string, names []string) ([]*profile.Profile, error) {
	if len(names) == 0 {
		return nil, usage(option, "", strings.Join(profile.Names(), ", ")+", or files ending in .toml")
	}
	profiles := make([]*profile.Profile, len(names))
	for i, name := range names {
		var err error
		if profiles[i], err = loadProfile(option, name); err != nil {
			return nil, err
		}
	}
	return profiles, nil
}

// checkPolicies refuses names that are not those of policies; there must be one.
func checkPolicies(option string, names ...string) error {
	if len(names) == 0 {
		return usage(option, "", strings.Join(pipeline.PolicyNames(), ", "))
	}
	for _, name := range names {
		if !slices.Contains(pipeline.PolicyNames(), name) {
			return usage(option, name, strings.Join(pipeline.PolicyNames(), ", "))
		}
	}
	return nil
}

// checkOutput refuses a file that could not be written, before anything is computed.
func checkOutput(option, name string) error {
	if name == "" {
		return usage(option, "", "a file to write")
	}
	if info, err := os.Stat(name); err == nil && info.IsDir() {
		return fmt.Errorf("%s %s: %w", option, name, errDirectory)
	}
	if info, err := os.Stat(filepath.Dir(name)); err != nil {
		return fmt.Errorf("%s %s: %w", option, name, err)
	} else if !info.IsDir() {
		return fmt.Errorf("%s %s: %s %w", option, name, filepath.Dir(name), errNoDirectory)
	}
	return nil
}

var (
	errDirectory   = errors.New("is a directory")
	errNoDirectory = errors.New("is not a directory")
)

// openInput opens a file to read. Errors name the option.
func openInput(option, name string) (*os.File, error) {
	if name == "" {
		return nil, usage(option, "", "a file to read")
	}
	f, err := os.Open(name)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", option, err)
	}
	info, err := f.Stat()
	if err == nil && info.IsDir() {
		err = fmt.Errorf("%s %s: %w", option, name, errDirectory)
	}
	if err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return f, nil
}
