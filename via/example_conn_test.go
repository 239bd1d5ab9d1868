package via_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"os"
	"strings"
	"time"

	"github.com/trapeze-nic/trapeze/emulator"
	"github.com/trapeze-nic/trapeze/via"
	"github.com/trapeze-nic/trapeze/wire"
)

// examplePair returns two NICs on one wire, and what closes them.
func examplePair(options emulator.PairOptions) (ctx context.Context, a, b *via.NIC, done func()) {
	ctx, cancel := exampleContext()
	da, db, err := emulator.Pair(options)
	check(err)
	a, err = via.OpenDevice(ctx, da, via.Options{})
	check(err)
	b, err = via.OpenDevice(ctx, db, via.Options{})
	check(err)
	return ctx, a, b, func() {
		_, _ = a.Close(), b.Close()
		cancel()
	}
}

// exampleConns returns the two ends of a connection.
func exampleConns(ctx context.Context, from, to *via.NIC) (a, b *via.Conn) {
	l, err := via.Listen(to, "example", via.ListenOptions{})
	check(err)
	a, err = via.Dial(ctx, from, l.Address().String(), via.ConnOptions{})
	check(err)
	b, err = l.Accept(ctx)
	check(errors.Join(err, l.Close()))
	return a, b
}

func check(err error) {
	if err != nil {
		log.Fatal(err)
	}
}

func exampleContext() (context.Context, context.CancelFunc) {
	return context.WithTimeout(context.Background(), 10*time.Second)
}

// A device from elsewhere, such as an emulated one in a test, becomes a NIC.
func ExampleOpenDevice() {
	a, b, err := emulator.Pair(emulator.PairOptions{})
	check(err)
	defer b.Close()
	nic, err := via.OpenDevice(context.Background(), a, via.Options{})
	check(err)
	defer nic.Close()
	fmt.Println(nic.Address())
	// Output: emu:pair/a
}

// Whoever dials may come first: Dial tries again until the other side listens.
func ExampleDial() {
	ctx, client, server, done := examplePair(emulator.PairOptions{})
	defer done()
	go func() {
		l, err := via.Listen(server, "clock", via.ListenOptions{})
		check(err)
		c, err := l.Accept(ctx)
		check(err)
		check(c.Send(ctx, []byte("noon")))
	}()
	c, err := via.Dial(ctx, client, via.Address{MAC: server.Query().Address, Discriminator: "clock"}.String(), via.ConnOptions{})
	check(err)
	m, err := c.Receive(ctx)
	check(err)
	fmt.Printf("%s\n", m)
	// Output: noon
}

// A listener chooses by what the other side has, and says why it refuses.
func ExampleListen_options() {
	ctx, client, server, done := examplePair(emulator.PairOptions{})
	defer done()
	options := via.ListenOptions{Conn: func(r via.Remote) (via.ConnOptions, error) {
		if r.MaxTransfer > 4096 {
			return via.ConnOptions{}, errors.New("short messages only")
		}
		return via.ConnOptions{SendDepth: 4, RecvDepth: 4}, nil
	}}
	l, err := via.Listen(server, "short", options)
	check(err)
	for _, size := range []int{65536, 1024} {
		_, err := via.Dial(ctx, client, l.Address().String(), via.ConnOptions{MaxMessage: size})
		fmt.Println(size, "bytes, rejected:", errors.Is(err, via.ErrReject))
	}
	// Output:
	// 65536 bytes, rejected: true
	// 1024 bytes, rejected: false
}

// A listener that is busy has others wait: Dial tries again until there is room.
func ExampleListen_backlog() {
	ctx, client, server, done := examplePair(emulator.PairOptions{})
	defer done()
	options := via.ListenOptions{Backlog: 1, Limit: 3} // one at a time, and three in all
	l, err := via.Listen(server, "queue", options)
	check(err)
	for range 3 {
		go func() {
			c, err := via.Dial(ctx, client, l.Address().String(), via.ConnOptions{})
			check(err)
			check(c.Send(ctx, []byte("my turn")))
		}()
	}
	for range 3 {
		c, err := l.Accept(ctx)
		check(err)
		m, err := c.Receive(ctx)
		check(err)
		fmt.Printf("%s\n", m)
	}
	// Output:
	// my turn
	// my turn
	// my turn
}

// A message is built where the NIC takes it from, and read where the NIC has put it.
func ExampleConn_Acquire() {
	ctx, x, y, done := examplePair(emulator.PairOptions{})
	defer done()
	a, b := exampleConns(ctx, x, y)

	buffer, err := a.Acquire(ctx)
	check(err)
	message := fmt.Appendf(buffer[:0], "%d bytes of room", len(buffer))
	check(a.Post(len(message)))

	m, err := b.Receive(ctx)
	check(err)
	fmt.Printf("%s\n", m)
	check(b.Release())
	// Output: 32768 bytes of room
}

// The end of a connection is io.EOF; everything else is an error.
func ExampleConn_CloseSend() {
	ctx, x, y, done := examplePair(emulator.PairOptions{})
	defer done()
	a, b := exampleConns(ctx, x, y)
	check(a.Send(ctx, []byte("all there is")))
	check(a.CloseSend(ctx))
	for {
		m, err := b.Receive(ctx)
		if err == io.EOF {
			break
		}
		check(err)
		fmt.Printf("%s\n", m)
		check(b.Release())
	}
	// Output: all there is
}

// A stream is a net.Conn: what works over TCP works over it.
func ExampleConn_Stream() {
	ctx, x, y, done := examplePair(emulator.PairOptions{})
	defer done()
	a, b := exampleConns(ctx, x, y)
	out, err := a.Stream()
	check(err)
	in, err := b.Stream()
	check(err)
	sent := make(chan error)
	go func() {
		_, err := io.Copy(out, strings.NewReader("a stream of bytes\n"))
		sent <- errors.Join(err, out.Close())
	}()
	_, err = io.Copy(os.Stdout, in)
	check(errors.Join(err, <-sent))
	// Output: a stream of bytes
}

// A stream in one call, as net.Dialer.DialContext makes one over TCP.
func ExampleDialStream() {
	ctx, client, server, done := examplePair(emulator.PairOptions{})
	defer done()
	l, err := via.Listen(server, "upper", via.ListenOptions{})
	check(err)
	served := make(chan error, 1)
	go func() {
		in, err := l.Streams().Accept()
		check(err)
		line, err := bufio.NewReader(in).ReadString('\n')
		check(err)
		_, err = io.WriteString(in, strings.ToUpper(line))
		served <- errors.Join(err, in.Close())
	}()
	out, err := via.DialStream(ctx, client, l.Address().String())
	check(err)
	defer out.Close()
	_, err = io.WriteString(out, "a line over a NIC\n")
	check(err)
	_, err = io.Copy(os.Stdout, out)
	check(errors.Join(err, <-served))
	// Output: A LINE OVER A NIC
}

// A listener whose connections are streams serves what net.Listener serves.
func ExampleListener_Streams() {
	_, client, server, done := examplePair(emulator.PairOptions{})
	defer done()
	l, err := via.Listen(server, "http", via.ListenOptions{})
	check(err)
	s := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		fmt.Fprintf(w, "%s %s, without the kernel", r.Method, r.URL.Path)
	})}
	go s.Serve(l.Streams())
	defer s.Close()

	t := &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return via.DialStream(ctx, client, l.Address().String())
	}}
	defer t.CloseIdleConnections()
	response, err := (&http.Client{Transport: t}).Get("http://nic/page")
	check(err)
	defer response.Body.Close()
	_, err = io.Copy(os.Stdout, response.Body)
	check(err)
	// Output: GET /page, without the kernel
}

// Two NICs on a bad wire, as a test may want them: all arrives, in order.
func Example_faults() {
	ctx, x, y, done := examplePair(emulator.PairOptions{Faults: wire.FaultOptions{Loss: 0.2, Duplicate: 0.2, Reorder: 0.2, Seed: 1}})
	defer done()
	a, b := exampleConns(ctx, x, y)
	for i := range 3 {
		check(a.Send(ctx, fmt.Appendf(nil, "message %d", i)))
		m, err := b.Receive(ctx)
		check(err)
		fmt.Printf("%s\n", m)
		check(b.Release())
	}
	// Output:
	// message 0
	// message 1
	// message 2
}
