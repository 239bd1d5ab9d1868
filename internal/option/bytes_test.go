package option_test

import (
	"testing"

	"github.com/trapeze-nic/trapeze/internal/option"
)

func TestBytes(t *testing.T) {
	for s, want := range map[string]struct {
		n     int64
		again string
	}{
		"0": {0, "0"}, "64": {64, "64"}, "4K": {4096, "4K"}, "4096": {4096, "4K"}, "1m": {1 << 20, "1M"}, "3GB": {3 << 30, "3G"},
		"2T": {2 << 40, "2T"}, "1025K": {1025 << 10, "1025K"},
	} {
		var b option.Bytes
		if err := b.Set(s); err != nil || int64(b) != want.n || b.String() != want.again {
			t.Errorf("%s: %d, %s, %v", s, b, b.String(), err)
		}
	}
	for _, s := range []string{"", "K", "x", "-1", "1.5M", "9223372036854775807K", "4KK"} {
		b := option.Bytes(7)
		if err := b.Set(s); err == nil || b != 7 {
			t.Errorf("%q was read as %d", s, b)
		}
	}
}
