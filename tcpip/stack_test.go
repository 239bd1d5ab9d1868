package tcpip_test

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"net/netip"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/trapeze-nic/trapeze/ci/kit/cable"
	"github.com/trapeze-nic/trapeze/ci/kit/must"
	"github.com/trapeze-nic/trapeze/ci/kit/should"
	"github.com/trapeze-nic/trapeze/tcpip"
)

// TestHTTP: a stock server and a stock client, over both versions of IP and small and jumbo frames.
func TestHTTP(t *testing.T) {
	for _, mtu := range []int{1500, 9000} {
		a, b, _ := pair(t, mtu, faults{})
		page := bytes.Repeat([]byte("a page of bytes. "), 20_000)
		l, err := b.Listen("tcp", ":80")
		server := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write(page) })}
		if err != nil {
			t.Fatal(err)
		}
		go func() { _ = server.Serve(l) }()
		client := http.Client{Transport: &http.Transport{DialContext: a.DialContext}, Timeout: 20 * time.Second}
		for _, host := range []string{"10.0.0.2", "[fd00::2]"} {
			answer := must.Get(client.Get("http://" + host + "/"))(t)
			got, err := io.ReadAll(answer.Body)
			if err != nil || !bytes.Equal(got, page) {
				t.Errorf("%s, MTU %d: %d bytes of %d, %v", host, mtu, len(got), len(page), err)
			}
			_ = answer.Body.Close()
		}
		client.CloseIdleConnections()
		should.OK(t, server.Close())
	}
}

// echoing answers each connection with what comes.
func echoing(t testing.TB, s *tcpip.Stack, address string) net.Listener {
	t.Helper()
	l := must.Get(s.Listen("tcp", address))(t)
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				_, _ = io.Copy(c, c)
				_ = c.Close()
			}()
		}
	}()
	return l
}

// TestBadWires: at 10 % loss, and with doubled, reordered and damaged frames every byte arrives.
func TestBadWires(t *testing.T) {
	for name, f := range map[string]faults{"loss": {loss: 0.1}, "all": {loss: 0.02, double: 0.05, reorder: 0.05, corrupt: 0.02}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			a, b, _ := pair(t, 1500, f)
			l := must.Get(b.Listen("tcp4", ":9"))(t)
			sent, sum := make([]byte, 400_000), make(chan [32]byte, 1)
			for i := range sent {
				sent[i] = byte(rand.Uint32())
			}
			go func() {
				c, err := l.Accept()
				if err != nil {
					return
				}
				got, _ := io.ReadAll(c)
				sum <- sha256.Sum256(got)
				_ = c.Close()
			}()
			c := must.Get(a.DialContext(within(t, time.Minute), "tcp", "10.0.0.2:9"))(t)
			must.Get(c.Write(sent))(t)
			must.OK(t, c.(interface{ CloseWrite() error }).CloseWrite())
			select {
			case got := <-sum:
				if got != sha256.Sum256(sent) {
					t.Error("other bytes arrive")
				}
			case <-time.After(5 * time.Minute): // timers of retransmission double
				t.Fatal("the bytes do not arrive")
			}
			_ = c.Close()
		})
	}
}

// TestManyConnections opens a thousand at once, and each says something.
func TestManyConnections(t *testing.T) {
	a, b, _ := pair(t, 1500, faults{})
	defer echoing(t, b, ":7").Close()
	ctx := within(t, time.Minute)
	var all sync.WaitGroup
	failed := make(chan error, 1000)
	for i := range 1000 {
		all.Go(func() {
			c, err := a.DialContext(ctx, "tcp", "10.0.0.2:7")
			if err != nil {
				failed <- err
				return
			}
			defer c.Close()
			said := fmt.Sprintf("connection %d", i)
			got := make([]byte, len(said))
			if _, err = c.Write([]byte(said)); err == nil {
				_, err = io.ReadFull(c, got)
			}
			if err != nil || string(got) != said {
				failed <- fmt.Errorf("%q came back as %q: %v", said, got, err)
			}
		})
	}
	all.Wait()
	close(failed)
	for err := range failed {
		t.Fatal(err)
	}
}

// TestUDPAndPing: datagrams, and echo requests of all sizes, fragments too.
func TestUDPAndPing(t *testing.T) {
	a, b, _ := pair(t, 1500, faults{})
	l := must.Get(b.ListenPacket("udp4", "10.0.0.2:53"))(t)
	defer l.Close()
	c := must.Get(a.DialContext(t.Context(), "udp", "10.0.0.2:53"))(t)
	defer c.Close()
	for _, size := range []int{1, 1400, 20_000} {
		must.Get(c.Write(bytes.Repeat([]byte{7}, size)))(t)
		got := make([]byte, 30_000)
		_ = l.SetReadDeadline(time.Now().Add(10 * time.Second))
		if n, _, err := l.ReadFrom(got); err != nil || n != size {
			t.Errorf("%d bytes of %d: %v", n, size, err)
		}
	}
	for _, to := range []string{"10.0.0.2", "fd00::2"} {
		for _, size := range []int{0, 56, 5000} {
			if _, err := a.Ping(within(t, 10*time.Second), netip.MustParseAddr(to), size); err != nil {
				t.Errorf("%s, %d bytes: %v", to, size, err)
			}
		}
	}
	if _, err := a.Ping(within(t, 300*time.Millisecond), netip.MustParseAddr("10.0.0.77"), 10); err == nil {
		t.Error("a host that is not there answers")
	}
}

// TestAddressInUse: an address that another host has is refused, and the error names its station.
func TestAddressInUse(t *testing.T) {
	name := fmt.Sprintf("t%d", cables.Add(1))
	run(t, end(t, name, 1500), own(1))
	_, err := tcpip.New(t.Context(), end(t, name, 1500), own(1))
	if !errors.Is(err, tcpip.ErrInUse) || !strings.Contains(err.Error(), cable.End(name, 0).MAC().String()) {
		t.Errorf("%v", err)
	}
}

// TestPortDies: with a port that fails each call of a hundred connections gets an error, and so do new ones, until Restart.
func TestPortDies(t *testing.T) {
	a, b, name := pair(t, 1500, faults{})
	defer echoing(t, b, ":7").Close()
	ctx := within(t, time.Minute)
	var waiting sync.WaitGroup
	for range 100 {
		c, err := a.DialContext(ctx, "tcp", "10.0.0.2:7")
		if err != nil {
			t.Fatal(err)
		}
		waiting.Go(func() {
			defer c.Close()
			if _, err := io.ReadFull(c, make([]byte, 1)); err == nil {
				t.Error("something is read")
			}
		})
	}
	cable.End(name, 0).Fail(errors.New("the NIC is on fire"), 0)
	waiting.Wait()
	if _, err := a.DialContext(ctx, "tcp", "10.0.0.2:7"); !errors.Is(err, tcpip.ErrPortDead) || !strings.Contains(err.Error(), "on fire") || a.Err() == nil {
		t.Errorf("a new connection: %v; the stack says %v", err, a.Err())
	}
	must.OK(t, a.Restart(ctx))
	c := must.Get(a.DialContext(ctx, "tcp", "10.0.0.2:7"))(t)
	if _, err := c.Write([]byte("x")); err != nil {
		t.Error(err)
	}
	if _, err := io.ReadFull(c, make([]byte, 1)); err != nil {
		t.Error(err)
	}
	_ = c.Close()
}

// TestWaitsEnd: contexts, deadlines and Close end what waits.
func TestWaitsEnd(t *testing.T) {
	a, b, _ := pair(t, 1500, faults{})
	l := echoing(t, b, ":7")
	gone, cancel := context.WithCancelCause(t.Context())
	because := errors.New("enough")
	time.AfterFunc(100*time.Millisecond, func() { cancel(because) })
	if _, err := a.DialContext(gone, "tcp", "10.0.0.9:7"); !errors.Is(err, because) {
		t.Errorf("dial to nobody: %v", err)
	}
	if _, err := a.DialContext(t.Context(), "tcp", "10.0.0.2:8"); err == nil || !strings.Contains(err.Error(), "refused") {
		t.Errorf("dial to a port where none listens: %v", err)
	}
	for _, bad := range []string{":7", "10.0.0.2", "10.0.0.2:99999", "10.0.0.2:nonesuch"} {
		if _, err := a.DialContext(t.Context(), "tcp", bad); err == nil {
			t.Errorf("dial %q: no error", bad)
		}
	}
	for _, network := range []string{"tcp5", "ip", ""} {
		if _, err := a.Listen(network, ":1"); err == nil {
			t.Errorf("listen at network %q: no error", network)
		}
	}
	c := must.Get(a.DialContext(t.Context(), "tcp", "10.0.0.2:7"))(t)
	_ = c.SetReadDeadline(time.Now().Add(50 * time.Millisecond))
	var timeout net.Error
	if _, err := c.Read(make([]byte, 1)); !errors.As(err, &timeout) || !timeout.Timeout() {
		t.Errorf("a read with a deadline: %v", err)
	}
	_ = c.SetReadDeadline(time.Time{})
	ended := make(chan error, 2)
	go func() {
		_, err := c.Read(make([]byte, 1))
		ended <- err
	}()
	mine := must.Get(a.Listen("tcp", ":5"))(t)
	go func() {
		_, err := mine.Accept()
		ended <- err
	}()
	time.Sleep(50 * time.Millisecond)
	should.OK(t, a.Close())
	for range 2 {
		select {
		case err := <-ended:
			if err == nil {
				t.Error("a call that waited succeeds")
			}
		case <-time.After(10 * time.Second):
			t.Fatal("a call still waits")
		}
	}
	if _, err := a.DialContext(t.Context(), "tcp", "10.0.0.2:7"); !errors.Is(err, net.ErrClosed) {
		t.Errorf("dial after Close: %v", err)
	}
	_ = l.Close()
}

// TestBadConfigs: each is refused, by the name of its field.
func TestBadConfigs(t *testing.T) {
	p := netip.MustParsePrefix
	for field, c := range map[string]tcpip.Config{
		"MTU":       {MTU: 1000},
		"Buffer":    {Buffer: 1},
		"Timeout":   {Timeout: -1},
		"Addresses": {Addresses: []netip.Prefix{p("224.0.0.1/8")}},
		"NoIPv6":    {NoIPv6: true, Addresses: []netip.Prefix{p("fd00::1/64")}},
		"Gateways":  {Gateways: []netip.Addr{netip.MustParseAddr("10.0.0.1"), netip.MustParseAddr("10.0.0.2")}},
	} {
		if _, err := tcpip.Open(t.Context(), "cable:none", c); !errors.Is(err, tcpip.ErrConfig) || !strings.Contains(err.Error(), field) {
			t.Errorf("%s: %v", field, err)
		}
	}
}
