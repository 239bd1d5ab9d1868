package emulator_test

import (
	"bytes"
	"encoding/binary"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/trapeze-nic/trapeze/ci/kit/leaktest"
	"github.com/trapeze-nic/trapeze/ci/kit/must"
	"github.com/trapeze-nic/trapeze/ci/kit/should"
	"github.com/trapeze-nic/trapeze/ci/kit/soak"
	"github.com/trapeze-nic/trapeze/ci/kit/waittest"
	"github.com/trapeze-nic/trapeze/conform"
	"github.com/trapeze-nic/trapeze/emulator"
	"github.com/trapeze-nic/trapeze/via"
	"github.com/trapeze-nic/trapeze/wire"
)

// writerChild, if set, is the socket at which the test program meets the one that has started it, and
// readerChild likewise: that one reads.
const (
	writerChild = "TRAPEZE_TEST_WRITER"
	readerChild = "TRAPEZE_TEST_READER"
)

const writtenSize = 64 << 10

// operateForEver writes to the memory that a message tells of until the process is killed, or reads it.
func operateForEver(t *testing.T, nic *via.NIC, read bool) {
	ctx := conform.Context(t)
	e := conform.NewEnd(t, nic, conform.Setup{Memory: writtenSize, Segments: 2,
		Attributes: via.VIAttributes{Reliability: via.ReliableDelivery, MaxTransfer: writtenSize}})
	must.OK(t, e.VI.PostRecv(e.Prepare(t, e.Recv[0], 0, 12)))
	to := via.Address{Discriminator: "written"}
	to.MAC = [6]byte{2, 0, 0, 0, 0, 0x2a}
	must.Get(conform.Request(ctx, e.VI, to))(t)
	must.Get(e.VI.RecvWait(ctx))(t)
	address, handle := binary.LittleEndian.Uint64(e.Memory.Bytes()), binary.LittleEndian.Uint32(e.Memory.Bytes()[8:])
	for {
		d := e.Prepare(t, e.Send[0], 0, writtenSize)
		set := d.SetRDMAWrite
		if read {
			set = d.SetRDMARead
		}
		must.OK(t, set(address, handle))
		must.OK(t, e.VI.PostSend(d))
		must.Get(e.VI.SendWait(ctx))(t)
	}
}

// TestWriterKilled: a peer that is killed at any time within writes, or reads, leaves memory that can be taken
// back soon, and stays as it is then.
func TestWriterKilled(t *testing.T) {
	leaktest.Parallel(t)
	for _, child := range []string{writerChild, readerChild} {
		if path := os.Getenv(child); path != "" {
			operateForEver(t, conform.OpenNIC(t, "emu:?share=write&wire=shm:"+path, via.Options{}), child == readerChild)
			return
		}
	}
	random := rand.New(rand.NewPCG(3, 1))
	for i := range soak.Count(20, 300) {
		killPeer(t, []string{writerChild, readerChild}[i%2], time.Duration(random.IntN(3000))*time.Microsecond)
	}
}

// killPeer has a process write to memory of this one, or read it, and kills it after some time.
func killPeer(t *testing.T, child string, after time.Duration) {
	o := both
	o.Path, o.Role = filepath.Join(t.TempDir(), "wire"), wire.SHMListen
	s := newSharer(t, o, func(o *emulator.Options) { o.MAC = [6]byte{2, 0, 0, 0, 0, 0x2a} })
	self := must.Get(os.Executable())(t)
	ctx := conform.Context(t)
	cmd := exec.CommandContext(ctx, self, "-test.run=^TestWriterKilled$", "-test.timeout=2m")
	cmd.Env = append(os.Environ(), child+"="+o.Path)
	must.OK(t, cmd.Start())
	defer func() { _ = cmd.Wait() }()
	defer func() { _ = cmd.Process.Kill() }()

	rights := via.MemoryAttributes{RDMAWrite: true, RDMARead: true}
	whole := must.Get(s.nic.Alloc(ctx, writtenSize, rights))(t)
	target := must.Get(s.nic.Register(ctx, whole.Bytes(), rights))(t)
	e := conform.NewEnd(t, s.nic, conform.Setup{Memory: 4096,
		Attributes: via.VIAttributes{Reliability: via.ReliableDelivery, MaxTransfer: writtenSize, RDMAWrite: true, RDMARead: true}})
	c := must.Get(s.nic.ConnectWait(ctx, "written"))(t)
	must.Get(c.Accept(ctx, e.VI))(t)
	binary.LittleEndian.PutUint64(e.Memory.Bytes(), target.Address())
	binary.LittleEndian.PutUint32(e.Memory.Bytes()[8:], target.Handle())
	must.OK(t, e.VI.PostSend(e.Prepare(t, e.Send[0], 0, 12)))
	must.Get(e.VI.SendWait(ctx))(t)

	b := whole.Bytes()
	received := func() uint64 {
		stats := must.Get(s.nic.Stats())(t)
		return stats.FramesReceived
	}
	for end := time.Now().Add(timeout); ; s.nic.Poll() {
		before := received()
		fill(b, 1)
		time.Sleep(time.Millisecond)
		if (child == readerChild || b[100] == 0) && received() == before { // the writer's memory is zero, and this end is not polled here
			break
		}
		must.Be(t, time.Now().After(end), false, "nothing is written without a frame")
	}
	time.Sleep(after)
	must.OK(t, cmd.Process.Kill())
	must.OK(t, target.Close(ctx))
	fill(b, 9)
	want := bytes.Clone(b)
	_ = cmd.Wait()
	waittest.Until(t, "the death of the writer is noticed", func() bool {
		s.nic.Poll()
		return !s.port.LinkUp()
	})
	should.Same(t, b, want, "memory was written after it had been taken back")
	must.OK(t, s.nic.Close())
}
