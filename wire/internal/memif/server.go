package memif

import (
	"cmp"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/trapeze-nic/trapeze/wire/internal/ends"
	"github.com/trapeze-nic/trapeze/wire/internal/memif/internal/protocol"
)

// server listens at a socket for the ports that share it. Its goroutine greets
// clients and finds out which port they want.
type server struct {
	key      string
	listener *protocol.Listener
	bell     *event
	stopped  chan struct{}

	mu    sync.Mutex
	ports map[uint32]*Port
}

// servers are the sockets of this process, by absolute path.
var servers = struct {
	mu    sync.Mutex
	known map[string]*server
}{known: map[string]*server{}}

// serve makes a port known at its socket.
func serve(p *Port) (*server, error) {
	key := p.options.Socket
	if key[0] != '@' {
		if absolute, err := filepath.Abs(key); err == nil {
			key = absolute
		}
	}
	servers.mu.Lock()
	defer servers.mu.Unlock()
	v := servers.known[key]
	if v == nil {
		listener, err := protocol.Listen(p.options.Socket)
		if err != nil {
			return nil, p.fail("listen", "", err, hintForSocket(err))
		}
		bell, err := newEvent()
		if err != nil {
			return nil, p.fail("listen", "", errors.Join(err, listener.Close()), "check ulimit -n")
		}
		v = &server{key: key, listener: listener, bell: bell, stopped: make(chan struct{}),
			ports: map[uint32]*Port{p.options.ID: p}}
		servers.known[key] = v
		go v.run()
		return v, nil
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.ports[p.options.ID] != nil {
		return nil, fmt.Errorf("%w: memif ID %d: this process has such a port at %s", ends.ErrOptions, p.options.ID, p.options.Socket)
	}
	v.ports[p.options.ID] = p
	return v, nil
}

func hintForSocket(err error) string {
	switch {
	case errors.Is(err, unix.EADDRINUSE):
		return "choose another socket, or stop what uses this one"
	case errors.Is(err, unix.ENOENT), errors.Is(err, unix.EACCES), errors.Is(err, unix.EROFS):
		return "the folder of the socket must be there and writable"
	}
	return ""
}

// leave forgets a port. With the last one the socket goes.
func (v *server) leave(p *Port) error {
	servers.mu.Lock()
	defer servers.mu.Unlock()
	v.mu.Lock()
	delete(v.ports, p.options.ID)
	empty := len(v.ports) == 0
	v.mu.Unlock()
	if !empty {
		return nil
	}
	delete(servers.known, v.key)
	v.bell.signal()
	<-v.stopped
	v.bell.close()
	if err := v.listener.Close(); err != nil {
		return p.fail("close", "", err, "")
	}
	return nil
}

// all returns the ports by ID; none if the server is to end.
func (v *server) all() []*Port {
	v.mu.Lock()
	defer v.mu.Unlock()
	var all []*Port
	for _, p := range v.ports {
		all = append(all, p)
	}
	slices.SortFunc(all, func(a, b *Port) int { return cmp.Compare(a.options.ID, b.options.ID) })
	return all
}
