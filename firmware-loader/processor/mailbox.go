package processor

import (
	"errors"

	"github.com/trapeze-nic/trapeze/firmware-loader/internal/machine"
	"github.com/trapeze-nic/trapeze/internal/datasheet"
)

// mailbox carries out a map operation on the image that runs or is halted. It runs
// in Exclusive, so between two runs of programs.
func (u *Unit) mailbox(command uint32) datasheet.MailboxResult {
	op, flags, index := datasheet.SplitMailbox(command)
	img := u.runner.image
	if img == nil {
		return datasheet.MailboxNoProgram
	}
	if int(index) >= len(img.Maps) || flags != 0 && op != datasheet.MailboxUpdate {
		return datasheet.MailboxBad
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
	case datasheet.MailboxLookup:
		var found []byte
		if found, err = m.Lookup(key); err == nil {
			copy(value, found)
		}
	case datasheet.MailboxUpdate:
		err = m.Update(key, value, uint64(flags))
	case datasheet.MailboxDelete:
		err = m.Delete(key)
	case datasheet.MailboxNext:
		err = m.Next(key, place)
	case datasheet.MailboxFirst:
		err = m.Next(nil, place)
	default:
		return datasheet.MailboxBad
	}
	var e machine.Errno
	switch {
	case err == nil:
		return datasheet.MailboxOK
	case errors.As(err, &e):
		return datasheet.MailboxResult(e) // the same numbers
	}
	return datasheet.MailboxBad
}
