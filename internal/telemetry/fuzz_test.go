package telemetry_test

import (
	"encoding/json"
	"net"
	"strings"
	"testing"
	"time"
)

// FuzzRequest: whatever a client sends to a process whose NICs have different commands, it gets one object with one key, no longer than the
// greeting says, or is cut off.
func FuzzRequest(f *testing.F) {
	for _, s := range []string{"/", "/info", "/help,/info", "/ethdev/list", "/ethdev/stats,0", "/ethdev/xstats,0,hide_zero=true", "/trapeze/sum,1",
		"/trapeze/sum,0,1", "/trapeze/sum,1,1", "/trapeze/sum,2,1", "/trapeze/twice,2,1,2,3", "/trapeze/twice,1,1,2", "/trapeze/big,0", "/trapeze/big,2",
		"/trapeze/fail,1", "/help,/trapeze/twice", "/trapeze/sum,4294967296", "/trapeze/big", ",", "x", "/\xff,\x00", strings.Repeat("/", 1024), strings.Repeat("/", 1025)} {
		f.Add([]byte(s))
	}
	path := serve(f, bare("agent:a"), source("emu:b"), other("emu:c"))
	f.Fuzz(func(t *testing.T, request []byte) {
		c, err := net.DialUnix("unixpacket", nil, &net.UnixAddr{Name: path, Net: "unixpacket"})
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		if err := c.SetDeadline(time.Now().Add(30 * time.Second)); err != nil {
			t.Fatal(err)
		}
		packet := make([]byte, 1<<17)
		if _, err := c.Read(packet); err != nil || len(request) == 0 {
			return // other workers of the fuzzer are clients too
		}
		if _, err := c.Write(request); err != nil {
			return
		}
		n, err := c.Read(packet)
		if len(request) > 1024 {
			if err == nil && n > 0 {
				t.Errorf("a request of %d bytes is answered", len(request))
			}
			return
		}
		var answer map[string]json.RawMessage
		if err != nil || n > 64<<10 || json.Unmarshal(packet[:n], &answer) != nil || len(answer) != 1 {
			t.Errorf("%q: %q, %v", request, packet[:min(n, 200)], err)
		}
	})
}
