package main

import (
	"io"
	"strings"
	"testing"

	"github.com/trapeze-nic/trapeze/ci/kit/must"
	"github.com/trapeze-nic/trapeze/ci/kit/should"
)

func TestHelp(t *testing.T) {
	var out strings.Builder
	must.OK(t, run(t.Context(), []string{"--help"}, &out, io.Discard))
	for _, want := range []string{"Examples:", "--agent", "--emulated"} {
		should.Contain(t, out.String(), want, "help lacks")
	}
}

func TestRefuses(t *testing.T) {
	for _, c := range []struct{ args, says string }{
		{"--nonsense", "--help"},
		{"extra", "extra"},
		{"--interval 1h", "100ms to 1m"},
		{"--emulated -1", "0 to"},
		{"--agent name=../x", "lower-case"},
		{"--agent name=a,socket=run/x", "absolute"},
		{"--agent name=a,memory=1.5", "whole"},
		{"--agent name=a,memory=x", "memory"},
		{"--agent name=a,colour=red", "colour"},
		{"--agent name=a --agent name=a", "twice"},
		{"--node-name n --kubeconfig /nonexistent", "nonexistent"},
		{"--node-name=", "NODE_NAME"},
	} {
		should.Say(t, run(t.Context(), strings.Fields(c.args), io.Discard, io.Discard), c.says, "%s", c.args)
	}
}
