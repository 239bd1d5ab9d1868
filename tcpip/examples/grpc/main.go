// Command grpc answers gRPC's health checks from a NIC that it drives itself, or asks another host that does:
//
//	go run ./examples/grpc afxdp:eth0 10.0.0.2/24
//	go run ./examples/grpc afxdp:eth0 10.0.0.3/24 10.0.0.2:50051
package main

import (
	"context"
	"fmt"
	"log"
	"net"
	"net/netip"
	"os"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/health"
	"google.golang.org/grpc/health/grpc_health_v1"

	"github.com/trapeze-nic/trapeze/tcpip"
)

func main() {
	if len(os.Args) < 3 || len(os.Args) > 4 {
		log.Fatal("usage: grpc PORT ADDRESS/PREFIX [HOST:PORT], as in: grpc afxdp:eth0 10.0.0.2/24")
	}
	address, err := netip.ParsePrefix(os.Args[2])
	if err != nil {
		log.Fatal(err)
	}
	s, err := tcpip.Open(context.Background(), os.Args[1], tcpip.Config{Addresses: []netip.Prefix{address}})
	if err != nil {
		log.Fatal(err)
	}
	if len(os.Args) == 3 {
		log.Fatal(serve(s, ":50051"))
	}
	status, err := ask(context.Background(), s, os.Args[3])
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println("the service is", status)
}

// serve answers on the stack until its listener ends.
func serve(s *tcpip.Stack, address string) error {
	l, err := s.Listen("tcp", address)
	if err != nil {
		return err
	}
	server := grpc.NewServer()
	grpc_health_v1.RegisterHealthServer(server, health.NewServer())
	return server.Serve(l)
}

// ask asks the service at an address.
func ask(ctx context.Context, s *tcpip.Stack, address string) (grpc_health_v1.HealthCheckResponse_ServingStatus, error) {
	dial := func(ctx context.Context, to string) (net.Conn, error) { return s.DialContext(ctx, "tcp", to) }
	c, err := grpc.NewClient("passthrough:///"+address, grpc.WithContextDialer(dial), grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		return 0, err
	}
	defer c.Close()
	answer, err := grpc_health_v1.NewHealthClient(c).Check(ctx, new(grpc_health_v1.HealthCheckRequest))
	return answer.GetStatus(), err
}
