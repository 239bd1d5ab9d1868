package machine

// SetBudget bounds the instructions of a run.
func (p *Program) SetBudget(n int) { p.budget = n }
