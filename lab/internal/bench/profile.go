package bench

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime/pprof"

	"github.com/trapeze-nic/trapeze/internal/outfile"
)

// profile writes where a worker's CPU time goes, in the form of "go tool pprof", to a
// file in a folder, until the function that it returns is called. It does nothing
// without a folder.
func (s *Spec) profile() (stop func() error, err error) {
	if s.ProfileFolder == "" {
		return func() error { return nil }, nil
	}
	name := fmt.Sprintf("%s-%dB-%s-%d.pprof", s.Test, s.Bytes, s.Role, os.Getpid())
	// The name has the process's number: a file of that name is of an earlier one.
	f, err := outfile.Create(filepath.Join(s.ProfileFolder, name), 0o666, true)
	if err != nil {
		return nil, err
	}
	if err := pprof.StartCPUProfile(f); err != nil {
		return nil, errors.Join(err, f.Discard())
	}
	return func() error {
		pprof.StopCPUProfile()
		return errors.Join(f.Commit(), f.Discard())
	}, nil
}
