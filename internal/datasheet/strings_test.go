package datasheet_test

import (
	"fmt"
	"testing"

	"github.com/trapeze-nic/trapeze/ci/kit/should"
	. "github.com/trapeze-nic/trapeze/internal/datasheet"
)

func TestStrings(t *testing.T) {
	for _, tt := range []struct {
		value fmt.Stringer
		want  string
	}{
		{OpNop, "NOP"}, {OpConnectRequest, "CONNECT_REQUEST"}, {OpAbort, "ABORT"},
		{Opcode(1000), "opcode 1000"}, {Opcode(0xffff), "opcode 65535"},
		{ResultSuccess, "success"}, {ResultDMAFault, "DMA fault"},
		{Result(1), "result 1"}, {Result(0xffff), "result 65535"},
		{KindVI, "VI"}, {KindRing, "ring"}, {KindChannel, "channel"}, {Kind(0), "kind 0"},
		{Unreliable, "unreliable delivery"}, {ReliableDelivery, "reliable delivery"},
		{ReliableReception, "reliable reception"}, {Reliability(3), "reliability 3"},
		{StateIdle, "idle"}, {StateConnected, "connected"},
		{StateConnectPending, "connect pending"}, {StateError, "error"}, {State(4), "state 4"},
		{Broadcast, "ff:ff:ff:ff:ff:ff"}, {MAC{0x02, 0, 0xab}, "02:00:ab:00:00:00"},
		{EventPostDescriptor, "bad descriptor posted"}, {EventLink, "link changed"},
		{EventCode(11), "event 11"},
		{FrameData, "data"}, {FrameDisconnect, "disconnect"},
		{FrameType(0), "frame type 0"}, {FrameWrite, "RDMA write"},
		{FrameReadRequest, "RDMA read request"}, {FrameReadResponse, "RDMA read response"}, {FrameCells, "cells"}, {FrameCellStop, "cell stop"}, {FrameCellStart, "cell start"}, {FrameType(14), "frame type 14"},
		{CounterFramesSent, "frames_sent"}, {CounterCompletions, "completions"},
		{Counter(1000), "counter 1000"}, {Counter(-1), "counter -1"},
		{EngineHostTx, "hostTx"}, {EngineHostRcv, "hostRcv"}, {DMAEngineCount, "engine 4"},
		{DMAIdle, "idle"}, {DMABusy, "busy"}, {DMAWaits, "waits for a pulse"}, {DMAState(3), "DMA state 3"},
		{DMAPolicyOwn, "the device's own"}, {DMAPolicyAuto, "auto"}, {DMAPolicy(7), "DMA policy 7"},
		{ProcessorBuiltIn, "built-in"}, {ProcessorFaulted, "faulted"}, {ProcessorState(5), "processor state 5"},
		{ProcessorFaultNone, "none"}, {ProcessorFaultTrap, "trap"}, {ProcessorFault(9), "processor fault 9"},
		{MailboxOK, "done"}, {MailboxFull, "map full"}, {MailboxResult(3), "mailbox result 3"},
		{Status(0), "not done"}, {StatusDone, "done"},
		{StatusDone | StatusOpReceive, "done"},
		{StatusOpReceive, "not done"},
		{StatusDone | StatusLengthError, "done, local length error"},
		{StatusDone | StatusFlushed | StatusTransportError, "done, flushed, transport error"},
		{StatusLengthError | StatusPartialPacket, "not done, local length error, partial packet"},
		{StatusDone | StatusImmediate | 0x200, "done, immediate data, reserved 0x200"},
	} {
		should.Be(t, tt.value.String(), tt.want, "%T(%d)", tt.value, tt.value)
	}
}

func TestMulticast(t *testing.T) {
	for _, tt := range []struct {
		mac  MAC
		want bool
	}{
		{Broadcast, true},
		{MAC{0x01, 0x80, 0xc2, 0, 0, 0x0e}, true},
		{MAC{0x02, 0, 0, 0, 0, 1}, false},
		{MAC{}, false},
	} {
		should.Be(t, tt.mac.IsMulticast(), tt.want, "%v", tt.mac)
	}
}

func TestControlAndStatusBits(t *testing.T) {
	if c := OpRDMARead | ControlImmediate | ControlQueueFence; c.Op() != OpRDMARead {
		t.Errorf("operation of %#x is %#x", c, c.Op())
	}
	if s := StatusDone | StatusImmediate; !s.Done() || s.Failed() {
		t.Errorf("%v: done %v, failed %v", s, s.Done(), s.Failed())
	}
	for bit := StatusFormatError; bit <= StatusRemoteDescriptor; bit <<= 1 {
		if s := StatusDone | bit; !s.Failed() {
			t.Errorf("%v does not count as failed", s)
		}
	}
	all := StatusDone | StatusErrorMask | StatusOpMask | StatusImmediate
	if all&StatusReserved != 0 || all|StatusReserved != 0xffffffff {
		t.Errorf("status bits %#x and %#x do not make 32", uint32(all), uint32(StatusReserved))
	}
	if c := ControlOpMask | ControlImmediate | ControlQueueFence | ControlInline; c&ControlReserved != 0 || c|ControlReserved != 0xffff {
		t.Errorf("control bits %#x and %#x do not make 16", uint16(c), uint16(ControlReserved))
	}
}
