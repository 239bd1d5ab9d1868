package processor

import (
	"errors"

	"github.com/trapeze-nic/trapeze/descriptors"
	"github.com/trapeze-nic/trapeze/firmware-loader/internal/machine"
)

// mailbox carries out a map operation on the image that runs or is halted. It runs
// in Exclusive, so between two runs of programs.
func (u *Unit) mailbox(command uint32) descriptors.MailboxResult {
	op, flags, index := descriptors.SplitMailbox(command)
	img := u.runner.image
	if img == nil {
		return descriptors.MailboxNoProgram
	}
	if int(index) >= len(img.Maps) || flags != 0 && op != descriptors.MailboxUpdate {
		return descriptors.MailboxBad
	}
	m := img.Maps[index]
	spec := m.Spec()
	box := u.sram[u.layout.mailbox : u.layout.mailbox+mailboxSize]
	place, at := box[:spec.Key], machine.Padded(spec.Key)
	value := box[at : at+uint64(spec.Value)]
	// A copy, as the host can write the mailbox.
	key := append(make([]byte, 0, len(place)), place...)
	var err error
	switch op {
	case descriptors.MailboxLookup:
		var found []byte
		if found, err = m.Lookup(key); err == nil {
			copy(value, found)
		}
	case descriptors.MailboxUpdate:
		err = m.Update(key, value, uint64(flags))
	case descriptors.MailboxDelete:
		err = m.Delete(key)
	case descriptors.MailboxNext:
		err = m.Next(key, place)
	case descriptors.MailboxFirst:
		err = m.Next(nil, place)
	default:
		return descriptors.MailboxBad
	}
	var e machine.Errno
	switch {
	case err == nil:
		return descriptors.MailboxOK
	case errors.As(err, &e):
		return descriptors.MailboxResult(e) // the same numbers
	}
	return descriptors.MailboxBad
}
