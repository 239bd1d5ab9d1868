package netmem_test

import (
	"bytes"
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/trapeze-nic/trapeze/ci/kit/must"
	"github.com/trapeze-nic/trapeze/ci/kit/should"
	"github.com/trapeze-nic/trapeze/ci/kit/waittest"
	"github.com/trapeze-nic/trapeze/emulator"
	"github.com/trapeze-nic/trapeze/netmem"
	"github.com/trapeze-nic/trapeze/netmem/internal/protocol"
	"github.com/trapeze-nic/trapeze/ring"
	"github.com/trapeze-nic/trapeze/via"
)

const (
	fakePage        = 4096
	fakeIncarnation = 77
)

// answer is what a fake server says to a request: nil for nothing at all.
type answer func(q protocol.Request) (reply []byte, payload int)

// honest is what a good server of zeros says.
func honest(q protocol.Request) ([]byte, int) {
	b := make([]byte, protocol.DescribeSize)
	r := protocol.Reply{Operation: q.Operation, Incarnation: fakeIncarnation, Stamp: protocol.Stamp{Version: 1}}
	var record protocol.Record
	if q.Operation == protocol.Adopt {
		record, _, _ = q.Record()
	}
	if q.Operation == protocol.Describe || q.Operation == protocol.Adopt {
		protocol.PutBody(b, &protocol.Description{Record: record, Span: 1 << 20, Capacity: 1 << 20, Page: fakePage})
	}
	if q.Operation == protocol.Fetch {
		r.Length = q.Length
	}
	if q.Operation == protocol.Write {
		r.Version = q.Next
	}
	r.Encode(b)
	return b, int(r.Length)
}

// fake is a server that says what it likes.
func (r *rig) fake(name string, f answer) via.Address {
	r.Helper()
	options := ring.Options{Entries: 64, MaxPayload: netmem.MaxPage, Reliability: via.ReliableDelivery}
	l := must.Get(ring.Listen(r.far, name, options))(r)
	memory := must.Get(r.far.Alloc(r.Context(), netmem.MaxPage, via.MemoryAttributes{}))(r)
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() {
		for {
			x, err := l.Accept(ctx)
			if err != nil {
				return
			}
			running.Go(func() {
				_ = ring.Serve(ctx, x, func(q *ring.Request) {
					request, err := protocol.ParseRequest(q.Bytes)
					if err != nil {
						r.Error(err)
					}
					if b, n := f(request); b != nil {
						_ = q.Reply(b, ring.Frame{Memory: memory, Length: n}, nil)
					}
				})
				_ = x.Close()
			})
		}
	})
	r.Cleanup(func() {
		cancel()
		_ = l.Close()
		running.Wait()
	})
	return l.Address()
}

// TestHostileDescription: a server that describes nonsense is refused at once, by name.
func TestHostileDescription(t *testing.T) {
	r := newRig(t, emulator.PairOptions{})
	describe := func(change func(b []byte)) answer {
		return func(q protocol.Request) ([]byte, int) {
			b, n := honest(q)
			change(b)
			return b, n
		}
	}
	for name, f := range map[string]answer{
		"nothing":       func(protocol.Request) ([]byte, int) { return []byte{}, 0 },
		"too short":     func(q protocol.Request) ([]byte, int) { b, _ := honest(q); return b[:protocol.ReplySize], 0 },
		"other version": describe(func(b []byte) { b[0] = 9 }),
		"other answer":  describe(func(b []byte) { b[1] = byte(protocol.Fetch) }),
		"no result":     describe(func(b []byte) { b[3] = 1 }),
		"no page":       describe(func(b []byte) { clear(b[88:92]) }),
		"huge page":     describe(func(b []byte) { b[91] = 0x80 }),
		"endless":       describe(func(b []byte) { copy(b[72:80], bytes.Repeat([]byte{0xff}, 8)) }),
	} {
		address := r.fake(name, f)
		_, err := netmem.Open(t.Context(), r.near, []string{address.String()}, netmem.Options{Timeout: patience})
		should.Fail(t, err, netmem.ErrProtocol, "%s", name)
		should.Contain(t, fmt.Sprint(err), address.String())
	}
}

// hostileAnswers: nothing that a server says to a fetch or a write is taken for a page
// unless it is one, what is in the cache stays, and a good copy is used instead.
func hostileAnswers(t *testing.T) {
	silent := map[string]func(*testing.T){} // these wait
	bad := func(o protocol.Operation, change func(b []byte) ([]byte, int)) answer {
		return func(q protocol.Request) ([]byte, int) {
			b, n := honest(q)
			if q.Operation == o && q.Page != 0 {
				return change(b)
			}
			return b, n
		}
	}
	for name, c := range map[string]struct {
		answer
		want error
	}{
		"silence":           {bad(protocol.Fetch, func([]byte) ([]byte, int) { return nil, 0 }), context.DeadlineExceeded},
		"nothing":           {bad(protocol.Fetch, func([]byte) ([]byte, int) { return []byte{}, 0 }), netmem.ErrProtocol},
		"no page":           {bad(protocol.Fetch, func(b []byte) ([]byte, int) { return b, 0 }), netmem.ErrProtocol},
		"half a page":       {bad(protocol.Fetch, func(b []byte) ([]byte, int) { return b, fakePage / 2 }), netmem.ErrProtocol},
		"more than a page":  {bad(protocol.Fetch, func(b []byte) ([]byte, int) { return b, 2 * fakePage }), context.DeadlineExceeded}, // the ring refuses,
		"another server":    {bad(protocol.Fetch, func(b []byte) ([]byte, int) { b[8]++; return b, fakePage }), netmem.ErrRestarted},
		"another operation": {bad(protocol.Fetch, func(b []byte) ([]byte, int) { b[1]++; return b, fakePage }), netmem.ErrProtocol},
		"no such result":    {bad(protocol.Fetch, func(b []byte) ([]byte, int) { b[2] = 200; return b, fakePage }), netmem.ErrProtocol},
		"refusal":           {bad(protocol.Fetch, func(b []byte) ([]byte, int) { b[2] = byte(protocol.ReadOnly); clear(b[4:8]); return b, 0 }), netmem.ErrReadOnly},
		"odd refusal":       {bad(protocol.Fetch, func(b []byte) ([]byte, int) { b[2] = byte(protocol.BadLength); clear(b[4:8]); return b, 0 }), netmem.ErrProtocol},
		"bytes of a write":  {bad(protocol.Write, func(b []byte) ([]byte, int) { b[4] = 1; return b, 0 }), netmem.ErrProtocol},
		"silent write":      {bad(protocol.Write, func([]byte) ([]byte, int) { return nil, 0 }), context.DeadlineExceeded},
	} {
		test := func(t *testing.T) {
			r := newRigBesides(t, emulator.PairOptions{})
			timeout := patience
			if c.want == context.DeadlineExceeded {
				timeout = cutTimeout
			}
			address := r.fake(name, c.answer)
			var client *netmem.Client
			r.until("the client opens in time", func() bool { // not at once where the machine is busy
				var err error
				client, err = netmem.Open(t.Context(), r.near, []string{address.String()}, netmem.Options{Cache: 16 * fakePage, Timeout: timeout, ReadAhead: -1})
				return err == nil
			})
			r.write(client, []byte("mine"), 0)
			_, err := client.ReadAt(make([]byte, 10), fakePage)
			if err == nil {
				if _, err = client.WriteAt([]byte("other"), fakePage); err == nil {
					err = client.Sync()
				}
			}
			should.Fail(t, err, c.want)
			should.Be(t, string(r.read(client, 4, 0)), "mine", "the cache has")
			_ = client.Close() // it fails if writes do
		}
		if c.want == context.DeadlineExceeded {
			silent[name] = test
		} else {
			t.Run(name, test)
		}
	}
	waittest.Together(t, silent)
}

// caller speaks with a server without a client.
type caller struct {
	*rig
	*ring.Caller
	memory      *via.Memory
	incarnation uint64
}

func (r *rig) caller(s *netmem.Server) *caller {
	r.Helper()
	return r.callerAt(s.Address().String())
}

// callerAt is caller by address.
func (r *rig) callerAt(address string) *caller {
	r.Helper()
	x := must.Get(ring.Dial(r.Context(), r.near, address, ring.Options{Entries: 64, MaxPayload: netmem.MaxPage, Reliability: via.ReliableDelivery}))(r)
	c := must.Get(ring.NewCaller(x))(r)
	memory := must.Get(r.near.Alloc(r.Context(), 2*netmem.MaxPage, via.MemoryAttributes{}))(r)
	r.Cleanup(func() { _ = c.Close(); _ = x.Close() })
	k := &caller{r, c, memory, 0}
	k.incarnation = k.ask(protocol.Request{Operation: protocol.Describe}, 0).Incarnation
	return k
}

// say sends bytes, with so much payload, and returns what comes back.
func (k *caller) say(b []byte, payload int) []byte {
	k.Helper()
	ctx, cancel := context.WithTimeout(k.Context(), 30*time.Second)
	defer cancel()
	r := must.Get(k.Call(ctx, b, ring.Frame{Memory: k.memory, Length: payload}, ring.Frame{Memory: k.memory, Offset: netmem.MaxPage, Length: netmem.MaxPage}))(k)
	return bytes.Clone(r.Bytes())
}

func (k *caller) ask(q protocol.Request, payload int) protocol.Reply {
	k.Helper()
	b := make([]byte, protocol.RequestSize)
	q.Encode(b)
	return must.Get(protocol.ParseReply(q.Operation, k.say(b, payload)))(k)
}

// TestHostileClient: whatever a client asks has an answer that says what is wrong, and
// changes nothing for others.
func TestHostileClient(t *testing.T) {
	const page = 8192
	r := newRig(t, emulator.PairOptions{})
	s := r.serve(netmem.ServerOptions{Page: page, Size: 16 * page})
	good := r.open(netmem.Options{}, s)
	content := randomBytes(1, 16*page)
	r.write(good, content, 0)
	r.sync(good)
	k := r.caller(s)
	mine := func(q protocol.Request) protocol.Request {
		if q.Incarnation = k.incarnation; q.Epoch == 0 {
			q.Epoch = 1
		}
		return q
	}
	adopt := func(r protocol.Record) protocol.Request {
		q := protocol.Request{Operation: protocol.Adopt, Incarnation: k.incarnation}
		q.SetRecord(r, 1, false)
		return q
	}
	version := k.ask(mine(protocol.Request{Operation: protocol.Fetch, Page: 3, Length: page}), 0).Version
	for name, c := range map[string]struct {
		q       protocol.Request
		payload int
		want    protocol.Result
	}{
		"no such operation":     {mine(protocol.Request{Operation: 99}), 0, protocol.BadOperation},
		"page behind the end":   {mine(protocol.Request{Operation: protocol.Fetch, Page: 16, Length: page}), 0, protocol.OutsideExport},
		"page far behind":       {mine(protocol.Request{Operation: protocol.Fetch, Page: 1<<64 - 1, Length: page}), 0, protocol.OutsideExport},
		"longer than a page":    {mine(protocol.Request{Operation: protocol.Fetch, Length: page + 1}), 0, protocol.BadLength},
		"a part of a page":      {mine(protocol.Request{Operation: protocol.Fetch, Length: page / 2}), 0, protocol.BadLength},
		"nothing to fetch":      {mine(protocol.Request{Operation: protocol.Fetch}), 0, protocol.BadLength},
		"another incarnation":   {protocol.Request{Operation: protocol.Fetch, Length: page, Incarnation: k.incarnation + 1}, 0, protocol.OtherIncarnation},
		"write without payload": {mine(protocol.Request{Operation: protocol.Write, Length: page, Condition: protocol.IfOlder, Next: 1 << 62}), 0, protocol.BadLength},
		"write half a page":     {mine(protocol.Request{Operation: protocol.Write, Length: page / 2, Condition: protocol.IfOlder, Next: 1 << 62}), page / 2, protocol.BadLength},
		"write that lies":       {mine(protocol.Request{Operation: protocol.Write, Length: page, Condition: protocol.IfOlder, Next: 1 << 62}), page / 2, protocol.BadLength},
		"write two pages":       {mine(protocol.Request{Operation: protocol.Write, Length: 2 * page, Condition: protocol.IfOlder, Next: 1 << 62}), 2 * page, protocol.BadLength},
		"write behind the end":  {mine(protocol.Request{Operation: protocol.Write, Page: 16, Length: page, Condition: protocol.IfOlder, Next: 1 << 62}), page, protocol.OutsideExport},
		"no such condition":     {mine(protocol.Request{Operation: protocol.Write, Length: page, Condition: 4}), page, protocol.BadOperation},
		"old version":           {mine(protocol.Request{Operation: protocol.Write, Page: 3, Length: page, Expected: version - 1, Next: version}), page, protocol.VersionConflict},
		"version that shrinks":  {mine(protocol.Request{Operation: protocol.Write, Page: 3, Length: page, Expected: version, Next: version}), page, protocol.BadLength},
		"older":                 {mine(protocol.Request{Operation: protocol.Write, Page: 3, Length: page, Condition: protocol.IfOlder, Next: version}), page, protocol.VersionConflict},
		"another epoch":         {mine(protocol.Request{Operation: protocol.Fetch, Page: 3, Length: page, Epoch: 2}), 0, protocol.OtherEpoch},
		"write, another epoch":  {mine(protocol.Request{Operation: protocol.Write, Page: 3, Length: page, Condition: protocol.IfOlder, Next: 1 << 62, Epoch: 1<<64 - 1}), page, protocol.OtherEpoch},
		"last version":          {mine(protocol.Request{Operation: protocol.Write, Page: 3, Length: page, Condition: protocol.IfOlder, Next: 1<<64 - 1}), page, protocol.VersionLimit},
		"no pool":               {adopt(protocol.Record{}), 0, protocol.BadRequest},
		"a pool of no epoch":    {adopt(protocol.Record{Pool: 12345}), 0, protocol.BadRequest},
		"another pool":          {adopt(protocol.Record{Pool: 12345, Epoch: 9}), 0, protocol.OtherPool},
		"no stamps":             {mine(protocol.Request{Operation: protocol.Stamps}), 0, protocol.BadLength},
		"half a stamp":          {mine(protocol.Request{Operation: protocol.Stamps, Length: protocol.StampSize / 2}), 0, protocol.BadLength},
		"too many stamps":       {mine(protocol.Request{Operation: protocol.Stamps, Length: 17 * protocol.StampSize}), 17 * protocol.StampSize, protocol.OutsideExport},
		"stamps far behind":     {mine(protocol.Request{Operation: protocol.Stamps, Page: 1<<64 - 1, Length: protocol.StampSize}), protocol.StampSize, protocol.OutsideExport},
		"stamps, another epoch": {mine(protocol.Request{Operation: protocol.Stamps, Length: protocol.StampSize, Epoch: 7}), protocol.StampSize, protocol.OtherEpoch},
	} {
		if r := k.ask(c.q, c.payload); r.Result != c.want || r.Length != 0 {
			t.Errorf("%s: %v", name, r.Result)
		}
	}
	valid := make([]byte, protocol.RequestSize)
	(&protocol.Request{Operation: protocol.Stat, Incarnation: k.incarnation}).Encode(valid)
	for name, b := range map[string][]byte{
		"empty": {}, "short": valid[:10], "another protocol": append([]byte{1}, valid[1:]...),
		"reserved": append(append(bytes.Clone(valid[:28]), 1, 0, 0, 0), valid[32:]...),
	} {
		reply, err := protocol.ParseReply(0, k.say(b, 100))
		if err != nil || reply.Result != protocol.BadRequest {
			t.Errorf("%s: %v, %v", name, reply.Result, err)
		}
	}
	if st := s.Stats(); st.Refused < 23 || st.Clients != 2 {
		t.Errorf("stats: %+v", st)
	}
	good.Drop()
	should.Same(t, r.read(good, len(content), 0), content, "the pages have changed")
	// What stands behind a request is ignored: a later version of the protocol may use it.
	should.Be(t, len(k.say(append(valid, 1, 2, 3), 0)), protocol.StatSize, "bytes that came back")
}
