package vfiouser_test

import (
	"context"
	"encoding/binary"
	"errors"
	"io"
	"log/slog"
	"net"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/trapeze-nic/trapeze/ci/kit/must"
	"github.com/trapeze-nic/trapeze/ci/kit/should"
	"github.com/trapeze-nic/trapeze/vfio"
	"github.com/trapeze-nic/trapeze/vfio/vfiouser"
)

// FuzzServer sends a stream of bytes to a server, behind a good VERSION, and
// every now and then a descriptor of memory or an eventfd with it. Whatever
// comes, the server lives, and the next client finds a device that works.
func FuzzServer(f *testing.F) {
	path := filepath.Join(f.TempDir(), "nic.sock")
	l := must.Get(vfiouser.Listen(path, 0o600))(f)
	dev := newCopier(f)
	ctx, cancel := context.WithCancel(context.Background())
	var server sync.WaitGroup
	server.Go(func() {
		o := vfiouser.ServerOptions{Logger: slog.New(slog.DiscardHandler), BusyTimeout: timeout}
		should.OK(f, vfiouser.Serve(ctx, l, dev, o))
	})
	f.Cleanup(func() {
		cancel()
		server.Wait()
	})
	mem, event := memfd(f, 16*page, unix.MFD_ALLOW_SEALING), eventfd(f, 0, unix.EFD_NONBLOCK)
	f.Fuzz(func(t *testing.T, stream []byte, fds uint8) {
		x := &rawClient{t: t, c: dialFuzz(t, path)}
		x.ok(cmdVersion, pack(uint16(0), uint16(0), versionText))
		// Messages are sent one by one, so that descriptors go with some.
		done := make(chan struct{})
		go func() {
			defer close(done)
			_, _ = io.Copy(io.Discard, x.c) // replies of any kind
		}()
		for i := 0; len(stream) > 0; i++ {
			n := len(stream)
			if n >= 8 {
				n = min(n, max(16, int(binary.LittleEndian.Uint32(stream[4:])&0xfffff)))
			}
			var with []int
			switch fds >> (2 * (i % 4)) & 3 {
			case 1:
				with = []int{mem}
			case 2:
				with = []int{event}
			case 3:
				with = []int{event, event}
			}
			if x.write(stream[:n], with...) != nil {
				break
			}
			stream = stream[n:]
		}
		err := x.c.CloseWrite()
		should.Hold(t, err == nil || errors.Is(err, unix.ENOTCONN), "%v", err)
		<-done
		should.OK(t, x.c.Close())
		next := &rawClient{t: t, c: dialFuzz(t, path)}
		next.ok(cmdVersion, pack(uint16(0), uint16(0), versionText))
		next.alive()
		should.OK(t, next.c.Close())
	})
}

func dialFuzz(t *testing.T, path string) *net.UnixConn {
	return must.Get(net.DialUnix("unix", nil, &net.UnixAddr{Name: path, Net: "unix"}))(t)
}

// FuzzClient is a server whose replies are made of fuzz: their headers fit, what
// follows does not. After each reply comes what is left, as another message.
func FuzzClient(f *testing.F) {
	f.Fuzz(func(t *testing.T, fuzz []byte, plan uint64) {
		here, there := socketPair(t)
		var server sync.WaitGroup
		server.Go(func() {
			defer here.Close()
			fuzzServer(here, fuzz, plan)
		})
		defer server.Wait()
		d, err := vfiouser.New(t.Context(), there, vfiouser.ClientOptions{Timeout: 10 * time.Millisecond})
		if err != nil {
			var e *vfio.Error
			should.Hold(t, d == nil && errors.As(err, &e), "untyped error %v", err)
			return
		}
		var b [16]byte
		for index := range d.Info().Regions {
			if _, err := d.Region(index); err != nil {
				t.Error(err)
			}
			_ = d.ReadRegion(index, 0, b[:])
			_ = d.WriteRegion(index, 0, b[:4])
			if m, err := d.MapRegion(index, 0, page); err == nil {
				m.Bytes()[0]++
				should.OK(t, m.Close())
			}
		}
		_ = d.DisableIRQs(vfio.IRQMSIX)
		_ = d.Reset(t.Context())
		should.OK(t, d.Close())
	})
}

// fuzzServer answers requests: right as long as the bit of plan says so, with
// bytes of fuzz otherwise.
func fuzzServer(c *net.UnixConn, fuzz []byte, plan uint64) {
	take := func(n int) []byte {
		n = min(n, len(fuzz))
		b := fuzz[:n]
		fuzz = fuzz[n:]
		return b
	}
	h := make([]byte, 16)
	for ; ; plan >>= 1 {
		if _, err := io.ReadFull(c, h); err != nil {
			return
		}
		p := make([]byte, (binary.LittleEndian.Uint32(h[4:])-16)&0xfffff)
		if _, err := io.ReadFull(c, p); err != nil {
			return
		}
		command := binary.LittleEndian.Uint16(h[2:])
		if binary.LittleEndian.Uint32(h[8:])&flagReply != 0 {
			continue // to fuzz that looked like a command of ours
		}
		out := usualReply(int(command), p)
		if plan&1 != 0 && len(fuzz) > 0 {
			out = take(int(fuzz[0]))
		}
		h = append(pack(binary.LittleEndian.Uint16(h), command, uint32(16+len(out)), uint32(flagReply), uint32(0)), out...)
		if plan&2 != 0 {
			h = append(h, take(40)...)
		}
		if _, err := c.Write(h); err != nil {
			return
		}
		h = h[:16]
	}
}

// usualReply is the payload that an honest server sends.
func usualReply(command int, p []byte) []byte {
	index := 0
	if len(p) >= 12 {
		index = int(binary.LittleEndian.Uint32(p[8:]))
	}
	switch command {
	case cmdVersion:
		return pack(uint16(0), uint16(0), `{"capabilities":{"max_msg_fds":8}}`+"\x00")
	case cmdGetInfo:
		return pack(16, 3, 9, 5)
	case cmdGetRegionInfo:
		return pack(32, 3, index, 0, uint64(page), uint64(0))
	case cmdGetRegionIOFDs:
		return pack(16, 0, index, 0)
	case cmdGetIRQInfo:
		return pack(16, 1, index, 4)
	case cmdRegionRead:
		return append(append([]byte(nil), p...), make([]byte, 16)...)
	case cmdRegionWrite:
		return p[:16]
	}
	return nil
}
