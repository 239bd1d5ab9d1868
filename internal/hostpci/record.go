package hostpci

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"regexp"
	"time"

	"github.com/gofrs/flock"

	"github.com/trapeze-nic/trapeze/internal/outfile"
)

// recordDir keeps what functions were bound to before they were given to VFIO.
// It lies in memory: bindings do not outlive a restart either.
const recordDir = "run/trapeze/pci"

// record names the driver that a function was bound to.
type record struct {
	Driver   string `json:"driver"`
	Override string `json:"override"`
}

// driverName matches the name of a driver: its name becomes part of a path.
var driverName = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9_.-]*$`)

func recordFile(address string) string { return path.Join(recordDir, address+".json") }

// remember writes down what a function is bound to.
func remember(r Root, f Function) error {
	text, err := json.Marshal(record{f.Driver, f.Override})
	if err != nil {
		return err
	}
	return outfile.Replace(r.Path(recordFile(f.Address)), 0o644, append(text, '\n'))
}

// recall reads what a function was bound to; nil if that is not known.
func recall(r Root, address string) (*record, error) {
	f, err := os.Open(r.Path(recordFile(address)))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	defer f.Close()
	was := &record{}
	if err := json.NewDecoder(io.LimitReader(f, 4096)).Decode(was); err != nil {
		return nil, fmt.Errorf("%s: %w", recordFile(address), err)
	}
	for _, name := range []string{was.Driver, was.Override} {
		if name != "" && !driverName.MatchString(name) {
			return nil, fmt.Errorf("%s: %q is no name of a driver", recordFile(address), name)
		}
	}
	return was, nil
}

func forget(r Root, address string) error {
	if err := os.Remove(r.Path(recordFile(address))); !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

// lock keeps other processes from binding and unbinding until the function that
// it returns is called.
func lock(ctx context.Context, r Root, timeout time.Duration) (func() error, error) {
	if err := os.MkdirAll(r.Path(recordDir), 0o755); err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeoutCause(ctx, timeout, ErrLocked)
	defer cancel()
	l := flock.New(r.Path(path.Join(recordDir, "lock")), flock.SetFlag(os.O_RDWR|os.O_CREATE), flock.SetPermissions(0o644))
	if _, err := l.TryLockContext(ctx, 2*time.Millisecond); err != nil {
		return nil, cmp.Or(context.Cause(ctx), err)
	}
	return l.Close, nil
}
