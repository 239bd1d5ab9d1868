package via_test

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/trapeze-nic/trapeze/conform"
	"github.com/trapeze-nic/trapeze/via"
)

func TestFileNames(t *testing.T) {
	conform.NameService(t, func(t *testing.T) conform.NameServiceEnds {
		folder := t.TempDir()
		link := filepath.Join(t.TempDir(), "link")
		if err := os.Symlink(folder, link); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(folder, "hosts"), []byte("02:00:00:00:00:09 fixed # leased to nobody\n"), 0o600); err != nil {
			t.Fatal(err)
		}
		return conform.NameServiceEnds{
			One: via.FileNames(filepath.Join(link, "hosts")), Other: via.FileNames(filepath.Join(folder, "hosts")),
			Cut: func() {
				if err := os.Remove(link); err != nil {
					t.Error(err)
				}
			},
		}
	})
}

// TestFileNamesKeepsLines: lines that a person has written stay, and leases that have run out go.
func TestFileNamesKeepsLines(t *testing.T) {
	path := filepath.Join(t.TempDir(), "hosts")
	const mine = "# who is where\n02:00:00:00:00:09 fixed # leased to nobody\n"
	if err := os.WriteFile(path, []byte(mine+"02:00:00:00:00:08 fixed # leased 1000 1\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	s := via.FileNames(path)
	a := via.Address{MAC: via.MAC{2, 0, 0, 0, 0, 1}}
	p, err := s.Publish(t.Context(), "fixed", a, via.MostLease)
	if err != nil {
		t.Fatal(err)
	}
	got, err := s.Resolve(t.Context(), "fixed")
	if err != nil || !slices.Equal(got, []via.Address{{MAC: via.MAC{2, 0, 0, 0, 0, 9}}, a}) {
		t.Errorf("%v, %v", got, err)
	}
	if err := p.Withdraw(); err != nil {
		t.Error(err)
	}
	text, err := os.ReadFile(path)
	if err != nil || string(text) != mine {
		t.Errorf("%q, %v", text, err)
	}
}

func TestDNSNames(t *testing.T) {
	s := via.DNSNames(serveTXT(t, map[string][]string{"gamma.test.": {"via=02:00:00:00:00:08"}}))
	if p, err := s.Publish(t.Context(), "x", via.Address{}, via.LeastLease); p != nil || !errors.Is(err, errors.ErrUnsupported) || !errors.Is(err, via.ErrNameService) {
		t.Errorf("%v, %v", p, err)
	}
	if got, err := s.Resolve(t.Context(), "missing.test"); got != nil || err != nil {
		t.Errorf("%v, %v", got, err)
	}
	ctx := conform.Context(t)
	told := make(chan []via.Address, 1)
	go func() { _ = s.Watch(ctx, "gamma.test", func(list []via.Address) { told <- list }) }()
	select {
	case list := <-told:
		if len(list) != 1 || list[0].String() != "02:00:00:00:00:08" {
			t.Error(list)
		}
	case <-ctx.Done():
		t.Error("Watch tells nothing")
	}
}

// TestDialByService: a listener publishes its address, and a program dials it by its name.
func TestDialByService(t *testing.T) {
	ctx := conform.Context(t)
	server, client := conform.OnMemory(t, "", via.Options{})
	l, err := via.Listen(server, "blocks", via.ListenOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	names := via.FileNames(filepath.Join(t.TempDir(), "hosts"))
	client.UseNames(names)
	if _, err := via.Dial(ctx, client, "cache", via.ConnOptions{}); !errors.Is(err, via.ErrNameService) || !strings.Contains(err.Error(), "publish") {
		t.Errorf("nobody has the name: %v", err)
	}
	p, err := names.Publish(ctx, "cache", l.Address(), via.LeastLease)
	if err != nil {
		t.Fatal(err)
	}
	defer p.Withdraw()
	for _, address := range []string{"cache", "cache:blocks"} {
		out, err := via.Dial(ctx, client, address, via.ConnOptions{})
		if err != nil {
			t.Fatal(err)
		}
		if err := out.Send(ctx, []byte("hello")); err != nil {
			t.Error(err)
		}
		in, err := l.Accept(ctx)
		if err != nil {
			t.Fatal(err)
		}
		if m, err := in.Receive(ctx); err != nil || string(m) != "hello" {
			t.Errorf("%q, %v", m, err)
		}
		out.Close()
		in.Close()
	}
}
