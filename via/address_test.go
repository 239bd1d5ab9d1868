package via_test

import (
	"errors"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/trapeze-nic/trapeze/ci/kit/must"
	"github.com/trapeze-nic/trapeze/ci/kit/should"
	"github.com/trapeze-nic/trapeze/ci/kit/soak"
	"github.com/trapeze-nic/trapeze/via"
)

// TestAddressRoundTrip: ParseAddress reads whatever Address.String writes.
func TestAddressRoundTrip(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		a := via.Address{MAC: via.MAC(rapid.SliceOfN(rapid.Byte(), 6, 6).Draw(t, "MAC")),
			Discriminator: string(rapid.SliceOfN(rapid.OneOf(rapid.Byte(), rapid.SampledFrom([]byte("a/ \"\\#%\n"))), 0, via.MaxDiscriminator).Draw(t, "discriminator"))}
		must.Give(via.ParseAddress(a.String()))(t, a)
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

// TestSample: n subjects take each element once, and a long run takes of each subject what is left.
func TestSample(t *testing.T) {
	const n = 4
	all := []int{0, 1, 2, 3, 4, 5, 6, 7, 8, 9}
	var together []int
	for i := range n {
		t.Setenv(soak.Variable, "")
		ordinary := sample(all, i, n)
		t.Setenv(soak.Variable, "1")
		both := slices.Sorted(slices.Values(slices.Concat(ordinary, sample(all, i, n))))
		should.Same(t, both, all, "subject %d: what an ordinary and a long run take", i)
		together = append(together, ordinary...)
	}
	slices.Sort(together)
	should.Same(t, together, all, "%d subjects take", n)
}
