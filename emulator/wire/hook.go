package wire

import "sync/atomic"

// hook is a function that can be set and called from any goroutine. The zero
// value does nothing.
type hook struct{ f atomic.Pointer[func()] }

func (h *hook) set(f func()) {
	if f == nil {
		h.f.Store(nil)
		return
	}
	h.f.Store(&f)
}

func (h *hook) call() {
	if f := h.f.Load(); f != nil {
		(*f)()
	}
}
