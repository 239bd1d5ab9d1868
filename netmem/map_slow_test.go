package netmem_test

import (
	"testing"
	"time"

	"github.com/trapeze-nic/trapeze/ci/kit/leaktest"
	"github.com/trapeze-nic/trapeze/ci/kit/soak"
	"github.com/trapeze-nic/trapeze/netmem"
)

// TestOpenSlowly: a source may take longer to open than its mapper, the pager and its guard wait
// for each other.
func TestOpenSlowly(t *testing.T) {
	if !soak.Wanted() {
		t.Skip("takes 11 s; set TRAPEZE_SOAK=1")
	}
	leaktest.Check(t)
	content := make([]byte, 1<<20)
	content[5] = 7
	s := newSource(t, 4<<10, content)
	s.OpenTakes = 11 * time.Second
	if m := open(t, s, netmem.MapOptions{Local: 1 << 20}); m.Bytes()[5] != 7 {
		t.Error("another byte than the source has")
	}
}
