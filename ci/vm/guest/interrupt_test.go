package guest

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/trapeze-nic/trapeze/ci/kit/must"
	"github.com/trapeze-nic/trapeze/ci/kit/should"
	"github.com/trapeze-nic/trapeze/vfio"
)

func eventfd(t *testing.T) *vfio.Eventfd {
	t.Helper()
	fd := must.Get(vfio.NewEventfd())(t)
	t.Cleanup(func() { fd.Close() })
	return fd
}

// connect connects one vector to an eventfd.
func connect(t *testing.T, d vfio.Device, index, vector int) *vfio.Eventfd {
	t.Helper()
	fd := eventfd(t)
	must.OK(t, d.SetIRQs(index, vector, []int{fd.FD()}))
	return fd
}

// quiet fails the test if the eventfd is signalled within a moment.
func quiet(t *testing.T, fd *vfio.Eventfd, why string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 200*time.Millisecond)
	defer cancel()
	should.Fail(t, fd.Wait(ctx), context.DeadlineExceeded, "an interrupt came although %s", why)
}

func fires(t *testing.T, fd *vfio.Eventfd) {
	t.Helper()
	must.OK(t, fd.Wait(within(t)))
}

// TestMSI: raised by a register, and at the end of a DMA transfer.
func TestMSI(t *testing.T) {
	e := openEdu(t, alone(t, eduID, false))
	e.busMaster(true) // a message is a write by the device
	fd := connect(t, e, vfio.IRQMSI, 0)
	for _, v := range []uint32{1, 0x80} {
		e.write(eduRaise, v)
		fires(t, fd)
		should.Be(t, e.read(eduRaised), v, "status")
		e.write(eduAck, v)
	}
	mem, iova := e.alloc(eduBufferSize)
	e.start(iova, eduBuffer, 64, eduThenRaise)
	fires(t, fd)
	if e.read(eduRaised) != eduDMAInterrupt || e.read(eduDMAStart)&eduRun != 0 {
		t.Errorf("status %#x after a transfer of %d bytes", e.read(eduRaised), len(mem.Bytes()))
	}
	e.write(eduAck, eduDMAInterrupt)
	if err := e.SetIRQs(vfio.IRQINTx, 0, []int{fd.FD()}); !errors.Is(err, vfio.ErrNotSupported) {
		t.Errorf("INTx: %v", err)
	} else {
		t.Log(err)
	}
	must.OK(t, e.DisableIRQs(vfio.IRQMSI))
	quiet(t, fd, "MSI is disconnected")
}

// Registers of the Intel 82576 in BAR0 (its data sheet, chapter 8).
const (
	igbStatus = 0x0008
	igbGPIE   = 0x1514 // general purpose interrupt enable
	igbEICS   = 0x1520 // raises MSI-X vectors, a bit each
	igbEIMS   = 0x1524 // unmasks them
	igbEIAC   = 0x152c // vectors that clear their cause when they fire
	igbIVAR   = 0x1700 // vectors of queues; plain memory to everyone else

	igbVectorPerBit = 1 << 4 // of GPIE: several MSI-X vectors
)

// igbInterrupts makes an 82576 ready to raise vectors.
func igbInterrupts(t *testing.T, d vfio.Device) {
	t.Helper()
	command(t, d, vfio.CommandMemory|vfio.CommandBusMaster)
	set32(t, d, igbGPIE, igbVectorPerBit)
	set32(t, d, igbEIAC, 1<<10-1)
	set32(t, d, igbEIMS, 1<<10-1)
}

// TestMSIX connects vectors at once and one by one, and raises them in a NIC.
func TestMSIX(t *testing.T) {
	d := open(t, alone(t, igbID, false))
	irq := must.Get(d.IRQ(vfio.IRQMSIX))(t)
	t.Logf("%+v", irq)
	must.Be(t, irq.Count, 10, "vectors")
	should.Fail(t, d.SetIRQs(vfio.IRQMSIX, 8, []int{-1, -1, -1}), vfio.ErrNoSuchIRQ, "vectors beyond the last")
	igbInterrupts(t, d)
	fds := map[int]*vfio.Eventfd{1: connect(t, d, vfio.IRQMSIX, 1)}
	for _, vector := range []int{3, 9, 0} { // more of them later, beyond the first and before it
		fds[vector] = connect(t, d, vfio.IRQMSIX, vector)
	}
	for _, vector := range []int{0, 1, 3, 9, 1} {
		set32(t, d, igbEICS, 1<<vector)
		fires(t, fds[vector])
	}
	must.OK(t, d.SetIRQs(vfio.IRQMSIX, 3, []int{-1}))
	set32(t, d, igbEICS, 1<<3)
	quiet(t, fds[3], "its vector is disconnected")
	set32(t, d, igbEICS, 1<<9)
	fires(t, fds[9])
	must.OK(t, d.DisableIRQs(vfio.IRQMSIX))
	set32(t, d, igbEICS, 1<<9)
	quiet(t, fds[9], "MSI-X is disconnected")
	t.Log("vectors 0, 1, 3 and 9 fired, each at its own eventfd")
}

// TestMSIXTable maps what can be mapped of the BAR with the vector table.
func TestMSIXTable(t *testing.T) {
	d := open(t, alone(t, igbID, false))
	config := must.Get(vfio.ReadConfig(d))(t)
	r := must.Get(d.Region(config.MSIX.TableBAR))(t)
	t.Logf("%+v in %+v", *config.MSIX, r)
	m, err := d.MapRegion(config.MSIX.TableBAR, 0, r.Size)
	mappable := len(r.Sparse) == 0
	should.Hold(t, mappable == (err == nil) && mappable == r.MSIXMappable, "mapping all of it: %v", err)
	if err == nil {
		should.OK(t, m.Close())
	}
	// Config space can never be mapped.
	if _, err := d.MapRegion(vfio.RegionConfig, 0, 4096); !errors.Is(err, vfio.ErrNotMappable) {
		t.Errorf("mapping configuration space: %v", err)
	} else {
		t.Log(err)
	}
}

func set32(t *testing.T, d vfio.Device, offset uint64, v uint32) {
	t.Helper()
	must.OK(t, d.WriteRegion(vfio.RegionBAR0, offset, []byte{byte(v), byte(v >> 8), byte(v >> 16), byte(v >> 24)}))
}

func get32(t *testing.T, d vfio.Device, offset uint64) uint32 {
	t.Helper()
	var b [4]byte
	must.OK(t, d.ReadRegion(vfio.RegionBAR0, offset, b[:]))
	return uint32(b[0]) | uint32(b[1])<<8 | uint32(b[2])<<16 | uint32(b[3])<<24
}

func command(t *testing.T, d vfio.Device, v uint16) {
	t.Helper()
	must.OK(t, d.WriteRegion(vfio.RegionConfig, vfio.ConfigCommand, []byte{byte(v), byte(v >> 8)}))
}
