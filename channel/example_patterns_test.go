package channel_test

import (
	"context"
	"fmt"
	"log"
	"time"

	"github.com/trapeze-nic/trapeze/channel"
	"github.com/trapeze-nic/trapeze/via"
)

// connect opens a pair of channels on emulated NICs, and says how to close them.
func connect(ctx context.Context, name string, options channel.Options) (near, far *channel.Channel, end func()) {
	open := func() *via.NIC {
		nic, err := via.Open(ctx, "emu:?wire=mem:"+name, via.Options{})
		if err != nil {
			log.Fatal(err)
		}
		return nic
	}
	a, b := open(), open()
	l, err := channel.Listen(b, name, channel.Options{})
	if err != nil {
		log.Fatal(err)
	}
	if near, err = channel.Dial(ctx, a, l.Address().String(), options); err != nil {
		log.Fatal(err)
	}
	if far, err = l.Accept(ctx); err != nil {
		log.Fatal(err)
	}
	return near, far, func() {
		for _, c := range []interface{ Close() error }{near, far, l, a, b} {
			if err := c.Close(); err != nil {
				log.Fatal(err)
			}
		}
	}
}

// A page of data between a header and a trailer lands aligned to a page, and is taken from there.
func ExampleChannel_SendPlaced() {
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	near, far, end := connect(ctx, "example-placed", channel.Options{})
	defer end()

	const header = 16
	if err := far.AllowPlaced(header); err != nil {
		log.Fatal(err)
	}
	copy(near.SendPages().Page(1), "what is in the page")
	if err := near.SendPlaced(channel.Low, []byte("header, 16 bytes"), []byte("trailer")); err != nil {
		log.Fatal(err)
	}
	m, err := far.Wait(ctx)
	if err != nil {
		log.Fatal(err)
	}
	head, data, trailer, err := far.Placed(m, header)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Printf("%s | %s | %s\n", head, data[:19], trailer[:7])
	fmt.Println(len(data), "bytes in page 1:", &data[0] == &far.RecvPages().Page(1)[0], "copied:", far.RecvPages().Stats().Copied)
	// Output:
	// header, 16 bytes | what is in the page | trailer
	// 4096 bytes in page 1: true copied: 0
}

// A message is read where it lies.
func ExampleChannel_View() {
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	near, far, end := connect(ctx, "example-view", channel.Options{})
	defer end()

	if err := near.Send(channel.High, 0, near.SendPages().Put(0, []byte("in place"))); err != nil {
		log.Fatal(err)
	}
	m, err := far.Wait(ctx)
	if err != nil {
		log.Fatal(err)
	}
	first, rest, err := far.View(m)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Printf("%s, and %d bytes over the end\n", first, len(rest))
	if err := far.Release(m); err != nil { // from here on it may be written over
		log.Fatal(err)
	}
	// Output: in place, and 0 bytes over the end
}

// A receiver that drops cells halves the sender's rate; one that does not lets it grow.
func ExampleRate() {
	r := channel.NewRate(1e6, 16e6)
	for _, drops := range []int{0, 0, 0, 12, 12} { // as reported
		lost := r.Report(channel.Drops{Cells: drops})
		fmt.Printf("%2d cells lost, %.1f MB/s\n", lost, r.BytesPerSecond()/1e6)
	}
	// Output:
	//  0 cells lost, 2.0 MB/s
	//  0 cells lost, 3.0 MB/s
	//  0 cells lost, 4.0 MB/s
	// 12 cells lost, 2.0 MB/s
	//  0 cells lost, 3.0 MB/s
}
