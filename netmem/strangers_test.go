package netmem_test

import (
	"encoding/binary"
	"testing"
	"time"

	"github.com/trapeze-nic/trapeze/ci/kit/must"
	"github.com/trapeze-nic/trapeze/ci/kit/should"
	"github.com/trapeze-nic/trapeze/emulator"
	"github.com/trapeze-nic/trapeze/netmem"
	"github.com/trapeze-nic/trapeze/netmem/internal/protocol"
	"github.com/trapeze-nic/trapeze/ring"
	"github.com/trapeze-nic/trapeze/via"
)

// TestStrangers: connections that never ask for a page shut no client out, and the oldest of them
// are ended.
func TestStrangers(t *testing.T) {
	const page = 4096
	r := newRig(t, emulator.PairOptions{})
	s := r.serve(netmem.ServerOptions{Page: page, Size: 16 * page, Strangers: 4})
	good := r.open(netmem.Options{Cache: 8 * page, ReadAhead: -1}, s)
	content := randomBytes(1, 16*page)
	r.write(good, content, 0)
	r.sync(good)
	const many = 40
	for range many {
		x := must.Get(ring.Dial(t.Context(), r.near, s.Address().String(), ring.Options{Entries: 2, MaxPayload: netmem.MaxPage, Reliability: via.ReliableDelivery}))(t)
		defer x.Close()
	}
	r.until("the strangers to be ended", func() bool { return s.Stats().Clients <= 1+4 })
	good.Drop()
	should.Same(t, r.read(good, len(content), 0), content, "the client that was there reads something else")
	late := r.open(netmem.Options{Cache: 8 * page, ReadAhead: -1}, s)
	should.Same(t, r.read(late, len(content), 0), content, "a late client reads something else")
	if n := s.Stats().Clients; n < 2 || n > 2+4 {
		t.Errorf("%d clients are connected", n)
	}
}

// stuckClient: a client that asks for pages and does not take them keeps nobody else
// from writing, and its connection is ended.
func stuckClient(t *testing.T) {
	const page, pages = 4096, 128
	r := newRigBesides(t, emulator.PairOptions{})
	s := r.serve(netmem.ServerOptions{Page: page, Size: page * pages, Timeout: 100 * time.Millisecond})
	good := r.open(netmem.Options{Cache: 16 * page}, s)
	r.write(good, randomBytes(1, page*pages), 0)
	r.sync(good)
	info := must.Get(netmem.Ask(t.Context(), r.near, s.Address().String(), 30*time.Second))(t)
	// Else the one that has asked is taken for x, and x for one too many.
	r.until("the end of who has asked", func() bool { return s.Stats().Clients == 1 })
	x := must.Get(ring.Dial(t.Context(), r.near, s.Address().String(), ring.Options{Entries: 4, MaxPayload: netmem.MaxPage, Reliability: via.ReliableDelivery}))(t)
	defer x.Close()
	r.until("two clients", func() bool { return s.Stats().Clients == 2 })
	// As a Caller does, but nobody takes the replies.
	sent, refused := 0, time.Now().Add(time.Minute)
	for ; s.Stats().Clients == 2 && time.Now().Before(refused); sent++ {
		if err := sendFetch(x, info.Incarnation, uint64(sent%pages), page); err == via.ErrQueueFull {
			x.CheckSent()
			good.Drop()
			r.read(good, 1, int64(sent%pages)*page) // others go on
			time.Sleep(time.Millisecond)
		} else if err != nil {
			break // the server has ended the connection
		}
		b := randomBytes(uint64(sent), page)
		off := int64(sent*7%pages) * page
		r.write(good, b, off)
		r.sync(good)
		good.Drop()
		must.Same(t, r.read(good, page, off), b, "what was written is not there")
	}
	r.until("the end of the connection", func() bool { return s.Stats().Clients == 1 })
	if sent < 4 {
		t.Errorf("it ended after %d requests", sent)
	}
}

// sendFetch asks for a page as package ring does, see its header.go.
func sendFetch(x *ring.Ring, incarnation, page uint64, length uint32) error {
	e, err := x.GetSend()
	if err != nil {
		return err
	}
	var b [protocol.RequestSize]byte
	(&protocol.Request{Operation: protocol.Fetch, Incarnation: incarnation, Page: page, Length: length, Epoch: 1}).Encode(b[:])
	message, err := e.Reserve(ring.MessageSize)
	if err != nil {
		return err
	}
	clear(message)
	message[0], message[1], message[2] = 1, 1, byte(len(b)) // a request, of version 1
	binary.LittleEndian.PutUint32(message[8:], length)
	copy(message[ring.MessageSize-ring.MaxRequest:], b[:])
	return x.ReleaseSend(e)
}
