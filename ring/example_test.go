package ring_test

import (
	"context"
	"fmt"
	"log"
	"time"

	"github.com/trapeze-nic/trapeze/emulator"
	"github.com/trapeze-nic/trapeze/ring"
	"github.com/trapeze-nic/trapeze/via"
)

// A server lends a page of its memory, and a client fetches it into a page of its own: the
// reply's payload lands there without a copy by either program.
func Example() {
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	first, second, err := emulator.Pair(emulator.PairOptions{})
	check(err)
	client, err := via.OpenDevice(ctx, first, via.Options{})
	check(err)
	defer client.Close()
	server, err := via.OpenDevice(ctx, second, via.Options{})
	check(err)
	defer server.Close()
	options := ring.Options{Reliability: via.ReliableDelivery}

	lent, err := server.Alloc(ctx, 8192, via.MemoryAttributes{})
	check(err)
	copy(lent.Bytes(), "a page from another machine's memory")
	l, err := ring.Listen(server, "pages", options)
	check(err)
	defer l.Close()
	go func() {
		r, err := l.Accept(ctx)
		check(err)
		defer r.Close()
		// It ends with the connection.
		_ = ring.Serve(ctx, r, func(q *ring.Request) {
			page := ring.Frame{Memory: lent, Length: lent.Size()}
			check(q.Reply([]byte("here is "+string(q.Bytes)), page, nil))
		})
	}()

	r, err := ring.Dial(ctx, client, l.Address().String(), options)
	check(err)
	defer r.Close()
	calls, err := ring.NewCaller(r)
	check(err)
	defer calls.Close()
	mine, err := client.Alloc(ctx, 8192, via.MemoryAttributes{})
	check(err)
	reply, err := calls.Call(ctx, []byte("page 0"), ring.Frame{}, ring.Frame{Memory: mine, Length: mine.Size()})
	check(err)
	fmt.Printf("%s: %q, %d bytes\n", reply.Bytes(), mine.Bytes()[:36], reply.Length)
	// Output:
	// here is page 0: "a page from another machine's memory", 8192 bytes
}

// Messages are built in place and read in place. None of these calls waits but Wait.
func ExampleRing() {
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	first, second, err := emulator.Pair(emulator.PairOptions{})
	check(err)
	a, err := via.OpenDevice(ctx, first, via.Options{})
	check(err)
	defer a.Close()
	b, err := via.OpenDevice(ctx, second, via.Options{})
	check(err)
	defer b.Close()
	l, err := ring.Listen(b, "messages", ring.Options{})
	check(err)
	defer l.Close()
	x, err := ring.Dial(ctx, a, l.Address().String(), ring.Options{})
	check(err)
	defer x.Close()
	y, err := l.Accept(ctx)
	check(err)
	defer y.Close()

	e, err := x.GetSend()
	check(err)
	room, err := e.Reserve(5)
	check(err)
	copy(room, "hello")
	check(x.ReleaseSend(e))

	e, err = y.Wait(ctx)
	check(err)
	text, err := e.Scan(5)
	check(err)
	fmt.Printf("%s\n", text)
	check(y.ReleaseRecv(e))
	// Output: hello
}

func check(err error) {
	if err != nil {
		log.Fatal(err)
	}
}
