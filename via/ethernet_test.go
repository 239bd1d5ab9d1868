package via_test

import (
	"errors"
	"fmt"
	"testing"

	"github.com/trapeze-nic/trapeze/ci/kit/cable"
	"github.com/trapeze-nic/trapeze/ci/kit/soak"
	"github.com/trapeze-nic/trapeze/conform"
	"github.com/trapeze-nic/trapeze/via"
)

// TestEthernetPortFails: a NIC that fails while messages are under way, and is restarted by
// its wire, costs a connection time and nothing else.
func TestEthernetPortFails(t *testing.T) {
	a, b := onCable(t, "", via.Options{})
	name := fmt.Sprintf("via-%d", wires.Load())
	p := newPingPong(t, conform.NewWorld(t, a, b), 3000)
	for i := range soak.Count(2, 3) {
		for range 50 {
			p.round(t)
		}
		cable.End(name, i%2).Fail(errors.New("a fuse has blown"), 1)
	}
	for range 50 {
		p.round(t)
	}
	for i := range 2 {
		if n := cable.End(name, i).Stats().Restarts; n == 0 {
			t.Errorf("end %d was not restarted", i)
		}
	}
}
