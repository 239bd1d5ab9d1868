package telemetry

import (
	"context"
	"fmt"
	"strings"
	"sync"
)

// Each connects to all processes of this host that show NICs, and calls use with each of them. Calls
// run at once, so that a process which does not answer delays no other; use closes the client.
// Sockets without a process, and those of programs of others, are passed over.
func Each(ctx context.Context, use func(c *Client)) {
	var asking sync.WaitGroup
	for _, path := range Find() {
		asking.Go(func() {
			c, err := Dial(ctx, path)
			if err != nil {
				return
			}
			if !strings.HasPrefix(c.Version, Project) {
				_ = c.Close()
				return
			}
			use(c)
		})
	}
	asking.Wait()
}

// Shown is a NIC that a process shows.
type Shown struct {
	Port      int    // its number in the process
	Name, MAC string // made printable
	Endpoints int
}

// NICs asks a process for its NICs; none of one that ends meanwhile.
func NICs(ctx context.Context, a Asker) (list []Shown) {
	var ports []int
	if a.Ask(ctx, "/ethdev/list", &ports) != nil {
		return nil
	}
	for _, port := range ports {
		var info struct {
			Name string `json:"name"`
			MAC  string `json:"mac_addr"`
			VIs  int    `json:"nb_rx_queues"`
		}
		if a.Ask(ctx, fmt.Sprintf("/ethdev/info,%d", port), &info) == nil {
			list = append(list, Shown{port, Printable(info.Name), Printable(info.MAC), info.VIs})
		}
	}
	return list
}
