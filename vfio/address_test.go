package vfio_test

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/trapeze-nic/trapeze/ci/kit/must"
	"github.com/trapeze-nic/trapeze/ci/kit/should"
	"github.com/trapeze-nic/trapeze/vfio"
)

func TestParseAddress(t *testing.T) {
	type want struct {
		scheme, path string
		options      url.Values
	}
	tests := []struct {
		in   string
		want *want // nil: ErrBadAddress
	}{
		{"emu:", &want{"emu", "", url.Values{}}},
		{"emu:?", &want{"emu", "", url.Values{}}},
		{"emu:?wire=loop", &want{"emu", "", url.Values{"wire": {"loop"}}}},
		{"emu:?wire=udp://127.0.0.1:9001&peer=127.0.0.1:9000", &want{"emu", "", url.Values{"wire": {"udp://127.0.0.1:9001"}, "peer": {"127.0.0.1:9000"}}}},
		{"emu:?wire=udp://[::1]:9001", &want{"emu", "", url.Values{"wire": {"udp://[::1]:9001"}}}},
		{"emu:?wire=mem:a%26b", &want{"emu", "", url.Values{"wire": {"mem:a&b"}}}},
		{"emu:?trace", &want{"emu", "", url.Values{"trace": {""}}}},
		{"emu:?a=b?c", &want{"emu", "", url.Values{"a": {"b?c"}}}},
		{"pci:0000:03:00.0", &want{"pci", "0000:03:00.0", url.Values{}}},
		{"vfio-user:/run/trapeze/nic0.sock", &want{"vfio-user", "/run/trapeze/nic0.sock", url.Values{}}},
		{"vfio-user:/run/a b", &want{"vfio-user", "/run/a b", url.Values{}}},
		{"e2:x", &want{"e2", "x", url.Values{}}},
		{"", nil},
		{":", nil},
		{"emu", nil},
		{":emu", nil},
		{"?emu:", nil},
		{"Emu:", nil},
		{"2emu:", nil},
		{"-emu:", nil},
		{"em u:", nil},
		{"ému:", nil},
		{"/run/nic0.sock", nil},
		{"emu:?a=1&a=2", nil},
		{"emu:?a=1;b=2", nil},
		{"emu:?a=%zz", nil},
		{"emu:?=1", nil},
		{"emu:\x00", nil},
		{"emu:?a=b\n", nil},
	}
	for _, tt := range tests {
		t.Run(tt.in, func(t *testing.T) {
			a, err := vfio.ParseAddress(tt.in)
			if tt.want == nil {
				var e *vfio.Error
				must.Hold(t, errors.Is(err, vfio.ErrBadAddress) && errors.As(err, &e) && e.Hint != "",
					"got %v, want ErrBadAddress with a hint", err)
				return
			}
			must.OK(t, err)
			got := want{a.Scheme, a.Path, a.Options}
			should.Be(t, cmp.Diff(*tt.want, got, cmp.AllowUnexported(want{})), "")
			should.Be(t, a.String(), tt.in, "String")
		})
	}
}

func FuzzParseAddress(f *testing.F) {
	f.Add("emu:?wire=udp://127.0.0.1:9000&peer=127.0.0.1:9001")
	f.Fuzz(func(t *testing.T, s string) {
		a, err := vfio.ParseAddress(s)
		if err != nil {
			must.Hold(t, errors.Is(err, vfio.ErrBadAddress), "error %v is not ErrBadAddress", err)
			return
		}
		must.Hold(t, a.String() == s && strings.HasPrefix(s, a.Scheme+":"+a.Path), "%q became %+v", s, a)
		// The parts make an address that means the same.
		again := must.Get(vfio.ParseAddress(a.Scheme + ":" + a.Path + "?" + a.Options.Encode()))(t)
		must.Hold(t, again.Scheme == a.Scheme && again.Path == a.Path && cmp.Equal(again.Options, a.Options),
			"%+v is %+v when put together again", a, again)
	})
}

// opens counts runs of TestOpen: what is registered stays.
var opens int

func TestOpen(t *testing.T) {
	opens++
	scheme := fmt.Sprintf("test-open%d", opens)
	want := &configDevice{}
	var got vfio.Address
	vfio.Register(scheme, func(_ context.Context, a vfio.Address) (vfio.Device, error) {
		got = a
		return want, nil
	})
	dev, err := vfio.Open(t.Context(), scheme+":x?k=v")
	must.Give(dev, err)(t, vfio.Device(want))
	should.Hold(t, got.Path == "x" && got.Options.Get("k") == "v", "back end got %+v", got)
	if !slices.Contains(vfio.Schemes(), scheme) || !slices.IsSorted(vfio.Schemes()) {
		t.Errorf("Schemes() = %q", vfio.Schemes())
	}

	_, err = vfio.Open(t.Context(), "no-such-scheme:x")
	should.Hold(t, errors.Is(err, vfio.ErrUnknownScheme) && strings.Contains(err.Error(), scheme), "unknown scheme: %v", err)
	should.Refuse(vfio.Open(t.Context(), "nonsense"))(t, vfio.ErrBadAddress, "bad address")

	defer func() {
		if recover() == nil {
			t.Error("a scheme can be registered twice")
		}
	}()
	vfio.Register(scheme, nil)
}

func TestError(t *testing.T) {
	tests := []struct {
		err  vfio.Error
		want string
	}{
		{vfio.Error{Op: "map DMA", Device: "emu:", Err: vfio.ErrIOVAInUse, Hint: "unmap it"}, "map DMA emu:: IOVA range is in use (unmap it)"},
		{vfio.Error{Op: "map DMA", Err: vfio.ErrIOVAInUse}, "map DMA: IOVA range is in use"},
	}
	for _, tt := range tests {
		should.Be(t, tt.err.Error(), tt.want)
		should.Hold(t, errors.Is(&tt.err, vfio.ErrIOVAInUse), "the cause is lost")
	}
}
