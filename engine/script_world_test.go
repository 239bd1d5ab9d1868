package engine_test

import (
	"reflect"
	"strconv"
	"strings"

	"github.com/trapeze-nic/trapeze/ci/kit/must"
	"github.com/trapeze-nic/trapeze/engine"
	"github.com/trapeze-nic/trapeze/internal/script"
	"github.com/trapeze-nic/trapeze/pipeline"
)

// world is: world [OPTION...].
func (p *play) world(a *arguments) string {
	p.t.Helper()
	p.w = newWorld(p.t, p.options(a.Words, a.Changes...)...)
	if a.Flag("sram") {
		for _, n := range p.nodes(nil) {
			n.mapSRAM(sramSize, sramFrom)
		}
	}
	if a.Flag("calls") {
		p.w.a.calls, p.w.b.calls = true, true
	}
	return ""
}

// options are those of a world. Words are exact (it loses nothing), slots, checksum, parts and whole. With a number
// stand lend, burst, room, mtu, memory, cut (through), eager, pulse and the limits by their names. lossy has
// SEED,LOSS,TWICE,LATE,DAMAGED. Those of one node stand behind a. or b.
func (p *play) options(words []string, changes ...script.Change) []option {
	var options []option
	for _, w := range words {
		switch w {
		case "exact":
			p.exacts = new([2]*exact)
			options = append(options, exactly(p.exacts))
		case "slots":
			options = append(options, withSlots)
		case "checksum":
			options = append(options, func(_ *engine.Config, port *port) { port.checksum = true })
		case "parts":
			options = append(options, inParts(nil))
		case "whole":
			options = append(options, policies(pipeline.StoreAndForward{}, pipeline.StoreAndForward{}))
		case "plain", "sram", "calls":
		default:
			p.t.Fatalf("no world is %q", w)
		}
	}
	for _, c := range changes {
		options = append(options, p.option(c))
	}
	return options
}

func (p *play) option(c script.Change) option {
	p.t.Helper()
	for i, prefix := range []string{"a.", "b."} {
		if name, only := strings.CutPrefix(c.Path, prefix); only {
			o := p.option(script.Change{Path: name, Op: c.Op, Value: c.Value})
			return func(c *engine.Config, port *port) {
				if int(c.MAC[5]) == i+1 {
					o(c, port)
				}
			}
		}
	}
	if c.Path == "lossy" {
		var n [5]float64
		for i, s := range strings.Split(c.Value, ",") {
			f := must.Get(strconv.ParseFloat(s, 64))(p.t)
			n[i] = f
		}
		return lossy(uint64(n[0]), n[1], n[2], n[3], n[4])
	}
	if c.Path == "lend" {
		p.lenders = new([2]*lender)
		return lending(int(p.value(c.Value)), p.lenders)
	}
	n := int(int64(p.value(c.Value)))
	switch c.Path {
	case "burst":
		return bursts(n)
	case "eager": // receivers place whatever has arrived, by so many bytes at least
		return policies(nil, pipeline.Eager{MinPulse: n})
	case "pulse":
		return policies(pipeline.Static{Pulse: n}, nil)
	case "cut":
		return policies(pipeline.Eager{MinPulse: n}, pipeline.Eager{MinPulse: n})
	case "room":
		return func(_ *engine.Config, port *port) { port.room = n }
	case "mtu":
		return func(_ *engine.Config, port *port) { port.mtu = n }
	case "memory":
		return memory(n)
	case "pieces":
		return func(c *engine.Config, _ *port) { c.Memory.(*node).pieces = uint64(n) }
	case "FIFO", "Stop", "Start", "PerFrame", "NeverStop":
		return func(config *engine.Config, _ *port) {
			if f := reflect.ValueOf(&config.Cells).Elem().FieldByName(c.Path); f.Kind() == reflect.Bool {
				f.SetBool(n != 0)
			} else {
				f.SetInt(int64(n))
			}
		}
	}
	return func(config *engine.Config, _ *port) {
		if config.Limits == (engine.Limits{}) {
			config.Limits = engine.DefaultLimits()
		}
		p.change(&config.Limits, c)
	}
}
