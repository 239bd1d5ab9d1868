package netmem

// PagerID is the process of the pager.
func (m *Mapping) PagerID() int { return m.pager.cmd.Process.Pid }
