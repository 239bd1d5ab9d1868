package share

import (
	"context"

	"github.com/trapeze-nic/trapeze/internal/buserror"
	"github.com/trapeze-nic/trapeze/internal/datasheet"
	"github.com/trapeze-nic/trapeze/vfio"
)

// adminQueue is the admin queue of a part (SPEC 2.5, 7.1). It belongs to the part's lock.
type adminQueue struct {
	sqBase, acqBase    uint64
	sqLog2, acqLog2    uint32
	vector             uint32
	enabled            bool
	error              bool
	producer, consumer uint32 // commands that the client has written, and those taken
	written, taken     uint32 // entries written, and those that the client has taken
	lost               uint32
	fault, faultDetail uint32
	outstanding        map[uint16]context.CancelFunc
}

func (a *adminQueue) register(reg uint64) uint32 {
	switch reg {
	case datasheet.RegSQBaseLow:
		return uint32(a.sqBase)
	case datasheet.RegSQBaseHigh:
		return uint32(a.sqBase >> 32)
	case datasheet.RegACQBaseLow:
		return uint32(a.acqBase)
	case datasheet.RegACQBaseHigh:
		return uint32(a.acqBase >> 32)
	case datasheet.RegSQLog2:
		return a.sqLog2
	case datasheet.RegACQLog2:
		return a.acqLog2
	case datasheet.RegAdminVector:
		return a.vector
	case datasheet.RegAdminControl, datasheet.RegAdminStatus:
		switch {
		case a.enabled:
			return datasheet.AdminEnabled
		case a.error && reg == datasheet.RegAdminStatus:
			return datasheet.AdminError
		}
		return 0
	case datasheet.RegSQProducer:
		return a.producer
	case datasheet.RegSQConsumer:
		return a.consumer
	case datasheet.RegACQConsumer:
		return a.taken
	case datasheet.RegEventsLost:
		return a.lost
	}
	return 0
}

// setAdmin writes a register of the admin block. mu is held.
func (p *Part) setAdmin(reg uint64, v uint32) {
	a := &p.admin
	low := func(base *uint64) { *base = *base&^0xffffffff | uint64(v) }
	high := func(base *uint64) { *base = *base&0xffffffff | uint64(v)<<32 }
	switch reg {
	case datasheet.RegAdminControl:
		p.enable(v&datasheet.AdminEnable != 0)
		return
	case datasheet.RegSQProducer:
		if !a.enabled {
			return
		}
		if v-a.consumer > 1<<a.sqLog2 || int32(v-a.producer) < 0 {
			p.fault(datasheet.FaultAdminIndex, v)
			return
		}
		a.producer = v
		p.fetch()
		return
	case datasheet.RegACQConsumer:
		if !a.enabled {
			return
		}
		if v-a.taken > a.written-a.taken {
			p.fault(datasheet.FaultAdminIndex, v)
			return
		}
		a.taken = v
		p.fetch()
		return
	}
	if a.enabled {
		return
	}
	switch reg {
	case datasheet.RegSQBaseLow:
		low(&a.sqBase)
	case datasheet.RegSQBaseHigh:
		high(&a.sqBase)
	case datasheet.RegACQBaseLow:
		low(&a.acqBase)
	case datasheet.RegACQBaseHigh:
		high(&a.acqBase)
	case datasheet.RegSQLog2:
		a.sqLog2 = v
	case datasheet.RegACQLog2:
		a.acqLog2 = v
	case datasheet.RegAdminVector:
		a.vector = v
	}
}

// enable enables or disables the queue. Replies to commands that a disabled one has are dropped. mu is held.
func (p *Part) enable(on bool) {
	a := &p.admin
	if on == a.enabled {
		return
	}
	a.enabled, a.error = false, false
	if !on {
		return
	}
	fits := func(log2 uint32) bool { return log2 >= datasheet.MinAdminLog2 && log2 <= datasheet.MaxAdminLog2 }
	if a.fault != datasheet.FaultNone || a.sqBase%datasheet.AdminEntrySize != 0 || a.acqBase%datasheet.AdminEntrySize != 0 ||
		!fits(a.sqLog2) || !fits(a.acqLog2) || len(a.outstanding) > 0 {
		a.error = true
		return
	}
	a.producer, a.consumer, a.written, a.taken = 0, 0, 0, 0
	a.enabled = true
}

// fault stops the queue until a reset. mu is held.
func (p *Part) fault(code, detail uint32) {
	a := &p.admin
	a.enabled, a.error, a.fault, a.faultDetail = false, true, code, detail
}

// slot finds an entry of a ring in the client's memory; nil stops the queue. mu is held.
func (p *Part) slot(base uint64, log2, index uint32, need vfio.DMAFlags) []byte {
	at := base + uint64(index&(1<<log2-1))*datasheet.AdminEntrySize
	w := p.find(at, datasheet.AdminEntrySize, need)
	if w == nil {
		p.fault(datasheet.FaultAdminDMA, uint32(at))
		return nil
	}
	return w.mem.Bytes()[at-w.iova:][:datasheet.AdminEntrySize]
}

// touch runs f, which touches the client's memory; if that is gone the queue stops. mu is held.
func (p *Part) touch(f func()) bool {
	if buserror.Catch(f) == nil {
		return true
	}
	p.fault(datasheet.FaultMemory, 0)
	return false
}

// room counts the further entries that there may be, behind a reply to each command that is outstanding.
func (a *adminQueue) room() uint32 {
	return 1<<a.acqLog2 - (a.written - a.taken) - uint32(len(a.outstanding))
}

// fetch carries out commands while there are any and their replies have room. mu is held.
func (p *Part) fetch() {
	a := &p.admin
	for a.enabled && int32(a.producer-a.consumer) > 0 && int32(a.room()) > 0 {
		b := p.slot(a.sqBase, a.sqLog2, a.consumer, vfio.DMARead)
		if b == nil {
			return
		}
		var cmd datasheet.Command // a copy: the client may change its own
		if !p.touch(func() { cmd = *datasheet.CommandAt(b) }) {
			return
		}
		a.consumer++
		p.commands.Add(1)
		p.carry(&cmd)
	}
}

// write appends an entry, for which there is room. mu is held.
func (p *Part) write(e *datasheet.AdminEntry) {
	a := &p.admin
	if !a.enabled {
		return
	}
	b := p.slot(a.acqBase, a.acqLog2, a.written, vfio.DMAWrite)
	if b == nil {
		return
	}
	phase := datasheet.PhaseOf(a.written, uint8(a.acqLog2))
	if !p.touch(func() {
		to := datasheet.AdminEntryAt(b)
		to.Kind, to.ID, to.Result, to.Field, to.Payload = e.Kind, e.ID, e.Result, e.Field, e.Payload
		to.Publish(phase)
	}) {
		return
	}
	a.written++
	if v := uint16(a.vector); v != datasheet.NoVector {
		p.raise(v)
	}
}

// event tells the client of an event, if it concerns it.
func (p *Part) event(e datasheet.Event) {
	p.mu.Lock()
	defer p.mu.Unlock()
	_, endpoint := p.owned.endpoints[e.Endpoint]
	_, queue := p.owned.cqs[e.CQ]
	if !endpoint && !queue && e.Code != datasheet.EventLink {
		return
	}
	if int32(p.admin.room()) <= 0 {
		p.admin.lost++
		return
	}
	entry := &datasheet.AdminEntry{Kind: datasheet.EntryEvent}
	*datasheet.Reply[datasheet.Event](entry) = e
	p.write(entry)
}
