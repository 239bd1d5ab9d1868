package engine_test

import (
	"fmt"
	"testing"

	"github.com/trapeze-nic/trapeze/internal/datasheet"
)

// TestManyClientsOverBadWires has more clients ask at once than a NIC remembers
// requests of. There are as many waits as clients, so that a request that is
// offered twice takes the wait of another.
func TestManyClientsOverBadWires(t *testing.T) {
	const clients = 300
	for seed := range uint64(3) {
		w := newWorld(t, memory(roomy), lossy(seed, 0.3, 0.1, 0.1, 0))
		a, b := w.a.memory(0, 0), w.b.memory(0, 0)
		waits, requests := map[uint16]bool{}, map[uint16]string{}
		for i := range clients {
			waits[waitFor(w.b, "service", forever)] = true
			name := fmt.Sprint("client ", i)
			requests[start(w.a, datasheet.OpConnectRequest, datasheet.ConnectRequestBody{Endpoint: w.a.newVI(a, nil).id,
				TimeoutMS: 30_000, RemoteMAC: w.b.e.MAC, Remote: disc("service"), Local: disc(name)})] = name
		}
		seen, accepts := map[datasheet.Discriminator]bool{}, map[uint16]bool{}
		w.run("the answers to all requests", func() bool {
			for id, r := range w.b.replies {
				switch {
				case r.Result != datasheet.ResultSuccess:
					t.Fatalf("seed %d: the server is answered %v", seed, r.Result)
				case waits[id]:
					delete(waits, id)
					delete(w.b.replies, id)
					c := *datasheet.Reply[datasheet.ConnectionReply](&r)
					if seen[c.Remote] {
						t.Fatalf("seed %d: the request of %q is offered again", seed, c.Remote.Data[:c.Remote.Len])
					}
					seen[c.Remote] = true
					accepts[accept(w.b, c.Connection, w.b.newVI(b, nil), forever)] = true
				case accepts[id]:
					delete(accepts, id)
				}
			}
			for id, name := range requests {
				if r, ok := w.a.replies[id]; ok {
					if r.Result != datasheet.ResultSuccess {
						t.Fatalf("seed %d: %s is answered %v", seed, name, r.Result)
					}
					delete(requests, id)
				}
			}
			return len(requests) == 0 && len(accepts) == 0
		})
		if len(seen) != clients || len(waits) != 0 {
			t.Fatalf("seed %d: %d requests were offered, %d waits are left", seed, len(seen), len(waits))
		}
	}
}

// TestRejectedOnce has many requests turned down over a bad wire: none is offered
// again because its reject was lost.
func TestRejectedOnce(t *testing.T) {
	const clients = 300
	w := newWorld(t, memory(roomy), lossy(1, 0.3, 0.1, 0.1, 0))
	handle := w.a.memory(0, 0)
	waits, requests := map[uint16]bool{}, []uint16{}
	for range clients + 10 {
		waits[waitFor(w.b, "service", forever)] = true
	}
	for range clients {
		requests = append(requests, request(w.a.newVI(handle, nil), w.b.e.MAC, "service", 30_000))
	}
	for range clients {
		var id uint16
		w.run("an offer", func() bool {
			for id = range w.b.replies {
				if waits[id] {
					return true
				}
			}
			return false
		})
		delete(waits, id)
		do(w.b, datasheet.OpConnectReject, datasheet.ConnectRejectBody{Connection: offered(w.b, id).Connection})
	}
	for _, id := range requests {
		if r := w.a.wait(id); r.Result != datasheet.ResultReject {
			t.Fatal(r.Result)
		}
	}
	for id := range waits {
		if r, ok := w.b.replies[id]; ok {
			t.Fatalf("more requests were offered than there are: %v", r.Result)
		}
	}
}
