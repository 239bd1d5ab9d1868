package via_test

import (
	"bytes"
	"context"
	"errors"
	"testing"

	"github.com/trapeze-nic/trapeze/conform"
	firmware "github.com/trapeze-nic/trapeze/firmware-loader"
	"github.com/trapeze-nic/trapeze/firmware-loader/load"
	"github.com/trapeze-nic/trapeze/internal/abi"
	"github.com/trapeze-nic/trapeze/internal/datasheet"
	"github.com/trapeze-nic/trapeze/via"
)

// build makes an image that we ship.
func build(t testing.TB, name string) (load.Image, []abi.Map) {
	t.Helper()
	s, err := firmware.BuildShipped(name)
	if err != nil {
		t.Fatal(err)
	}
	img, err := load.Flat(s.Link())
	if err != nil {
		t.Fatal(err)
	}
	return img, s.Maps
}

// TestPrograms loads a program, reads what it has counted, and rolls it back.
func TestPrograms(t *testing.T) {
	for _, options := range []string{"", "&engine=thread"} {
		a, b := conform.OnMemory(t, options, via.Options{})
		amp, _ := build(t, "amp")
		count, maps := build(t, "count")
		for _, n := range []*via.NIC{a, b} {
			if _, err := n.LoadProgram(t.Context(), amp, load.Options{}); err != nil {
				t.Fatal(err)
			}
		}
		s, err := b.LoadProgram(t.Context(), count, load.Options{})
		if err != nil || s.Name != "count" || s.Digest != count.Digest {
			t.Fatalf("%+v, %v", s, err)
		}
		p := newPingPong(t, conform.NewWorld(t, a, b), 30_000)
		p.bothRound(t)
		index := 0
		for maps[index].Name != "rest" {
			index++
		}
		m, err := b.ProgramMap(maps, index)
		if err != nil {
			t.Fatal(err)
		}
		key, zeros := make([]byte, 4), make([]byte, 16)
		value := make([]byte, 16)
		if err := m.Lookup(key, value); err != nil || bytes.Equal(value, zeros) || m.Spec().Name != "rest" {
			t.Errorf("%x, %v", value, err)
		}
		if err := errors.Join(m.Update(key, zeros, datasheet.MailboxExists), m.Lookup(key, value)); err != nil || !bytes.Equal(value, zeros) {
			t.Errorf("%x, %v", value, err)
		}
		var keys [][]byte
		if err := m.Each(func(k, v []byte) bool { keys = append(keys, bytes.Clone(k)); return bytes.Equal(v, zeros) }); err != nil || len(keys) != 1 || !bytes.Equal(keys[0], key) {
			t.Errorf("%x, %v", keys, err)
		}
		for what, err := range map[string]error{
			"short key": m.Lookup(key[:1], value), "array": m.Delete(key), "absent": m.Update(key, value, datasheet.MailboxAbsent),
		} {
			var e *via.Error
			if !errors.As(err, &e) || !errors.Is(err, via.ErrInvalidParameter) || e.Device != b.Address() {
				t.Errorf("%s: %v", what, err)
			}
		}
		if s, err := b.RollBackProgram(t.Context(), load.Options{}); err != nil || s.Name != "amp" {
			t.Errorf("%+v, %v", s, err)
		}
		p.bothRound(t)
		if s, err := a.ProgramStatus(); err != nil || s.Hooks[abi.PulseTx].Runs == 0 || s.Hooks[abi.PulseRx].Runs == 0 {
			t.Errorf("%+v, %v", s, err)
		}
		if s, err := a.UnloadProgram(); err != nil || s.State != datasheet.ProcessorBuiltIn {
			t.Errorf("%+v, %v", s, err)
		}
		p.bothRound(t)
	}
}

// TestProgramErrors: what fails has the code that it should.
func TestProgramErrors(t *testing.T) {
	a, _ := conform.OnMemory(t, "", via.Options{})
	good, maps := build(t, "count")
	canceled, cancel := context.WithCancel(t.Context())
	cancel()
	loading := func(ctx context.Context, change func(*load.Image)) func() error {
		img := good
		change(&img)
		return func() error { _, err := a.LoadProgram(ctx, img, load.Options{}); return err }
	}
	for name, c := range map[string]struct {
		call func() error
		want []error
	}{
		"no image":     {loading(t.Context(), func(i *load.Image) { *i = load.Image{} }), []error{via.ErrInvalidParameter, load.ErrImage}},
		"other ABI":    {loading(t.Context(), func(i *load.Image) { i.ABI = 7 << 16 }), []error{via.ErrInvalidParameter, load.ErrABI}},
		"other device": {loading(t.Context(), func(i *load.Image) { i.Device = 1 }), []error{via.ErrInvalidParameter, load.ErrDevice}},
		"too large":    {loading(t.Context(), func(i *load.Image) { i.SRAM = 1 << 30 }), []error{via.ErrInvalidParameter, load.ErrSRAM}},
		"damaged":      {loading(t.Context(), func(i *load.Image) { i.Bytes = make([]byte, 400) }), []error{via.ErrDevice}},
		"canceled":     {loading(canceled, func(*load.Image) {}), []error{via.ErrCanceled, context.Canceled}},
		"no previous": {func() error { _, err := a.RollBackProgram(t.Context(), load.Options{}); return err },
			[]error{via.ErrInvalidState, load.ErrNoPrevious}},
		"no such map": {func() error { _, err := a.ProgramMap(maps, len(maps)); return err }, []error{via.ErrInvalidParameter, load.ErrMap}},
		"map of nothing": {func() error {
			m, err := a.ProgramMap(maps, 0)
			if err != nil {
				return err
			}
			return m.Each(func(_, _ []byte) bool { return true })
		}, []error{via.ErrInvalidState, load.ErrNoProgram}},
	} {
		err := c.call()
		for _, want := range c.want {
			var e *via.Error
			if !errors.Is(err, want) || !errors.As(err, &e) || e.Device != a.Address() {
				t.Errorf("%s: %v, want %v", name, err, want)
			}
		}
	}
}
