package dra_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/trapeze-nic/trapeze/ci/kit/hostpcitest"
	"github.com/trapeze-nic/trapeze/ci/kit/must"
	"github.com/trapeze-nic/trapeze/ci/kit/should"
	"github.com/trapeze-nic/trapeze/emulator"
	"github.com/trapeze-nic/trapeze/kubernetes/internal/dra"
	"github.com/trapeze-nic/trapeze/kubernetes/internal/node"
	"github.com/trapeze-nic/trapeze/vfio"
)

func hundred(tb testing.TB) *node.Node {
	tree := hostpcitest.New(tb)
	for i := range 100 {
		f := hostpcitest.NIC()
		f.Address, f.Behind, f.Group = fmt.Sprintf("0000:%02x:00.0", i+3), "", i+20
		f.Driver, f.Netdev = "trapeze-nic", fmt.Sprintf("ens%d", i)
		tree.Function(f)
	}
	return must.Get(node.New(node.Options{Root: tree.Root(), Drivers: drivers, Own: "trapeze"}))(tb)
}

func unknown(node.Device) metav1.Time { return metav1.Time{} }

// TestManyNICs: no slice has more devices than the API server takes, and none is lost.
func TestManyNICs(t *testing.T) {
	devices, err := hundred(t).Devices()
	must.Hold(t, err == nil && len(devices) == 100, "%d devices, %v", len(devices), err)
	names := map[string]bool{}
	for _, s := range dra.Resources("n1", devices, unknown).Pools["n1"].Slices {
		should.Hold(t, len(s.Devices) <= 64, "a slice of %d devices", len(s.Devices))
		for _, d := range s.Devices {
			names[d.Name] = true
		}
	}
	should.Be(t, len(names), 100, "devices in slices")
}

// TestParameterKeys: each key is one of those of parameters, in the same letters, and stands once.
func TestParameterKeys(t *testing.T) {
	head := `{"apiVersion":"` + dra.ParametersVersion + `","kind":"` + dra.ParametersKind + `",`
	if p, err := dra.ParseParameters([]byte(head + `"port":9000}`)); err != nil || p.Port != 9000 {
		t.Errorf("%+v, %v", p, err)
	}
	for body, want := range map[string]string{
		`"Port":9000}`: "Port: there is no such key", `"port":1,"PORT":2}`: "PORT: there is no such key", `"port":1,"port":2}`: "port: it stands there twice",
		`"port":"1"}`: "port: a string cannot stand there", `"peers":[1]}`: "peers: a number cannot stand there",
	} {
		if _, err := dra.ParseParameters([]byte(head + body)); !errors.Is(err, dra.ErrParameters) || !strings.HasSuffix(err.Error(), want) {
			t.Errorf("%s: %v, want %q", body, err, want)
		}
	}
}

// FuzzParseParameters: what is taken makes an address that an emulated NIC takes too, with no
// option but those that parameters have.
func FuzzParseParameters(f *testing.F) {
	head := `{"apiVersion":"` + dra.ParametersVersion + `","kind":"` + dra.ParametersKind + `"`
	for _, s := range []string{`{`, `{}{}`, `null`, head + `}`, head + `}{}`, head + `,"port":9000,"peers":["a.example:9000","10.0.0.1:1"]}`,
		head + `,"peers":["a:1&key=/etc/shadow"]}`, head + `,"peers":["a,b:1"]}`, head + `,"peers":["a:1?x"]}`, head + `,"peers":["a%26:1"]}`} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, raw []byte) {
		p, err := dra.ParseParameters(raw)
		if err != nil {
			must.Hold(t, errors.Is(err, dra.ErrParameters) && p.Kind == "", "%+v, %v", p, err)
			return
		}
		a, err := vfio.ParseAddress(p.Address())
		if err == nil {
			err = emulator.CheckAddress(a)
		}
		must.Hold(t, err == nil && strings.Count(p.Address(), "&") <= 1 && strings.Count(p.Address(), "=") <= 2, "%+v makes %s: %v", p, p.Address(), err)
	})
}
