package virtio_test

import (
	"encoding/binary"
	"errors"
	"fmt"
	"maps"
	"net"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/trapeze-nic/trapeze/ci/kit/must"
	"github.com/trapeze-nic/trapeze/ci/kit/should"
	"github.com/trapeze-nic/trapeze/ci/kit/virtqueuetest"
)

// Requests of vhost-user.
const (
	reqGetFeatures  = 1
	reqSetFeatures  = 2
	reqSetOwner     = 3
	reqSetMemTable  = 5
	reqSetNum       = 8
	reqSetAddr      = 9
	reqGetBase      = 11
	reqSetKick      = 12
	reqSetCall      = 13
	reqGetProtocol  = 15
	reqSetProtocol  = 16
	reqGetQueueNum  = 17
	reqEnable       = 18
	reqGetConfig    = 24
	reqSetStatus    = 39
	reqGetStatus    = 40
	headerLength    = 12 // of frames, and of messages
	defaultFeatures = 1<<15 | 1<<29 | 1<<30 | 1<<32 | 1<<34
	defaultProtocol = 1<<0 | 1<<3 | 1<<16
)

// fakeBack is a back end of vhost-user in this process. It sends back what it gets, unless it
// is told otherwise. Fields are set before serve.
type fakeBack struct {
	t                  testing.TB
	path               string
	features, protocol uint64
	pairs              uint64
	// reply changes the reply to a request; nil means none.
	reply func(c *net.UnixConn, request uint32, reply []byte) []byte
	// use changes what the driver is told of a buffer of a queue that was used.
	use func(queue int, b virtqueuetest.Buffer, length uint32) (virtqueuetest.Buffer, uint32)
	// header changes what stands before a frame to the driver.
	header func(h []byte)
	// idle leaves a queue alone.
	idle func(queue int) bool
	// call says whether to signal an interrupt, given whether the driver wants one.
	call func(wanted bool) bool

	// config is the configuration, for protocol feature 9.
	config [17]byte
	// still: it shall neither read messages nor move frames, as a process that is stopped.
	// stands: it does not.
	still, stands atomic.Bool

	listener *net.UnixListener
	done     sync.WaitGroup

	mu     sync.Mutex
	conn   *net.UnixConn // guarded by mu
	status uint64
	agreed uint64
	table  []fakeRegion
	queues map[int]*fakeQueue
	broken error // what the driver did wrong
}

type fakeRegion struct {
	bus  uint64
	data []byte
}

type fakeQueue struct {
	size       uint32
	addresses  [3]uint64 // descriptor, device, driver
	kick, call int
	enabled    bool
	side       virtqueuetest.Queue
	held       []virtqueuetest.Buffer // buffers of a receive queue
}

// newBack makes a back end that does not listen yet.
func newBack(t testing.TB) *fakeBack {
	t.Helper()
	dir := must.Get(os.MkdirTemp("", "virtio"))(t)
	b := &fakeBack{t: t, path: filepath.Join(dir, "s"), features: defaultFeatures, protocol: defaultProtocol, pairs: 2, queues: map[int]*fakeQueue{}}
	t.Cleanup(func() {
		b.stop()
		os.RemoveAll(dir)
		should.OK(t, b.broken)
	})
	return b
}

func (b *fakeBack) address() string { return "vhost-user:" + b.path }

// serve begins to listen.
func (b *fakeBack) serve() *fakeBack {
	b.t.Helper()
	l := must.Get(net.ListenUnix("unix", &net.UnixAddr{Name: b.path, Net: "unix"}))(b.t)
	b.listener = l
	b.done.Go(func() {
		for {
			c, err := l.AcceptUnix()
			if err != nil {
				return
			}
			b.mu.Lock()
			b.conn = c
			b.mu.Unlock()
			b.talk(c)
			c.Close()
			b.forget()
		}
	})
	return b
}

// stop ends the back end, as if its process had ended.
func (b *fakeBack) stop() {
	if b.listener == nil {
		return
	}
	b.listener.Close()
	b.still.Store(false)
	b.mu.Lock()
	if b.conn != nil {
		b.conn.Close()
	}
	b.mu.Unlock()
	b.done.Wait()
	b.listener = nil
}

// forget gives back what came with a connection.
func (b *fakeBack) forget() {
	for _, q := range b.queues {
		q.close()
	}
	clear(b.queues)
	for _, r := range b.table {
		_ = unix.Munmap(r.data)
	}
	b.table, b.status = nil, 0
	b.mu.Lock()
	b.conn = nil
	b.mu.Unlock()
}

func (q *fakeQueue) close() {
	for _, fd := range []int{q.kick, q.call} {
		if fd > 0 {
			_ = unix.Close(fd)
		}
	}
}

// talk takes messages, and moves frames when there are none.
func (b *fakeBack) talk(c *net.UnixConn) {
	var in []byte
	var fds []int
	buffer, rights := make([]byte, 4096), make([]byte, 256)
	defer func() {
		for _, fd := range fds {
			_ = unix.Close(fd)
		}
	}()
	for {
		for b.still.Load() {
			b.stands.Store(true)
			time.Sleep(time.Millisecond)
		}
		b.stands.Store(false)
		_ = c.SetReadDeadline(time.Now().Add(200 * time.Microsecond))
		n, control, _, _, err := c.ReadMsgUnix(buffer, rights)
		if control > 0 {
			messages, _ := unix.ParseSocketControlMessage(rights[:control])
			for i := range messages {
				got, _ := unix.ParseUnixRights(&messages[i])
				fds = append(fds, got...)
			}
		}
		in = append(in, buffer[:max(n, 0)]...)
		if err != nil && !errors.Is(err, os.ErrDeadlineExceeded) || err == nil && n == 0 {
			return
		}
		for len(in) >= headerLength {
			size := headerLength + int(binary.NativeEndian.Uint32(in[8:]))
			if len(in) < size {
				break
			}
			if !b.message(c, in[:size], &fds) {
				return
			}
			in = in[size:]
		}
		for range 20 {
			b.move()
		}
	}
}

// message does what a message asks for, and reports whether to go on.
func (b *fakeBack) message(c *net.UnixConn, m []byte, fds *[]int) bool {
	u32, u64 := binary.NativeEndian.Uint32, binary.NativeEndian.Uint64
	request, flags, p := u32(m), u32(m[4:]), m[headerLength:]
	take := func() int {
		if len(*fds) == 0 {
			return -1
		}
		fd := (*fds)[0]
		*fds = (*fds)[1:]
		return fd
	}
	var answer []byte
	number := func(v uint64) []byte { return binary.NativeEndian.AppendUint64(nil, v) }
	queue := func() *fakeQueue {
		i := int(u32(p) & 0xff)
		if b.queues[i] == nil {
			b.queues[i] = &fakeQueue{}
		}
		return b.queues[i]
	}
	switch request {
	case reqGetFeatures:
		answer = number(b.features)
	case reqGetProtocol:
		answer = number(b.protocol)
	case reqGetQueueNum:
		answer = number(b.pairs)
	case reqGetConfig:
		answer = append(slices.Clone(p[:12]), b.config[:]...)
	case reqSetFeatures:
		b.agreed = u64(p)
	case reqSetStatus:
		b.status = u64(p)
	case reqGetStatus:
		answer = number(b.status)
	case reqSetMemTable:
		for i := range u32(p) {
			r := p[8+32*i:]
			fd := take()
			data, err := unix.Mmap(fd, int64(u64(r[24:])), int(u64(r[8:])), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
			_ = unix.Close(fd)
			if err != nil {
				b.broken = fmt.Errorf("map memory: %w", err)
				return false
			}
			b.table = append(b.table, fakeRegion{u64(r), data})
		}
	case reqSetNum:
		queue().size = u32(p[4:])
	case reqSetAddr:
		queue().addresses = [3]uint64{u64(p[8:]), u64(p[16:]), u64(p[24:])}
	case reqSetKick:
		queue().kick = take()
	case reqSetCall:
		if q := queue(); p[1]&1 == 0 {
			q.call = take()
		}
	case reqEnable:
		queue().enabled = u32(p[4:]) == 1
	case reqGetBase:
		i := u32(p)
		queue().close()
		delete(b.queues, int(i))
		answer = append(binary.NativeEndian.AppendUint32(nil, i), 0, 0, 0, 0)
	}
	if answer == nil {
		if flags&8 == 0 {
			return true
		}
		answer = number(0)
	}
	out := binary.NativeEndian.AppendUint32(nil, request)
	out = binary.NativeEndian.AppendUint32(out, 1|4)
	out = binary.NativeEndian.AppendUint32(out, uint32(len(answer)))
	out = append(out, answer...)
	if b.reply != nil {
		out = b.reply(c, request, out)
	}
	_, err := c.Write(out)
	return err == nil
}

// find returns n bytes at a bus address.
func (b *fakeBack) find(address uint64, n uint32) ([]byte, error) {
	for _, r := range b.table {
		if at := address - r.bus; address >= r.bus && at <= uint64(len(r.data)) && uint64(n) <= uint64(len(r.data))-at {
			return r.data[at:][:n], nil
		}
	}
	return nil, fmt.Errorf("%d bytes at %#x are not shared", n, address)
}

// move moves frames from send queues to the receive queues of their pairs.
func (b *fakeBack) move() {
	for _, i := range slices.Sorted(maps.Keys(b.queues)) {
		q := b.queues[i]
		if !q.enabled || b.status&4 == 0 {
			continue
		}
		if q.side == nil {
			q.side = b.newSide(q)
			q.side.Notifications(false)
		}
		if i%2 == 0 || b.queues[i-1] == nil || b.queues[i-1].side == nil || b.idle != nil && b.idle(i) {
			continue
		}
		in := b.queues[i-1]
		for range 32 {
			if len(in.held) == 0 {
				room, ok, err := in.side.Next()
				if b.wrong(err) || !ok {
					break
				}
				in.held = append(in.held, room)
			}
			f, ok, err := q.side.Next()
			if b.wrong(err) || !ok {
				break
			}
			room := in.held[0]
			in.held = in.held[1:]
			n := copy(room.Parts[0].Data, f.Parts[0].Data)
			head := room.Parts[0].Data[:headerLength]
			clear(head)
			head[10] = 1
			if b.header != nil {
				b.header(head)
			}
			b.give(i-1, in, room, uint32(n))
			b.give(i, q, f, 0)
		}
		for _, q := range []*fakeQueue{in, q} {
			wanted := q.side.Flush()
			if b.call != nil {
				wanted = b.call(wanted)
			}
			if wanted && q.call > 0 {
				_, _ = unix.Write(q.call, []byte{1, 0, 0, 0, 0, 0, 0, 0})
			}
		}
	}
}

func (b *fakeBack) give(i int, q *fakeQueue, buffer virtqueuetest.Buffer, length uint32) {
	if b.use != nil {
		buffer, length = b.use(i, buffer, length)
	}
	q.side.Use(buffer, length)
}

// wrong notes what the driver did wrong.
func (b *fakeBack) wrong(err error) bool {
	if err != nil && b.broken == nil {
		b.broken = err
	}
	return err != nil
}

func (b *fakeBack) newSide(q *fakeQueue) virtqueuetest.Queue {
	packed := b.agreed&(1<<34) != 0
	sizes := [3]uint32{16 * q.size, 8*q.size + 8, 2*q.size + 8}
	if packed {
		sizes[1], sizes[2] = 4, 4
	}
	var areas [3][]byte
	for i := range areas {
		var err error
		areas[i], err = b.find(q.addresses[i], sizes[i])
		if b.wrong(err) {
			areas[i] = make([]byte, sizes[i])
		}
	}
	return virtqueuetest.New(packed, int(q.size), b.agreed&(1<<29) != 0, virtqueuetest.Areas{Descriptor: areas[0], Device: areas[1], Driver: areas[2]}, b.find)
}
