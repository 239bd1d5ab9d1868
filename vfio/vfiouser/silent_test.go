package vfiouser_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/trapeze-nic/trapeze/descriptors"
	"github.com/trapeze-nic/trapeze/driver"
	"github.com/trapeze-nic/trapeze/emulator"
	"github.com/trapeze-nic/trapeze/vfio"
	"github.com/trapeze-nic/trapeze/vfio/vfiouser"
)

// mute is an emulated NIC in front of which its server falls silent: from some
// request on, none is answered until the test lets it. Nothing of it is mapped, so
// that each access is a request.
type mute struct {
	vfiouser.ServedDevice
	*vfiouser.Server
	path string

	mu      sync.Mutex
	seen    int           // requests
	left    int           // requests until it falls silent
	asked   chan struct{} // closed when it has
	talk    chan struct{} // closed when it may go on
	renewed uint64        // clients that are gone
}

// never is more requests than a test makes.
const never = 1 << 30

// silence has the server fall silent after so many requests.
func (m *mute) silence(after int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.left, m.asked, m.talk = after, make(chan struct{}), make(chan struct{})
}

// release has it talk again, and waits until nothing is left of its client. It
// returns how many requests came while it was silent.
func (m *mute) release(t *testing.T) int {
	t.Helper()
	m.mu.Lock()
	before := m.seen
	m.left = never
	close(m.talk)
	m.mu.Unlock()
	eventually(t, "the client is gone", func() bool {
		m.mu.Lock()
		defer m.mu.Unlock()
		return m.renewed == m.Stats().Clients
	})
	return m.seen - before
}

func (m *mute) Renew(ctx context.Context) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.renewed++
	return m.ServedDevice.Renew(ctx)
}

func (m *mute) request() {
	m.mu.Lock()
	m.seen++
	m.left--
	asked, talk, silent := m.asked, m.talk, m.left < 0
	if m.left == -1 {
		close(asked)
	}
	m.mu.Unlock()
	if silent {
		<-talk
	}
}

func (m *mute) Region(index int) (vfio.RegionInfo, error) {
	info, err := m.ServedDevice.Region(index)
	info.Flags &^= vfio.RegionMmap
	return info, err
}

func (m *mute) ReadRegion(index int, offset uint64, p []byte) error {
	m.request()
	return m.ServedDevice.ReadRegion(index, offset, p)
}

func (m *mute) WriteRegion(index int, offset uint64, p []byte) error {
	m.request()
	return m.ServedDevice.WriteRegion(index, offset, p)
}

func (m *mute) SetIRQs(index, start int, eventfds []int) error {
	m.request()
	return m.ServedDevice.SetIRQs(index, start, eventfds)
}

func (m *mute) MapWindow(iova uint64, window []byte, flags vfio.DMAFlags) error {
	m.request()
	return m.ServedDevice.MapWindow(iova, window, flags)
}

// serveMute serves such a NIC.
func serveMute(t *testing.T) *mute {
	t.Helper()
	checkLeaks(t)
	nics, err := emulator.Fleet(t.Context(), "emu:", []string{"a", "b"})
	if err != nil {
		t.Fatal(err)
	}
	m := &mute{ServedDevice: nics[0], path: filepath.Join(t.TempDir(), "nic"), left: never}
	if m.Server, err = vfiouser.NewServer(m, quiet); err != nil {
		t.Fatal(err)
	}
	l, err := vfiouser.Listen(m.path, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	var serving sync.WaitGroup
	serving.Go(func() {
		if err := m.Serve(ctx, l); err != nil {
			t.Error(err)
		}
	})
	t.Cleanup(func() {
		cancel()
		serving.Wait()
		for _, d := range nics {
			if err := d.Close(); err != nil {
				t.Error(err)
			}
		}
	})
	return m
}

// open opens the NIC.
func (m *mute) open(ctx context.Context, timeout time.Duration) (*driver.NIC, error) {
	return driver.Open(ctx, fmt.Sprintf("vfio-user:%s?timeout=%v", m.path, timeout),
		driver.Options{Logger: slog.New(slog.DiscardHandler), CommandTimeout: short})
}

// inTime fails the test if f takes long, and returns what f does.
func inTime(t *testing.T, what string, f func() error) error {
	t.Helper()
	done := make(chan error, 1)
	go func() { done <- f() }()
	select {
	case err := <-done:
		return err
	case <-time.After(patience):
		t.Fatalf("%s does not return", what)
		return nil
	}
}

// Time-outs: one that passes in each test, and one that passes in none.
const (
	short   = 300 * time.Millisecond
	forEver = 10 * time.Minute
)

// TestSilentWhileOpening: a server falls silent at one request after the other. The
// client makes no more, and does not wait once its context has ended.
func TestSilentWhileOpening(t *testing.T) {
	m := serveMute(t)
	n, err := m.open(t.Context(), forEver)
	if err != nil {
		t.Fatal(err)
	}
	m.mu.Lock()
	requests := m.seen
	m.mu.Unlock()
	if err := n.Close(); err != nil {
		t.Fatal(err)
	}
	for after := 0; after < requests; after += 1 + requests/12 {
		m.silence(after)
		err := inTime(t, "Open", func() error {
			_, err := m.open(t.Context(), 100*time.Millisecond)
			return err
		})
		if !errors.Is(err, vfio.ErrDeviceGone) || !errors.Is(err, os.ErrDeadlineExceeded) {
			t.Errorf("after %d requests: %v", after, err)
		}
		if more := m.release(t); more != 0 {
			t.Errorf("%d requests follow the one that has no answer, number %d", more, after)
		}
	}
	for after := 0; after < requests; after += 1 + requests/12 {
		m.silence(after)
		ctx, cancel := context.WithCancel(t.Context())
		go func() { <-m.asked; cancel() }()
		err := inTime(t, "Open", func() error {
			_, err := m.open(ctx, forEver)
			return err
		})
		if !errors.Is(err, context.Canceled) {
			t.Errorf("canceled after %d requests: %v", after, err)
		}
		m.release(t)
		cancel()
	}
}

// silentNIC is an open NIC whose server falls silent.
type silentNIC struct {
	*mute
	n *driver.NIC
	v *driver.VI
	d *descriptors.Descriptor
}

// openSilent opens the NIC, and has its server fall silent. It tries again where a
// busy machine takes longer for a request than it may.
func openSilent(t *testing.T, timeout time.Duration) *silentNIC {
	t.Helper()
	s := &silentNIC{mute: serveMute(t)}
	eventually(t, "the NIC is open", func() bool {
		err := s.set(t.Context(), timeout)
		if err != nil && s.n != nil {
			_ = s.n.Close()
		}
		return err == nil
	})
	s.silence(0)
	return s
}

func (s *silentNIC) set(ctx context.Context, timeout time.Duration) (err error) {
	if s.n, err = s.open(ctx, timeout); err != nil {
		return err
	}
	ptag, err := s.n.CreatePtag(ctx)
	if err != nil {
		return err
	}
	m, err := s.n.AllocMemory(ctx, 4096, driver.MemoryAttributes{Ptag: ptag})
	if err != nil {
		return err
	}
	a := driver.VIAttributes{Reliability: descriptors.Unreliable, MaxTransfer: 4096, Ptag: ptag, SendDepth: 4, RecvDepth: 4}
	if s.v, err = s.n.CreateVI(ctx, a, nil, nil); err != nil {
		return err
	}
	if s.d, err = descriptors.NewDescriptor(m.Bytes()[:descriptors.DescriptorBytes(1)], m.Address(), m.Handle()); err != nil {
		return err
	}
	s.d.Prepare()
	return nil
}

// close closes the NIC while its server is silent.
func (s *silentNIC) close(t *testing.T) {
	t.Helper()
	if err := inTime(t, "Close", s.n.Close); err != nil {
		t.Errorf("Close: %v", err)
	}
	s.release(t)
}

// TestSilentLater: a server falls silent once the NIC is open. The first request
// without answer is the last one, whatever it is for.
func TestSilentLater(t *testing.T) {
	for name, do := range map[string]func(s *silentNIC, ctx context.Context) error{
		"command": func(s *silentNIC, ctx context.Context) error { _, err := s.n.CreatePtag(ctx); return err },
		"DMA map": func(s *silentNIC, ctx context.Context) error {
			_, err := s.n.AllocMemory(ctx, 4096, driver.MemoryAttributes{})
			return err
		},
		"connection": func(s *silentNIC, ctx context.Context) error {
			_, err := s.n.ConnectWait(ctx, []byte("x"))
			return err
		},
		"wait":     func(s *silentNIC, ctx context.Context) error { _, err := s.v.RecvWait(ctx); return err },
		"health":   func(s *silentNIC, ctx context.Context) error { _, err := s.n.Health(ctx); return err },
		"doorbell": func(s *silentNIC, _ context.Context) error { return s.v.PostRecv(s.d) },
	} {
		t.Run(name, func(t *testing.T) {
			s := openSilent(t, short)
			if name == "wait" {
				s.silence(1)
				if err := s.v.PostRecv(s.d); err != nil {
					t.Fatal(err)
				}
			}
			for range 2 {
				if err := inTime(t, name, func() error { return do(s, t.Context()) }); !errors.Is(err, vfio.ErrDeviceGone) {
					t.Errorf("got %v", err)
				}
			}
			s.close(t)
		})
		if name == "doorbell" {
			continue // it takes no context
		}
		t.Run(name+" canceled", func(t *testing.T) {
			s := openSilent(t, forEver)
			if name == "wait" {
				s.silence(1)
				if err := s.v.PostRecv(s.d); err != nil {
					t.Fatal(err)
				}
			}
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			go func() { <-s.asked; cancel() }()
			if err := inTime(t, name, func() error { return do(s, ctx) }); !errors.Is(err, context.Canceled) {
				t.Errorf("got %v", err)
			}
			s.close(t)
		})
	}
	t.Run("close", func(t *testing.T) { openSilent(t, short).close(t) })
}
