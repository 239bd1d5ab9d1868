package dra_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	resourceapi "k8s.io/api/resource/v1"

	"github.com/trapeze-nic/trapeze/ci/kit/must"
	"github.com/trapeze-nic/trapeze/ci/kit/should"
)

// TestClaimsAtOnce: of many claims to one NIC that are prepared at once, one has it.
func TestClaimsAtOnce(t *testing.T) {
	r := newRig(t)
	const claims = 8
	uids, errs := make([]string, claims), make([]error, claims)
	for i := range claims {
		uids[i] = r.claim(fmt.Sprintf("c%d", i), nil, resourceapi.DeviceRequestAllocationResult{Request: "nic", Device: whole})
	}
	var all sync.WaitGroup
	for i := range claims {
		all.Go(func() { _, errs[i] = r.prepare(fmt.Sprintf("c%d", i), uids[i]) })
	}
	all.Wait()
	have := 0
	for i, err := range errs {
		switch {
		case err == nil:
			have++
		case !strings.Contains(err.Error(), "another claim has the device"):
			t.Errorf("claim %d: %v", i, err)
		}
	}
	should.Be(t, have, 1, "claims have the NIC")
	for i := range claims {
		all.Go(func() { errs[i] = r.unprepare(fmt.Sprintf("c%d", i), uids[i]) })
	}
	all.Wait()
	for i, err := range errs {
		should.OK(t, err, "claim %d", i)
	}
	r.driverIs(hostpcitestDriver)
}

// TestCorruptState: what a file of a claim does not tell is not guessed. No NIC is given away that a
// claim may have; what needs no NIC goes on.
func TestCorruptState(t *testing.T) {
	r := newRig(t)
	uid, _ := r.prepared("c1", whole)
	path := filepath.Join(r.cdi, "trapeze-"+uid+".json")
	good := must.Get(os.ReadFile(path))(t)
	other := r.claim("c2", nil, resourceapi.DeviceRequestAllocationResult{Request: "nic", Device: whole})
	for i, text := range []string{"", "{", string(good[:len(good)/2]), strings.ReplaceAll(string(good), uid, "another"),
		strings.ReplaceAll(string(good), uid, "../../etc/x"), `{"annotations":{"trapeze-nic.github.io/claim":"{}"}}`,
		strings.Replace(string(good), `\"function\":`, `\"Function\":`, 1), strings.Replace(string(good), `\"bound\":true`, `\"bound\":true,\"bound\":false`, 1)} {
		must.Hold(t, text != string(good), "file %d is good", i)
		must.OK(t, os.WriteFile(path, []byte(text), 0o644))
		for name, uid := range map[string]string{"c1": uid, "c2": other} {
			should.Explain(r.prepare(name, uid))(t, path, "file %d, claim %s", i, name)
		}
		should.Say(t, r.unprepare("c1", uid), path, "file %d", i)
		emulated := fmt.Sprintf("e%d", i)
		if _, err := r.prepare(emulated, r.claim(emulated, nil, resourceapi.DeviceRequestAllocationResult{Request: "em", Device: "emulated-0"})); err != nil {
			t.Error(err)
		}
	}
	r.driverIs("vfio-pci")
	must.OK(t, os.WriteFile(path, good, 0o644))
	r.unprepared("c1", uid)
	if _, err := r.prepare("c2", other); err != nil {
		t.Error(err)
	}
}
