package virtio_test

import (
	"context"
	"log"

	"github.com/trapeze-nic/trapeze/ethernet"
	_ "github.com/trapeze-nic/trapeze/ethernet/internal/virtio" // vhost-user:
)

// A switch such as DPDK's or VPP's listens, and we are what a virtual machine is to it:
//
//	dpdk-testpmd --no-huge --no-pci --vdev net_vhost0,iface=/run/vhost0.sock -- -i
func Example() {
	pool, err := ethernet.NewPool(ethernet.PoolOptions{})
	if err != nil {
		log.Fatal(err)
	}
	defer pool.Close()
	port, err := ethernet.Open(context.Background(), "vhost-user:/run/vhost0.sock", ethernet.Options{Pool: pool})
	if err != nil {
		log.Fatal(err)
	}
	defer port.Close()
	frames := make([]ethernet.Frame, 32)
	for q := port.Queue(0); ; {
		n, err := q.Receive(frames)
		if err != nil {
			log.Fatal(err)
		}
		sent, err := q.Send(frames[:n]) // back to where they came from
		if err != nil {
			log.Fatal(err)
		}
		q.Cache().Free(frames[sent:n])
	}
}
