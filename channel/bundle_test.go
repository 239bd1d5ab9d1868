package channel_test

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"testing"
	"time"

	"github.com/trapeze-nic/trapeze/channel"
	"github.com/trapeze-nic/trapeze/ci/kit/must"
	"github.com/trapeze-nic/trapeze/ci/kit/should"
	"github.com/trapeze-nic/trapeze/via"
)

// bundles makes both ends of a bundle.
func bundles(t *testing.T, clients, servers []*channel.Channel) (x, y *channel.Bundle) {
	t.Helper()
	x, err := channel.NewBundle(clients...)
	y, yerr := channel.NewBundle(servers...)
	must.OK(t, errors.Join(err, yerr))
	return x, y
}

// TestBundle: messages of all sizes go over channels side by side, on engines that are called and on threads, with small
// pages and large ones. Two in a row have room.
func TestBundle(t *testing.T) {
	for _, c := range []struct {
		options        string
		channels, page int
	}{{"", 3, 4096}, {"&engine=thread", 5, 4096}, {"&mtu=1500", 2, 16384}, {"", 1, 8192}} {
		a, b := openBoth(t, c.options)
		o := channel.Options{PageSize: c.page}
		clients, servers := openPairs(t, a, b, c.channels, o, o)
		x, y := bundles(t, clients, servers)
		one := x.MaxMessage() / c.channels
		if one < c.page-100 || one > c.page {
			t.Errorf("%d bytes over %d channels", x.MaxMessage(), c.channels)
		}
		buf := make([]byte, x.MaxMessage())
		for i, size := range []int{0, 1, 7, 8, 2 * c.page, one - 1, one, one + 1, x.MaxMessage() - 1, x.MaxMessage()} {
			if size > x.MaxMessage() {
				continue
			}
			for from, to := range map[*channel.Bundle]*channel.Bundle{x: y, y: x} {
				message := random(size, uint64(i))
				must.OK(t, from.Send(contextFor(t), channel.Low, message))
				if n, err := to.Receive(contextFor(t), buf); err != nil || !bytes.Equal(buf[:n], message) {
					t.Fatalf("%+v: %d bytes of %d, %v", c, n, size, err)
				}
			}
		}
		for i := range 2 { // both have room
			must.OK(t, x.Send(contextFor(t), channel.High, random(x.MaxMessage(), uint64(i))))
		}
		for i := range 2 {
			clear(buf)
			n, err := y.Receive(contextFor(t), buf[:150])
			if want := random(150, uint64(i)); err != nil || n != x.MaxMessage() || !bytes.Equal(buf[:150], want) || buf[150] != 0 {
				t.Errorf("message %d: %d bytes, %v", i, n, err)
			}
		}
	}
}

// TestBundleLoses: a message that has lost a part is passed over, whichever part it is, and what contradicts itself is none.
func TestBundleLoses(t *testing.T) {
	a, b := openBoth(t, "")
	clients, servers := openPairs(t, a, b, 3, channel.Options{}, channel.Options{})
	x, y := bundles(t, clients, servers)
	buf := make([]byte, x.MaxMessage())
	for lost, c := range servers {
		must.OK(t, c.Allow(0, 0)) // no room
		for i, want := range []bool{false, true, true} {
			message := random(x.MaxMessage()-i, uint64(lost))
			must.OK(t, x.Send(contextFor(t), channel.Low, message))
			ctx := contextFor(t)
			if !want {
				short, cancel := context.WithTimeout(ctx, 50*time.Millisecond)
				defer cancel()
				ctx = short
			}
			n, err := y.Receive(ctx, buf)
			if got := err == nil && bytes.Equal(buf[:n], message); got != want || !got && !errors.Is(err, via.ErrTimeout) {
				t.Errorf("message %d after part %d was lost: %d bytes, %v", i, lost, n, err)
			}
		}
	}
	for _, word := range []uint64{0, 8 << 32, 1 << 63, uint64(x.MaxMessage()+1) << 32} { // lengths that the part does not have
		text := append(binary.LittleEndian.AppendUint64(nil, word|100), "not that long"...)
		must.OK(t, clients[0].Send(channel.Low, 0, clients[0].SendPages().Put(0, text)))
		must.OK(t, clients[0].Flush(contextFor(t)))
	}
	must.OK(t, x.Send(contextFor(t), channel.Low, []byte("sound")))
	if n, err := y.Receive(contextFor(t), buf); err != nil || string(buf[:n]) != "sound" {
		t.Errorf("%q, %v", buf[:n], err)
	}
}

// TestBundleRefuses: what no bundle can be made of, and what it does not send.
func TestBundleRefuses(t *testing.T) {
	a, b := openBoth(t, "")
	send := must.Get(channel.NewPages(contextFor(t), a, 4096, via.MemoryAttributes{}))(t)
	plain, far := openPairs(t, a, b, 1, channel.Options{}, channel.Options{})
	for name, o := range map[string]channel.Options{"spaced": {Spaced: true}, "shared pages": {Send: send}, "larger pages": {PageSize: 8192}} {
		other, _ := openPairs(t, a, b, 1, o, channel.Options{})
		should.Refuse(channel.NewBundle(plain[0], other[0]))(t, via.ErrInvalidParameter, "%s", name)
	}
	should.Refuse(channel.NewBundle())(t, via.ErrInvalidParameter, "no channel")
	x, y := bundles(t, plain, far)
	should.Fail(t, x.Send(contextFor(t), channel.Low, make([]byte, x.MaxMessage()+1)), via.ErrInvalidParameter, "too long")
	var none context.Context
	should.Fail(t, x.Send(none, channel.Low, nil), via.ErrInvalidParameter, "no context")
	must.OK(t, plain[0].Close())
	should.Fail(t, x.Send(contextFor(t), channel.Low, nil), via.ErrClosed, "closed")
	should.Refuse(y.Receive(contextFor(t), nil))(t, via.ErrDisconnected, "the other end is closed")
}
