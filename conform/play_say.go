package conform

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"

	"github.com/trapeze-nic/trapeze/channel"
	"github.com/trapeze-nic/trapeze/descriptors"
	"github.com/trapeze-nic/trapeze/internal/datasheet"
	"github.com/trapeze-nic/trapeze/ring"
	"github.com/trapeze-nic/trapeze/via"
)

// finer are errors that say more than their code.
var finer = []error{descriptors.ErrMisaligned, descriptors.ErrTooSmall, descriptors.ErrLengthOverflow, descriptors.ErrTooManySegments,
	ring.ErrNotOwned, ring.ErrNoRoom, ring.ErrDeadline, channel.ErrLength,
	context.DeadlineExceeded, context.Canceled}

// ends are codes of how a connection has ended. Wires that lose frames change them.
var ends = []via.Code{via.ErrDisconnected, via.ErrPeerLost, via.ErrConnectionBroken, via.ErrPathMTU}

// sayError names all codes that an error matches, and what it says besides. A descriptor's is its status.
func sayError(err error) string {
	var status *via.StatusError
	switch {
	case err == via.ErrNotDone, err == via.ErrQueueEmpty, err == via.ErrQueueFull: // bare
		return err.Error()
	case errors.Is(err, ring.ErrPeerGone):
		return ring.ErrPeerGone.Error()
	case errors.As(err, &status):
		return sayFailure(status.Status)
	}
	var is []string
	for c := via.ErrNotDone; c <= via.ErrPathMTU; c++ {
		if errors.Is(err, c) && !slices.Contains(ends, c) {
			is = append(is, c.Error())
		}
	}
	for _, e := range finer {
		if errors.Is(err, e) {
			is = append(is, e.Error())
		}
	}
	var typed *via.Error
	if code := via.Code(0); !errors.As(err, &typed) && !errors.As(err, &code) {
		is = append(is, fmt.Sprintf("a %T: %v", err, err))
	}
	return strings.Join(is, "; ")
}

// says reports whether an error matches the code or the error with that text.
func says(err error, text string) bool {
	for c := via.ErrNotDone; c <= via.ErrPathMTU; c++ {
		if c.Error() == text && errors.Is(err, c) {
			return true
		}
	}
	return slices.ContainsFunc(append(finer, ring.ErrPeerGone), func(e error) bool { return e.Error() == text && errors.Is(err, e) })
}

// sayEnd says how an error says that a connection has ended.
func sayEnd(err error) string {
	var is []string
	for _, c := range ends {
		if errors.Is(err, c) {
			is = append(is, c.Error())
		}
	}
	var status *via.StatusError
	if errors.As(err, &status) && status.Ended != 0 && !errors.Is(err, status.Ended) {
		is = append(is, "and the descriptor says "+status.Ended.Error())
	}
	if is == nil {
		return "by this end"
	}
	return strings.Join(is, ", ")
}

// sayFailure names the errors in a status.
func sayFailure(s via.Status) string {
	return strings.TrimPrefix((s & (datasheet.StatusDone | datasheet.StatusErrorMask)).String(), "done, ")
}

// say prints a value: an object by its name, everything else as it prints itself.
func (p *play) say(v reflect.Value) string {
	switch o := v.Interface().(type) {
	case *handler:
		o.mu.Lock()
		defer o.mu.Unlock()
		return fmt.Sprint(len(o.calls))
	case via.Completion:
		return fmt.Sprintf("%s: the %s, user %d", p.say(reflect.ValueOf(o.VI)), o.Queue, o.User)
	case error:
		return sayError(o)
	case fmt.Stringer:
		return o.String()
	}
	if v.Kind() == reflect.Pointer {
		return p.nameOf(v)
	}
	return fmt.Sprint(v.Interface())
}

// nameOf finds the name of an object.
func (p *play) nameOf(v reflect.Value) string {
	if v.IsNil() {
		return "nil"
	}
	d, _ := v.Interface().(*via.Descriptor)
	for _, name := range slices.Sorted(maps.Keys(p.names)) { // an object may have two names
		named := p.names[name]
		e, is := named.Interface().(*End)
		switch {
		case named.Kind() == reflect.Pointer && named.Pointer() == v.Pointer():
			return name
		case !is:
		case v.Pointer() == reflect.ValueOf(e.VI).Pointer():
			return name
		case slices.Contains(e.Send, d):
			return fmt.Sprintf("%s.Send.%d", name, slices.Index(e.Send, d))
		case slices.Contains(e.Recv, d):
			return fmt.Sprintf("%s.Recv.%d", name, slices.Index(e.Recv, d))
		}
	}
	return "an unknown " + v.Type().String()
}

// operations are those of a status, by bits 18:16.
var operations = []string{"sent", "received", "written", "written by the other end", "read", "?", "??", "???"}

// sayDone prints how a descriptor has completed.
func (p *play) sayDone(d *via.Descriptor, err error) string {
	if d == nil {
		return sayError(err)
	}
	line := p.nameOf(reflect.ValueOf(d)) + ": "
	if err != nil {
		var status *via.StatusError
		if !errors.Is(err, via.ErrDescriptor) || !errors.As(err, &status) || status.Status != d.Status() || !d.Status().Done() {
			return line + fmt.Sprintf("status %v, and the error is %v", d.Status(), err)
		}
		if d.Status()&via.StatusFlushed != 0 {
			line += fmt.Sprintf("%d bytes %s, ", d.Length(), operations[d.Status()>>16&7])
		}
		return line + sayFailure(d.Status())
	}
	line += fmt.Sprintf("%d bytes %s", d.Length(), operations[d.Status()>>16&7])
	if v, ok := d.Immediate(); ok {
		line += fmt.Sprintf(", immediate %d", v)
	}
	if u := d.User().Word; u != 0 {
		line += fmt.Sprintf(", user %d", u)
	}
	return line
}
