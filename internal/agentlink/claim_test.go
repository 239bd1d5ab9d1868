package agentlink_test

import (
	"errors"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"github.com/trapeze-nic/trapeze/ci/kit/must"
	"github.com/trapeze-nic/trapeze/ci/kit/should"
	"github.com/trapeze-nic/trapeze/internal/agentlink"
)

// TestBadClaims: what is wrong with a claim is named, and the others can be read.
func TestBadClaims(t *testing.T) {
	for text, field := range map[string]string{
		`{}`: "nic", `{"nic":"a","cgroups":["/"]}`: "cgroups", `{"nic":"a","cgroups":["pod"]}`: "cgroups", `{"nic":"a","cgroups":["/a/../.."]}`: "cgroups",
		`{"nic":"a","rate":-1}`: "rate", `{"nic":"a","vis":-1}`: "vis", `{"nic":"a","user":"root"}`: "user", `{"nic":"a"}{}`: "more behind it", ``: "EOF",
		`{"nic":"a","vis":1,"VIs":0}`: "VIs: there is no such key", `{"nic":"a","vis":1,"vis":9}`: "vis: it stands there twice",
	} {
		if c, err := agentlink.ParseClaim([]byte(text)); !errors.Is(err, agentlink.ErrClaim) || !strings.Contains(err.Error(), field) {
			t.Errorf("%s: %+v, %v", text, c, err)
		}
	}
	folder := filepath.Join(t.TempDir(), "claims")
	if all, err := agentlink.ReadClaims(folder); len(all) != 0 || err != nil {
		t.Errorf("no folder: %v, %v", all, err)
	}
	want := agentlink.Claim{NIC: "port0", Cgroups: []string{"/pod1"}, VIs: 3}
	for _, name := range []string{"../x", "", ".a", "a/b"} {
		should.Fail(t, agentlink.WriteClaim(folder, name, want), agentlink.ErrClaim, "name %q", name)
	}
	must.OK(t, agentlink.WriteClaim(folder, "a", want))
	must.OK(t, os.WriteFile(filepath.Join(folder, "b.json"), []byte("{"), 0o644))
	all, err := agentlink.ReadClaims(folder)
	if !errors.Is(err, agentlink.ErrClaim) || !strings.Contains(err.Error(), "b.json") || !reflect.DeepEqual(all, map[string]agentlink.Claim{"a": want}) {
		t.Errorf("%v, %v", all, err)
	}
	for range 2 {
		should.OK(t, agentlink.WithdrawClaim(folder, "a"))
	}
}

func FuzzClaim(f *testing.F) {
	f.Add([]byte(`{"nic":"port0","cgroups":["/kubepods.slice/kubepods-pod1.slice"],"vis":4,"memory":65536,"rate":1000}`))
	f.Add([]byte(`{"nic":"a","cgroups":["/"]}`))
	f.Fuzz(func(t *testing.T, text []byte) {
		c, err := agentlink.ParseClaim(text)
		if err != nil {
			should.Fail(t, err, agentlink.ErrClaim)
			return
		}
		if err := agentlink.WriteClaim(t.TempDir(), "a", c); err != nil {
			t.Errorf("a claim that was read cannot be written: %v", err)
		}
	})
}
