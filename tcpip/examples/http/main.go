// Command http serves a page from a NIC that it drives itself:
//
//	go run ./examples/http afxdp:eth0 10.0.0.2/24
package main

import (
	"context"
	"fmt"
	"log"
	"net/http"
	"net/netip"
	"os"

	"github.com/trapeze-nic/trapeze/tcpip"
)

func main() {
	if len(os.Args) != 3 {
		log.Fatal("usage: http PORT ADDRESS/PREFIX, as in: http afxdp:eth0 10.0.0.2/24")
	}
	address, err := netip.ParsePrefix(os.Args[2])
	if err != nil {
		log.Fatal(err)
	}
	s, err := tcpip.Open(context.Background(), os.Args[1], tcpip.Config{Addresses: []netip.Prefix{address}})
	if err != nil {
		log.Fatal(err)
	}
	l, err := s.Listen("tcp", ":80")
	if err != nil {
		log.Fatal(err)
	}
	log.Fatal(http.Serve(l, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { fmt.Fprintln(w, "hello from the NIC") })))
}
