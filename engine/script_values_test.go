package engine_test

import (
	"fmt"
	"reflect"
	"slices"
	"strconv"
	"strings"

	"github.com/trapeze-nic/trapeze/engine"
	"github.com/trapeze-nic/trapeze/internal/datasheet"
)

// arguments are the words behind a command's name: those that change a field, such as Length+=1,
// and others.
type arguments struct {
	p       *play
	words   []string
	changes []change
	tries   [][]string // words between slashes
}

// change is PATH=VALUE, or another operation in place of =.
type change struct{ path, op, value string }

var operations = []string{"+=", "-=", "^=", "|=", "&=", "="}

func newArguments(p *play, words []string) *arguments {
	a := &arguments{p: p}
	for _, w := range words {
		if w == "/" {
			a.tries = append(a.tries, nil)
			continue
		}
		if n := len(a.tries); n > 0 {
			a.tries[n-1] = append(a.tries[n-1], w)
			continue
		}
		i := strings.IndexByte(w, '=')
		if i < 1 {
			a.words = append(a.words, w)
			continue
		}
		op := "="
		for _, o := range operations[:5] {
			if strings.HasSuffix(w[:i+1], o) {
				op = o
			}
		}
		a.changes = append(a.changes, change{w[:i+1-len(op)], op, w[i+1:]})
	}
	return a
}

// flag takes a word out and reports whether it was there.
func (a *arguments) flag(word string) bool {
	i := slices.Index(a.words, word)
	if i >= 0 {
		a.words = slices.Delete(a.words, i, i+1)
	}
	return i >= 0
}

// option takes a change out and returns its value.
func (a *arguments) option(path string) (string, bool) {
	for i, c := range a.changes {
		if c.path == path && c.op == "=" {
			a.changes = slices.Delete(a.changes, i, i+1)
			return c.value, true
		}
	}
	return "", false
}

// number is option for a number, other if it is not there.
func (a *arguments) number(path string, other uint64) uint64 {
	if s, ok := a.option(path); ok {
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

// value is the value of an expression: names and numbers with + - * ^ | & and <<, from left to right.
func (p *play) value(s string) uint64 {
	p.t.Helper()
	total, op, rest := uint64(0), byte('+'), s
	for {
		i := strings.IndexAny(rest, "+-*^|&<")
		word := rest
		if i >= 0 {
			word = rest[:i]
		}
		v := uint64(0)
		if word != "" {
			v = p.atom(word)
		}
		switch op {
		case '+':
			total += v
		case '-':
			total -= v
		case '*':
			total *= v
		case '^':
			total ^= v
		case '|':
			total |= v
		case '&':
			total &= v
		case '<':
			total <<= v
		}
		if i < 0 {
			return total
		}
		op, rest = rest[i], rest[i+1:]
		if op == '<' {
			rest = strings.TrimPrefix(rest, "<")
		}
	}
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
	switch limits := p.w.a.e.Limits(); word {
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
			return datasheet.CQPage(c.n.e.Limits().Endpoints, c.id)
		}
		return uint64(c.id)
	}
	p.t.Fatalf("%q has no value", word)
	return 0
}

// field finds what a path such as Payload.Address or RemoteMAC.0 leads to.
func (p *play) field(v reflect.Value, path string) reflect.Value {
	p.t.Helper()
	if path == "level" {
		path = "Reliability"
	}
	for name := range strings.SplitSeq(path, ".") {
		if i, err := strconv.Atoi(name); err == nil && (v.Kind() == reflect.Array || v.Kind() == reflect.Slice) && i < v.Len() {
			v = v.Index(i)
			continue
		}
		of := v
		if v.Kind() != reflect.Struct || !v.FieldByName(name).IsValid() {
			p.t.Fatalf("%v has no field %q", of.Type(), name)
		}
		v = v.FieldByName(name)
	}
	return v
}

// change makes a change to what v points to.
func (p *play) change(to any, changes ...change) {
	p.t.Helper()
	for _, c := range changes {
		p.set(p.field(reflect.ValueOf(to).Elem(), c.path), c)
	}
}

func (p *play) set(v reflect.Value, c change) {
	p.t.Helper()
	switch at := v.Addr().Interface().(type) {
	case *datasheet.MAC:
		*at = p.mac(c.value)
		return
	case *datasheet.Discriminator:
		*at = disc(c.value)
		return
	}
	if v.Kind() == reflect.Array && v.Type().Elem().Kind() == reflect.Uint8 {
		reflect.Copy(v, reflect.ValueOf([]byte(c.value)))
		return
	}
	if v.Kind() < reflect.Uint || v.Kind() > reflect.Uint64 {
		p.t.Fatalf("%s is no number", c.path)
	}
	old, by := v.Uint(), p.value(c.value)
	switch c.op {
	case "+=":
		by = old + by
	case "-=":
		by = old - by
	case "^=":
		by = old ^ by
	case "|=":
		by = old | by
	case "&=":
		by = old & by
	}
	v.SetUint(by)
}

// mac is the address of a node, that of all stations, or one in hexadecimal digits.
func (p *play) mac(s string) (m datasheet.MAC) {
	p.t.Helper()
	switch s {
	case "a", "b":
		return p.node(s).e.MAC()
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
			if n.e.MAC() == at {
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

// span reads names such as s1..4 or s,t.
func span(s string) (names []string) {
	for part := range strings.SplitSeq(s, ",") {
		first, last, many := strings.Cut(part, "..")
		i := len(strings.TrimRight(first, "0123456789"))
		from, err := strconv.Atoi(first[i:])
		to, err2 := strconv.Atoi(last)
		if !many || err != nil || err2 != nil {
			names = append(names, part)
			continue
		}
		for n := from; n <= to; n++ {
			names = append(names, first[:i]+strconv.Itoa(n))
		}
	}
	return names
}

// fold is the opposite of span.
func fold(names []string) string {
	var parts []string
	for i := 0; i < len(names); {
		base := strings.TrimRight(names[i], "0123456789")
		n, err := strconv.Atoi(names[i][len(base):])
		j := i + 1
		for err == nil && j < len(names) && names[j] == base+strconv.Itoa(n+j-i) {
			j++
		}
		if j-i > 2 {
			parts = append(parts, fmt.Sprintf("%s..%d", names[i], n+j-i-1))
		} else {
			parts = append(parts, names[i:j]...)
		}
		i = j
	}
	return strings.Join(parts, " ")
}
