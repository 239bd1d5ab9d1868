package engine_test

import (
	"fmt"
	"testing"

	"github.com/trapeze-nic/trapeze/ci/kit/must"
	"github.com/trapeze-nic/trapeze/internal/datasheet"
)

// TestManyClientsOverBadWires has more clients ask at once than a NIC remembers
// requests of, of which it turns every third down. There are as many waits as clients, so that a request that is
// offered twice, because its reject was lost, takes the wait of another.
func TestManyClientsOverBadWires(t *testing.T) {
	const clients = 300
	for seed := range uint64(3) {
		w := newWorld(t, memory(roomy), lossy(seed, 0.3, 0.1, 0.1, 0))
		a, b := w.a.memory(0, 0), w.b.memory(0, 0)
		waits, requests := map[uint16]bool{}, map[uint16]datasheet.Discriminator{}
		for i := range clients {
			waits[waitFor(w.b, "service", forever)] = true
			name := disc(fmt.Sprint("client ", i))
			requests[start(w.a, datasheet.OpConnectRequest, datasheet.ConnectRequestBody{Endpoint: w.a.newVI(a, nil).id,
				TimeoutMS: 30_000, RemoteMAC: w.b.e.MAC, Remote: disc("service"), Local: name})] = name
		}
		// What the clients that have been offered are to hear.
		offered, accepts := map[datasheet.Discriminator]datasheet.Result{}, map[uint16]bool{}
		w.run("the answers to all requests", func() bool {
			for id, r := range w.b.replies {
				switch {
				case r.Result != datasheet.ResultSuccess:
					t.Fatalf("seed %d: the server is answered %v", seed, r.Result)
				case waits[id]:
					delete(waits, id)
					delete(w.b.replies, id)
					c := *datasheet.Reply[datasheet.ConnectionReply](&r)
					if _, again := offered[c.Remote]; again {
						t.Fatalf("seed %d: the request of %q is offered again", seed, c.Remote.Data[:c.Remote.Len])
					}
					if len(offered)%3 == 2 {
						offered[c.Remote] = datasheet.ResultReject
						start(w.b, datasheet.OpConnectReject, datasheet.ConnectRejectBody{Connection: c.Connection})
						continue
					}
					offered[c.Remote] = datasheet.ResultSuccess
					accepts[accept(w.b, c.Connection, w.b.newVI(b, nil), forever)] = true
				case accepts[id]:
					delete(accepts, id)
				}
			}
			for id, name := range requests {
				if r, ok := w.a.replies[id]; ok {
					must.Be(t, r.Result, offered[name], "seed %d: the answer to %q", seed, name.Data[:name.Len])
					delete(requests, id)
				}
			}
			return len(requests) == 0 && len(accepts) == 0
		})
		if len(offered) != clients || len(waits) != 0 {
			t.Fatalf("seed %d: %d requests were offered, %d waits are left", seed, len(offered), len(waits))
		}
	}
}
