package afxdp_test

import (
	"context"
	"log"

	"github.com/trapeze-nic/trapeze/ethernet"
	_ "github.com/trapeze-nic/trapeze/ethernet/internal/afxdp"
)

// Frames that arrive at eth0's first queue go out of it again, until the program is
// stopped. The pool is one that zero copy needs.
func Example() {
	pool, err := ethernet.NewPool(ethernet.PoolOptions{Size: 4032})
	if err != nil {
		log.Fatal(err)
	}
	defer pool.Close()
	port, err := ethernet.Open(context.Background(), "afxdp:eth0", ethernet.Options{Pool: pool, Interrupts: true})
	if err != nil {
		log.Fatal(err)
	}
	defer port.Close()
	queue, frames := port.Queue(0), make([]ethernet.Frame, 64)
	for {
		n, err := queue.Receive(frames)
		if err == nil && n == 0 {
			err = queue.Wait(context.Background())
		}
		if err != nil {
			log.Print(err)
			return
		}
		sent, err := queue.Send(frames[:n])
		if err != nil {
			log.Print(err)
			return
		}
		queue.Cache().Free(frames[sent:n])
	}
}
