package telemetrycmd

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"os/user"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/trapeze-nic/trapeze/internal/option"
	"github.com/trapeze-nic/trapeze/internal/telemetry"
)

// NIC is one that a process of this host has open.
type NIC struct {
	Owner
	Port    int    `json:"port" help:"its number in the process"`
	Address string `json:"address"`
	MAC     string `json:"mac"`
	VIs     int    `json:"vis" help:"endpoints"`

	client *telemetry.Client
}

// Owner is a process that has NICs open.
type Owner struct {
	PID     int    `json:"pid"`
	UID     uint32 `json:"uid"`
	User    string `json:"user"`
	Program string `json:"program"`
}

// host has the NICs that other processes of this host have open.
type host struct {
	nics         []*NIC
	clients      []*telemetry.Client
	unresponsive []*telemetry.Unresponsive
}

// look asks all processes.
func look(ctx context.Context) *host {
	h := &host{}
	var mu sync.Mutex // guards h
	h.unresponsive = telemetry.Each(ctx, func(ctx context.Context, c *telemetry.Client) error {
		nics, err := nicsOf(ctx, c)
		if err != nil {
			return errors.Join(err, c.Close())
		}
		mu.Lock()
		defer mu.Unlock()
		h.clients, h.nics = append(h.clients, c), append(h.nics, nics...)
		return nil
	})
	slices.SortStableFunc(h.nics, func(a, b *NIC) int { return cmp.Or(cmp.Compare(a.PID, b.PID), cmp.Compare(a.Port, b.Port)) })
	return h
}

// look is the other look, and tells the user of processes that do not answer.
func (x *commands) look(ctx context.Context, word string) *host {
	h := look(ctx)
	x.noteUnresponsive(h, word)
	return h
}

// noteUnresponsive tells the user of processes that do not answer. Of the one whose ID is word choose tells.
func (x *commands) noteUnresponsive(h *host, word string) {
	for _, s := range h.unresponsive {
		if strconv.Itoa(s.PID) != word {
			x.Note("%v", s)
		}
	}
}

func (h *host) close() {
	for _, c := range h.clients {
		_ = c.Close()
	}
}

// nicsOf asks a process for its NICs.
func nicsOf(ctx context.Context, c *telemetry.Client) (list []*NIC, err error) {
	owner := Owner{PID: c.PID, UID: c.UID, User: strconv.FormatUint(uint64(c.UID), 10), Program: c.Program}
	if u, err := user.LookupId(owner.User); err == nil {
		owner.User = u.Username
	}
	shown, err := telemetry.NICs(ctx, c)
	for _, s := range shown {
		list = append(list, &NIC{owner, s.Port, s.Name, s.MAC, s.Endpoints, c})
	}
	return list, err
}

// ask sends a command about the NIC.
func (n *NIC) ask(ctx context.Context, command string, into any, parameters ...uint64) error {
	for _, p := range append([]uint64{uint64(n.Port)}, parameters...) {
		command += "," + strconv.FormatUint(p, 10)
	}
	return n.client.Ask(ctx, command, into)
}

// counters are all counters of the NIC, and when they were read; not again under DPDK's names.
func (n *NIC) counters(ctx context.Context) (c map[string]uint64, at time.Time, err error) {
	err = n.ask(ctx, "/ethdev/xstats", &c)
	maps.DeleteFunc(c, func(name string, _ uint64) bool {
		return strings.HasPrefix(name, "rx_") || strings.HasPrefix(name, "tx_")
	})
	return c, time.Now(), err
}

// endpoints are all endpoints of the NIC.
func (n *NIC) endpoints(ctx context.Context) ([]telemetry.Endpoint, error) {
	return telemetry.Endpoints(ctx, n.client, n.Port)
}

// errNoNIC: no process has the NIC that is asked for, or several have.
var errNoNIC = errors.New("no process shows such a NIC")

// name tells a NIC from all others, also if it is found again.
func (n *NIC) name() string { return fmt.Sprintf("%d,%d,%s", n.PID, n.Port, n.MAC) }

// id names one NIC of this host: two processes may have NICs of one address.
func (n *NIC) id() string { return fmt.Sprintf("%d:%d", n.PID, n.Port) }

// choose finds the NICs that PID, PID:PORT or an address stands for; all for an empty word.
func (h *host) choose(word string) ([]*NIC, error) {
	if word == "" && len(h.nics) > 0 {
		return h.nics, nil
	}
	var list []*NIC
	for _, n := range h.nics {
		if word == n.id() || word == strconv.Itoa(n.PID) || telemetry.Public(word) == n.Address {
			list = append(list, n)
		}
	}
	late := slices.IndexFunc(h.unresponsive, func(s *telemetry.Unresponsive) bool { return word == strconv.Itoa(s.PID) })
	switch {
	case len(list) > 0:
		return list, nil
	case late >= 0:
		return nil, h.unresponsive[late]
	case word == "":
		return nil, fmt.Errorf("%w: this user may look at none of this host; 'trapeze ping --count 0' opens two", errNoNIC)
	}
	return nil, fmt.Errorf("%w: %s; 'trapeze ps' lists those that there are", errNoNIC, word)
}

// maxCandidates bounds the NICs in an error.
const maxCandidates = 8

// one is choose for a command about one NIC.
func (h *host) one(word string) (*NIC, error) {
	list, err := h.choose(word)
	if err != nil {
		return nil, err
	}
	if len(list) == 1 {
		return list[0], nil
	}
	var ids []string
	for _, n := range list[:min(len(list), maxCandidates)] {
		ids = append(ids, n.id()+" ("+n.Address+")")
	}
	return nil, option.Errorf("%d NICs are meant: give one as PID:PORT, such as %s; 'trapeze ps' lists all", len(list), strings.Join(ids, ", "))
}

// Inspect asks the process that has the NIC at an address what it is. It returns nil if no
// process, or more than one, shows a NIC with that address.
func Inspect(ctx context.Context, address string) (*telemetry.Report, *Owner) {
	h := look(ctx)
	defer h.close()
	n, err := h.one(address)
	if err != nil {
		return nil, nil
	}
	var r telemetry.Report
	if n.ask(ctx, "/trapeze/nic", &r) != nil {
		return nil, nil
	}
	return &r, &n.Owner
}
