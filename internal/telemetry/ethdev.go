package telemetry

import (
	"maps"
	"math"
	"strconv"
	"strings"
)

// unknownSpeed is RTE_ETH_SPEED_NUM_UNKNOWN: no wire of ours has a speed that is known.
const unknownSpeed = math.MaxUint32

// ethdev answers the commands about one port, with the keys of DPDK's
// (lib/ethdev/rte_ethdev_telemetry.c).
func (r *registry) ethdev(command, parameters string) any {
	word, options, _ := strings.Cut(parameters, ",")
	number, err := strconv.ParseUint(word, 10, 16)
	if err != nil || options != "" && (command != "/ethdev/xstats" || options != "hide_zero=true" && options != "hide_zero=false") {
		return nil
	}
	s := r.source(number)
	if s == nil {
		return nil
	}
	p, err := s.Port()
	if err != nil {
		return nil
	}
	switch command {
	case "/ethdev/info":
		return p.info(number)
	case "/ethdev/stats":
		return map[string]uint64{"ipackets": p.Received, "opackets": p.Sent, "ibytes": p.ReceivedBytes, "obytes": p.SentBytes,
			"imissed": p.Missed, "ierrors": p.ReceiveErrors, "oerrors": p.SendErrors, "rx_nombuf": 0}
	case "/ethdev/xstats":
		return s.extended(&p, options == "hide_zero=true")
	case "/ethdev/link_status":
		if !p.LinkUp {
			return map[string]any{"status": "DOWN"}
		}
		return map[string]any{"status": "UP", "speed": uint32(unknownSpeed), "duplex": "full-duplex"}
	case "/ethdev/macs":
		return []string{p.MAC}
	}
	return nil
}

func (p *Port) info(number uint64) any {
	return map[string]any{"name": p.Name, "state": 1, "port_id": number, "nb_rx_queues": p.Queues, "nb_tx_queues": p.Queues,
		"mtu": p.MTU, "mac_addr": p.MAC, "promiscuous": 0, "all_multicast": 0, "dev_started": 1, "numa_node": -1}
}

// extended are DPDK's names for the common counters, and all that the source counts.
func (s *Source) extended(p *Port, hideZero bool) any {
	all := map[string]uint64{"rx_good_packets": p.Received, "tx_good_packets": p.Sent, "rx_good_bytes": p.ReceivedBytes,
		"tx_good_bytes": p.SentBytes, "rx_missed_errors": p.Missed, "rx_errors": p.ReceiveErrors, "tx_errors": p.SendErrors}
	stats, err := s.Stats()
	if err != nil {
		return nil
	}
	maps.Copy(all, Counts(stats))
	for name, v := range all {
		if hideZero && v == 0 {
			delete(all, name)
		}
	}
	return all
}
