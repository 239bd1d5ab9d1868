package published

import (
	"github.com/trapeze-nic/trapeze/internal/dmalog"
	"github.com/trapeze-nic/trapeze/lab/internal/virtual"
	"github.com/trapeze-nic/trapeze/pipeline"
)

// blockCopy is the share of Natoma's bus that a block copy of the host's processor takes from a
// DMA transfer (CS-1997-20, section 3.5: almost 70 %).
const blockCopy = 0.7

// Figures 4 and 5 of CS-1997-20: a stream under adaptive pipelining with the DMA log on, whose first
// hostTx runs beside a block copy. Times are from the start of that transfer.
const (
	loggedPolicy = "amp"
	loggedNetTx  = 4 // pulses of a frame of 8 KiB
	loggedFrames = 40
	firstPackets = 3
	steadyRate   = 100          // MB/s: the steady state has every engine above it
	steadyFrom   = 800_000_000  // ps: where the paper's begins
	steadyUntil  = 1200_000_000 // ps: what is looked at of it
)

// firstRates is the computation of the rates at which netTx moves the first packets.
const firstRates = "range of netTx rates of the first packets"

var ordinals = []string{"first", "second", "third", "fourth", "fifth", "sixth"}

// onLogged are the computations of runs with the papers' DMA log.
func onLogged() map[string]computation {
	all := map[string]computation{
		"hostTx beside a block copy":    {Predicted, duration | rate, payload, nil, besideACopy},
		"start of the second hostTx":    {Predicted, duration, payload, nil, func(f *figure) float64 { return f.begins(dmalog.HostTx) }},
		"start of its hostRcv":          {Predicted, duration, payload, nil, func(f *figure) float64 { return f.begins(dmalog.HostRcv) }},
		"start of the steady state":     {Predicted, duration, payload, nil, (*figure).steadyState},
		"hostRcv in the steady state":   {Predicted, size, payload, nil, (*figure).steadySize},
		firstRates:                      {Predicted, rate, payload, nil, func(f *figure) float64 { low, _ := f.firstRates(); return low }},
		"stream bandwidth with the log": {Predicted, rate, frame, nil, func(f *figure) float64 { return f.logged(f.Policy, loggedFrames).Bandwidth }},
	}
	for e, most := range map[dmalog.Engine]int{dmalog.NetTx: loggedNetTx, dmalog.HostRcv: len(ordinals)} {
		for i, o := range ordinals[:most] {
			all[o+" "+e.String()+" of a logged frame"] = computation{Predicted, size, payload, nil, func(f *figure) float64 { return f.pulse(e, i) }}
		}
	}
	return all
}

// besideACopy is hostTx while the host's processor copies blocks.
func besideACopy(f *figure) float64 {
	c := f.Sender.Read
	c.PerByte = int64(float64(c.PerByte) / (1 - blockCopy))
	return f.transfer(c)
}

// logged is a stream that the firmware logs. Its first hostTx, if there are more, runs beside a copy.
func (f *figure) logged(policy string, count int) *virtual.Result {
	return f.result(key{platform: f.name, policy: policy, payload: f.Payload, count: count, logged: true})
}

// transfersOf are an engine's transfers of a packet's payload.
func transfersOf(log []dmalog.Record, e dmalog.Engine, packet int) (all []dmalog.Record) {
	for _, r := range log {
		if r.Engine == e && r.Packet == packet {
			all = append(all, r)
		}
	}
	return all
}

// pulse is the bytes of one transfer of a lone frame, 0 if there are not so many.
func (f *figure) pulse(e dmalog.Engine, i int) float64 {
	all := transfersOf(f.logged(loggedPolicy, 1).Log, e, 0)
	if i >= len(all) {
		return 0
	}
	return float64(all[i].Bytes)
}

// begins is when an engine begins with the second packet.
func (f *figure) begins(e dmalog.Engine) float64 {
	log := f.logged(loggedPolicy, loggedFrames).Log
	if f.err != nil {
		return 0
	}
	start := transfersOf(log, dmalog.HostTx, 0)[0].Start
	return dmalog.Microseconds(transfersOf(log, e, 1)[0].Start - start)
}

// firstRates are the least and the greatest rate of the netTx transfers of the first packets. Rests below the threshold, whose
// time is mostly overhead, do not count.
func (f *figure) firstRates() (low, high float64) {
	for _, r := range f.logged(loggedPolicy, loggedFrames).Log {
		if r.Engine == dmalog.NetTx && r.Packet < firstPackets && r.Bytes >= pipeline.DefaultMinPulse {
			v := float64(r.Bytes) / dmalog.Microseconds(r.End-r.Start)
			if high == 0 {
				low = v
			}
			low, high = min(low, v), max(high, v)
		}
	}
	return low, high
}

// steadyState is the end of the first packets whose average is above steadyRate in every engine,
// as that of all later ones is. It is taken over as many packets as the NIC has buffers.
func (f *figure) steadyState() float64 {
	log := f.logged(loggedPolicy, loggedFrames).Log
	if f.err != nil {
		return 0
	}
	end := func(e dmalog.Engine, packet int) int64 {
		all := transfersOf(log, e, packet)
		return all[len(all)-1].End
	}
	packets := f.NIC.Buffers
	if packets >= loggedFrames {
		return 0
	}
	from := packets
	for e := range dmalog.Engines {
		for k := packets; k < loggedFrames; k++ {
			took := dmalog.Microseconds(end(e, k) - end(e, k-packets))
			if float64(packets*f.Payload)/took <= steadyRate {
				from = max(from, k+1)
			}
		}
	}
	if from == loggedFrames {
		return 0
	}
	return dmalog.Microseconds(end(dmalog.HostRcv, from) - log[0].Start)
}

// steadySize is the mean of the hostRcv transfers in the steady state.
func (f *figure) steadySize() float64 {
	log := f.logged(loggedPolicy, loggedFrames).Log
	bytes, n := 0, 0
	for _, r := range log {
		if at := r.Start - log[0].Start; r.Engine == dmalog.HostRcv && at >= steadyFrom && at < steadyUntil {
			bytes += r.Bytes
			n++
		}
	}
	return float64(bytes) / float64(max(n, 1))
}

// transferCount returns the number of transfers that an engine makes of a lone packet, its control message included.
func (f *figure) transferCount(e dmalog.Engine) float64 {
	r := f.result(key{platform: f.name, policy: f.Policy, send: f.Send, receive: f.Receive, payload: f.Payload, count: 1, counted: true})
	return float64(len(transfersOf(r.Log, e, 0)) + len(transfersOf(r.Control, e, 0)))
}
