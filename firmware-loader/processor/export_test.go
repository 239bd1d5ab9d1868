package processor

// SetBudget bounds the instructions of a run.
func (p *Program) SetBudget(n int) { p.budget = n }

// Install has an image decide that nobody has checked.
func (u *Unit) Install(img *Image) {
	u.engine.Exclusive(func() {
		u.active, u.ran = 0, 0
		u.runner.install(u.engine, img)
	})
}
