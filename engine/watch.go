package engine

import "github.com/trapeze-nic/trapeze/engine/internal/core"

// Watch has show see each whole frame that is sent or has come, until it is called with nil. A
// reset does not end that. It reports whether it does: two cannot watch. Meanwhile payloads are
// copied into frames that are sent, in place of references. What comes in parts is taken when it
// is whole.
//
// The goroutine that steps the engine calls show. It must not keep the frame, nor change it, nor
// trust it: it has not been checked, and a peer may go on writing to it. After Watch(nil) show is
// not called any more.
func (e *Engine) Watch(show func(sent bool, frame []byte)) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.core.Show != nil && show != nil {
		return false
	}
	e.core.Show = show
	if e.core.Hooks &^= core.Watching; show != nil {
		e.core.Hooks |= core.Watching
	}
	e.core.Welcome()
	return true
}
