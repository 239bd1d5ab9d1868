package nfs_test

import (
	"bytes"
	"context"
	"errors"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	xdr "github.com/stellar/go-xdr/xdr3"
	"pgregory.net/rapid"

	"github.com/trapeze-nic/trapeze/channel"
	"github.com/trapeze-nic/trapeze/ci/kit/leaktest"
	_ "github.com/trapeze-nic/trapeze/emulator"
	"github.com/trapeze-nic/trapeze/examples/nfspage/nfs"
	"github.com/trapeze-nic/trapeze/via"
)

func TestMain(m *testing.M) { leaktest.Main(m) }

// openPair opens a pair of channels, on NICs of its own.
func openPair(ctx context.Context, t *testing.T) (x, y *channel.Channel) {
	t.Helper()
	var nics [2]*via.NIC
	for i := range nics {
		nic, err := via.Open(ctx, "emu:?wire=mem:"+t.Name(), via.Options{})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			if err := nic.Close(); err != nil {
				t.Error(err)
			}
		})
		nics[i] = nic
	}
	l, err := channel.Listen(nics[1], "nfs", channel.Options{})
	if err != nil {
		t.Fatal(err)
	}
	x, err = channel.Dial(ctx, nics[0], l.Address().String(), channel.Options{})
	if err != nil {
		t.Fatal(err)
	}
	if y, err = l.Accept(ctx); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := errors.Join(x.Close(), y.Close(), l.Close()); err != nil {
			t.Error(err)
		}
	})
	return x, y
}

// carry sends a packet re-ordered from x to y, and returns it as y restores it. The data must
// land page-aligned, and not be copied from there before they are put together.
func carry(ctx context.Context, t *rapid.T, x, y *channel.Channel, k nfs.Kind, packet []byte) []byte {
	var out nfs.Parts
	if err := nfs.Reorder(k, packet, &out); err != nil {
		t.Fatal(err)
	}
	page := x.SendPages().Page(1)
	clear(page[copy(page, out.Data):])
	if err := errors.Join(y.AllowPlaced(k.FixedSize()), x.SendPlaced(channel.Low, out.Fixed, out.Attributes)); err != nil {
		t.Fatal(err)
	}
	m, err := y.Wait(ctx)
	if err != nil {
		t.Fatal(err)
	}
	if err := x.Flush(ctx); err != nil {
		t.Fatal(err)
	}
	copied := y.RecvPages().Stats().Copied
	fixed, landed, trailer, err := y.Placed(m, k.FixedSize())
	if err != nil {
		t.Fatal(err)
	}
	data, attributes, err := nfs.Lengths(k, fixed)
	if err != nil || data > len(landed) || attributes > len(trailer) {
		t.Fatalf("%d bytes of data, %d of attributes, %v; there are %d and %d", data, attributes, err, len(landed), len(trailer))
	}
	if &landed[0] != &y.RecvPages().Page(1)[0] || y.RecvPages().Stats().Copied != copied {
		t.Fatal("the data were copied")
	}
	back, err := nfs.Restore(k, &nfs.Parts{Fixed: fixed, Data: landed[:data], Attributes: trailer[:attributes]}, nil)
	if err != nil {
		t.Fatal(err)
	}
	return back
}

// TestOverChannel: requests to write go one way over a channel, replies to reads the other, with
// data from nothing to a page, and all comes out byte for byte and as the public library
// decodes it.
func TestOverChannel(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	const pageSize = channel.DefaultPageSize
	client, server := openPair(ctx, t)
	rapid.Check(t, func(r *rapid.T) {
		data := make([]byte, pageSize)
		_, _ = rand.NewChaCha8([32]byte{rapid.Byte().Draw(r, "seed")}).Read(data)
		data = data[:rapid.SampledFrom([]int{0, 1, 3, pageSize - 1, pageSize, rapid.IntRange(0, pageSize).Draw(r, "any")}).Draw(r, "bytes")]

		request := drawRequest(r, data)
		packet := packetOf(t, request)
		back := carry(ctx, r, client, server, nfs.WriteRequest, packet)
		if !bytes.Equal(back, packet) {
			r.Fatalf("another request of %d bytes comes out of %d", len(back), len(packet))
		}
		var got writeRequest
		if _, err := xdr.Unmarshal(bytes.NewReader(back[28:]), &got); err != nil || !cmp.Equal(got, request) {
			r.Fatalf("%v\n%s", err, cmp.Diff(request, got))
		}

		reply := drawReply(r, data)
		packet = packetOf(t, reply)
		if back := carry(ctx, r, server, client, nfs.ReadReply, packet); !bytes.Equal(back, packet) {
			r.Fatalf("another reply of %d bytes comes out of %d", len(back), len(packet))
		}
	})
}

// TestNotOverChannel: a packet that carries no data to place goes as it is, and is not taken for
// one that was re-ordered.
func TestNotOverChannel(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	client, server := openPair(ctx, t)
	packet := goodRequest(t)
	packet[28+4*5+3] = 6 // READ, which has no data
	var p nfs.Parts
	refusal(t, "a READ request", nfs.Reorder(nfs.WriteRequest, packet, &p), nfs.ErrOther, "procedure")
	err := errors.Join(server.AllowPlaced(nfs.WriteRequest.FixedSize()), client.Send(channel.High, 0, client.SendPages().Put(0, packet)))
	if err != nil {
		t.Fatal(err)
	}
	m, err := server.Wait(ctx)
	if err != nil {
		t.Fatal(err)
	}
	if _, _, _, err := server.Placed(m, nfs.WriteRequest.FixedSize()); !errors.Is(err, channel.ErrLength) {
		t.Errorf("a message as it is: %v", err)
	}
	if first, rest, err := server.View(m); err != nil || !bytes.HasPrefix(append(first, rest...), packet) {
		t.Errorf("%d and %d bytes of %d, %v", len(first), len(rest), len(packet), err)
	}
}
