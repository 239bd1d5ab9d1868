package agent_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/trapeze-nic/trapeze/ci/kit/leaktest"
	"github.com/trapeze-nic/trapeze/descriptors"
	"github.com/trapeze-nic/trapeze/driver"
	"github.com/trapeze-nic/trapeze/emulator"
	"github.com/trapeze-nic/trapeze/internal/agentlink"
	"github.com/trapeze-nic/trapeze/internal/datasheet"
	"github.com/trapeze-nic/trapeze/tools/trapeze/internal/agent"
	"github.com/trapeze-nic/trapeze/vfio/vfiouser"
	"github.com/trapeze-nic/trapeze/via"
)

// fleet makes NICs with our data sheet, which a switch joins, and returns where each is to be served.
func fleet(t *testing.T, n int) (paths []string, nics []*emulator.Device) {
	t.Helper()
	dir := t.TempDir()
	for i := range n {
		paths = append(paths, filepath.Join(dir, string(rune('a'+i))))
	}
	nics, err := emulator.Fleet(t.Context(), "emu:?vis=64", paths)
	if err != nil {
		t.Fatal(err)
	}
	return paths, nics
}

// put serves a NIC behind vfio-user until stop.
func put(t *testing.T, d *emulator.Device, path string) (stop func()) {
	t.Helper()
	l, err := vfiouser.Listen(path, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- vfiouser.Serve(ctx, l, d, vfiouser.ServerOptions{Logger: quiet}) }()
	stop = sync.OnceFunc(func() {
		cancel()
		if err := errors.Join(<-done, d.Close()); err != nil {
			t.Error(err)
		}
	})
	t.Cleanup(stop)
	return stop
}

func served(t *testing.T, n int) (paths []string, stop []func()) {
	t.Helper()
	paths, nics := fleet(t, n)
	for i, d := range nics {
		stop = append(stop, put(t, d, paths[i]))
	}
	return paths, stop
}

func deviceFile(path, grant string) string {
	return "[nic.device]\naddress = \"vfio-user:" + path + "\"\n[[grant]]\nusers = [\"*\"]\n" + grant
}

// TestDeviceExchange: a client of a device exchanges messages with a NIC behind the wire, and with another client.
func TestDeviceExchange(t *testing.T) {
	collect()
	leaktest.Check(t)
	paths, _ := served(t, 2)
	at := "agent:device?socket=" + serve(t, deviceFile(paths[0], ""))
	far := open(t, "vfio-user:"+paths[1])
	one, two := open(t, at), open(t, at)
	exchange(t, one, far, "out")
	exchange(t, far, two, "in")
	exchange(t, one, two, "between")
	exchange(t, two, one, "back")
}

// part opens a client's part of a device.
func part(t *testing.T, at string) *driver.NIC {
	t.Helper()
	n, err := driver.Open(t.Context(), at, driver.Options{Logger: quiet, NoTelemetry: true})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = n.Close() })
	return n
}

func give[B datasheet.CommandBody](n *driver.NIC, op datasheet.Opcode, body B) (*datasheet.AdminEntry, error) {
	cmd := datasheet.Command{Opcode: op}
	*datasheet.Body[B](&cmd) = body
	return n.Execute(context.Background(), cmd)
}

// things are objects of a client.
type things struct {
	ptag uint32
	mem  *driver.Memory
	cq   *driver.CQ
	vi   *driver.VI
}

func equip(t *testing.T, n *driver.NIC) (m things) {
	t.Helper()
	ctx := t.Context()
	var errs [4]error
	m.ptag, errs[0] = n.CreatePtag(ctx)
	m.mem, errs[1] = n.AllocMemory(ctx, 64<<10, driver.MemoryAttributes{Ptag: m.ptag})
	m.cq, errs[2] = n.CreateCQ(ctx, 64)
	m.vi, errs[3] = n.CreateVI(ctx, driver.VIAttributes{Reliability: datasheet.ReliableDelivery, MaxTransfer: 4096, Ptag: m.ptag, SendDepth: 16, RecvDepth: 16}, m.cq, m.cq)
	if err := errors.Join(errs[:]...); err != nil {
		t.Fatal(err)
	}
	return m
}

// TestDeviceForeign: a client that names what another has gets the error of what is not there. The other notices nothing.
func TestDeviceForeign(t *testing.T) {
	paths, _ := served(t, 1)
	at := "agent:device?socket=" + serve(t, deviceFile(paths[0], ""))
	victim, rogue := part(t, at), part(t, at)
	theirs, ours := equip(t, victim), equip(t, rogue)
	const iova = 0x7000000000
	vi, cq, handle := theirs.vi.Number(), theirs.cq.Number(), theirs.mem.Handle()
	command := func(op datasheet.Opcode) *datasheet.Command { return &datasheet.Command{Opcode: op} }
	endpoint := func(change func(b *datasheet.CreateEndpointBody)) *datasheet.Command {
		c := command(datasheet.OpCreateEndpoint)
		b := datasheet.Body[datasheet.CreateEndpointBody](c)
		*b = datasheet.CreateEndpointBody{SendIOVA: iova, RecvIOVA: iova, MaxTransfer: 64, SendCQ: datasheet.NoCQ, RecvCQ: datasheet.NoCQ,
			SendVector: datasheet.NoVector, RecvVector: datasheet.NoVector, Kind: datasheet.KindVI,
			Reliability: datasheet.Unreliable, SendLog2: 4, RecvLog2: 4}
		change(b)
		return c
	}
	region := func(address, length uint64, access datasheet.Access) *datasheet.Command {
		c := command(datasheet.OpRegisterMemory)
		*datasheet.Body[datasheet.RegisterMemoryBody](c) = datasheet.RegisterMemoryBody{Address: address, IOVA: address, Length: length, Ptag: ours.ptag, Access: access}
		return c
	}
	number := func(op datasheet.Opcode, n uint32) *datasheet.Command {
		c := command(op)
		datasheet.Body[datasheet.EndpointBody](c).Endpoint = n
		return c
	}
	accept, again := command(datasheet.OpConnectAccept), command(datasheet.OpModifyMemory)
	*datasheet.Body[datasheet.ConnectAcceptBody](accept) = datasheet.ConnectAcceptBody{Connection: 1, Endpoint: vi, TimeoutMS: 100}
	*datasheet.Body[datasheet.ModifyMemoryBody](again) = datasheet.ModifyMemoryBody{Handle: ours.mem.Handle(), Ptag: theirs.ptag}
	for name, c := range map[string]struct {
		cmd  *datasheet.Command
		want datasheet.Result
	}{
		"destroy its VI":            {number(datasheet.OpDestroyEndpoint, vi), datasheet.ResultInvalidParameter},
		"query its VI":              {number(datasheet.OpQueryEndpoint, vi), datasheet.ResultInvalidParameter},
		"disconnect its VI":         {number(datasheet.OpDisconnect, vi), datasheet.ResultInvalidParameter},
		"modify its VI":             {number(datasheet.OpModifyEndpoint, vi), datasheet.ResultInvalidParameter},
		"connect its VI":            {number(datasheet.OpConnectRequest, vi), datasheet.ResultInvalidParameter},
		"accept with its VI":        {accept, datasheet.ResultInvalidParameter},
		"reject its connection":     {number(datasheet.OpConnectReject, 1), datasheet.ResultInvalidParameter},
		"destroy its CQ":            {number(datasheet.OpDestroyCQ, cq), datasheet.ResultInvalidParameter},
		"use its tag":               {again, datasheet.ResultInvalidPtag},
		"destroy its tag":           {number(datasheet.OpDestroyPtag, theirs.ptag), datasheet.ResultInvalidPtag},
		"deregister its memory":     {number(datasheet.OpDeregisterMemory, handle), datasheet.ResultInvalidParameter},
		"modify its memory":         {number(datasheet.OpModifyMemory, handle), datasheet.ResultInvalidParameter},
		"memory that is not mapped": {region(iova, 4096, 0), datasheet.ResultDMAFault},
		"all memory":                {region(0x1000, 1<<40, 0), datasheet.ResultDMAFault},
		"eager memory":              {region(iova, 4096, datasheet.AccessEager), datasheet.ResultNotSupported},
		"a ring that is not mapped": {endpoint(func(*datasheet.CreateEndpointBody) {}), datasheet.ResultDMAFault},
		"raw frames":                {endpoint(func(b *datasheet.CreateEndpointBody) { b.Kind = datasheet.KindFrame }), datasheet.ResultNotSupported},
		"a channel":                 {endpoint(func(b *datasheet.CreateEndpointBody) { b.Kind = datasheet.KindChannel }), datasheet.ResultNotSupported},
		"all frames":                {endpoint(func(b *datasheet.CreateEndpointBody) { b.Options = datasheet.EndpointPromiscuous }), datasheet.ResultNotSupported},
		"a foreign vector":          {endpoint(func(b *datasheet.CreateEndpointBody) { b.SendVector = 60 }), datasheet.ResultInvalidParameter},
		"no command":                {command(999), datasheet.ResultBadOpcode},
	} {
		var no *driver.CommandError
		if _, err := rogue.Execute(t.Context(), *c.cmd); !errors.As(err, &no) || no.Result != c.want {
			t.Errorf("%s: %v, want %v", name, err, c.want)
		}
	}
	state := func(n *driver.NIC, vi uint32) *datasheet.EndpointReply {
		e, err := give(n, datasheet.OpQueryEndpoint, datasheet.EndpointBody{Endpoint: vi})
		if err != nil {
			t.Fatal(err)
		}
		return datasheet.Reply[datasheet.EndpointReply](e)
	}
	ring := func(vi uint32) {
		bell, err := rogue.Doorbell(uint64(vi)*datasheet.PageSize + datasheet.DoorbellSend)
		if err == nil {
			err = bell(1)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	// The rogue's own doorbell comes after the victim's: once the device has seen it, it has seen both.
	ring(vi)
	ring(ours.vi.Number())
	for end := time.Now().Add(timeout); state(rogue, ours.vi.Number()).SendProducer != 1; time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("the device has not seen a client's own doorbell")
		}
	}
	if r := state(victim, vi); r.SendProducer != 0 || r.State != datasheet.StateIdle {
		t.Errorf("another client rang: %+v", r)
	}
}

// TestDeviceQuotas: what the file grants is kept by the agent.
func TestDeviceQuotas(t *testing.T) {
	paths, _ := served(t, 1)
	at := "agent:device?socket=" + serve(t, deviceFile(paths[0], "vis = 2\nmemory = \"4M\"\nclients = 1\n"))
	n := part(t, at)
	m := equip(t, n)
	attributes := driver.VIAttributes{Reliability: datasheet.Unreliable, MaxTransfer: 64, Ptag: m.ptag, SendDepth: 16, RecvDepth: 16}
	if _, err := n.CreateVI(t.Context(), attributes, nil, nil); err != nil {
		t.Fatal(err)
	}
	if _, err := n.CreateVI(t.Context(), attributes, nil, nil); !errors.Is(err, descriptors.ErrResource) {
		t.Errorf("a third VI of 2: %v", err)
	}
	if _, err := n.AllocMemory(t.Context(), 8<<20, driver.MemoryAttributes{Ptag: m.ptag}); !errors.Is(err, unix.ENOSPC) {
		t.Errorf("8 MiB of 4: %v", err)
	}
	for options, want := range map[string]string{"": "as many NICs open", "&vis=3": "vis=3", "&memory=1G": "memory=", "&mtu=1500": "the device's"} {
		_, err := via.Open(t.Context(), at+options, via.Options{NoTelemetry: true})
		var refused *agentlink.RefusedError
		if !errors.As(err, &refused) || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %q", options, err, want)
		}
	}
	for grant, field := range map[string]string{"rate = \"1M\"\n": "grant[0].rate", "share = 2\n": "grant[0].share", "frames = true\n": "grant[0].frames",
		"stations = [\"02:00:00:00:01:00/40\"]\n": "grant[0].stations"} {
		_, err := agent.Parse("f", []byte(deviceFile(paths[0], grant)))
		var bad *agent.ConfigError
		if !errors.As(err, &bad) || bad.Field != field {
			t.Errorf("%q: %v, want %s", grant, err, field)
		}
	}
}

// TestDeviceList: the agent says what it knows of clients of a device: their commands and doorbells, which grow with use. Of the
// NIC it says how it is.
func TestDeviceList(t *testing.T) {
	paths, stop := served(t, 2)
	socket := serve(t, deviceFile(paths[0], ""))
	at := "agent:device?socket=" + socket
	client := func() agentlink.Client {
		t.Helper()
		all := list(t, socket)
		if len(all) != 1 || !all[0].Device || all[0].ClientStats != (agentlink.ClientStats{}) {
			t.Fatalf("%+v", all)
		}
		return all[0]
	}
	state := func() string {
		t.Helper()
		nics, _, err := agentlink.Ask(t.Context(), socket)
		if err != nil || len(nics) != 1 || nics[0].Name != "device" {
			t.Fatalf("%+v, %v", nics, err)
		}
		return nics[0].State
	}
	if s := state(); s != agentlink.Up {
		t.Errorf("the NIC is %s", s)
	}
	one, far := open(t, at), open(t, "vfio-user:"+paths[1])
	before := client()
	exchange(t, one, far, "counted")
	if after := client(); after.Commands <= before.Commands || after.Doorbells <= before.Doorbells {
		t.Errorf("%+v, before %+v", after, before)
	}
	stop[0]()
	for end := time.Now().Add(timeout); state() != agentlink.Lost; time.Sleep(10 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("a NIC that is gone is %s", state())
		}
	}
}

// TestDeviceNames: nobody takes the clients of a name that another waits with, and one that leaves gives it back.
func TestDeviceNames(t *testing.T) {
	paths, _ := served(t, 1)
	at := "agent:device?socket=" + serve(t, deviceFile(paths[0], ""))
	one, two := part(t, at), part(t, at)
	wait := func(n *driver.NIC) error {
		body := datasheet.ConnectWaitBody{TimeoutMS: 1}
		body.Local.Len = uint8(copy(body.Local.Data[:], "name"))
		_, err := give(n, datasheet.OpConnectWait, body)
		return err
	}
	if err := wait(one); !errors.Is(err, descriptors.ErrTimeout) {
		t.Fatal(err)
	}
	if err := wait(two); !errors.Is(err, descriptors.ErrResource) {
		t.Errorf("a name that another has: %v", err)
	}
	if err := one.Close(); err != nil {
		t.Fatal(err)
	}
	for end := time.Now().Add(timeout); !errors.Is(wait(two), descriptors.ErrTimeout); time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("the name of a client that has left stays taken")
		}
	}
}

// TestDeviceDies: all clients of a device that dies are told so, and the agent opens the one that takes its place.
func TestDeviceDies(t *testing.T) {
	paths, stop := served(t, 1)
	at := "agent:device?socket=" + serve(t, deviceFile(paths[0], ""))
	clients := []*driver.NIC{part(t, at), part(t, at)}
	for _, n := range clients {
		equip(t, n)
	}
	stop[0]()
	for i, n := range clients {
		for end := time.Now().Add(timeout); ; time.Sleep(time.Millisecond) {
			_, err := n.CreatePtag(t.Context())
			if errors.Is(err, driver.ErrDeviceGone) {
				break
			}
			if time.Now().After(end) {
				t.Fatalf("client %d is told %v, want %v", i, err, driver.ErrDeviceGone)
			}
		}
	}
	next, err := emulator.Fleet(t.Context(), "emu:?vis=64", paths)
	if err != nil {
		t.Fatal(err)
	}
	put(t, next[0], paths[0])
	for end := time.Now().Add(timeout); ; time.Sleep(10 * time.Millisecond) {
		n, err := via.Open(t.Context(), at, via.Options{NoTelemetry: true})
		if err == nil {
			_ = n.Close()
			return
		}
		if time.Now().After(end) {
			t.Fatalf("the device is not opened again: %v", err)
		}
	}
}

// TestDeviceReplace: a device cannot be taken over. Neither agent changes anything, and both say why.
func TestDeviceReplace(t *testing.T) {
	paths, _ := served(t, 1)
	text := deviceFile(paths[0], "")
	head := "socket = \"" + filepath.Join(t.TempDir(), "s") + "\"\n"
	start(t, head+text)
	at := "agent:device?socket=" + strings.Split(head, "\"")[1]
	one, two := open(t, at), open(t, at)
	if _, _, err := agent.TakeOver(t.Context(), parse(t, head+text), quiet); !errors.Is(err, agent.ErrNotPassable) {
		t.Errorf("with the device: %v", err)
	}
	_, _, err := agent.TakeOver(t.Context(), parse(t, head+local), quiet)
	var refused *agentlink.RefusedError
	if !errors.As(err, &refused) || !strings.Contains(refused.Why, "cannot be taken over") {
		t.Errorf("without it: %v", err)
	}
	exchange(t, one, two, "after")
}

// asNobody has a command of this test run as another user, if this one is root.
func asNobody(t *testing.T) func(*exec.Cmd) {
	t.Helper()
	if os.Getuid() != 0 {
		return nil
	}
	dir, err := os.MkdirTemp("", "trapeze-nobody")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	from, err := os.Open("/proc/self/exe")
	if err != nil {
		t.Fatal(err)
	}
	defer from.Close()
	path := filepath.Join(dir, "client")
	to, err := os.OpenFile(path, os.O_CREATE|os.O_WRONLY, 0o755)
	if err == nil {
		_, err = io.Copy(to, from)
		err = errors.Join(err, to.Close(), os.Chmod(dir, 0o755))
	}
	if err != nil {
		t.Fatal(err)
	}
	const nobody = 65534
	return func(c *exec.Cmd) {
		c.Path, c.Args, c.Dir = path, []string{path}, "/"
		c.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: nobody, Gid: nobody}}
	}
}

// vectors are those of a NIC that its driver uses.
const vectors = 8

// TestDeviceKills kills clients of a device, which are another user's, at random moments of each step. All that they had of
// the device is given back: it has fewer VIs than there are clients.
func TestDeviceKills(t *testing.T) {
	paths, _ := served(t, 2)
	socket := fmt.Sprintf("@trapeze-test-device-%d", os.Getpid())
	start(t, "socket = \""+socket+"\"\n"+deviceFile(paths[0], "vis = 40\n"))
	at := "agent:device?socket=" + socket
	far := echo(t, "vfio-user:"+paths[1])
	var numbers stream
	numbers.every = time.Millisecond
	numbers.begin(t, open(t, at+"&vis=4"), open(t, at+"&vis=4"))
	numbers.progress(t, 1)
	victim := &victims{at: at + "&vis=8", peer: far, change: asNobody(t)}
	for range 2 * vectors { // each interrupt vector of a NIC has a goroutine from its first use on
		if err := oneLife(t.Context(), victim.at, far, io.Discard); err != nil {
			t.Fatal(err)
		}
	}
	collect()
	before := measure(t)
	for i := range kills() {
		victim.kill(t, steps[i%len(steps)])
	}
	settle(t, socket, before)
	if victim.died > 0 {
		t.Errorf("%d clients ended by themselves: %s", victim.died, victim.said)
	}
	numbers.end(t)
	exchange(t, open(t, at+"&vis=4"), open(t, at+"&vis=4"), "after")
}
