package telemetry

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"
)

// builtIn has the help of the commands of every server; those of sources stand below /trapeze/.
var builtIn = map[string]string{
	"/":                   "Lists the commands. Takes no parameters.",
	"/info":               "Says which program this is. Takes no parameters.",
	"/help":               "Says what a command does. Parameters: string command.",
	"/ethdev/list":        "Lists the ports, which are the NICs. Takes no parameters.",
	"/ethdev/info":        "Says what a port is. Parameters: int port.",
	"/ethdev/stats":       "Returns the common counters of a port. Parameters: int port.",
	"/ethdev/xstats":      "Returns all counters of a port. Parameters: int port, optional hide_zero=true.",
	"/ethdev/link_status": "Says whether the link of a port is up. Parameters: int port.",
	"/ethdev/macs":        "Lists the MAC addresses of a port. Parameters: int port.",
}

const ours = "/trapeze/"

// answer returns the packet for a request: an object with one key, the command. Its value is
// null if there is no such command or port, if parameters are bad, and if the device does not
// answer. The loan, of commands that lend, is the caller's to end.
func (r *registry) answer(ctx context.Context, request string, g greeting) (packet []byte, loan *Loan) {
	command, parameters, _ := strings.Cut(request, ",")
	var value any
	if command != "" && len(command) <= maxCommand && command[0] == '/' {
		ctx, cancel := context.WithTimeout(ctx, runTimeout)
		defer cancel()
		value = r.value(ctx, command, parameters, g)
	}
	if loan, _ = value.(*Loan); loan != nil {
		value = loan.Answer
	}
	packet = encode(map[string]any{command: value})
	if len(packet) > maxOutput {
		packet = encode(map[string]any{command: nil})
	}
	return packet, loan
}

// encode writes JSON in one line. What cannot be encoded is null.
func encode(v any) []byte {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	if e.Encode(v) != nil {
		return []byte("null")
	}
	return bytes.TrimSuffix(b.Bytes(), []byte("\n"))
}

// value is the answer to a command; nil for null.
func (r *registry) value(ctx context.Context, command, parameters string, g greeting) any {
	switch command {
	case "/":
		return slices.Sorted(maps.Keys(r.commands()))
	case "/info":
		return g
	case "/help":
		return r.help(parameters)
	case "/ethdev/list":
		return r.numbers()
	}
	if name, ok := strings.CutPrefix(command, ours); ok {
		return r.own(ctx, name, parameters)
	}
	if strings.HasPrefix(command, "/ethdev/") {
		return r.ethdev(command, parameters)
	}
	return nil
}

// commands are the names of all commands, each with its help. Of sources with the same name the first one counts.
func (r *registry) commands() map[string]string {
	all := maps.Clone(builtIn)
	for _, port := range r.numbers() {
		s := r.source(uint64(port))
		if s == nil {
			continue
		}
		for _, c := range s.Commands {
			if _, has := all[ours+c.Name]; !has {
				all[ours+c.Name] = c.Help
			}
		}
	}
	return all
}

// command is that of a name of the source with a port number; nil if there is none.
func (r *registry) command(port uint64, name string) *Command {
	if s := r.source(port); s != nil {
		if i := slices.IndexFunc(s.Commands, func(c Command) bool { return c.Name == name }); i >= 0 {
			return &s.Commands[i]
		}
	}
	return nil
}

// help answers /help: without a parameter, about itself.
func (r *registry) help(command string) any {
	command = cmp.Or(command, "/help")
	if text, ok := r.commands()[command]; ok {
		return map[string]string{command: text}
	}
	return nil
}

// own runs a command of a source. With more parameters than the command needs the first is the
// port, which is else 0.
func (r *registry) own(ctx context.Context, name, parameters string) any {
	numbers, ok := parseNumbers(parameters)
	if !ok {
		return nil
	}
	c := r.command(0, name)
	if len(numbers) > 0 && (c == nil || len(numbers) > c.Needs) {
		c, numbers = r.command(numbers[0], name), numbers[1:]
	}
	if c == nil || len(numbers) < c.Needs || len(numbers) > c.Needs+1 {
		return nil
	}
	value, err := c.Run(ctx, append(numbers, 0, 0)[:c.Needs+1])
	if err != nil {
		return nil
	}
	return value
}

// parseNumbers reads decimal numbers of 32 bits with commas between; none of an empty string.
func parseNumbers(s string) (list []uint64, ok bool) {
	if s == "" {
		return nil, true
	}
	for word := range strings.SplitSeq(s, ",") {
		n, err := strconv.ParseUint(word, 10, 32)
		if err != nil {
			return nil, false
		}
		list = append(list, n)
	}
	return list, true
}

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
