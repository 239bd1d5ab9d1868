package vfio

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"sync"
	"unicode"

	"github.com/trapeze-nic/trapeze/internal/option"
)

// Address names a device: "pci:0000:03:00.0", "vfio-user:/run/nic0.sock",
// "emu:" or "emu:?wire=udp://127.0.0.1:9000".
type Address struct {
	// Scheme stands before the first colon.
	Scheme string
	// Path follows, up to a question mark.
	Path string
	// Options are the key=value pairs after the question mark.
	Options url.Values
	text    string
}

// String returns the address as it was given.
func (a Address) String() string { return a.text }

// Decode reads the options into the fields of structs that are tagged option:"NAME", see option.Decode. Errors are *Error
// and wrap ErrBadAddress.
func (a Address) Decode(into ...any) error {
	if err := option.Decode("option", a.Options, into...); err != nil {
		return a.Refuse(err, "")
	}
	return nil
}

// Refuse is the error about an address that cannot be used: it wraps err and ErrBadAddress. Without a hint, an unknown option
// has one.
func (a Address) Refuse(err error, hint string) *Error {
	if unknown, ok := errors.AsType[*option.UnknownError](err); ok && hint == "" {
		hint = unknown.Hint()
	}
	return &Error{Op: "open", Device: a.text, Err: fmt.Errorf("%w: %w", ErrBadAddress, err), Hint: hint}
}

// ParseAddress splits a device address: SCHEME:PATH?KEY=VALUE&KEY=VALUE, where
// PATH and the options may be missing. A scheme is a lower-case letter and
// lower-case letters, digits and hyphens. Each option has a name and is given
// once; a value may hold anything, with %XX for the characters ; & + % and for
// control characters. The scheme's back end checks the rest. Errors wrap
// ErrBadAddress.
func ParseAddress(s string) (Address, error) {
	bad := func(why string) (Address, error) {
		return Address{}, &Error{Op: "parse address", Device: fmt.Sprintf("%q", s), Err: fmt.Errorf("%w: %s", ErrBadAddress, why),
			Hint: "use pci:0000:03:00.0, vfio-user:/path.sock or emu:?key=value&key=value"}
	}
	scheme, rest, ok := strings.Cut(s, ":")
	if !ok || !schemes.MatchString(scheme) {
		return bad("it does not start with a scheme and a colon")
	}
	if strings.ContainsFunc(s, unicode.IsControl) {
		return bad("it holds a control character")
	}
	path, query, _ := strings.Cut(rest, "?")
	// An option's value may itself be an address, so a semicolon or a bad
	// escape is an error here and not a part of a value.
	opts, err := url.ParseQuery(query)
	if err != nil {
		return bad(err.Error())
	}
	for k, v := range opts {
		if k == "" {
			return bad("an option has no name")
		}
		if len(v) > 1 {
			return bad(fmt.Sprintf("option %q is given %d times", k, len(v)))
		}
	}
	return Address{Scheme: scheme, Path: path, Options: opts, text: s}, nil
}

var schemes = regexp.MustCompile("^[a-z][a-z0-9-]*$")

// openers open the device at an address, by scheme.
var openers = struct {
	sync.Mutex
	m     map[string]func(ctx context.Context, a Address) (Device, error)
	whole map[string]bool // their devices have no interfaces
}{m: map[string]func(ctx context.Context, a Address) (Device, error){}, whole: map[string]bool{}}

// Register makes a back end known under a scheme. Back ends that live outside
// this package, the emulator above all, call it when they are imported. It
// panics if the scheme is taken, as two packages then contradict each other.
func Register(scheme string, open func(ctx context.Context, a Address) (Device, error)) {
	openers.Lock()
	defer openers.Unlock()
	if _, ok := openers.m[scheme]; ok {
		panic("vfio: scheme " + scheme + " registered twice")
	}
	openers.m[scheme] = open
}

// RegisterWhole is Register for devices without interfaces: open gets addresses with the option
// interface, too, and refuses it as any other that it does not know.
func RegisterWhole(scheme string, open func(ctx context.Context, a Address) (Device, error)) {
	Register(scheme, open)
	openers.Lock()
	defer openers.Unlock()
	openers.whole[scheme] = true
}

// Schemes lists the schemes that can be opened, sorted.
func Schemes() []string {
	openers.Lock()
	defer openers.Unlock()
	return slices.Sorted(maps.Keys(openers.m))
}

// ParseKnown is ParseAddress for an address that Open is to open. It fails with ErrUnknownScheme too.
func ParseKnown(address string) (Address, error) {
	a, err := ParseAddress(address)
	if known := Schemes(); err == nil && !slices.Contains(known, a.Scheme) {
		err = &Error{Op: "open", Device: address, Err: fmt.Errorf("%w %q", ErrUnknownScheme, a.Scheme),
			Hint: "this program knows " + strings.Join(known, ", ")}
	}
	return a, err
}

// Open opens the device at address. It fails with ErrBadAddress,
// ErrUnknownScheme or the errors of the back end.
func Open(ctx context.Context, address string) (Device, error) {
	a, err := ParseKnown(address)
	if err != nil {
		return nil, err
	}
	openers.Lock()
	open, whole := openers.m[a.Scheme], openers.whole[a.Scheme]
	openers.Unlock()
	if a.Options.Has(interfaceOption) && !whole {
		return openInterface(ctx, a, open)
	}
	return open(ctx, a)
}
