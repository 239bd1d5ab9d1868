package agent_test

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/trapeze-nic/trapeze/ci/kit/must"
	"github.com/trapeze-nic/trapeze/ci/kit/should"
	"github.com/trapeze-nic/trapeze/ci/kit/waittest"
	"github.com/trapeze-nic/trapeze/internal/agentlink"
	"github.com/trapeze-nic/trapeze/internal/passedfd"
	"github.com/trapeze-nic/trapeze/internal/unixsocket"
	"github.com/trapeze-nic/trapeze/tools/trapeze/internal/agent"
)

// timeout bounds what must come, however busy the machine is.
const timeout = 30 * time.Second

func connect(t testing.TB, socket string) *net.UnixConn {
	t.Helper()
	c := must.Get(net.Dial("unix", socket))(t)
	return c.(*net.UnixConn)
}

// ask sends a request, and returns the answer and its descriptor.
func ask(t testing.TB, socket string, m agentlink.Message, fd int) (*agentlink.Conn, agentlink.Message, int) {
	t.Helper()
	c := agentlink.New(connect(t, socket))
	must.OK(t, c.Send(m, fd))
	answer, got := must.Two(c.Receive(time.Now().Add(timeout)))(t)
	return c, answer, got
}

// TestKeysHaveOneSpelling: a key in other letters is refused, and does not widen what the right one grants.
func TestKeysHaveOneSpelling(t *testing.T) {
	for field, text := range map[string]string{
		"grant[0].Users": "[nic.Local]\naddress = \"emu:\"\n[[grant]]\nusers = [\"root\"]\nUsers = [\"*\"]\n",
		"Socket":         "Socket = \"/tmp/x\"\n" + local,
		"nic.x.Address":  "[nic.x]\nAddress = \"emu:\"\n[[grant]]\nusers = [\"*\"]\n",
	} {
		var bad *agent.ConfigError
		if _, err := agent.Parse("agent.toml", []byte(text)); !errors.As(err, &bad) || bad.Field != field {
			t.Errorf("%s: %v", field, err)
		}
	}
	if _, err := agent.Parse("agent.toml", []byte("[nic.Local]\naddress = \"emu:\"\n[[grant]]\nusers = [\"*\"]\n")); err != nil {
		t.Errorf("a NIC's name: %v", err)
	}
}

// TestTooMuch: a request for more than there is, of anything, is refused with the field and a code.
func TestTooMuch(t *testing.T) {
	socket := serve(t, local+`name = "small"
nics = ["local"]
vis = 8
memory = "1M"
clients = 1
stations = ["02:00:00:00:01:00/40"]
[nic.other]
address = "emu:"
[[grant]]
name = "no one here"
users = ["4294967294"]
`)
	const open, version = agentlink.Open, agentlink.Version
	m, end := welcome(t, socket, agentlink.Message{Station: "02:00:00:00:01:07"})
	defer end()
	must.Hold(t, m.VIs == 8 && m.Memory == 1<<20 && m.Station == "02:00:00:00:01:07", "%+v", m)
	for name, c := range map[string]struct {
		m     agentlink.Message
		errno unix.Errno
		says  string
	}{
		"VIs":                        {agentlink.Message{VIs: 9}, unix.EPERM, "vis=9: small grants 8"},
		"memory":                     {agentlink.Message{Memory: 1<<20 + 1}, unix.EPERM, "memory=1048577: small grants 1048576"},
		"a frame too long":           {agentlink.Message{MTU: 1 << 20}, unix.EPERM, "mtu=1048576"},
		"a frame too short":          {agentlink.Message{MTU: 1}, unix.EPERM, "mtu=1:"},
		"a frame of negative size":   {agentlink.Message{MTU: -1}, unix.EPERM, "mtu=-1:"},
		"a NIC too many":             {agentlink.Message{}, unix.EAGAIN, "raise clients"},
		"a NIC that is not there":    {agentlink.Message{NIC: "x\x1b[2J"}, unix.ENODEV, `no NIC "x[2J"`},
		"a NIC of others":            {agentlink.Message{NIC: "other"}, unix.EPERM, "no grant lets user 0"},
		"another version":            {agentlink.Message{Version: 7}, unix.EPERM, "version 1 of the protocol, and you 7"},
		"a request that is none":     {agentlink.Message{Kind: "reboot"}, unix.EPERM, `no request "reboot"`},
		"what the agent says":        {agentlink.Message{Kind: agentlink.Welcome}, unix.EPERM, `no request "welcome"`},
		"more VIs than there can be": {agentlink.Message{VIs: 1<<32 - 1}, unix.EPERM, "vis=4294967295"},
	} {
		if c.m.Kind == "" {
			c.m.Kind = open
		}
		if c.m.Version == 0 {
			c.m.Version = version
		}
		refused(t, socket, name, c.m, c.errno, c.says)
	}
	socket = serve(t, local+"name = \"small\"\nstations = [\"02:00:00:00:01:00/40\"]\n")
	_, end = welcome(t, socket, agentlink.Message{Station: "02:00:00:00:01:07"})
	defer end()
	for name, c := range map[string]struct {
		station string
		errno   unix.Errno
		says    string
	}{
		"a station that is not granted": {"02:00:00:00:02:00", unix.EPERM, "does not grant it"},
		"a station that another has":    {"02:00:00:00:01:07", unix.EADDRINUSE, "mac=02:00:00:00:01:07"},
		"a group":                       {"03:00:00:00:01:00", unix.EPERM, "mac=03:00:00:00:01:00"},
		"none":                          {"00:00:00:00:00:00", unix.EPERM, "mac=00:00:00:00:00:00"},
		"no address":                    {"here\n", unix.EINVAL, "mac=here: it is no station"},
		"an address of 8 bytes":         {"02:00:00:00:00:00:00:01", unix.EINVAL, "it is no station"},
	} {
		refused(t, socket, name, agentlink.Message{Kind: open, Version: version, Station: c.station}, c.errno, c.says)
	}
}

// TestFirstGrantDecides: a program that asks for more than its first grant has, or comes when that is used up, does not get
// the next one, which is wider.
func TestFirstGrantDecides(t *testing.T) {
	const wide = `[[grant]]
name = "wide"
users = ["*"]
`
	narrow := func(nics string) string {
		return local + "name = \"narrow\"\nclients = 1\nvis = 8\nmemory = \"1M\"\nrate = \"1M\"\nstations = [\"02:00:00:00:01:00/40\"]\n" + nics + wide
	}
	request := agentlink.Message{Kind: agentlink.Open, Version: agentlink.Version}
	for name, text := range map[string]string{"any NIC": narrow(""), "a NIC by name": narrow("nics = [\"local\"]\n[nic.other]\naddress = \"emu:\"\n")} {
		for _, wanted := range []string{"", "local"} {
			socket := serve(t, text)
			more := func(change func(m *agentlink.Message), errno unix.Errno, says string) {
				t.Helper()
				m := request
				m.NIC = wanted
				change(&m)
				refused(t, socket, name, m, errno, says)
			}
			more(func(m *agentlink.Message) { m.VIs = 9 }, unix.EPERM, "vis=9: narrow grants 8")
			more(func(m *agentlink.Message) { m.Memory = 1 << 30 }, unix.EPERM, "memory=1073741824: narrow grants 1048576")
			more(func(m *agentlink.Message) { m.Station = "02:00:00:00:02:00" }, unix.EPERM, "narrow does not grant it")
			m, end := welcome(t, socket, request)
			must.Be(t, m.VIs, 8, "%s: VIs", name)
			more(func(*agentlink.Message) {}, unix.EAGAIN, "as many NICs open")
			end()
		}
	}
	socket := serve(t, narrow("nics = [\"local\"]\n[nic.other]\naddress = \"emu:\"\n"))
	m, end := welcome(t, socket, agentlink.Message{NIC: "other"})
	should.Be(t, m.VIs, 64, "VIs of a NIC that the first grant is not about")
	end()
}

// welcome sends a request that is granted, and returns the answer and what ends the client.
func welcome(t testing.TB, socket string, request agentlink.Message) (m agentlink.Message, end func()) {
	t.Helper()
	request.Kind, request.Version = agentlink.Open, agentlink.Version
	c, m, fd := ask(t, socket, request, -1)
	must.Be(t, m.Kind, agentlink.Welcome, "%+v", m)
	return m, func() {
		c.Close()
		_ = unix.Close(fd)
	}
}

func refused(t *testing.T, socket, name string, request agentlink.Message, errno unix.Errno, says string) {
	t.Helper()
	c, m, fd := ask(t, socket, request, -1)
	defer c.Close()
	if fd >= 0 || m.Kind != agentlink.Refuse || unix.Errno(m.Errno) != errno || !strings.Contains(m.Why, says) {
		t.Errorf("%s: %+v with descriptor %d, want %v and %q", name, m, fd, errno, says)
	}
}

// empty waits until no client is left.
func empty(t testing.TB, socket string) {
	t.Helper()
	waittest.Until(t, "no client is left", func() bool {
		c, m, _ := ask(t, socket, agentlink.Message{Kind: agentlink.List, Version: agentlink.Version}, -1)
		c.Close()
		return len(m.Clients) == 0
	})
}

func packet(body string) []byte {
	return append(binary.BigEndian.AppendUint32(nil, uint32(len(body))), body...)
}

// TestNoMessages: what is no message ends the connection, without an answer. A message that is not whole does so in time.
// The agent keeps no descriptor that comes with them.
func TestNoMessages(t *testing.T) {
	socket := serve(t, local)
	good := `{"kind":"list","version":1}`
	var pipe [2]int
	must.OK(t, unix.Pipe2(pipe[:], unix.O_CLOEXEC))
	defer unix.Close(pipe[0])
	defer unix.Close(pipe[1])
	before := measure(t)
	cases := map[string]struct {
		bytes []byte
		fds   int
	}{
		"nothing":                    {nil, 0},
		"half a length":              {[]byte{0, 0}, 0},
		"half a message":             {packet(good)[:20], 0},
		"a length of zero":           {packet(""), 0},
		"the largest length":         {[]byte("\xff\xff\xff\xff" + good), 0},
		"a byte too much":            {binary.BigEndian.AppendUint32(nil, 1<<20+1), 0},
		"the largest, and no more":   {binary.BigEndian.AppendUint32(nil, 1<<20), 0},
		"no JSON":                    {packet("open the NIC"), 0},
		"a list":                     {packet("[1,2]"), 0},
		"a negative number of VIs":   {packet(`{"kind":"open","version":1,"vis":-1}`), 0},
		"more memory than can be":    {packet(`{"kind":"open","version":1,"memory":18446744073709551616}`), 0},
		"a number for a name":        {packet(`{"kind":"open","version":1,"nic":7}`), 0},
		"depth":                      {packet(strings.Repeat("[", 100_000)), 0},
		"two descriptors":            {packet(good), 2},
		"as many as there can be":    {packet(good), 253},
		"a pipe and half a message":  {packet(good)[:20], 1},
		"descriptors and no message": {[]byte{0}, 200},
	}
	tests := map[string]func(*testing.T){}
	for name, c := range cases {
		tests[name] = func(t *testing.T) {
			conn := connect(t, socket)
			defer conn.Close()
			var rights []byte
			if c.fds > 0 {
				fds := make([]int, c.fds)
				for i := range fds {
					fds[i] = pipe[i%2]
				}
				rights = unix.UnixRights(fds...)
			}
			if len(c.bytes) > 0 {
				if _, _, err := conn.WriteMsgUnix(c.bytes, rights, nil); err != nil {
					t.Fatal(err)
				}
			}
			_ = conn.SetReadDeadline(time.Now().Add(timeout))
			n, err := conn.Read(make([]byte, 1))
			if n != 0 || !errors.Is(err, io.EOF) && !errors.Is(err, unix.ECONNRESET) {
				t.Errorf("%d bytes came, %v", n, err)
			}
		}
	}
	waittest.Together(t, tests)
	given(t, before)
	empty(t, socket)
}

// given waits until no more files are open, and no more is mapped, than before.
func given(t *testing.T, before resources) {
	t.Helper()
	waittest.Until(t, fmt.Sprintf("there is no more than %+v", before), func() bool {
		now := measure(t)
		return now.files <= before.files && now.mappings <= before.mappings
	})
}

// TestBadWire: a client that has its wire and breaks the rules there is no client any more, and costs the agent nothing.
func TestBadWire(t *testing.T) {
	socket := serve(t, local+"clients = 256\n")
	file := must.Get(os.CreateTemp(t.TempDir(), ""))(t)
	defer file.Close()
	memory := must.Get(unix.MemfdCreate("not sealed", unix.MFD_CLOEXEC|unix.MFD_ALLOW_SEALING))(t)
	defer unix.Close(memory)
	var pipe [2]int
	must.OK(t, unix.Pipe2(pipe[:], unix.O_CLOEXEC))
	defer unix.Close(pipe[0])
	defer unix.Close(pipe[1])
	before := measure(t)
	random := rand.New(rand.NewPCG(1, 2))
	for i := range 100 {
		request := agentlink.Message{Kind: agentlink.Open, Version: agentlink.Version}
		c, m, wire := ask(t, socket, request, []int{-1, pipe[0], memory}[i%3])
		must.Hold(t, m.Kind == agentlink.Welcome && wire >= 0, "%+v, descriptor %d", m, wire)
		garbage := make([]byte, 1+random.IntN(200))
		for j := range garbage {
			garbage[j] = byte(random.Uint32())
		}
		var rights []byte
		if i%4 > 0 {
			rights = unix.UnixRights([]int{pipe[0], int(file.Fd()), memory}[:i%4]...)
		}
		// It may have ended already.
		_ = unix.Sendmsg(wire, garbage, rights, nil, unix.MSG_NOSIGNAL)
		if i%5 == 0 {
			_ = unix.Close(wire)
			wire = -1
		}
		// The agent lets go by itself: the program still has its end.
		empty(t, socket)
		if wire >= 0 {
			_ = unix.Close(wire)
		}
		c.Close()
	}
	given(t, before)
}

// TestTruncates: the memory that clients have in common with the agent and with each other cannot be shortened: a
// client that maps it and cuts it off would end the others.
func TestTruncates(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("memory that is mapped can be opened by root only")
	}
	at := "agent:?engine=thread&socket=" + serve(t, local)
	one, two := open(t, at), open(t, at)
	exchange(t, one, two, "whole")
	maps := must.Get(os.ReadFile("/proc/self/maps"))(t)
	tried := 0
	for line := range strings.Lines(string(maps)) {
		if !strings.Contains(line, "/memfd:trapeze-shm") {
			continue
		}
		where, _, _ := strings.Cut(line, " ")
		f := must.Get(os.OpenFile("/proc/self/map_files/"+where, os.O_RDWR, 0))(t)
		for _, size := range []int64{0, 100, 1 << 30} {
			should.Fail(t, f.Truncate(size), unix.EPERM, "%s: truncated to %d bytes", where, size)
		}
		should.Refuse(unix.FcntlInt(f.Fd(), unix.F_ADD_SEALS, unix.F_SEAL_WRITE))(t, unix.EPERM, "%s: sealed against writing", where)
		f.Close()
		tried++
	}
	should.Hold(t, tried >= 4, "%d mappings, want those of two clients and the agent", tried)
	exchange(t, one, two, "still whole")
}

// FuzzRequest sends an agent what is no request, or one. It ends the connection, and keeps no client.
func FuzzRequest(f *testing.F) {
	for _, s := range []string{`{"kind":"open","version":1}`, `{"kind":"list","version":1}`, `{"kind":"open","version":1,"nic":"local","vis":1,"memory":4096,"mtu":1500,"station":"02:00:00:00:00:01"}`,
		`{"kind":"open","version":2}`, `{}`, `null`, `{"kind":"open","version":1,"station":"ff:ff:ff:ff:ff:ff"}`, `{"kind":"peer","version":1,"listen":true}`} {
		f.Add(packet(s))
		f.Add(append(packet(s), packet(s)...))
		f.Add(packet(s)[:len(s)/2])
	}
	f.Add([]byte("\xff\xff\xff\xff"))
	var socket string
	f.Fuzz(func(t *testing.T, b []byte) {
		socket = serve(t, local+"vis = 8\n")
		c := connect(t, socket)
		defer c.Close()
		if _, err := c.Write(b); err == nil {
			_ = c.CloseWrite()
		}
		_ = c.SetReadDeadline(time.Now().Add(timeout))
		link := agentlink.New(c)
		for {
			m, fd, err := link.Receive(time.Now().Add(timeout))
			if fd >= 0 {
				_ = unix.Close(fd)
			}
			must.Hold(t, !errors.Is(err, os.ErrDeadlineExceeded), "it does not end the connection")
			if err != nil {
				break
			}
			if (m.Kind == agentlink.Welcome) != (fd >= 0) || m.Kind == agentlink.Welcome && (m.VIs < 1 || m.VIs > 8) {
				t.Errorf("%+v, descriptor %d", m, fd)
			}
		}
		link.Close()
		empty(t, socket)
	})
}

// TestMuteUser: a user whose programs connect and say nothing keeps no other user out.
func TestMuteUser(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("needs root, to be two users")
	}
	const nobody, most = 65534, 64
	socket := fmt.Sprintf("@trapeze-test-mute-%d", os.Getpid())
	start(t, "socket = \""+socket+"\"\n"+local)
	mute := make(chan []net.Conn)
	go func() {
		runtime.LockOSThread() // for good: the thread ends with this goroutine, as another user
		var list []net.Conn
		defer func() { mute <- list }()
		if _, _, errno := unix.RawSyscall(unix.SYS_SETRESUID, nobody, nobody, nobody); errno != 0 {
			t.Error(errno)
			return
		}
		for range most + 1 {
			c, err := net.Dial("unix", socket)
			if err != nil {
				t.Error(err)
				return
			}
			list = append(list, c)
		}
	}()
	list := <-mute
	for _, c := range list {
		defer c.Close()
	}
	refused := func() bool { // one of them, whichever came last
		for _, c := range list {
			_ = c.SetReadDeadline(time.Now().Add(time.Millisecond))
			if _, err := c.Read(make([]byte, 1)); errors.Is(err, io.EOF) {
				return true
			}
		}
		return false
	}
	waittest.Until(t, "a silent program of the user is refused", refused)
	_, end := welcome(t, socket, agentlink.Message{}) // to another user
	end()
}

// goneSocket, if set, has TestGoneProcess connect there for its parent.
const goneSocket = "TRAPEZE_TEST_GONE"

// TestGoneProcess is a program that connects, passes the connection to its parent and ends.
func TestGoneProcess(t *testing.T) {
	socket := os.Getenv(goneSocket)
	if socket == "" {
		t.Skip("it is for other tests")
	}
	f, err := connect(t, socket).File()
	if err == nil {
		err = unix.Sendmsg(3, []byte{0}, unix.UnixRights(int(f.Fd())), nil, 0)
	}
	must.OK(t, err)
}

// TestGone: a program whose process has ended has no groups that can be told, and is refused: it would evade what is granted
// to its control group, and its claim.
func TestGone(t *testing.T) {
	socket := serve(t, local)
	fds := must.Get(unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0))(t)
	ours, theirs := os.NewFile(uintptr(fds[0]), "ours"), os.NewFile(uintptr(fds[1]), "theirs")
	defer ours.Close()
	defer theirs.Close()
	child := exec.CommandContext(t.Context(), "/proc/self/exe", "-test.run=^TestGoneProcess$")
	child.Env, child.ExtraFiles = append(os.Environ(), goneSocket+"="+socket), []*os.File{theirs}
	if out, err := child.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	oob := make([]byte, 64)
	_, n, _, _, err := unix.Recvmsg(fds[0], make([]byte, 1), oob, unix.MSG_CMSG_CLOEXEC)
	must.OK(t, err)
	c := must.Get(unixsocket.TakeConn(passedfd.Parse(oob[:n])[0], unix.SOCK_STREAM))(t)
	if _, err := unix.GetsockoptInt(fds[0], unix.SOL_SOCKET, 77); err == unix.ENOPROTOOPT { // SO_PEERPIDFD of Linux 6.5
		t.Skip("this kernel does not tell which process has connected")
	}
	program := agentlink.New(c)
	defer program.Close()
	must.OK(t, program.Send(agentlink.Message{Kind: agentlink.Open, Version: agentlink.Version}))
	if m, _, err := program.Receive(time.Now().Add(timeout)); err != nil || m.Kind != agentlink.Refuse || !strings.Contains(m.Why, "has ended") {
		t.Errorf("%+v, %v", m, err)
	}
}

// TestSilent: of a program that connects and says nothing the agent does not read /proc, each look at which takes a thread.
func TestSilent(t *testing.T) {
	const programs = 1000
	socket := serve(t, local)
	reads := func() (n int) {
		text, err := os.ReadFile("/proc/self/io")
		_, after, found := strings.Cut(string(text), "syscr: ")
		if _, serr := fmt.Sscan(after, &n); err != nil || !found || serr != nil {
			t.Skipf("this kernel does not count reads: %v", err)
		}
		return n
	}
	var all []net.Conn
	before := reads()
	for range programs {
		all = append(all, connect(t, socket))
	}
	for _, c := range all {
		_ = c.Close()
	}
	// The agent has seen all of them once it has room for another.
	waittest.Until(t, "the agent answers", func() bool {
		_, _, err := agentlink.Ask(t.Context(), socket)
		return err == nil
	})
	if n := reads() - before; n > programs {
		t.Errorf("%d reads for %d programs", n, programs)
	}
}
