package via_test

import (
	"errors"
	"testing"

	"pgregory.net/rapid"

	"github.com/trapeze-nic/trapeze/via"
)

// TestAddressRoundTrip: ParseAddress reads whatever Address.String writes.
func TestAddressRoundTrip(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		a := via.Address{MAC: via.MAC(rapid.SliceOfN(rapid.Byte(), 6, 6).Draw(t, "MAC")),
			Discriminator: string(rapid.SliceOfN(rapid.OneOf(rapid.Byte(), rapid.SampledFrom([]byte("a/ \"\\#%\n"))), 0, via.MaxDiscriminator).Draw(t, "discriminator"))}
		b, err := via.ParseAddress(a.String())
		if err != nil || b != a {
			t.Fatalf("%v is read as %v, %v", a, b, err)
		}
	})
}

func TestParseAddressRefuses(t *testing.T) {
	for _, s := range []string{"", "echo", "/echo", "02:00:00:00:00", "02:00:00:00:00:01:02:03/echo", "02-00-00-00-00-01/echo",
		"02:00:00:00:00:01/\"", "02:00:00:00:00:01/\\", "02:00:00:00:00:01/123456789012345678901234567890123"} {
		if a, err := via.ParseAddress(s); !errors.Is(err, via.ErrInvalidParameter) || len(a.Discriminator) != 0 {
			t.Errorf("%q is read as %v, %v", s, a, err)
		}
	}
}

// FuzzParseAddress: what is taken is read again from what String makes of it.
func FuzzParseAddress(f *testing.F) {
	for _, s := range []string{"02:00:00:00:00:01", "02:00:00:00:00:01/echo", "ff:ff:ff:ff:ff:ff/\"a\\x00b\"", "02:00:00:00:00:01/a b", "02:00:00:00:00:01/\""} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		a, err := via.ParseAddress(s)
		if err != nil {
			return
		}
		b, err := via.ParseAddress(a.String())
		if err != nil || b != a {
			t.Fatalf("%q is %v, which is read as %v, %v", s, a, b, err)
		}
	})
}
