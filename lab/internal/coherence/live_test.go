package coherence_test

import (
	"bytes"
	"testing"

	"github.com/trapeze-nic/trapeze/ci/kit/must"
	"github.com/trapeze-nic/trapeze/conform"
	_ "github.com/trapeze-nic/trapeze/emulator" // live NICs
	"github.com/trapeze-nic/trapeze/lab/internal/coherence"
	"github.com/trapeze-nic/trapeze/via"
)

// payloads returns how many transactions of a kind the model has for the payload on one side.
func payloads(r *coherence.Result, side coherence.Side, agent coherence.Agent, kinds ...coherence.Kind) (n uint64) {
	for _, x := range r.Transactions {
		for _, k := range kinds {
			if x.Side == side && x.Agent == agent && x.Kind == k && x.Region == coherence.Payload {
				n++
			}
		}
	}
	return n
}

// TestLiveTransactions: a live NIC's blocks that are pushed, taken, land, are written back and are read from the NIC are as many as the
// transactions of the model for them, on a memory bus with blocks of the same size and on PCIe.
func TestLiveTransactions(t *testing.T) {
	bus, pcie := *load(t, "sonic-via"), load(t, "pcie4-x16-100g")
	bus.NIC.Block = 64
	a, b := conform.OnMemory(t, "", via.Options{})
	w := conform.NewWorld(t, a, b)
	x, y := w.Connect(conform.Setup{})
	for _, c := range []struct {
		way   via.EagerReceive
		model coherence.Receiving
		until coherence.Until
	}{{via.EagerWriteBack, coherence.WriteBack, coherence.Delivered}, {via.EagerHold, coherence.Coherent, coherence.Consumed}} {
		from := must.Get(a.Alloc(conform.Context(t), 8192, via.MemoryAttributes{Eager: via.EagerAttributes{Mode: via.EagerWritten}}))(t)
		to := must.Get(b.Alloc(conform.Context(t), 8192, via.MemoryAttributes{Eager: via.EagerAttributes{Mode: via.EagerWritten, Receive: c.way}}))(t)
		for _, n := range []int{64, 1024, 4096} {
			data := bytes.Repeat([]byte{byte(n / 64), 1}, n/2)
			sent, received := must.Get(a.EagerStats())(t), must.Get(b.EagerStats())(t)
			y.Recv[0].Prepare()
			must.OK(t, to.AddTo(y.Recv[0], 0, n))
			must.OK(t, y.VI.PostRecv(y.Recv[0]))
			must.Get(from.Eager().WriteAt(data, 0))(t)
			must.OK(t, from.Eager().Flush())
			x.Send[0].Prepare()
			must.OK(t, from.AddTo(x.Send[0], 0, n))
			must.OK(t, x.VI.PostSend(x.Send[0]))
			w.MustTake(y.VI.RecvDone)
			w.MustTake(x.VI.SendDone)
			got := make([]byte, n)
			if must.Get(to.Eager().ReadAt(got, 0))(t); !bytes.Equal(got, data) {
				t.Fatalf("%s, %d bytes: others are read", c.model, n)
			}
			s, r := must.Get(a.EagerStats())(t), must.Get(b.EagerStats())(t)
			onBus := run(t, coherence.Options{System: &bus, Mechanism: coherence.EDT, Bytes: n, Until: c.until, Receiving: c.model})
			onPCIe := run(t, coherence.Options{System: pcie, Mechanism: coherence.EDT, Bytes: n, Receiving: c.model})
			for _, row := range []struct {
				what            string
				live, bus, pcie uint64
			}{
				{"pushed", s.Pushed - sent.Pushed, payloads(onBus, coherence.Sender, coherence.NIC, coherence.Read), payloads(onPCIe, coherence.Sender, coherence.Host, coherence.Push)},
				{"read by DMA", s.Read - sent.Read, 0, payloads(onPCIe, coherence.Sender, coherence.NIC, coherence.DMARead)},
				{"written back", r.WrittenBack - received.WrittenBack, payloads(onBus, coherence.Receiver, coherence.NIC, coherence.Write), payloads(onPCIe, coherence.Receiver, coherence.NIC, coherence.DMAWrite)},
				{"read by the host", r.Fetched - received.Fetched, payloads(onBus, coherence.Receiver, coherence.Host, coherence.Read), payloads(onPCIe, coherence.Receiver, coherence.Host, coherence.Load)},
				{"landed", r.Landed - received.Landed, uint64(n) / 64, uint64(n) / 64},
			} {
				if row.live != row.bus || row.live != row.pcie {
					t.Errorf("%s, %d bytes, %s: %d blocks live, %d on a bus, %d on PCIe", c.model, n, row.what, row.live, row.bus, row.pcie)
				}
			}
		}
	}
}

// TestInitialising: a registration has each block flushed, or read by the NIC; over PCIe a flush takes no transfer, as of a live NIC.
func TestInitialising(t *testing.T) {
	for name, want := range map[string]map[coherence.Initialising]int{
		"sonic-via":      {coherence.Flush: 32, coherence.NICReads: 32},
		"pcie4-x16-100g": {coherence.Flush: 0, coherence.NICReads: 16},
	} {
		for way, n := range want {
			r := run(t, coherence.Options{System: load(t, name), Mechanism: coherence.EDT, Bytes: 1024, Initialising: way})
			if r.Initialised != n || r.Registration > 0 != (n > 0) {
				t.Errorf("%s, %s: %d transactions in %v, want %d", name, way, r.Initialised, r.Registration, n)
			}
		}
	}
}
