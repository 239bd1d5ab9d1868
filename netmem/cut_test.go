package netmem_test

import (
	"bytes"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/trapeze-nic/trapeze/ci/kit/soak"
	"github.com/trapeze-nic/trapeze/emulator"
	"github.com/trapeze-nic/trapeze/netmem"
	"github.com/trapeze-nic/trapeze/via"
	"github.com/trapeze-nic/trapeze/wire"
)

// onSwitch makes NICs that are plugged into a switch, each with its plug.
func onSwitch(t *testing.T, n int) ([]*via.NIC, []wire.Port) {
	t.Helper()
	ports, err := wire.NewSwitch(n, wire.SwitchOptions{})
	if err != nil {
		t.Fatal(err)
	}
	var nics []*via.NIC
	for i, p := range ports {
		d, err := emulator.New(emulator.Options{Name: fmt.Sprintf("emu:%d", i), Wire: p, Thread: true})
		if err != nil {
			t.Fatal(err)
		}
		nic, err := via.OpenDevice(t.Context(), d, via.Options{OnError: func(via.AsyncError) {}})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			if err := nic.Close(); err != nil {
				t.Error(err)
			}
		})
		nics = append(nics, nic)
	}
	return nics, ports
}

// cutTimeout is how long calls to a server last that is cut off. It is no shorter, as servers
// that are not take their time too where other programs want the processors.
const cutTimeout = 2 * time.Second

// cutOff: a server that nobody could reach for a while, and that has not restarted, is
// not read from until it has what it missed.
func cutOff(t *testing.T) {
	const page, pages = 4096, 64
	nics, plugs := onSwitch(t, 3)
	r := &rig{TB: t, near: nics[0]}
	var list []*netmem.Server
	for i, nic := range nics[1:] {
		r.far = nic
		list = append(list, r.serve(netmem.ServerOptions{Name: fmt.Sprint(i), Page: page, Size: page * pages}))
	}
	o := netmem.Options{Copies: 2, Cache: 8 * page, Timeout: cutTimeout, ReadAhead: -1}
	c := r.open(o, list...)
	model := randomBytes(1, page*pages)
	r.write(c, model, 0)
	r.sync(c)
	for round := range soak.Count(1, 6) {
		cut := round % 2
		plugs[1+cut].SetLink(false)
		for i := 0; i < pages; i += 3 {
			b := randomBytes(uint64(100*round+i), 100)
			r.write(c, b, int64(i*page))
			copy(model[i*page:], b)
		}
		r.sync(c)
		c.Drop()
		if got := r.read(c, len(model), 0); !bytes.Equal(got, model) {
			t.Fatal("with one server it is not what was written")
		}
		plugs[1+cut].SetLink(true)
		r.until("the server to be back", complete(c))
		// Now the other one: what this one missed must have got there.
		plugs[2-cut].SetLink(false)
		c.Drop()
		if got := r.read(c, len(model), 0); !bytes.Equal(got, model) {
			t.Fatal("the server that was cut off has not what was written")
		}
		plugs[2-cut].SetLink(true)
		r.until("both servers", complete(c))
	}
	if st := c.Stats(); st.Repaired == 0 || st.Failures == 0 || st.Failovers == 0 {
		t.Errorf("stats: %+v", st)
	}
}

// allCutOff: without any server calls end by their deadline, with an error that says
// which page, and what was written stays until a server is back.
func allCutOff(t *testing.T) {
	nics, plugs := onSwitch(t, 2)
	r := &rig{TB: t, near: nics[0], far: nics[1]}
	s := r.serve(netmem.ServerOptions{Page: 4096, Size: 1 << 20})
	c := r.open(netmem.Options{Cache: 16 * 4096, Timeout: cutTimeout}, s)
	r.write(c, []byte("before"), 0)
	r.sync(c)
	r.write(c, []byte("during"), 0)
	plugs[1].SetLink(false)
	_, err := c.ReadAt(make([]byte, 1), 9*4096)
	var e *netmem.Error
	if !errors.Is(err, netmem.ErrUnavailable) || !errors.As(err, &e) || !strings.HasSuffix(e.Op, " page 9") {
		t.Errorf("read: %v", err)
	}
	if err := c.Sync(); !errors.Is(err, netmem.ErrUnavailable) {
		t.Errorf("sync: %v", err)
	}
	if got := r.read(c, 6, 0); string(got) != "during" {
		t.Errorf("the cache has %q", got)
	}
	for i := range int64(16) { // pages that are written whole need no server, but a place
		if _, err := c.WriteAt(make([]byte, 4096), (20+i)*4096); err != nil && !errors.Is(err, netmem.ErrUnavailable) {
			t.Errorf("write: %v", err)
		}
	}
	plugs[1].SetLink(true)
	r.until("the server", complete(c))
	r.sync(c)
	c.Drop()
	if got := r.read(c, 6, 0); string(got) != "during" {
		t.Errorf("the server has %q", got)
	}
}
