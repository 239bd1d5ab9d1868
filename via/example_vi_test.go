package via_test

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/trapeze-nic/trapeze/conform"
	"github.com/trapeze-nic/trapeze/emulator"
	firmware "github.com/trapeze-nic/trapeze/firmware-loader"
	"github.com/trapeze-nic/trapeze/firmware-loader/load"
	"github.com/trapeze-nic/trapeze/internal/datasheet"
	"github.com/trapeze-nic/trapeze/via"
)

// connectVIs connects a VI of one NIC with one of another, which has the attributes; the
// receives of that one complete to a CQ, unless that is nil.
func connectVIs(ctx context.Context, from, to *via.NIC, attributes via.VIAttributes, completions *via.CQ) (a, b *via.VI) {
	a, err := from.CreateVI(ctx, via.VIAttributes{}, nil, nil)
	check(err)
	b, err = to.CreateVI(ctx, attributes, nil, completions)
	check(err)
	check(conform.ConnectVIs(ctx, a, b, "example"))
	return a, b
}

// withRoom returns a descriptor with one data segment in memory of its own.
func withRoom(ctx context.Context, v *via.VI, size int) (*via.Descriptor, *via.Memory) {
	ds, err := v.NewDescriptors(ctx, 1, 1)
	check(err)
	memory, err := v.NIC().Alloc(ctx, size, via.MemoryAttributes{})
	check(err)
	check(memory.AddTo(ds[0], 0, size))
	return ds[0], memory
}

// A NIC says what it is and how much it has.
func ExampleOpen() {
	nic, err := via.Open(context.Background(), "emu:?vis=100&mac=02:00:00:00:00:01", via.Options{})
	check(err)
	defer nic.Close()
	a := nic.Query()
	fmt.Println(a.Backend, a.Address, a.MaxVIs, "VIs")
	// Output: emulator 02:00:00:00:00:01 100 VIs
}

// Several VIs complete to one queue, which says where to look.
func ExampleCQ() {
	ctx, x, y, done := examplePair(emulator.PairOptions{})
	defer done()
	cq, err := y.CreateCQ(ctx, 2*via.DefaultDepth)
	check(err)
	names := map[*via.VI]string{}
	var senders []*via.VI
	for _, name := range []string{"first", "second"} {
		a, b := connectVIs(ctx, x, y, via.VIAttributes{}, cq)
		senders, names[b] = append(senders, a), name
		receive, _ := withRoom(ctx, b, 64)
		check(b.PostRecv(receive))
	}
	send, _ := withRoom(ctx, senders[1], 5)
	check(senders[1].PostSend(send))

	c, err := cq.Wait(ctx)
	check(err)
	d, err := c.VI.RecvDone()
	check(err)
	fmt.Println(names[c.VI], c.Queue, d.Length(), "bytes")
	// Output: second receive queue 5 bytes
}

// A short message may stand in its descriptor: the NIC has it with the same read.
func Example_inline() {
	ctx, x, y, done := examplePair(emulator.PairOptions{})
	defer done()
	a, b := connectVIs(ctx, x, y, via.VIAttributes{}, nil)
	receive, memory := withRoom(ctx, b, 64)
	check(b.PostRecv(receive))

	ds, err := a.NewDescriptors(ctx, 1, 2) // room for two segments of 16 bytes
	check(err)
	n := copy(ds[0].Inline(), "no memory of its own")
	check(errors.Join(ds[0].SetInline(n), a.PostSend(ds[0])))

	d, err := b.RecvWait(ctx)
	check(err)
	fmt.Printf("%s\n", memory.Bytes()[:d.Length()])
	// Output: no memory of its own
}

// Memory can be registered more than once, with other rights each time.
func ExampleNIC_Register() {
	ctx, x, y, done := examplePair(emulator.PairOptions{})
	defer done()
	memory, err := y.Alloc(ctx, 8192, via.MemoryAttributes{})
	check(err)
	half, err := y.Register(ctx, memory.Bytes()[4096:], via.MemoryAttributes{ReadOnly: true})
	check(err)

	a, b := connectVIs(ctx, x, y, via.VIAttributes{}, nil)
	ds, err := b.NewDescriptors(ctx, 1, 1)
	check(err)
	check(errors.Join(half.AddTo(ds[0], 0, 64), b.PostRecv(ds[0])))
	send, _ := withRoom(ctx, a, 5)
	check(a.PostSend(send))
	_, err = b.RecvWait(ctx)
	var status *via.StatusError
	fmt.Println(half.Size(), "bytes, the NIC may write them:", !errors.As(err, &status) || status.Status&via.StatusProtectionError == 0)
	// Output: 4096 bytes, the NIC may write them: false
}

// A policy says when the parts of a frame that is still arriving move on.
func ExampleNIC_SetPolicy() {
	_, x, _, done := examplePair(emulator.PairOptions{})
	defer done()
	check(x.SetPolicy(via.Policy{Name: "static", MinPulseSend: 512, MinPulseReceive: 1024}))
	state, err := x.Policy()
	check(err)
	fmt.Println("send:", state.Send.Name, state.Send.MinPulse)
	fmt.Println("receive:", state.Receive.Name, state.Receive.MinPulse)
	// Output:
	// send: static 512
	// receive: static 1024
}

// The NIC runs programs: this one counts frames. They are checked before they run.
func ExampleNIC_LoadProgram() {
	ctx, cancel := exampleContext()
	defer cancel()
	nic, err := via.Open(ctx, "emu:", via.Options{})
	check(err)
	defer nic.Close()
	spec, err := firmware.BuildShipped("count")
	check(err)
	image, err := load.Flat(spec.Link())
	check(err)
	status, err := nic.LoadProgram(ctx, image, load.Options{})
	check(err)
	fmt.Println(status.Name, status.State)
	status, err = nic.UnloadProgram()
	check(err)
	fmt.Printf("%q %v\n", status.Name, status.State)
	// Output:
	// count running
	// "" built-in
}

// An endpoint for raw frames needs no connection: it sends and takes Ethernet frames.
func Example_frames() {
	ctx, x, y, done := examplePair(emulator.PairOptions{})
	defer done()
	a, err := x.CreateVI(ctx, via.VIAttributes{Frames: via.StationFrames}, nil, nil)
	check(err)
	b, err := y.CreateVI(ctx, via.VIAttributes{Frames: via.StationFrames}, nil, nil)
	check(err)
	receive, memory := withRoom(ctx, b, 1514)
	check(b.PostRecv(receive))

	to, from := y.Query().Address, x.Query().Address
	frame := append(append(to[:], from[:]...), 0x08, 0x00)
	frame = append(frame, make([]byte, 46)...) // Ethernet frames have at least 60 bytes
	send, out := withRoom(ctx, a, len(frame))
	copy(out.Bytes(), frame)
	check(a.PostSend(send))

	d, err := b.RecvWait(ctx)
	check(err)
	fmt.Printf("%d bytes of EtherType %#04x\n", d.Length(), memory.Bytes()[12:14])
	// Output: 60 bytes of EtherType 0x0800
}

// A program in the NIC puts the payload of a message into the buffer that belongs to
// the message's tag, whatever receive takes the message.
func ExampleVI_SetPayload() {
	ctx, x, y, done := examplePair(emulator.PairOptions{})
	defer done()
	a, b := connectVIs(ctx, x, y, via.VIAttributes{}, nil)

	spec, err := firmware.BuildShipped("ipt") // incoming payload table
	check(err)
	image, err := load.Flat(spec.Link())
	check(err)
	_, err = y.LoadProgram(ctx, image, load.Options{})
	check(err)
	tags, err := y.ProgramMap(spec.Maps, 0)
	check(err)
	page, err := y.Alloc(ctx, 4096, via.MemoryAttributes{})
	check(err)
	// Tag 77 has entry 1 of the VI's payload table, and that is the page.
	value := binary.LittleEndian.AppendUint32([]byte{1, 0, 0, 0}, 1)
	check(errors.Join(b.SetPayload(ctx, 1, page, 0, page.Size()),
		tags.Update([]byte{77, 0, 0, 0}, value, datasheet.MailboxAny)))

	receive, _ := withRoom(ctx, b, 64)
	send, out := withRoom(ctx, a, 14)
	copy(out.Bytes(), "straight there")
	send.SetImmediate(77)
	check(errors.Join(b.PostRecv(receive), a.PostSend(send)))
	d, err := b.RecvWait(ctx)
	check(err)
	fmt.Printf("%s\n", page.Bytes()[:d.Length()])
	// Output: straight there
}

// A code of ours matches the code of VIA's that it refines.
func Example_codes() {
	ctx, cancel := exampleContext()
	defer cancel()
	nic, err := via.Open(ctx, "emu:", via.Options{})
	check(err)
	defer nic.Close()
	v, err := nic.CreateVI(ctx, via.VIAttributes{RecvDepth: 2}, nil, nil)
	check(err)
	ds, err := v.NewDescriptors(ctx, 3, 1)
	check(err)
	n, err := v.PostRecvBatch(ds)
	fmt.Println(n, "of", len(ds), "posted")
	fmt.Println("queue is full:", errors.Is(err, via.ErrQueueFull), "out of resources:", errors.Is(err, via.ErrResource))
	// Output:
	// 2 of 3 posted
	// queue is full: true out of resources: true
}

// Errors that no call can return come to a handler: here the link goes down.
func ExampleNIC_OnError() {
	ctx, cancel := exampleContext()
	defer cancel()
	da, db, err := emulator.Pair(emulator.PairOptions{})
	check(err)
	defer db.Close()
	events := make(chan via.AsyncError, 1)
	nic, err := via.OpenDevice(ctx, da, via.Options{OnError: func(e via.AsyncError) {
		if e.Code == via.AsyncLink {
			events <- e
		}
	}})
	check(err)
	defer nic.Close()
	db.SetLink(false)
	for {
		select {
		case e := <-events:
			fmt.Println("link is up:", e.Detail == 1)
			return
		default:
			nic.Poll()
		}
	}
	// Output: link is up: false
}
