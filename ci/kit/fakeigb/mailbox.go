package fakeigb

import "encoding/binary"

// Bits of the mailbox's register.
const (
	mailRequest, mailAck, mailOurs, mailTheirs           = 1 << 0, 1 << 1, 1 << 2, 1 << 3
	mailArrived, mailAcked, mailResetting, mailResetDone = 1 << 4, 1 << 5, 1 << 6, 1 << 7
)

// mailbox is that of a virtual function.
type mailbox struct{ bits uint32 }

// virtual says whether this is a virtual function.
func (d *Device) virtual() bool { return d.options.Device == 0x10ca || d.options.Device == 0x1520 }

// Place returns where a register of a ring is: a virtual function has its ring elsewhere.
func (d *Device) Place(offset uint64) uint64 {
	switch {
	case !d.virtual():
	case offset >= 0x2800 && offset < 0x2840:
		return offset - 0x2800 + RDBAL
	case offset >= 0x3800 && offset < 0x3840:
		return offset - 0x3800 + TDBAL
	}
	return offset
}

// mail is a write to the mailbox's register.
func (d *Device) mail(v uint32) {
	if d.vf.bits &^= mailOurs; v&mailOurs != 0 && d.vf.bits&mailTheirs == 0 {
		d.vf.bits |= mailOurs
	}
	if v&mailRequest == 0 {
		return
	}
	var message [16]uint32
	for i := range message {
		message[i] = binary.LittleEndian.Uint32(d.Registers[MailMemory+4*i:])
	}
	d.messages = append(d.messages, message[0])
	answer, answers := d.answer(message), true
	if d.OnMail != nil {
		answer, answers = d.OnMail(message)
	}
	if !answers {
		return
	}
	for i, w := range answer {
		binary.LittleEndian.PutUint32(d.Registers[MailMemory+4*i:], w)
	}
	d.vf.bits |= mailAcked | mailArrived
}

// answer is that of a sound driver of the physical function: yes, but for promiscuous
// mode of stations' addresses, as Linux's.
func (d *Device) answer(message [16]uint32) (answer [16]uint32) {
	const good, bad, clear = 1 << 31, 1 << 30, 1 << 29
	answer = message
	switch message[0] & 0xff {
	case 1:
		answer[0] = message[0] | good
		answer[1] = binary.LittleEndian.Uint32(d.options.MAC[:])
		answer[2] = uint32(binary.LittleEndian.Uint16(d.options.MAC[4:]))
	case 6:
		answer[0] |= clear | good
		if message[0]&(1<<16) != 0 {
			answer[0] = answer[0]&^good | bad
		}
	default:
		answer[0] |= good | clear
	}
	return answer
}
