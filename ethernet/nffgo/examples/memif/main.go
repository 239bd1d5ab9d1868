//go:build nffgo

// Command memif is a program of nff-go's as any other: it sends frames back to where they
// came from, if an access list accepts them. Its port 0 is DPDK's memif, at whose other end
// can be an emulated NIC of ours. It ends with an interrupt, and says what it has counted.
//
//	./with-dpdk go run ./examples/memif --socket /run/x.sock --rules examples/rules.conf
//
// The other end, such as emu:?wire=memif:/run/x.sock&role=client, is opened when this
// program says "started".
package main

import (
	"context"
	"flag"
	"fmt"
	"log"
	"os"
	"os/signal"
	"syscall"

	"github.com/intel-go/nff-go/flow"

	"github.com/trapeze-nic/trapeze/ethernet/nffgo/internal/firewall"
)

func main() {
	socket := flag.String("socket", "", "`path` of the socket of the memif")
	rules := flag.String("rules", "", "`file` with an access list")
	flag.Parse()
	if *socket == "" || *rules == "" {
		fmt.Fprintln(os.Stderr, "--socket and --rules are needed")
		flag.Usage()
		os.Exit(2)
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, *socket, *rules); err != nil {
		log.Fatal(err)
	}
}

func run(ctx context.Context, socket, rules string) error {
	acl, err := firewall.LoadACL(rules)
	if err != nil {
		return err
	}
	// Cores for itself, the receiver, the list and the sender.
	if err := firewall.Init(4, "net_memif0,role=server,socket="+socket+",socket-abstract=no"); err != nil {
		return err
	}
	frames, err := flow.SetReceiver(0)
	if err != nil {
		return err
	}
	if err := flow.SetVectorHandlerDrop(frames, acl.Filter, nil); err != nil {
		return err
	}
	if err := flow.SetSender(frames, 0); err != nil {
		return err
	}
	if err := firewall.Run(ctx, func() { fmt.Println("started") }); err != nil {
		return err
	}
	passed, dropped := acl.Counts()
	fmt.Printf("rules passed %d dropped %d\n", passed, dropped)
	return nil
}
