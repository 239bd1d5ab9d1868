package machine

// outcome says how a run ended.
type outcome uint8

const (
	answered outcome = iota
	exhausted
	trapped
	called // a call or another slow op is to be carried out
)

// run runs the program from its start. Unless it answered, the number is that of
// the op at fault.
func (p *Program) run() (answer uint64, how outcome) {
	clear(p.used)
	value, pc, left, how := p.interpret(0, p.budget)
	for how == called {
		if !p.slow(&p.code[pc-1], value) {
			return uint64(pc - 1), trapped
		}
		value, pc, left, how = p.interpret(pc, left)
	}
	if how != answered {
		return uint64(pc - 1), how
	}
	return value, answered
}

// slow carries out an op for which interpret does not keep its variables in
// registers. It returns false for a trap.
func (p *Program) slow(o *op, b uint64) (ok bool) {
	switch o.code {
	case opLoadSigned:
		p.registers[o.dst], ok = p.read.loadSigned(b, uint32(o.aux))
	case opAtomic:
		ok = p.atomic(o, b)
	case opCall:
		ok = p.call(b)
	}
	return ok
}
