package netmem_test

import (
	"bytes"
	"errors"
	"fmt"
	"net"
	"os"
	"testing"
	"time"

	"github.com/trapeze-nic/trapeze/ci/kit/must"
	"github.com/trapeze-nic/trapeze/ci/kit/should"
	"github.com/trapeze-nic/trapeze/emulator"
	"github.com/trapeze-nic/trapeze/netmem"
	"github.com/trapeze-nic/trapeze/via"
	"github.com/trapeze-nic/trapeze/wire"
)

// TestLoss: over a wire that loses a fifth of its frames, and doubles and reorders others,
// pages arrive as they are.
func TestLoss(t *testing.T) {
	const page, pages = 8192, 48
	r := newRig(t, emulator.PairOptions{Faults: wire.FaultOptions{Loss: 0.2, Duplicate: 0.05, Reorder: 0.05, Seed: 7}})
	s := r.serve(netmem.ServerOptions{Page: page, Size: page * pages})
	c := r.open(netmem.Options{Cache: 8 * page, Timeout: 40 * time.Second, ReadAhead: 2 * page}, s)
	model := randomBytes(3, page*pages)
	r.write(c, model, 0)
	for i := range 8 {
		b := randomBytes(uint64(i), 3000)
		r.write(c, b, int64(i*40_000))
		copy(model[i*40_000:], b)
	}
	r.sync(c)
	c.Drop()
	should.Same(t, r.read(c, len(model), 0), model, "other bytes than were written")
	if st := c.Stats(); st.Failures != 0 {
		t.Errorf("%d connections broke", st.Failures)
	}
}

// onSwitch makes NICs that are plugged into a switch, each with its plug. The first one has a filter, unless that is nil.
func onSwitch(t *testing.T, n int, filter wire.FilterFunc) ([]*via.NIC, []wire.Port) {
	t.Helper()
	ports := must.Get(wire.NewSwitch(n, wire.SwitchOptions{}))(t)
	if filter != nil {
		ports[0] = wire.NewFilter(ports[0], filter)
	}
	var nics []*via.NIC
	for i, p := range ports {
		d := must.Get(emulator.New(emulator.Options{Name: fmt.Sprintf("emu:%d", i), Wire: p, Thread: true}))(t)
		nic := must.Get(via.OpenDevice(t.Context(), d, via.Options{OnError: func(via.AsyncError) {}}))(t)
		t.Cleanup(func() {
			should.OK(t, nic.Close())
		})
		nics = append(nics, nic)
	}
	return nics, ports
}

// cutTimeout is how long calls to a server last that is cut off. It is no shorter, as servers
// that are not take their time too where other programs want the processors.
const cutTimeout = 5 * time.Second

// reconnectCached: calls of the cache, which have no context, wait for the server, which is restarted
// meanwhile, as long as the timeout says, together: once it has been away for so long it is taken for dead.
func reconnectCached(t *testing.T) {
	const page = 4096
	r := newRigBesides(t, emulator.PairOptions{})
	o := netmem.ServerOptions{Page: page, Size: 64 * page}
	s := r.serve(o)
	c := r.open(netmem.Options{Cache: 16 * page, Timeout: 30 * time.Second, ReadAhead: -1}, s)
	content := randomBytes(1, 8*page)
	r.write(c, content, 0)
	r.kill(s)
	back := make(chan *netmem.Server)
	time.AfterFunc(300*time.Millisecond, func() { back <- r.serve(o) })
	r.sync(c)
	s = <-back
	c.Drop()
	got := make([]byte, len(content))
	n, err := c.ReadAt(got, 0)
	if n != len(got) || err != nil || !bytes.Equal(got, content) {
		t.Errorf("read %d bytes: %v", n, err)
	}
	r.close(c)
	dead := r.open(netmem.Options{Cache: 16 * page, Timeout: cutTimeout, ReadAhead: -1}, s)
	r.write(dead, content, 0)
	r.kill(s)
	should.Fail(t, dead.Sync(), netmem.ErrUnavailable, "sync without a server")
	start := time.Now()
	for range 200 {
		if _, err := dead.ReadAt(got[:1], 60*page); !errors.Is(err, netmem.ErrUnavailable) {
			t.Fatalf("read without a server: %v", err)
		}
	}
	if took := time.Since(start); took > time.Minute { // 1,000 s if each of them had waited
		t.Errorf("200 reads from a server that is dead took %v", took)
	}
}

// TestDeadline: while a server says nothing, calls end at the deadline and not at the timeout;
// what was written stays in the cache, and is on the server once that answers and there is no
// deadline any more.
func TestDeadline(t *testing.T) {
	const page, pages = 4096, 64
	nics, plugs := onSwitch(t, 2, nil)
	r := &rig{TB: t, near: nics[0], far: nics[1]}
	s := r.serve(netmem.ServerOptions{Page: page, Size: page * pages})
	c := r.open(netmem.Options{Cache: 16 * page, ReadAhead: -1, Timeout: time.Hour}, s)
	want := randomBytes(1, page*16)
	r.write(c, want[:8*page], 0)
	r.sync(c)
	r.read(c, page, 40*page)
	r.write(c, want, 0) // all frames are dirty
	plugs[1].SetLink(false)
	for name, call := range map[string]func() error{
		"read of a page that is missed":     func() error { _, err := c.ReadAt(make([]byte, page), 50*page); return err },
		"write of a part of one":            func() error { _, err := c.WriteAt([]byte("part"), 51*page); return err },
		"write of one, which needs a frame": func() error { _, err := c.WriteAt(make([]byte, page), 52*page); return err },
		"sync":                              c.Sync,
	} {
		must.OK(t, c.SetDeadline(time.Now().Add(100*time.Millisecond)))
		should.Fail(t, call(), os.ErrDeadlineExceeded, "%s", name)
	}
	should.Refuse(c.ReadAt(make([]byte, 1), 0))(t, os.ErrDeadlineExceeded, "a read of what is in the cache, after the deadline")
	must.OK(t, c.SetDeadline(time.Time{}))
	should.Same(t, r.read(c, 4*page, 0), want[:4*page], "the cache has other bytes than were written")
	plugs[1].SetLink(true)
	r.sync(c)
	other := r.open(netmem.Options{}, s)
	should.Same(t, r.read(other, len(want), 0), want, "the server has other bytes than were written")
	r.close(c)
	should.Fail(t, c.SetDeadline(time.Now()), net.ErrClosed, "a closed client")
}

// TestAway: what clients do while servers are away, in part until a timeout.
func TestAway(t *testing.T) {
	together(t, map[string]func(*testing.T){
		"hostile answers":     hostileAnswers,
		"reconnect, cached":   reconnectCached,
		"open beside silence": openBesideSilence,
		"source":              sourceOfTwo,
		"stuck client":        stuckClient,
	})
}
