package ends

import "sync/atomic"

// Hook is a function that can be set and called from any goroutine: what SetWake
// and OnLink of a Port set. The zero value does nothing.
type Hook struct{ f atomic.Pointer[func()] }

// Set has Call call f from now on. Nil ends it.
func (h *Hook) Set(f func()) {
	if f == nil {
		h.f.Store(nil)
		return
	}
	h.f.Store(&f)
}

// IsSet reports whether Call would call anything.
func (h *Hook) IsSet() bool { return h.f.Load() != nil }

// Call calls the function, if one is set.
func (h *Hook) Call() {
	if f := h.f.Load(); f != nil {
		(*f)()
	}
}
