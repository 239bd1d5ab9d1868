package engine_test

import (
	"math"
	"testing"

	"github.com/trapeze-nic/trapeze/ci/kit/must"
	"github.com/trapeze-nic/trapeze/ci/kit/should"
	"github.com/trapeze-nic/trapeze/internal/datasheet"
)

// What the host of a node does.

// alloc takes host memory, aligned to 64 bytes: what the processor sees and its
// application and bus addresses.
func (n *node) alloc(size int) (mem []byte, address, iova uint64) {
	off := n.brk
	n.brk = (n.brk + uint64(size) + 63) &^ 63
	if n.brk > uint64(len(n.mem)) {
		n.w.t.Fatal("out of test memory")
	}
	return n.mem[off : off+uint64(size) : off+uint64(size)], hostBase + off, busBase + off
}

// start hands a command to the NIC and returns its id.
func start[T datasheet.CommandBody](n *node, op datasheet.Opcode, body T) uint16 {
	n.nextID++
	c := datasheet.Command{Opcode: op, ID: n.nextID}
	*datasheet.Body[T](&c) = body
	n.e.Execute(&c)
	return n.nextID
}

// wait returns the reply to a command.
func (n *node) wait(id uint16) datasheet.AdminEntry {
	n.w.t.Helper()
	n.w.run("the reply to a command", func() bool { _, ok := n.replies[id]; return ok })
	r := n.replies[id]
	delete(n.replies, id)
	return r
}

// do has a command carried out that must succeed.
func do[T datasheet.CommandBody](n *node, op datasheet.Opcode, body T) *datasheet.AdminEntry {
	n.w.t.Helper()
	r := n.wait(start(n, op, body))
	must.Be(n.w.t, r.Result, datasheet.ResultSuccess, "%v: (field %d)", op, r.Field)
	return &r
}

// memory registers all of a node's memory.
func (n *node) memory(tag uint32, access datasheet.Access) uint32 {
	r := do(n, datasheet.OpRegisterMemory, datasheet.RegisterMemoryBody{
		Address: hostBase, Length: uint64(len(n.mem)), IOVA: busBase, Ptag: tag, Access: access})
	return datasheet.Reply[datasheet.RegionReply](r).Handle
}

func disc(name string) (d datasheet.Discriminator) {
	d.Len = uint8(copy(d.Data[:], name))
	return d
}

// refused has a command carried out that must fail with want.
func refused[T datasheet.CommandBody](t *testing.T, n *node, what string, op datasheet.Opcode, body T, want datasheet.Result) {
	t.Helper()
	r := n.wait(start(n, op, body))
	should.Be(t, r.Result, want, "%s", what)
	if want != datasheet.ResultResource && want != datasheet.ResultBadOpcode && r.Field == 0 {
		t.Errorf("%s: the reply names no field", what)
	}
}

func request(v *vi, to datasheet.MAC, name string, ms uint32) uint16 {
	return start(v.n, datasheet.OpConnectRequest, datasheet.ConnectRequestBody{Endpoint: v.id, TimeoutMS: ms, RemoteMAC: to, Remote: disc(name), Local: disc("me")})
}

func waitFor(n *node, name string, ms uint32) uint16 {
	return start(n, datasheet.OpConnectWait, datasheet.ConnectWaitBody{TimeoutMS: ms, Local: disc(name)})
}

// forever is the timeout of a host that does not say one.
const forever = math.MaxUint32

func accept(n *node, connection uint32, v *vi, ms uint32) uint16 {
	return start(n, datasheet.OpConnectAccept, datasheet.ConnectAcceptBody{Connection: connection, Endpoint: v.id, TimeoutMS: ms})
}

func disconnect(v *vi) {
	v.n.w.t.Helper()
	do(v.n, datasheet.OpDisconnect, datasheet.EndpointBody{Endpoint: v.id})
}

func deregister(n *node, handle uint32) {
	do(n, datasheet.OpDeregisterMemory, datasheet.MemoryBody{Handle: handle})
}

// query is what the NIC says of a VI.
func (v *vi) query() *datasheet.EndpointReply {
	v.n.w.t.Helper()
	return datasheet.Reply[datasheet.EndpointReply](do(v.n, datasheet.OpQueryEndpoint, datasheet.EndpointBody{Endpoint: v.id}))
}

func (v *vi) state() datasheet.State {
	v.n.w.t.Helper()
	return v.query().State
}

// mapSRAM gives a node device memory, which begins at from for the NIC.
func (n *node) mapSRAM(size int, from uint32) []byte {
	n.sram = alignedBytes(size)
	must.OK(n.w.t, n.e.MapSRAM(n.sram, from))
	return n.sram
}

// breakBus makes the node's bus give memory in pieces of 64 bytes and refuse
// those that hit names.
func (n *node) breakBus(hit func(iova uint64) bool) {
	n.e.Exclusive(func() {
		n.gen++
		n.pieces = 64
		n.refuse = func(iova uint64, _ bool) bool { return hit(iova) }
	})
}
