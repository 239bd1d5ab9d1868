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

	"github.com/trapeze-nic/trapeze/ci/kit/leaktest"
	"github.com/trapeze-nic/trapeze/ci/kit/must"
	"github.com/trapeze-nic/trapeze/ci/kit/should"
	"github.com/trapeze-nic/trapeze/ci/kit/waittest"
	"github.com/trapeze-nic/trapeze/descriptors"
	"github.com/trapeze-nic/trapeze/driver"
	"github.com/trapeze-nic/trapeze/emulator"
	"github.com/trapeze-nic/trapeze/internal/datasheet"
	"github.com/trapeze-nic/trapeze/vfio"
	"github.com/trapeze-nic/trapeze/vfio/vfiouser"
)

// stallingNIC is an emulated NIC whose server stalls: from some request on, it
// answers none until the test lets it. Nothing of the NIC is mapped, so that each
// access is a request.
type stallingNIC struct {
	vfiouser.ServedDevice
	*vfiouser.Server
	path string

	mu      sync.Mutex
	seen    int           // requests
	left    int           // requests until it stalls
	stalled chan struct{} // closed when it has
	resumed chan struct{} // closed when it may go on
	renewed uint64        // clients that are gone
}

// never is more requests than a test makes.
const never = 1 << 30

// stall has the server stall after so many requests.
func (m *stallingNIC) stall(after int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.left, m.stalled, m.resumed = after, make(chan struct{}), make(chan struct{})
}

// resume makes the server answer again, and waits until nothing is left of its
// client. It returns how many requests came while the server was stalled.
func (m *stallingNIC) resume(t *testing.T) int {
	t.Helper()
	m.mu.Lock()
	before := m.seen
	m.left = never
	close(m.resumed)
	m.mu.Unlock()
	waittest.Until(t, "the client is gone", func() bool {
		m.mu.Lock()
		defer m.mu.Unlock()
		return m.renewed == m.Stats().Clients
	})
	return m.seen - before
}

func (m *stallingNIC) Renew(ctx context.Context) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.renewed++
	return m.ServedDevice.Renew(ctx)
}

func (m *stallingNIC) request() {
	m.mu.Lock()
	m.seen++
	m.left--
	stalled, resumed, wait := m.stalled, m.resumed, m.left < 0
	if m.left == -1 {
		close(stalled)
	}
	m.mu.Unlock()
	if wait {
		<-resumed
	}
}

func (m *stallingNIC) Region(index int) (vfio.RegionInfo, error) {
	info, err := m.ServedDevice.Region(index)
	info.Flags &^= vfio.RegionMmap
	return info, err
}

func (m *stallingNIC) ReadRegion(index int, offset uint64, p []byte) error {
	m.request()
	return m.ServedDevice.ReadRegion(index, offset, p)
}

func (m *stallingNIC) WriteRegion(index int, offset uint64, p []byte) error {
	m.request()
	return m.ServedDevice.WriteRegion(index, offset, p)
}

func (m *stallingNIC) SetIRQs(index, start int, eventfds []int) error {
	m.request()
	return m.ServedDevice.SetIRQs(index, start, eventfds)
}

func (m *stallingNIC) MapWindow(iova uint64, window []byte, flags vfio.DMAFlags) error {
	m.request()
	return m.ServedDevice.MapWindow(iova, window, flags)
}

// serveStalling serves such a NIC.
func serveStalling(t *testing.T) *stallingNIC {
	t.Helper()
	leaktest.Check(t)
	nics := must.Get(emulator.Fleet(t.Context(), "emu:", []string{"a", "b"}))(t)
	m := &stallingNIC{ServedDevice: nics[0], path: filepath.Join(t.TempDir(), "nic"), left: never}
	m.Server = must.Get(vfiouser.NewServer(m, quiet))(t)
	l := must.Get(vfiouser.Listen(m.path, 0o600))(t)
	ctx, cancel := context.WithCancel(context.Background())
	var serving sync.WaitGroup
	serving.Go(func() {
		should.OK(t, m.Serve(ctx, l))
	})
	t.Cleanup(func() {
		cancel()
		serving.Wait()
		for _, d := range nics {
			should.OK(t, d.Close())
		}
	})
	return m
}

// open opens the NIC.
func (m *stallingNIC) open(ctx context.Context, timeout time.Duration) (*driver.NIC, error) {
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
	case <-time.After(timeout):
		t.Fatalf("%s does not return", what)
		return nil
	}
}

// Time-outs: one that passes in each test, and one that passes in none.
const (
	short   = 300 * time.Millisecond
	forEver = 10 * time.Minute
)

// TestStallWhileOpening: a server stalls at one request after the other. The
// client makes no more, and does not wait once its context has ended.
func TestStallWhileOpening(t *testing.T) {
	leaktest.Parallel(t)
	m := serveStalling(t)
	n := must.Get(m.open(t.Context(), forEver))(t)
	m.mu.Lock()
	requests := m.seen
	m.mu.Unlock()
	must.OK(t, n.Close())
	for after := 0; after < requests; after += 1 + requests/6 {
		m.stall(after)
		err := inTime(t, "Open", func() error {
			_, err := m.open(t.Context(), 100*time.Millisecond)
			return err
		})
		should.Hold(t, errors.Is(err, vfio.ErrDeviceGone) && errors.Is(err, os.ErrDeadlineExceeded), "after %d requests: %v", after, err)
		should.Be(t, m.resume(t), 0, "requests follow the one that has no answer, number %d", after)
	}
	for after := 0; after < requests; after += 1 + requests/6 {
		m.stall(after)
		ctx, cancel := context.WithCancel(t.Context())
		go func() { <-m.stalled; cancel() }()
		should.Fail(t, inTime(t, "Open", func() error {
			_, err := m.open(ctx, forEver)
			return err
		}), context.Canceled, "canceled after %d requests", after)
		m.resume(t)
		cancel()
	}
}

// openNIC is an open NIC whose server stalls.
type openNIC struct {
	*stallingNIC
	n *driver.NIC
	v *driver.VI
	d *descriptors.Descriptor
}

// openStalled opens the NIC, with a receive posted if there is to be one, and has its server stall. It
// tries again where a busy machine takes longer for a request than it may.
func openStalled(t *testing.T, timeout time.Duration, posted bool) *openNIC {
	t.Helper()
	s := &openNIC{stallingNIC: serveStalling(t)}
	waittest.Until(t, "the NIC is open", func() bool {
		err := s.set(t.Context(), timeout)
		if err == nil && posted {
			err = s.v.PostRecv(s.d)
		}
		if err != nil && s.n != nil {
			_ = s.n.Close()
		}
		return err == nil
	})
	s.stall(0)
	return s
}

func (s *openNIC) set(ctx context.Context, timeout time.Duration) (err error) {
	if s.n, err = s.open(ctx, timeout); err != nil {
		return err
	}
	ptag, err := s.n.CreatePtag(ctx)
	if err != nil {
		return err
	}
	m, err := s.n.Alloc(ctx, 4096, driver.MemoryAttributes{Ptag: ptag})
	if err != nil {
		return err
	}
	a := driver.VIAttributes{Reliability: datasheet.Unreliable, MaxTransfer: 4096, Ptag: ptag, SendDepth: 4, RecvDepth: 4}
	if s.v, err = s.n.CreateVI(ctx, a, nil, nil); err != nil {
		return err
	}
	if s.d, err = descriptors.NewDescriptor(m.Bytes()[:descriptors.DescriptorBytes(1)], m.Address(), m.Handle()); err != nil {
		return err
	}
	s.d.Prepare()
	return nil
}

// close closes the NIC while its server is stalled.
func (s *openNIC) close(t *testing.T) {
	t.Helper()
	should.OK(t, inTime(t, "Close", s.n.Close))
	s.resume(t)
}

// TestStallLater: a server stalls once the NIC is open. The first request
// without answer is the last one, whatever it is for.
func TestStallLater(t *testing.T) {
	leaktest.Parallel(t)
	for name, do := range map[string]func(s *openNIC, ctx context.Context) error{
		"command": func(s *openNIC, ctx context.Context) error { _, err := s.n.CreatePtag(ctx); return err },
		"DMA map": func(s *openNIC, ctx context.Context) error {
			_, err := s.n.Alloc(ctx, 4096, driver.MemoryAttributes{})
			return err
		},
		"connection": func(s *openNIC, ctx context.Context) error {
			_, err := s.n.ConnectWait(ctx, "x")
			return err
		},
		"wait":     func(s *openNIC, ctx context.Context) error { _, err := s.v.RecvWait(ctx); return err },
		"health":   func(s *openNIC, ctx context.Context) error { _, err := s.n.Health(ctx); return err },
		"doorbell": func(s *openNIC, _ context.Context) error { return s.v.PostRecv(s.d) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := openStalled(t, short, name == "wait")
			for range 2 {
				should.Fail(t, inTime(t, name, func() error { return do(s, t.Context()) }), vfio.ErrDeviceGone)
			}
			s.close(t)
		})
		if name == "doorbell" {
			continue // it takes no context
		}
		t.Run(name+" canceled", func(t *testing.T) {
			t.Parallel()
			s := openStalled(t, forEver, name == "wait")
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			go func() { <-s.stalled; cancel() }()
			should.Fail(t, inTime(t, name, func() error { return do(s, ctx) }), context.Canceled)
			s.close(t)
		})
	}
	t.Run("close", func(t *testing.T) {
		t.Parallel()
		openStalled(t, short, false).close(t)
	})
}
