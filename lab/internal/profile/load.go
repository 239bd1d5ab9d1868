package profile

import (
	"embed"
	"slices"
	"strings"
)

//go:embed platforms/*.toml
var platforms embed.FS

// Hosts are the cost profiles.
var Hosts = Library[*Profile]{platforms, "platforms", slices.Concat(ofBus("bus"), ofBus("sender.bus"), ofBus("receiver.bus"), strings.Fields(
	`host.cost nic.decision nic.completion nic.packet nic.log_send nic.log_receive nic.buffers nic.memory
	link.bandwidth link.overhead link.latency link.header`)), (*resolver).host}

// ofBus are the keys of a table with a bus.
func ofBus(table string) (keys []string) {
	for _, k := range strings.Fields("duplex read write overhead read_overhead write_overhead") {
		keys = append(keys, table+"."+k)
	}
	return keys
}

// bus resolves one host's bus. A host's own table goes before the common one; in a table the overhead of one
// direction goes before that of both.
func (r *resolver) bus(host string) Bus {
	pick := func(keys ...string) (all []string) {
		for _, table := range []string{host + ".bus.", "bus."} {
			for _, k := range keys {
				all = append(all, table+k)
			}
		}
		return all
	}
	return Bus{
		FullDuplex: r.word([]string{"half", "full"}, pick("duplex")...) == "full",
		Read:       r.cost(pick("read_overhead", "overhead"), pick("read")),
		Write:      r.cost(pick("write_overhead", "overhead"), pick("write")),
	}
}

func (r *resolver) host() *Profile {
	p := &Profile{Name: r.name, Summary: r.text("summary"), Sender: r.bus("sender"), Receiver: r.bus("receiver"), Host: r.time("host.cost"),
		NIC:  NIC{Decision: r.time("nic.decision"), Completion: r.time("nic.completion"), Packet: r.time("nic.packet"), Buffers: r.count("nic.buffers", 1, 1024)},
		Link: Link{Pulse: r.cost([]string{"link.overhead"}, []string{"link.bandwidth"}), Latency: r.time("link.latency"), Header: int(r.quantity(size, "link.header"))}}
	if r.has("nic.log_send") {
		p.NIC.LogSend = r.time("nic.log_send")
	}
	if r.has("nic.log_receive") {
		p.NIC.LogReceive = r.time("nic.log_receive")
	}
	if r.has("nic.memory") {
		p.NIC.Memory = NewCost(0, r.quantity(bandwidth, "nic.memory")).PerByte
	}
	return p
}
