package core

// Start begins to move the frame in progress.
func (t *Transmitter) Start(behind int) Outcome {
	if t.Box != nil {
		return t.Box.start(behind)
	}
	tx := t.DMA.Movers[Transmit]
	// No frame is in progress and the length is good: Start cannot refuse.
	_ = tx.Start(int(t.Length), behind)
	if !tx.Hosted() {
		return t.feed()
	}
	t.DMA.hold(Transmit)
	result := t.feed()
	t.DMA.report(Transmit)
	return result
}

// feed has hostTx and netTx work on the frame that is being sent until it has
// left; if the host decides, until both have had a turn.
func (t *Transmitter) feed() Outcome {
	o, tx := &t.Outgoing, t.DMA.Movers[Transmit]
	for {
		if st := t.gather(); st != 0 {
			return t.fail(st)
		}
		_ = tx.Arrived(int(o.Gathered)) // once all has arrived that is no news, and refused
		for {
			n, last := tx.Next()
			if n == 0 {
				break
			}
			o.shown += uint32(n)
			if last {
				return t.finishFrame()
			}
			if t.pieces && o.at != 0 && !t.Asks(HookFilterTransmit) { // which is shown whole frames
				o.published = true
				t.progressive.Publish(int(o.at + o.shown))
			}
			_ = tx.Done()
		}
		if o.Held = tx.Hosted(); o.Held {
			return FrameWaiting
		}
	}
}

// finishFrame hands the rest of the frame in progress to the wire.
func (t *Transmitter) finishFrame() Outcome {
	o := &t.Outgoing
	if o.at != 0 {
		t.Launch(o.Buf)
	} else if st := t.LaunchRaw(o.Ep, o.Buf); st != 0 {
		return t.fail(st)
	}
	_ = t.DMA.Movers[Transmit].Done()
	o.shown, o.published, o.Held = 0, false, false
	o.Ep.Delivery.Sent(o.Ep, o.M, o.psn, o.offset, o.Length, o.credit, o.retry)
	return FrameSent
}

// resume goes on with a frame that is held. It reports whether anything moved.
func (t *Transmitter) resume() bool {
	o := &t.Outgoing
	if t.Waiting&TransmitHooks != 0 {
		return false
	}
	if r := o.Ep.Flow; o.Ep.Era != o.Era || o.retry && o.psn-r.Una >= r.Nxt-r.Una {
		// The connection has ended, or the frame has arrived after all: its memory
		// may be the host's again.
		t.drop()
		return true
	}
	if t.Box != nil {
		gathered := o.Gathered
		return t.Box.gather() != FrameWaiting || o.Gathered != gathered
	}
	t.DMA.checkPulses(Transmit)
	gathered, shown := o.Gathered, o.shown
	moved := t.feed() != FrameWaiting || o.Gathered != gathered || o.shown != shown
	if moved {
		t.DMA.report(Transmit)
	}
	return moved
}

// drop gives up the frame that is being sent, if there is one.
func (t *Transmitter) drop() {
	t.Held = false
	if t.Box != nil {
		t.Box.giveUp()
		return
	}
	if t.published {
		t.progressive.Abort()
	}
	t.shown, t.published = 0, false
	t.DMA.Movers[Transmit].Drop()
	t.DMA.report(Transmit)
}
