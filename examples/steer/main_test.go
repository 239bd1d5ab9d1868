package main

import (
	"testing"

	"go.uber.org/goleak"

	"github.com/trapeze-nic/trapeze/ci/kit/must"
)

func TestSteer(t *testing.T) {
	defer goleak.VerifyNone(t)
	const flows = 32
	queues := must.Get(steer("emu:?wire=mem:steer-test", flows))(t)
	if n := len(queues[0]) + len(queues[1]); n != flows || len(queues[0]) == 0 || len(queues[1]) == 0 {
		t.Errorf("%d flows came to %v", n, queues)
	}
}
