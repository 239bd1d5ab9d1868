package processor

import "github.com/trapeze-nic/trapeze/firmware-loader/internal/machine"

// Install has an image decide that nobody has checked.
func (u *Unit) Install(img *machine.Image) {
	u.engine.Exclusive(func() {
		u.active, u.ran = 0, 0
		u.runner.install(u.engine, img)
	})
}
