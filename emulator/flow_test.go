package emulator_test

import (
	"bytes"
	"encoding/binary"
	"testing"
	"time"

	"github.com/trapeze-nic/trapeze/ci/kit/must"
	"github.com/trapeze-nic/trapeze/descriptors"
	"github.com/trapeze-nic/trapeze/emulator"
	"github.com/trapeze-nic/trapeze/engine"
	"github.com/trapeze-nic/trapeze/internal/datasheet"
	"github.com/trapeze-nic/trapeze/vfio"
)

// flow is a connection between two hosts that carries messages one way, one at a
// time, and the memory for it.
type flow struct {
	t        *testing.T
	from, to *flowEnd
}

type flowEnd struct {
	*adminHost
	vi     uint32
	handle uint32
	data   *vfio.Memory
	posted uint32
}

// Where a flowEnd has its data on the bus: descriptor, progress area, a page for
// the log, and buffers.
const (
	flowBase     = 0x200000
	flowProgress = flowBase + 0x800
	flowLog      = flowBase + 0x1000
	flowBuffer   = flowBase + 0x2000
	flowSize     = 0x4000
	flowMessage  = 4096
)

func newFlow(t *testing.T, threads bool, o emulator.PairOptions) *flow {
	t.Helper()
	// On a busy machine an acknowledgement may take long; a frame that is sent again
	// would be one too many for tests that count.
	patient := engine.Timing{Retransmit: time.Hour, RetransmitMax: time.Hour, Probe: time.Hour, Dead: 2 * time.Hour}
	o.Timing = patient
	a, b := newHosts(t, threads, o)
	return flowBetween(t, a, b)
}

func flowBetween(t *testing.T, a, b *adminHost) *flow {
	t.Helper()
	f := &flow{t: t, from: &flowEnd{adminHost: a}, to: &flowEnd{adminHost: b}}
	f.from.vi, f.to.vi = connect(t, a, b)
	for _, e := range []*flowEnd{f.from, f.to} {
		e.data = newMemory(t, flowSize)
		t.Cleanup(func() { closeDevice(t, e.d) }) // before its memory goes
		must.OK(t, e.d.MapDMA(e.data, flowBase, vfio.DMARead|vfio.DMAWrite))
		c := datasheet.Command{Opcode: datasheet.OpRegisterMemory}
		*datasheet.Body[datasheet.RegisterMemoryBody](&c) = datasheet.RegisterMemoryBody{Address: flowBase, Length: flowSize, IOVA: flowBase}
		reply := e.do(c)
		e.handle = datasheet.Reply[datasheet.RegionReply](&reply).Handle
	}
	return f
}

// post posts a descriptor for n bytes of the buffer, and returns it.
func (e *flowEnd) post(n int, ring, doorbell uint64) *descriptors.Descriptor {
	e.t.Helper()
	d := must.Get(descriptors.NewDescriptor(e.data.Bytes()[:descriptors.DescriptorBytes(1)], flowBase, e.handle))(e.t)
	d.Prepare()
	must.OK(e.t, d.AddData(flowBuffer, e.handle, uint32(n)))
	tokens := datasheet.TokensAt(e.mem.Bytes()[ring-hostBase:])
	tokens[e.posted%4] = d.Token()
	e.posted++
	page := datasheet.EndpointPage(e.vi) + doorbell
	write(e.t, e.d, vfio.RegionBAR2, page, binary.LittleEndian.AppendUint32(nil, e.posted))
	return d
}

func (e *flowEnd) buffer() []byte { return e.data.Bytes()[flowBuffer-flowBase:][:flowMessage] }

// begin posts a message of n bytes; done reports that it has arrived.
func (f *flow) begin(n int, fill byte) (done func() bool) {
	f.t.Helper()
	clear(f.to.buffer())
	for i := range f.from.buffer() {
		f.from.buffer()[i] = fill + byte(i%251)
	}
	r := f.to.post(n, hostRings+0x1000, datasheet.DoorbellRecv)
	s := f.from.post(n, hostRings, datasheet.DoorbellSend)
	return func() bool {
		if !s.Status().Done() || !r.Status().Done() {
			return false
		}
		if s.Status().Failed() || r.Status().Failed() || !bytes.Equal(f.to.buffer()[:n], f.from.buffer()[:n]) {
			f.t.Fatalf("sent %v, received %v, and the bytes may differ", s.Status(), r.Status())
		}
		return true
	}
}

// await lets both devices make progress until done.
func (f *flow) await(what string, done func() bool) {
	f.t.Helper()
	for end := time.Now().Add(timeout); !done(); f.from.poll() {
		must.Be(f.t, time.Now().After(end), false, "%s did not happen", what)
	}
}

// send sends a message of n bytes and waits for it.
func (f *flow) send(n int, fill byte) {
	f.t.Helper()
	f.await("a message", f.begin(n, fill))
}

func (e *flowEnd) dma(reg uint32) uint32 {
	e.t.Helper()
	return read32(e.t, e.d, datasheet.DMAOffset+uint64(reg))
}

func (e *flowEnd) setDMA(reg, v uint32) {
	e.t.Helper()
	write32(e.t, e.d, datasheet.DMAOffset+uint64(reg), v)
}

// engineRegs reads the registers of an engine: state, frame, length, progress.
func (e *flowEnd) engineRegs(n datasheet.DMAEngine) (r [4]uint32) {
	e.t.Helper()
	for i := range r {
		r[i] = e.dma(datasheet.DMAEngineBase + datasheet.DMAEngineSize*uint32(n) + 4*uint32(i))
	}
	return r
}
