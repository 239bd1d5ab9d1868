//go:build nffgo

// Command firewall passes frames from one port to another and back: from outside to inside
// those that an access list of nff-go's accepts, from inside to outside all. It ends with
// an interrupt, or when a port fails, and says what it has counted.
//
//	./with-dpdk go run ./examples/firewall --outside vhost-user:/run/out.sock \
//	    --inside pci:0000:03:00.0 --rules examples/rules.conf
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"log"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/intel-go/nff-go/flow"

	"github.com/trapeze-nic/trapeze/ethernet"
	_ "github.com/trapeze-nic/trapeze/ethernet/drivers"
	"github.com/trapeze-nic/trapeze/ethernet/nffgo"
	"github.com/trapeze-nic/trapeze/ethernet/nffgo/internal/firewall"
	_ "github.com/trapeze-nic/trapeze/vfio/kernel"
)

func main() {
	outside := flag.String("outside", "", "`address` of the port to filter frames of")
	inside := flag.String("inside", "", "`address` of the port behind it")
	rules := flag.String("rules", "", "`file` with an access list")
	flag.Parse()
	if *outside == "" || *inside == "" || *rules == "" {
		fmt.Fprintln(os.Stderr, "--outside, --inside and --rules are needed")
		flag.Usage()
		os.Exit(2)
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, *outside, *inside, *rules); err != nil {
		log.Fatal(err)
	}
}

func run(ctx context.Context, outside, inside, rules string) error {
	acl, err := firewall.LoadACL(rules)
	if err != nil {
		return err
	}
	pool, err := ethernet.NewPool(ethernet.PoolOptions{Buffers: 1 << 15})
	if err != nil {
		return err
	}
	defer pool.Close()
	// nff-go first: it takes what memory and threads it likes.
	if err := firewall.Init(5); err != nil { // its own core, two for each way
		return err
	}
	var ports [2]ethernet.Port
	var queues [2]*nffgo.Queue
	for i, address := range []string{outside, inside} {
		p, err := ethernet.Open(ctx, address, ethernet.Options{Pool: pool, ReceiveDescriptors: 4096, SendDescriptors: 4096, Promiscuous: true})
		if err != nil {
			return err
		}
		defer p.Close()
		ports[i] = p
		if queues[i], err = nffgo.Join(p, 0); err != nil {
			return err
		}
	}
	if err := graph(queues[0], queues[1], acl); err != nil {
		return err
	}
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	go watch(ctx, queues, stop)
	if err := firewall.Run(ctx, func() { fmt.Println("started") }); err != nil {
		return err
	}
	passed, dropped := acl.Counts()
	fmt.Printf("outside %+v\ninside %+v\nrules passed %d dropped %d\n", queues[0].Stats(), queues[1].Stats(), passed, dropped)
	for i, p := range ports {
		fmt.Printf("port %d %+v\n", i, p.Stats().Queues[0])
	}
	return errors.Join(queues[0].Err(), queues[1].Err())
}

// graph joins two ports both ways.
func graph(outside, inside *nffgo.Queue, acl *firewall.ACL) error {
	in, err := outside.SetReceiver()
	if err != nil {
		return err
	}
	if err := flow.SetVectorHandlerDrop(in, acl.Filter, nil); err != nil {
		return err
	}
	if err := inside.SetSender(in); err != nil {
		return err
	}
	out, err := inside.SetReceiver()
	if err != nil {
		return err
	}
	return outside.SetSender(out)
}

// watch stops the program when a port fails.
func watch(ctx context.Context, queues [2]*nffgo.Queue, stop func()) {
	tick := time.NewTicker(100 * time.Millisecond)
	defer tick.Stop()
	for queues[0].Err() == nil && queues[1].Err() == nil {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
	stop()
}
