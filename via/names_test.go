package via_test

import (
	"context"
	"errors"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/net/dns/dnsmessage"

	"github.com/trapeze-nic/trapeze/channel"
	"github.com/trapeze-nic/trapeze/ci/kit/must"
	"github.com/trapeze-nic/trapeze/ci/kit/should"
	"github.com/trapeze-nic/trapeze/ci/kit/soak"
	"github.com/trapeze-nic/trapeze/conform"
	"github.com/trapeze-nic/trapeze/ring"
	"github.com/trapeze-nic/trapeze/via"
)

// serveTXT is a DNS server of this machine that knows some TXT records.
func serveTXT(t *testing.T, records map[string][]string) *net.Resolver {
	t.Helper()
	conn := must.Get(net.ListenPacket("udp", "127.0.0.1:0"))(t)
	done := make(chan struct{})
	t.Cleanup(func() { conn.Close(); <-done })
	go func() {
		defer close(done)
		b := make([]byte, 1500)
		for {
			n, from, err := conn.ReadFrom(b)
			if err != nil {
				return
			}
			var m dnsmessage.Message
			if m.Unpack(b[:n]) != nil || len(m.Questions) != 1 {
				continue
			}
			q := m.Questions[0]
			m.Response, m.Additionals, m.RCode = true, nil, dnsmessage.RCodeNameError
			if txt, ok := records[q.Name.String()]; ok {
				m.RCode = dnsmessage.RCodeSuccess
				for _, text := range txt {
					m.Answers = append(m.Answers, dnsmessage.Resource{
						Header: dnsmessage.ResourceHeader{Name: q.Name, Type: dnsmessage.TypeTXT, Class: dnsmessage.ClassINET},
						Body:   &dnsmessage.TXTResource{TXT: []string{text}},
					})
				}
			}
			if answer, err := m.Pack(); err == nil {
				_, _ = conn.WriteTo(answer, from)
			}
		}
	}()
	return &net.Resolver{PreferGo: true, Dial: func(ctx context.Context, _, _ string) (net.Conn, error) {
		var d net.Dialer
		return d.DialContext(ctx, "udp", conn.LocalAddr().String())
	}}
}

func TestNames(t *testing.T) {
	ctx := conform.Context(t)
	nic, _ := conform.OnMemory(t, "", via.Options{})
	nic.AskWith(serveTXT(t, map[string][]string{
		"gamma.test.": {"v=spf1 -all", "via=02:00:00:00:00:09/z", "via=02:00:00:00:00:08"},
		"plain.test.": {"nothing of ours"},
		"wrong.test.": {"via=nonsense"},
		"alpha.test.": {"via=02:00:00:00:00:07"},
	}))
	path := filepath.Join(t.TempDir(), "hosts")
	write := func(text string) {
		t.Helper()
		must.OK(t, os.WriteFile(path, []byte(text), 0o600))
	}
	if err := nic.OpenNames(path); !errors.Is(err, via.ErrNameService) || !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("no file: %v", err)
	}
	write("02:00:00:00:00:01 alpha.test\n02:00:00:00:00:02/echo beta alpha.test\n")
	must.OK(t, nic.OpenNames(path))
	one, two := via.Address{MAC: via.MAC{2, 0, 0, 0, 0, 1}}, via.Address{MAC: via.MAC{2, 0, 0, 0, 0, 2}, Discriminator: "echo"}
	for _, c := range []struct {
		name  string
		index int
		want  string
		err   error
	}{
		{"alpha.test", 0, one.String(), nil},
		{"ALPHA.test", 1, two.String(), nil},
		{"beta", 0, two.String(), nil},
		{"gamma.test", 0, "02:00:00:00:00:08", nil},
		{"gamma.test", 1, "02:00:00:00:00:09/z", nil},
		{"alpha.test", 2, "", via.ErrNameService}, // the file has the name, so the DNS is not asked
		{"gamma.test", 2, "", via.ErrNameService},
		{"plain.test", 0, "", via.ErrNameService},
		{"wrong.test", 0, "", via.ErrNameService},
		{"missing.test", 0, "", via.ErrNameService},
		{"", 0, "", via.ErrInvalidParameter},
		{"beta", -1, "", via.ErrInvalidParameter},
		{string(make([]byte, 300)), 0, "", via.ErrInvalidParameter},
	} {
		got, err := nic.HostByName(ctx, c.name, c.index)
		if !errors.Is(err, c.err) || c.err == nil && (err != nil || got.String() != c.want) {
			t.Errorf("%.30q number %d: %v, %v, want %v, %v", c.name, c.index, got, err, c.want, c.err)
		}
	}
	for _, c := range []struct {
		address, want string
		err           error
	}{
		{"alpha.test:echo", "02:00:00:00:00:01/echo", nil},
		{"alpha.test/a b", "02:00:00:00:00:01/a b", nil},
		{"beta", two.String(), nil},
		{"beta:other", "02:00:00:00:00:02/other", nil},
		{"02:00:00:00:00:07", "02:00:00:00:00:07", nil},
		{"02:00:00:00:00:07/echo", "02:00:00:00:00:07/echo", nil},
		{"missing.test:echo", "", via.ErrNameService},
		{"", "", via.ErrInvalidParameter},
		{":echo", "", via.ErrInvalidParameter},
		{"beta:" + strings.Repeat("x", via.MaxDiscriminator+1), "", via.ErrInvalidParameter},
		{"02:00:00:00:00:07:echo", "", via.ErrInvalidParameter},
	} {
		got, err := nic.Resolve(ctx, c.address)
		if !errors.Is(err, c.err) || c.err == nil && (err != nil || got.String() != c.want) {
			t.Errorf("%q: %v, %v, want %v, %v", c.address, got, err, c.want, c.err)
		}
	}
	for want, a := range map[string]via.Address{
		"alpha.test": one, "beta": two, "": {MAC: two.MAC},
	} {
		name, err := nic.HostByAddress(a)
		if name != want || (want == "") != errors.Is(err, via.ErrNameService) {
			t.Errorf("%v: %q, %v", a, name, err)
		}
	}
	should.Give(nic.HostByAddress(via.Address{MAC: one.MAC, Discriminator: "any"}))(t, "alpha.test", "a NIC by another discriminator")
	should.Refuse(nic.HostByAddress(via.Address{Discriminator: strings.Repeat("x", via.MaxDiscriminator+1)}))(t, via.ErrInvalidParameter)
	d, err := nic.Discovery()
	if err != nil || d.HopLimit != 1 || len(d.Addresses) != 3 || !d.Addresses[0].MAC.IsMulticast() || d.Addresses[2].String() != two.String() {
		t.Errorf("discovery: %+v, %v", d, err)
	}

	// A file with a mistake is not taken.
	bad := filepath.Join(t.TempDir(), "bad")
	must.OK(t, os.WriteFile(bad, []byte("02:00:00:00:00:01 alpha.test\nnonsense\n"), 0o600))
	should.Fail(t, nic.OpenNames(bad), via.ErrNameService)
	if _, err := nic.HostByName(ctx, "beta", 0); err != nil {
		t.Error(err)
	}
	write("nonsense\n")
	should.Refuse(nic.HostByName(ctx, "beta", 0))(t, via.ErrNameService, "a file that has gone bad")
	nic.CloseNames()
	should.Refuse(nic.HostByName(ctx, "beta", 0))(t, via.ErrNameService, "a name that was forgotten")
	var none context.Context
	should.Refuse(nic.HostByName(none, "beta", 0))(t, via.ErrInvalidParameter)
	must.OK(t, nic.Close())
	_, byName := nic.HostByName(ctx, "beta", 0)
	_, byAddress := nic.HostByAddress(one)
	_, discovery := nic.Discovery()
	for _, err := range []error{byName, byAddress, discovery, nic.OpenNames(path)} {
		should.Fail(t, err, via.ErrClosed, "closed")
	}
}

// TestListenTwice: a name of a NIC belongs to one listener, of whatever package, until that
// is closed. Another NIC has names of its own.
func TestListenTwice(t *testing.T) {
	n, other := openQuiet(t, "emu:?wire=mem:"+t.Name()), openQuiet(t, "emu:?wire=mem:"+t.Name())
	kinds := map[string]func(n *via.NIC, name string) (interface{ Close() error }, error){
		"via": func(n *via.NIC, name string) (interface{ Close() error }, error) {
			return via.Listen(n, name, via.ListenOptions{})
		},
		"ring": func(n *via.NIC, name string) (interface{ Close() error }, error) {
			return ring.Listen(n, name, ring.Options{})
		},
		"channel": func(n *via.NIC, name string) (interface{ Close() error }, error) {
			return channel.Listen(n, name, channel.Options{})
		},
	}
	for first, open := range kinds {
		l := must.Get(open(n, "x"))(t)
		for second, again := range kinds {
			_, err := again(n, "x")
			if !errors.Is(err, via.ErrAddressInUse) || !errors.Is(err, via.ErrResource) || !strings.Contains(err.Error(), "/x") {
				t.Errorf("%s after %s: %v", second, first, err)
			}
			for _, free := range []struct {
				n    *via.NIC
				name string
			}{{n, "y"}, {other, "x"}} {
				m, err := again(free.n, free.name)
				if err != nil {
					t.Fatalf("%s after %s: a name that is free: %v", second, first, err)
				}
				must.OK(t, m.Close())
			}
		}
		must.OK(t, l.Close())
	}
}

// TestDialWithoutDeadline: Dial gives itself a time if its context has no end.
func TestDialWithoutDeadline(t *testing.T) {
	if !soak.Wanted() {
		t.Skip("takes half a minute: run it with " + soak.Variable)
	}
	t.Parallel()
	n := openQuiet(t, "emu:?wire=mem:"+t.Name())
	began := time.Now()
	_, err := via.Dial(context.Background(), n, via.Address{MAC: via.MAC{2, 9, 9, 9, 9, 9}, Discriminator: "x"}.String(), via.ConnOptions{})
	if took := time.Since(began); !errors.Is(err, via.ErrTimeout) || took < via.DialTimeout-time.Second {
		t.Errorf("after %v: %v", took, err)
	}
	for _, part := range []string{"02:09:09:09:09:09/x", "start the other side"} {
		if err == nil || !strings.Contains(err.Error(), part) {
			t.Errorf("%v does not say %q", err, part)
		}
	}
}
