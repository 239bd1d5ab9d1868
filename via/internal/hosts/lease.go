package hosts

import (
	"bufio"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/gofrs/flock"

	"github.com/trapeze-nic/trapeze/internal/outfile"
)

// Lease is for how long a line holds.
type Lease struct {
	Until time.Time // to the millisecond, by this host's clock
	Term  uint64    // larger than that of each earlier lease of the line
}

// ErrLost is the error of Renew for a lease that has run out or that a later one has replaced.
var ErrLost = errors.New("the lease of the name is lost")

// String is the comment that marks a line as leased.
func (l Lease) String() string { return fmt.Sprintf("leased %d %d", l.Until.UnixMilli(), l.Term) }

// parseLease reads a comment; false if it is an ordinary one.
func parseLease(comment string) (Lease, bool) {
	f := strings.Fields(comment)
	if len(f) != 3 || f[0] != "leased" {
		return Lease{}, false
	}
	until, err := strconv.ParseInt(f[1], 10, 64)
	term, err2 := strconv.ParseUint(f[2], 10, 64)
	return Lease{Until: time.UnixMilli(until), Term: term}, err == nil && err2 == nil
}

// Acquire leases the line that gives a host a name, in the file at path, which need not be there.
// An earlier lease of the same line ends.
func Acquire(ctx context.Context, path, entry string, length time.Duration) (l Lease, err error) {
	err = change(ctx, path, func(lines []string) ([]string, error) {
		// The clock keeps terms rising after a line has been removed.
		l = Lease{Until: time.Now().Add(length), Term: uint64(time.Now().UnixNano())}
		lines = slices.DeleteFunc(lines, func(line string) bool {
			old, ours := leaseOf(line, entry)
			if ours {
				l.Term = max(l.Term, old.Term+1)
			}
			return ours
		})
		return append(lines, entry+" # "+l.String()), nil
	})
	return l, err
}

// Renew makes a lease hold for another length. It fails with ErrLost.
func Renew(ctx context.Context, path, entry string, term uint64, length time.Duration) error {
	return change(ctx, path, func(lines []string) ([]string, error) {
		for i, line := range lines {
			if old, ours := leaseOf(line, entry); ours && old.Term == term {
				lines[i] = entry + " # " + Lease{Until: time.Now().Add(length), Term: term}.String()
				return lines, nil
			}
		}
		return nil, ErrLost
	})
}

// Release removes a line, unless a later lease has it.
func Release(ctx context.Context, path, entry string, term uint64) error {
	return change(ctx, path, func(lines []string) ([]string, error) {
		return slices.DeleteFunc(lines, func(line string) bool {
			old, ours := leaseOf(line, entry)
			return ours && old.Term == term
		}), nil
	})
}

// leaseOf is the lease of a line with an entry.
func leaseOf(line, entry string) (Lease, bool) {
	text, comment, _ := strings.Cut(line, "#")
	l, leased := parseLease(comment)
	return l, leased && strings.TrimSpace(text) == entry
}

// change replaces a file by one with other lines, while no other process changes it. Leases that
// have run out go.
func change(ctx context.Context, path string, edit func([]string) ([]string, error)) error {
	lock := flock.New(path+".lock", flock.SetFlag(os.O_CREATE|os.O_RDWR), flock.SetPermissions(0o644))
	if _, err := lock.TryLockContext(ctx, 2*time.Millisecond); err != nil {
		return cmp.Or(context.Cause(ctx), err)
	}
	defer lock.Close()
	text, err := os.ReadFile(path)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	var lines []string
	scan := bufio.NewScanner(strings.NewReader(string(text)))
	scan.Buffer(make([]byte, 0, 512), MaxLine)
	now := time.Now()
	for scan.Scan() {
		_, comment, _ := strings.Cut(scan.Text(), "#")
		if l, leased := parseLease(comment); !leased || now.Before(l.Until) {
			lines = append(lines, scan.Text())
		}
	}
	if err := scan.Err(); err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	if lines, err = edit(lines); err != nil {
		return err
	}
	return outfile.Replace(path, 0o644, []byte(strings.Join(append(lines, ""), "\n")))
}
