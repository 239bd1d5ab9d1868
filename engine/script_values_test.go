package engine_test

import (
	"fmt"
	"reflect"
	"slices"
	"strconv"
	"strings"

	"github.com/trapeze-nic/trapeze/ci/kit/must"
	"github.com/trapeze-nic/trapeze/engine"
	"github.com/trapeze-nic/trapeze/internal/datasheet"
	"github.com/trapeze-nic/trapeze/internal/script"
)

// arguments are the words behind a command's name.
type arguments struct {
	*script.Arguments
	p     *play
	tries [][]string // words between slashes
}

func newArguments(p *play, words []string) *arguments {
	a := &arguments{p: p}
	if i := slices.Index(words, "/"); i >= 0 {
		for _, w := range words[i:] {
			if w == "/" {
				a.tries = append(a.tries, nil)
				continue
			}
			last := &a.tries[len(a.tries)-1]
			*last = append(*last, w)
		}
		words = words[:i]
	}
	a.Arguments = script.Parse(words)
	return a
}

// number is option for a number, other if it is not there.
func (a *arguments) number(path string, other uint64) uint64 {
	if s, ok := a.Option(path); ok {
		return a.p.value(s)
	}
	return other
}

// values are names that numbers have in scripts.
var values = map[string]uint64{
	"all": ^uint64(0), "host": hostBase, "bus": busBase, "token": datasheet.TokenSize, "page": datasheet.PageSize,
	"U": uint64(datasheet.Unreliable), "RD": uint64(datasheet.ReliableDelivery), "RR": uint64(datasheet.ReliableReception),
	"VI": uint64(datasheet.KindVI), "Ring": uint64(datasheet.KindRing), "Channel": uint64(datasheet.KindChannel),
	"Frame": uint64(datasheet.KindFrame), "ReceiveQueue": uint64(datasheet.KindReceiveQueue),
	"NoCQ": uint64(datasheet.NoCQ), "NoVector": uint64(datasheet.NoVector), "Vectors": datasheet.Vectors,
	"MaxTransfer": datasheet.MaxTransfer, "MaxSegments": datasheet.MaxSegments, "MaxQueueLog2": datasheet.MaxQueueLog2,
	"MinCQLog2": datasheet.MinCQLog2, "MaxCQLog2": datasheet.MaxCQLog2, "MinMTU": datasheet.MinMTU, "PayloadEntries": datasheet.PayloadEntries,
	"RDMAWrite": uint64(datasheet.AccessRDMAWrite), "RDMARead": uint64(datasheet.AccessRDMARead), "Eager": uint64(datasheet.AccessEager),
	"PageList": uint64(datasheet.AccessPageList), "ReadOnly": uint64(datasheet.AccessReadOnly), "AccessReserved": uint64(datasheet.AccessReserved),
	"Promiscuous": uint64(datasheet.EndpointPromiscuous), "Breaks": uint64(datasheet.EndpointBreaks), "Shares": uint64(datasheet.EndpointShares),
	"Spaced": uint64(datasheet.EndpointSpaced), "Kernel": uint64(datasheet.EndpointKernel), "EagerTokens": uint64(datasheet.EndpointEager),
	"ControlInline": uint64(datasheet.ControlInline), "ControlImmediate": uint64(datasheet.ControlImmediate),
	"ControlFence": uint64(datasheet.ControlQueueFence), "OpWrite": uint64(datasheet.OpRDMAWrite), "OpRead": uint64(datasheet.OpRDMARead),
	"First": uint64(datasheet.FrameFirst), "Last": uint64(datasheet.FrameLast), "Immediate": uint64(datasheet.FrameImmediate),
	"AckRequest": uint64(datasheet.FrameAckRequest), "Echo": uint64(datasheet.FrameEcho), "Reference": uint64(datasheet.FrameReference),
	"Checksum":  uint64(datasheet.FrameChecksum),
	"send_bell": datasheet.DoorbellSend, "recv_bell": datasheet.DoorbellRecv, "send_arm": datasheet.DoorbellSendArm,
	"recv_arm": datasheet.DoorbellRecvArm, "ring_bell": datasheet.DoorbellRing, "cq_arm": datasheet.DoorbellCQArm,
	"high_bell": datasheet.DoorbellHigh, "low_bell": datasheet.DoorbellLow, "receive_bell": datasheet.DoorbellReceive,
	"bell_0_1": uint64(datasheet.ChannelBell(0, 1)), "ChannelKeep": uint64(datasheet.ChannelKeep), "RingMessage": datasheet.RingMessage, "header": datasheet.HeaderSize,
	"ConnectBody": datasheet.ConnectBodySize, "CellSize": datasheet.CellSize,
	"success": uint64(datasheet.ResultSuccess), "remote_descriptor": uint64(datasheet.ResultRemoteDescriptor), "aborted": uint64(datasheet.ResultAborted),
	"sram": sramSize, "sram_from": sramFrom, "no_entry": uint64(engine.DefaultQueue),
}

var frameTypes = map[string]datasheet.FrameType{
	"data": datasheet.FrameData, "ack": datasheet.FrameAck, "probe": datasheet.FrameProbe, "request": datasheet.FrameConnectRequest,
	"accept": datasheet.FrameConnectAccept, "reject": datasheet.FrameConnectReject, "disconnect": datasheet.FrameDisconnect,
	"write": datasheet.FrameWrite, "read": datasheet.FrameReadRequest, "response": datasheet.FrameReadResponse,
	"cells": datasheet.FrameCells, "stop": datasheet.FrameCellStop, "start": datasheet.FrameCellStart,
}

func typeName(t datasheet.FrameType) string {
	for name, x := range frameTypes {
		if x == t {
			return name
		}
	}
	return t.String()
}

// value is the value of an expression.
func (p *play) value(s string) uint64 {
	p.t.Helper()
	return script.Number(s, p.atom)
}

func (p *play) atom(word string) uint64 {
	p.t.Helper()
	if v, ok := p.numbers[word]; ok {
		return v
	}
	if v, ok := values[word]; ok {
		return v
	}
	if t, ok := frameTypes[word]; ok {
		return uint64(t)
	}
	if v, err := strconv.ParseUint(word, 0, 64); err == nil {
		return v
	}
	if p.w == nil {
		p.t.Fatalf("%q has no value before there is a world", word)
	}
	switch limits := p.w.a.e.Limits; word {
	case "endpoints":
		return uint64(limits.Endpoints)
	case "cqs":
		return uint64(limits.CQs)
	}
	name, field, _ := strings.Cut(word, ".")
	if i := p.items[name]; i != nil {
		return i.number(field)
	}
	if v := p.ends[name]; v != nil {
		switch field {
		case "page":
			return datasheet.EndpointPage(v.id)
		case "sent":
			return uint64(v.send.producer)
		case "posted":
			return uint64(v.recv.producer)
		}
	}
	if t, ok := p.targets[name]; ok {
		if field == "handle" {
			return uint64(t.handle)
		}
		return t.address
	}
	if (name == "a" || name == "b") && field == "end" {
		return hostBase + uint64(len(p.node(name).mem))
	}
	if c := p.cqs[name]; c != nil {
		if field == "page" {
			return datasheet.CQPage(c.n.e.Limits.Endpoints, c.id)
		}
		return uint64(c.id)
	}
	p.t.Fatalf("%q has no value", word)
	return 0
}

// field finds what a path leads to.
func (p *play) field(v reflect.Value, path string) reflect.Value {
	p.t.Helper()
	if path == "level" {
		path = "Reliability"
	}
	f := must.Get(script.Field(v, path))(p.t)
	return f
}

// change makes a change to what v points to.
func (p *play) change(to any, changes ...script.Change) {
	p.t.Helper()
	for _, c := range changes {
		p.set(p.field(reflect.ValueOf(to).Elem(), c.Path), c)
	}
}

func (p *play) set(v reflect.Value, c script.Change) {
	p.t.Helper()
	switch at := v.Addr().Interface().(type) {
	case *datasheet.MAC:
		*at = p.mac(c.Value)
		return
	case *datasheet.Discriminator:
		*at = disc(c.Value)
		return
	}
	if v.Kind() == reflect.Array && v.Type().Elem().Kind() == reflect.Uint8 {
		reflect.Copy(v, reflect.ValueOf([]byte(c.Value)))
		return
	}
	if v.Kind() < reflect.Uint || v.Kind() > reflect.Uint64 {
		p.t.Fatalf("%s is no number", c.Path)
	}
	v.SetUint(c.Of(v.Uint(), p.value(c.Value)))
}

// mac is the address of a node, that of all stations, or one in hexadecimal digits.
func (p *play) mac(s string) (m datasheet.MAC) {
	p.t.Helper()
	switch s {
	case "a", "b":
		return p.node(s).e.MAC
	case "all":
		return datasheet.Broadcast
	}
	if n, err := fmt.Sscanf(s, "%02x:%02x:%02x:%02x:%02x:%02x", &m[0], &m[1], &m[2], &m[3], &m[4], &m[5]); n != 6 {
		p.t.Fatalf("%q is no address: %v", s, err)
	}
	return m
}

// show describes a field's value.
func (p *play) show(v reflect.Value) string {
	switch at := v.Interface().(type) {
	case datasheet.MAC:
		for _, n := range p.nodes(nil) {
			if n.e.MAC == at {
				return p.nameOf(n)
			}
		}
		return at.String()
	case datasheet.Discriminator:
		return strconv.Quote(string(at.Data[:min(int(at.Len), len(at.Data))]))
	case datasheet.FrameFlags:
		return fmt.Sprintf("%#x", uint16(at))
	case datasheet.FrameType:
		return typeName(at)
	}
	return fmt.Sprint(v.Interface())
}
