package datasheet_test

import (
	"fmt"
	"testing"

	"github.com/trapeze-nic/trapeze/ci/kit/should"
	. "github.com/trapeze-nic/trapeze/internal/datasheet"
)

// TestStrings: what has no name has its number, and a status the names of its bits. TestSpec has the names.
func TestStrings(t *testing.T) {
	for _, tt := range []struct {
		value fmt.Stringer
		want  string
	}{
		{Opcode(1000), "opcode 1000"}, {Opcode(0xffff), "opcode 65535"}, {Result(1), "result 1"}, {Result(0xffff), "result 65535"},
		{Kind(0), "kind 0"}, {Reliability(3), "reliability 3"}, {State(4), "state 4"}, {EventCode(11), "event 11"},
		{FrameType(0), "frame type 0"}, {FrameType(14), "frame type 14"}, {Counter(1000), "counter 1000"}, {Counter(-1), "counter -1"},
		{DMAEngineCount, "engine 4"}, {DMAState(3), "DMA state 3"}, {DMAPolicy(7), "DMA policy 7"}, {ProcessorState(5), "processor state 5"},
		{ProcessorFault(9), "processor fault 9"}, {MailboxResult(3), "mailbox result 3"},
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
