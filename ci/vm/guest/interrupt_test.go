package guest

import (
	"context"
	"errors"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/trapeze-nic/trapeze/vfio"
)

func eventfd(t *testing.T) *vfio.Eventfd {
	t.Helper()
	fd, err := vfio.NewEventfd()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { fd.Close() })
	return fd
}

// connect connects one vector to an eventfd.
func connect(t *testing.T, d vfio.Device, index, vector int) *vfio.Eventfd {
	t.Helper()
	fd := eventfd(t)
	if err := d.SetIRQs(index, vector, []int{fd.FD()}); err != nil {
		t.Fatal(err)
	}
	return fd
}

// quiet fails the test if the eventfd is signalled within a moment.
func quiet(t *testing.T, fd *vfio.Eventfd, why string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 200*time.Millisecond)
	defer cancel()
	if err := fd.Wait(ctx); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("an interrupt came (%v) although %s", err, why)
	}
}

func fires(t *testing.T, fd *vfio.Eventfd) {
	t.Helper()
	if err := fd.Wait(within(t)); err != nil {
		t.Fatal(err)
	}
}

// TestMSI: raised by a register, and at the end of a DMA transfer.
func TestMSI(t *testing.T) {
	e := openEdu(t, alone(t, eduID, false))
	e.busMaster(true) // a message is a write by the device
	fd := connect(t, e, vfio.IRQMSI, 0)
	for _, v := range []uint32{1, 0x80} {
		e.write(eduRaise, v)
		fires(t, fd)
		if got := e.read(eduRaised); got != v {
			t.Errorf("status %#x, want %#x", got, v)
		}
		e.write(eduAck, v)
	}
	mem, iova := e.alloc(eduBufferSize)
	e.start(iova, eduBuffer, 64, eduThenRaise)
	fires(t, fd)
	if e.read(eduRaised) != eduDMAInterrupt || e.read(eduDMAStart)&eduRun != 0 {
		t.Errorf("status %#x after a transfer of %d bytes", e.read(eduRaised), len(mem.Bytes()))
	}
	e.write(eduAck, eduDMAInterrupt)
	if err := e.SetIRQs(vfio.IRQINTx, 0, []int{fd.FD()}); !errors.Is(err, unix.EBUSY) {
		t.Errorf("INTx while MSI is in use: %v", err)
	} else {
		t.Log(err)
	}
	if err := e.DisableIRQs(vfio.IRQMSI); err != nil {
		t.Fatal(err)
	}
	quiet(t, fd, "MSI is disconnected")
}

// TestINTx: the kernel masks the line each time until it is unmasked.
func TestINTx(t *testing.T) {
	e := openEdu(t, alone(t, eduID, false))
	fd := connect(t, e, vfio.IRQINTx, 0)
	for round := range 3 {
		e.write(eduRaise, 1)
		fires(t, fd)
		quiet(t, fd, "the line is masked")
		e.write(eduAck, 1)
		e.write(eduRaise, 2)
		quiet(t, fd, "nobody unmasked the line yet")
		if err := e.UnmaskIRQ(vfio.IRQINTx); err != nil {
			t.Fatal(err)
		}
		fires(t, fd)
		e.write(eduAck, 2)
		if err := e.UnmaskIRQ(vfio.IRQINTx); err != nil {
			t.Fatal(err)
		}
		t.Logf("round %d: raised, masked, unmasked", round)
	}
	if err := e.MaskIRQ(vfio.IRQINTx); err != nil {
		t.Fatal(err)
	}
	e.write(eduRaise, 4)
	quiet(t, fd, "it is masked")
	if err := e.UnmaskIRQ(vfio.IRQINTx); err != nil {
		t.Fatal(err)
	}
	fires(t, fd)
	e.write(eduAck, 4)
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
	irq, err := d.IRQ(vfio.IRQMSIX)
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("%+v", irq)
	if irq.Count != 10 {
		t.Fatalf("%d vectors", irq.Count)
	}
	if err := d.SetIRQs(vfio.IRQMSIX, 8, []int{-1, -1, -1}); !errors.Is(err, vfio.ErrNoSuchIRQ) {
		t.Errorf("vectors beyond the last: %v", err)
	}
	igbInterrupts(t, d)
	fds := map[int]*vfio.Eventfd{1: connect(t, d, vfio.IRQMSIX, 1)}
	for _, vector := range []int{3, 9, 0} { // more of them later, beyond the first and before it
		fds[vector] = connect(t, d, vfio.IRQMSIX, vector)
	}
	for _, vector := range []int{0, 1, 3, 9, 1} {
		set32(t, d, igbEICS, 1<<vector)
		fires(t, fds[vector])
	}
	if err := d.SetIRQs(vfio.IRQMSIX, 3, []int{-1}); err != nil {
		t.Fatal(err)
	}
	set32(t, d, igbEICS, 1<<3)
	quiet(t, fds[3], "its vector is disconnected")
	set32(t, d, igbEICS, 1<<9)
	fires(t, fds[9])
	if err := d.DisableIRQs(vfio.IRQMSIX); err != nil {
		t.Fatal(err)
	}
	set32(t, d, igbEICS, 1<<9)
	quiet(t, fds[9], "MSI-X is disconnected")
	t.Log("vectors 0, 1, 3 and 9 fired, each at its own eventfd")
}

// TestMSIXTable maps what can be mapped of the BAR with the vector table.
func TestMSIXTable(t *testing.T) {
	d := open(t, alone(t, igbID, false))
	config, err := vfio.ReadConfig(d)
	if err != nil {
		t.Fatal(err)
	}
	r, err := d.Region(config.MSIX.TableBAR)
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("%+v in %+v", *config.MSIX, r)
	m, err := d.MapRegion(config.MSIX.TableBAR, 0, r.Size)
	if mappable := len(r.Sparse) == 0; mappable != (err == nil) || mappable != r.MSIXMappable {
		t.Errorf("mapping all of it: %v", err)
	}
	if err == nil {
		if err := m.Close(); err != nil {
			t.Error(err)
		}
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
	if err := d.WriteRegion(vfio.RegionBAR0, offset, []byte{byte(v), byte(v >> 8), byte(v >> 16), byte(v >> 24)}); err != nil {
		t.Fatal(err)
	}
}

func get32(t *testing.T, d vfio.Device, offset uint64) uint32 {
	t.Helper()
	var b [4]byte
	if err := d.ReadRegion(vfio.RegionBAR0, offset, b[:]); err != nil {
		t.Fatal(err)
	}
	return uint32(b[0]) | uint32(b[1])<<8 | uint32(b[2])<<16 | uint32(b[3])<<24
}

func command(t *testing.T, d vfio.Device, v uint16) {
	t.Helper()
	if err := d.WriteRegion(vfio.RegionConfig, vfio.ConfigCommand, []byte{byte(v), byte(v >> 8)}); err != nil {
		t.Fatal(err)
	}
}
