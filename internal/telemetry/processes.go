package telemetry

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"
)

// patience bounds the time for which a process is asked by Each.
const patience = 2 * time.Second

// Each connects to all processes of this host that show NICs, and calls use with each of them, which
// closes the client. Calls run at once and end by their context after two seconds, so that a process
// which does not answer delays no other for longer. Such processes are returned, in the order of
// their numbers. Sockets without a process, and those of programs of others, are passed over.
func Each(ctx context.Context, use func(ctx context.Context, c *Client) error) (unresponsive []*Unresponsive) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	var asking sync.WaitGroup
	unresponsive = []*Unresponsive{} // and not null in JSON
	var mu sync.Mutex                // guards unresponsive
	for _, path := range Find() {
		asking.Go(func() {
			c, err := Dial(ctx, path)
			switch {
			case err != nil:
			case !strings.HasPrefix(c.Version, Project):
				err = c.Close()
			default:
				err = use(ctx, c)
			}
			if late, ok := errors.AsType[*Unresponsive](err); ok {
				mu.Lock()
				defer mu.Unlock()
				unresponsive = append(unresponsive, late)
			}
		})
	}
	asking.Wait()
	slices.SortFunc(unresponsive, func(a, b *Unresponsive) int { return cmp.Or(a.PID-b.PID, strings.Compare(a.Socket, b.Socket)) })
	return unresponsive
}

// Shown is a NIC that a process shows.
type Shown struct {
	Port      int    // its number in the process
	Name, MAC string // made printable
	Endpoints int
}

// NICs asks a process for its NICs. Those that are closed meanwhile are left out. It fails as Ask does.
func NICs(ctx context.Context, a Asker) (list []Shown, err error) {
	var ports []int
	if err := a.Ask(ctx, "/ethdev/list", &ports); err != nil {
		return nil, err
	}
	for _, port := range ports {
		var info struct {
			Name string `json:"name"`
			MAC  string `json:"mac_addr"`
			VIs  int    `json:"nb_rx_queues"`
		}
		switch err := a.Ask(ctx, fmt.Sprintf("/ethdev/info,%d", port), &info); {
		case err == nil:
			list = append(list, Shown{port, Printable(info.Name), Printable(info.MAC), info.VIs})
		case !errors.Is(err, ErrNoAnswer):
			return nil, err
		}
	}
	return list, nil
}
