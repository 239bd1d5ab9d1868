package emulator_test

import (
	"testing"
	"time"

	"github.com/trapeze-nic/trapeze/ci/kit/must"
	"github.com/trapeze-nic/trapeze/internal/datasheet"
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
	h := &adminHost{t: t, d: d, mem: newMemory(t, 4*datasheet.PageSize)}
	poller := d.(vfio.InProcess).Polled()
	h.thread = !poller
	// Before the memory goes.
	t.Cleanup(func() { closeDevice(t, d) })
	powerUp(t, d)
	must.OK(t, d.MapDMA(h.mem, hostBase, vfio.DMARead|vfio.DMAWrite))
	h.enable(datasheet.NoVector)
	return h
}

func (h *adminHost) enable(vector uint16) {
	h.t.Helper()
	clear(h.mem.Bytes())
	h.posted, h.taken = 0, 0
	for _, w := range []struct{ reg, v uint32 }{
		{datasheet.RegSQBaseLow, hostBase}, {datasheet.RegACQBaseLow, hostACQ},
		{datasheet.RegSQLog2, hostLog2}, {datasheet.RegACQLog2, hostLog2},
		{datasheet.RegAdminVector, uint32(vector)}, {datasheet.RegAdminControl, datasheet.AdminEnable},
	} {
		h.write(w.reg, w.v)
	}
	must.Be(h.t, h.read(datasheet.RegAdminStatus), datasheet.AdminEnabled, "admin status after enable")
}

func (h *adminHost) read(reg uint32) uint32 {
	return read32(h.t, h.d, datasheet.AdminOffset+uint64(reg))
}

func (h *adminHost) write(reg, v uint32) {
	write32(h.t, h.d, datasheet.AdminOffset+uint64(reg), v)
}

// post gives a command to the device.
func (h *adminHost) post(c datasheet.Command) uint16 {
	h.t.Helper()
	c.ID = uint16(1000 + h.posted)
	at := h.posted % (1 << hostLog2) * datasheet.AdminEntrySize
	*datasheet.CommandAt(h.mem.Bytes()[at:]) = c
	h.posted++
	h.write(datasheet.RegSQProducer, h.posted)
	return c.ID
}

// next takes the next entry if it is there.
func (h *adminHost) next() (datasheet.AdminEntry, bool) {
	at := 0x1000 + h.taken%(1<<hostLog2)*datasheet.AdminEntrySize
	e := datasheet.AdminEntryAt(h.mem.Bytes()[at:])
	if e.LoadFlags() != datasheet.PhaseOf(h.taken, hostLog2) {
		return datasheet.AdminEntry{}, false
	}
	h.taken++
	h.write(datasheet.RegACQConsumer, h.taken)
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
func (h *adminHost) mac() (m datasheet.MAC) {
	h.t.Helper()
	copy(m[:4], read(h.t, h.d, vfio.RegionBAR0, datasheet.RegMACLow, 4))
	copy(m[4:], read(h.t, h.d, vfio.RegionBAR0, datasheet.RegMACHigh, 4))
	return m
}

// wait waits for the reply to a command, polling the device.
func (h *adminHost) wait(id uint16) datasheet.AdminEntry {
	h.t.Helper()
	for end := time.Now().Add(timeout); time.Now().Before(end); {
		if e, ok := h.next(); ok && e.Kind == datasheet.EntryReply {
			must.Be(h.t, e.ID, id, "reply to command")
			return e
		}
		h.poll()
	}
	h.t.Fatalf("no reply to command %d", id)
	return datasheet.AdminEntry{}
}

// do executes a command that succeeds.
func (h *adminHost) do(c datasheet.Command) datasheet.AdminEntry {
	h.t.Helper()
	e := h.wait(h.post(c))
	must.Be(h.t, e.Result, datasheet.ResultSuccess, "%v: field %d", c.Opcode, e.Field)
	return e
}

func (h *adminHost) nop() { h.t.Helper(); h.do(datasheet.Command{Opcode: datasheet.OpNop}) }

// receiveVector is the interrupt vector of receive queues.
const receiveVector = 3

// createVI makes a reliable VI and returns its number.
func (h *adminHost) createVI() uint32 {
	h.t.Helper()
	c := datasheet.Command{Opcode: datasheet.OpCreateEndpoint}
	*datasheet.Body[datasheet.CreateEndpointBody](&c) = datasheet.CreateEndpointBody{
		SendIOVA: hostRings, RecvIOVA: hostRings + 0x1000, MaxTransfer: 4096,
		SendCQ: datasheet.NoCQ, RecvCQ: datasheet.NoCQ,
		SendVector: datasheet.NoVector, RecvVector: receiveVector,
		Kind: datasheet.KindVI, Reliability: datasheet.ReliableDelivery, SendLog2: 2, RecvLog2: 2,
	}
	e := h.do(c)
	return datasheet.Reply[datasheet.EndpointCreated](&e).Endpoint
}

func discriminator(s string) (d datasheet.Discriminator) {
	d.Len = uint8(copy(d.Data[:], s))
	return d
}

// listen begins to wait for a client.
func (h *adminHost) listen(name string) uint16 {
	h.t.Helper()
	c := datasheet.Command{Opcode: datasheet.OpConnectWait}
	*datasheet.Body[datasheet.ConnectWaitBody](&c) =
		datasheet.ConnectWaitBody{TimeoutMS: 60000, Local: discriminator(name)}
	return h.post(c)
}

// dial begins to connect a VI.
func (h *adminHost) dial(vi uint32, to datasheet.MAC, name string) uint16 {
	h.t.Helper()
	c := datasheet.Command{Opcode: datasheet.OpConnectRequest}
	*datasheet.Body[datasheet.ConnectRequestBody](&c) = datasheet.ConnectRequestBody{
		Endpoint: vi, TimeoutMS: 60000, RemoteMAC: to, Remote: discriminator(name)}
	return h.post(c)
}
