package wire

import (
	"cmp"
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"time"

	"github.com/gofrs/flock"
	"golang.org/x/sys/unix"

	"github.com/trapeze-nic/trapeze/internal/datasheet"
	"github.com/trapeze-nic/trapeze/internal/runtimedir"
	"github.com/trapeze-nic/trapeze/internal/unixsocket"
	"github.com/trapeze-nic/trapeze/wire/internal/shm"
)

// How ports meet. Each has a socket (SOCK_SEQPACKET) in the folder of the wire, which only this
// user can enter; its name is the port's address in hexadecimal digits. A port that comes
// locks the folder, makes its socket, and connects to those that are there. To each it sends
// one message of 12 bytes: hostMagic, a version, and its address. Both then make the two ends of
// a shm wire of the connection; the port that came listens.
const (
	hostMagic   = "TPZHW"
	hostVersion = 1
	hostHello   = len(hostMagic) + 1 + 6
	hostLock    = "lock" // the file that is locked
	// hostTimeout bounds the lock, and what one port waits for another.
	hostTimeout = 2 * time.Second
	// hostLinger bounds the time for which frames of a port that has gone stay.
	hostLinger = 3 * time.Second
	// hostMembers bounds the ports of a wire: each has 512 KiB in common with each other.
	hostMembers = 256
)

var hostNames = regexp.MustCompile(`^[A-Za-z0-9_][A-Za-z0-9_.-]{0,31}$`)

// Check reports what NewHost would refuse, as an error that wraps ErrOptions.
func (o HostOptions) Check() error {
	if !hostNames.MatchString(o.Name) {
		return fmt.Errorf("%w: name %q of a wire of this host: it has 1 to 32 letters, digits, dots, dashes and underscores", ErrOptions, o.Name)
	}
	return checkMTU(cmp.Or(o.MTU, shm.DefaultMTU))
}

// hostMeeting is a port's place among the others.
type hostMeeting struct {
	port     *host
	folder   string
	mac      datasheet.MAC
	listener *unixsocket.Listener
}

// Claim joins the others.
func (p *host) Claim(mac datasheet.MAC) error {
	loop, err := NewLoopback(MemoryOptions{MTU: p.Longest})
	if err != nil {
		return err
	}
	leave, err := p.join(mac)
	if err != nil {
		return err
	}
	p.mu.Lock()
	p.leave = leave
	p.mu.Unlock()
	p.add(&hostMember{Lossless: loop, mac: mac, self: true, wire: loop, mark: noMark})
	return nil
}

// meetOthers joins the ports of this user's other processes.
func (p *host) meetOthers(mac datasheet.MAC) (leave func() error, err error) {
	m := &hostMeeting{port: p, mac: mac}
	err = runtimedir.Use(func(folder string) error {
		m.folder = folder
		return m.join()
	}, "trapeze", "host", p.options.Name)
	if err != nil {
		return nil, &Error{Op: "join", Device: "host:" + p.options.Name, Err: err, Hint: "this user must be able to make files in its folder for sockets; XDG_RUNTIME_DIR names another"}
	}
	return m.close, nil
}

// socket is the path of the socket of a port.
func (m *hostMeeting) socket(mac datasheet.MAC) string {
	return filepath.Join(m.folder, hex.EncodeToString(mac[:]))
}

// join makes the port's socket, and connects to those of the others.
func (m *hostMeeting) join() error {
	ctx, cancel := context.WithTimeout(m.port.ctx, hostTimeout)
	defer cancel()
	lock, err := m.lock(ctx)
	if err != nil {
		return err
	}
	defer lock.Close()
	others, err := m.others()
	if err != nil {
		return err
	}
	if m.listener, err = unixsocket.Listen(ctx, "unixpacket", m.socket(m.mac), 0o600); err != nil {
		return err
	}
	for _, mac := range others {
		if err := m.meet(ctx, mac); err != nil {
			return errors.Join(fmt.Errorf("station %v: %w", mac, err), m.listener.Close())
		}
	}
	m.port.running.Go(func() {
		_ = m.listener.Each(m.port.ctx, func(c *net.UnixConn) { m.port.running.Go(func() { m.welcome(c) }) }, nil)
	})
	return nil
}

// lock locks the folder until the lock is closed. It fails with fs.ErrNotExist if the last port that
// has left removed the file meanwhile.
func (m *hostMeeting) lock(ctx context.Context) (*flock.Flock, error) {
	lock := flock.New(filepath.Join(m.folder, hostLock), flock.SetFlag(os.O_CREATE|os.O_RDWR|unix.O_NOFOLLOW))
	if _, err := lock.TryLockContext(ctx, 2*time.Millisecond); err != nil {
		return nil, fmt.Errorf("lock %s: %w", lock.Path(), cmp.Or(context.Cause(ctx), err))
	}
	mine, serr := lock.Stat()
	there, err := os.Lstat(lock.Path())
	if err = errors.Join(serr, err); err == nil && !os.SameFile(mine, there) {
		err = fs.ErrNotExist
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("lock %s: %w", lock.Path(), err), lock.Close())
	}
	return lock, nil
}

// others lists the addresses of the sockets in the folder.
func (m *hostMeeting) others() (macs []datasheet.MAC, err error) {
	entries, err := os.ReadDir(m.folder)
	for _, e := range entries {
		if b, err := hex.DecodeString(e.Name()); err == nil && len(b) == len(m.mac) {
			macs = append(macs, datasheet.MAC(b))
		}
	}
	if len(macs) > hostMembers {
		return nil, fmt.Errorf("%d programs share the wire, at most %d can", len(macs), hostMembers)
	}
	return macs, err
}

// meet connects to another port. One whose process has ended has left its socket behind.
func (m *hostMeeting) meet(ctx context.Context, mac datasheet.MAC) error {
	if mac == m.mac {
		return nil
	}
	var d net.Dialer
	c, err := d.DialContext(ctx, "unixpacket", m.socket(mac))
	switch {
	case errors.Is(err, unix.ECONNREFUSED):
		if err := os.Remove(m.socket(mac)); err != nil && !errors.Is(err, os.ErrNotExist) {
			return err
		}
		return nil
	case errors.Is(err, unix.ENOENT):
		return nil
	case err != nil:
		return err
	}
	hello := append(append([]byte(hostMagic), hostVersion), m.mac[:]...)
	if _, err := c.Write(hello); err != nil {
		return c.Close() // it ended just now
	}
	m.port.meet(mac)
	m.port.running.Go(func() { m.port.share(mac, c.(*net.UnixConn), shm.RoleListen) })
	return nil
}

// welcome answers a port that has come.
func (m *hostMeeting) welcome(c *net.UnixConn) {
	stop := context.AfterFunc(m.port.ctx, func() { _ = c.Close() })
	mac, err := readHello(c)
	if stop(); err != nil || mac == m.mac || m.port.has(mac) || len(*m.port.members.Load()) > hostMembers {
		m.port.refused.Add(1)
		_ = c.Close()
		return
	}
	m.port.meet(mac)
	m.port.share(mac, c, shm.RoleConnect)
}

var errHello = errors.New("not a greeting of this wire, or of another version")

// readHello reads who has come.
func readHello(c net.Conn) (mac datasheet.MAC, err error) {
	b := make([]byte, hostHello+1)
	if err := c.SetReadDeadline(time.Now().Add(hostTimeout)); err != nil {
		return mac, err
	}
	n, err := c.Read(b)
	if err != nil && !errors.Is(err, io.EOF) {
		return mac, err
	}
	if n != hostHello || string(b[:len(hostMagic)]) != hostMagic || b[len(hostMagic)] != hostVersion {
		return mac, errHello
	}
	mac = datasheet.MAC(b[len(hostMagic)+1 : n])
	if mac.IsMulticast() {
		return mac, errHello
	}
	return mac, c.SetReadDeadline(time.Time{})
}

// close ends what Claim has begun. The last one removes the folder.
func (m *hostMeeting) close() error {
	err := m.listener.Close()
	ctx, cancel := context.WithTimeout(context.Background(), hostTimeout)
	defer cancel()
	lock, lerr := m.lock(ctx)
	if lerr != nil {
		return err // another comes
	}
	if left, rerr := os.ReadDir(m.folder); rerr == nil && len(left) == 1 { // the lock
		_ = os.Remove(lock.Path())
		runtimedir.Remove("trapeze", "host", m.port.options.Name)
	}
	return errors.Join(err, lock.Close())
}

// has reports whether a station is a member.
func (p *host) has(mac datasheet.MAC) bool {
	return slices.ContainsFunc(*p.members.Load(), func(m *hostMember) bool { return m.mac == mac })
}

// noMark is the mark of members that cannot mark themselves.
const noMark = -1

// share has frames pass between this port and that of a station, in memory that both share, until either goes. The memory
// comes over a connection that it owns. Close waits for the goroutine that calls it.
func (p *host) share(mac datasheet.MAC, c *net.UnixConn, role shm.Role) {
	defer p.met(mac)
	ctx, cancel := context.WithTimeout(p.ctx, hostTimeout)
	defer cancel()
	m, o := &hostMember{mac: mac, mark: noMark}, shm.Options{Role: role, MTU: p.Longest}
	if p.marks != nil {
		if n, ok := p.marks.Draw(); ok {
			m.mark, o.Marks, o.Mark = n, p.marks, n
		}
	}
	w, err := shm.Adopt(ctx, c, o)
	if err != nil {
		p.refused.Add(1)
		p.freeMark(m)
		return
	}
	m.Lossless, m.wire, m.parts, m.shared = w, w, w, w
	gone := make(chan struct{}, 1)
	w.OnLink(func() {
		select {
		case gone <- struct{}{}:
		default:
		}
	})
	if w.MTU() < p.Longest || !p.add(m) {
		_ = p.drop(m)
		return
	}
	p.met(mac)
	for w.LinkUp() {
		select {
		case <-gone:
		case <-p.ctx.Done():
			return // Close closes the wire
		}
	}
	p.remove(m)
}

// drop ends a member that frames are not received of any more.
func (p *host) drop(m *hostMember) error {
	err := m.wire.Close()
	p.freeMark(m)
	return err
}

func (p *host) freeMark(m *hostMember) {
	if m.mark >= 0 {
		p.marks.Free(m.mark)
	}
}

// meet notes that memory is going to be shared with a station, soon.
func (p *host) meet(mac datasheet.MAC) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.meeting[mac] = time.Now()
}

// met ends that.
func (p *host) met(mac datasheet.MAC) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.meeting, mac)
}

// add makes a member known. It returns false if it is one already, or the port is closed.
func (p *host) add(m *hostMember) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed || p.has(m.mac) {
		return false
	}
	p.wakeWith(m)
	m.host, m.drained = p, make(chan struct{})
	members := append(slices.Clone(*p.members.Load()), m)
	p.members.Store(&members)
	p.joined.Add(1)
	return true
}

// remove forgets a member that has gone. Frames of it may have to be received still. It is called by
// a goroutine that Close waits for.
func (p *host) remove(m *hostMember) {
	p.mu.Lock()
	delete(p.meeting, m.mac)
	members := slices.DeleteFunc(slices.Clone(*p.members.Load()), func(n *hostMember) bool { return n == m })
	gone := len(members) < len(*p.members.Load())
	p.members.Store(&members)
	p.mu.Unlock()
	if !gone {
		return
	}
	p.left.Add(1)
	m.shared.Retire()
	p.running.Go(func() {
		late := time.NewTimer(hostLinger)
		defer late.Stop()
		select {
		case <-m.drained:
		case <-late.C:
		case <-p.ctx.Done():
		}
		_ = p.drop(m)
	})
	p.Wake.Call()
	p.Link.Call()
}
