package telemetry

import (
	"context"
	"errors"
	"net"
	"os"
	"path/filepath"
	"regexp"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/trapeze-nic/trapeze/internal/passedfd"
	"github.com/trapeze-nic/trapeze/internal/runtimedir"
	"github.com/trapeze-nic/trapeze/internal/unixsocket"
)

const (
	// maxClients bounds the clients at a time, as by DPDK.
	maxClients = 10
	// maxSockets bounds the search for a name that is free.
	maxSockets = 1024
	// maxOutput is the longest answer in bytes. DPDK has 16 KiB, and clients take what the
	// greeting says.
	maxOutput = 64 << 10
	// maxInput is the longest request that is read, and maxCommand the longest command in it
	// (DPDK's MAX_CMD_LEN).
	maxInput, maxCommand = 1024, 56
	// readTimeout bounds how long a client may say nothing, writeTimeout how long it may leave
	// an answer unread, runTimeout how long a device may take.
	readTimeout, writeTimeout, runTimeout = 5 * time.Minute, time.Second, 2 * time.Second
)

// server serves the sources of a registry to clients at a socket.
type server struct {
	registry *registry
	prefix   string
	listener *unixsocket.Listener
	greeting greeting
	serving  sync.WaitGroup
	places   chan struct{} // one taken for each client

	ctx  context.Context // ends with the server
	stop context.CancelFunc
}

// greeting is the first packet to a client, and what /info answers.
type greeting struct {
	Version   string `json:"version"`
	PID       int    `json:"pid"`
	MaxOutput int    `json:"max_output_len"`
	// Program and UID are ours: clients of DPDK pass over them.
	Program string `json:"program,omitempty"`
	UID     int    `json:"uid"`
}

// Project begins the version that a process of ours says; other programs say others.
const (
	Project = "Trapeze"
	Version = Project + " 0.1.0"
)

// listen serves at the first name of a prefix that is free.
func listen(r *registry, prefix string) (*server, error) {
	ctx, stop := context.WithCancel(context.Background())
	s := &server{registry: r, prefix: prefix, places: make(chan struct{}, maxClients), ctx: ctx, stop: stop,
		greeting: greeting{Version, os.Getpid(), maxOutput, programName(), os.Geteuid()}}
	err := runtimedir.Use(func(folder string) error {
		// Those of programs that were killed would stay as long as no other takes their place.
		err := unixsocket.RemoveDead(ctx, "unixpacket", folder, socketName)
		for i := range maxSockets {
			if err != nil && !errors.Is(err, unix.EADDRINUSE) {
				break
			}
			if s.listener, err = unixsocket.Listen(ctx, "unixpacket", numbered(folder, i), 0o600); err == nil {
				break
			}
		}
		return err
	}, folderName, prefix)
	if err != nil {
		stop()
		return nil, err
	}
	s.serving.Go(s.accept)
	return s, nil
}

// words are first arguments that are the command of a program, and no secret.
var words = regexp.MustCompile(`^[a-z][a-z-]{1,15}$`)

// programName is the name of this program, with its command if it has one.
func programName() string {
	name := filepath.Base(os.Args[0])
	if len(os.Args) > 1 && words.MatchString(os.Args[1]) {
		name += " " + os.Args[1]
	}
	return name
}

// close ends the server, and returns when all that it has started has ended.
func (s *server) close() {
	s.stop()
	_ = s.listener.Close() // the path is gone, or the next server takes it
	runtimedir.Remove(folderName, s.prefix)
	s.serving.Wait()
}

func (s *server) accept() {
	_ = s.listener.Each(s.ctx, func(accepted *net.UnixConn) {
		c := unixsocket.NewConn(accepted)
		select {
		case s.places <- struct{}{}:
			s.serving.Go(func() { s.serve(c) })
		default:
			c.Leave()
		}
	}, nil)
}

// serve answers a client until it leaves, says nothing for too long, does not read its answers, or
// sends what cannot be a request.
func (s *server) serve(c *unixsocket.Conn) {
	defer func() { <-s.places }()
	defer c.Leave()
	defer context.AfterFunc(s.ctx, func() { c.Interrupt(true) })()
	if !s.write(c, encode(s.greeting), nil) {
		return
	}
	giveBack := func() {}
	defer func() { giveBack() }()
	request := make([]byte, maxInput)
	for {
		n, fds, cut, err := c.Receive(request, time.Now().Add(readTimeout))
		if err != nil || n == 0 || cut || len(fds) > 0 {
			_ = passedfd.Close(fds...)
			return
		}
		packet, loan := s.registry.answer(s.ctx, string(request[:n]), s.greeting)
		if loan != nil {
			giveBack()
			giveBack = loan.End
		}
		if !s.write(c, packet, loan) {
			return
		}
	}
}

// write sends a packet, with the descriptor of what is lent, and reports whether the client has
// taken it.
func (s *server) write(c *unixsocket.Conn, packet []byte, loan *Loan) bool {
	var fds []int
	if loan != nil {
		fds = []int{loan.FD}
	}
	return c.Send(packet, time.Now().Add(writeTimeout), fds...) == nil
}
