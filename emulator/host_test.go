package emulator_test

import (
	"testing"
	"time"

	"github.com/trapeze-nic/trapeze/descriptors"
	"github.com/trapeze-nic/trapeze/vfio"
)

// adminHost is the driver's side of an admin queue, as small as it can be.
type adminHost struct {
	t      testing.TB
	d      vfio.Device
	mem    *vfio.Memory
	posted uint32
	taken  uint32
	thread bool // the device makes progress by itself
}

// Where an adminHost has its memory on the bus: command ring, entry ring, and
// two pages for the rings of an endpoint.
const (
	hostBase  = 0x100000
	hostACQ   = hostBase + 0x1000
	hostRings = hostBase + 0x2000
	hostLog2  = 4
)

func newAdminHost(t testing.TB, d vfio.Device) *adminHost {
	t.Helper()
	h := &adminHost{t: t, d: d, mem: newMemory(t, 4*descriptors.PageSize)}
	_, poller := d.(vfio.Poller)
	h.thread = !poller
	// Before the memory goes.
	t.Cleanup(func() { closeDevice(t, d) })
	powerUp(t, d)
	if err := d.MapDMA(h.mem, hostBase, vfio.DMARead|vfio.DMAWrite); err != nil {
		t.Fatal(err)
	}
	h.enable(descriptors.NoVector)
	return h
}

func (h *adminHost) enable(vector uint16) {
	h.t.Helper()
	clear(h.mem.Bytes())
	h.posted, h.taken = 0, 0
	for _, w := range []struct{ reg, v uint32 }{
		{descriptors.RegSQBaseLow, hostBase}, {descriptors.RegACQBaseLow, hostACQ},
		{descriptors.RegSQLog2, hostLog2}, {descriptors.RegACQLog2, hostLog2},
		{descriptors.RegAdminVector, uint32(vector)}, {descriptors.RegAdminControl, descriptors.AdminEnable},
	} {
		h.write(w.reg, w.v)
	}
	if s := h.read(descriptors.RegAdminStatus); s != descriptors.AdminEnabled {
		h.t.Fatalf("admin status %#x after enable", s)
	}
}

func (h *adminHost) read(reg uint32) uint32 {
	return read32(h.t, h.d, descriptors.AdminOffset+uint64(reg))
}

func (h *adminHost) write(reg, v uint32) {
	write32(h.t, h.d, descriptors.AdminOffset+uint64(reg), v)
}

// post gives a command to the device.
func (h *adminHost) post(c descriptors.Command) uint16 {
	h.t.Helper()
	c.ID = uint16(1000 + h.posted)
	at := h.posted % (1 << hostLog2) * descriptors.AdminEntrySize
	*descriptors.CommandAt(h.mem.Bytes()[at:]) = c
	h.posted++
	h.write(descriptors.RegSQProducer, h.posted)
	return c.ID
}

// next takes the next entry if it is there.
func (h *adminHost) next() (descriptors.AdminEntry, bool) {
	at := 0x1000 + h.taken%(1<<hostLog2)*descriptors.AdminEntrySize
	e := descriptors.AdminEntryAt(h.mem.Bytes()[at:])
	if e.LoadFlags() != descriptors.PhaseOf(h.taken, hostLog2) {
		return descriptors.AdminEntry{}, false
	}
	h.taken++
	h.write(descriptors.RegACQConsumer, h.taken)
	return *e, true
}

// poll lets the device make progress.
func (h *adminHost) poll() {
	if h.thread {
		time.Sleep(time.Millisecond)
		return
	}
	h.d.(vfio.Poller).Poll()
}

// mac is the address of the station.
func (h *adminHost) mac() (m descriptors.MAC) {
	h.t.Helper()
	copy(m[:4], read(h.t, h.d, vfio.RegionBAR0, descriptors.RegMACLow, 4))
	copy(m[4:], read(h.t, h.d, vfio.RegionBAR0, descriptors.RegMACHigh, 4))
	return m
}

// wait waits for the reply to a command, polling the device.
func (h *adminHost) wait(id uint16) descriptors.AdminEntry {
	h.t.Helper()
	for end := time.Now().Add(patience); time.Now().Before(end); {
		if e, ok := h.next(); ok && e.Kind == descriptors.EntryReply {
			if e.ID != id {
				h.t.Fatalf("reply to command %d, want %d", e.ID, id)
			}
			return e
		}
		h.poll()
	}
	h.t.Fatalf("no reply to command %d", id)
	return descriptors.AdminEntry{}
}

// do executes a command that succeeds.
func (h *adminHost) do(c descriptors.Command) descriptors.AdminEntry {
	h.t.Helper()
	e := h.wait(h.post(c))
	if e.Result != descriptors.ResultSuccess {
		h.t.Fatalf("%v: %v, field %d", c.Opcode, e.Result, e.Field)
	}
	return e
}

func (h *adminHost) nop() { h.t.Helper(); h.do(descriptors.Command{Opcode: descriptors.OpNop}) }

// receiveVector is the interrupt vector of receive queues.
const receiveVector = 3

// createVI makes a reliable VI and returns its number.
func (h *adminHost) createVI() uint32 {
	h.t.Helper()
	c := descriptors.Command{Opcode: descriptors.OpCreateEndpoint}
	*descriptors.Body[descriptors.CreateEndpointBody](&c) = descriptors.CreateEndpointBody{
		SendIOVA: hostRings, RecvIOVA: hostRings + 0x1000, MaxTransfer: 4096,
		SendCQ: descriptors.NoCQ, RecvCQ: descriptors.NoCQ,
		SendVector: descriptors.NoVector, RecvVector: receiveVector,
		Kind: descriptors.KindVI, Reliability: descriptors.ReliableDelivery, SendLog2: 2, RecvLog2: 2,
	}
	e := h.do(c)
	return descriptors.Reply[descriptors.EndpointCreated](&e).Endpoint
}

func discriminator(s string) (d descriptors.Discriminator) {
	d.Len = uint8(copy(d.Data[:], s))
	return d
}

// listen begins to wait for a client.
func (h *adminHost) listen(name string) uint16 {
	h.t.Helper()
	c := descriptors.Command{Opcode: descriptors.OpConnectWait}
	*descriptors.Body[descriptors.ConnectWaitBody](&c) =
		descriptors.ConnectWaitBody{TimeoutMS: 60000, Local: discriminator(name)}
	return h.post(c)
}

// dial begins to connect a VI.
func (h *adminHost) dial(vi uint32, to descriptors.MAC, name string) uint16 {
	h.t.Helper()
	c := descriptors.Command{Opcode: descriptors.OpConnectRequest}
	*descriptors.Body[descriptors.ConnectRequestBody](&c) = descriptors.ConnectRequestBody{
		Endpoint: vi, TimeoutMS: 60000, RemoteMAC: to, Remote: discriminator(name)}
	return h.post(c)
}
