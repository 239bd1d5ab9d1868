package main

import (
	"context"
	"net/netip"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc/health/grpc_health_v1"

	"github.com/trapeze-nic/trapeze/ci/kit/cable"
	"github.com/trapeze-nic/trapeze/tcpip"
)

// TestHealth: a stock gRPC asks over TCP, of our stack at both ends.
func TestHealth(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	var hosts [2]*tcpip.Stack
	var open sync.WaitGroup
	for i, address := range []string{"10.0.0.1/24", "10.0.0.2/24"} {
		open.Go(func() {
			s, err := tcpip.Open(ctx, cable.Scheme+":grpc", tcpip.Config{Addresses: []netip.Prefix{netip.MustParsePrefix(address)}, NoIPv6: true})
			if err != nil {
				t.Error(err)
				return
			}
			t.Cleanup(func() { _ = s.Close() })
			hosts[i] = s
		})
	}
	if open.Wait(); t.Failed() {
		return
	}
	go func() { _ = serve(hosts[1], ":50051") }()
	for {
		status, err := ask(ctx, hosts[0], "10.0.0.2:50051")
		if status == grpc_health_v1.HealthCheckResponse_SERVING {
			return
		}
		if ctx.Err() != nil {
			t.Fatal(err)
		}
	}
}
