package sealed_test

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/trapeze-nic/trapeze/ci/kit/must"
	"github.com/trapeze-nic/trapeze/wire/internal/ends"
	"github.com/trapeze-nic/trapeze/wire/internal/sealed"
)

func TestReadKey(t *testing.T) {
	const good = "000102030405060708090a0b0c0d0e0f101112131415161718191A1B1C1D1E1F"
	dir := t.TempDir()
	pipe := filepath.Join(dir, "pipe")
	must.OK(t, syscall.Mkfifo(pipe, 0o600))
	for name, tt := range map[string]struct {
		text string
		mode fs.FileMode
		want error
	}{
		"good":        {good, 0o600, nil},
		"newline":     {good + "\n", 0o400, nil},
		"blanks":      {" \t" + good + "\r\n\n", 0o600, nil},
		"empty":       {"", 0o600, sealed.ErrKeyFormat},
		"short":       {good[2:], 0o600, sealed.ErrKeyFormat},
		"long":        {good + "00", 0o600, sealed.ErrKeyFormat},
		"no digits":   {"secret" + good[6:], 0o600, sealed.ErrKeyFormat},
		"two lines":   {good[:32] + "\n" + good[32:], 0o600, sealed.ErrKeyFormat},
		"large":       {strings.Repeat("0", 1<<20), 0o600, sealed.ErrKeyFormat},
		"for a group": {good, 0o640, sealed.ErrKeyMode},
		"for all":     {good, 0o604, sealed.ErrKeyMode},
		"writable":    {good, 0o622, sealed.ErrKeyMode},
	} {
		t.Run(name, func(t *testing.T) {
			file := filepath.Join(dir, name)
			must.OK(t, errors.Join(os.WriteFile(file, []byte(tt.text), 0o600), os.Chmod(file, tt.mode)))
			checkKey(t, file, tt.want)
		})
	}
	checkKey(t, dir, sealed.ErrKeyFile)
	checkKey(t, pipe, sealed.ErrKeyFile)
	checkKey(t, filepath.Join(dir, "none"), fs.ErrNotExist)
}

func checkKey(t *testing.T, file string, want error) {
	t.Helper()
	k, err := sealed.ReadKey(file)
	if want == nil {
		must.Hold(t, err == nil && k != nil, "%s: %v", file, err)
		if s := fmt.Sprintf("%v %+v %#v %s %x", k, k, k, k, k); strings.Contains(s, "1e") || strings.Contains(s, "30") {
			t.Errorf("a key prints as %q", s)
		}
		return
	}
	var e *ends.Error
	if k != nil || !errors.As(err, &e) || e.Device != file || !errors.Is(err, want) || !strings.Contains(err.Error(), file) {
		t.Errorf("%s: %v, error %v, want %v", file, k, err, want)
	}
	if err != nil && strings.Contains(err.Error(), "secret") {
		t.Errorf("the error shows what is in the file: %v", err)
	}
}
