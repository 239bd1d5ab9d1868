// Nfspage reads a file by NFS version 3 over a pair of MINI's channels: READ requests go one way,
// replies the other. Each reply is re-ordered so that the page of the file in it lands aligned to
// a page of the reader's memory, where the reader takes it, without a copy. Counters show that.
//
// To check it all, the program compares each page with the file where it has landed, and puts each
// reply together again as the server made it, which copies it. Both NICs are emulated, in this process; on hardware the addresses
// differ, no more.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"log"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/trapeze-nic/trapeze/channel"
	_ "github.com/trapeze-nic/trapeze/emulator" // makes "emu:" known
	"github.com/trapeze-nic/trapeze/via"
)

// cellPayload is the payload of a cell in bytes (ITU-T I.361).
const cellPayload = 48

func main() {
	log.SetFlags(0)
	log.SetPrefix("nfspage: ")
	flag.Usage = func() { fmt.Fprintln(os.Stderr, "usage: nfspage [FILE]\nWithout FILE it reads one that it generates.") }
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx, flag.Args(), os.Stdout)
	stop()
	if err != nil {
		log.Fatal(err)
	}
}

// run serves a file on one NIC and reads it on another.
func run(ctx context.Context, args []string, out io.Writer) (err error) {
	file, err := open(args)
	if err != nil {
		return err
	}
	nics, err := openNICs(ctx)
	if err != nil {
		return errors.Join(err, file.Close())
	}
	defer func() { err = errors.Join(err, nics[0].Close(), nics[1].Close(), file.Close()) }()
	l, err := channel.Listen(nics[1], "nfs", channel.Options{})
	if err != nil {
		return err
	}
	near, err := dial(ctx, nics[0], l.Address().String())
	if err != nil {
		return errors.Join(err, l.Close())
	}
	far, err := l.Accept(ctx)
	if err := errors.Join(err, l.Close()); err != nil {
		return errors.Join(err, near.Close())
	}
	s := newServer(far, file)
	served := make(chan error, 1)
	go func() { served <- s.serve(ctx) }()
	r := newReader(near, s.handle)
	n, err := compare(ctx, r, file, out)
	if ctx.Err() != nil {
		err = fmt.Errorf("interrupted after %d bytes", n)
	}
	received, counterErr := nics[0].Counters()
	err = errors.Join(err, counterErr, near.Close()) // which ends the server
	if e := <-served; err == nil {
		err = e
	}
	if err == nil {
		err = report(out, r, s, received["cells_received"]*cellPayload)
	}
	return err
}

// openNICs opens the reader's NIC and the server's, on a wire in memory.
func openNICs(ctx context.Context) (nics [2]*via.NIC, err error) {
	for i := range nics {
		if nics[i], err = via.Open(ctx, "emu:?wire=mem:nfspage", via.Options{}); err != nil {
			if i > 0 {
				err = errors.Join(err, nics[0].Close())
			}
			return nics, err
		}
	}
	return nics, nil
}

// dial opens the reader's channel.
func dial(ctx context.Context, nic *via.NIC, address string) (*channel.Channel, error) {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	return channel.Dial(ctx, nic, address, channel.Options{})
}
