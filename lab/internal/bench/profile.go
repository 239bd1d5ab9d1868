package bench

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime/pprof"
)

// profile writes where a worker's CPU time goes, in the form of "go tool pprof", to a
// file in a folder, until the function that it returns is called. It does nothing
// without a folder.
func (p *part) profile() (stop func() error, err error) {
	if p.Profiles == "" {
		return func() error { return nil }, nil
	}
	f, err := os.Create(filepath.Join(p.Profiles, fmt.Sprintf("%s-%dB-%s-%d.pprof", p.Test, p.Bytes, p.Role, os.Getpid())))
	if err != nil {
		return nil, err
	}
	if err := pprof.StartCPUProfile(f); err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return func() error {
		pprof.StopCPUProfile()
		return f.Close()
	}, nil
}
