// Grpc calls a service over a NIC: an unchanged gRPC uses a via.Stream instead of TCP. Both
// sides are in this process, on emulated NICs. It is a module of its own, so that
// programs that use Trapeze need not have gRPC.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"os"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/health"
	"google.golang.org/grpc/health/grpc_health_v1"

	_ "github.com/trapeze-nic/trapeze/emulator" // makes "emu:" known
	"github.com/trapeze-nic/trapeze/via"
)

func main() {
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	if err := run(ctx, os.Stdout); err != nil {
		log.Fatal(err)
	}
}

func run(ctx context.Context, out io.Writer) error {
	server, err := via.Open(ctx, "emu:?wire=mem:grpc", via.Options{})
	if err != nil {
		return err
	}
	client, err := via.Open(ctx, "emu:?wire=mem:grpc", via.Options{})
	if err != nil {
		return errors.Join(err, server.Close())
	}
	return errors.Join(ask(ctx, out, client, server), client.Close(), server.Close())
}

// ask has a service on one NIC tell a client on the other how it is.
func ask(ctx context.Context, out io.Writer, client, server *via.NIC) error {
	l, err := via.Listen(server, "grpc", via.ListenOptions{})
	if err != nil {
		return err
	}
	s := grpc.NewServer()
	grpc_health_v1.RegisterHealthServer(s, health.NewServer())
	served := make(chan error, 1)
	go func() { served <- s.Serve(l.Streams()) }()
	dial := func(ctx context.Context, _ string) (net.Conn, error) {
		return via.DialStream(ctx, client, l.Address().String())
	}
	c, err := grpc.NewClient("passthrough:///nic", grpc.WithContextDialer(dial),
		grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err == nil {
		var answer *grpc_health_v1.HealthCheckResponse
		if answer, err = grpc_health_v1.NewHealthClient(c).Check(ctx, new(grpc_health_v1.HealthCheckRequest)); err == nil {
			_, err = fmt.Fprintln(out, "the service is", answer.GetStatus())
		}
		err = errors.Join(err, c.Close())
	}
	s.Stop()
	return errors.Join(err, <-served)
}
